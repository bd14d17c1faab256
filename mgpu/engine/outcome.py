"""The outcome of a check, and the problems that explain it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mgpu.check import Check, Crash, Fix, Ok, Problem, Severity, Skip

Status = Literal["ok", "info", "warn", "fail", "waived", "skip", "crash"]
_PROBLEM: dict[Severity, Status] = {Severity.ERROR: "fail", Severity.WARNING: "warn", Severity.INFO: "info"}


@dataclass(frozen=True)
class Waived:
    """Why the project accepts a problem, and until which day (ISO date)."""

    reason: str
    until: str | None


@dataclass(frozen=True)
class Outcome:
    """One answer of one check."""

    check: Check
    answer: Ok | Skip | Problem | Crash
    seconds: float
    because_of: tuple[str, ...] = ()  # problems found in this run that explain this one
    unknown: bool = False  # skipped because a fact it reads is unknown
    unsettling: bool = False  # … because that fact timed out or crashed
    not_asked: bool = False  # skipped because a fact it reads was deliberately left out (--quick)
    outside: bool = False  # about GPUs that CUDA_VISIBLE_DEVICES hides from the run: a warning at most
    waived: Waived | None = None  # a problem that the project accepts

    @property
    def status(self) -> Status:
        """The status in the report: error -> fail, warning -> warn, info -> info; waived if the project accepts it."""
        match self.answer:
            case Ok():
                return "ok"
            case Skip():
                return "skip"
            case Crash():
                return "crash"
            case _:
                status = _PROBLEM[self.check.severity]
                if self.waived and status != "info":
                    return "waived"
                return "warn" if self.outside and status == "fail" else status

    @property
    def problem(self) -> Problem | None:
        """The problem, or None."""
        return self.answer if isinstance(self.answer, Problem) else None


def mask_outcome(outcome: Outcome, mask: Callable[[str], str]) -> Outcome:
    """Mask the secrets in all texts of an outcome, for every report. Its edits are not changed."""
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
        fix=tuple(_mask_fix(fix, mask) for fix in answer.fix)
        if isinstance(answer.fix, tuple)
        else _mask_fix(answer.fix, mask),
        evidence={key: mask(value) if isinstance(value, str) else value for key, value in answer.evidence.items()},
        subjects=tuple(map(mask, answer.subjects)),
    )
    return replace(outcome, answer=problem)


def _mask_fix(fix: Fix, mask: Callable[[str], str]) -> Fix:
    return replace(
        fix,
        text=mask(fix.text),
        commands=tuple(map(mask, fix.commands)),
        caveat=None if fix.caveat is None else mask(fix.caveat),
    )


def with_commands(outcome: Outcome, change: Callable[[str], str]) -> Outcome:
    """Return the outcome with `change` applied to each command of its fixes; one that becomes "" is left out."""
    problem = outcome.problem
    if problem is None:
        return outcome
    fixes = tuple(replace(fix, commands=tuple(filter(None, map(change, fix.commands)))) for fix in problem.fixes)
    return replace(outcome, answer=replace(problem, fix=fixes))


def explained(outcomes: Sequence[Outcome]) -> dict[int, list[Outcome]]:
    """Return the problems to report below each problem, by the `id` of its outcome: for a whole report at once.

    Each appears once, even if several problems explain it.
    """
    found: dict[int, list[Outcome]] = {}
    for one in outcomes:
        if one.because_of and one.problem and (cause := _cause(one, outcomes)) is not None:
            found.setdefault(id(cause), []).append(one)
    return found


def _cause(outcome: Outcome, outcomes: Sequence[Outcome]) -> Outcome | None:
    """The problem that explains this one best.

    A failure before a warning, then a problem with the same key, or with a key in this one's title, then the first.
    """
    ids = set(outcome.because_of)
    for _ in outcomes:  # a cause may itself have a cause, below which both are reported
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
