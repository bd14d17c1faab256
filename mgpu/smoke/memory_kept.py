"""What is there after a run that was not there before: files, shared memory, GPU memory?

(Processes and the port: runner.py.) What surely belonged to the ranks of the run is removed; the rest is told.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from mgpu import probes
from mgpu.process.leftover_files import killed_for_memory
from mgpu.snapshot import Gpu, Ranks, Snapshot

# A driver frees a dead process's memory in the background; on a machine where it does not, this is what it costs.
_FREED_S = 3.0


@dataclass(frozen=True)
class Before:
    """What was there before the first rank was started."""

    gpus: Mapping[str, int] = field(default_factory=dict)  # UUID -> bytes in use
    killed: int | None = None  # processes of this control group that the kernel has killed for memory


def look(snapshot: Snapshot) -> Before:
    """Now, before the run."""
    return Before(_used(snapshot.gpus), killed_for_memory())


def of(ranks: Ranks, before: Before) -> Ranks:
    """The ranks with what their run left behind on the GPUs, and what the kernel did meanwhile."""
    killed = killed_for_memory()
    if killed is not None and before.killed is not None:
        ranks = replace(ranks, killed_for_memory=max(0, killed - before.killed))
    if ranks.cpu or not before.gpus:
        return ranks
    deadline = time.monotonic() + _FREED_S
    while True:
        now = _used(probes.gather([probes.NVML]).gpus)
        if before.gpus.keys() - now:  # NVML does not answer any more, or a GPU is gone
            return ranks
        kept = {uuid: now[uuid] - used for uuid, used in before.gpus.items() if now[uuid] > used}
        if not kept or time.monotonic() > deadline:
            return replace(ranks, memory_kept=kept)
        time.sleep(0.3)


def _used(gpus: Iterable[Gpu] | None) -> dict[str, int]:
    return {gpu.uuid: gpu.memory_used_bytes for gpu in gpus or () if gpu.uuid and gpu.memory_used_bytes is not None}
