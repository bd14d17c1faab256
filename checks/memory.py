"""Is the memory of the GPUs there for a run, as much on one as on another?"""

from __future__ import annotations

from mgpu.check import Answer, Family, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Container, Driver, Gpu, Plan, Visible
from mgpu.text import counted

from ._gpus import gpu_problem, names_of, same_models, use_only, was_running
from ._wording import GIB, gib, gpu_list

FAMILY = Family(gpu_only=True)

_QUERIES = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"

# GPUs of one model whose memory differs by more than this are set up differently (ECC, another board).
_SAME_SIZE = 0.99
# A difference in free memory that decides about a batch size.
_UNEVEN_BYTES = GIB
# Used memory that no visible process accounts for: as in processes.py, above what driver and display take.
_FOREIGN_BYTES = 2 * GIB
# Utilisation of an idle GPU is 0; a desktop's few percent belong to a process that is listed.
_IDLE_PERCENT = 20
# NCCL and GPUDirect map buffers of a few MiB per channel and peer into BAR1.
_BAR1_FULL = 0.95


@check(Severity.ERROR, source="mgpu: what --expect-free asks", because_of=("gpu_busy",))
def gpu_memory_below_plan(gpus: tuple[Gpu, ...], visible: Visible, plan: Plan) -> Answer:
    """A visible GPU has less free memory than the plan expects.

    Why: a rank on it would stop with out-of-memory.

    Fix: see who holds the memory.
    More: Free the GPU, or leave it out.
    """
    if plan.expect_free_bytes is None:
        return Skip("no amount was asked for (--expect-free)")
    used = [gpu for gpu in gpus if gpu.index in visible.gpus and gpu.memory_free_bytes is not None]
    short = [gpu for gpu in used if (gpu.memory_free_bytes or 0) < plan.expect_free_bytes]
    if short:
        return gpu_problem(
            short,
            f"{gib(short[0].memory_free_bytes or 0)} free, {gib(plan.expect_free_bytes)} expected",
            {"free_bytes": "memory_free_bytes"},
            Fix(commands=("nvidia-smi",)),
        )
    return Ok(f"{len(used)} GPUs have {gib(plan.expect_free_bytes)} free") if used else Skip("no visible GPU tells")


