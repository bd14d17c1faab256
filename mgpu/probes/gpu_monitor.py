"""What do the GPUs do meanwhile? Their memory and load, read once a second by a child process.

The reader never waits: it takes what has come. A child that hangs or dies leaves the last reading, then none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mgpu.probes import runner
from mgpu.probes.runner import Probe

_FOR_EVER, _FOR_EVER_S = "readings", 1e9  # what the child never finishes to bring
_OLD = 3  # a reading that is this many intervals old tells nothing about now


@dataclass(frozen=True)
class Lister:
    """A process that NVML lists on a GPU. NVML may count pids otherwise than this container does."""

    pid: int
    bytes: int | None
    ours: bool | None  # it bears the mark that was asked for; None: no process here has this pid


@dataclass(frozen=True)
class Reading:
    """One GPU, a moment ago. None: NVML does not tell, or it was not asked for."""

    used_bytes: int | None
    total_bytes: int | None
    busy_percent: int | None
    power_w: float | None = None
    power_limit_w: float | None = None
    processes: tuple[Lister, ...] | None = None


class Gauges:
    """A child that reads the GPUs until `end`; it also ends by itself when this process is gone.

    With a `mark` (NAME=value) it also reads the power, and which processes compute; those that have this in their
    environment are ours. After `later_s` it reads only each `later_interval_s`.
    """

    def __init__(
        self, interval_s: float = 1.0, mark: str = "", later_s: float = 0.0, later_interval_s: float = 0.0
    ) -> None:
        self.slowest_s = max(interval_s, later_interval_s)
        arguments = {
            "interval_s": interval_s,
            "mark": mark,
            "later_s": later_s,
            "later_interval_s": later_interval_s,
        }
        (self.child,) = runner.start([Probe("gauges", (_FOR_EVER,), _FOR_EVER_S, arguments=arguments)])
        for stream in (self.child.process.stdout, self.child.process.stderr):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
        self.came = time.monotonic()

    @property
    def number(self) -> int:
        """How many readings the child has made, as far as we have read."""
        return int(self.child.found.get("number", 0))

    @property
    def silent_s(self) -> float:
        """For how long nothing has come."""
        return time.monotonic() - self.came

    @property
    def trouble(self) -> str | None:
        """Why the child reads no more; None as long as it lives."""
        code = self.child.process.poll()
        if code is None:
            return None
        _, words = self.child.gaps.get(_FOR_EVER, ("", ""))
        return words or f"the process that reads NVML {f'was ended by signal {-code}' if code < 0 else 'ended'}"

    def read(self) -> Mapping[str, Reading]:
        """The latest reading of each GPU by its UUID; empty before the first, and when none came for a while."""
        process = self.child.process
        assert process.stdout is not None and process.stderr is not None
        while data := process.stdout.read(65536):
            runner.take(self.child, data)
            self.came = time.monotonic()
        while process.stderr.read(65536):
            pass
        if self.silent_s > _OLD * self.slowest_s:
            return {}
        return {uuid: _reading(*found) for uuid, found in self.child.found.get("gauges", {}).items()}

    def end(self) -> None:
        """Leave no child behind."""
        runner.end([self.child])


def _reading(
    used: int | None,
    total: int | None,
    busy: int | None,
    power: float | None = None,
    limit: float | None = None,
    processes: list[list[Any]] | None = None,
) -> Reading:
    listed = None if processes is None else tuple(Lister(*process) for process in processes)
    return Reading(used, total, busy, power, limit, listed)
