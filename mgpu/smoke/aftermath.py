"""What is there after a run that was not there before: processes, shared memory, temporary files, GPU memory, ports?"""

from __future__ import annotations

from dataclasses import dataclass

from mgpu.snapshot import Ranks, Snapshot


@dataclass(frozen=True)
class Before:
    """What was there before the first rank was started."""


def look(snapshot: Snapshot) -> Before:
    """Now, before the run."""
    return Before()


def of(ranks: Ranks, before: Before) -> Ranks:
    """The ranks with what their run left behind."""
    return ranks
