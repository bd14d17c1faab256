"""Does every rank get its own samples, each once?"""

from __future__ import annotations

from collections import Counter

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Ranks
from mgpu.text import counted, listed

from .._wording import gib
from ._causes import LOST
from ._rank_states import first_failure_of_kind, rank_name, ranks_that_passed

_SAMPLER = "https://pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler"
_WORKERS = "https://pytorch.org/docs/stable/multiprocessing.html#strategy-management"
# The loaders that a rank reports: the measurement with the number of samples in the dataset, and the loader's name.
_LOADERS = {
    "in order": ("dataset_samples", "DistributedSampler, in order"),
    "epoch 0": ("dataset_samples", "DistributedSampler, epoch 0"),
    "epoch 1": ("dataset_samples", "DistributedSampler, epoch 1"),
    "prepared": ("prepared_samples", "a loader that accelerate prepared"),
}


@check(Severity.ERROR, source=_SAMPLER, because_of=LOST)
def samples_not_given_once(ranks: Ranks) -> Answer:
    """A sampler gives a sample to two ranks, or to none.

    Why: each rank trains on its own share, padded with a few samples so that all shares are equally large.
    Duplicate samples count twice, missing ones are never learned, and an epoch is not what the logs show.

    Fix: use one DistributedSampler (or a loader prepared by accelerate) with the right rank and world size.
    """
    reported = 0
    for loader, (size, _) in _LOADERS.items():
        held = {rank.rank: rank.samples[loader] for rank in ranks.ranks if loader in rank.samples}
        total = next((int(rank.measured[size]) for rank in ranks.ranks if size in rank.measured), 0)
        if not held or not total:
            continue
        reported += 1
        if (found := _loader_problem(loader, held, total, ranks)) is not None:
            return found
    return Ok(f"{counted(reported, 'loader')}, each sample once") if reported else Skip("no rank reported its samples")


