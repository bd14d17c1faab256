"""Reports the first loss or gradient norm of a running run that is not finite, once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from mgpu.engine import selections
from mgpu.launch import rank_facts, remarks
from mgpu.launch.pace_watch import Supervised
from mgpu.snapshot import NotFinite, Run

_EVERY_S = 5.0


class FiniteWatch:
    """Looks for the files in which the ranks report such a value."""

    def __init__(self, folder: Path, expected: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder, self.expected, self._clock = folder, expected, clock
        self._due = 0.0
        self._seen = self._told = False

    def tick(self, supervisor: Supervised) -> None:
        """Look if it is time to. Said at the second look, when the other ranks had time to report theirs."""
        now = self._clock()
        if self._told or now < self._due:
            return
        self._due = now + _EVERY_S
        found = self.result()
        if found and self._seen:
            self._told = True
            run = Run(0, 0, now - supervisor.started, expected=self.expected, going=True, not_finite=found)
            if text := remarks.while_running(run, selections.FINITE):
                supervisor.say(text, important=True)
        self._seen = bool(found)

    def result(self) -> tuple[NotFinite, ...] | None:
        """Return what the ranks have reported; None without a recorder."""
        return rank_facts.not_finite(self.folder)
