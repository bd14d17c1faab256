"""Is another process using this GPU? If so, mgpu does not load it without --allow-busy."""

from __future__ import annotations

from mgpu.snapshot import Config, Gpu, Snapshot

# NVML does not list processes everywhere (WSL, some containers). More memory in use than this means that a process uses
# the GPU: on an idle GPU the driver reserves up to about 700 MiB (B200).
_IDLE_BYTES = 1 << 30


def busy_reason(gpu: Gpu) -> str | None:
    """Return which process uses the GPU, or why that could not be determined; None if the GPU is free."""
    others = [p for p in gpu.processes or () if p.kind == "compute" and p.mine is not True]
    if others:
        who = f"{others[0].user}'s process" if others[0].user else "a process"
        return f"{who} (pid {others[0].pid}) is using it"
    if gpu.processes is None and (gpu.memory_used_bytes is None or gpu.memory_used_bytes > _IDLE_BYTES):
        used = "an unknown amount" if gpu.memory_used_bytes is None else f"{gpu.memory_used_bytes >> 20} MiB"
        return f"its processes are not listed, and {used} of its memory is in use"
    return None


def find_busy_gpus(config: Config, snapshot: Snapshot, *, cpu: bool = False) -> list[str]:
    """Return this run's GPUs that other processes are using, with the process: "GPU 1: ada's process ..."."""
    if cpu:
        return []
    found = ((gpu.index, busy_reason(gpu)) for gpu in gpus_of(snapshot, config.ranks_here))
    return [f"GPU {index}: {reason}" for index, reason in found if reason]


def gpus_of(snapshot: Snapshot, count: int | None) -> list[Gpu]:
    """Return the GPUs of this node's ranks, in CUDA's order: rank 0 uses the first.

    accelerate sets CUDA_VISIBLE_DEVICES to the config's gpu_ids, so these are indices into all GPUs.
    """
    gpus = {gpu.index: gpu for gpu in snapshot.gpus or ()}
    order = snapshot.visible.gpus if snapshot.visible is not None else tuple(gpus)
    ids = str(snapshot.config.values.get("gpu_ids") or "all") if snapshot.config is not None else "all"
    entries = [entry.strip() for entry in ids.split(",") if entry.strip()]
    if ids != "all" and all(entry.isdecimal() for entry in entries):
        permitted = [index for index, gpu in gpus.items() if gpu.permitted]
        order = tuple(permitted[int(entry)] for entry in entries if int(entry) < len(permitted))
    return [gpus[index] for index in order if index in gpus][:count]
