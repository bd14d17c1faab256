"""What is a check, and what can it answer?

A check is one small pure function. Its parameters are the facts it reads (fields of `Snapshot`), its name is its id,
its docstring is its documentation, its file is its area. The answers are `Ok`, `Skip`, `Problem` (or several of them,
when a file has several faults of one kind); the engine adds `Crash` for a bug of ours.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Literal, TypeAlias

from mgpu.secrets_masking import masked

Who = Literal["you", "admin", "hardware"]
Kind = Literal["fix", "stopgap"]
Evidence: TypeAlias = Mapping[str, "str | int | float | bool | None"]


LONGEST_TITLE = 200


class Severity(Enum):
    """How much a problem matters to a launch."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True)
class Edit:
    """One change of a config file that is safe to make unasked: it cannot change what the user meant. Data.

    `set` writes a value (a key that is missing is added), `rename` moves a key with its value to another dotted key,
    `delete` takes a key away with its value, `drop_line` takes away one line (of a key that stands twice).
    """

    kind: Literal["set", "rename", "delete", "drop_line"]
    key: str  # dotted
    value: Any = None  # of set
    to: str = ""  # of rename: the new dotted key
    line: int | None = None  # of drop_line, counted from 1


@dataclass(frozen=True)
class Fix:
    """What makes a problem go away: words, commands that paste, and who may run them. Data; never run by a check.

    A command is a literal, or made by `mgpu.command_line` of a literal template and quoted values. If one of them could
    not be made, its value being no host, path, id or whatever belongs there, none is shown: what is left of a sequence
    may do something else.
    `edits`: where the problem is in a config file and the repair is safe, what `configure --validate --fix` does.
    """

    text: str
    commands: tuple[str, ...] = ()
    who: Who = "you"
    kind: Kind = "fix"
    caveat: str | None = None
    edits: tuple[Edit, ...] = ()

    def __post_init__(self) -> None:
        if not all(self.commands):
            object.__setattr__(self, "commands", ())


@dataclass(frozen=True)
class Place:
    """Where in a file: counted from 1; `key` is the dotted path of the YAML key."""

    file: str
    line: int | None = None
    column: int | None = None
    key: str | None = None


@dataclass(frozen=True)
class Ok:
    """Looked, and found it well. `evidence` says what was looked at, and how much of it."""

    evidence: str


@dataclass(frozen=True)
class Skip:
    """Did not look, and why."""

    reason: str


@dataclass(frozen=True)
class Problem:
    """Something is wrong: what (one line, with numbers), why it matters, what was read, and how to mend it."""

    title: str
    cause: str
    fix: Fix | tuple[Fix, ...]
    evidence: Evidence = field(default_factory=dict)
    subjects: tuple[str, ...] = ()
    place: Place | None = None

    def __post_init__(self) -> None:
        """A title stays one line of bearable length, whatever the machine says in it."""
        title = " ".join(line.strip() for line in self.title.splitlines() if line.strip())
        if len(title) > LONGEST_TITLE:
            title = masked(title)[: LONGEST_TITLE - 3] + "..."  # first: half a secret is not recognized any more
        object.__setattr__(self, "title", title)

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """The fixes as a tuple, best first."""
        return self.fix if isinstance(self.fix, tuple) else (self.fix,)


@dataclass(frozen=True)
class Crash:
    """The check itself failed: a bug in mgpu. Only the engine makes this."""

    error: str
    trace: str


Answer: TypeAlias = Ok | Skip | Problem | tuple[Problem, ...]


@dataclass(frozen=True)
class Check:
    """One question about the facts, with the documentation that `--explain` shows."""

    function: Callable[..., Answer]
    severity: Severity
    source: str
    because_of: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The function's name: `<subject>_<what is wrong>`."""
        return self.function.__name__

    @property
    def selection(self) -> str:
        """The doctor's options that ask this check alone."""
        return f"{'--deep ' if 'gpu_runs' in self.facts else ''}--only {self.id}"

    @property
    def area(self) -> str:
        """The family: the file (or, once it has outgrown one, the folder) in `checks/` the function stands in."""
        return self.function.__module__.partition("checks.")[2].partition(".")[0] or self.function.__module__

    @cached_property
    def facts(self) -> tuple[str, ...]:
        """Names of the Snapshot fields the check reads."""
        code = self.function.__code__
        return code.co_varnames[: code.co_argcount]

    @cached_property
    def doc(self) -> str:
        """The docstring, unindented."""
        return inspect.cleandoc(self.function.__doc__ or "")

    @property
    def summary(self) -> str:
        """The first sentence of the docstring: what is wrong when this check fires."""
        return self.doc.partition("\n")[0]


def check(
    severity: Severity, *, source: str, because_of: tuple[str, ...] = ()
) -> Callable[[Callable[..., Answer]], Check]:
    """Make a check of a function. `because_of` names the ids of problems that would explain this one."""

    def wrap(function: Callable[..., Answer]) -> Check:
        return Check(function, severity, source, because_of)

    return wrap
