"""Does the system give the ranks enough shared memory, CPUs, files and memory?"""

from __future__ import annotations

from mgpu.check import Answer, Evidence, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Container, Gpu, Plan, System, Visible

from ._knowledge import GIB, MIB, counted, gib, usable_count

_NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#shared-memory"
# What NCCL takes from /dev/shm: segments of about 4 MiB for each channel and peer ("failed to extend ... to 4194660
# bytes", NCCL troubleshooting guide), some tens of MiB a rank. Docker's default of 64 MiB fails with two ranks.
_SHM_PER_RANK_BYTES = 64 * MIB
# What the NCCL guide asks for (--shm-size=1g); loader workers hand their batches over in the same place.
_SHM_COMFORT_BYTES = GIB
# NCCL and data loaders keep hundreds of files open per rank; 1024 is the soft limit that breaks loaders.
_OPEN_FILES = 4096


def _ranks(visible: Visible, plan: Plan) -> int:
    """Ranks this machine would run: one a visible GPU, else the two of a CPU rehearsal."""
    return usable_count(visible) or plan.cpu_ranks or 2


@check(Severity.ERROR, source=_NCCL)
def shm_too_small(system: System, container: Container, visible: Visible, plan: Plan) -> Answer:
    """/dev/shm is too small for the ranks of this machine.

    Why: NCCL and the data loaders pass data between processes through /dev/shm; Docker and Kubernetes give 64 MiB. NCCL
    then fails with "Error while creating shared memory segment", a loader worker is killed by a bus error.

    Fix: start the container with a larger one.
    """
    total, free = system.shm_total_bytes, system.shm_free_bytes
    if total is None or free is None:
        return Skip("/dev/shm cannot be read")
    ranks = _ranks(visible, plan)
    need = _SHM_PER_RANK_BYTES * max(ranks, 2)
    if free >= need:
        return Ok(f"/dev/shm has {gib(free)} free for {counted(ranks, 'rank')}")
    evidence: Evidence = {"path": "/dev/shm", "total_bytes": total, "free_bytes": free, "need_bytes": need}
    stopgap = Fix(
        "Without shared memory NCCL goes over the network stack.",
        ("export NCCL_SHM_DISABLE=1",),
        kind="stopgap",
        caveat="slower, hides the cause, and does not help data loaders",
    )
    if total >= need:
        return Problem(
            f"/dev/shm: {gib(free)} free of {gib(total)}, {counted(ranks, 'rank')} want {gib(need)}",
            "Something fills it, often segments of runs that were killed.",
            (Fix("See what is in it; remove what belongs to no running process.", ("ls -la /dev/shm",)), stopgap),
            evidence,
        )
    if container.kind == "kubernetes":
        fix = Fix(
            "Mount a memory-backed emptyDir on /dev/shm in the pod.",
            ("kubectl explain pod.spec.volumes.emptyDir.medium",),
        )
    elif container.kind:
        fix = Fix("Start the container with more.", ("docker run --shm-size=8g ...", "docker run --ipc=host ..."))
    else:
        fix = Fix("Mount it larger.", ("sudo mount -o remount,size=8G /dev/shm",), who="admin")
    return Problem(
        f"/dev/shm is {gib(total)}, too small for {counted(ranks, 'rank')}",
        "NCCL and data loaders pass data through it. Later this shows as \"Error while creating shared memory "
        "segment\" or a worker killed by a bus error.",
        (fix, stopgap),
        evidence,
    )  # fmt: skip


@check(Severity.WARNING, source=_NCCL, because_of=("shm_too_small",))
def shm_tight_for_loaders(system: System, container: Container) -> Answer:
    """/dev/shm is enough for NCCL, and little for data-loader workers.

    Why: each worker hands its batches over in /dev/shm, several at a time; the NCCL guide asks for 1 GiB. With large
    batches a worker dies of a bus error, hours into the run.

    Fix: give it more.
    """
    total = system.shm_total_bytes
    if total is None:
        return Skip("/dev/shm cannot be read")
    if total >= _SHM_COMFORT_BYTES:
        return Ok(f"/dev/shm is {gib(total)}")
    fix = (
        Fix("Start the container with more.", ("docker run --shm-size=8g ...",))
        if container.kind
        else Fix("Mount it larger.", ("sudo mount -o remount,size=8G /dev/shm",), who="admin")
    )
    return Problem(
        f"/dev/shm is {gib(total)}, 1 GiB or more is advised",
        "Loader workers share it with NCCL; large batches fill it.",
        fix,
        {"path": "/dev/shm", "total_bytes": total},
    )


