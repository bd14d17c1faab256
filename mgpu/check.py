"""What is a check, and what can it answer?

A check is one small pure function. Its parameters are the facts it reads (fields of `Snapshot`), its name is its id,
its docstring is its documentation, its file is its area. The answers are `Ok`, `Skip` and `Problem` (or several of
them, when a file has several faults of one kind). The engine adds `Crash` for a bug in mgpu.

Cause and fix are the docstring's Why and Fix, unless the check adds something that depends on the machine.

The consequences of a problem (it stops a launch, it drains a node, it is the cause of a failed run or an effect) are
declared with the check, as attributes of `Check`. Properties of a whole area are in its `Family`.
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

# The part a finding plays in a failed run. root: a cause by itself. secondary: the cause only if no root is found.
# wrapper: hides the cause, look inside. noise: never a cause. A log row with the role noise makes no check: it only
# keeps its lines from matching another row. Nor does one with the role context: it shows what kind of run it is.
Role = Literal["root", "secondary", "wrapper", "noise", "context"]
# Where a failure comes from. Earlier kinds explain later ones: the kernel that killed a rank explains the timeout of
# the other ranks, never the reverse.
Kind = Literal["scheduler", "kernel", "xid", "script", "cuda", "library", "nccl", "launcher", "network", "timeout"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# An event that also leads to this finding, which is then a consequence and not a cause. stop: ranks and launchers were
# sent a signal. job_cancel: Slurm ended the job. task_exit: srun stopped the other tasks after one had exited.
# store_exit: the process that hosted the store exited.
EffectOf = Literal["stop", "job_cancel", "task_exit", "store_exit"]
# When a problem stops `mgpu launch`: always, if a port is configured, with several nodes, if the GPUs are in use.
LaunchStop = Literal["always", "named_port", "several_nodes", "busy_gpus"]
Tag = Literal[
    "silent_rank",  # of a stopped run: the rank that the others waited for; before time_limit and user_stop
    "time_limit",  # of a stopped run: mgpu stopped it after --timeout
    "job_limit",  # of a log: Slurm ended the job at its time limit; what the program had raised before is the cause
    "user_stop",  # of a stopped run: a signal
    "precise",  # more specific than a log row about the same failure, and listed before it
    "before_ranks",  # of what prepares the run: any step of the training after it shows that the run can do without
    "hint",  # of a log: a warning of what can go wrong, no failure by itself
    "can_hang",  # of a log: a warning of what can make a run hang: no failure if the program goes on to print
    "next_command",  # of a log: of the shell; after a failure, it is about the job script's next command
    "keeps_latest",  # of a log: the text of the last such line counts, not only that of the first
    "last_lines",  # of what a rank says before it waits: in the middle of a log, the run went on
    "until_step_created",  # of what waits for a step of Slurm: over when a later line reports that it was created
    "exit_only",  # reports that a process failed, not why: a log with nothing else has no known cause
    "last_line",  # how a rank exited, not why: shown with the last line of the log
    "ranks_done",  # its ranks had exited without an error before the run failed
    "job_state",  # derived from Slurm's state of the job
    "leads_to_hang",  # in a script: ranks then wait for each other. Reported again if the run timed out or was stopped
    "leads_to_rendezvous_error",  # in a script: its ranks then do not find each other
    "in_one_process",  # of a script: it uses all GPUs from one process
    "leads_to_usage_error",  # in a script: it then rejects its arguments
    "portable",  # in a script: it trains alone, and mgpu can change it so that it trains on every number of ranks
    "start_command",  # of a script: its fix has the command that starts it
    "cannot_start",  # of a script: Python certainly stops when it starts it
    "leads_to_gpu_error",  # in a script: ranks then share a GPU, or use another rank's
    "starts_ranks",  # in a script: no problem if no launcher starts it
    "your_files",  # of a rehearsed script: what became of files that were there, also said after Ctrl-C
    "named_if_unproved",  # of a rehearsed script: shown as not proved, although other checks of its row passed
    "remark",  # of a run that succeeded: reported at its end
    "uneven_ranks",  # of a running or finished run: a rank keeps the others waiting, step by step
    "not_finite",  # of a running or finished run: a loss or gradient is NaN or infinite
    "passed_run",  # not worth a line after a failed run
    "echo",  # reported by a node that only saw another node fail
    "node_fault",  # a fault of a single node, found on that node
    "network_guess",  # infers from settings what a pre-flight tests with connections
    "command_line",  # of a config: it works only with options on the launcher's command line
    "no_consequence",  # of a config: nothing changes if it is ignored; --validate lists it with -v only
    "not_examined",  # names a file that was not read, so that the verdict is unknown
    "before_start",  # of a config: it stops nothing, but is shown in full before a start
    "unreadable",  # the reason why a file could not be read; no other check of the file runs then
]


LONGEST_TITLE = 200
_LONGEST_WORD = 25  # a longer one is cut, others are not
_END_OF_TITLE = 70  # characters of a longer one that stay: a message often ends with the values of the run


class Severity(Enum):
    """How much a problem matters to a launch."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True)