@check(Severity.WARNING, source="https://pytorch.org/docs/stable/notes/ddp.html")
def gpu_memory_sizes_differ(gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """Visible GPUs of one model have different amounts of memory.

    Why: all ranks get the same micro-batch, so the one with the least memory stops with out-of-memory first. Equal
    boards differ where ECC takes its share on one of them only, or where one is another edition.

    Fix: set ECC alike; it takes effect at the next reset.
    """
    told = [
        (name, [gpu for gpu in members if gpu.memory_total_bytes and not gpu.mig_mode])
        for name, members in same_models(gpus, visible).items()
    ]
    for name, members in told:
        sizes = [gpu.memory_total_bytes or 0 for gpu in members]
        if not sizes or min(sizes) >= _SAME_SIZE * max(sizes):
            continue
        small = [gpu for gpu in members if (gpu.memory_total_bytes or 0) < _SAME_SIZE * max(sizes)]
        ecc = len({gpu.ecc_enabled for gpu in members}) > 1
        return Problem(
            f"{gpu_list(g.index for g in small)}: {gib(min(sizes))} of memory, the others have {gib(max(sizes))}",
            f"They are all {name}. "
            + ("ECC is on for some of them only." if ecc else "One of them is another edition, or set up differently."),
            Fix(commands=("nvidia-smi -q -d ECC,MEMORY",), who="admin")
            if ecc
            else Fix("Plan the batch for the smallest.", ("mgpu configure",)),
            {f"gpu_{gpu.index}_total_bytes": gpu.memory_total_bytes for gpu in members},
            names_of(small),
        )
    number = sum(len(members) for _, members in told)
    if not number:
        return Skip("no visible GPU tells its memory")
    return Ok(f"equal memory on {number} of {len(visible.gpus)} visible GPUs")


@check(
    Severity.INFO,
    source=_QUERIES,
    because_of=("gpu_busy", "gpu_memory_without_process", "gpu_memory_used_from_outside", "gpu_memory_sizes_differ"),
)
def gpu_free_memory_uneven(gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """A visible GPU has clearly less free memory than its siblings.

    Why: all ranks get the same micro-batch: what fits on the fullest GPU is what fits. A screen, a notebook or another
    user takes the difference.

    Fix: see who holds it, or plan for the smallest.
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
                f"{gpu_list(g.index for g in low)}: {gib(gpu.memory_free_bytes or 0)} free, elsewhere {gib(most)}",
                f"GPU {gpu.index} drives a screen." if screen else "Something else holds memory there.",
                Fix(commands=("nvidia-smi",)),
                {f"gpu_{g.index}_free_bytes": g.memory_free_bytes for g in known},
                names_of(low),
            )
    if not number:
        return Skip("no visible GPU tells its free memory")
    return Ok(f"free memory is even on {number} of {len(visible.gpus)} visible GPUs")


@check(
    Severity.WARNING,
    source="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html",
    because_of=("gpu_busy",),
)
def gpu_memory_used_from_outside(gpus: tuple[Gpu, ...], visible: Visible, container: Container) -> Answer:
    """In a container: GPU memory is in use, and no process that shows here holds it.

    Why: another container, the host, or a process in here that NVML does not list has the GPU.
    More: Processes of the host and of other containers do not show in one, and often not even its own. Whoever it is, a
    rank gets what is left and stops with out-of-memory.

    Fix: ask on the host who has the GPU, or take a free one.
    """
    if not container.kind or container.wsl:
        return Skip("not a container" if not container.kind else "Windows uses the GPU, too")
    foreign: dict[int, int] = {}
    known = 0
    for gpu in gpus:
        if gpu.index not in visible.gpus or gpu.processes is None or gpu.memory_used_bytes is None:
            continue
        if gpu.c2c_enabled or gpu.mig_mode:
            continue  # the kernel keeps pages on a coherent GPU; the memory of instances is counted together
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
            f"{gpu_list(foreign)}: {gib(next(iter(foreign.values())))} in use, and no process is listed",
            fix=(
                *([Fix("Use the others.", use_only(free, gpus))] if free else []),
                Fix("Ask on the host who has it.", ("nvidia-smi",), "admin"),
            ),
            evidence={f"gpu_{index}_foreign_bytes": rest for index, rest in foreign.items()},
            subjects=tuple(f"GPU {index}" for index in foreign),
        )
    return Ok(f"memory of {counted(known, 'GPU')} is accounted for") if known else Skip("no visible GPU tells")


@check(Severity.WARNING, source=_QUERIES, because_of=("gpu_busy", "gpu_memory_used_from_outside"))
def gpu_busy_without_process(gpus: tuple[Gpu, ...], visible: Visible, driver: Driver, container: Container) -> Answer:
    """A GPU is at work, and no process is listed there.

    Why: somebody computes there whom this process cannot see.
    More: Somebody computes from where this process cannot look (another container, a virtual machine beside this one).
    A rank there shares the GPU, and every step waits for it.

    Fix: find out who it is, or take a free GPU.
    """
    if container.wsl:
        return Skip("Windows uses the GPU, too, and lists no process")
    known = [
        gpu
        for gpu in gpus
        if gpu.index in visible.gpus
        and gpu.utilization_percent is not None
        and gpu.processes is not None
        and was_running(gpu, driver)
    ]
    bad = [gpu for gpu in known if not gpu.processes and (gpu.utilization_percent or 0) > _IDLE_PERCENT]
    if bad:
        free = [index for index in visible.gpus if index not in {gpu.index for gpu in bad}]
        return gpu_problem(
            bad,
            f"{bad[0].utilization_percent} % busy, and no process is listed",
            {"percent": "utilization_percent"},
            (
                *([Fix("Use the others.", use_only(free, gpus))] if free else []),
                Fix(
                    "See who has the device open.",
                    tuple(shell("sudo fuser -v {:path}", _node(gpu)) for gpu in bad),
                    "admin",
                ),
            ),
        )
    if not known:
        return Skip("no visible GPU tells, or the driver had to be started for the question")
    return Ok(f"nobody unseen computes on {len(known)} of {len(visible.gpus)} visible GPUs")


def _node(gpu: Gpu) -> str:
    return f"/dev/nvidia{gpu.index if gpu.minor is None else gpu.minor}"


@check(Severity.WARNING, source="https://docs.nvidia.com/cuda/gpudirect-rdma/")
def gpu_bar1_exhausted(gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """The window through which other devices reach a GPU's memory (BAR1) is full.

    Why: there is no room left for peers and network cards to map this GPU's memory.
    More: Peer-to-peer over PCIe and GPUDirect RDMA map their buffers into it. Without room NCCL fails to register
    memory, or falls back to copies through the host.

    Fix: see who holds the GPU.
    More: End the processes that hold it, or switch the large window (resizable BAR, Above 4G) on in the BIOS.
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
        return Skip("no visible GPU tells")
    return Ok(f"room in BAR1 on {len(known)} of {len(visible.gpus)} visible GPUs")
