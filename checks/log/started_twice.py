"""Was one run started twice at the same time, so that each GPU has a rank of both?"""

from __future__ import annotations

import re
from collections import Counter

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.snapshot import Log, UncaughtException

_MEMORY = re.compile(r"out of memory|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|OutOfMemory")
_OTHERS = re.compile(r"Process \d+ has [\d.]+ [MG]iB memory in use")


def _times_failed(log: Log) -> Counter[int]:
    """Return how many uncaught exceptions torch printed for each rank: a process has one."""
    times: Counter[int] = Counter()
    for one in log.raised:
        if one.by_torch and one.ranks and not one.caught:
            for rank in one.ranks:
                times[rank] += max(1, one.times // len(one.ranks))
    return times


def _full(log: Log) -> UncaughtException | None:
    """Return the first exception about a GPU's memory, if one of them names another process."""
    of_memory = [one for one in log.raised if _MEMORY.search(f"{one.type} {one.message}") and not one.caught]
    return of_memory[0] if any(_OTHERS.search(one.message) for one in of_memory) else None


@check(
    Severity.ERROR,
    source="https://docs.pytorch.org/docs/stable/elastic/run.html",
    role="root",
    kind="cuda",
    tags=("precise",),
    same_as=("log_gpu_memory_taken", "log_gpu_memory_full", "log_illegal_memory_access"),
)
def log_started_twice(log: Log) -> Answer:
    """The run was started twice on the same node, and the ranks of both share the GPUs.

    Why: Slurm starts the command once per task. With --ntasks-per-node of 2 and torchrun or accelerate launch in it,
    each of two launchers starts a rank for every GPU, and both runs need the whole memory.

    Fix: Start one launcher per node.
    """
    full = _full(log)
    twice = sorted(rank for rank, times in _times_failed(log).items() if times > 1)
    if full is None or not twice or any(one.name == "ranks_restarted" for one in log.shows):
        return Ok("no rank failed twice, or no GPU was full")
    names = f"rank {twice[0]}" if len(twice) == 1 else f"ranks {', '.join(map(str, twice))}"
    return Problem(
        f"the run was probably started twice on this node: {names} failed twice, so the GPUs have two processes each",
        "A process fails once, and the log has two uncaught exceptions with the same rank. A GPU was full, and another "
        "process holds a part of it: the rank of the other launcher. Slurm starts the command of srun or sbatch once "
        "per "
        "task: two tasks per node start two launchers.",
        (
            Fix(
                "Start one launcher per node.",
                ("sbatch --ntasks-per-node=1 --gpus-per-node=2 ...", "srun --ntasks-per-node=1 torchrun ..."),
            ),
            Fix("Or start one process per task, without a launcher.", ("srun --ntasks-per-node=2 python train.py",)),
            Fix("Check that no earlier run is left.", ("nvidia-smi", "mgpu doctor --only gpu_busy,rank_orphaned")),
        ),
        {"line": full.message, "rank": full.rank, "at": full.at},
        place=Place(full.file, full.line),
    )
