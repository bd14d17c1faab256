"""Is somebody else on the GPUs?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Container, Gpu, Visible

from ._knowledge import GIB, counted, gib, gpu_list, use_only

# A GPU whose compute processes hold at least this much is not free for a training rank; a CUDA context of an idle
# notebook takes about half of it (0.3-0.6 GB, ml-engineering "anatomy of model's memory").
_BUSY_BYTES = GIB
# Used memory that no process accounts for, above what driver and display reserve on an idle GPU.
_ORPHANED_BYTES = 2 * GIB


@check(Severity.WARNING, source="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html")
def gpu_busy(gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """Another process computes on a GPU that the run would use.

    Why: the rank there gets less memory than the others and stops with out-of-memory, or the GPU is shared and every
    step waits for it.

    Fix: use the free GPUs, or wait.
    """
    known = [gpu for gpu in gpus if gpu.index in visible.gpus and gpu.processes is not None]
    held = {
        gpu.index: [
            p
            for p in gpu.processes or ()
            if p.kind == "compute" and (p.memory_bytes is None or p.memory_bytes >= _BUSY_BYTES)
        ]
        for gpu in known
    }
    busy = [gpu for gpu in known if held[gpu.index]]
    if busy:
        first = busy[0]
        process = held[first.index][0]
        who = "your own" if process.mine else f"{process.user}'s" if process.user else "somebody's"
        taken = {gpu.index for gpu in gpus if gpu in busy or gpu.lost}
        free = [index for index in visible.gpus if index not in taken]
        total = sum(p.memory_bytes or 0 for p in held[first.index])
        where = "" if len(busy) == 1 else f" on GPU {first.index}"
        amount = (
            f" ({gib(total)} of {gib(first.memory_total_bytes)}{where})" if total and first.memory_total_bytes else ""
        )
        fixes = [Fix("Use the free GPUs.", use_only(free, gpus))] if free else []
        if process.mine:
            fixes.append(Fix("It is yours: end it if it is a leftover.", (f"kill {process.pid}",)))
        return Problem(
            f"{gpu_list(g.index for g in busy)} in use{amount}",
            f"On GPU {first.index} {who} process {process.name or ''} (pid {process.pid}) computes. A rank there would "
            "run out of memory, or share the GPU and hold up the others.".replace("  ", " "),
            tuple(fixes) or Fix("Wait until the GPUs are free.", ("nvidia-smi",)),
            {f"gpu_{gpu.index}_processes": len(held[gpu.index]) for gpu in busy},
            tuple(f"GPU {gpu.index}" for gpu in busy),
        )  # fmt: skip
    if not known:
        return Skip("no visible GPU lists its processes")
    return Ok(f"nobody computes on {len(known)} of {len(visible.gpus)} visible GPUs")


@check(Severity.WARNING, source="https://github.com/NVIDIA/nvidia-docker/issues/179", because_of=("gpu_busy",))
def gpu_memory_without_process(gpus: tuple[Gpu, ...], visible: Visible, container: Container) -> Answer:
    """GPU memory is in use, and no process holds it.

    Why: a process that died badly, or one in another container or of another user, keeps the memory; a rank there stops
    with out-of-memory.

    Fix: find who has the device open; a reset frees it for certain.
    """
    if container.kind or container.wsl:
        return Skip("processes outside this container cannot be seen")
    unaccounted: dict[int, int] = {}
    known = 0
    for gpu in gpus:
        if gpu.index not in visible.gpus or gpu.processes is None or gpu.memory_used_bytes is None:
            continue
        if any(process.memory_bytes is None for process in gpu.processes):
            continue
        known += 1
        rest = gpu.memory_used_bytes - sum(process.memory_bytes or 0 for process in gpu.processes)
        if rest > _ORPHANED_BYTES:
            unaccounted[gpu.index] = rest
    if unaccounted:
        return Problem(
            f"{gpu_list(unaccounted)}: {gib(next(iter(unaccounted.values())))} in use by no process",
            "The memory belongs to a process that cannot be seen from here, or that died without giving it back.",
            Fix(
                "See who has the device open.", tuple(f"sudo fuser -v /dev/nvidia{i}" for i in unaccounted), who="admin"
            ),
            {f"gpu_{index}_unaccounted_bytes": rest for index, rest in unaccounted.items()},
            tuple(f"GPU {index}" for index in unaccounted),
        )
    return Ok(f"memory of {counted(known, 'GPU')} is accounted for") if known else Skip("no visible GPU tells")
