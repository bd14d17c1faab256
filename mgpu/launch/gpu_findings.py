"""What did the GPUs' work leave to say, once a run has ended?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mgpu import engine
from mgpu.engine import selections
from mgpu.report import failure
from mgpu.report.document import check_json
from mgpu.report.screen import Line, Screen
from mgpu.snapshot import Run, Snapshot

if TYPE_CHECKING:
    from mgpu.report.json_types import CheckEntry

_MOST = 2
_AGAIN = "mgpu launch --watch"  # of the next run: this one is over


def of(run: Run) -> list[CheckEntry]:
    """The findings on the GPUs of a run that has ended, as a document has them: the weightiest first."""
    outcomes = engine.judge(Snapshot(run=run), selections.GPU_WORK)
    told = [o for o in outcomes if o.problem and not o.because_of]
    if run.exit_code:  # it has another trouble
        told = [o for o in told if "passed_run" not in o.check.tags]
    return [{**check_json(o), "verify": _AGAIN} for o in sorted(told, key=lambda o: o.status == "info")]


def lines(found: Sequence[CheckEntry], screen: Screen, *, well: bool) -> list[Line]:
    """For the end of a run; where it ended well also what to do about it."""
    said: list[Line] = []
    for one in found[:_MOST]:
        said += failure.row(screen, "GPUs", one["title"])
        if well and one["fix"]:
            said += failure.row(screen, "", one["fix"][0]["text"])
    return said
