"""What is a check, and what can it answer?

A check is one small pure function. Its parameters are the facts it reads (fields of `Snapshot`), its name is its id,
its docstring is its documentation, its file is its area. The answers are `Ok`, `Skip`, `Problem` (or several of them,
when a file has several faults of one kind); the engine adds `Crash` for a bug of ours.

Cause and fix are the docstring's Why and Fix, unless the check has more to say than it could before it saw the machine.

What follows from a problem (it stops a launch, it takes a node out, it is the cause of a failed run or a consequence)
is declared with the check, as attributes of `Check`; what holds for a whole area is its `Family`.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

from mgpu.secrets_masking import masked

Who = Literal["you", "admin", "hardware"]
FixKind = Literal["fix", "stopgap"]
Value: TypeAlias = "str | int | float | bool | None"
Evidence: TypeAlias = Mapping[str, Value]

# Of a failed run. root: a cause by itself. secondary: the cause only where no root is found. wrapper: hides the cause,
# look inside. noise: never a cause; a log row of this role makes no check, it keeps a line from being taken for one.
Role = Literal["root", "secondary", "wrapper", "noise"]
# Where a failure comes from, in the order in which they explain each other: the kernel that killed a rank explains the
# timeout of the others, never the other way round.
Kind = Literal["scheduler", "kernel", "xid", "script", "cuda", "library", "nccl", "launcher", "network", "timeout"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# What else leads to this finding, which is then a consequence and not a cause. stop: ranks and launchers were sent a
# signal. job_cancel: Slurm ended the job. task_exit: srun stopped the other tasks after one had ended. store_exit: the
# process that held the store ended.
EffectOf = Literal["stop", "job_cancel", "task_exit", "store_exit"]
# When a problem stops `mgpu launch`: always, if a port was named, if there are several nodes, if the GPUs are in use.
LaunchStop = Literal["always", "named_port", "several_nodes", "busy_gpus"]
Tag = Literal[
    "silent_rank",  # of a run that was stopped: the rank that the others waited for; before time_limit and user_stop
    "time_limit",  # of a run that was stopped: mgpu ended it after --timeout
    "user_stop",  # of a run that was stopped: a signal
    "precise",  # says more than a log row about the same failure, and comes before it
    "last_line",  # says how a rank ended, and not why: shown with the last line of the log
    "ranks_done",  # its ranks had ended without an error before the run failed
    "job_state",  # says what Slurm's state of the job says
    "passed_run",  # not worth a line after a run that failed
    "echo",  # what a node reports that only saw another node fail
    "node_fault",  # a fault of one node by itself, found on that node
    "network_guess",  # guesses from settings what a pre-flight tests with connections
    "unreadable",  # says why a file could not be read, and is the only check that is asked about it then
]


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
    `text`: empty for the docstring's Fix.
    `edits`: where the problem is in a config file and the repair is safe, what `configure --validate --fix` does.
    """

    text: str = ""
    commands: tuple[str, ...] = ()
    who: Who = "you"
    kind: FixKind = "fix"
    caveat: str | None = None
    edits: tuple[Edit, ...] = ()

    def __post_init__(self) -> None:
        if not all(self.commands):
            object.__setattr__(self, "commands", ())


DOCUMENTED = Fix()  # the docstring's, without a command


def commands(*lines: str, who: Who = "you") -> Fix:
    """The docstring's Fix, made by these commands."""
    return Fix("", lines, who)


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
    """Something is wrong: what (one line, with numbers), why it matters, what was read, and how to mend it.

    `cause`: empty for the docstring's Why. `fix`: without a text, the docstring's Fix.
    """

    title: str
    cause: str = ""
    fix: Fix | tuple[Fix, ...] = DOCUMENTED
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
# What has to hold before a check can ask: the answer if it does not, else None. Its parameters are facts of the check.
Given: TypeAlias = Callable[..., "Ok | Skip | None"]
# Opens a line of the docstring's Why or Fix: what follows is for the catalogue and `--explain` only.
_MORE = re.compile(r"\n *More: ")
# In a cause: the docstring's Why, where the machine adds a sentence before or after it.
WHY = "\N{SYMBOL FOR SUBSTITUTE}"
# Names of programs that begin a sentence as they are written.
_LOWERCASE = re.compile(r"(accelerate|bash|deepspeed|fp8|mgpu|sbatch|srun|torch|torchrun)\b")


@dataclass(frozen=True)
class Family:
    """What holds for all checks of an area: `FAMILY` in its file, or in the `__init__.py` of its folder."""

    gpu_only: bool = False  # about GPUs: not asked about a run on the CPU
    stops_start: Literal["always", "on_gpus"] | None = None  # its errors certainly stop a run: any, or one on GPUs
    known_at_start: bool = False  # a run is not started while its facts could not be read
    of_a_run: bool = False  # about a run that has ended: `mgpu doctor` cannot ask it again


