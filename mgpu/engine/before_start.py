"""Before any rank is started: which problems certainly stop a run, and which others speak against it?"""

from __future__ import annotations

from mgpu import engine
from mgpu.engine import selections
from mgpu.engine.outcome import Outcome
from mgpu.snapshot import Snapshot


def refusals(snapshot: Snapshot) -> list[Outcome]:
    """The errors for which no rank needs to be started to know that it fails; empty: it is worth trying.

    An error of a GPU's health, a limit or the network may or may not stop a run: that is what the test is for.
    """
    outcomes = engine.judge(snapshot, selections.START)
    found = [o for o in outcomes if o.status in ("fail", "crash")]
    blind = [o for o in outcomes if o.unsettling and o.check.family.known_at_start]
    return found or blind[:1]


def doubts(snapshot: Snapshot) -> list[str]:
    """Ids of the other errors the doctor would name, but these: told before the ranks start."""
    outcomes = engine.judge(snapshot, selections.DOUBTS)
    return [o.check.id for o in outcomes if o.status == "fail" and not o.because_of]
