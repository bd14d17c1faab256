"""What did a check answer, and which of the problems found with it explain it?"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mgpu.check import Check, Crash, Fix, Ok, Problem, Severity, Skip
from mgpu.secrets_masking import masked

Status = Literal["ok", "info", "warn", "fail", "skip", "crash"]
_PROBLEM: dict[Severity, Status] = {Severity.ERROR: "fail", Severity.WARNING: "warn", Severity.INFO: "info"}


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
