"""Do the ranks train one model, with the same result as a single process?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Rank, Ranks
from mgpu.text import counted, listed

from ._causes import LOST, SETTINGS
from ._diagnoses import DIAGNOSES
from ._rank_states import (
    failures_of_kind,
    find_outliers,
    first_failure_of_kind,
    ok_beyond_quick,
    ok_if_trained,
    own_failures,
    rank_name,
    rank_names,
    report_of,
)

_SYNC_BATCH_NORM = "https://pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html"
_ACCELERATOR = "https://huggingface.co/docs/accelerate/package_reference/accelerator"
_DDP = "https://pytorch.org/docs/stable/notes/ddp.html"
# torch/csrc/distributed/c10d/reducer.cpp, verify_params_across_processes
_OTHER_COUNT = re.compile(r"Rank (\d+) has (\d+) params, while rank (\d+) has inconsistent (\d+) params")
_FSDP = "https://pytorch.org/docs/stable/distributed.fsdp.fully_shard.html"


def _gpu_alone(rank: Rank) -> tuple[str, ...]:
    """Return the command that tests only this rank's GPU; none for a rank on the CPU."""
    return (shell("CUDA_VISIBLE_DEVICES={:id} mgpu smoke-test --gpus 1", rank.gpu_uuid),) if rank.gpu_uuid else ()


@check(Severity.ERROR, source="measured torch 2.13 CPU 2026-11", because_of=(*LOST, *SETTINGS))
def rank_computes_wrong_gradients(ranks: Ranks) -> Answer:
    """A rank computes different gradients for its own samples than a single process.

    Why: They are wrong before any exchange, so this rank itself is the cause. Errors of other ranks are consequences.
    More: Neither the network nor another GPU is involved: the rank has different data, a different model, a
    different library, or a GPU that computes wrong results. Averaging then corrupts the step of every rank.

    Fix: Compare its hardware and libraries with those of the other ranks.
    """
    rank = first_failure_of_kind(ranks, "own_gradients_wrong")
    if rank is None:
        return ok_if_trained(ranks, "gradients of own samples correct")
    off = float(rank.evidence.get("difference") or 0.0)
    option = f" (DDP with {rank.evidence['option']})" if rank.evidence.get("option") else ""
    return Problem(
        f"train: {rank_name(rank)} computes wrong gradients for its own samples, off by {off:.1e}{option}",
        fix=(
            commands("mgpu doctor", report_of(rank, ranks)),
            Fix("Test its GPU alone.", _gpu_alone(rank), who="admin"),
        ),
        evidence={
            "rank": rank.rank,
            "rung": "train",
            "difference": rank.evidence.get("difference"),
            "step": rank.evidence.get("step"),
        },
        subjects=(f"rank {rank.rank}",),
    )


@check(Severity.ERROR, source=_DDP, because_of=(*LOST, *SETTINGS, "rank_computes_wrong_gradients"))
def parameters_not_synchronised(ranks: Ranks) -> Answer:
    """A rank trains with different parameters than the rest.

    Why: DDP sends the parameters of rank 0 to all ranks when a model is wrapped, and equal gradients keep them
    equal. A rank that starts with different parameters, or changes its copy, trains its own model without any
    error.

    Fix: Look for code or a library that acts on one rank only; then test pairs of GPUs.
    """
    rank = first_failure_of_kind(ranks, "parameters_not_synchronised")
    if rank is None:
        return ok_if_trained(ranks, "equal parameters in every step")
    step, off = rank.evidence.get("step") or 0, float(rank.evidence.get("difference") or 0.0)
    option = f" (DDP with {rank.evidence['option']})" if rank.evidence.get("option") else ""
    when = f"at step {step}" if step else "from the start"
    return Problem(
        f"train: {rank_name(rank)} has different parameters than the rest {when}, off by {off:.1e}{option}",
        "Data sent to it was lost or altered, or something on that rank changed its copy."
        if step
        else "The parameters of rank 0 did not arrive there when the model was wrapped.",
        commands(report_of(rank, ranks), "mgpu doctor --only packages"),
        {"rank": rank.rank, "rung": "train", "difference": rank.evidence.get("difference"), "step": step},
        (f"rank {rank.rank}",),
    )


