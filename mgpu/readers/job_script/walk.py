"""Which commands does a shell script run, and those that it starts, with its own variables expanded?"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from mgpu.readers.job_script import programs, started_files
from mgpu.readers.job_script.exit_codes import exit_code
from mgpu.readers.job_script.expansion import LONGEST_VALUE, Env, How, Value, join, plain
from mgpu.readers.job_script.missing_files import MissingFiles
from mgpu.readers.job_script.records import Recorder
from mgpu.readers.job_script.shell import Reader
from mgpu.readers.job_script.shell_nodes import Assign, Block, Node, Simple
from mgpu.readers.job_script.shell_words import Part, Text, TooMuch
from mgpu.readers.job_script.started_files import StartedFiles
from mgpu.snapshot import JobTrap

_LONGEST_RUN, _MOST_RUNS = 200, 10  # of commands inside $( ): characters, and number recorded
_DEEPEST = 12  # maximum depth of nested shells and functions
_SHELL_SCRIPT = (".sh", ".bash", ".sbatch", ".slurm")


class Walk(Recorder):
    """Walks through the statements of a script, and of the files it starts, once."""

    def __init__(self, budget: list[int], path: Path, lines: int) -> None:
        super().__init__(budget, StartedFiles(path, lines, budget))
        self.traps: list[JobTrap] = []
        self.stops_at_errors = False
        self.cut = False
        self.handed: set[int] = set()  # lines of heredocs, which are input of commands
        self.needed = MissingFiles(path, self.commands, self.started.unread, self.places)
        self._beside = path.parent
        self._functions: dict[str, list[Node]] = {}

    def script(self, text: Text, folder: str) -> None:
        """Process a whole script that starts in a folder: that of --chdir, or ""."""
        reader = Reader(text, self.budget)
        nodes, whole = reader.all()
        self.cut |= not whole
        self.handed = reader.handed
        try:
            env = Env(folder=folder, beside=self._beside)
            for node in nodes:
                self._statement = node.line
                self._run([node], env, How())
        except (TooMuch, RecursionError):
            self.cut = True

    # --- statements -------------------------------------------------------------------------------------------

    def _text(self, text: Text, env: Env, how: How) -> None:
        """Process a text that is run by another shell."""
        if env.depth > _DEEPEST:
            raise TooMuch
        nodes, whole = Reader(text, self.budget).all()
        self.cut |= not whole
        self._run(nodes, env, how)

    def _run(self, nodes: Sequence[Node], env: Env, how: How) -> None:
        for node in nodes:
            self.budget[0] -= 1
            if self.budget[0] < 0:
                raise TooMuch
            if isinstance(node, Simple):
                self._simple(node, env, how)
            else:
                self._block(node, env, how)

    def _block(self, block: Block, env: Env, how: How) -> None:
        if block.background:
            how = dataclasses.replace(how, background=True)
        maybe = dataclasses.replace(how, unsure=True)
        if block.kind == "function":
            self._functions[block.name] = block.parts[0]
        elif block.kind == "group":
            self._run(block.parts[0], env, how)
        elif block.kind == "subshell":
            self._run(block.parts[0], env.copy(), how)
        elif block.kind == "pipe":
            lost = dataclasses.replace(how, piped=how.piped or not env.pipefail)
            for part in block.parts[:-1]:
                self._run(part, env.copy(), lost)
            self._run(block.parts[-1], env.copy(), how)
        elif block.kind == "or":
            self._branches([block.parts[0]], env, maybe, otherwise=False)
        elif block.kind == "if":
            self._run(block.parts[0], env, how)
            self._branches(block.parts[1:], env, maybe, otherwise=block.otherwise)
        elif block.kind == "case":
            self._branches(block.parts, env, maybe, otherwise=False)
        else:
            inside = env.copy()
            if block.name:
                self._set_unknown(block.name, inside, maybe, block.line)
            self._run(block.parts[0] if block.parts else [], inside, maybe)
            self._merge(env, [env.copy(), inside])

    def _branches(self, parts: list[list[Node]], env: Env, how: How, *, otherwise: bool) -> None:
        ends = [] if otherwise else [env.copy()]
        for part in parts:
            inside = env.copy()
            self._run(part, inside, how)
            ends.append(inside)
        self._merge(env, ends)

    def _merge(self, env: Env, ends: list[Env]) -> None:
        """Merge the variables after branches: keep values, and the first elements of arrays, that are equal in all."""
        names = {name for end in ends for name in end.values}
        for name in names:
            seen = {plain(end.values.get(name)) for end in ends}
            if len(seen) == 1:
                if (value := ends[0].values.get(name)) is not None:
                    env.values[name] = value
            else:
                env.values[name] = self._differing([end.values.get(name) for end in ends], name, env)
        env.exported |= set().union(*(end.exported for end in ends))

    # --- commands ---------------------------------------------------------------------------------------------

    def _simple(self, node: Simple, env: Env, how: How) -> None:
        first = node.words[0].plain if node.words else None
        if first in ("export", "declare", "local", "readonly", "typeset"):
            self._declare(node, first, env, how)
            return
        if not node.words:
            for assign in node.assigns:
                self._assign(assign, env, how, exported=assign.name in env.exported or env.all_exported)
            self._record_outputs(node, env, how, len(self.commands))
            return
        fields = self._fields(node.words, env, how)
        if not fields:
            return
        given: dict[str, Text] = {}
        for assign in node.assigns:
            value = self._expand_value(assign.values, env, how) if not assign.array else Text()
            given[assign.name] = value
        before = len(self.commands)
        self._command(fields, env, how, given, node)
        self._record_outputs(node, env, how, before)

    def _declare(self, node: Simple, first: str, env: Env, how: How) -> None:
        flags = "".join(word.raw[1:] for word in node.words[1:] if word.raw.startswith("-"))
        exported = (first == "export" and "n" not in flags) or "x" in flags
        for word in node.words[1:]:
            name = word.plain or ""
            if name.isidentifier() and exported:
                env.exported.add(name)
        for assign in node.assigns:
            self._assign(assign, env, how, exported=exported or assign.name in env.exported)

    def _assign(self, assign: Assign, env: Env, how: How, *, exported: bool) -> None:
        value: Value
        if assign.array:
            value = self._fields(assign.values, env, how)
            if assign.append and (earlier := env.values.get(assign.name)) is not None:
                value = [*(earlier if isinstance(earlier, list) else [earlier]), *value]
        else:
            value = self._expand_value(assign.values, env, how)
            if assign.append and assign.name in env.values and not assign.element:
                earlier = env.values[assign.name]
                joined = join(earlier) if isinstance(earlier, list) else earlier.cut(0, len(earlier.s))
                joined.add(value)
                value = joined
        flat = join(value) if isinstance(value, list) else value
        if len(flat.s) > LONGEST_VALUE:
            value = flat = self._unknown(assign.name, env, assign.line)
        self._record_assignment(assign, flat, env, how, exported=exported)
        if assign.element:  # of an array, which is no longer known
            value = self._unknown(assign.name, env, assign.line)
        if any(one.name == assign.name for one in self._variables(flat, 0)):
            env.perhaps.add(assign.name)
        env.values[assign.name] = value
        env.hidden.discard(assign.name)
        if exported:
            env.exported.add(assign.name)

    def _command(self, fields: list[Text], env: Env, how: How, given: Mapping[str, Text], node: Simple) -> None:
        """Process a command with expanded words."""
        name = fields[0].s
        if name in self._functions and env.depth < _DEEPEST:
            body = self._functions[name]
            inside = env.copy()
            inside.places, inside.depth = fields[1:], env.depth + 1
            self._run(body, inside, how)
            for changed, value in inside.values.items():  # a function's assignments apply to the script
                env.values[changed] = value
            env.exported |= inside.exported
        elif name == "set":
            self._set(fields[1:], env)
        elif name == "shift":
            amount = fields[1].s if len(fields) > 1 else "1"
            if env.places is not None:
                env.places = env.places[int(amount) :] if amount.isdecimal() and len(amount) < 5 else None
        elif name == "trap":
            self._trap(fields, env, how, node.line)
        elif name in (".", "source"):
            if len(fields) > 1:
                self._source(fields[1:], env, how)
        elif name in ("cd", "pushd"):
            env.folder = self._folder_after(fields[1:], env)
        elif name == "eval":
            self._text(join(fields[1:]), dataclasses.replace(env, depth=env.depth + 1), how)
        elif name == "unset":
            self._record(fields, env, how, node)
            for word in fields[1:]:
                env.values.pop(word.s, None)
                env.exported.discard(word.s)
        elif name in ("read", "mapfile", "readarray", "getopts"):
            self._input(fields, env, how, node)
        else:
            self._program(fields, env, how, given, node)

    def _set(self, fields: list[Text], env: Env) -> None:
        """Process the options of set."""
        options = "".join(word.s[1:] for word in fields if re.fullmatch(r"-[a-zA-Z]+", word.s))
        self.stops_at_errors |= ("e" in options or "errexit" in [word.s for word in fields]) and not env.through
        options_text = " ".join(word.s for word in fields)
        env.pipefail = env.pipefail or ("pipefail" in options_text and "+o pipefail" not in options_text)
        if "a" in options or "-o allexport" in options_text:
            env.all_exported = True
        elif re.search(r"(?<!\S)\+(?:\w*a|o allexport)", options_text):
            env.all_exported = False

    def _trap(self, fields: list[Text], env: Env, how: How, line: int) -> None:
        words = [word.s for word in fields[1:]]
        if len(words) < 2 or words[0] in ("-", "-p", "-l"):
            return
        signals = tuple(word.removeprefix("SIG") for word in words[1:])
        code = exit_code(Reader(fields[1], self.budget).all()[0], self._functions)
        self.traps.append(JobTrap(line, signals, self._fill_holes(fields[1]), code))
        called = dataclasses.replace(how, unsure=True, background=False)
        inside = dataclasses.replace(env.copy(), depth=env.depth + 1, through=(*env.through, "trap"))
        self._text(fields[1], inside, called)

    def _folder_after(self, words: list[Text], env: Env) -> str:
        """Return the folder after a cd."""
        to = self._fill_holes(words[-1]) if words else "~"
        whole = to.startswith(("/", "~", "$")) or not env.folder
        return to if whole else f"{env.folder}/{to}"

    def _source(self, fields: list[Text], env: Env, how: How) -> None:
        """Process source FILE, which runs in this shell."""
        written = self._fill_holes(fields[0])
        found = self._file(written, env)
        if isinstance(found, str):
            line = fields[0].line(self._statement)
            self.started.add_unread(written, line, found, sourced=True, on_node=env.on_node)
        elif found is not None:
            path, text = found
            inside = dataclasses.replace(env, depth=env.depth + 1, beside=path.parent, running=(*env.running, path))
            inside.places = fields[1:] or env.places
            self._text(text, inside, how)
            env.folder, env.pipefail, env.all_exported = inside.folder, inside.pipefail, inside.all_exported

    def _start(self, fields: list[Text], words: list[str], env: Env, how: How, *, by_shell: bool = False) -> bool:
        """Process FILE ARGUMENTS, a shell script in a shell of its own; False if it is not a file that was read."""
        found = self._file(words[0], env)
        if isinstance(found, str) and (by_shell or words[0].endswith(_SHELL_SCRIPT)):
            line = fields[0].line(self._statement)
            self.started.add_unread(words[0], line, found, sourced=False, on_node=env.on_node)
        if found is None or isinstance(found, str):
            return False
        path, text = found
        outer, self._functions = self._functions, {}
        under = dataclasses.replace(env, depth=env.depth + 1, beside=path.parent, running=(*env.running, path))
        under.places, under.pipefail = fields[1:], False
        self._text(text, under, how)
        self._functions = outer
        return True

    def _file(self, written: str, env: Env) -> tuple[Path, Text] | str | None:
        """Return a file that is started, the reason why it was not read, or None if it is not a shell script."""
        found = self.started.shell_file(written, env.folder, env.beside)
        if isinstance(found, tuple):
            if found[0] in env.running:
                return None  # it starts itself
            if len(env.running) >= started_files.DEEPEST:
                return "too many files start each other"
        return found

    def _program(self, fields: list[Text], env: Env, how: How, given: Mapping[str, Text], node: Simple) -> None:
        """Process a program, and the programs it starts."""
        typed = env
        while fields:
            words = [self._fill_holes(one) for one in fields]
            base = programs.base(words[0])
            if base == "srun":
                if ":" in words[1:]:  # a heterogeneous job: each part has its own options and program
                    place = words.index(":", 1)
                    self._program(fields[:place], env, how, given, node)
                    self._program([fields[0], *fields[place + 1 :]], env, how, given, node)
                    return
                env, fields = self._srun(fields, words, env, how, given, node)
                given = {}
                if not fields:
                    return
                continue
            if base in programs.SHELLS:
                self._shell(fields, words, env, typed, how, given, node)
                return
            if programs.starter_of(words):
                break
            if _may_be_script(words[0]) and self._start(fields, words, env.child("bash", given=given), how):
                self._record(fields, env, how, node, given=given)
                return
            if (inner := programs.after_wrapper(words)) is None:
                break
            passed = {**given, **self._passed_variables(fields[1:inner])}
            env = env.child(base, on_node=base in programs.SPREADS, given=passed)
            given = {}
            if base in ("ssh", "pdsh", "clush") and not env.through[:-1]:
                env.values, env.exported, env.hidden = {}, set(), set()  # this shell's variables are not passed on
            self._record(fields[:inner], env, how, node, starts=True)
            fields = fields[inner:]
        if not fields:
            return
        if len(fields) > 1 and programs.base(words[0]) in ("ssh", "pdsh", "clush"):
            self._remote(fields, words, how, env)
            return
        self._record(fields, env, how, node, given=given)

    def _remote(self, fields: list[Text], words: list[str], how: How, env: Env) -> None:
        """Process ssh HOST TEXT, which a shell on the host runs."""
        place = 1
        while place < len(words) and words[place].startswith("-"):
            place += 2 if words[place][-1] in "ilopFJLRbcDEeImOQSWw" and len(words[place]) == 2 else 1
        if programs.base(words[0]) == "ssh":
            place += 1  # the host
        if place < len(fields):
            there = Env(on_node=True, through=(*env.through, programs.base(words[0])), depth=env.depth + 1)
            self._text(join(fields[place:]), there, how)

    def _srun(
        self, fields: list[Text], words: list[str], env: Env, how: How, given: Mapping[str, Text], node: Simple
    ) -> tuple[Env, list[Text]]:
        """Return the variables of the step, and the command that it starts."""
        place = programs.after_srun(words)
        step = self._record(fields[:place], env, how, node, given=given)
        under = env.child("srun", on_node=True, given={**given, **self._passed_variables(fields[1:place])})
        under.step = step
        return under, fields[place:]

    def _shell(
        self,
        fields: list[Text],
        words: list[str],
        env: Env,
        typed: Env,
        how: How,
        given: Mapping[str, Text],
        node: Simple,
    ) -> None:
        """Process bash -c TEXT, bash FILE, bash << END."""
        text = programs.shell_text(words)
        under = env.child(programs.base(words[0]), given=given)
        if text is not None:
            under.places = fields[text + 2 :]
            self._text(fields[text], under, how)
        elif (file := programs.shell_file(words)) is not None:
            self._record(fields, env, how, node, given=given)
            self._start(fields[file:], words[file:], under, how, by_shell=True)
        elif node.heredoc is not None:
            self._text(self._heredoc(node, typed, how), under, how)
        else:
            self._record(fields, env, how, node, given=given)

    def _substitute(self, part: Part, env: Env, how: How) -> Text:
        if env.depth > _DEEPEST:
            raise TooMuch
        inner = env.copy()
        inner.depth += 1
        nodes, whole = Reader(part.text, self.budget).all()
        self.cut |= not whole
        before = len(self.commands)
        self._run(nodes, inner, dataclasses.replace(how, inner=True))
        runs = tuple(" ".join(one.words)[:_LONGEST_RUN] for one in self.commands[before : before + _MOST_RUNS])
        if (printed := self._printed(nodes, inner, how)) is not None:
            return printed
        text = f"$({self._fill_holes(part.text).strip()})"
        return self._hole(text, text, env, part.line, runs)


def _may_be_script(word: str) -> bool:
    """Whether a program may be a shell script of the user: train.sh, ./train."""
    return not word.startswith("-") and (word.endswith(_SHELL_SCRIPT) or "/" in word)
