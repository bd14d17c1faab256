"""Does every rank get its own data?"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

from mgpu.check import Answer, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Rehearsal, RehearsedLoader, RehearsedOptimizer, RehearsedRank
from mgpu.text import counted, listed

from ._rehearsed import (
    at,
    data_loaders,
    pairs_of_loaders,
    pairs_of_optimizers,
    place,
    several_ranks,
    training_loaders,
)

_SAMPLER = "https://pytorch.org/docs/stable/data.html"
_JOIN = "https://pytorch.org/docs/stable/notes/ddp.html"
_SEED = "https://pytorch.org/docs/stable/notes/randomness.html"
_LEAST = 2  # equal batches that count: one may be equal by chance
_REPEATED = 0.25  # of a rank's samples; padding at the end of an epoch repeats fewer
_DRAWS_AGAIN = ("WeightedRandomSampler", "SubsetRandomSampler")


def _prints(loader: RehearsedLoader) -> list[str]:
    return [batch.fingerprint for batch in loader.batches if batch.fingerprint is not None]


@check(
    Severity.ERROR,
    source=_SAMPLER,
    because_of=("script_failed", "separate_trainings"),
    same_as=("script_data_not_divided", "script_stream_not_split"),
    given=data_loaders,
)
def same_data(rehearsal: Rehearsal) -> Answer:
    """Two ranks train on the same batches.

    Why: The gradients of equal batches are equal, so their average is that of one rank: N GPUs train as fast as one,
    and each epoch reads every sample N times.

    Fix: Pass the loader to accelerator.prepare, or give it a DistributedSampler; split an IterableDataset by rank.
    """
    compared = 0
    for ranks, loaders in pairs_of_loaders(rehearsal):
        for index, one in enumerate(loaders):
            for other_index in range(index + 1, len(loaders)):
                mine, others = _prints(one), _prints(loaders[other_index])
                both = min(len(mine), len(others))
                if both < _LEAST or len(set(mine[:both])) < _LEAST:
                    continue
                compared = max(compared, both)
                if mine[:both] == others[:both]:
                    return _same(ranks[index], ranks[other_index], one, both)
    return Ok(f"different batches on all ranks ({compared} compared)") if compared else _not_compared(rehearsal)


def _not_compared(rehearsal: Rehearsal) -> Skip:
    prints = [_prints(one) for rank in rehearsal.ranks for one in training_loaders(rank)]
    if any(len(one) >= _LEAST for one in prints):
        return Skip("all batches of a rank are equal, so ranks cannot be compared")
    return Skip("fewer than two batches per rank were seen")


def _same(rank: RehearsedRank, other: RehearsedRank, loader: RehearsedLoader, batches: int) -> Problem:
    return Problem(
        f"ranks {rank.rank} and {other.rank} get the same {batches} batches of {loader.dataset}{at(loader.line)}",
        evidence={"rank": other.rank, "other": rank.rank, "batches": batches, "sampler": loader.sampler},
        subjects=(f"rank {rank.rank}", f"rank {other.rank}"),
        place=place(loader.line),
    )


def _samples(loader: RehearsedLoader, number: int) -> list[str]:
    """Return the fingerprints of the samples of one pass of a loader over its data."""
    return [one for batch in loader.batches if batch.epoch == number for one in batch.each]


def _longest_pass(loader: RehearsedLoader) -> int:
    """Return the number of the pass with the most batches; the first one may have been a look at the data."""
    counts = Counter(batch.epoch for batch in loader.batches)
    return max(counts, key=lambda number: (counts[number], -number), default=0)


def _whole_pass(loaders: Sequence[RehearsedLoader]) -> int | None:
    """Return the first pass that came to its end on every rank, and of which all batches are known."""
    for number, count in sorted(loaders[0].whole.items()):
        drawn = [sum(batch.epoch == number for batch in one.batches) for one in loaders]
        if all(one.whole.get(number) == have for one, have in zip(loaders, drawn, strict=True)) and count:
            return number
    return None


@check(
    Severity.WARNING,
    source=_SAMPLER,
    because_of=("same_data", "script_failed", "separate_trainings"),
    same_as=("script_data_not_divided", "script_stream_not_split"),
    given=data_loaders,
)
def data_repeated(rehearsal: Rehearsal) -> Answer:
    """In one epoch, two ranks train on the same samples, in another order.

    Why: Each rank reads all of the data instead of its own part, so an epoch takes as long as on one GPU.

    Fix: Pass the loader to accelerator.prepare, or give it a DistributedSampler.
    """
    seen = 0
    for ranks, loaders in pairs_of_loaders(rehearsal):
        if any(one.sampler in _DRAWS_AGAIN or one.batch_sampler in _DRAWS_AGAIN for one in loaders):
            continue
        parts = [_samples(one, _longest_pass(loaders[0])) for one in loaders]
        if any(len(set(part)) < len(part) for part in parts):  # equal samples in the data itself
            continue
        for index, part in enumerate(parts[1:], 1):
            common = set(parts[0]) & set(part)
            seen = max(seen, min(len(parts[0]), len(part)))
            least = max(_REPEATED * min(len(parts[0]), len(part)), len(ranks), loaders[0].batch or 1)
            if len(common) > least:
                return _repeated(ranks[0], ranks[index], loaders[0], len(common), len(part))
    return Ok(f"no sample on two ranks ({counted(seen, 'sample')} compared)") if seen else Skip("no samples to compare")


def _repeated(rank: RehearsedRank, other: RehearsedRank, loader: RehearsedLoader, common: int, number: int) -> Problem:
    return Problem(
        f"{common} of the {number} samples of rank {other.rank} were also on rank {rank.rank} ({loader.dataset})"
        f"{at(loader.line)}",
        evidence={"rank": other.rank, "other": rank.rank, "samples": common, "sampler": loader.sampler},
        subjects=(f"rank {rank.rank}", f"rank {other.rank}"),
        place=place(loader.line),
    )


@check(
    Severity.WARNING,
    source=_SAMPLER,
    because_of=("same_data", "data_repeated", "script_failed"),
    same_as=("script_replicas_fixed",),
    given=data_loaders,
)
def data_not_covered(rehearsal: Rehearsal) -> Answer:
    """In a whole epoch, the ranks together read only a part of the data.

    Why: The samples that no rank reads are never trained on.

    Fix: Let the sampler divide the data among as many replicas as there are ranks.
    """
    covered = 0
    for ranks, loaders in pairs_of_loaders(rehearsal):
        whole = {loader.samples for loader in loaders}
        size = loaders[0].samples
        number = _whole_pass(loaders)
        if len(ranks) < rehearsal.expected or len(whole) > 1 or not size or number is None:
            continue
        parts = [_samples(one, number) for one in loaders]
        if not all(parts):
            continue
        if any(len(set(part)) < len(part) for part in parts) or any(not batch.each for batch in loaders[0].batches):
            continue
        read = len({one for part in parts for one in part})
        dropped = len(ranks) * (loaders[0].batch or 1)  # drop_last
        covered = max(covered, read)
        if read + dropped < size:
            line = loaders[0].line
            return Problem(
                f"the ranks read {read} of the {size} samples of {loaders[0].dataset} in an epoch{at(line)}",
                evidence={"rank": None, "read": read, "samples": size, "replicas": loaders[0].replicas},
                place=place(line),
            )
    return Ok(f"{counted(covered, 'sample')} in an epoch") if covered else Skip("no whole epoch was seen")


@check(
    Severity.ERROR,
    source=_JOIN,
    because_of=("separate_trainings",),
    same_as=("script_rank_skips_backward",),
    given=data_loaders,
)
def batches_differ(rehearsal: Rehearsal) -> Answer:
    """The ranks have different numbers of training batches.

    Why: The rank with more batches waits in its next backward pass for gradients that no other rank computes.

    Fix: Give every rank the same number of batches: use a DistributedSampler, drop_last=True, or accelerator.prepare.
    """
    known = 0
    if any(rank.joins_uneven for rank in rehearsal.ranks):
        return Skip("the script joins ranks with different numbers of batches (Join)")
    for ranks, loaders in pairs_of_loaders(rehearsal):
        for counts in (_lengths(loaders), _delivered(loaders)):
            if not counts:
                continue
            known = max(known, *counts)
            if len(set(counts)) > 1:
                return _uneven(dict(zip([rank.rank for rank in ranks], counts, strict=True)), loaders[0])
    return Ok(f"{counted(known, 'batch', 'batches')} on every rank") if known else Skip("no loader has a known length")


def _lengths(loaders: Sequence[RehearsedLoader]) -> list[int]:
    found = [one.length for one in loaders if one.length is not None]
    return found if len(found) == len(loaders) else []


def _delivered(loaders: Sequence[RehearsedLoader]) -> list[int]:
    """Return how many batches each rank got in one pass; of a rank that is still in it, at least as many."""
    for number, count in sorted(pair for one in loaders for pair in one.whole.items()):
        drawn = [sum(batch.epoch == number for batch in one.batches) for one in loaders]
        counts = [one.whole.get(number, drawn[index]) for index, one in enumerate(loaders)]
        if all(number in one.whole or drawn[index] > count for index, one in enumerate(loaders)):
            return counts
    return []


def _uneven(counts: dict[int, int], loader: RehearsedLoader) -> Problem:
    most, least = max(counts, key=lambda n: counts[n]), min(counts, key=lambda n: counts[n])
    return Problem(
        f"rank {most} has {counted(counts[most], 'batch', 'batches')} of {loader.dataset}, rank {least} has "
        f"{counts[least]}{at(loader.line)}",
        evidence={"rank": most, **{f"rank_{number}": count for number, count in counts.items()}},
        subjects=(f"rank {most}", f"rank {least}"),
        place=place(loader.line),
    )


@check(
    Severity.ERROR,
    source=_JOIN,
    because_of=("script_failed", "separate_trainings", "rank_steps_differ", "batches_differ", "collectives_differ"),
    same_as=("script_rank_skips_backward",),
    given=data_loaders,
)
def batches_skipped(rehearsal: Rehearsal) -> Answer:
    """A rank leaves out batches that the others train on.

    Why: It reaches the end of its data earlier than the others, which then wait for it in a backward pass.

    Fix: Let all ranks decide together whether to leave out a batch: exchange the condition with all_reduce.
    """
    compared = 0
    if any(rank.joins_uneven for rank in rehearsal.ranks):
        return Skip("the script joins ranks with different numbers of batches (Join)")
    for ranks, optimizers in pairs_of_optimizers(rehearsal):
        needed = [_drawn_for_steps(one) for one in optimizers]
        for rank, mine in zip(ranks[1:], needed[1:], strict=True):
            both = sorted(needed[0].keys() & mine.keys())
            compared += len(both)
            wrong = next((n for n in both if mine[n][0] != needed[0][n][0] and mine[n][1] == needed[0][n][1]), None)
            if wrong is not None:
                line = next((s.backward_line for one in optimizers for s in one.steps if s.number == wrong), None)
                return _skipped({ranks[0].rank: needed[0][wrong][0], rank.rank: mine[wrong][0]}, wrong, line)
    return Ok(f"as many batches in {counted(compared, 'step')}") if compared else Skip("no steps of one pass were seen")


def _drawn_for_steps(optimizer: RehearsedOptimizer) -> dict[int, tuple[int, int]]:
    """Return how many batches were drawn, and how many of them trained, since the step before in the same pass."""
    found = {}
    for before, step in itertools.pairwise(optimizer.steps):
        if before.of_pass is None or before.of_pass != step.of_pass or before.drawn is None or step.drawn is None:
            continue
        if step.drawn > before.drawn and step.batches:
            found[step.number] = (step.drawn - before.drawn, step.batches)
    return found


def _skipped(drawn: dict[int, int], step: int, line: str | None) -> Problem:
    most, least = max(drawn, key=lambda n: drawn[n]), min(drawn, key=lambda n: drawn[n])
    return Problem(
        f"for step {step}, rank {most} reads {counted(drawn[most], 'batch', 'batches')} and rank {least} reads "
        f"{drawn[least]}, and both train on the same number{at(line)}",
        evidence={"rank": most, "step": step, **{f"rank_{number}": count for number, count in drawn.items()}},
        subjects=(f"rank {most}",),
        place=place(line),
    )


@check(
    Severity.WARNING,
    source="https://pytorch.org/docs/stable/data.html (DistributedSampler)",
    same_as=("script_set_epoch_missing",),
    because_of=("script_failed",),
    given=data_loaders,
)
def sampler_without_set_epoch(rehearsal: Rehearsal) -> Answer:
    """A DistributedSampler shuffles the data in the same way in every epoch.

    Why: Its order depends on its seed and its epoch only, and nothing sets the epoch.

    Fix: Call sampler.set_epoch(epoch) at the start of every epoch.
    """
    seen = False
    for rank in rehearsal.ranks:
        for loader in training_loaders(rank):
            if loader.replicas is None or not loader.shuffle:
                continue
            epochs = _trained_epochs(loader)
            for (before, first), (epoch, second) in itertools.pairwise(epochs):
                both, seen = min(len(first), len(second)), True
                if first[:both] == second[:both] and before == epoch:
                    return _in_one_order(rank, loader, both, epoch)
    return Ok("another order in the second epoch") if seen else Skip("no second epoch with a DistributedSampler")


def _in_one_order(rank: RehearsedRank, loader: RehearsedLoader, batches: int, epoch: int | None) -> Problem:
    return Problem(
        f"epoch 2 has the same batches as epoch 1 on rank {rank.rank}: set_epoch was not called{at(loader.line)}",
        evidence={"rank": rank.rank, "batches": batches, "epoch": epoch},
        subjects=(f"rank {rank.rank}",),
        place=place(loader.line),
    )


def _trained_epochs(loader: RehearsedLoader) -> list[tuple[int | None, Sequence[str | None]]]:
    """Return the sampler's epoch and the batches of each pass over the data.

    A pass that ended after one batch was a look at the data, for example at its shapes.
    """
    passes: list[tuple[int | None, Sequence[str | None]]] = []
    for number, epoch in enumerate(loader.epochs):
        batches = [batch.fingerprint for batch in loader.batches if batch.epoch == number]
        if len(batches) > 1 or (batches and loader.length == 1):
            passes.append((epoch, batches))
    return passes


@check(Severity.INFO, source=_SEED, because_of=("separate_trainings",), given=several_ranks)
def same_random_state(rehearsal: Rehearsal) -> Answer:
    """All ranks start with the same random state, so dropout and augmentation are equal on all of them.

    Why: Each rank then drops the same values for its samples. The training works, with less variety than it could have.

    Fix: After the model is built, use a seed that contains the rank (accelerate: set_seed(..., device_specific=True)).
    """
    states = [rank.random_states.get("torch") for rank in rehearsal.ranks]
    if None in states or len(states) < 2:
        return Skip("the random state was not seen on two ranks")
    if len(set(states)) > 1:
        return Ok("different random states")
    if not any(one.dropout for rank in rehearsal.ranks for one in rank.wrappers):
        return Skip("the wrapped models have no dropout")
    numbers = listed([rank.rank for rank in rehearsal.ranks])
    return Problem(f"ranks {numbers} start with one random state, and the model has dropout", evidence={"rank": None})