@check(Severity.ERROR, source="measured torch 2.13 CPU 2026-11", because_of=(*LOST, *SETTINGS))
def model_differs_on_rank(ranks: Ranks) -> Answer:
    """A rank wraps a model with other parameters than the rest.

    Why: DDP compares the number of trainable parameters when it wraps the model, and every rank stops.
    More: Each rank reports its difference from another one, whichever of the two is wrong. A parameter that is frozen,
    added or missing on one rank has this effect.

    Fix: Look for code or a library that acts on one rank only.
    """
    held: dict[int, str] = {}
    for rank in own_failures(ranks):
        if found := _OTHER_COUNT.search(rank.error or ""):
            own, count, other, others_count = map(int, found.groups())
            held |= {own: str(count), other: str(others_count)}
    if not held:
        return ok_if_trained(ranks, "equal numbers of trainable parameters")
    odd = find_outliers(held) or [number for number in sorted(held) if held[number] != held[min(held)]]
    usual = next(number for number in sorted(held) if number not in odd)
    rest = f"rank {usual} has" if len(held) == 2 else "the rest have"
    verb = "has" if len(odd) == 1 else "have"
    return Problem(
        f"train: {rank_names(odd)} {verb} {held[odd[0]]} trainable parameters, {rest} {held[usual]}",
        fix=commands(shell("cat {:path}/rank{:number}.json", ranks.folder, odd[0]), "mgpu doctor --only packages"),
        evidence={"rank": odd[0], "rung": "train", **{f"rank_{number}": count for number, count in held.items()}},
        subjects=tuple(f"rank {number}" for number in odd),
    )


@check(
    Severity.ERROR,
    source=_DDP,
    because_of=(*LOST, *DIAGNOSES, *SETTINGS, "rank_computes_wrong_gradients", "parameters_not_synchronised"),
)
def gradients_not_averaged(ranks: Ranks) -> Answer:
    """The averaged gradients are not the mean of the ranks' gradients.

    Why: Each rank's own gradients were right, but the result of the all-reduce was not their mean.
    More: Data was lost or altered in transit, or a rank sent something other than its gradients. Training continues
    with wrong gradients.

    Fix: Test pairs of GPUs to find the faulty one.
    """
    rank = first_failure_of_kind(ranks, "gradients_differ")
    if rank is None:
        return ok_if_trained(ranks, "gradients match a single process")
    off, suspects = float(rank.evidence.get("difference") or 0.0), list(rank.evidence.get("suspects") or ())
    wrong_on = list(rank.evidence.get("wrong_on") or (rank.rank,))
    right_on = list(rank.evidence.get("right_on") or ())
    unknown, by = "", f"; the error is in the share of {rank_names(suspects)}"
    if not suspects and (other := _other_samples(ranks)):
        by = f"; {rank_names(other)} {'train' if len(other) > 1 else 'trains'} on other samples than the rest"
        suspects = other
    elif not suspects and right_on:
        everywhere = len(wrong_on) + len(right_on) == ranks.expected
        suspects, by = wrong_on, f"; they are right on {'the others' if everywhere else rank_names(right_on)}"
    elif not suspects:
        by = "; which rank sent a wrong share cannot be determined"
        unknown = "The error is not in the direction of one rank's share."
        if len(wrong_on) == ranks.expected:
            unknown = "All ranks received a wrong average, and the error is not in the direction of one rank's share."
    on = rank_name(rank) if len(wrong_on) == 1 else f"ranks {listed(wrong_on)}"
    return Problem(
        f"train: averaged gradients on {on} are off by {off:.1e}{by}",
        unknown,
        commands("CUDA_VISIBLE_DEVICES=0,1 mgpu smoke-test"),
        {
            "rank": suspects[0] if len(suspects) == 1 else None,
            "rung": "train",
            "difference": rank.evidence.get("difference"),
            "step": rank.evidence.get("step"),
        },
        tuple(f"rank {number}" for number in suspects or wrong_on),
    )


def _other_samples(ranks: Ranks) -> list[int]:
    """Return the ranks that generated other samples than most; the test's samples are equal on all ranks."""
    return find_outliers({rank.rank: rank.digests["batches"] for rank in ranks.ranks if "batches" in rank.digests})


@check(Severity.ERROR, source=_FSDP, because_of=LOST)
def parameters_not_sharded(ranks: Ranks) -> Answer:
    """FSDP did not shard the model correctly on a rank.

    Why: The rank's part of the model does not have the size of an FSDP shard.
    More: Each rank should have one shard of every parameter. If it has more, FSDP saves no memory, and the config's
    batch will not fit.

    Fix: Check which torch and accelerate versions the ranks import.
    """
    rank = first_failure_of_kind(ranks, "not_sharded")
    if rank is not None:
        found, wanted = rank.evidence.get("found"), rank.evidence.get("wanted")
        return Problem(
            f"train: {rank_name(rank)} has {found} parameters with FSDP instead of its shard of {wanted}",
            fix=commands("mgpu doctor --only packages"),
            evidence={"rank": rank.rank, "rung": "train", "found": found, "wanted": wanted},
            subjects=(f"rank {rank.rank}",),
        )
    if ranks.strategy != "fsdp":
        return Skip("the strategy does not shard parameters")
    sharded = [rank for rank in ranks.ranks if "shard_bytes" in rank.measured]
    return Ok(f"sharded on {counted(len(sharded), 'rank')}") if sharded else Skip("FSDP was not tested")


