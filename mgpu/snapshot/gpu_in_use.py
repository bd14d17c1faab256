"""Does somebody else work on this GPU? Then nothing of ours loads it unasked."""

from __future__ import annotations

from mgpu.snapshot import Gpu

# NVML does not list the processes everywhere (WSL, some containers). Above this somebody is there: an idle GPU's driver
# keeps up to about 700 MiB for itself (B200).
_IDLE_BYTES = 1 << 30


def why(gpu: Gpu) -> str | None:
    """Who works on it, or why that cannot be told; None when it is free."""
    others = [p for p in gpu.processes or () if p.kind == "compute" and p.mine is not True]
    if others:
        who = f"{others[0].user}'s process" if others[0].user else "a process"
        return f"{who} (pid {others[0].pid}) computes on it"
    if gpu.processes is None and (gpu.memory_used_bytes is None or gpu.memory_used_bytes > _IDLE_BYTES):
        used = "an unknown amount" if gpu.memory_used_bytes is None else f"{gpu.memory_used_bytes >> 20} MiB"
        return f"its processes are not listed, and {used} of its memory is in use"
    return None
