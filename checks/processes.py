"""Do other processes use the GPUs, and what did earlier runs leave behind?"""

from __future__ import annotations

from collections.abc import Iterable

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import BATON_TORCH, version_numbers
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

from ._gpus import gpu_subjects, use_only
from ._kernel_log_lines import format_duration
from ._wording import GIB, gib, gpu_list
from .storage._folders import NETWORK

# A GPU whose compute processes use at least this much is not free for a training rank; an idle notebook's CUDA context
# uses about half of it (0.3-0.6 GB, ml-engineering "anatomy of model's memory").
_BUSY_BYTES = GIB
# Used memory that no process accounts for, above what driver and display reserve on an idle GPU.
_ORPHANED_BYTES = 2 * GIB
# A segment is created before it is mapped, and every process is briefly a zombie: younger ones do not count.
_SETTLED_S = 60.0
# Leftovers that use this share of /dev/shm, or this much memory, are reported.
_SHM_SHARE, _SHM_BYTES = 0.1, GIB
# A lock this old without a running compiler belongs to a killed build; building one extension takes minutes.
_LOCK_S = 600.0
# On a network file system another node may be building, whose compiler is not visible here.
_LOCK_ON_SERVER_S = 3600.0


def _compute_processes(gpu: Gpu) -> list[GpuProcess]:
    """Return the processes that compute on a GPU; a CUDA context alone is smaller."""
    processes = (process for process in gpu.processes or () if process.kind == "compute")
    return [process for process in processes if process.memory_bytes is None or process.memory_bytes >= _BUSY_BYTES]


