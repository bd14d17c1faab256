"""How does a shell expand a word, if some values are known only in the job?

Every expansion with an unknown value becomes one private-use character (a hole) in the text. A table has its source
text, and whether the batch shell or a shell on the node expands it. So a text can pass through several shells.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from mgpu.readers.job_script.shell import Reader
from mgpu.readers.job_script.shell_nodes import Node, Simple
from mgpu.readers.job_script.shell_words import Part, Text, TooMuch, Word
from mgpu.snapshot import JobVariable

_FIRST = 0xF0000  # private use area; such characters of the script are replaced when it is read
_MOST_HOLES = 20_000
LONGEST_VALUE = 32 << 10
LONGEST_SHOWN = 2_000  # characters of a word or value in the fact
HOLE = re.compile(f"[{chr(_FIRST)}-{chr(_FIRST + _MOST_HOLES)}]")
_INNER = re.compile(r"([!#]?)([A-Za-z_]\w*|[0-9@*#?$!_-]+)(\[[^\]]*\])?(.*)", re.DOTALL)
# Variables already in the job's environment: a new value is passed on without `export`.
_INHERITED = re.compile(r"(?:SLURM_\w+|CUDA_VISIBLE_DEVICES|PATH|LD_LIBRARY_PATH|HOME|USER|LOGNAME|TMPDIR|SHELL|PWD)$")
_ARITHMETIC_NAME = re.compile(
    r"\$\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)|\$\{[^{}]*\}|\$\((?!\()[^()]*\)|(?<![\w$#])([A-Za-z_]\w*)"
)

_PASSED_VARIABLE = re.compile(r"(?:^|,|=)([A-Za-z_]\w*)=([^,]*)")  # env A=1; srun --export=ALL,A=1; --env A=1,B=2

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
class Env:
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
    folder: str = ""  # of a cd, as far as it is known
    beside: Path = Path()  # the folder of the file that it runs
    running: tuple[Path, ...] = ()  # the files that it runs, outermost first
    pipefail: bool = False

    def copy(self) -> Env:
        """Return a copy for a branch or a subshell."""
        return dataclasses.replace(
            self,
            values=dict(self.values),
            exported=set(self.exported),
            hidden=set(self.hidden),
            perhaps=set(self.perhaps),
        )

    def child(self, through: str, *, on_node: bool = False, given: Mapping[str, Text] | None = None) -> Env:
        """Return the variables of a shell that a program of this one starts."""
        given = given or {}
        handed = {name: value for name, value in self.values.items() if name in self.exported} | dict(given)
        kept = {name for name in self.values if name not in self.exported | self.perhaps and not _INHERITED.match(name)}
        return Env(
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
            self.folder,
            self.beside,
            self.running,
        )


@dataclass(frozen=True)
class How:
    """The conditions under which a command runs."""

    unsure: bool = False
    background: bool = False
    inner: bool = False
    piped: bool = False  # into another program, without pipefail


class Expander:
    """Expands words, and keeps the table of holes."""

    def __init__(self, budget: list[int]) -> None:
        self.budget = budget
        self._holes: list[_Hole] = []

    # --- words ------------------------------------------------------------------------------------------------

    def _fields(self, words: Sequence[Word], env: Env, how: How) -> list[Text]:
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

    def _pieces(self, part: Part, env: Env, how: How) -> list[Text | None]:
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

    def _expand_value(self, words: Sequence[Word], env: Env, how: How) -> Text:
        """Return an expanded value, which is not split into words."""
        made = Text()
        for word in words:
            made.add(self._expand(word, env, how))
        return made

    def _heredoc(self, node: Simple, env: Env, how: How) -> Text:
        """Return the heredoc of a command, which the shell that contains it expands, unless its end is quoted."""
        if node.heredoc is None or node.heredoc_quoted:
            return node.heredoc or Text()
        return self._expand(Word(Reader(node.heredoc, self.budget).quoted(), node.line), env, how)

    def _read_whole(self, words: Sequence[str], node: Simple, env: Env, how: How) -> Text | None:
        """Return what `read -r -d '' NAME << END` reads; None if it reads a line, or something else."""
        to_the_end = any(re.fullmatch(r"-\w*d", one) and not end for one, end in itertools.pairwise(words))
        if node.heredoc is None or not to_the_end:
            return None
        text = self._heredoc(node, env, how)
        if "\\" in text.s and not any(re.fullmatch(r"-\w*r\w*", one) for one in words):
            return None  # without -r, backslashes are removed
        return text.cut(len(text.s) - len(text.s.lstrip()), len(text.s.rstrip()))

    def _printed(self, nodes: Sequence[Node], env: Env, how: How) -> Text | None:
        """Return what `cat << END` prints in $( ); None for other commands."""
        only = nodes[0] if len(nodes) == 1 else None
        if not isinstance(only, Simple) or only.heredoc is None or [word.plain for word in only.words] != ["cat"]:
            return None
        text = self._heredoc(only, env, how)
        return text.cut(0, len(text.s.rstrip("\n")))

    def _expand(self, word: Word, env: Env, how: How) -> Text:
        made = Text()
        for part in word.parts:
            value = self._part(part, env, how)
            made.add(join(value) if isinstance(value, list) else value)
            if len(made.s) > LONGEST_VALUE:
                return self._hole("$...", "...", env, word.line)
        return made

    def _part(self, part: Part, env: Env, how: How) -> Value:
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

    def _substitute(self, part: Part, env: Env, how: How) -> Text:
        """Process the commands of $( ) and return a hole."""
        raise NotImplementedError

    def _arithmetic(self, part: Part, env: Env) -> Text:
        def known(found: re.Match[str]) -> str:
            name = found[1] or found[2] or found[3]
            if name is None:
                return found.group()  # ${NAME:-...}, ${#NAME[@]}: kept, with what is in them
            value = env.values.get(name)
            if value is None:
                return f"${name}"
            shown = self._fill_holes(join(value) if isinstance(value, list) else value)
            return f"({shown[2:]}" if shown.startswith("$((") else shown

        inner = _ARITHMETIC_NAME.sub(known, self._fill_holes(part.text)).strip().replace("$((", "((")
        text = f"$(({inner[:LONGEST_SHOWN]}))"
        return self._hole(text, text, env, part.line)

    def _variable(self, part: Part, env: Env) -> Value:
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
            return join(env.places) if name == "*" and part.quoted else list(env.places)
        value = _placed(env.values.get(name), part.line)
        if value is None or prefix:
            return self._hole(shown, name, env, part.line)
        self.budget[0] -= sum(len(one.s) for one in value) if isinstance(value, list) else len(value.s)
        if isinstance(value, list):
            if index[1:-1] in ("@", "*") and not operator:
                return join(value) if index == "[*]" and part.quoted else list(value)
            place = 0 if not index else int(index[1:-1]) if re.fullmatch(r"[0-9]{1,4}", index[1:-1]) else -1
            if operator or not 0 <= place < len(value):
                return self._hole(shown, name, env, part.line)
            return value[place]
        if index and index not in ("[0]", "[@]", "[*]"):
            return self._hole(shown, name, env, part.line)
        if not operator or (value.s and re.match(r":?[-=?]", operator)):
            return value
        return self._hole(shown, name, env, part.line)

    def _unknown(self, name: str, env: Env, line: int) -> Text:
        return self._hole(f"${name}", name, env, line)

    def _differing(self, values: Sequence[Value | None], name: str, env: Env) -> Value:
        """Return a variable whose values differ: the first elements that are the same, and an unknown.

        Also of a text to which a branch appended words.
        """
        same, unknown = _same_elements(values), self._unknown(name, env, 0)
        if (start := _same_start(values)) is not None:
            return join([start, unknown])
        return [*same, unknown] if same else unknown

    def _hole(self, text: str, name: str, env: Env, line: int, runs: tuple[str, ...] = ()) -> Text:
        if len(self._holes) >= _MOST_HOLES:
            raise TooMuch
        unset = name in env.hidden
        self._holes.append(_Hole(text[:LONGEST_SHOWN], name[:LONGEST_SHOWN], env.on_node, line, unset, runs))
        return Text(chr(_FIRST + len(self._holes) - 1), [line])

    def _passed_variables(self, options: Sequence[Text]) -> dict[str, Text]:
        """Return the variables that a program's options pass to the command it starts."""
        return {found[1]: word.cut(*found.span(2)) for word in options for found in _PASSED_VARIABLE.finditer(word.s)}

    @staticmethod
    def _line_of(words: Sequence[Text], command: int, statement: int) -> int:
        """Return the line of a command: where its program is written, or what follows a variable there.

        In $VENV/bin/torchrun and $PYTHON train.py, it is not the line that sets the variable. `command`: the line of
        the whole command, if it is in the script itself; `statement`: the first one of the statement that has it.
        """
        first = words[0].at if words else []
        if first and first[0] != first[-1]:
            return first[-1]
        others = [word.line(0) for word in words[1:]]
        if not first or command in others:
            return command
        is_set_above = first[0] < statement and first[0] not in others and others and others[0] >= statement
        return first[0] if not is_set_above else command if command >= statement else others[0]

    # --- as shown ---------------------------------------------------------------------------------------------

    def _fill_holes(self, text: Text) -> str:
        """Return a text with its holes replaced by their source text."""
        shown = HOLE.sub(lambda found: self._holes[ord(found.group()) - _FIRST].text, text.s[:LONGEST_SHOWN])
        return shown[:LONGEST_SHOWN]

    def _variables(self, text: Text, word: int) -> list[JobVariable]:
        found = [self._holes[ord(one) - _FIRST] for one in HOLE.findall(text.s)[:50]]
        return [JobVariable(hole.name, word, hole.on_node, hole.line, hole.unset, hole.runs) for hole in found]


