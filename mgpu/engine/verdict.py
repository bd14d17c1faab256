"""Which verdict and exit code does each command have for its outcomes?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from mgpu import errors
from mgpu.engine.outcome import Outcome
from mgpu.snapshot import UNSETTLING, Config, Plan, Ranks, Snapshot

Verdict = Literal["ready", "ready_with_warnings", "not_ready", "unknown", "no_gpu"]
SmokeVerdict = Literal["passed", "failed", "unknown"]
ConfigVerdict = Literal["valid", "valid_with_options", "invalid", "unknown"]

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
    """Whether an error could have been missed.

    Because its check crashed, its facts could not be read, or a file that a job script starts was not read.
    """
    return any(
        (
            (o.check.severity.value == "error" or "not_examined" in o.check.tags)
            and (o.status == "crash" or o.unsettling)
        )
        or (o.problem is not None and "not_examined" in o.check.tags)
        for o in outcomes
    )


# ---- mgpu doctor


def of_machine(outcomes: Sequence[Outcome], snapshot: Snapshot) -> Verdict:
    """Return the verdict: not_ready before unknown before no_gpu before ready (exit codes 1, 3, 4, 0).

    A log is ready only if it shows that the run succeeded. It is unknown if it does not show how the run ended, or
    only that it failed.
    """
    if _failed(outcome for outcome in outcomes if "exit_only" not in outcome.check.tags):
        return "not_ready"
    if _not_known(outcomes) or _failed(outcomes):  # a run failed, but its log does not report why
        return "unknown"
    if snapshot.script is not None and (snapshot.script.newer_python or _hides_training(snapshot)):
        return "unknown"
    if snapshot.host is None and snapshot.log is not None and snapshot.log.finished is None:
        return "unknown"
    plan = snapshot.plan or Plan()
    unseen = (snapshot.system if plan.cpu_ranks else snapshot.driver) is None
    if unseen and any(o.unknown or o.not_asked for o in outcomes):
        return "unknown"
    if snapshot.driver and not snapshot.driver.any_gpu and plan.expect_gpus != 0 and not plan.cpu_ranks:
        return "no_gpu"
    return "ready_with_warnings" if any(o.status in ("warn", "waived") for o in outcomes) else "ready"


def _hides_training(snapshot: Snapshot) -> bool:
    """Whether a script alone is judged, and it is not known whether its ranks would train together."""
    alone = snapshot.host is None and snapshot.log is None and snapshot.run is None
    return alone and snapshot.script is not None and snapshot.script.unclear is not None


def exit_code(verdict: Verdict, *, strict: bool = False) -> int:
    """Return the process's exit code for a verdict."""
    return errors.NOT_READY if strict and verdict == "ready_with_warnings" else _CODES[verdict]


def nagios_code(verdict: Verdict, *, strict: bool = False) -> int:
    """Return 0 for OK, 1 for WARNING, 2 for CRITICAL, 3 for UNKNOWN."""
    return _NAGIOS["not_ready"] if strict and verdict == "ready_with_warnings" else _NAGIOS[verdict]


def prolog_code(outcomes: Iterable[Outcome]) -> int:
    """Return 1 to drain the node, only for a definite fault, else 0."""
    return errors.NOT_READY if condemning(outcomes) else errors.READY


def doctor_code(style: str, verdict: Verdict, outcomes: Sequence[Outcome], *, strict: bool = False) -> int:
    """Return the exit code in the requested style. With `strict`, waived problems do not count."""
    if style == "prolog":
        return prolog_code(outcomes)
    if style == "nagios":
        return nagios_code(verdict, strict=strict)
    return exit_code(verdict, strict=strict and any(o.status == "warn" for o in outcomes))


def code_without_verdict(style: str, code: int) -> int:
    """Return the exit code if nothing could be judged: `code`, unless a monitor or a scheduler reads it."""
    return {"nagios": _NAGIOS["unknown"], "prolog": errors.READY}.get(style, code)


