"""Do the ranks of a rehearsal make progress? By the same rhythm, and the same checks, as in a launch.

A rank that works is waited for. The script is stopped once the checks name a rank that keeps the others waiting.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

from mgpu.hangs import hang_watch
from mgpu.hangs.hang_watch import HangWatch
from mgpu.process import processes
from mgpu.process.command import Command
from mgpu.snapshot import Hang, HangRank, ScriptCause, StackFrame

_TICK_S = 0.2


class StallWatch:
    """Looks for ranks that wait forever. It is the supervisor that a HangWatch expects, and writes no messages."""

    def __init__(self, folder: Path, command: Command, launcher: int, stall_s: float) -> None:
        self._command, self._launcher = command, launcher
        self._watch = HangWatch(folder, command.ranks or 1, command.ranks or 1, after_s=stall_s, on_hang="stop")
        self._next = 0.0
        self._stopped = False
        self.ranks: dict[int, processes.Rank] = {}
        self.last_output = time.monotonic()
        self.timed_out = False

    def is_stalled(self, moved_at: float) -> bool:
        """Whether the checks name a rank that keeps others waiting. `moved_at`: when a rank last wrote anything."""
        now = time.monotonic()
        self.last_output = moved_at
        if now >= self._next and not self._stopped:
            self._next = now + _TICK_S
            alone = self._command.ranks == 1
            self.ranks.update(processes.ranks_of(self._launcher, self._command.known, alone=alone))
            self._watch.tick(self)
        return self._stopped

    @property
    def hang(self) -> Hang | None:
        """What each rank did when the script made no progress; None if it makes some."""
        return self._watch.hang

    def say(self, text: str, *, at_once: bool = False, important: bool = False) -> None:
        """Drop a message: the report has it."""

    def is_insisted(self) -> bool:
        """Return False: the user does not stop the run here."""
        return False

    def stop(self, number: int = signal.SIGTERM, why: str = "") -> None:
        """Remember that the script must be stopped."""
        self._stopped = True


def cause_of(hang: Hang) -> ScriptCause | None:
    """Return what the checks find in a script without progress, with the rank and its line."""
    found = next((one for one in hang_watch.findings(hang) if one.status == "fail"), None)
    if found is None or found.problem is None:
        return None
    problem = found.problem
    fix = problem.fixes[0] if problem.fixes else None
    rank, at = problem.evidence.get("rank"), problem.evidence.get("at")
    line = next(
        (_line(frame) for one in hang.ranks if one.rank == rank for frame in _frames(one) if frame.place == at), None
    )
    return ScriptCause(
        found.check.id,
        problem.title,
        problem.cause,
        fix.text if fix else "",
        rank if isinstance(rank, int) else None,
        line,
    )


def lines_of(hang: Hang) -> dict[int, str]:
    """Return the user's line at which each rank was, as path:number, by its process ID."""
    return {one.pid: _line(frame) for one in hang.ranks if one.pid is not None and (frame := one.own_frame)}


def _frames(rank: HangRank) -> list[StackFrame]:
    called = [one.caller for one in reversed(rank.collectives)]
    return [frame for frame in (rank.raised_at, rank.own_frame, *called) if frame is not None]


def _line(frame: StackFrame) -> str:
    return f"{frame.file}:{frame.line}"
