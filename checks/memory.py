"""Is the GPUs' memory free for a run, and equally on all of them?"""

from __future__ import annotations

from mgpu.check import Answer, Family, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Container, Driver, Gpu, Plan, Visible
from mgpu.text import counted

from ._gpus import driver_was_running, gpu_problem, gpu_subjects, same_models, use_only
from ._wording import GIB, gib, gpu_list

FAMILY = Family(gpu_only=True)

_QUERIES = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"

# GPUs of one model whose memory differs by more than this are configured differently (ECC, another board).
_SAME_SIZE = 0.99
# A difference in free memory large enough to affect the batch size.
_UNEVEN_BYTES = GIB
# Used memory that no visible process accounts for, above what driver and display use (as in processes.py).
_FOREIGN_BYTES = 2 * GIB
# Utilization of an idle GPU is 0; a desktop's few percent belong to a listed process.
_IDLE_PERCENT = 20
# NCCL and GPUDirect map buffers of a few MiB per channel and peer into BAR1.
_BAR1_FULL = 0.95


@check(Severity.ERROR, source="mgpu: the --expect-free option", because_of=("gpu_busy",))
def gpu_memory_below_plan(gpus: tuple[Gpu, ...], visible: Visible, plan: Plan) -> Answer:
    """A visible GPU has less free memory than the plan expects.

    Why: a rank on it would run out of memory.

    Fix: find out which processes use the memory.
    More: Free the GPU, or exclude it.
    """
    if plan.expect_free_bytes is None:
        return Skip("no expected amount (--expect-free)")
    used = [gpu for gpu in gpus if gpu.index in visible.gpus and gpu.memory_free_bytes is not None]
    short = [gpu for gpu in used if (gpu.memory_free_bytes or 0) < plan.expect_free_bytes]
    if short:
        return gpu_problem(
            short,
            f"{gib(short[0].memory_free_bytes or 0)} free, {gib(plan.expect_free_bytes)} expected",
            {"free_bytes": "memory_free_bytes"},
            Fix(commands=("nvidia-smi",)),
        )
    return (
        Ok(f"{len(used)} GPUs have {gib(plan.expect_free_bytes)} free")
        if used
        else Skip("not reported by any visible GPU")
    )


