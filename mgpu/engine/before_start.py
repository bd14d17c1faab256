"""Before any rank starts: which problems certainly stop a run, and which others are worth a warning?"""

from __future__ import annotations

from mgpu import engine
from mgpu.engine import selections
from mgpu.engine.outcome import Outcome
from mgpu.snapshot import Snapshot


def refusals(snapshot: Snapshot) -> list[Outcome]:
    """Return the errors that certainly stop a run; empty if it is worth starting.

    An error in a GPU's health, a limit or the network may or may not stop a run. Only the test can show that.
    """
    outcomes = engine.judge(snapshot, selections.START)
    found = [o for o in outcomes if o.status in ("fail", "crash")]
    blind = [o for o in outcomes if o.unsettling and o.check.family.known_at_start]
    return found or blind[:1]


def memory_texts(snapshot: Snapshot) -> list[str]:
    """Return what does not fit in the memory of the GPUs, each with what would fit."""
    if snapshot.config is None or snapshot.config.on_cpu:
        return []
    outcomes = engine.judge(snapshot, selections.BEFORE_START)
    found = [o.problem for o in outcomes if o.problem is not None and not o.because_of]
    return [f"{problem.title}. {problem.cause}" for problem in found]


def warning_ids(snapshot: Snapshot) -> list[str]:
    """Return the ids of the doctor's other errors, which are reported before the ranks start."""
    outcomes = engine.judge(snapshot, selections.OTHER_ERRORS)
    return [o.check.id for o in outcomes if o.status == "fail" and not o.because_of]
