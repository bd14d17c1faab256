"""Is somebody else on the GPUs, and what did earlier runs leave?"""

from __future__ import annotations

from collections.abc import Iterable

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import BATON_TORCH, numbers
from mgpu.snapshot import (
    Container,
    Gpu,
    GpuProcess,
    LeftFile,
    Leftovers,
    LeftProcess,
    Pytorch,
    Storage,
    System,
    Visible,
)
from mgpu.text import counted, listed

from ._gpus import names_of, use_only
from ._kernel_log_lines import span
from ._wording import GIB, gib, gpu_list
from .storage._folders import NETWORK

# A GPU whose compute processes hold at least this much is not free for a training rank; a CUDA context of an idle
# notebook takes about half of it (0.3-0.6 GB, ml-engineering "anatomy of model's memory").
_BUSY_BYTES = GIB
# Used memory that no process accounts for, above what driver and display reserve on an idle GPU.
_ORPHANED_BYTES = 2 * GIB
# A segment is made before it is mapped, and every process is a zombie for a moment: what is younger does not count.
_SETTLED_S = 60.0
# Leftovers that take this share of /dev/shm, or this much memory, are worth a word.
_SHM_SHARE, _SHM_BYTES = 0.1, GIB
# A lock this old with no compiler running belongs to a build that was killed; builds of one extension take minutes.
_LOCK_S = 600.0
# On a file server it may be another node that builds, whose compiler is not seen here.
_LOCK_ON_SERVER_S = 3600.0


def _computing(gpu: Gpu) -> list[GpuProcess]:
    """The processes that compute on a GPU; a context alone is small."""
    processes = (process for process in gpu.processes or () if process.kind == "compute")
    return [process for process in processes if process.memory_bytes is None or process.memory_bytes >= _BUSY_BYTES]