@check(Severity.WARNING, source="https://pytorch.org/docs/stable/notes/ddp.html")
def gpu_memory_sizes_differ(gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """Visible GPUs of one model have different amounts of memory.

    Why: all ranks use the same micro-batch size, so the GPU with the least memory runs out first. Boards of one model
    differ if ECC is on for only some of them, or if one is another edition.

    Fix: set ECC the same on all of them. It takes effect at the next reset.
    """
    known = [
        (name, [gpu for gpu in members if gpu.memory_total_bytes and not gpu.mig_mode])
        for name, members in same_models(gpus, visible).items()
    ]
    for name, members in known:
        sizes = [gpu.memory_total_bytes or 0 for gpu in members]
        if not sizes or min(sizes) >= _SAME_SIZE * max(sizes):
            continue
        small = [gpu for gpu in members if (gpu.memory_total_bytes or 0) < _SAME_SIZE * max(sizes)]
        ecc = len({gpu.ecc_enabled for gpu in members}) > 1
        return Problem(
            f"{gpu_list(g.index for g in small)}: {gib(min(sizes))} of memory, the others have {gib(max(sizes))}",
            f"They are all {name}. "
            + ("ECC is on for only some of them." if ecc else "One is another edition or configured differently."),
            Fix(commands=("nvidia-smi -q -d ECC,MEMORY",), who="admin")
            if ecc
            else Fix("Choose the batch size for the smallest.", ("mgpu configure",)),
            {f"gpu_{gpu.index}_total_bytes": gpu.memory_total_bytes for gpu in members},
            gpu_subjects(small),
        )
    number = sum(len(members) for _, members in known)
    if not number:
        return Skip("no visible GPU reports its memory size")
    return Ok(f"equal memory on {number} of {len(visible.gpus)} visible GPUs")


@check(
    Severity.INFO,
    source=_QUERIES,
    because_of=("gpu_busy", "gpu_memory_without_process", "gpu_memory_used_from_outside", "gpu_memory_sizes_differ"),
)
def gpu_free_memory_uneven(gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """A visible GPU has much less free memory than others of the same model.

    Why: all ranks use the same micro-batch size, so the GPU with the least free memory limits it. A display, a notebook
    or another user uses the difference.

    Fix: find out which processes use it, or choose the batch size for this GPU.
    """
    number = 0
    for members in same_models(gpus, visible).values():
        known = [gpu for gpu in members if gpu.memory_free_bytes is not None and not gpu.mig_mode]
        number += len(known)
        most = max((gpu.memory_free_bytes or 0 for gpu in known), default=0)
        low = [gpu for gpu in known if most - (gpu.memory_free_bytes or 0) >= _UNEVEN_BYTES]
        if low:
            gpu = min(low, key=lambda gpu: gpu.memory_free_bytes or 0)
            screen = gpu.display_active or any(p.kind == "graphics" for p in gpu.processes or ())
            return Problem(
                f"{gpu_list(g.index for g in low)}: {gib(gpu.memory_free_bytes or 0)} free, others up to {gib(most)}",
                f"GPU {gpu.index} drives a display." if screen else "Another process uses memory on it.",
                Fix(commands=("nvidia-smi",)),
                {f"gpu_{g.index}_free_bytes": g.memory_free_bytes for g in known},
                gpu_subjects(low),
            )
    if not number:
        return Skip("no visible GPU reports its free memory")
    return Ok(f"free memory is similar on {number} of {len(visible.gpus)} visible GPUs")


@check(
    Severity.WARNING,
    source="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html",
    because_of=("gpu_busy",),
)
def gpu_memory_used_from_outside(gpus: tuple[Gpu, ...], visible: Visible, container: Container) -> Answer:
    """GPU memory is used by a process that is not visible in this container.

    Why: another container, the host, or a process in this container that NVML does not list uses the GPU.
    More: A container does not show processes of the host or of other containers, and often not even its own. A rank on
    this GPU gets what is left and runs out of memory.

    Fix: find out on the host which process uses the GPU, or use a free one.
    """
    if not container.kind or container.wsl:
        return Skip("not a container" if not container.kind else "Windows uses the GPU too")
    foreign: dict[int, int] = {}
    known = 0
    for gpu in gpus:
        if gpu.index not in visible.gpus or gpu.processes is None or gpu.memory_used_bytes is None:
            continue
        if gpu.c2c_enabled or gpu.mig_mode:
            continue  # the kernel keeps pages on a coherent GPU; MIG instances' memory is counted together
        if any(process.memory_bytes is None for process in gpu.processes):
            continue
        known += 1
        own = sum(process.memory_bytes or 0 for process in gpu.processes)
        rest = gpu.memory_used_bytes - own - (gpu.memory_reserved_bytes or 0)
        if rest > _FOREIGN_BYTES:
            foreign[gpu.index] = rest
    if foreign:
        free = [index for index in visible.gpus if index not in foreign]
        return Problem(
            f"{gpu_list(foreign)}: {gib(next(iter(foreign.values())))} in use, but no process is listed",
            fix=(
                *([Fix("Use the other GPUs.", use_only(free, gpus))] if free else []),
                Fix("Find out on the host which process uses it.", ("nvidia-smi",), "admin"),
            ),
            evidence={f"gpu_{index}_foreign_bytes": rest for index, rest in foreign.items()},
            subjects=tuple(f"GPU {index}" for index in foreign),
        )
    return (
        Ok(f"memory of {counted(known, 'GPU')} is accounted for") if known else Skip("not reported by any visible GPU")
    )


@check(Severity.WARNING, source=_QUERIES, because_of=("gpu_busy", "gpu_memory_used_from_outside"))
def gpu_busy_without_process(gpus: tuple[Gpu, ...], visible: Visible, driver: Driver, container: Container) -> Answer:
    """A GPU is busy, but no process is listed on it.

    Why: a process that is not visible from here uses the GPU.
    More: It runs in another container or virtual machine. A rank on this GPU shares it, and every step waits for it.

    Fix: find out which process it is, or use a free GPU.
    """
    if container.wsl:
        return Skip("Windows uses the GPU too and lists no processes")
    known = [
        gpu
        for gpu in gpus
        if gpu.index in visible.gpus
        and gpu.utilization_percent is not None
        and gpu.processes is not None
        and driver_was_running(gpu, driver)
    ]
    bad = [gpu for gpu in known if not gpu.processes and (gpu.utilization_percent or 0) > _IDLE_PERCENT]
    if bad:
        free = [index for index in visible.gpus if index not in {gpu.index for gpu in bad}]
        return gpu_problem(
            bad,
            f"{bad[0].utilization_percent} % busy, but no process is listed",
            {"percent": "utilization_percent"},
            (
                *([Fix("Use the other GPUs.", use_only(free, gpus))] if free else []),
                Fix(
                    "Find out which process has the device open.",
                    tuple(shell("sudo fuser -v {:path}", _device_node(gpu)) for gpu in bad),
                    "admin",
                ),
            ),
        )
    if not known:
        return Skip("not reported by any visible GPU, or the driver was only just started")
    return Ok(f"no hidden process on {len(known)} of {len(visible.gpus)} visible GPUs")


def _device_node(gpu: Gpu) -> str:
    return f"/dev/nvidia{gpu.index if gpu.minor is None else gpu.minor}"


@check(Severity.WARNING, source="https://docs.nvidia.com/cuda/gpudirect-rdma/")
def gpu_bar1_exhausted(gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """A GPU's BAR1, the window through which other devices access its memory, is full.

    Why: peers and network adapters have no space left to map this GPU's memory.
    More: Peer-to-peer over PCIe and GPUDirect RDMA map their buffers into BAR1. Without space NCCL fails to register
    memory, or falls back to copies through the host.

    Fix: find out which processes use the GPU.
    More: Stop them, or enable the large window (Resizable BAR, Above 4G Decoding) in the BIOS.
    """
    known = [
        gpu for gpu in gpus if gpu.index in visible.gpus and gpu.bar1_total_bytes and gpu.bar1_used_bytes is not None
    ]
    bad = [gpu for gpu in known if (gpu.bar1_used_bytes or 0) >= _BAR1_FULL * (gpu.bar1_total_bytes or 0)]
    if bad:
        gpu = bad[0]
        return gpu_problem(
            bad,
            f"BAR1 is full ({gib(gpu.bar1_used_bytes or 0)} of {gib(gpu.bar1_total_bytes or 0)})",
            {"bar1_used_bytes": "bar1_used_bytes"},
            Fix(commands=(shell("nvidia-smi -q -d MEMORY,PIDS -i {:number}", gpu.index),)),
        )
    if not known:
        return Skip("not reported by any visible GPU")
    return Ok(f"free space in BAR1 on {len(known)} of {len(visible.gpus)} visible GPUs")
