"""Does every rank get its own samples, each once?"""

from __future__ import annotations

from collections import Counter

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Ranks
from mgpu.text import counted, listed

from .._wording import gib
from ._causes import LOST
from ._rank_states import first_of_kind, through, who

_SAMPLER = "https://pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler"
_WORKERS = "https://pytorch.org/docs/stable/multiprocessing.html#strategy-management"
# The loaders that a rank tells of: the figure that says how many samples the data set has, and how they are called.
_LOADERS = {
    "in order": ("dataset_samples", "DistributedSampler, in order"),
    "epoch 0": ("dataset_samples", "DistributedSampler, epoch 0"),
    "epoch 1": ("dataset_samples", "DistributedSampler, epoch 1"),
    "prepared": ("prepared_samples", "a loader that accelerate prepared"),
}


@check(Severity.ERROR, source=_SAMPLER, because_of=LOST)
def samples_not_given_once(ranks: Ranks) -> Answer:
    """A sampler gives a sample to two ranks, or to none.

    Why: each rank trains on its own share, padded with a few samples so that all have as many. Samples that come twice
    count twice, those that nobody gets are never learned, and an epoch is not what the logs say.

    Fix: one DistributedSampler (or a loader that accelerate prepared) with the right rank and world size.
    """
    told = 0
    for loader, (size, _) in _LOADERS.items():
        held = {rank.rank: rank.samples[loader] for rank in ranks.ranks if loader in rank.samples}
        total = next((int(rank.measured[size]) for rank in ranks.ranks if size in rank.measured), 0)
        if not held or not total:
            continue
        told += 1
        if (found := _misdealt(loader, held, total, ranks)) is not None:
            return found
    return (
        Ok(f"{counted(told, 'way', 'ways')} of dealing out samples, each sample once")
        if told
        else Skip("no rank told which samples it got")
    )