def condemning(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return the problems for which a scheduler must drain this node: definite faults of hardware or driver.

    All GPUs of the node count, whichever a job was given, because the whole node is drained.
    """
    return [outcome for outcome in outcomes if outcome.status == "fail" and _condemns(outcome)]


def _condemns(outcome: Outcome) -> bool:
    problem, declared = outcome.problem, outcome.check.condemns_node
    if problem is None:
        return False
    if any(fix.who == "hardware" for fix in problem.fixes):
        return True
    return declared if isinstance(declared, bool) else declared(problem)


def unsure(snapshot: Snapshot, verdict: Verdict) -> bool:
    """Whether a node without a definite fault is not known to be healthy.

    Either the driver did not answer all queries, or there is no GPU.
    """
    return verdict in ("unknown", "no_gpu") or any(
        gap.kind in UNSETTLING for fact, gap in snapshot.gaps.items() if fact.split(".")[0] in ("driver", "gpus")
    )


# ---- mgpu configure --validate


def of_config(
    config: Config, outcomes: Sequence[Outcome], *, loaded: bool = True, strict: bool = False
) -> tuple[ConfigVerdict, int]:
    """Return the verdict and exit code of a config.

    invalid before unknown (a fact is missing, or accelerate's loader was to run and did not) before valid_with_options
    (the file works only with options on the command line of accelerate launch) before valid. `loaded`: whether the
    loader was to run. `strict`: a warning of any kind counts as a failure, in the exit code.
    """
    if _failed(outcomes):
        return "invalid", errors.NOT_READY
    if (loaded and config.loader is None) or any(o.status == "crash" or o.unsettling for o in outcomes):
        return "unknown", errors.UNKNOWN
    code = errors.NOT_READY if strict and any(o.status == "warn" for o in outcomes) else errors.READY
    if any(o.status == "warn" and "command_line" in o.check.tags for o in outcomes):
        return "valid_with_options", code
    return "valid", code


def worst(codes: Iterable[int]) -> int:
    """Return the exit code for several files."""
    return max(codes, key=(errors.READY, errors.UNKNOWN, errors.NOT_READY).index)


# ---- mgpu smoke-test, of one machine and of the nodes of a job


def of_ranks(
    ranks: Ranks,
    outcomes: Sequence[Outcome],
    *,
    interrupted: int,
    search_interrupted: bool = False,
    script_interrupted: bool = False,
) -> tuple[SmokeVerdict, int]:
    """Return the verdict and exit code of a smoke test. A crashed error check makes a pass unknown.

    `interrupted`: the exit code of a command that a signal stopped.
    """
    if ranks.ended == "interrupted" or script_interrupted:
        return "unknown", interrupted
    if _failed(outcomes):
        code = errors.TIMED_OUT if ranks.ended == "timed_out" else errors.NOT_READY
        return "failed", interrupted if search_interrupted else code
    return ("unknown", errors.UNKNOWN) if _not_known(outcomes) else ("passed", errors.READY)


def of_refusals(stopping: Sequence[Outcome], *, busy: bool) -> tuple[SmokeVerdict, int]:
    """Return the verdict of a test that was not started: GPUs in use, a certain failure, or an unknown state."""
    if busy:
        return "unknown", errors.REFUSED
    return ("failed", errors.NOT_READY) if _failed(stopping) else ("unknown", errors.UNKNOWN)


def of_nodes(good: int, need: int, *, trouble: bool) -> tuple[SmokeVerdict, int]:
    """Return passed if enough nodes are good, else failed."""
    return ("passed", errors.READY) if good >= need and not trouble else ("failed", errors.NOT_READY)


# ---- mgpu launch


def unverified(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return the reasons why a config does not count as verified. Unknown facts are reasons too."""
    return [o for o in outcomes if o.status in ("fail", "crash") or o.unknown]
