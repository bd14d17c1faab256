"""How do memory and load of the GPUs change during a run? A child process reads them once a second.

The reader never blocks. If the child hangs or dies, the last reading stays for a short time, then there is none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mgpu.probes import runner
from mgpu.probes.runner import Probe

_ENDLESS, _ENDLESS_S = "readings", 1e9  # a fact that the child never completes
_OUTDATED_INTERVALS = 3  # intervals after which a reading is outdated


@dataclass(frozen=True)
class ListedProcess:
    """A process that NVML lists on a GPU. In a container, NVML's PIDs can differ from the container's."""

    pid: int
    bytes: int | None
    ours: bool | None  # it has the requested mark; None: no process here has this PID


@dataclass(frozen=True)
class Reading:
    """The latest values of one GPU. None: not reported by NVML, or not requested."""

    used_bytes: int | None
    total_bytes: int | None
    busy_percent: int | None
    power_w: float | None = None
    power_limit_w: float | None = None
    processes: tuple[ListedProcess, ...] | None = None


class Gauges:
    """A child that reads the GPUs until `end`. It also exits if this process disappears.

    With a `mark` (NAME=value) it also reads power and compute processes; processes with the mark in their environment
    are ours. After `later_s` it reads every `later_interval_s`.
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
        (self.child,) = runner.start([Probe("gauges", (_ENDLESS,), _ENDLESS_S, arguments=arguments)])
        for stream in (self.child.process.stdout, self.child.process.stderr):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
        self.came = time.monotonic()

    @property
    def number(self) -> int:
        """Number of the latest reading."""
        return int(self.child.found.get("number", 0))

    @property
    def silent_s(self) -> float:
        """Seconds since the child last wrote something."""
        return time.monotonic() - self.came

    @property
    def trouble(self) -> str | None:
        """Why the child stopped reading; None while it runs."""
        code = self.child.process.poll()
        if code is None:
            return None
        _, words = self.child.gaps.get(_ENDLESS, ("", ""))
        return words or f"the process that reads NVML {f'was killed by signal {-code}' if code < 0 else 'exited'}"

    def read(self) -> Mapping[str, Reading]:
        """Return the latest reading of each GPU by UUID; empty before the first one, and if it is outdated."""
        process = self.child.process
        assert process.stdout is not None and process.stderr is not None
        while data := process.stdout.read(65536):
            runner.take(self.child, data)
            self.came = time.monotonic()
        while process.stderr.read(65536):
            pass
        if self.silent_s > _OUTDATED_INTERVALS * self.slowest_s:
            return {}
        return {uuid: _to_reading(*found) for uuid, found in self.child.found.get("gauges", {}).items()}

    def end(self) -> None:
        """Stop the child."""
        runner.end([self.child])


def _to_reading(
    used: int | None,
    total: int | None,
    busy: int | None,
    power: float | None = None,
    limit: float | None = None,
    processes: list[list[Any]] | None = None,
) -> Reading:
    listed = None if processes is None else tuple(ListedProcess(*process) for process in processes)
    return Reading(used, total, busy, power, limit, listed)
