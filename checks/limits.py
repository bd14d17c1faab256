"""Does the system give the ranks enough shared memory, CPUs, files and memory?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Evidence, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Container, Gpu, Host, InfiniBand, Plan, Slurm, System, Visible
from mgpu.text import counted, listed

from ._gpus import usable_count
from ._limit_fixes import asking_for_memory, lifted
from ._wording import GIB, MIB, gib

_LIMITS = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/runtime_and_mpi_issues.html"
_NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#shared-memory"
# What NCCL takes from /dev/shm: segments of about 4 MiB for each channel and peer ("failed to extend ... to 4194660
# bytes", NCCL troubleshooting guide), some tens of MiB a rank. Docker's default of 64 MiB fails with two ranks.
_SHM_PER_RANK_BYTES = 64 * MIB
# What the NCCL guide asks for (--shm-size=1g); loader workers hand their batches over in the same place.
_SHM_COMFORT_BYTES = GIB
# NCCL and data loaders keep hundreds of files open per rank; 1024 is the soft limit that breaks loaders.
_OPEN_FILES = 4096
# The NCCL guide asks for "unlimited". Distributions set 64 KiB or 8 MiB, and with less than this NCCL cannot register
# the buffers of its channels (4 MiB each, for every channel and peer); whoever set more has thought of it.
_LOCKED_BYTES = GIB
# Measured: a rank with 8 loader workers and OMP_NUM_THREADS=1 has 9 processes with 36 threads (torch 2.13, gloo); CUDA,
# NCCL and a compiler's workers add some dozens.
_TASKS_PER_RANK = 128


def _larger(container: Container) -> Fix:
    """How /dev/shm is made larger, by who made this container."""
    match container.kind:
        case "kubernetes":
            how = "kubectl explain pod.spec.volumes.emptyDir.medium"
            return Fix("Mount a memory-backed emptyDir on /dev/shm in the pod.", (how,))
        case "apptainer":
            return Fix("Start it without --contain: it then has the host's.", ("apptainer exec --nv image.sif ...",))
        case None | "enroot" | "lxc" | "nspawn":
            return Fix("Mount it larger.", ("sudo mount -o remount,size=8G /dev/shm",), who="admin")
        case _:
            return Fix("Start the container with more.", ("docker run --shm-size=8g ...", "docker run --ipc=host ..."))


def _ranks(visible: Visible, plan: Plan) -> int:
    """Ranks this machine would run: one a visible GPU, else the two of a CPU rehearsal."""
    return usable_count(visible) or plan.cpu_ranks or 2


@check(Severity.ERROR, source=_NCCL)
def shm_too_small(system: System, container: Container, visible: Visible, plan: Plan) -> Answer:
    """/dev/shm is too small for the ranks of this machine.

    Why: NCCL and data loaders pass data through it. Later this shows as "Error while creating shared memory segment" or
    a worker killed by a bus error.
    More: Docker and Kubernetes give 64 MiB.

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
    return Problem(
        f"/dev/shm is {gib(total)}, too small for {counted(ranks, 'rank')}",
        fix=(_larger(container), stopgap),
        evidence=evidence,
    )


@check(Severity.WARNING, source=_NCCL, because_of=("shm_too_small",))
def shm_tight_for_loaders(system: System, container: Container) -> Answer:
    """/dev/shm is enough for NCCL, and little for data-loader workers.

    Why: loader workers share it with NCCL; large batches fill it.
    More: Each worker hands its batches over in /dev/shm, several at a time; the NCCL guide asks for 1 GiB. With large
    batches a worker dies of a bus error, hours into the run.

    Fix: give it more.
    """
    total = system.shm_total_bytes
    if total is None:
        return Skip("/dev/shm cannot be read")
    if total >= _SHM_COMFORT_BYTES:
        return Ok(f"/dev/shm is {gib(total)}")
    return Problem(
        f"/dev/shm is {gib(total)}, 1 GiB or more is advised",
        fix=_larger(container),
        evidence={"path": "/dev/shm", "total_bytes": total},
    )