@check(
    Severity.ERROR,
    source="measured torch 2.13 CPU 2026-11",
    because_of=(*LOST, *DIAGNOSES, *SETTINGS, "rank_computes_wrong_gradients", "parameters_not_synchronised"),
)
def loss_does_not_fall(ranks: Ranks) -> Answer:
    """The loss does not decrease in the training steps on the same samples.

    Why: Gradients were right in the compared steps, but the optimizer's updates were not.
    More: This training task is so simple that the loss always decreases. If it does not, the optimizer's steps have
    no effect, or the values are wrong in the same way on every rank.

    Fix: Check whether a single process can train on this machine.
    """
    rank = first_failure_of_kind(ranks, "loss_did_not_fall")
    if rank is None:
        return ok_if_trained(ranks, "the loss decreases")
    first, last = (float(rank.evidence.get(key) or 0.0) for key in ("first", "last"))
    return Problem(
        f"train: the loss does not decrease on {rank_name(rank)}: {first:.3f} -> {last:.3f}",
        fix=commands("mgpu smoke-test --cpu 1", "mgpu smoke-test --gpus 1"),
        evidence={"rank": rank.rank, "rung": "train", "first": first, "last": last},
        subjects=tuple(f"rank {r.rank}" for r in own_failures(ranks) if r.kind == rank.kind),
    )


@check(Severity.ERROR, source=_DDP, because_of=LOST)
def unused_parameters_not_reported(ranks: Ranks) -> Answer:
    """DDP does not detect a parameter without a gradient.

    Why: In a script with such a parameter, the ranks would diverge.
    More: DDP waits for every parameter's gradient before it exchanges a bucket. A missing gradient must raise an
    error in the next step; otherwise the bucket is never exchanged.

    Fix: Check which torch version the ranks import.
    """
    rank = first_failure_of_kind(ranks, "unused_not_reported")
    if rank is None:
        return ok_beyond_quick(ranks, "unused parameters are detected")
    return Problem(
        f"train: DDP on {rank_name(rank)} continues although a parameter gets no gradient",
        fix=commands("mgpu doctor --only packages"),
        evidence={"rank": rank.rank, "rung": "train"},
        subjects=(f"rank {rank.rank}",),
    )


@check(Severity.ERROR, source=_SYNC_BATCH_NORM, because_of=(*LOST, "parameters_not_synchronised"))
def batch_norm_not_synchronised(ranks: Ranks) -> Answer:
    """The ranks have different batch-norm statistics.

    Why: each rank sees its own samples. DDP sends the statistics of rank 0 to all ranks before each forward pass,
    and SyncBatchNorm computes them over the whole batch. Without either, the model evaluates differently on every
    rank, and the saved one fits the samples of a single rank.

    Fix: Keep DDP's broadcast_buffers on, and do not disable it in the environment or a library.
    """
    held = {rank.rank: rank.digests["buffers"] for rank in ranks.ranks if "buffers" in rank.digests}
    rank = first_failure_of_kind(ranks, "batch_norm_not_synchronised")
    fix = commands("mgpu doctor --only packages")
    if rank is not None:
        return Problem(
            f"train: {rank_name(rank)}: {rank.error}",
            "The statistics are not those of the whole batch.",
            fix,
            {"rank": rank.rank, "rung": "train", "difference": rank.evidence.get("difference")},
            (f"rank {rank.rank}",),
        )
    if len(held) < 2:
        return Skip("fewer than two ranks trained with batch norm")
    if len(set(held.values())) == 1:
        return Ok(f"equal statistics on {len(held)} ranks")
    odd = find_outliers(held) or [number for number, digest in held.items() if digest != held[min(held)]]
    return Problem(
        f"train: batch norm is not synchronised: rank {listed(odd)} has different statistics than rank {min(held)}",
        "DDP did not send the statistics of rank 0 to the others before the forward pass.",
        fix,
        {"rank": odd[0], "rung": "train", **{f"rank_{number}": digest for number, digest in held.items()}},
        tuple(f"rank {number}" for number in odd),
    )