class Edit:
    """One change of a config file that is safe to apply because it cannot change what the user meant.

    `set` writes a value (and adds a missing key), `rename` moves a key with its value to another dotted key, `delete`
    removes a key with its value, `drop_line` removes one line (of a duplicate key).
    """

    kind: Literal["set", "rename", "delete", "drop_line"]
    key: str  # dotted
    value: Any = None  # of set
    to: str = ""  # of rename: the new dotted key
    line: int | None = None  # of drop_line, counted from 1


@dataclass(frozen=True)
class Fix:
    """How to fix a problem: a text, commands to paste, and who can run them. A check never runs them.

    A command is a literal, or built by `mgpu.command_line` from a literal template and quoted values. If one command
    cannot be built because its value is not a host, path, id or whatever the template requires, no command is shown:
    the rest of a sequence may do something else.

    `text`: empty for the docstring's Fix.
    `edits`: what `configure --validate --fix` changes, if the problem is in a config file and the repair is safe.
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
    """Return the docstring's Fix with these commands."""
    return Fix("", lines, who)


@dataclass(frozen=True)
class Place:
    """A place in a file. Line and column count from 1; `key` is the dotted path of the YAML key."""

    file: str
    line: int | None = None
    column: int | None = None
    key: str | None = None


@dataclass(frozen=True)
class Ok:
    """The check ran and found no problem. `evidence` states what was examined, with numbers."""

    evidence: str


@dataclass(frozen=True)
class Skip:
    """The check did not run, with the reason."""

    reason: str


@dataclass(frozen=True)
class Problem:
    """Something is wrong: what (one line, with numbers), why it matters, what was read, and how to fix it.

    `cause`: empty for the docstring's Why. `fix`: without a text, the docstring's Fix.
    """

    title: str
    cause: str = ""
    fix: Fix | tuple[Fix, ...] = DOCUMENTED
    evidence: Evidence = field(default_factory=dict)
    subjects: tuple[str, ...] = ()
    place: Place | None = None

    def __post_init__(self) -> None:
        """Clip the title to one readable line."""
        title = " ".join(line.strip() for line in self.title.splitlines() if line.strip())
        if len(title) > LONGEST_TITLE:
            title = masked(title)  # first: half a secret is not recognized
            last = title[-_END_OF_TITLE:].partition(" ")[2] or title[-_END_OF_TITLE:]
            first = title[: LONGEST_TITLE - _END_OF_TITLE - 5]
            whole = first.rpartition(" ")[0]
            title = f"{(whole if len(first) - len(whole) < _LONGEST_WORD else first).rstrip()} ... {last}"
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
# A precondition of a check: returns the answer if it is not met, else None. Its parameters are facts of the check.
Given: TypeAlias = Callable[..., "Ok | Skip | None"]
# Starts a line of the docstring's Why or Fix. The text after it is for the catalogue and `--explain` only.
_MORE = re.compile(r"\n *More: ")
# In a cause: placeholder for the docstring's Why, if the check adds a sentence before or after it.
WHY = "\N{SYMBOL FOR SUBSTITUTE}"
_SECTION = re.compile(r"^((?:Why|Fix): )(\S+)", re.MULTILINE)  # the start of a section
# Names of programs and keys that stay in lower case at the start of a sentence.
_LOWERCASE = re.compile(
    r"(?:[a-z]+_\w+|accelerate|bash|deepspeed|fp8|gcc|glibc|gloo|mgpu|ninja|nvidia-\w+|pdsh|pip|safetensors|sbatch"
    r"|srun|systemd|torch|torchrun)\b"
)


@dataclass(frozen=True)
class Family:
    """Properties of all checks of an area: `FAMILY` in its file, or in the `__init__.py` of its folder."""

    gpu_only: bool = False  # about GPUs: skipped for a run on the CPU
    stops_start: Literal["always", "on_gpus"] | None = None  # its errors certainly stop any run, or a run on GPUs
    known_at_start: bool = False  # a run does not start if its facts could not be read
    of_a_run: bool = False  # about a finished run: `mgpu doctor` cannot repeat it
    fitted: Callable[[Problem, Mapping[str, Any]], Problem] | None = None  # without advice that is not for this run


