"""When does each process of a run end, to the moment?

If two ranks end within half a second, the one that left first is the cause: the other lost it. The kernel makes the
descriptor of a process readable when it ends (pidfd_open(2), Linux 5.3 and later; without it, nothing is known here).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection


class ProcessEnds:
    """Processes that are watched for their end."""

    def __init__(self) -> None:
        self.at: dict[int, float] = {}  # by process: the time of time.monotonic
        self._descriptors: dict[int, int] = {}  # of the processes that have not ended
        self._known: set[int] = set()

    @property
    def descriptors(self) -> Collection[int]:
        """Return what becomes readable when a process ends."""
        return self._descriptors.keys()

    def watch(self, pid: int) -> None:
        """Watch one more process; one that is already watched is not watched twice."""
        if pid in self._known:
            return
        self._known.add(pid)
        with contextlib.suppress(OSError, AttributeError):  # it has ended; no descriptors left; an old kernel
            self._descriptors[os.pidfd_open(pid)] = pid

    def note(self, ready: Collection[int]) -> None:
        """Keep the time of the processes whose descriptors are ready."""
        for descriptor in self._descriptors.keys() & set(ready):
            self.at[self._descriptors.pop(descriptor)] = time.monotonic()
            os.close(descriptor)

    def close(self) -> None:
        """Close all descriptors."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()
