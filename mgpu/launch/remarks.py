"""What did the GPUs' work leave to say, once a run has ended?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgpu import engine, report
from mgpu.document import check_json
from mgpu.snapshot import Run, Snapshot
from mgpu.triage import ending

_MOST = 2
_AGAIN = "mgpu launch --watch"  # of the next run: this one is over
# What a run that failed is not to be told: it has another trouble.
_OF_A_GOOD_RUN = ("gpu_starved", "gpus_uneven", "gpu_memory_nearly_full")


def of(run: Run) -> list[dict[str, Any]]:
    """The findings on the GPUs of a run that has ended, as a document has them: the weightiest first."""
    outcomes = engine.run(engine.load(only={"work"}), Snapshot(run=run))
    told = [o for o in outcomes if o.problem and not o.because_of]
    if run.exit_code:
        told = [o for o in told if o.check.id not in _OF_A_GOOD_RUN]
    return [check_json(o) | {"verify": _AGAIN} for o in sorted(told, key=lambda o: o.status == "info")]


def lines(found: Sequence[dict[str, Any]], screen: report.Screen, *, well: bool) -> list[report.Line]:
    """For the end of a run; where it ended well also what to do about it."""
    said: list[report.Line] = []
    for one in found[:_MOST]:
        said += ending.row(screen, "GPUs", one["title"])
        if well and one["fix"]:
            said += ending.row(screen, "", one["fix"][0]["text"])
    return said
