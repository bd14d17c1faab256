"""How much GPU memory is still in use after a run, and did the OOM killer kill a process meanwhile?

Leftover processes, files and the port: runner.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from mgpu import probes
from mgpu.process.leftover_files import killed_for_memory
from mgpu.snapshot import Gpu, Ranks, Snapshot

# How long to wait for the driver, which frees the memory of an exited process in the background.
_FREED_S = 3.0


@dataclass(frozen=True)
class Before:
    """The state before the first rank started."""

    gpus: Mapping[str, int] = field(default_factory=dict)  # UUID -> bytes in use
    killed: int | None = None  # processes of this control group that the OOM killer has killed


def measure(snapshot: Snapshot) -> Before:
    """Return the current state, before the run."""
    return Before(_memory_used(snapshot.gpus), killed_for_memory())


def add_leftovers(ranks: Ranks, before: Before) -> Ranks:
    """Return the ranks with the GPU memory that is still in use and the number of OOM kills since `before`."""
    killed = killed_for_memory()
    if killed is not None and before.killed is not None:
        ranks = replace(ranks, killed_for_memory=max(0, killed - before.killed))
    if ranks.cpu or not before.gpus:
        return ranks
    deadline = time.monotonic() + _FREED_S
    while True:
        now = _memory_used(probes.gather([probes.NVML]).gpus)
        if before.gpus.keys() - now:  # NVML stopped responding, or a GPU disappeared
            return ranks
        kept = {uuid: now[uuid] - used for uuid, used in before.gpus.items() if now[uuid] > used}
        if not kept or time.monotonic() > deadline:
            return replace(ranks, memory_kept=kept)
        time.sleep(0.3)


def _memory_used(gpus: Iterable[Gpu] | None) -> dict[str, int]:
    return {gpu.uuid: gpu.memory_used_bytes for gpu in gpus or () if gpu.uuid and gpu.memory_used_bytes is not None}