@dataclass(frozen=True)
class Check:
    """One question about the facts, with its documentation for `--explain` and the consequences of a problem."""

    function: Callable[..., Answer]
    severity: Severity
    source: str
    because_of: tuple[str, ...] = ()  # ids of problems that would explain this one
    role: Role | None = None  # among the findings of a failed run; None: not one of them
    kind: Kind | None = None  # set together with `role`
    same_as: tuple[str, ...] = ()  # ids of equivalent checks: not reported beside this one when it is the cause
    exit_code: int | None = None  # of a rank that exits this way; -9 for SIGKILL
    effect_of: EffectOf | None = None
    stops_start: bool | None = None  # certainly stops a run at its start; None: an error does, if its family does
    stops_launch: LaunchStop | None = None  # regardless of its severity; checked before every launch
    condemns_node: bool | Callable[[Problem], bool] = False  # a scheduler must not allocate this node
    watch: Literal["start", "later"] | None = None  # of a running job: when `mgpu launch` runs this check
    tags: tuple[Tag, ...] = ()
    given: tuple[Given, ...] = ()  # preconditions; the first that is not met is the answer

    def answer(self, facts: Mapping[str, Any]) -> Answer:
        """Run the check on its facts. Problems get cause and fixes, from the docstring if the check sets none."""
        for given in self.given:
            if (unmet := given(**{name: facts[name] for name in _parameters(given)})) is not None:
                return unmet
        answer = self.function(**facts)
        if isinstance(answer, tuple):
            return tuple(map(self._complete, answer))
        if not isinstance(answer, Problem):
            return answer
        problem, fitted = self._complete(answer), self.family.fitted
        return fitted(problem, facts) if fitted else problem

    def _complete(self, problem: Problem) -> Problem:
        if problem.cause and WHY not in problem.cause and all(fix.text for fix in problem.fixes):
            return problem
        fixes = tuple(fix if fix.text else replace(fix, text=self._paragraph("Fix")) for fix in problem.fixes)
        fix = fixes if isinstance(problem.fix, tuple) else fixes[0]
        cause = problem.cause or WHY
        return replace(problem, cause=cause.replace(WHY, self._paragraph("Why")) if WHY in cause else cause, fix=fix)

    def _paragraph(self, head: Literal["Why", "Fix"]) -> str:
        """A paragraph of the docstring for the screen: on one line, capitalized, without the More part."""
        paragraph = next((text for text in self._docstring.split("\n\n") if text.startswith(f"{head}: ")), "")
        text = " ".join(_MORE.split(paragraph)[0].removeprefix(f"{head}: ").split())
        return _capitalized(text)

    @cached_property
    def id(self) -> str:
        """The function's name: `<subject>_<what is wrong>`."""
        return self.function.__name__

    @property
    def selection(self) -> str:
        """The doctor's options that run this check alone."""
        return f"{'--deep ' if 'gpu_runs' in self.facts else ''}--only {self.id}"

    @cached_property
    def area(self) -> str:
        """The family: the function's file in `checks/`, or its folder if it has one; of a plug-in, its module."""
        return self.function.__module__.partition("checks.")[2].partition(".")[0] or re.sub(
            r"\W", "_", self.function.__module__.lower()
        )

    @cached_property
    def family(self) -> Family:
        """The properties of the checks of its area."""
        package, dot, _ = self.function.__module__.partition("checks.")
        family: Family = getattr(sys.modules.get(f"{package}{dot}{self.area}"), "FAMILY", _NO_FAMILY)
        return family

    @property
    def fails_at_start(self) -> bool:
        """Whether a run with this problem certainly fails, so it need not be started."""
        by_family = self.severity is Severity.ERROR and self.family.stops_start is not None
        return by_family if self.stops_start is None else self.stops_start

    @cached_property
    def facts(self) -> tuple[str, ...]:
        """Names of the Snapshot fields the check reads."""
        return _parameters(self.function)

    @cached_property
    def doc(self) -> str:
        """The docstring, unindented."""
        return _SECTION.sub(lambda found: found[1] + _capitalized(found[2]), _MORE.sub("\n", self._docstring))

    @cached_property
    def _docstring(self) -> str:
        """The raw docstring. `python -OO` drops it, so it is read from the source then."""
        if self.function.__doc__ is not None:
            return inspect.cleandoc(self.function.__doc__)
        (function,) = ast.parse(inspect.getsource(self.function)).body
        return ast.get_docstring(function) or "" if isinstance(function, ast.FunctionDef) else ""

    @property
    def summary(self) -> str:
        """The first sentence of the docstring: what is wrong when this check fires."""
        return self.doc.partition("\n")[0]


_NO_FAMILY = Family()


def _capitalized(text: str) -> str:
    return text if _LOWERCASE.match(text) else text[:1].upper() + text[1:]


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
    """Make a check from a function. `Check` explains the attributes."""

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
