"""What does a job script run and set? One record for each command and assignment, with their secrets masked."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from mgpu.known_launchers import Launcher
from mgpu.readers.job_script import programs
from mgpu.readers.job_script.argparse_options import refused_options
from mgpu.readers.job_script.deepspeed_options import deepspeed_files
from mgpu.readers.job_script.expansion import HOLE, LONGEST_SHOWN, Env, Expander, How, join
from mgpu.readers.job_script.local_rank import names_old_torch, only_old_spelling
from mgpu.readers.job_script.missing_files import Output, Places
from mgpu.readers.job_script.secret_options import login_in_url, may_be_secret, secret_options
from mgpu.readers.job_script.shell_nodes import Assign, Simple
from mgpu.readers.job_script.shell_words import Text, TooMuch
from mgpu.readers.job_script.started_files import StartedFiles, shown_path
from mgpu.secret_names import is_secret_name
from mgpu.secrets_masking import MASK, is_secret_word, masked, masked_argv
from mgpu.snapshot import JobCommand, JobDeepSpeed, JobOption, JobSet, JobText

_MOST_COMMANDS = 2_000


class Recorder(Expander):
    """Records the commands and assignments of a script."""

    def __init__(self, budget: list[int], started: StartedFiles) -> None:
        super().__init__(budget)
        self.started = started
        self.commands: list[JobCommand] = []
        self.sets: list[JobSet] = []
        self.texts: list[JobText] = []
        self.deepspeed: list[JobDeepSpeed] = []
        self.places = Places()
        self._statement = 1  # line of the current top-level statement

    def _record_assignment(self, assign: Assign, flat: Text, env: Env, how: How, *, exported: bool) -> None:
        secret = is_secret_name(assign.name)
        named = is_secret_word(assign.name, flat.s) and may_be_secret(flat.s)
        if (named or login_in_url(flat.s)) and not HOLE.search(flat.s):
            self.texts.append(JobText(assign.line, "secret", assign.name))
        shown = MASK if secret and flat.s and not HOLE.search(flat.s) else masked(self._fill_holes(flat))
        raw = f"{assign.name}={MASK}" if secret else masked(assign.raw[:LONGEST_SHOWN])
        self._add_set(assign.name, assign.line, shown, env, how, exported=exported, raw=raw, flat=flat)

    def _add_set(
        self,
        name: str,
        line: int,
        value: str,
        env: Env,
        how: How,
        *,
        exported: bool = False,
        raw: str = "",
        flat: Text | None = None,
    ) -> None:
        """Record that a variable is set."""
        if len(self.sets) >= _MOST_COMMANDS:
            return
        self.sets.append(
            JobSet(
                line,
                name,
                value,
                exported,
                env.on_node,
                tuple(self._variables(flat, 0)) if flat else (),
                raw,
                self._statement,
                unsure=how.unsure,
            )
        )

    def _set_unknown(self, name: str, env: Env, how: How, line: int) -> None:
        """Set a variable to a value that is known only in the job: read NAME, for NAME in ..."""
        env.values[name] = self._unknown(name, env, 0)
        self._add_set(name, line, f"${name}", env, how, exported=name in env.exported, raw=f"${name}")

    def _input(self, fields: list[Text], env: Env, how: How, node: Simple) -> None:
        """Set the variables of `read`, to an unknown value unless it reads a whole heredoc."""
        names = [word.s for word in fields[1:] if word.s.isidentifier()]
        text = self._read_whole([word.s for word in fields[1:]], node, env, how) if len(names) == 1 else None
        if text is None:
            for name in names:
                self._set_unknown(name, env, how, node.line)
        else:
            assign = Assign(names[0], [], node.line, raw=f"{names[0]}=")
            exported = env.all_exported or names[0] in env.exported
            self._record_assignment(assign, text, env, how, exported=exported)
            env.values[names[0]] = text
            env.hidden.discard(names[0])

    def _record_outputs(self, node: Simple, env: Env, how: How, first: int) -> None:
        """Record the files to which a command redirects its output. `first`: the index of its first record."""
        for word in node.outputs:
            known = all(part.kind != "cmd" for part in word.parts)
            path = self._fill_holes(self._expand(word, env, how)) if known else "$"
            self.places.outputs.append(Output(path, word.line, first, len(self.commands), not node.words))

    def _record(
        self,
        fields: list[Text],
        env: Env,
        how: How,
        node: Simple,
        *,
        given: Mapping[str, Text] | None = None,
        starts: bool = False,
    ) -> int | None:
        """Record a command and return its index."""
        if len(self.commands) >= _MOST_COMMANDS:
            raise TooMuch
        words = shown_words = [self._fill_holes(one) for one in fields]
        launcher, script, line = None, None, self._line_of(fields, node.line, self._statement)
        if not starts and (found := programs.starter_of(words)):
            launcher, script, shown_words, fields = _launch(found, words, fields)
        lines = tuple(word.line(node.line) for word in fields)
        command = JobCommand(
            line,
            tuple(masked_argv(shown_words)),
            tuple(one for place, word in enumerate(fields) for one in self._variables(word, place)),
            through=env.through,
            step=env.step,
            env=self._mask_env(given or {}),
            launcher=launcher,
            script=script,
            background=how.background,
            unsure=how.unsure,
            inner=how.inner,
            lines=lines,
            statement=self._statement,
            code_lost=how.piped,
        )
        self.places.folders.append(env.folder)
        self.commands.append(self._with_script(command, shown_words, env))
        self.texts += secret_options(shown_words, lines)
        self.deepspeed += deepspeed_files(command, lambda file: self.started.find(file, env.folder, env.beside))
        return len(self.commands) - 1

    def _with_script(self, command: JobCommand, words: list[str], env: Env) -> JobCommand:
        """Return a command with what is known of its Python script. `words`: without masks."""
        script = command.script
        if script is None:
            return command
        module = words[script - 1].endswith("-m") or words[script - 1] == "--module"
        written = f"{words[script].replace('.', '/')}.py" if module else words[script]
        found = self.started.find(written, env.folder, env.beside) if written.endswith(".py") else None
        python = command.launcher == "python"
        return dataclasses.replace(
            command,
            uses=self.started.python_uses(words[script], env.folder, env.beside, module=module) if python else None,
            here=None if found is None else masked(shown_path(found)),
            refuses_local_rank=found is not None and self._refuses_local_rank(command, found),
            refused=() if found is None else _refused(found, words, script),
        )

    def _refuses_local_rank(self, command: JobCommand, script: Path) -> bool:
        """Whether a command passes --local-rank (torch 2) to a script that accepts --local_rank only (torch 1)."""
        options = {word.lstrip("-").replace("-", "_") for word in command.arguments}
        if not command.words[0].endswith(" torch.distributed.launch") or "use_env" in options:
            return False
        before = [" ".join(one.words) for one in self.commands]
        return only_old_spelling(script) and not names_old_torch(before, script)

    def _mask_env(self, given: Mapping[str, Text]) -> dict[str, str]:
        return {
            name: MASK if is_secret_name(name) else masked(self._fill_holes(value)) for name, value in given.items()
        }


def _refused(path: Path, words: list[str], script: int) -> tuple[JobOption, ...]:
    """Return the options after the script that its argparse does not accept."""
    found = refused_options(path, words[script + 1 :])
    return tuple(
        JobOption(script + 1 + at, words[script + 1 + at].partition("=")[0], near) for at, near in found.items()
    )


def _launch(
    found: tuple[Launcher, int], words: list[str], fields: list[Text]
) -> tuple[Launcher, int | None, list[str], list[Text]]:
    """Return a launcher, the index of its script, and its words: "python -m torch.distributed.run" is one name."""
    launcher, last = found
    script = programs.script_of(launcher, words, last)
    if last <= 0:
        return launcher, script, words, fields
    shown = [" ".join(words[: last + 1]), *words[last + 1 :]]
    return launcher, None if script is None else script - last, shown, _join_first(fields, last + 1)


def _join_first(fields: list[Text], number: int) -> list[Text]:
    return [join(fields[:number]), *fields[number:]]