@check(Severity.ERROR, source=_NCCL)
def shm_not_writable(system: System) -> Answer:
    """/dev/shm cannot be written.

    Why: NCCL, data loaders and multiprocessing have no shared memory.

    Fix: mount it.
    """
    if system.shm_writable is None:
        return Problem(
            "there is no /dev/shm", fix=Fix(commands=("sudo mount -t tmpfs -o mode=1777 tmpfs /dev/shm",), who="admin")
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
def open_files_limit_low(system: System, container: Container) -> Answer:
    """A process may open few files.

    Why: sockets, loader pipes and dataset shards add up; a rank then stops with "Too many open files".

    Fix: raise the hard limit, then log in again.
    More: Raise the soft limit in the shell that launches.
    """
    limit, hard = system.limit_open_files, system.hard_open_files
    if limit is None or limit >= _OPEN_FILES:
        return Ok(f"{limit if limit is not None else 'unlimited'} open files")
    wanted = _OPEN_FILES * 16
    if hard is None or hard >= _OPEN_FILES:
        fix = Fix(
            "Raise it before the launch.",
            (shell("ulimit -n {:number}", wanted if hard is None else min(hard, wanted)),),
        )
    elif container.kind:
        fix = Fix("Start the container with more.", (shell("docker run --ulimit nofile={:number} ...", wanted),))
    else:
        fix = Fix(
            commands=(shell("echo '* - nofile {:number}' | sudo tee /etc/security/limits.d/nofile.conf", wanted),),
            who="admin",
        )
    return Problem(
        f"ulimit -n is {limit}, {_OPEN_FILES} or more is advised",
        fix=fix,
        evidence={"soft_limit": limit, "hard_limit": hard},
    )


@check(Severity.ERROR, source=_LIMITS)
def locked_memory_limited(
    system: System, container: Container, infiniband: InfiniBand, env: Mapping[str, str], plan: Plan, slurm: Slurm
) -> Answer:
    """A process may lock too little memory for RDMA.

    Why: NCCL registers its buffers with the adapter, which locks them in memory; at the limit that fails.
    More: InfiniBand, RoCE and EFA adapters read and write memory that must not be moved: NCCL registers its buffers,
    which counts against `ulimit -l`. limits.conf does not reach services such as slurmd or Docker, so the limit in a
    job is often 64 KiB or 8 MiB. NCCL then fails with "Call to ibv_reg_mr failed" or "ibv_create_qp failed".

    Fix: no limit, in the job: for the service that starts it.
    """
    if max(plan.nodes, slurm.nodes or 1) < 2:
        return Skip("a run on one machine needs no RDMA")
    ports = [p.name for p in infiniband.ports if p.active and p.device not in infiniband.verbs_unusable]
    if not ports:
        return Skip("no InfiniBand, RoCE or EFA port is active and may be used")
    if env.get("NCCL_IB_DISABLE", "").strip() == "1":
        return Skip("NCCL_IB_DISABLE=1: NCCL will not use the adapters")
    limit = system.limit_locked_memory_bytes
    if limit is None:
        return Ok("memory may be locked without limit")
    if "ipc_lock" in (container.capabilities or ()):
        return Ok(f"ulimit -l is {_small(limit)}, and CAP_IPC_LOCK lifts it")
    if limit >= _LOCKED_BYTES:
        return Ok(f"{_small(limit)} may be locked (the NCCL guide asks for no limit)")
    return Problem(
        f"ulimit -l is {_small(limit)}, RDMA over {listed(ports)} needs more",
        fix=lifted(system.hard_locked_memory_bytes, container, slurm),
        evidence={
            "soft_limit_bytes": limit,
            "hard_limit_bytes": system.hard_locked_memory_bytes,
            "ports": ", ".join(ports),
        },
    )


def _small(size: int) -> str:
    """Limits are often written in KiB."""
    return f"{size // 1024} KiB" if size < MIB else gib(size)


@check(Severity.WARNING, source="https://kubernetes.io/docs/concepts/policy/pid-limiting/")
def processes_limit_low(system: System, host: Host, container: Container, visible: Visible, plan: Plan) -> Answer:
    """There is little room for the processes and threads of the ranks.

    Why: threads count as well; at the limit a rank cannot start a loader worker, or a thread of NCCL.
    More: Threads count as processes, against `ulimit -u` (all of this user's) and against the cgroup's pids.max. A rank
    has dozens, and each loader worker is a process: at the limit they fail with "can't start new thread" or "Resource
    temporarily unavailable".

    Fix: raise TasksMax of the service or the session.
    """
    ranks = _ranks(visible, plan)
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
        return Ok(f"room for {room} processes and threads, by {which}")
    if which == "ulimit":
        fix = Fix(
            "Raise it before the launch; above the hard limit only root can.", (shell("ulimit -u {:number}", need * 8),)
        )
    elif container.kind == "kubernetes":
        fix = Fix("Raise the kubelet's podPidsLimit.", ("kubectl get --raw /api/v1/nodes/NODE/proxy/configz",), "admin")
    elif container.kind:
        fix = Fix("Start the container with more.", ("docker run --pids-limit=-1 ...",))
    else:
        fix = Fix(commands=("systemctl status --no-pager $$",), who="admin")
    return Problem(
        f"room for {room} processes and threads, {counted(ranks, 'rank')} with loader workers want {need}",
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

    Why: affinity or a cgroup quota leaves this process few cores; the GPUs will wait for them.
    More: Each rank keeps at least one core busy launching kernels, and its loader workers want more.

    Fix: ask for more.
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
    """There is a CPU for every rank, and not one more for each rank's data loader.

    Why: workers would take the CPU from the thread that feeds the GPU.
    More: num_workers counts per rank. With fewer than two CPUs a rank, loader workers and the thread that feeds the GPU
    take turns on the same core, and more workers make it slower. PyTorch warns "This DataLoader will create N worker
    processes in total".

    Fix: ask for more.
    More: Load in the rank itself.
    """
    ranks = len(visible.gpus)
    if not gpus or not ranks:
        return Skip("no visible GPU")
    usable = system.cpus_usable
    if usable >= 2 * ranks:
        return Ok(f"{counted(usable // ranks - 1, 'loader worker')} a rank have a CPU of their own")
    if usable < ranks:
        return Ok(f"{counted(usable, 'CPU')}: too few for the ranks already")
    return Problem(
        f"{counted(usable, 'CPU')} for {counted(ranks, 'rank')}: none is left for loader workers of each",
        fix=(
            Fix(commands=("srun --cpus-per-task=16 ...", "docker run --cpus=16 ...")),
            Fix("Or set num_workers=0 in the DataLoader."),
        ),
        evidence={"usable": usable, "ranks": ranks},
    )


# Below this a rank's Python, torch and CUDA context alone are tight (import torch with CUDA maps about 2 GiB a rank).
_MEMORY_PER_RANK_BYTES = 4 * GIB


@check(Severity.WARNING, source="https://github.com/huggingface/accelerate/issues?q=exitcode+-9")
def memory_small_for_ranks(
    system: System, gpus: tuple[Gpu, ...], visible: Visible, container: Container, slurm: Slurm
) -> Answer:
    """There is little host memory for the ranks of this machine.

    Why: the kernel ends a rank that goes over it with SIGKILL: exit code -9 and no traceback.
    More: Each rank loads torch, its copy of the model and its loader workers. What counts is the limit of the cgroup
    and Slurm's --mem, not what the machine has.

    Fix: ask for more.
    More: Or start fewer loader workers.
    """
    ranks = len(visible.gpus)
    if not gpus or not ranks:
        return Skip("no visible GPU")
    if not system.memory_total_bytes:
        return Skip("/proc/meminfo cannot be read")
    rooms = {"the machine": system.memory_available_bytes}
    if system.memory_limit_bytes is not None:
        rooms["the cgroup"] = max(0, system.memory_limit_bytes - (system.memory_limit_used_bytes or 0))
    if slurm.memory_bytes is not None and slurm.on_allocated_node is not False:
        rooms["Slurm's --mem"] = slurm.memory_bytes
    which = min(rooms, key=lambda name: rooms[name])
    if rooms[which] >= ranks * _MEMORY_PER_RANK_BYTES:
        return Ok(f"{gib(rooms[which])} for {counted(ranks, 'rank')}, by {which}")
    return Problem(
        f"{gib(rooms[which])} of host memory for {counted(ranks, 'rank')}, by {which}",
        fix=Fix(commands=asking_for_memory(container, slurm))
        if which != "the machine"
        else Fix("See who holds the memory, or start fewer ranks.", ("ps -eo rss,pid,user,comm --sort=-rss | head",)),
        evidence={
            "available_bytes": system.memory_available_bytes,
            "limit_bytes": system.memory_limit_bytes,
            "limit_used_bytes": system.memory_limit_used_bytes,
            "slurm_bytes": slurm.memory_bytes,
        },
    )


@check(Severity.INFO, source="https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files")
def processes_killed_for_memory(system: System) -> Answer:
    """The kernel has killed processes of this session for lack of memory.

    Why: a rank or loader worker that ended with exit code -9 was most likely one of them.
    More: The cgroup counts each process that was killed at its memory limit. If a run ended with exit code -9 and no
    traceback, this is why.

    Fix: ask for more memory, or let ranks load the model one after the other.
    """
    if system.oom_kills is None:
        return Skip(
            "the cgroup of this shell does not count them; an administrator may: dmesg | grep -i 'killed process'"
        )
    if not system.oom_kills:
        return Ok("none since this session or container began")
    return Problem(
        f"{counted(system.oom_kills, 'process', 'processes')} killed for lack of memory in this session",
        evidence={"oom_kills": system.oom_kills, "limit_bytes": system.memory_limit_bytes},
    )