@dataclass(frozen=True)
class Check:
    """One question about the facts, with the documentation that `--explain` shows, and what follows from a problem."""

    function: Callable[..., Answer]
    severity: Severity
    source: str
    because_of: tuple[str, ...] = ()  # ids of problems that would explain this one
    role: Role | None = None  # among the findings of a failed run; None: not one of them
    kind: Kind | None = None  # goes with `role`
    same_as: tuple[str, ...] = ()  # ids that say the same as this one: not reported beside it when it is the cause
    exit_code: int | None = None  # of a rank that ends in this way; -9 for SIGKILL
    effect_of: EffectOf | None = None
    stops_start: bool | None = None  # certainly stops a run at its start; None: if it is an error, as its family says
    stops_launch: LaunchStop | None = None  # whatever its severity; checked before every launch
    condemns_node: bool | Callable[[Problem], bool] = False  # a scheduler must not give this node to anyone
    watch: Literal["start", "later"] | None = None  # of a run that goes on: when `mgpu launch` looks for it
    tags: tuple[Tag, ...] = ()
    given: tuple[Given, ...] = ()  # the first that does not hold is the answer

    def answer(self, facts: Mapping[str, Any]) -> Answer:
        """What the check says of its facts; problems have their cause and fixes, if need be those of the docstring."""
        for given in self.given:
            if (unmet := given(**{name: facts[name] for name in _parameters(given)})) is not None:
                return unmet
        answer = self.function(**facts)
        if isinstance(answer, tuple):
            return tuple(map(self._completed, answer))
        return self._completed(answer) if isinstance(answer, Problem) else answer

    def _completed(self, problem: Problem) -> Problem:
        if problem.cause and WHY not in problem.cause and all(fix.text for fix in problem.fixes):
            return problem
        fixes = tuple(fix if fix.text else replace(fix, text=self._documented("Fix")) for fix in problem.fixes)
        fix = fixes if isinstance(problem.fix, tuple) else fixes[0]
        cause = problem.cause or WHY
        return replace(problem, cause=cause.replace(WHY, self._documented("Why")) if WHY in cause else cause, fix=fix)

    def _documented(self, head: Literal["Why", "Fix"]) -> str:
        """A paragraph of the docstring as a text for the screen: on one line, with a capital, without what is More."""
        paragraph = next((text for text in self._docstring.split("\n\n") if text.startswith(f"{head}: ")), "")
        text = " ".join(_MORE.split(paragraph)[0].removeprefix(f"{head}: ").split())
        return text if _LOWERCASE.match(text) else text[:1].upper() + text[1:]

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
    def family(self) -> Family:
        """What holds for the checks of its area."""
        package, dot, _ = self.function.__module__.partition("checks.")
        family: Family = getattr(sys.modules.get(f"{package}{dot}{self.area}"), "FAMILY", _NO_FAMILY)
        return family

    @property
    def fails_at_start(self) -> bool:
        """Whether a run with this problem certainly fails, so that nothing needs to be started to know it."""
        by_family = self.severity is Severity.ERROR and self.family.stops_start is not None
        return by_family if self.stops_start is None else self.stops_start

    @cached_property
    def facts(self) -> tuple[str, ...]:
        """Names of the Snapshot fields the check reads."""
        return _parameters(self.function)

    @cached_property
    def doc(self) -> str:
        """The docstring, unindented."""
        return _MORE.sub("\n", self._docstring)

    @cached_property
    def _docstring(self) -> str:
        """As it is written; `python -OO` drops it, and leaves the source."""
        if self.function.__doc__ is not None:
            return inspect.cleandoc(self.function.__doc__)
        (function,) = ast.parse(inspect.getsource(self.function)).body
        return ast.get_docstring(function) or "" if isinstance(function, ast.FunctionDef) else ""

    @property
    def summary(self) -> str:
        """The first sentence of the docstring: what is wrong when this check fires."""
        return self.doc.partition("\n")[0]


_NO_FAMILY = Family()


def _parameters(function: Callable[..., object]) -> tuple[str, ...]:
    code = function.__code__
    return code.co_varnames[: code.co_argcount]


def check(
    severity: Severity,
    *,
    source: str,
    because_of: tuple[str, ...] = (),
    role: Role | None = None,
    kind: Kind | None = None,
    same_as: tuple[str, ...] = (),
    effect_of: EffectOf | None = None,
    stops_start: bool | None = None,
    stops_launch: LaunchStop | None = None,
    condemns_node: bool | Callable[[Problem], bool] = False,
    watch: Literal["start", "later"] | None = None,
    tags: tuple[Tag, ...] = (),
    given: Given | tuple[Given, ...] = (),
) -> Callable[[Callable[..., Answer]], Check]:
    """Make a check of a function; `Check` says what the attributes mean."""

    def wrap(function: Callable[..., Answer]) -> Check:
        return Check(
            function,
            severity,
            source,
            because_of,
            role,
            kind,
            same_as,
            effect_of=effect_of,
            stops_start=stops_start,
            stops_launch=stops_launch,
            condemns_node=condemns_node,
            watch=watch,
            tags=tags,
            given=given if isinstance(given, tuple) else (given,),
        )

    return wrap