def _loader_problem(loader: str, held: dict[int, tuple[int, ...]], total: int, ranks: Ranks) -> Problem | None:
    """Return the problem of one loader, or None. Missing samples are counted only if all ranks reported."""
    each = -(-total // ranks.expected)
    counts = Counter(number for share in held.values() for number in share)
    whole = len(held) == ranks.expected
    missing = [number for number in range(total) if not counts[number]] if whole else []
    spare = each * ranks.expected - total  # padding of the last round
    repeated = [number for number, times in counts.items() if times > 1]
    guilty = _suspects(loader, held, total, ranks.expected)
    if not guilty and whole:
        guilty = _rank_that_repeats(held, spare)
    if not guilty and not missing and sum(counts[number] - 1 for number in repeated) <= spare:
        return None
    guilty = guilty or [n for n, share in held.items() if set(share) & set(repeated)] or list(held)
    names = f"{'rank' if len(guilty) == 1 else 'ranks'} {listed(guilty)}"
    name = _LOADERS[loader][1]
    lost = f"; {counted(len(missing), 'sample')} unused" if missing else ""
    return Problem(
        f"train: {names} {'gets' if len(guilty) == 1 else 'get'} duplicate or another rank's samples ({name}){lost}",
        "The sampler's rank or world size differs from the launch's, or it does not split samples by rank.",
        Fix(
            "Use a DistributedSampler with each rank's own number, or let accelerate prepare the loader.",
            (shell("cat {:path}/rank{:number}.json", ranks.folder, guilty[0]),),
        ),
        {
            "rank": guilty[0] if len(guilty) == 1 else None,
            "rung": "train",
            "loader": loader,
            "missing": len(missing),
            "repeated": len(repeated),
        },
        tuple(f"rank {number}" for number in guilty),
    )


def _suspects(loader: str, held: dict[int, tuple[int, ...]], total: int, world: int) -> list[int]:
    """Return the ranks with wrong samples; known only in order, where rank r gets every world-th sample from r on."""
    if loader != "in order":
        return []
    padded = [number % total for number in range(-(-total // world) * world)]
    return [rank for rank, share in held.items() if list(share) != padded[rank::world]]


def _rank_that_repeats(held: dict[int, tuple[int, ...]], spare: int) -> list[int]:
    """Return the one rank without whose share the fewest samples are repeated; empty if there is no such rank."""

    def repeats(left_out: int | None) -> int:
        shares = [number for rank, share in held.items() if rank != left_out for number in share]
        return len(shares) - len(set(shares))

    counts = {rank: repeats(rank) for rank in held}
    best = [rank for rank, count in counts.items() if count == min(counts.values())]
    return best if len(best) == 1 and counts[best[0]] <= spare < repeats(None) else []


@check(Severity.WARNING, source=_SAMPLER, because_of=("samples_not_given_once",))
def samples_not_reshuffled(ranks: Ranks) -> Answer:
    """set_epoch does not change the order of the samples.

    Why: DistributedSampler.set_epoch has no effect on this rank.
    More: The sampler should shuffle by seed and epoch; instead every epoch repeats the same batches in the same order.

    Fix: Check which torch the ranks import.
    More: Or call set_epoch on the sampler that the loader really uses.
    """
    reporting = [rank for rank in ranks.ranks if {"epoch 0", "epoch 1"} <= set(rank.samples)]
    if not reporting:
        return Skip("no rank reported its samples")
    same = [rank for rank in reporting if rank.samples["epoch 0"] == rank.samples["epoch 1"]]
    if not same:
        return Ok(f"different order in the next epoch on {counted(len(reporting), 'rank')}")
    return Problem(
        f"train: {rank_name(same[0])} gets the same samples in the same order in every epoch",
        fix=commands("mgpu doctor --only packages"),
        evidence={"rank": same[0].rank, "rung": "train"},
        subjects=tuple(f"rank {rank.rank}" for rank in same),
    )


def _loader_answer(ranks: Ranks) -> Answer:
    passed = ranks_that_passed(ranks, "train")
    if ranks.level == "quick":
        return Skip("not tested at the quick level")
    return Ok(f"loader workers of {counted(len(passed), 'rank')} deliver batches") if passed else Skip("not tested")


@check(Severity.ERROR, source=_WORKERS, because_of=(*LOST, "shm_too_small"))
def loader_out_of_shared_memory(ranks: Ranks) -> Answer:
    """A DataLoader worker could not deliver a batch because /dev/shm is full.

    Why: workers pass batches through /dev/shm, with two batches ready for each worker of each rank. Containers have
    64 MiB by default; a worker that writes beyond that dies with a bus error.

    Fix: Give the container more shared memory.
    More: Until then, load data in the ranks themselves.
    """
    rank = first_failure_of_kind(ranks, "shm_too_small")
    if rank is None:
        return _loader_answer(ranks)
    reported = rank.evidence
    total, free = int(reported.get("total_bytes") or 0), int(reported.get("free_bytes") or 0)
    batch = int(reported.get("batch_bytes") or 0)
    return Problem(
        f"train: /dev/shm is too small for a loader worker of {rank_name(rank)} ({gib(free)} of {gib(total)} free)",
        f"{counted(int(reported.get('workers') or 0), 'worker')} per rank, each with two batches of {gib(batch)}.",
        (
            commands("docker run --shm-size=8g ...", "docker run --ipc=host ..."),
            Fix("Mount it with a larger size.", ("sudo mount -o remount,size=8G /dev/shm",), who="admin"),
            Fix(
                "Load data in the ranks themselves: num_workers=0 in the script's DataLoader.",
                kind="stopgap",
                caveat="the GPU waits while a batch is prepared",
            ),
        ),
        {"rank": rank.rank, "rung": "train", "path": "/dev/shm", "total_bytes": total, "free_bytes": free},
        (f"rank {rank.rank}",),
    )


@check(Severity.ERROR, source=_WORKERS, because_of=(*LOST, "loader_out_of_shared_memory"))
def loader_worker_failed(ranks: Ranks) -> Answer:
    """A DataLoader worker died, or delivered data that differs from what it produced.

    Why: A script with num_workers > 0 would fail in the same way.
    More: Workers are separate processes. A limit on processes, open files or memory, or a library that is not
    fork-safe, kills them, and with them the rank.

    Fix: Check the limits, and the output of the ranks.
    """
    rank = first_failure_of_kind(ranks, "loader_failed")
    if rank is None:
        return _loader_answer(ranks)
    return Problem(
        f"train: {rank_name(rank)}: {rank.error}",
        fix=(
            commands("mgpu doctor --only limits", shell("cat {:path}/launcher.log", ranks.folder)),
            Fix(
                "Load data in the ranks themselves: num_workers=0 in the script's DataLoader.",
                kind="stopgap",
                caveat="the GPU waits while a batch is prepared",
            ),
        ),
        evidence={"rank": rank.rank, "rung": "train", "error": rank.error},
        subjects=(f"rank {rank.rank}",),
    )
