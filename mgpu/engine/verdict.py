"""What do the outcomes of checks amount to: the verdict of each command, and its exit code?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from mgpu import errors
from mgpu.engine.outcome import Outcome
from mgpu.snapshot import UNSETTLING, Config, Plan, Ranks, Snapshot

Verdict = Literal["ready", "ready_with_warnings", "not_ready", "unknown", "no_gpu"]
SmokeVerdict = Literal["passed", "failed", "unknown"]
ConfigVerdict = Literal["valid", "invalid", "unknown"]
ExitStyle = Literal["default", "nagios", "prolog"]

# fmt: off
_CODES: dict[Verdict, int] = {
    "ready": errors.READY, "ready_with_warnings": errors.READY, "not_ready": errors.NOT_READY,
    "unknown": errors.UNKNOWN, "no_gpu": errors.NO_GPU,
}
# fmt: on
# OK, WARNING, CRITICAL, UNKNOWN of Nagios plugins.
_NAGIOS: dict[Verdict, int] = {"ready": 0, "ready_with_warnings": 1, "not_ready": 2, "unknown": 3, "no_gpu": 3}


def _failed(outcomes: Iterable[Outcome]) -> bool:
    return any(o.status == "fail" for o in outcomes)


def _not_known(outcomes: Iterable[Outcome]) -> bool:
    """Whether an error could have been missed: its check crashed, or its facts could not be read."""
    return any(o.check.severity.value == "error" and (o.status == "crash" or o.unsettling) for o in outcomes)


# ---- mgpu doctor


def of_machine(outcomes: Sequence[Outcome], snapshot: Snapshot) -> Verdict:
    """not_ready before unknown before no_gpu before ready (design: exit codes 1, 3, 4, 0)."""
    if _failed(outcomes):
        return "not_ready"
    if _not_known(outcomes):
        return "unknown"
    plan = snapshot.plan or Plan()
    unseen = (snapshot.system if plan.cpu_ranks else snapshot.driver) is None
    if unseen and any(o.unknown or o.not_asked for o in outcomes):
        return "unknown"
    if snapshot.driver and not snapshot.driver.any_gpu and plan.expect_gpus != 0 and not plan.cpu_ranks:
        return "no_gpu"
    return "ready_with_warnings" if any(o.status == "warn" for o in outcomes) else "ready"


def exit_code(verdict: Verdict, *, strict: bool = False) -> int:
    """The process's exit code for a verdict."""
    return errors.NOT_READY if strict and verdict == "ready_with_warnings" else _CODES[verdict]


def nagios_code(verdict: Verdict, *, strict: bool = False) -> int:
    """0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN."""
    return _NAGIOS["not_ready"] if strict and verdict == "ready_with_warnings" else _NAGIOS[verdict]


def prolog_code(outcomes: Iterable[Outcome]) -> int:
    """Not 0 takes the node out of the scheduler's hands: only for a certain fault of it."""
    return errors.NOT_READY if condemning(outcomes) else errors.READY


def doctor_code(style: str, verdict: Verdict, outcomes: Iterable[Outcome], *, strict: bool = False) -> int:
    """The exit code in the style that was asked for."""
    if style == "prolog":
        return prolog_code(outcomes)
    return nagios_code(verdict, strict=strict) if style == "nagios" else exit_code(verdict, strict=strict)


def code_without_verdict(style: str, code: int) -> int:
    """The exit code where nothing could be judged: `code`, unless a monitor or a scheduler reads it."""
    return {"nagios": _NAGIOS["unknown"], "prolog": errors.READY}.get(style, code)


def condemning(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """The problems for which a scheduler must not give this node to anybody: certain faults of hardware or driver. All
    GPUs of the node count, whichever a job was given: the node is taken out as a whole."""
    return [outcome for outcome in outcomes if outcome.status == "fail" and _condemns(outcome)]


def _condemns(outcome: Outcome) -> bool:
    problem, declared = outcome.problem, outcome.check.condemns_node
    if problem is None:
        return False
    if any(fix.who == "hardware" for fix in problem.fixes):
        return True
    return declared if isinstance(declared, bool) else declared(problem)


def unsure(snapshot: Snapshot, verdict: Verdict) -> bool:
    """Whether a node that is not condemned is not known to be healthy either: the driver did not answer in full, or
    there is no GPU to ask for."""
    return verdict in ("unknown", "no_gpu") or any(
        gap.kind in UNSETTLING for fact, gap in snapshot.gaps.items() if fact.split(".")[0] in ("driver", "gpus")
    )


# ---- mgpu configure --validate


def of_config(config: Config, outcomes: Sequence[Outcome]) -> tuple[ConfigVerdict, int]:
    """valid, invalid, or unknown when the real loader or the machine could not be asked."""
    if _failed(outcomes):
        return "invalid", errors.NOT_READY
    if config.loader is None or any(o.status == "crash" or o.unsettling for o in outcomes):
        return "unknown", errors.UNKNOWN
    return "valid", errors.READY


def worst(codes: Iterable[int]) -> int:
    """The exit code for several files."""
    return max(codes, key=(errors.READY, errors.UNKNOWN, errors.NOT_READY).index)


# ---- mgpu smoke-test, of one machine and of the nodes of a job


def of_ranks(
    ranks: Ranks, outcomes: Sequence[Outcome], *, interrupted: int, search_interrupted: bool = False
) -> tuple[SmokeVerdict, int]:
    """What the answers amount to; a check of ours that crashed leaves open what it would have said. `interrupted`: the
    exit code of a command that a signal stopped."""
    if ranks.ended == "interrupted":
        return "unknown", interrupted
    if _failed(outcomes):
        code = errors.TIMED_OUT if ranks.ended == "timed_out" else errors.NOT_READY
        return "failed", interrupted if search_interrupted else code
    return ("unknown", errors.UNKNOWN) if _not_known(outcomes) else ("passed", errors.READY)


def of_refusals(stopping: Sequence[Outcome], *, busy: bool) -> tuple[SmokeVerdict, int]:
    """Of a test that was not started: its GPUs are in use, it would fail, or whether it would is not known."""
    if busy:
        return "unknown", errors.REFUSED
    return ("failed", errors.NOT_READY) if _failed(stopping) else ("unknown", errors.UNKNOWN)


def of_nodes(good: int, need: int, *, trouble: bool) -> tuple[SmokeVerdict, int]:
    """Whether enough nodes are good."""
    return ("passed", errors.READY) if good >= need and not trouble else ("failed", errors.NOT_READY)


# ---- mgpu launch


def unverified(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Why a config does not count as verified; empty when it does. Not known is not verified."""
    return [o for o in outcomes if o.status in ("fail", "crash") or o.unknown]
