"""Which checks are there, which were asked for, and what do they answer?"""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Literal

from mgpu.check import Answer, Check, Crash, Fix, Ok, Problem, Severity, Skip
from mgpu.errors import USAGE, MgpuError
from mgpu.secrets_masking import masked
from mgpu.snapshot import UNSETTLING, Snapshot
from mgpu.snapshot.config_secrets import known_secrets

Status = Literal["ok", "info", "warn", "fail", "skip", "crash"]
_PROBLEM: dict[Severity, Status] = {Severity.ERROR: "fail", Severity.WARNING: "warn", Severity.INFO: "info"}

# Display order of the areas; an area that is not named comes last. report.py groups them into rows.
AREAS = (
    "driver", "gpu", "ecc", "memory", "mig", "clocks", "xid", "cuda", "processes", "visibility", "links", "pcie",
    "pytorch", "libraries", "nccl", "environ", "packages", "config", "limits", "kernel", "kernel_log", "storage",
    "container", "network", "infiniband", "slurm", "job", "script", "smoke", "stamp", "fleet", "run", "work", "log",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """One answer of one check."""

    check: Check
    answer: Ok | Skip | Problem | Crash
    seconds: float
    because_of: tuple[str, ...] = ()  # problems found in this run that explain this one
    unknown: bool = False  # skipped because a fact it reads is not known
    unsettling: bool = False  # … because that fact timed out or crashed
    not_asked: bool = False  # skipped because a fact it reads was deliberately left out (--quick)
    outside: bool = False  # about GPUs that CUDA_VISIBLE_DEVICES hides from the run: a warning at most

    @property
    def status(self) -> Status:
        """The word of the report: error -> fail, warning -> warn, info -> info."""
        match self.answer:
            case Ok():
                return "ok"
            case Skip():
                return "skip"
            case Crash():
                return "crash"
            case _:
                status = _PROBLEM[self.check.severity]
                return "warn" if self.outside and status == "fail" else status

    @property
    def problem(self) -> Problem | None:
        """The problem, when there is one."""
        return self.answer if isinstance(self.answer, Problem) else None


def is_our_source_tree(root: Path) -> bool:
    """Whether `root` is a checkout of this project, so that `checks/` beside `mgpu/` is ours."""
    try:
        return bool(re.search(r'^name = "mgpu-doctor"$', (root / "pyproject.toml").read_text("utf-8"), re.MULTILINE))
    except OSError:
        return False


def _checks_package() -> ModuleType:
    """`mgpu.checks`: inside `mgpu/` once installed, beside it in a source tree. Nobody else imports it by name."""
    root = Path(__file__).resolve().parents[2]
    folders: list[str] = importlib.import_module("mgpu").__path__  # type: ignore[assignment]
    if is_our_source_tree(root) and str(root) not in folders:
        folders.append(str(root))
    return importlib.import_module("mgpu.checks")


def load(only: Collection[str] | None = None, without: Collection[str] = ()) -> tuple[Check, ...]:
    """Every check, by area in display order, then in the order written: of a folder, file after file as in `ORDER`.

    `only`, `without`: areas; the others are not even imported.
    """
    found: list[Check] = []
    package = _checks_package()
    for module_info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        area = module_info.name.rpartition(".")[2]
        if area in without or (only is not None and area not in only):
            continue
        family = importlib.import_module(module_info.name)
        files = [importlib.import_module(f"{module_info.name}.{name}") for name in getattr(family, "ORDER", ())]
        for module in files or [family]:
            own = (c for c in vars(module).values() if isinstance(c, Check))
            found += [c for c in own if c.function.__module__ == module.__name__]
            found += getattr(module, "SIGNATURES", ())
    order = {area: place for place, area in enumerate(AREAS)}
    return tuple(sorted(found, key=lambda c: order.get(c.area, len(order))))


def choose(checks: Sequence[Check], only: Iterable[str] = (), skip: Iterable[str] = ()) -> tuple[Check, ...]:
    """The checks named by id or area. Hyphens count as underscores. Raises MgpuError for a name nobody bears."""
    names = {c.id for c in checks} | {c.area for c in checks}

    def known(given: Iterable[str]) -> set[str]:
        wanted = {name.strip().lower().replace("-", "_") for name in given if name.strip()}
        for name in sorted(wanted - names):
            raise MgpuError(unknown_id(name, names), USAGE)
        return wanted

    include, exclude = known(only), known(skip)
    return tuple(c for c in checks if (not include or {c.id, c.area} & include) and not {c.id, c.area} & exclude)


def unknown_id(name: str, names: Iterable[str]) -> str:
    """The message for a check id that does not exist, with the nearest one."""
    import difflib

    near = difflib.get_close_matches(name, sorted(names), n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"no check or area is called {name!r}.{hint} All of them: mgpu doctor --list-checks"


def ask(check: Check, snapshot: Snapshot) -> list[Outcome]:
    """One check's outcomes: Skip when a fact it reads is not known, Crash when it raises."""
    if missing := [fact for fact in check.facts if getattr(snapshot, fact) is None]:
        return [_unknown(check, missing, snapshot)]
    start = time.perf_counter()
    answers: Answer | Crash
    try:
        answers = check.function(**{fact: getattr(snapshot, fact) for fact in check.facts})
    except Exception as error:
        answers = Crash(f"{type(error).__name__}: {error}", traceback.format_exc())
    seconds = time.perf_counter() - start
    if isinstance(answers, tuple):
        return [Outcome(check, problem, seconds) for problem in answers]
    return [Outcome(check, answers, seconds)]


def _unknown(check: Check, missing: Sequence[str], snapshot: Snapshot) -> Outcome:
    """Skipped for want of facts. The gravest reason is told: crashed, then not known, then not asked for."""
    gaps = [(snapshot.gap(fact), snapshot.left_out(fact)) for fact in missing]
    gap, left_out = min(gaps, key=lambda one: (one[0].kind not in UNSETTLING, one[1]))
    return Outcome(
        check, Skip(gap.reason), 0.0, unknown=not left_out, unsettling=gap.kind in UNSETTLING, not_asked=left_out
    )


def _outside(outcome: Outcome, snapshot: Snapshot) -> bool:
    """Whether a problem is about GPUs only that the user has hidden from the run on purpose."""
    visible, problem = snapshot.visible, outcome.problem
    if problem is None or visible is None or not visible.value or visible.stopped_by or not problem.subjects:
        return False
    used = {f"GPU {index}" for index in visible.gpus}
    return bool(used) and all(s.startswith("GPU ") and s[4:].isdecimal() and s not in used for s in problem.subjects)


def run(checks: Iterable[Check], snapshot: Snapshot) -> tuple[Outcome, ...]:
    """Every outcome, in the order of the checks; consequences carry the ids of the problems that explain them.

    A remark (info) explains no fault: the reports leave remarks to the details, and the fault would go with them.
    """
    known = known_secrets(snapshot)
    asked = (hidden(outcome, known) for check in checks for outcome in ask(check, snapshot))
    outcomes = [replace(outcome, outside=_outside(outcome, snapshot)) for outcome in asked]
    firing = {o.check.id: o.status for o in outcomes if o.problem}

    def explained(outcome: Outcome) -> tuple[str, ...]:
        causes = (cause for cause in outcome.check.because_of if cause in firing)
        return tuple(cause for cause in causes if firing[cause] != "info" or outcome.status == "info")

    return tuple(replace(o, because_of=explained(o)) if o.problem else o for o in outcomes)


def hidden(outcome: Outcome, known: Sequence[str] = ()) -> Outcome:
    """The outcome with secrets masked in all its texts: every report is made of these. Its edits stay as they are."""

    def mask(text: str) -> str:
        return masked(text, known)

    answer = outcome.answer
    if isinstance(answer, Ok):  # most are: nothing is copied
        evidence = mask(answer.evidence)
        return outcome if evidence == answer.evidence else replace(outcome, answer=Ok(evidence))
    if isinstance(answer, Skip):
        reason = mask(answer.reason)
        return outcome if reason == answer.reason else replace(outcome, answer=Skip(reason))
    if isinstance(answer, Crash):
        return replace(outcome, answer=Crash(mask(answer.error), mask(answer.trace)))
    problem = replace(
        answer,
        title=mask(answer.title),
        cause=mask(answer.cause),
        fix=tuple(_hidden_fix(fix, mask) for fix in answer.fix)
        if isinstance(answer.fix, tuple)
        else _hidden_fix(answer.fix, mask),
        evidence={key: mask(value) if isinstance(value, str) else value for key, value in answer.evidence.items()},
        subjects=tuple(map(mask, answer.subjects)),
    )
    return replace(outcome, answer=problem)


def _hidden_fix(fix: Fix, mask: Callable[[str], str]) -> Fix:
    return replace(
        fix,
        text=mask(fix.text),
        commands=tuple(map(mask, fix.commands)),
        caveat=None if fix.caveat is None else mask(fix.caveat),
    )


def consequences(cause: Outcome, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The problems to tell under this one. Each is told once, whatever number of problems explain it."""
    return [o for o in outcomes if o.because_of and o.problem and _cause(o, outcomes) is cause]


def _cause(outcome: Outcome, outcomes: Sequence[Outcome]) -> Outcome | None:
    """Of the problems that explain one: a failure before a warning, what is about the same key, or about a key that its
    words name, and then the first."""
    ids = set(outcome.because_of)
    for _ in outcomes:  # a cause may have a cause itself, under which both are told
        more = {id for o in outcomes if o.check.id in ids for id in o.because_of} - ids
        if not more:
            break
        ids |= more
    problem = outcome.problem

    def distance(cause: Outcome) -> tuple[bool, bool, bool]:
        place, own = cause.problem and cause.problem.place, problem and problem.place
        key = place.key if place else None
        named = bool(key and problem and re.search(rf"\b{re.escape(key.rpartition('.')[2])}\b", problem.title))
        return cause.status != "fail", not (key and own and own.key == key), not named

    causes = [o for o in outcomes if o.check.id in ids and o.problem and not o.because_of]
    return min(causes, key=distance, default=None)
