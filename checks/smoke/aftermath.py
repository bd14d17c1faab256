"""Is anything left of the run?"""

from __future__ import annotations

from mgpu.check import Answer, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Gpu, Ranks
from mgpu.text import counted, listed

from .._wording import MIB, gib
from ._causes import CAUSES, LOST

_SOCKET = "https://man7.org/linux/man-pages/man7/socket.7.html"
_FAILED = (*LOST, *CAUSES, "rank_failed", "ranks_hang", "rank_ended_early")
# What a driver keeps for itself comes and goes with its last user; a CUDA context that was left takes 200-500 MiB
# (measured from 2080 Ti to H100: https://discuss.pytorch.org/t/how-to-reduce-cuda-context-overhead/54455).
_CONTEXT_BYTES = 160 * MIB


@check(Severity.ERROR, source="https://pytorch.org/docs/stable/elastic/agent.html")
def ranks_left_running(ranks: Ranks) -> Answer:
    """Processes of the smoke test are still there after it was ended.

    Why: They survived SIGKILL, so they hang in the kernel.
    More: A device or a file system does not answer. They hold GPU memory and ports; the next launch would meet them.

    Fix: Try again; then reboot.
    """
    if not ranks.left_running:
        return Ok("no process was left behind")
    pids = " ".join(map(str, ranks.left_running))
    number = next((rank.rank for rank in ranks.ranks if rank.pid in ranks.left_running), None)
    return Problem(
        f"{counted(len(ranks.left_running), 'process', 'processes')} could not be ended: {pids}"
        + (f" (rank {number})" if number is not None else ""),
        fix=commands(shell("kill -9 {:pid}", ranks.left_running), "sudo reboot", who="admin"),
        evidence={"rank": number, "rung": "shutdown", "pids": pids},
    )


@check(Severity.WARNING, source="https://pytorch.org/docs/stable/elastic/agent.html", because_of=_FAILED)
def processes_outlive_ranks(ranks: Ranks) -> Answer:
    """Processes that a rank has started were still there when the launcher had ended.

    Why: They were started by the ranks and did not end with them.
    More: Loader workers and helpers end with their rank; one that does not holds memory and the GPU, and the launcher
    does not know of it. mgpu has ended them.

    Fix: Look for the like after a training.
    """
    if ranks.ended != "finished":
        return Skip("the launcher did not end by itself")
    if not ranks.outlived:
        return Ok("every process ended with its rank")
    pids = " ".join(map(str, ranks.outlived))
    return Problem(
        f"{counted(len(ranks.outlived), 'process', 'processes')} had to be ended after the launcher: {pids}",
        fix=commands("ps -ef --forest"),
        evidence={"rank": None, "rung": "shutdown", "pids": pids},
    )


@check(Severity.WARNING, source="https://man7.org/linux/man-pages/man7/shm_overview.7.html")
def run_leaves_files(ranks: Ranks) -> Answer:
    """Shared memory or temporary files of the smoke test are still there, and could not be removed.

    Why: Nobody uses them any more.
    More: /dev/shm is memory, and files in it stay when the processes are gone; what fails at the tenth run of a day is
    often what nine runs have left.

    Fix: Remove them.
    """
    if not ranks.left_files:
        return Ok("no file was left behind")
    first = ranks.left_files[0]
    return Problem(
        f"{counted(len(ranks.left_files), 'file')} of the run {'is' if len(ranks.left_files) == 1 else 'are'} left: "
        f"{first}{' …' if len(ranks.left_files) > 1 else ''}",
        fix=commands(shell("rm -rf {:path}", ranks.left_files)),
        evidence={"rank": None, "rung": "shutdown", "files": " ".join(ranks.left_files)},
    )


@check(Severity.WARNING, source=_SOCKET, because_of=("ranks_left_running",))
def run_leaves_port_taken(ranks: Ranks) -> Answer:
    """The port at which the ranks met is still taken after the run.

    Why: It was free before, and the ranks met there.
    More: Whoever listens there now was started by the run, or came meanwhile. The next launch with this port fails.

    Fix: See who listens there.
    """
    if ranks.port is None:
        return Skip("the ranks met at no port")
    if not ranks.left_port:
        return Ok(f"port {ranks.port} is as it was")
    return Problem(
        f"port {ranks.port} is still taken after the run",
        fix=commands(shell("ss -ltnp 'sport = :{:number}'", ranks.port)),
        evidence={"rank": None, "rung": "shutdown", "port": ranks.port},
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/deploy/nvml-api/", because_of=("ranks_left_running",))
def run_keeps_gpu_memory(ranks: Ranks, gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU has less free memory after the run than before it.

    Why: It was given back by nobody within 3 s after the last rank had ended.
    More: The driver frees what a process held when it ends. What stays is held by a process that is left, by somebody
    who came meanwhile, or by a driver that lost count, which only a reset mends.

    Fix: See who uses it.
    """
    if ranks.cpu or not gpus:
        return Skip("no GPU took part")
    if ranks.memory_kept is None:
        return Skip("the GPUs' memory after the run is not known")
    kept = {uuid: size for uuid, size in ranks.memory_kept.items() if size >= _CONTEXT_BYTES}
    if not kept:
        return Ok(f"the memory of {counted(len(gpus), 'GPU')} is as it was")
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
