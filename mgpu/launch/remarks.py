"""Findings on the work of the GPUs and ranks, reported when a run has ended."""

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
_VERIFY = "mgpu launch --watch"  # for the next run: this one has ended


def find_remarks(run: Run) -> list[CheckEntry]:
    """Return the findings on the work of a finished run as JSON, most severe first."""
    outcomes = engine.judge(Snapshot(run=run), selections.REMARKS)
    found = [o for o in outcomes if o.problem and not o.because_of]
    if run.exit_code:  # the failure matters more
        found = [o for o in found if "passed_run" not in o.check.tags]
    return [
        {**check_json(o), "verify": _VERIFY} if _on_gpus(o.check.area) else check_json(o)
        for o in sorted(found, key=lambda o: o.status == "info")
    ]


def while_running(run: Run, selection: selections.Selection) -> str:
    """Return a finding on the ranks of a run that goes on as one message: what, and the fix; "" if there is none."""
    found = (one.problem for one in engine.judge(Snapshot(run=run), selection) if one.problem)
    return next((f"{one.title}. {one.fixes[0].text}" for one in found), "")


def _on_gpus(area: str) -> bool:
    return area != "run"


def lines(found: Sequence[CheckEntry], screen: Screen, *, well: bool) -> list[Line]:
    """Return the rows for the end of a run; if it succeeded (`well`), with the fixes."""
    rows: list[Line] = []
    for one in found[:_MOST]:
        rows += failure.row(screen, "GPUs" if _on_gpus(one["area"]) else "Ranks", one["title"])
        if well and one["fix"]:
            rows += failure.row(screen, "", one["fix"][0]["text"])
    return rows