def _misdealt(loader: str, held: dict[int, tuple[int, ...]], total: int, ranks: Ranks) -> Problem | None:
    """The Problem of one loader; nothing is missed when only some of the ranks are known."""
    each = -(-total // ranks.expected)
    counts = Counter(number for share in held.values() for number in share)
    whole = len(held) == ranks.expected
    missing = [number for number in range(total) if not counts[number]] if whole else []
    spare = each * ranks.expected - total  # what pads the last round
    repeated = [number for number, times in counts.items() if times > 1]
    guilty = _suspects(loader, held, total, ranks.expected)
    if not guilty and not missing and sum(counts[number] - 1 for number in repeated) <= spare:
        return None
    guilty = guilty or [n for n, share in held.items() if set(share) & set(repeated)] or list(held)
    names = f"{'rank' if len(guilty) == 1 else 'ranks'} {listed(guilty)}"
    name = _LOADERS[loader][1]
    lost = f"; nobody gets {counted(len(missing), 'sample')}" if missing else ""
    return Problem(
        f"train: {names} {'gets' if len(guilty) == 1 else 'get'} samples twice or of another rank ({name}){lost}",
        "The sampler's rank or world size is not the one of the launch, or it does not deal out by rank at all.",
        Fix(
            "Give every rank a DistributedSampler of its own rank, or let accelerate prepare the loader.",
            (shell("cat {:path}/rank{:number}.json", ranks.folder, guilty[0]),),
        ),
        {"rank": guilty[0], "rung": "train", "loader": loader, "missing": len(missing), "repeated": len(repeated)},
        tuple(f"rank {number}" for number in guilty),
    )


def _suspects(loader: str, held: dict[int, tuple[int, ...]], total: int, world: int) -> list[int]:
    """In order, DistributedSampler gives rank r every world-th sample from r on: who has others is known."""
    if loader != "in order":
        return []
    padded = [number % total for number in range(-(-total // world) * world)]
    return [rank for rank, share in held.items() if list(share) != padded[rank::world]]


@check(Severity.WARNING, source=_SAMPLER, because_of=("samples_not_given_once",))
def samples_not_reshuffled(ranks: Ranks) -> Answer:
    """set_epoch does not change the order of the samples.

    Why: DistributedSampler.set_epoch has no effect there.
    More: It shuffles by seed and epoch: every epoch repeats the same batches in the same order.

    Fix: See which torch the ranks import.
    More: Or call set_epoch on the sampler that the loader really uses.
    """
    told = [rank for rank in ranks.ranks if {"epoch 0", "epoch 1"} <= set(rank.samples)]
    if not told:
        return Skip("no rank told which samples it got")
    same = [rank for rank in told if rank.samples["epoch 0"] == rank.samples["epoch 1"]]
    if not same:
        return Ok(f"another order at the next epoch on {counted(len(told), 'rank')}")
    return Problem(
        f"train: {who(same[0])} gets the same samples in the same order at every epoch",
        fix=commands("mgpu doctor --only packages"),
        evidence={"rank": same[0].rank, "rung": "train"},
        subjects=tuple(f"rank {rank.rank}" for rank in same),
    )


def _handed_over(ranks: Ranks) -> Answer:
    passed = through(ranks, "train")
    if ranks.level == "quick":
        return Skip("not tried at the quick level")
    return Ok(f"workers of {counted(len(passed), 'rank')} hand over batches") if passed else Skip("not tried")


@check(Severity.ERROR, source=_WORKERS, because_of=(*LOST, "shm_too_small"))
def loader_out_of_shared_memory(ranks: Ranks) -> Answer:
    """A loader worker could not hand over a batch, because /dev/shm is full.

    Why: workers pass batches through /dev/shm, two of them lie ready for each worker of each rank. Containers give
    64 MiB unless told otherwise; a worker that writes beyond it dies of a bus error.

    Fix: Give the container more.
    More: Until then load in the ranks themselves.
    """
    rank = first_of_kind(ranks, "shm_too_small")
    if rank is None:
        return _handed_over(ranks)
    told = rank.evidence
    total, free = int(told.get("total_bytes") or 0), int(told.get("free_bytes") or 0)
    batch = int(told.get("batch_bytes") or 0)
    return Problem(
        f"train: a loader worker of {who(rank)} found too little room in /dev/shm ({gib(free)} of {gib(total)} free)",
        f"{counted(int(told.get('workers') or 0), 'worker')} of each rank hand over batches of {gib(batch)} there, "
        "two at a time.",
        (
            commands("docker run --shm-size=8g ...", "docker run --ipc=host ..."),
            Fix("Mount it larger.", ("sudo mount -o remount,size=8G /dev/shm",), who="admin"),
            Fix(
                "Load in the ranks themselves: num_workers=0 in the script's DataLoader.",
                kind="stopgap",
                caveat="the GPU waits while a batch is made",
            ),
        ),
        {"rank": rank.rank, "rung": "train", "path": "/dev/shm", "total_bytes": total, "free_bytes": free},
        (f"rank {rank.rank}",),
    )


@check(Severity.ERROR, source=_WORKERS, because_of=(*LOST, "loader_out_of_shared_memory"))
def loader_worker_failed(ranks: Ranks) -> Answer:
    """A loader worker died, or handed over something else than it had made.

    Why: A script with num_workers > 0 would end the same way.
    More: Workers are processes of their own; a limit on processes, on open files or on memory, or a library that does
    not survive a fork, ends them, and the rank with them.

    Fix: Look at the limits, and at what the ranks printed.
    """
    rank = first_of_kind(ranks, "loader_failed")
    if rank is None:
        return _handed_over(ranks)
    return Problem(
        f"train: {who(rank)}: {rank.error}",
        fix=(
            commands("mgpu doctor --only limits", shell("cat {:path}/launcher.log", ranks.folder)),
            Fix(
                "Load in the ranks themselves: num_workers=0 in the script's DataLoader.",
                kind="stopgap",
                caveat="the GPU waits while a batch is made",
            ),
        ),
        evidence={"rank": rank.rank, "rung": "train", "error": rank.error},
        subjects=(f"rank {rank.rank}",),
    )