@check(
    Severity.WARNING,
    source="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",
    stops_launch="busy_gpus",
)
def gpu_busy(gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """Another process computes on a GPU that the run would use.

    Why: the rank there gets less memory than the others and stops with out-of-memory, or the GPU is shared and every
    step waits for it.

    Fix: use the free GPUs, or wait.
    """
    known = [gpu for gpu in gpus if gpu.index in visible.gpus and gpu.processes is not None]
    held = {gpu.index: _computing(gpu) for gpu in known}
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
            fixes.append(Fix("It is yours: end it if it is a leftover.", (shell("kill {:pid}", process.pid),)))
        return Problem(
            f"{gpu_list(g.index for g in busy)} in use{amount}",
            f"On GPU {first.index} {who} process {process.name or ''} (pid {process.pid}) computes. A rank there would "
            "run out of memory, or share the GPU and hold up the others.".replace("  ", " "),
            tuple(fixes) or Fix("Wait until the GPUs are free.", ("nvidia-smi",)),
            {f"gpu_{gpu.index}_processes": len(held[gpu.index]) for gpu in busy},
            names_of(busy),
        )
    if not known:
        return Skip("no visible GPU lists its processes")
    return Ok(f"nobody computes on {len(known)} of {len(visible.gpus)} visible GPUs")


@check(Severity.WARNING, source="https://github.com/NVIDIA/nvidia-docker/issues/179", because_of=("gpu_busy",))
def gpu_memory_without_process(gpus: tuple[Gpu, ...], visible: Visible, container: Container) -> Answer:
    """GPU memory is in use, and no process holds it.

    Why: the memory belongs to a process that cannot be seen from here, or that died without giving it back.
    More: A process that died badly, or one in another container or of another user, keeps the memory; a rank there
    stops with out-of-memory.

    Fix: see who has the device open.
    More: A reset frees it for certain.
    """
    if container.kind or container.wsl:
        return Skip("processes outside this container cannot be seen")
    unaccounted: dict[int, int] = {}
    known = 0
    for gpu in gpus:
        if gpu.index not in visible.gpus or gpu.processes is None or gpu.memory_used_bytes is None:
            continue
        if gpu.c2c_enabled or any(process.memory_bytes is None for process in gpu.processes):
            continue  # on a Grace board the kernel itself keeps pages in the GPU's memory
        known += 1
        held = sum(process.memory_bytes or 0 for process in gpu.processes) + (gpu.memory_reserved_bytes or 0)
        rest = gpu.memory_used_bytes - held
        if rest > _ORPHANED_BYTES:
            unaccounted[gpu.index] = rest
    if unaccounted:
        return Problem(
            f"{gpu_list(unaccounted)}: {gib(next(iter(unaccounted.values())))} in use by no process",
            fix=Fix(commands=tuple(shell("sudo fuser -v /dev/nvidia{:number}", i) for i in unaccounted), who="admin"),
            evidence={f"gpu_{index}_unaccounted_bytes": rest for index, rest in unaccounted.items()},
            subjects=tuple(f"GPU {index}" for index in unaccounted),
        )
    return Ok(f"memory of {counted(known, 'GPU')} is accounted for") if known else Skip("no visible GPU tells")


def _kind(leftovers: Leftovers, kind: str) -> list[LeftProcess]:
    return [process for process in leftovers.processes if process.kind == kind]


def _pids(processes: Iterable[LeftProcess]) -> str:
    return listed(process.pid for process in processes)


def _ports(ranks: Iterable[LeftProcess]) -> str:
    ports = sorted({rank.port for rank in ranks if rank.port})
    return f", port {listed(ports)}" if ports else ""


def _oldest(processes: Iterable[LeftProcess]) -> str:
    ages = [process.age_s for process in processes if process.age_s is not None]
    return f", started {span(max(ages))} ago" if ages else ""


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/issues/126510")
def rank_orphaned(leftovers: Leftovers) -> Answer:
    """Ranks of an earlier run of yours are alive although their launcher is gone.

    Why: the launcher was killed (kill -9, a closed terminal) and could not end them, or they hung in NCCL. They hold
    GPU memory and the rendezvous port: the next run stops with out-of-memory, or "address already in use".

    Fix: see that they are what you think, then end them.
    """
    ranks = _kind(leftovers, "rank")
    orphans = [rank for rank in ranks if rank.orphan]
    if not orphans:
        return Ok(f"{counted(len(ranks), 'rank')} of yours, none without a launcher")
    pids = [str(rank.pid) for rank in orphans]
    return Problem(
        f"{counted(len(orphans), 'rank')} of an earlier run without a launcher{_oldest(orphans)}{_ports(orphans)}",
        f"Nobody waits for them any more (pid {_pids(orphans)}); GPU memory and port stay taken until they end.",
        Fix(commands=(shell("ps -o pid,ppid,lstart,args -p {:numbers}", ",".join(pids)), shell("kill {:pid}", pids))),
        {f"pid_{rank.pid}": rank.name for rank in orphans},
        tuple(f"pid {pid}" for pid in pids),
    )


@check(Severity.INFO, source="https://pytorch.org/docs/stable/elastic/agent.html")
def rank_of_another_run(leftovers: Leftovers) -> Answer:
    """Another run of yours is alive on this machine.

    Why: its ranks share CPUs, memory and perhaps the rendezvous port with the run you are about to start; if it was
    meant to be over, it hangs.

    Fix: if it should be over, end its launcher.
    More: Nothing, if you know of it.
    """
    ranks = [rank for rank in _kind(leftovers, "rank") if not rank.orphan]
    if not ranks:
        return Ok("no other run of yours here")
    return Problem(
        f"{counted(len(ranks), 'rank')} of another run of yours on this machine{_oldest(ranks)}{_ports(ranks)}",
        f"They belong to a run that is alive (pid {_pids(ranks)}).",
        Fix(commands=(shell("ps -o pid,ppid,lstart,args -p {:pid}", ranks[0].pid),)),
        {f"pid_{rank.pid}": rank.name for rank in ranks},
        tuple(f"pid {rank.pid}" for rank in ranks),
    )


@check(Severity.INFO, source="https://man7.org/linux/man-pages/man2/wait.2.html", because_of=("rank_orphaned",))
def rank_zombie(leftovers: Leftovers) -> Answer:
    """Python processes of yours have ended, and nobody took note.

    Why: the process that started them does not take note of their end; it may hang.
    More: Whoever started them lives and does not wait for them: often a launcher that hangs. They hold no memory,
    unless a thread of theirs is stuck in the driver.

    Fix: find who started them, and end that.
    """
    dead = [p for p in _kind(leftovers, "zombie") if p.age_s is None or p.age_s >= _SETTLED_S]
    if not dead:
        return Ok("no zombie of yours")
    return Problem(
        f"{counted(len(dead), 'zombie')} of yours (pid {_pids(dead)})",
        fix=Fix(commands=(shell("ps -o ppid= -p {:pid}", dead[0].pid),)),
        evidence={f"pid_{process.pid}": process.name for process in dead},
    )


@check(Severity.INFO, source="https://docs.nvidia.com/deploy/mps/index.html")
def mps_running(leftovers: Leftovers) -> Answer:
    """NVIDIA's Multi-Process Service runs on this machine.

    Why: ranks become clients of its server: they share faults, and device numbers are mapped twice.
    More: Every CUDA program that finds its control daemon shares one server with all others: a fault of one ends all,
    and CUDA_VISIBLE_DEVICES is applied twice, so a rank may get another GPU than it names. One rank a GPU gains nothing
    by it.

    Fix: stop it, if nobody needs it.
    """
    mps = _kind(leftovers, "mps")
    if not mps:
        return Ok("MPS does not run here") if leftovers.sees_all_processes else Skip("not all processes can be seen")
    mine = any(process.mine for process in mps)
    return Problem(
        f"MPS runs here (pid {_pids(mps)})",
        fix=Fix(
            commands=("echo quit | nvidia-cuda-mps-control",)
            if mine
            else ("echo quit | sudo nvidia-cuda-mps-control",),
            who="you" if mine else "admin",
        ),
        evidence={f"pid_{process.pid}": process.name for process in mps},
    )


@check(Severity.INFO, source="https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/feature-overview.html")
def profiler_running(leftovers: Leftovers) -> Answer:
    """A profiler runs on this machine.

    Why: what it watches is slower, and its counters are taken.
    More: It slows the GPUs it watches, and holds their counters: another profiler, or DCGM's profiling, gets "resource
    busy". Timings taken meanwhile are not worth much.

    Fix: wait until it is done.
    """
    profilers = _kind(leftovers, "profiler")
    if not profilers:
        watch = ", ".join(sorted({process.name for process in _kind(leftovers, "dcgm")}))
        if leftovers.sees_all_processes:
            return Ok(f"no profiler here{f'; {watch} watches the GPUs, as usual' if watch else ''}")
        return Skip("not all processes can be seen")
    return Problem(
        f"a profiler runs here: {listed(dict.fromkeys(p.name for p in profilers))} (pid {_pids(profilers)})",
        fix=Fix(commands=(shell("ps -o pid,user,lstart,args -p {:pid}", profilers[0].pid),)),
        evidence={f"pid_{process.pid}": process.name for process in profilers},
    )


@check(
    Severity.WARNING,
    source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#shared-memory",
    because_of=("rank_orphaned",),
)
def shm_holds_leftovers(leftovers: Leftovers, system: System) -> Answer:
    """Shared memory of runs that were killed fills /dev/shm.

    Why: no process has them mapped; they stay until they are removed, or the machine restarts.
    More: NCCL, torch and CUDA remove their segments when they end; a killed rank cannot. They take memory until
    somebody removes them, and the next run stops with "Error while creating shared memory segment" or a bus error.

    Fix: remove them.
    """
    files = [file for file in leftovers.files if file.kind == "shm"]
    dead = [file for file in files if file.owner_alive is False and file.age_s >= _SETTLED_S]
    unknown = [file for file in files if file.owner_alive is None]
    size, total = _size(dead), system.shm_total_bytes
    if _matters(size, total):
        biggest = sorted(dead, key=lambda file: -file.size_bytes)
        of = f" of {gib(total)}" if total else ""
        return Problem(
            f"/dev/shm holds {gib(size)}{of} that killed runs left ({counted(len(dead), 'file')})",
            fix=Fix(commands=("ls -la /dev/shm", shell("rm {:path}", [f.path for f in biggest[:8]]))),
            evidence={
                "files": len(dead),
                "bytes": size,
                "biggest": biggest[0].path,
                "oldest_s": max(f.age_s for f in dead),
            },
            subjects=tuple(file.path for file in biggest[:8]),
        )
    if _matters(_size(unknown), total):
        return Skip(f"{gib(_size(unknown))} of yours in /dev/shm, whose owners cannot be seen from here")
    return Ok(
        f"{counted(len(dead), 'leftover')} of {gib(size)} in /dev/shm, {len(files) - len(dead)} in use or not known"
    )


def _size(files: Iterable[LeftFile]) -> int:
    return sum(file.size_bytes for file in files)


def _matters(size: int, total: int | None) -> bool:
    return size >= _SHM_BYTES or (total is not None and 0 < total * _SHM_SHARE <= size)


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/issues/189245")
def extension_lock_stale(leftovers: Leftovers, pytorch: Pytorch, storage: Storage) -> Answer:
    """A build of a torch extension was killed, and its lock file is still there.

    Why: whoever loads this extension waits until the file is gone, for ever: all ranks hang at start.
    More: torch's builder (DeepSpeed's ops and every cpp_extension.load use it) waits until the file is gone, for ever
    and without a word after "Using ... as PyTorch extensions root": all ranks hang at start.

    Fix: remove the locks.
    More: Or the whole folder of that extension.
    """
    if not leftovers.locks_searched:
        return Skip("the folder of torch's extensions could not be read")
    locks = [file for file in leftovers.files if file.kind == "lock"]
    folder = storage.role("extensions")
    patience = _LOCK_ON_SERVER_S if folder and folder.filesystem in NETWORK else _LOCK_S
    stale = [lock for lock in locks if lock.age_s >= patience and not lock.owner_alive]
    if not stale:
        return Ok(f"{counted(len(locks), 'lock')} of running builds" if locks else "no build holds a lock")
    version = numbers(pytorch.version)[:2]
    if version > BATON_TORCH:
        return Skip(f"torch {pytorch.version} may leave this file in place without waiting for it")
    oldest = max(stale, key=lambda lock: lock.age_s)
    return Problem(
        f"{counted(len(stale), 'lock')} of a torch extension's build, {span(oldest.age_s)} old, and no compiler runs",
        fix=Fix(commands=tuple(shell("rm {:path}", lock.path) for lock in stale[:8])),
        evidence={"oldest": oldest.path, "age_s": oldest.age_s, "torch": pytorch.version},
        subjects=tuple(lock.path for lock in stale[:8]),
    )
