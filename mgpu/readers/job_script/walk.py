"""Which commands does a shell script run, with its own variables expanded, and which shell expands the others?

Every expansion with an unknown value becomes one private-use character (a hole) in the text. A table has its source
text, and whether the batch shell or a shell on the node expands it. So a text can pass through several shells.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from mgpu.readers.job_script import programs
from mgpu.readers.job_script.shell import Assign, Block, Node, Part, Reader, Simple, Text, TooMuch, Word
from mgpu.secrets_masking import MASK, is_secret_name, masked, masked_argv
from mgpu.snapshot import JobCommand, JobSet, JobText, JobTrap, JobVariable

_FIRST = 0xF0000  # private use area; such characters of the script are replaced when it is read
_MOST_HOLES = 20_000
_MOST_COMMANDS = 2_000
_LONGEST_VALUE = 32 << 10
_LONGEST_SHOWN = 2_000  # characters of a word or value in the fact
_LONGEST_RUN, _MOST_RUNS = 200, 10  # of commands inside $( ): characters, and number recorded
_DEEPEST = 12  # maximum depth of nested shells and functions
_HOLE = re.compile(f"[{chr(_FIRST)}-{chr(_FIRST + _MOST_HOLES)}]")
_INNER = re.compile(r"([!#]?)([A-Za-z_]\w*|[0-9@*#?$!_-]+)(\[[^\]]*\])?(.*)", re.DOTALL)
# Variables already in the job's environment: a new value is passed on without `export`.
_INHERITED = re.compile(r"(?:SLURM_\w+|CUDA_VISIBLE_DEVICES|PATH|LD_LIBRARY_PATH|HOME|USER|LOGNAME|TMPDIR|SHELL|PWD)$")
_PASSED_VARIABLE = re.compile(r"(?:^|,|=)([A-Za-z_]\w*)=([^,]*)")  # env A=1; srun --export=ALL,A=1; --env A=1,B=2
_ARITHMETIC_NAME = re.compile(r"\$?\{?\b([A-Za-z_]\w*)\b\}?")

_SHORTEST_SECRET = 8
_PLACEHOLDER = re.compile(
    r"[<>\[\]{}*]|\.\.\.|x{3}|your|token|key|insert|change|replace|todo|secret|password|here|fill", re.IGNORECASE
)

Value: TypeAlias = "Text | list[Text]"


@dataclass(frozen=True)
class _Hole:
    text: str  # as shown: "$NAME", "$(hostname)"
    name: str
    on_node: bool
    line: int
    unset: bool = False
    runs: tuple[str, ...] = ()


@dataclass
class _Env:
    """The variables of one shell, and where it runs."""

    values: dict[str, Value] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    hidden: set[str] = field(default_factory=set)  # set by a parent shell, but not exported
    perhaps: set[str] = field(default_factory=set)  # NAME=${NAME:-...}: may already be exported
    on_node: bool = False
    through: tuple[str, ...] = ()
    step: int | None = None
    places: list[Text] | None = None  # $1 $2 ...
    all_exported: bool = False  # set -a
    depth: int = 0

    def copy(self) -> _Env:
        """Return a copy for a branch or a subshell."""
        return dataclasses.replace(
            self,
            values=dict(self.values),
            exported=set(self.exported),
            hidden=set(self.hidden),
            perhaps=set(self.perhaps),
        )

    def child(self, through: str, *, on_node: bool = False, given: Mapping[str, Text] | None = None) -> _Env:
        """Return the variables of a shell that a program of this one starts."""
        given = given or {}
        handed = {name: value for name, value in self.values.items() if name in self.exported} | dict(given)
        kept = {name for name in self.values if name not in self.exported | self.perhaps and not _INHERITED.match(name)}
        return _Env(
            dict(handed),
            self.exported | set(given),
            (kept | self.hidden) - set(handed),
            set(self.perhaps),
            self.on_node or on_node,
            (*self.through, through),
            self.step,
            [],
            False,
            self.depth + 1,
        )


@dataclass(frozen=True)
class _How:
    """The conditions under which a command runs."""

    unsure: bool = False
    background: bool = False
    inner: bool = False


class Walk:
    """Walks through the statements of a script once."""

    def __init__(self, budget: list[int]) -> None:
        self.budget = budget
        self.commands: list[JobCommand] = []
        self.sets: list[JobSet] = []
        self.traps: list[JobTrap] = []
        self.texts: list[JobText] = []
        self.sourced: list[str] = []
        self.stops_at_errors = False
        self.cut = False
        self._statement = 1  # line of the current top-level statement
        self.handed: set[int] = set()  # lines of heredocs, which are input of commands
        self._holes: list[_Hole] = []
        self._functions: dict[str, list[Node]] = {}

    def script(self, text: Text) -> None:
        """Process a whole script."""
        reader = Reader(text, self.budget)
        nodes, whole = reader.all()
        self.cut |= not whole
        self.handed = reader.handed
        try:
            env = _Env()
            for node in nodes:
                self._statement = node.line
                self._run([node], env, _How())
        except (TooMuch, RecursionError):
            self.cut = True

    # --- statements -------------------------------------------------------------------------------------------

    def _text(self, text: Text, env: _Env, how: _How) -> None:
        """Process a text that is run by another shell."""
        if env.depth > _DEEPEST:
            raise TooMuch
        nodes, whole = Reader(text, self.budget).all()
        self.cut |= not whole
        self._run(nodes, env, how)

    def _run(self, nodes: Sequence[Node], env: _Env, how: _How) -> None:
        for node in nodes:
            self.budget[0] -= 1
            if self.budget[0] < 0:
                raise TooMuch
            if isinstance(node, Simple):
                self._simple(node, env, how)
            else:
                self._block(node, env, how)

    def _block(self, block: Block, env: _Env, how: _How) -> None:
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
            for part in block.parts:
                self._run(part, env.copy(), how)
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
                inside.values[block.name] = self._unknown(block.name, inside, 0)
            self._run(block.parts[0] if block.parts else [], inside, maybe)
            self._merge(env, [env.copy(), inside])

    def _branches(self, parts: list[list[Node]], env: _Env, how: _How, *, otherwise: bool) -> None:
        ends = [] if otherwise else [env.copy()]
        for part in parts:
            inside = env.copy()
            self._run(part, inside, how)
            ends.append(inside)
        self._merge(env, ends)

    def _merge(self, env: _Env, ends: list[_Env]) -> None:
        """Merge the variables after branches: keep values that are equal in all branches."""
        names = {name for end in ends for name in end.values}
        for name in names:
            seen = [_plain(end.values.get(name)) for end in ends]
            if all(value == seen[0] for value in seen):
                value = ends[0].values.get(name)
                if value is not None:
                    env.values[name] = value
            else:
                env.values[name] = self._unknown(name, env, 0)
        env.exported |= set().union(*(end.exported for end in ends))

    # --- commands ---------------------------------------------------------------------------------------------

    def _simple(self, node: Simple, env: _Env, how: _How) -> None:
        first = node.words[0].plain if node.words else None
        if first in ("export", "declare", "local", "readonly", "typeset"):
            self._declare(node, first, env, how)
            return
        if not node.words:
            for assign in node.assigns:
                self._assign(assign, env, how, exported=assign.name in env.exported or env.all_exported)
            return
        fields = self._fields(node.words, env, how)
        if not fields:
            return
        given: dict[str, Text] = {}
        for assign in node.assigns:
            value = self._expand_value(assign.values, env, how) if not assign.array else Text()
            given[assign.name] = value
        self._command(fields, env, how, given, node)

    def _declare(self, node: Simple, first: str, env: _Env, how: _How) -> None:
        flags = "".join(word.raw[1:] for word in node.words[1:] if word.raw.startswith("-"))
        exported = (first == "export" and "n" not in flags) or "x" in flags
        for word in node.words[1:]:
            name = word.plain or ""
            if name.isidentifier() and exported:
                env.exported.add(name)
        for assign in node.assigns:
            self._assign(assign, env, how, exported=exported or assign.name in env.exported)

    def _assign(self, assign: Assign, env: _Env, how: _How, *, exported: bool) -> None:
        value: Value
        if assign.array:
            value = self._fields(assign.values, env, how)
            if assign.append and isinstance(earlier := env.values.get(assign.name), list):
                value = earlier + value
        else:
            value = self._expand_value(assign.values, env, how)
            if assign.append and assign.name in env.values and not assign.element:
                earlier = env.values[assign.name]
                joined = _join(earlier) if isinstance(earlier, list) else earlier.cut(0, len(earlier.s))
                joined.add(value)
                value = joined
        flat = _join(value) if isinstance(value, list) else value
        if len(flat.s) > _LONGEST_VALUE:
            value = flat = self._unknown(assign.name, env, assign.line)
        self._record_assignment(assign, flat, env, exported)
        if assign.element:  # of an array, which is no longer known
            value = self._unknown(assign.name, env, assign.line)
        if any(self._holes[ord(one) - _FIRST].name == assign.name for one in _HOLE.findall(flat.s)):
            env.perhaps.add(assign.name)
        env.values[assign.name] = value
        env.hidden.discard(assign.name)
        if exported:
            env.exported.add(assign.name)

    def _record_assignment(self, assign: Assign, flat: Text, env: _Env, exported: bool) -> None:
        secret = is_secret_name(assign.name)
        if secret and flat.s and not _HOLE.search(flat.s) and not _placeholder(flat.s):
            self.texts.append(JobText(assign.line, "secret", assign.name))
        shown = MASK if secret and flat.s and not _HOLE.search(flat.s) else masked(self._fill_holes(flat))
        variables = self._variables(flat, 0)
        raw = f"{assign.name}={MASK}" if secret else masked(assign.raw[:_LONGEST_SHOWN])
        if len(self.sets) < _MOST_COMMANDS:
            self.sets.append(
                JobSet(assign.line, assign.name, shown, exported, env.on_node, tuple(variables), raw, self._statement)
            )

    def _command(self, fields: list[Text], env: _Env, how: _How, given: Mapping[str, Text], node: Simple) -> None:
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
            options = "".join(word.s[1:] for word in fields[1:] if re.fullmatch(r"-[a-zA-Z]+", word.s))
            self.stops_at_errors |= ("e" in options or "errexit" in [word.s for word in fields[1:]]) and not env.on_node
            options_text = " ".join(word.s for word in fields[1:])
            if "a" in options or "-o allexport" in options_text:
                env.all_exported = True
            elif re.search(r"(?<!\S)\+(?:\w*a|o allexport)", options_text):
                env.all_exported = False
        elif name == "shift":
            amount = fields[1].s if len(fields) > 1 else "1"
            if env.places is not None:
                env.places = env.places[int(amount) :] if amount.isdecimal() and len(amount) < 5 else None
        elif name == "trap":
            self._trap(fields, env, how, node.line)
        elif name in (".", "source"):
            if len(fields) > 1:
                self._record_sourced(fields[1])
        elif name == "eval":
            self._text(_join(fields[1:]), dataclasses.replace(env, depth=env.depth + 1), how)
        elif name == "unset":
            for word in fields[1:]:
                env.values.pop(word.s, None)
                env.exported.discard(word.s)
        elif name == "read" or name == "mapfile" or name == "readarray":
            for word in fields[1:]:
                if word.s.isidentifier():
                    env.values[word.s] = self._unknown(word.s, env, node.line)
        else:
            self._program(fields, env, how, given, node)

    def _trap(self, fields: list[Text], env: _Env, how: _How, line: int) -> None:
        words = [word.s for word in fields[1:]]
        if len(words) < 2 or words[0] in ("-", "-p", "-l"):
            return
        signals = tuple(word.removeprefix("SIG") for word in words[1:])
        self.traps.append(JobTrap(line, signals, self._fill_holes(fields[1])))
        called = dataclasses.replace(how, unsure=True, background=False)
        inside = dataclasses.replace(env.copy(), depth=env.depth + 1, through=(*env.through, "trap"))
        self._text(fields[1], inside, called)

    def _record_sourced(self, word: Text) -> None:
        path = self._fill_holes(word)
        if path not in self.sourced and len(self.sourced) < 100:
            self.sourced.append(path)

    def _program(self, fields: list[Text], env: _Env, how: _How, given: Mapping[str, Text], node: Simple) -> None:
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
            if programs.launcher_of(words):
                break
            if (inner := programs.after_wrapper(words)) is None:
                break
            passed = {**given, **_passed_variables(fields[1:inner])}
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
        if words[0].endswith((".sh", ".sbatch", ".slurm")) and not words[0].startswith("-"):
            self._record_sourced(fields[0])
        self._record(fields, env, how, node, given=given)

    def _remote(self, fields: list[Text], words: list[str], how: _How, env: _Env) -> None:
        """Process ssh HOST TEXT, which a shell on the host runs."""
        place = 1
        while place < len(words) and words[place].startswith("-"):
            place += 2 if words[place][-1] in "ilopFJLRbcDEeImOQSWw" and len(words[place]) == 2 else 1
        if programs.base(words[0]) == "ssh":
            place += 1  # the host
        if place < len(fields):
            there = _Env(on_node=True, through=(*env.through, programs.base(words[0])), depth=env.depth + 1)
            self._text(_join(fields[place:]), there, how)

    def _srun(
        self, fields: list[Text], words: list[str], env: _Env, how: _How, given: Mapping[str, Text], node: Simple
    ) -> tuple[_Env, list[Text]]:
        """Return the variables of the step, and the command that it starts."""
        place = programs.after_srun(words)
        step = self._record(fields[:place], env, how, node, given=given)
        under = env.child("srun", on_node=True, given={**given, **_passed_variables(fields[1:place])})
        under.step = step
        return under, fields[place:]

    def _shell(
        self,
        fields: list[Text],
        words: list[str],
        env: _Env,
        typed: _Env,
        how: _How,
        given: Mapping[str, Text],
        node: Simple,
    ) -> None:
        """Process bash -c TEXT, bash FILE, bash << END."""
        text = programs.shell_text(words)
        under = env.child(programs.base(words[0]), given=given)
        if text is not None:
            under.places = fields[text + 2 :]
            self._text(fields[text], under, how)
        elif rest := [one for one, word in zip(fields[1:], words[1:], strict=True) if not word.startswith("-")]:
            self._record_sourced(rest[0])
            self._record(fields, env, how, node, given=given)
        elif node.heredoc is not None:
            body = node.heredoc
            if not node.heredoc_quoted:
                parts = Reader(body, self.budget).quoted()
                body = self._expand(Word(parts, node.line), typed, how)  # by the shell that contains the heredoc
            self._text(body, under, how)
        else:
            self._record(fields, env, how, node, given=given)

    def _record(
        self,
        fields: list[Text],
        env: _Env,
        how: _How,
        node: Simple,
        *,
        given: Mapping[str, Text] | None = None,
        starts: bool = False,
    ) -> int | None:
        """Record a command and return its index."""
        if len(self.commands) >= _MOST_COMMANDS:
            raise TooMuch
        words = [self._fill_holes(one) for one in fields]
        launcher, script, shown_words = None, None, words
        if not starts and (found := programs.launcher_of(words)):
            launcher, last = found
            script = programs.script_of(launcher, words, last)
            if last > 0:  # "python -m torch.distributed.run" is one name
                shown_words, fields = [" ".join(words[: last + 1]), *words[last + 1 :]], _join_first(fields, last + 1)
                script = None if script is None else script - last
        lines = tuple(word.line(node.line) for word in fields)
        command = JobCommand(
            line=lines[0] if lines else node.line,
            words=tuple(masked_argv(shown_words)),
            variables=tuple(one for place, word in enumerate(fields) for one in self._variables(word, place)),
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
        )
        self.commands.append(command)
        self._secret_options(shown_words, lines)
        return len(self.commands) - 1

    def _mask_env(self, given: Mapping[str, Text]) -> dict[str, str]:
        return {
            name: MASK if is_secret_name(name) else masked(self._fill_holes(value)) for name, value in given.items()
        }

    def _secret_options(self, words: list[str], lines: tuple[int, ...]) -> None:
        hidden = masked_argv(words)
        for place, (word, shown) in enumerate(zip(words, hidden, strict=True)):
            if word == shown or "$" in word or _placeholder(word.rpartition("=")[2]):
                continue
            name = word.partition("=")[0] if "=" in word else words[place - 1] if place else "a token"
            name = name if is_secret_name(name) else "a token"
            self.texts.append(JobText(lines[place], "secret", name[:60]))

    # --- words ------------------------------------------------------------------------------------------------

    def _fields(self, words: Sequence[Word], env: _Env, how: _How) -> list[Text]:
        """Return the expanded words, with known values split at blanks."""
        found: list[Text] = []
        for word in words:
            current: Text | None = None
            for part in word.parts:
                for number, piece in enumerate(self._pieces(part, env, how)):
                    if number and current is not None:
                        found.append(current)
                        current = None
                    if piece is None:
                        continue
                    if current is None:
                        current = Text()
                    current.add(piece)
            if current is not None:
                found.append(current)
        return found

    def _pieces(self, part: Part, env: _Env, how: _How) -> list[Text | None]:
        """Return the pieces of an expanded part: each further piece starts a new word. None: no word."""
        value = self._part(part, env, how)
        if isinstance(value, list):  # an array: each element a word
            return [*value] or [None]
        if part.quoted or part.kind == "lit":
            return [value]
        if part.kind == "arith" or not re.search(r"\s", value.s):
            return [value if value.s else None]
        pieces: list[Text | None] = [None] if value.s[0].isspace() else []
        pieces += [value.cut(found.start(), found.end()) for found in re.finditer(r"\S+", value.s)]
        return [*pieces, None] if value.s[-1].isspace() else pieces

    def _expand_value(self, words: Sequence[Word], env: _Env, how: _How) -> Text:
        """Return an expanded value, which is not split into words."""
        made = Text()
        for word in words:
            made.add(self._expand(word, env, how))
        return made

    def _expand(self, word: Word, env: _Env, how: _How) -> Text:
        made = Text()
        for part in word.parts:
            value = self._part(part, env, how)
            made.add(_join(value) if isinstance(value, list) else value)
            if len(made.s) > _LONGEST_VALUE:
                return self._hole("$...", "...", env, word.line)
        return made

    def _part(self, part: Part, env: _Env, how: _How) -> Value:
        self.budget[0] -= len(part.text.s) + 1
        if self.budget[0] < 0:
            raise TooMuch
        if part.kind == "lit":
            return part.text
        if part.kind == "cmd":
            return self._substitute(part, env, how)
        if part.kind == "arith":
            return self._arithmetic(part, env)
        return self._variable(part, env)

    def _substitute(self, part: Part, env: _Env, how: _How) -> Text:
        if env.depth > _DEEPEST:
            raise TooMuch
        inner = env.copy()
        inner.depth += 1
        nodes, whole = Reader(part.text, self.budget).all()
        self.cut |= not whole
        before = len(self.commands)
        self._run(nodes, inner, dataclasses.replace(how, inner=True))
        runs = tuple(" ".join(one.words)[:_LONGEST_RUN] for one in self.commands[before : before + _MOST_RUNS])
        text = f"$({self._fill_holes(part.text).strip()})"
        return self._hole(text, text, env, part.line, runs)

    def _arithmetic(self, part: Part, env: _Env) -> Text:
        def known(found: re.Match[str]) -> str:
            value = env.values.get(found[1])
            if value is None:
                return f"${found[1]}"
            shown = self._fill_holes(_join(value) if isinstance(value, list) else value)
            return f"({shown[2:]}" if shown.startswith("$((") else shown

        inner = _ARITHMETIC_NAME.sub(known, self._fill_holes(part.text)).strip().replace("$((", "((")
        text = f"$(({inner[:_LONGEST_SHOWN]}))"
        return self._hole(text, text, env, part.line)

    def _variable(self, part: Part, env: _Env) -> Value:
        whole = part.text.s
        shown = f"${whole}" if re.fullmatch(r"\w+|[@*#?$!_-]", whole) else f"${{{whole}}}"
        found = _INNER.fullmatch(whole)
        if not found:
            return self._hole(shown, whole, env, part.line)
        prefix, name, index, operator = found[1], found[2], found[3] or "", found[4] or ""
        numbered = not prefix and re.fullmatch(r"[1-9][0-9]{0,3}", name)
        if numbered and env.places and int(name) - 1 < len(env.places):
            return env.places[int(name) - 1]
        if name in ("@", "*") and env.places:
            return _join(env.places) if name == "*" and part.quoted else list(env.places)
        value = env.values.get(name)
        if value is None or prefix:
            return self._hole(shown, name, env, part.line)
        self.budget[0] -= sum(len(one.s) for one in value) if isinstance(value, list) else len(value.s)
        if isinstance(value, list):
            if index[1:-1] in ("@", "*") and not operator:
                return _join(value) if index == "[*]" and part.quoted else list(value)
            place = 0 if not index else int(index[1:-1]) if re.fullmatch(r"[0-9]{1,4}", index[1:-1]) else -1
            if operator or not 0 <= place < len(value):
                return self._hole(shown, name, env, part.line)
            return value[place]
        if index and index not in ("[0]", "[@]", "[*]"):
            return self._hole(shown, name, env, part.line)
        if not operator or (operator[0] in ":-=?" and operator[:2] in (":-", ":=", ":?", "-", "=", "?") and value.s):
            return value
        return value if value.s and re.match(r":?[-=?]", operator) else self._hole(shown, name, env, part.line)

    def _unknown(self, name: str, env: _Env, line: int) -> Text:
        return self._hole(f"${name}", name, env, line)

    def _hole(self, text: str, name: str, env: _Env, line: int, runs: tuple[str, ...] = ()) -> Text:
        if len(self._holes) >= _MOST_HOLES:
            raise TooMuch
        unset = name in env.hidden
        self._holes.append(_Hole(text[:_LONGEST_SHOWN], name[:_LONGEST_SHOWN], env.on_node, line, unset, runs))
        return Text(chr(_FIRST + len(self._holes) - 1), [line])

    # --- as shown ---------------------------------------------------------------------------------------------

    def _fill_holes(self, text: Text) -> str:
        """Return a text with its holes replaced by their source text."""
        shown = _HOLE.sub(lambda found: self._holes[ord(found.group()) - _FIRST].text, text.s[:_LONGEST_SHOWN])
        return shown[:_LONGEST_SHOWN]

    def _variables(self, text: Text, word: int) -> list[JobVariable]:
        found = [self._holes[ord(one) - _FIRST] for one in _HOLE.findall(text.s)[:50]]
        return [JobVariable(hole.name, word, hole.on_node, hole.line, hole.unset, hole.runs) for hole in found]


def _join_first(fields: list[Text], number: int) -> list[Text]:
    return [_join(fields[:number]), *fields[number:]]


def _join(values: Sequence[Text]) -> Text:
    made = Text()
    for number, value in enumerate(values):
        if number:
            made.add(Text(" ", line=value.line(made.at[-1] if made.at else 1)))
        made.add(value)
    return made


def _passed_variables(options: Sequence[Text]) -> dict[str, Text]:
    """Return the variables that a program's options pass to the command it starts."""
    return {found[1]: word.cut(*found.span(2)) for word in options for found in _PASSED_VARIABLE.finditer(word.s)}


def _plain(value: Value | None) -> str | None:
    if value is None:
        return None
    return "\0".join(one.s for one in value) if isinstance(value, list) else value.s


def _placeholder(value: str) -> bool:
    """Whether a value is only a placeholder for a secret: <your token>, xxx, YOUR_KEY."""
    return len(value) < _SHORTEST_SECRET or _PLACEHOLDER.search(value) is not None
