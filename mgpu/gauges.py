"""What do the GPUs do meanwhile? Their memory and load, read once a second by a child process.

The reader never waits: it takes what has come. A child that hangs or dies leaves the last reading, then none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

from mgpu import children
from mgpu.children import Probe

_FOR_EVER_S = 1e9
_OLD = 3  # a reading that is this many intervals old tells nothing about now


@dataclass(frozen=True)
class Reading:
    """One GPU, a moment ago. None: NVML does not tell."""

    used_bytes: int | None
    total_bytes: int | None
    busy_percent: int | None


class Gauges:
    """A child that reads the GPUs until `end`; it also ends by itself when this process is gone."""

    def __init__(self, interval_s: float = 1.0) -> None:
        self.interval_s = interval_s
        (self.child,) = children.start([Probe("gauges", (), _FOR_EVER_S, arguments={"interval_s": interval_s})])
        for stream in (self.child.process.stdout, self.child.process.stderr):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
        self.came = time.monotonic()

    def read(self) -> Mapping[str, Reading]:
        """The latest reading of each GPU by its UUID; empty before the first, and when none came for a while."""
        process = self.child.process
        assert process.stdout is not None and process.stderr is not None
        while data := process.stdout.read(65536):
            children.take(self.child, data)
            self.came = time.monotonic()
        while process.stderr.read(65536):
            pass
        if time.monotonic() - self.came > _OLD * self.interval_s:
            return {}
        return {uuid: Reading(*reading) for uuid, reading in self.child.found.get("gauges", {}).items()}

    def end(self) -> None:
        """Leave no child behind."""
        children.end([self.child])
