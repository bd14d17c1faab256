"""Does the system give the ranks enough shared memory, CPUs, files and memory?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Evidence, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.rehearsal import memory_bytes, seconds
from mgpu.snapshot import Container, Gpu, Host, InfiniBand, Plan, Slurm, System, Visible
from mgpu.text import counted, listed

from ._gpus import usable_count
from ._limit_fixes import enlarge_shm, raise_locked_memory, ranks_that_fit, request_memory
from ._wording import GIB, MIB, gib

_LIMITS = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/runtime_and_mpi_issues.html"
_NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#shared-memory"
# NCCL's use of /dev/shm: segments of about 4 MiB per channel and peer ("failed to extend ... to 4194660 bytes", NCCL
# troubleshooting guide), some tens of MiB per rank. Docker's default of 64 MiB fails with two ranks.
_SHM_PER_RANK_BYTES = 64 * MIB
# The NCCL guide's value (--shm-size=1g); loader workers pass their batches through /dev/shm too.
_SHM_COMFORT_BYTES = GIB
# NCCL and data loaders keep hundreds of files open per rank; the common soft limit of 1024 breaks loaders.
_OPEN_FILES = 4096
# The NCCL guide recommends "unlimited". Distributions set 64 KiB or 8 MiB, and with less than this NCCL cannot register
# its channel buffers (4 MiB per channel and peer). A higher limit was set on purpose.
_LOCKED_BYTES = GIB
# Measured: a rank with 8 loader workers and OMP_NUM_THREADS=1 has 9 processes with 36 threads (torch 2.13, gloo). CUDA,
# NCCL and compiler workers add a few dozen.
_TASKS_PER_RANK = 128
_CROWDED = 2  # CPU ranks per core


def _rank_count(visible: Visible, plan: Plan) -> int:
    """Return the number of ranks on this machine: one per visible GPU, or else those of a CPU smoke test."""
    return usable_count(visible) or plan.cpu_ranks or 2


@check(Severity.ERROR, source=_NCCL)
def shm_too_small(system: System, container: Container, visible: Visible, plan: Plan) -> Answer:
    """/dev/shm is too small for the ranks on this machine.

    Why: NCCL and data loaders pass data through it. A run then fails with "Error while creating shared memory segment",
    or a worker is killed by a bus error.
    More: Docker and Kubernetes set 64 MiB by default.

    Fix: start the container with a larger /dev/shm.
    """
    total, free = system.shm_total_bytes, system.shm_free_bytes
    if total is None or free is None:
        return Skip("/dev/shm cannot be read")
    ranks = _rank_count(visible, plan)
    need = _SHM_PER_RANK_BYTES * max(ranks, 2)
    if free >= need:
        return Ok(f"/dev/shm has {gib(free)} free for {counted(ranks, 'rank')}")
    evidence: Evidence = {"path": "/dev/shm", "total_bytes": total, "free_bytes": free, "need_bytes": need}
    stopgap = Fix(
        "Let NCCL use the network stack instead of shared memory.",
        ("export NCCL_SHM_DISABLE=1",),
        kind="stopgap",
        caveat="slower, hides the cause, and does not help data loaders",
    )
    if total >= need:
        return Problem(
            f"/dev/shm: {gib(free)} free of {gib(total)}, but {counted(ranks, 'rank')} need {gib(need)}",
            "It is filled, often by segments of killed runs.",
            (Fix("List its files, and remove those of processes that no longer run.", ("ls -la /dev/shm",)), stopgap),
            evidence,
        )
    return Problem(
        f"/dev/shm is {gib(total)}, too small for {counted(ranks, 'rank')}",
        fix=(enlarge_shm(container), stopgap),
        evidence=evidence,
    )


@check(Severity.WARNING, source=_NCCL, because_of=("shm_too_small",))
def shm_tight_for_loaders(system: System, container: Container) -> Answer:
    """/dev/shm is large enough for NCCL but small for data loader workers.

    Why: loader workers share it with NCCL, and large batches fill it.
    More: Each worker passes its batches through /dev/shm, several at a time. The NCCL guide recommends 1 GiB. With
    large batches a worker dies of a bus error, possibly hours into the run.

    Fix: make it larger.
    """
    total = system.shm_total_bytes
    if total is None:
        return Skip("/dev/shm cannot be read")
    if total >= _SHM_COMFORT_BYTES:
        return Ok(f"/dev/shm is {gib(total)}")
    return Problem(
        f"/dev/shm is {gib(total)}, 1 GiB or more recommended",
        fix=enlarge_shm(container),
        evidence={"path": "/dev/shm", "total_bytes": total},
    )


@check(Severity.ERROR, source=_NCCL)
def shm_not_writable(system: System) -> Answer:
    """/dev/shm is not writable.

    Why: NCCL, data loaders and multiprocessing need shared memory.

    Fix: mount it.
    """
    if system.shm_writable is None:
        return Problem(
            "there is no /dev/shm", fix=Fix(commands=("sudo mount -t tmpfs -o mode=1777 tmpfs /dev/shm",), who="admin")
        )
    if system.shm_writable:
        return Ok("/dev/shm is writable")
    return Problem(
        "/dev/shm is read-only or belongs to another user",
        "NCCL, data loaders and multiprocessing cannot create shared memory.",
        Fix("Remount it writable for all users.", ("sudo mount -o remount,rw,mode=1777 /dev/shm",), who="admin"),
        {"path": "/dev/shm"},
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html")
def open_files_limit_low(system: System, container: Container) -> Answer:
    """The hard limit on open files is low.

    Why: sockets, loader pipes and dataset shards add up, and a rank fails with "Too many open files".
    More: A low soft limit does not matter: mgpu smoke-test and mgpu launch raise it for the ranks.

    Fix: raise the hard limit, then log in again.
    """
    limit, hard = system.limit_open_files, system.hard_open_files
    if limit is None or limit >= _OPEN_FILES:
        return Ok(f"{limit if limit is not None else 'unlimited'} open files")
    wanted = _OPEN_FILES * 16
    if hard is None or hard >= _OPEN_FILES:
        return Ok(f"{limit} open files, raised to {wanted if hard is None else min(hard, wanted)} for the ranks")
    if container.kind:
        fix = Fix("Raise the container's limit.", (shell("docker run --ulimit nofile={:number} ...", wanted),))
    else:
        fix = Fix(
            commands=(shell("echo '* - nofile {:number}' | sudo tee /etc/security/limits.d/nofile.conf", wanted),),
            who="admin",
        )
    return Problem(
        f"ulimit -Hn is {hard}, {_OPEN_FILES} or more recommended",
        fix=fix,
        evidence={"soft_limit": limit, "hard_limit": hard},
    )


@check(Severity.ERROR, source=_LIMITS)
def locked_memory_limited(
    system: System, container: Container, infiniband: InfiniBand, env: Mapping[str, str], plan: Plan, slurm: Slurm
) -> Answer:
    """The limit on locked memory is too low for RDMA.

    Why: NCCL registers its buffers with the adapter, which locks them in memory. At the limit this fails.
    More: InfiniBand, RoCE and EFA adapters access memory that cannot be moved, so registered buffers count against
    `ulimit -l`. limits.conf does not apply to services such as slurmd or Docker, so a job's limit is often 64 KiB or
    8 MiB. NCCL then fails with "Call to ibv_reg_mr failed" or "ibv_create_qp failed".

    Fix: remove the limit for the service that starts the job.
    """
    if max(plan.nodes, slurm.nodes or 1) < 2:
        return Skip("single-node run needs no RDMA")
    ports = [p.name for p in infiniband.ports if p.active and p.device not in infiniband.verbs_unusable]
    if not ports:
        return Skip("no usable InfiniBand, RoCE or EFA port is active")
    if env.get("NCCL_IB_DISABLE", "").strip() == "1":
        return Skip("NCCL_IB_DISABLE=1: NCCL will not use the adapters")
    limit = system.limit_locked_memory_bytes
    if limit is None:
        return Ok("ulimit -l is unlimited")
    if "ipc_lock" in (container.capabilities or ()):
        return Ok(f"ulimit -l is {_format_limit(limit)}, but CAP_IPC_LOCK overrides it")
    if limit >= _LOCKED_BYTES:
        return Ok(f"ulimit -l is {_format_limit(limit)} (the NCCL guide recommends no limit)")
    return Problem(
        f"ulimit -l is {_format_limit(limit)}, RDMA over {listed(ports)} needs more",
        fix=raise_locked_memory(system.hard_locked_memory_bytes, container, slurm),
        evidence={
            "soft_limit_bytes": limit,
            "hard_limit_bytes": system.hard_locked_memory_bytes,
            "ports": ", ".join(ports),
        },
    )


def _format_limit(size: int) -> str:
    """Format a limit, in KiB if it is below 1 MiB, as limits often are."""
    return f"{size // 1024} KiB" if size < MIB else gib(size)


@check(Severity.WARNING, source="https://kubernetes.io/docs/concepts/policy/pid-limiting/")
def processes_limit_low(system: System, host: Host, container: Container, visible: Visible, plan: Plan) -> Answer:
    """The limit on processes and threads is low for the number of ranks.

    Why: threads count too. At the limit a rank cannot start a loader worker or an NCCL thread.
    More: Threads count as processes, both for `ulimit -u` (of this user) and for the cgroup's pids.max. A rank has
    dozens, and each loader worker is a process. At the limit they fail with "can't start new thread" or "Resource
    temporarily unavailable".

    Fix: raise TasksMax of the service or session.
    """
    ranks = _rank_count(visible, plan)
    need = ranks * _TASKS_PER_RANK
    rooms: dict[str, int] = {}
    if system.tasks_max is not None and system.tasks_used is not None:
        rooms["cgroup"] = max(0, system.tasks_max - system.tasks_used)
    free_of_it = host.user_is_root or bool({"sys_resource", "sys_admin"} & set(container.capabilities or ()))
    if system.limit_processes is not None and not free_of_it:
        rooms["ulimit"] = system.limit_processes
    if not rooms:
        return Ok("neither ulimit -u nor a cgroup limits the number of processes")
    which = min(rooms, key=lambda name: rooms[name])
    room = rooms[which]
    if room >= need:
        return Ok(f"room for {room} more processes and threads ({which})")
    if which == "ulimit":
        fix = Fix(
            "Raise the limit before the launch. Only root can go above the hard limit.",
            (shell("ulimit -u {:number}", need * 8),),
        )
    elif container.kind == "kubernetes":
        fix = Fix("Raise the kubelet's podPidsLimit.", ("kubectl get --raw /api/v1/nodes/NODE/proxy/configz",), "admin")
    elif container.kind:
        fix = Fix("Remove the container's limit.", ("docker run --pids-limit=-1 ...",))
    else:
        fix = Fix(commands=("systemctl status --no-pager $$",), who="admin")
    return Problem(
        f"room for {room} more processes and threads, but {counted(ranks, 'rank')} with loader workers need {need}",
        fix=fix,
        evidence={f"room_by_{name}": number for name, number in rooms.items()} | {"need": need},
    )


@check(
    Severity.WARNING,
    source="https://pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
    because_of=("slurm_cpus_not_passed_on",),
)
def cpus_fewer_than_ranks(system: System, gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """There are fewer usable CPUs than GPUs.

    Why: CPU affinity or a cgroup quota limits this process to few cores, and the GPUs wait for them.
    More: Each rank keeps at least one core busy launching kernels, and its loader workers need more.

    Fix: request more CPUs.
    """
    ranks = len(visible.gpus)
    if not gpus or not ranks:
        return Skip("no visible GPU")
    usable = system.cpus_usable
    if usable >= ranks:
        return Ok(f"{counted(usable, 'CPU')} for {counted(ranks, 'rank')}")
    return Problem(
        f"{counted(usable, 'CPU')} usable of {system.cpus_logical}, for {counted(ranks, 'rank')}",
        fix=Fix(commands=("srun --cpus-per-task=8 ...", "docker run --cpus=16 ...")),
        evidence={"allowed": system.cpus_allowed, "quota": system.cpus_quota, "logical": system.cpus_logical},
    )


@check(Severity.INFO, source="https://pytorch.org/docs/stable/data.html")
def cpus_leave_no_loader(system: System, gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """There are fewer than two CPUs per rank, which leaves none for data loader workers.

    Why: workers would take CPU time from the thread that feeds the GPU.
    More: num_workers is per rank. With fewer than two CPUs per rank, loader workers and the thread that feeds the GPU
    share a core, and more workers make it slower. PyTorch warns "This DataLoader will create N worker processes in
    total".

    Fix: request more CPUs.
    More: Or load data in the rank itself.
    """
    ranks = len(visible.gpus)
    if not gpus or not ranks:
        return Skip("no visible GPU")
    usable = system.cpus_usable
    if usable >= 2 * ranks:
        return Ok(f"CPUs for {counted(usable // ranks - 1, 'loader worker')} per rank")
    if usable < ranks:
        return Ok(f"{counted(usable, 'CPU')}: too few even for the ranks")
    return Problem(
        f"{counted(usable, 'CPU')} for {counted(ranks, 'rank')}: not enough for loader workers",
        fix=(
            Fix(commands=("srun --cpus-per-task=16 ...", "docker run --cpus=16 ...")),
            Fix("Or set num_workers=0 in the DataLoader."),
        ),
        evidence={"usable": usable, "ranks": ranks},
    )


# Below this, even a rank's Python, torch and CUDA context barely fit (import torch with CUDA maps about 2 GiB).
_MEMORY_PER_RANK_BYTES = 4 * GIB


@check(Severity.WARNING, source="https://github.com/huggingface/accelerate/issues?q=exitcode+-9")
def memory_small_for_ranks(
    system: System, gpus: tuple[Gpu, ...], visible: Visible, container: Container, slurm: Slurm
) -> Answer:
    """There is little host memory for the ranks on this machine.

    Why: when memory runs out, the kernel kills a rank with SIGKILL: exit code -9 and no traceback.
    More: Each rank needs memory for torch, its copy of the model and its loader workers. The limits of the cgroup and
    of Slurm's --mem count, not the machine's total.

    Fix: request more memory.
    More: Or start fewer loader workers.
    """
    ranks = len(visible.gpus)
    if not gpus or not ranks:
        return Skip("no visible GPU")
    if not system.memory_total_bytes:
        return Skip("/proc/meminfo cannot be read")
    rooms = _free_memory(system, slurm)
    which = min(rooms, key=lambda name: rooms[name])
    room = f"{gib(rooms[which])} of free host memory for {counted(ranks, 'rank')}"
    if which != "the machine":
        room += f" (limited by {which})"
    if rooms[which] >= ranks * _MEMORY_PER_RANK_BYTES:
        return Ok(room)
    return Problem(
        room,
        fix=Fix(commands=request_memory(container, slurm))
        if which != "the machine"
        else Fix(
            "Find out which processes use the memory, or start fewer ranks.",
            ("ps -eo rss,pid,user,comm --sort=-rss | head",),
        ),
        evidence={
            "available_bytes": system.memory_available_bytes,
            "limit_bytes": system.memory_limit_bytes,
            "limit_used_bytes": system.memory_limit_used_bytes,
            "slurm_bytes": slurm.memory_bytes,
        },
    )


def _free_memory(system: System, slurm: Slurm) -> dict[str, int]:
    """Return the free bytes of the machine, and those that each limit allows."""
    rooms = {"the machine": system.memory_available_bytes}
    if system.memory_limit_bytes is not None:
        rooms["the cgroup"] = max(0, system.memory_limit_bytes - (system.memory_limit_used_bytes or 0))
    if slurm.memory_bytes is not None and slurm.on_allocated_node is not False:
        rooms["Slurm's --mem"] = slurm.memory_bytes
    return rooms


@check(Severity.INFO, source="https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files")
def processes_killed_for_memory(system: System) -> Answer:
    """The OOM killer has killed processes in this session.

    Why: a rank or loader worker that exited with code -9 was most likely one of them.
    More: The cgroup counts each process killed at its memory limit. If a run ended with exit code -9 and no traceback,
    this is why.

    Fix: request more memory, or let the ranks load the model one after the other.
    """
    if system.oom_kills is None:
        return Skip("this shell's cgroup does not count them. As an administrator: dmesg | grep -i 'killed process'")
    if not system.oom_kills:
        return Ok("none since this session or container started")
    return Problem(
        f"{counted(system.oom_kills, 'process', 'processes')} killed by the OOM killer in this session",
        evidence={"oom_kills": system.oom_kills, "limit_bytes": system.memory_limit_bytes},
    )


@check(Severity.ERROR, source="measured torch 2.13 CPU 2026-11", stops_start=True)
def cpu_ranks_exceed_machine(plan: Plan, system: System, slurm: Slurm) -> Answer:
    """A smoke test on the CPU has more ranks than this machine can run within the time limit or its memory.

    Why: each rank is a process that imports torch and trains. With many per core the test only reaches its time
    limit; without enough memory the OOM killer stops ranks.

    Fix: Test with fewer ranks: two are enough to find most faults.
    """
    ranks, limit, level = plan.cpu_ranks, plan.time_limit_s, plan.level
    if ranks is None or limit is None or level is None:
        return Skip("no smoke test on the CPU")
    cores, free = system.cpus_usable, min(_free_memory(system, slurm).values())
    needs, time_s = memory_bytes(ranks), seconds(ranks, level, cores)
    have = f"{counted(ranks, 'CPU rank')} at level {level} {'needs' if ranks == 1 else 'need'} about"
    late = ranks > _CROWDED * cores and time_s > limit  # a short limit on a machine with enough cores is a choice
    if needs <= free and not late:
        return Ok(f"{have} {gib(needs)} of memory, {gib(free)} are available")
    short = f"{time_s:.0f} s on {counted(cores, 'core')}, the time limit is {limit:g} s"
    if needs > free:
        short = f"{gib(needs)} of memory, {gib(free)} are available"
    return Problem(
        f"{have} {short}",
        fix=ranks_that_fit(ranks, level, cores, limit, free),
        evidence={"ranks": ranks, "cores": cores, "seconds": round(time_s), "limit_s": limit, "bytes": needs},
    )
