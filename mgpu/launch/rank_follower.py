"""Reports while a job runs what its nodes record of its ranks: the first NaN, and which rank keeps the others waiting.

The same findings at the same moments as on one machine (launch/finite_watch.py, launch/pace_watch.py), each once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from mgpu.engine import selections
from mgpu.launch import node_ranks, pace_report, remarks
from mgpu.launch.pace_watch import REPORT_AFTER
from mgpu.snapshot import Pace, Run

_EVERY_S = 5.0  # the nodes write every few seconds, and NFS caches for 3 s
Say = Callable[[str], None]


class JobRanks:
    """What the ranks of a job have recorded so far."""

    def __init__(self, folder: Path, copy: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        """`folder`: what the nodes share. `copy`: of the run, where --status looks for its pace."""
        self._folder, self._copy, self._clock = folder, copy, clock
        self._began = clock()
        self._due = self._began + _EVERY_S
        self._seen = self._told_finite = self._told_pace = False
        self._pace: Pace | None = None

    def look(self, say: Say) -> None:
        """Read what the nodes have stored if it is time to, and say what is new."""
        now = self._clock()
        if now < self._due:
            return
        self._due = now + _EVERY_S
        run = node_ranks.with_records(Run(0, 0, now - self._began, going=True), self._folder)
        if run.pace is not None and run.pace != self._pace:
            self._pace = run.pace
            if self._copy is not None:
                pace_report.write(self._copy, run.pace)
            if not self._told_pace and run.pace.steps >= REPORT_AFTER:
                self._told_pace = _say(run, selections.RANKS_UNEVEN, say)
        if run.not_finite and self._seen and not self._told_finite:  # the other nodes had time to report theirs
            self._told_finite = _say(run, selections.FINITE, say)
        self._seen = bool(run.not_finite)


def _say(run: Run, selection: selections.Selection, say: Say) -> bool:
    text = remarks.while_running(run, selection)
    if text:
        say(text)
    return bool(text)