@check(Severity.ERROR, source=_NCCL)
def shm_not_writable(system: System) -> Answer:
    """/dev/shm cannot be written.

    Why: NCCL, data loaders and Python's multiprocessing all make their shared memory there.

    Fix: mount it writable.
    """
    if system.shm_writable is None:
        return Problem(
            "there is no /dev/shm",
            "NCCL, data loaders and multiprocessing have no shared memory.",
            Fix("Mount it.", ("sudo mount -t tmpfs -o mode=1777 tmpfs /dev/shm",), who="admin"),
        )
    if system.shm_writable:
        return Ok("/dev/shm can be written")
    return Problem(
        "/dev/shm is read-only or belongs to somebody else",
        "NCCL, data loaders and multiprocessing cannot make shared memory.",
        Fix("Mount it writable for all.", ("sudo mount -o remount,rw,mode=1777 /dev/shm",), who="admin"),
        {"path": "/dev/shm"},
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html")
def open_files_limit_low(system: System) -> Answer:
    """A process may open few files.

    Why: sockets of NCCL, pipes of loader workers and the shards of a dataset are all files; at the limit a rank stops
    with "Too many open files".

    Fix: raise the soft limit in the shell that launches.
    """
    limit = system.limit_open_files
    if limit is None or limit >= _OPEN_FILES:
        return Ok(f"{limit if limit is not None else 'unlimited'} open files")
    return Problem(
        f"ulimit -n is {limit}, {_OPEN_FILES} or more is advised",
        "Sockets, loader pipes and dataset shards add up; a rank then stops with \"Too many open files\".",
        Fix("Raise it before the launch.", (f"ulimit -n {_OPEN_FILES * 16}",)),
        {"soft_limit": limit},
    )  # fmt: skip


@check(Severity.WARNING, source="https://pytorch.org/tutorials/recipes/recipes/tuning_guide.html")
def cpus_fewer_than_ranks(system: System, gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """There are fewer usable CPUs than GPUs.

    Why: each rank keeps at least one core busy launching kernels, and its loader workers want more. Affinity, cgroup
    quotas and Slurm's --cpus-per-task (default 1) cut the number silently: the GPUs then wait for data.

    Fix: ask for more CPUs.
    """
    ranks = len(visible.gpus)
    if not gpus or not ranks:
        return Skip("no visible GPU")
    usable = system.cpus_usable
    if usable >= ranks:
        return Ok(f"{counted(usable, 'CPU')} for {counted(ranks, 'rank')}")
    return Problem(
        f"{counted(usable, 'CPU')} usable of {system.cpus_logical}, for {counted(ranks, 'rank')}",
        "Affinity or a cgroup quota leaves this process few cores; the GPUs will wait for them.",
        Fix("Ask for more.", ("srun --cpus-per-task=8 ...", "docker run --cpus=16 ...")),
        {"allowed": system.cpus_allowed, "quota": system.cpus_quota, "logical": system.cpus_logical},
    )


# Below this a rank's Python, torch and CUDA context alone are tight (import torch with CUDA maps about 2 GiB a rank).
_MEMORY_PER_RANK_BYTES = 4 * GIB


@check(Severity.WARNING, source="https://github.com/huggingface/accelerate/issues?q=exitcode+-9")
def memory_small_for_ranks(system: System, gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """There is little host memory for the ranks of this machine.

    Why: each rank loads torch, its copy of the model and its loader workers. At the limit the kernel kills a rank with
    SIGKILL: exit code -9, no traceback.

    Fix: more memory for the job, or fewer loader workers.
    """
    ranks = len(visible.gpus)
    if not gpus or not ranks:
        return Skip("no visible GPU")
    available = system.memory_available_bytes
    if system.memory_limit_bytes is not None:
        available = min(available, system.memory_limit_bytes)
    if available >= ranks * _MEMORY_PER_RANK_BYTES:
        return Ok(f"{gib(available)} for {counted(ranks, 'rank')}")
    return Problem(
        f"{gib(available)} of host memory for {counted(ranks, 'rank')}",
        "The kernel ends a rank that goes over it with SIGKILL: exit code -9 and no traceback.",
        Fix("Ask for more.", ("sbatch --mem=64G ...", "docker run --memory=64g ...")),
        {"available_bytes": system.memory_available_bytes, "limit_bytes": system.memory_limit_bytes},
    )