@check(
    Severity.WARNING,
    source="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",
    stops_launch="busy_gpus",
)
def gpu_busy(gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """Another process uses a GPU that the run would use.

    Why: the rank on this GPU runs out of memory, or it shares the GPU and every step waits for it.

    Fix: use the free GPUs, or wait.
    """
    known = [gpu for gpu in gpus if gpu.index in visible.gpus and gpu.processes is not None]
    held = {gpu.index: _compute_processes(gpu) for gpu in known}
    busy = [gpu for gpu in known if held[gpu.index]]
    if busy:
        first = busy[0]
        process = held[first.index][0]
        who = "your" if process.mine else f"{process.user}'s" if process.user else "another user's"
        taken = {gpu.index for gpu in gpus if gpu in busy or gpu.lost}
        free = [index for index in visible.gpus if index not in taken]
        total = sum(p.memory_bytes or 0 for p in held[first.index])
        where = "" if len(busy) == 1 else f" on GPU {first.index}"
        amount = (
            f" ({gib(total)} of {gib(first.memory_total_bytes)}{where})" if total and first.memory_total_bytes else ""
        )
        fixes = [Fix("Use the free GPUs.", use_only(free, gpus))] if free else []
        if process.mine:
            fixes.append(Fix("It is your process. Stop it if it is a leftover.", (shell("kill {:pid}", process.pid),)))
        return Problem(
            f"{gpu_list(g.index for g in busy)} in use{amount}",
            f"GPU {first.index} is used by {who} process {process.name or ''} (pid {process.pid}). A rank on it would "
            "run out of memory, or share the GPU and slow down the others.".replace("  ", " "),
            tuple(fixes) or Fix("Wait until the GPUs are free.", ("nvidia-smi",)),
            {f"gpu_{gpu.index}_processes": len(held[gpu.index]) for gpu in busy},
            gpu_subjects(busy),
        )
    if not known:
        return Skip("no visible GPU lists its processes")
    return Ok(f"no other process on {len(known)} of {len(visible.gpus)} visible GPUs")


@check(Severity.WARNING, source="https://github.com/NVIDIA/nvidia-docker/issues/179", because_of=("gpu_busy",))
def gpu_memory_without_process(gpus: tuple[Gpu, ...], visible: Visible, container: Container) -> Answer:
    """GPU memory is in use, but no process accounts for it.

    Why: the memory belongs to a process that is not visible from here, or that died without freeing it.
    More: That may be a process of another user or in another container. A rank on this GPU runs out of memory.

    Fix: find out which process has the device open.
    More: A reset of the GPU frees the memory.
    """
    if container.kind or container.wsl:
        return Skip("processes outside this container are not visible")
    unaccounted: dict[int, int] = {}
    known = 0
    for gpu in gpus:
        if gpu.index not in visible.gpus or gpu.processes is None or gpu.memory_used_bytes is None:
            continue
        if gpu.c2c_enabled or any(process.memory_bytes is None for process in gpu.processes):
            continue  # on a Grace board the kernel keeps pages in the GPU's memory
        known += 1
        held = sum(process.memory_bytes or 0 for process in gpu.processes) + (gpu.memory_reserved_bytes or 0)
        rest = gpu.memory_used_bytes - held
        if rest > _ORPHANED_BYTES:
            unaccounted[gpu.index] = rest
    if unaccounted:
        return Problem(
            f"{gpu_list(unaccounted)}: {gib(next(iter(unaccounted.values())))} in use without a process",
            fix=Fix(commands=tuple(shell("sudo fuser -v /dev/nvidia{:number}", i) for i in unaccounted), who="admin"),
            evidence={f"gpu_{index}_unaccounted_bytes": rest for index, rest in unaccounted.items()},
            subjects=tuple(f"GPU {index}" for index in unaccounted),
        )
    return (
        Ok(f"memory of {counted(known, 'GPU')} is accounted for") if known else Skip("not reported by any visible GPU")
    )


def _processes_of_kind(leftovers: Leftovers, kind: str) -> list[LeftProcess]:
    return [process for process in leftovers.processes if process.kind == kind]


def _pids(processes: Iterable[LeftProcess]) -> str:
    return listed(process.pid for process in processes)


def _port_note(ranks: Iterable[LeftProcess]) -> str:
    ports = sorted({rank.port for rank in ranks if rank.port})
    return f", port {listed(ports)}" if ports else ""


def _age(processes: Iterable[LeftProcess]) -> str:
    ages = [process.age_s for process in processes if process.age_s is not None]
    return f", started {format_duration(max(ages))} ago" if ages else ""


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/issues/126510")
def rank_orphaned(leftovers: Leftovers) -> Answer:
    """Ranks of one of your earlier runs are still running without their launcher.

    Why: the launcher was killed (kill -9, a closed terminal) before it could stop them, or they hung in NCCL. They keep
    GPU memory and the rendezvous port, so the next run fails with out of memory or "address already in use".

    Fix: check what they are, then stop them.
    """
    ranks = _processes_of_kind(leftovers, "rank")
    orphans = [rank for rank in ranks if rank.orphan]
    if not orphans:
        return Ok(f"{counted(len(ranks), 'rank')} of yours, none without a launcher")
    pids = [str(rank.pid) for rank in orphans]
    return Problem(
        f"{counted(len(orphans), 'rank')} of an earlier run without a launcher{_age(orphans)}{_port_note(orphans)}",
        f"GPU memory and port stay in use until they exit (pid {_pids(orphans)}).",
        Fix(commands=(shell("ps -o pid,ppid,lstart,args -p {:numbers}", ",".join(pids)), shell("kill {:pid}", pids))),
        {f"pid_{rank.pid}": rank.name for rank in orphans},
        tuple(f"pid {pid}" for pid in pids),
    )


@check(Severity.INFO, source="https://pytorch.org/docs/stable/elastic/agent.html")
def rank_of_another_run(leftovers: Leftovers) -> Answer:
    """Another run of yours is active on this machine.

    Why: its ranks share CPUs, memory and perhaps the rendezvous port with the run that you are about to start. If it
    should have finished, it hangs.

    Fix: if it should have finished, stop its launcher.
    More: Otherwise, no action is needed.
    """
    ranks = [rank for rank in _processes_of_kind(leftovers, "rank") if not rank.orphan]
    if not ranks:
        return Ok("no other run of yours here")
    return Problem(
        f"{counted(len(ranks), 'rank')} of another run of yours on this machine{_age(ranks)}{_port_note(ranks)}",
        f"They belong to a run that is still active (pid {_pids(ranks)}).",
        Fix(commands=(shell("ps -o pid,ppid,lstart,args -p {:pid}", ranks[0].pid),)),
        {f"pid_{rank.pid}": rank.name for rank in ranks},
        tuple(f"pid {rank.pid}" for rank in ranks),
    )


@check(Severity.INFO, source="https://man7.org/linux/man-pages/man2/wait.2.html", because_of=("rank_orphaned",))
def rank_zombie(leftovers: Leftovers) -> Answer:
    """Some of your Python processes are zombies.

    Why: they exited, but their parent process has not collected their exit status. It may hang.
    More: The parent is often a launcher that hangs. Zombies use no memory, unless one of their threads is stuck in the
    driver.

    Fix: find the parent process, and stop it.
    """
    dead = [p for p in _processes_of_kind(leftovers, "zombie") if p.age_s is None or p.age_s >= _SETTLED_S]
    if not dead:
        return Ok("no zombie processes of yours")
    return Problem(
        f"{counted(len(dead), 'zombie process', 'zombie processes')} of yours (pid {_pids(dead)})",
        fix=Fix(commands=(shell("ps -o ppid= -p {:pid}", dead[0].pid),)),
        evidence={f"pid_{process.pid}": process.name for process in dead},
    )


@check(Severity.INFO, source="https://docs.nvidia.com/deploy/mps/index.html")
def mps_running(leftovers: Leftovers) -> Answer:
    """NVIDIA's Multi-Process Service (MPS) runs on this machine.

    Why: ranks become clients of its server: a fault of one stops all, and device indices are mapped twice.
    More: Every CUDA program that finds MPS's control daemon shares one server with all others. CUDA_VISIBLE_DEVICES is
    applied twice, so a rank may get a different GPU than it selected. With one rank per GPU, MPS has no benefit.

    Fix: stop it, if no one needs it.
    """
    mps = _processes_of_kind(leftovers, "mps")
    if not mps:
        return Ok("MPS does not run here") if leftovers.sees_all_processes else Skip("not all processes are visible")
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


@check(Severity.WARNING, source="https://docs.ray.io/en/latest/ray-core/scheduling/accelerators.html")
def ray_misses_gpus(leftovers: Leftovers, gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """The Ray node on this machine offers fewer GPUs than are visible here.

    Why: Ray counts the GPUs when its node starts. Tasks that ask for more wait forever, or stop with "Total available
    GPUs 0".
    More: It was started with a smaller --num-gpus, with CUDA_VISIBLE_DEVICES set to fewer GPUs, in a container without
    them, or before the driver worked.

    Fix: start the Ray node again, with all GPUs.
    """
    nodes = _processes_of_kind(leftovers, "ray")
    if not nodes:
        return Ok("Ray does not run here") if leftovers.sees_all_processes else Skip("not all processes are visible")
    offered = [node.ray_gpus for node in nodes if node.ray_gpus is not None]
    if len(offered) < len(nodes):
        return Skip("the command line of Ray's node cannot be read")
    if any(gpu.mig_mode for gpu in gpus) or visible.mig:
        return Skip("Ray counts MIG instances, not GPUs")
    many = sum(offered)
    if many >= len(visible.gpus):
        return Ok(f"Ray offers {many:g} GPUs")
    mine = all(node.mine for node in nodes)
    again = (
        Fix(
            "This ends the Ray jobs on this node. If it joined a cluster, give --address instead of --head.",
            ("ray status", "ray stop", shell("ray start --head --num-gpus={:number}", len(visible.gpus))),
        )
        if mine
        else Fix("Ask its owner.", (shell("ps -o pid,user,lstart -p {:pid}", nodes[0].pid), "ray status"), who="admin")
    )
    return Problem(
        f"Ray offers {many:g} of {counted(len(visible.gpus), 'visible GPU')} (pid {_pids(nodes)})",
        fix=again,
        evidence={"ray_gpus": many, "visible_gpus": len(visible.gpus)},
    )


@check(Severity.INFO, source="https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/feature-overview.html")
def profiler_running(leftovers: Leftovers) -> Answer:
    """A profiler runs on this machine.

    Why: it slows the GPUs that it profiles, and occupies their performance counters.
    More: Another profiler, or DCGM's profiling, fails with "resource busy". Timings measured meanwhile are unreliable.

    Fix: wait until it has finished.
    """
    profilers = _processes_of_kind(leftovers, "profiler")
    if not profilers:
        watch = ", ".join(sorted({process.name for process in _processes_of_kind(leftovers, "dcgm")}))
        if leftovers.sees_all_processes:
            return Ok(f"no profiler here{f' (only {watch}, which is fine)' if watch else ''}")
        return Skip("not all processes are visible")
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
    """Shared memory of killed runs fills /dev/shm.

    Why: no process uses these segments, but they stay until they are removed or the machine reboots.
    More: NCCL, torch and CUDA remove their segments when they exit, but a killed rank cannot. The leftover segments use
    memory, and the next run fails with "Error while creating shared memory segment" or a bus error.

    Fix: remove them.
    """
    files = [file for file in leftovers.files if file.kind == "shm"]
    dead = [file for file in files if file.owner_alive is False and file.age_s >= _SETTLED_S]
    unknown = [file for file in files if file.owner_alive is None]
    size, total = _total(dead), system.shm_total_bytes
    if _is_significant(size, total):
        biggest = sorted(dead, key=lambda file: -file.size_bytes)
        of = f" of {gib(total)}" if total else ""
        return Problem(
            f"{gib(size)}{of} in /dev/shm left over from killed runs ({counted(len(dead), 'file')})",
            fix=Fix(commands=("ls -la /dev/shm", shell("rm {:path}", [f.path for f in biggest[:8]]))),
            evidence={
                "files": len(dead),
                "bytes": size,
                "biggest": biggest[0].path,
                "oldest_s": max(f.age_s for f in dead),
            },
            subjects=tuple(file.path for file in biggest[:8]),
        )
    if _is_significant(_total(unknown), total):
        return Skip(f"{gib(_total(unknown))} of yours in /dev/shm, but the owning processes are not visible from here")
    return Ok(
        f"{counted(len(dead), 'leftover file')} ({gib(size)}) in /dev/shm, {len(files) - len(dead)} in use or unknown"
    )


def _total(files: Iterable[LeftFile]) -> int:
    return sum(file.size_bytes for file in files)


def _is_significant(size: int, total: int | None) -> bool:
    return size >= _SHM_BYTES or (total is not None and 0 < total * _SHM_SHARE <= size)


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/issues/189245")
def extension_lock_stale(leftovers: Leftovers, pytorch: Pytorch, storage: Storage) -> Answer:
    """A killed build of a torch extension left its lock file behind.

    Why: every rank that loads this extension waits forever for the lock, so all ranks hang at start.
    More: torch's builder (used by DeepSpeed's ops and every cpp_extension.load) waits indefinitely until the file is
    removed, without any output after "Using ... as PyTorch extensions root".

    Fix: remove the locks.
    More: Or the whole directory of that extension.
    """
    if not leftovers.locks_searched:
        return Skip("the directory of torch's extensions could not be read")
    locks = [file for file in leftovers.files if file.kind == "lock"]
    folder = storage.role("extensions")
    patience = _LOCK_ON_SERVER_S if folder and folder.filesystem in NETWORK else _LOCK_S
    stale = [lock for lock in locks if lock.age_s >= patience and not lock.owner_alive]
    if not stale:
        return Ok(f"{counted(len(locks), 'lock')} of running builds" if locks else "no build lock")
    version = version_numbers(pytorch.version)[:2]
    if version > BATON_TORCH:
        return Skip(f"torch {pytorch.version} may keep this file without waiting for it")
    oldest = max(stale, key=lambda lock: lock.age_s)
    return Problem(
        f"{counted(len(stale), 'stale lock')} of a torch extension build, {format_duration(oldest.age_s)} old, "
        "no compiler runs",
        fix=Fix(commands=tuple(shell("rm {:path}", lock.path) for lock in stale[:8])),
        evidence={"oldest": oldest.path, "age_s": oldest.age_s, "torch": pytorch.version},
        subjects=tuple(lock.path for lock in stale[:8]),
    )