def join(values: Sequence[Text]) -> Text:
    """Return the texts with a blank between them."""
    made = Text()
    for number, value in enumerate(values):
        if number:
            made.add(Text(" ", line=value.line(made.at[-1] if made.at else 1)))
        made.add(value)
    return made


def plain(value: Value | None) -> str | None:
    """Return a value as one text, to compare it with another one."""
    if value is None:
        return None
    return "\0".join(one.s for one in value) if isinstance(value, list) else value.s


def _same_elements(values: Sequence[Value | None]) -> list[Text]:
    """Return the first elements of arrays that are the same in all of them, up to one that differs."""
    same: list[Text] = []
    arrays = [value for value in values if isinstance(value, list)]
    for column in zip(*arrays, strict=False) if len(arrays) == len(values) else ():
        if len({one.s for one in column}) > 1:
            break
        same.append(column[0])
    return same


def _same_start(values: Sequence[Value | None]) -> Text | None:
    """Return the text that all texts begin with, one of which is nothing else; None if there is none."""
    texts = [value for value in values if isinstance(value, Text)]
    shortest = min(texts, key=lambda one: len(one.s.rstrip()), default=Text())
    start = shortest.s.rstrip()
    if not start or len(texts) < len(values):
        return None
    same = all(one.s.startswith(start) and not one.s[len(start) :][:1].strip() for one in texts)
    return shortest.cut(0, len(start)) if same else None


def _placed(value: Value | None, line: int) -> Value | None:
    """Return a value in which what has no line of its own, such as a hole after branches, is where it is used."""
    if isinstance(value, list):
        return [Text(one.s, [at or line for at in one.at]) if 0 in one.at else one for one in value]
    return Text(value.s, [at or line for at in value.at]) if value and 0 in value.at else value