@check(Severity.ERROR, source=_ACCELERATOR, because_of=(*LOST, *SETTINGS))
def accelerate_trains_otherwise(ranks: Ranks) -> Answer:
    """Steps with accelerate have a different loss than a single process on the whole batch.

    Why: The strategy itself gave the right gradients; its settings in the config change the steps.
    More: Such settings are mixed precision, offloading, clipping, or a DeepSpeed file.

    Fix: Check the strategy's settings, then remove them one by one.
    """
    failed = failures_of_kind(ranks, "prepared_differs")
    if not failed:
        tried = [rank for rank in ranks.ranks if "prepared_difference" in rank.measured]
        return Ok(f"losses match a single process on {counted(len(tried), 'rank')}") if tried else Skip("not tested")
    odd = _first_wrong(failed)
    rank = next((rank for rank in failed if rank.rank in odd), failed[0])
    alone = len(odd) == 1
    names = rank_name(rank) if odd == [rank.rank] else rank_names(odd)
    others = "Its loss is wrong first; the others follow through the averaged gradients." if alone else ""
    step, found, wanted = (rank.evidence.get(key) for key in ("step", "found", "wanted"))
    return Problem(
        f"train: {rank.error} ({names})",
        others if len(failed) > 1 else "",
        commands("mgpu configure --validate accelerate.yaml", report_of(rank, ranks)),
        {"rank": odd[0] if alone else None, "rung": "train", "step": step, "found": found, "wanted": wanted},
        tuple(f"rank {number}" for number in odd),
    )


def _first_wrong(failed: Sequence[Rank]) -> list[int]:
    """Return the ranks whose loss was wrong in the earliest step, from their own reports and those they exchanged.

    A rank with wrong parameters has a wrong loss at once, the others only after its gradients changed theirs.
    """
    steps = {rank.rank: int(rank.evidence.get("step") or 0) for rank in failed}
    for rank in failed:
        steps |= {int(number): int(step) for number, step in (rank.evidence.get("first_wrong") or {}).items()}
    return [number for number, step in sorted(steps.items()) if step == min(steps.values())]


@check(Severity.ERROR, source=_DDP, because_of=("rank_failed", "parameters_not_synchronised", "gradients_not_averaged"))
def parameters_differ_between_ranks(ranks: Ranks) -> Answer:
    """The ranks have different parameters after the same training steps.

    Why: The copies of the model have diverged.
    More: DDP keeps them equal by averaging gradients, so data is lost or altered between the GPUs.

    Fix: Test pairs of GPUs to find the faulty one.
    """
    held = {rank.rank: rank.parameters for rank in ranks.ranks if rank.parameters}
    if len(held) < 2:
        return Skip("fewer than two ranks trained")
    if len(set(held.values())) == 1:
        return Ok(f"bitwise equal on {len(held)} ranks")
    odd = find_outliers(held)
    return Problem(
        f"train: {rank_names(odd)} {'has' if len(odd) == 1 else 'have'} different parameters than the rest"
        if odd
        else f"train: ranks {listed(held)} have different parameters",
        fix=commands("CUDA_VISIBLE_DEVICES=0,1 mgpu smoke-test"),
        evidence={
            "rank": odd[0] if odd else None,
            "rung": "train",
            **{f"rank_{number}": d for number, d in held.items()},
        },
        subjects=tuple(f"rank {number}" for number in odd or held),
    )


@check(Severity.ERROR, source=_DDP, because_of=("rank_failed", "parameters_differ_between_ranks"))
def optimizer_differs_between_ranks(ranks: Ranks) -> Answer:
    """The ranks have different optimizer states after the same training steps.

    Why: Something changes the optimizer on one rank: a library, a patch, or altered memory.
    More: Each rank runs its own optimizer; with equal gradients the states stay equal. A different state makes the
    rank's parameters diverge in the next step, and gives a checkpoint that fits one rank only.

    Fix: Check which libraries the ranks import.
    More: Create the optimizer in the same way on every rank.
    """
    held = {rank.rank: rank.digests["optimizer"] for rank in ranks.ranks if "optimizer" in rank.digests}
    if len(held) < 2:
        return Skip("fewer than two ranks have a complete optimizer state")
    if len(set(held.values())) == 1:
        return Ok(f"bitwise equal on {len(held)} ranks")
    odd = find_outliers(held)
    names = f"rank {listed(odd)} has a different optimizer state than the rest" if odd else ""
    return Problem(
        f"train: {names or f'ranks {listed(held)} have different optimizer states'}",
        fix=commands("mgpu doctor --only packages"),
        evidence={
            "rank": odd[0] if odd else None,
            "rung": "train",
            **{f"rank_{number}": d for number, d in held.items()},
        },
        subjects=tuple(f"rank {number}" for number in odd or held),
    )
