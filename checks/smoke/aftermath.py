"""Did the run leave anything behind?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Gpu, Ranks
from mgpu.text import counted, listed

from .._wording import MIB, gib
from ._causes import CAUSES, LOST

_SOCKET = "https://man7.org/linux/man-pages/man7/socket.7.html"
_FAILED = (*LOST, *CAUSES, "rank_failed", "ranks_hang", "rank_ended_early")
# The driver's own memory comes and goes with its last user; a leftover CUDA context takes 200-500 MiB
# (measured from 2080 Ti to H100: https://discuss.pytorch.org/t/how-to-reduce-cuda-context-overhead/54455).
_CONTEXT_BYTES = 160 * MIB


@check(Severity.ERROR, source="https://pytorch.org/docs/stable/elastic/agent.html")
def ranks_left_running(ranks: Ranks) -> Answer:
    """Processes of the smoke test are still running after it was stopped.

    Why: They survived SIGKILL, so they hang in the kernel.
    More: A device or a file system does not respond. They hold GPU memory and ports, which the next launch needs.

    Fix: Try to kill them again; if that fails, reboot.
    """
    if not ranks.left_running:
        return Ok("no process was left behind")
    pids = " ".join(map(str, ranks.left_running))
    number = next((rank.rank for rank in ranks.ranks if rank.pid in ranks.left_running), None)
    return Problem(
        f"{counted(len(ranks.left_running), 'process', 'processes')} could not be killed: {pids}"
        + (f" (rank {number})" if number is not None else ""),
        fix=commands(shell("kill -9 {:pid}", ranks.left_running), "sudo reboot", who="admin"),
        evidence={"rank": number, "rung": "shutdown", "pids": pids},
    )


@check(Severity.WARNING, source="https://pytorch.org/docs/stable/elastic/agent.html", because_of=_FAILED)
def processes_outlive_ranks(ranks: Ranks) -> Answer:
    """Processes started by a rank were still running after the launcher exited.

    Why: The ranks started them, but they did not exit with the ranks.
    More: Loader workers and helpers normally exit with their rank. Otherwise they hold memory and the GPU, and the
    launcher does not track them. mgpu stopped them.

    Fix: Check for such processes after a training run.
    """
    if ranks.ended != "finished":
        return Skip("the launcher did not exit by itself")
    if not ranks.outlived:
        return Ok("every process exited with its rank")
    pids = " ".join(map(str, ranks.outlived))
    return Problem(
        f"{counted(len(ranks.outlived), 'process', 'processes')} had to be stopped after the launcher exited: {pids}",
        fix=commands("ps -ef --forest"),
        evidence={"rank": None, "rung": "shutdown", "pids": pids},
    )


@check(Severity.WARNING, source="https://man7.org/linux/man-pages/man7/shm_overview.7.html")
def run_leaves_files(ranks: Ranks) -> Answer:
    """The smoke test left shared memory or temporary files behind.

    Why: No process uses them anymore.
    More: /dev/shm is memory, and files in it remain when their processes exit. If the tenth run of a day fails, the
    reason is often what nine runs left there. mgpu removes the files whose name contains the process of a rank.

    Fix: Remove them.
    """
    removed = ranks.removed_files
    if ranks.left_files:
        first = ranks.left_files[0]
        return Problem(
            f"{counted(len(ranks.left_files), 'file')} of the run {'is' if len(ranks.left_files) == 1 else 'are'} "
            f"left: {first}{' …' if len(ranks.left_files) > 1 else ''}",
            fix=commands(shell("rm -rf {:path}", ranks.left_files)),
            evidence={"rank": None, "rung": "shutdown", "files": " ".join(ranks.left_files)},
        )
    if not removed:
        return Ok("no file was left behind")
    first = next(iter(removed))
    text = f"{counted(len(removed), 'file')} left by {listed(dict.fromkeys(removed.values()))}"
    if ranks.ended != "finished":
        return Ok(f"{text}, which did not run to its end; removed by mgpu")
    return Problem(
        f"{text}: {first}{' …' if len(removed) > 1 else ''} (removed by mgpu)",
        "The ranks ran to their end, but did not remove them. A training run leaves such files each time.",
        Fix("Check for more of them after a training run.", (shell("ls -l {:path}", first.rpartition("/")[0]),)),
        {"rank": ranks.removed_by.get(first), "rung": "shutdown", "files": " ".join(removed)},
    )


@check(Severity.WARNING, source=_SOCKET, because_of=("ranks_left_running",))
def run_leaves_port_taken(ranks: Ranks) -> Answer:
    """The rendezvous port is still in use after the run.

    Why: It was free before the run, which used it for the rendezvous.
    More: The process that listens there was started by the run, or started in the meantime. The next launch with
    this port fails.

    Fix: Find the process that listens there.
    """
    if ranks.port is None:
        return Skip("the run used no rendezvous port")
    if not ranks.left_port:
        return Ok(f"the run did not leave port {ranks.port} in use")
    return Problem(
        f"port {ranks.port} is still in use after the run",
        fix=commands(shell("ss -ltnp 'sport = :{:number}'", ranks.port)),
        evidence={"rank": None, "rung": "shutdown", "port": ranks.port},
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/deploy/nvml-api/", because_of=("ranks_left_running",))
def run_keeps_gpu_memory(ranks: Ranks, gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU has less free memory after the run than before it.

    Why: The memory was not freed within 3 s after the last rank exited.
    More: The driver frees a process's memory when it exits. Memory that remains is held by a leftover process, by
    another one that started in the meantime, or by a driver error that only a reset fixes.

    Fix: Find the process that uses it.
    """
    if ranks.cpu or not gpus:
        return Skip("no GPU was used")
    if ranks.memory_kept is None:
        return Skip("the GPU memory after the run is unknown")
    kept = {uuid: size for uuid, size in ranks.memory_kept.items() if size >= _CONTEXT_BYTES}
    if not kept:
        return Ok(f"memory freed on {counted(len(gpus), 'GPU')}")
    numbers = {gpu.uuid: gpu.index for gpu in gpus}
    uuid, size = max(kept.items(), key=lambda item: item[1])
    return Problem(
        f"GPU {numbers.get(uuid, uuid)} has {gib(size)} less free memory than before the run",
        fix=commands("nvidia-smi"),
        evidence={
            "rank": next((r.rank for r in ranks.ranks if r.gpu_uuid == uuid), None),
            "rung": "shutdown",
            "gpus": listed([numbers.get(u, u) for u in kept]),
            "bytes": size,
        },
        subjects=tuple(f"GPU {numbers.get(u, u)}" for u in kept),
    )
