"""Do the ranks train one model, with the same result as a single process?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Rank, Ranks
from mgpu.text import counted, listed

from ._causes import LOST
from ._diagnoses import DIAGNOSES
from ._rank_states import find_outliers, first_failure_of_kind, own_failures, rank_name, ranks_that_passed

_DDP_CLASS = "https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"
_SYNC_BATCH_NORM = "https://pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html"
_ACCELERATOR = "https://huggingface.co/docs/accelerate/package_reference/accelerator"
_DDP = "https://pytorch.org/docs/stable/notes/ddp.html"
_FSDP = "https://pytorch.org/docs/stable/distributed.fsdp.fully_shard.html"
_NO_STEPS = "no rank passed the training steps"


def _ok_if_trained(ranks: Ranks, evidence: str) -> Answer:
    """Return Ok if ranks passed the training steps, else Skip."""
    trained = ranks_that_passed(ranks, "train")
    return Ok(f"{evidence} on {counted(len(trained), 'rank')}") if trained else Skip(_NO_STEPS)


def _ok_beyond_quick(ranks: Ranks, evidence: str) -> Answer:
    return Skip("not tested at the quick level") if ranks.level == "quick" else _ok_if_trained(ranks, evidence)


def _report_of(rank: Rank, ranks: Ranks) -> str:
    return shell("cat {:path}/rank{:number}.json", ranks.folder, rank.rank)


def _gpu_alone(rank: Rank) -> tuple[str, ...]:
    """Return the command that tests only this rank's GPU; none for a rank on the CPU."""
    return (shell("CUDA_VISIBLE_DEVICES={:id} mgpu smoke-test --gpus 1", rank.gpu_uuid),) if rank.gpu_uuid else ()


@check(Severity.ERROR, source="measured torch 2.13 CPU 2026-11", because_of=LOST)
def rank_computes_wrong_gradients(ranks: Ranks) -> Answer:
    """A rank computes different gradients for its own samples than a single process.

    Why: They are wrong before any exchange, so this rank itself is the cause. Errors of other ranks are consequences.
    More: Neither the network nor another GPU is involved: the rank has different data, a different model, a
    different library, or a GPU that computes wrong results. Averaging then corrupts the step of every rank.

    Fix: Compare its hardware and libraries with those of the other ranks.
    """
    rank = first_failure_of_kind(ranks, "own_gradients_wrong")
    if rank is None:
        return _ok_if_trained(ranks, "gradients of own samples correct")
    off = float(rank.evidence.get("difference") or 0.0)
    option = f" (DDP with {rank.evidence['option']})" if rank.evidence.get("option") else ""
    return Problem(
        f"train: {rank_name(rank)} computes wrong gradients for its own samples, off by {off:.1e}{option}",
        fix=(
            commands("mgpu doctor", _report_of(rank, ranks)),
            Fix("Test its GPU alone.", _gpu_alone(rank), who="admin"),
        ),
        evidence={"rank": rank.rank, "rung": "train", "difference": off, "step": rank.evidence.get("step")},
        subjects=(f"rank {rank.rank}",),
    )


@check(Severity.ERROR, source=_DDP, because_of=(*LOST, "rank_computes_wrong_gradients"))
def parameters_not_synchronised(ranks: Ranks) -> Answer:
    """A rank trains with different parameters than the rest.

    Why: DDP sends the parameters of rank 0 to all ranks when a model is wrapped, and equal gradients keep them
    equal. A rank that starts with different parameters, or changes its copy, trains its own model without any
    error.

    Fix: Look for code or a library that acts on one rank only; then test pairs of GPUs.
    """
    rank = first_failure_of_kind(ranks, "parameters_not_synchronised")
    if rank is None:
        return _ok_if_trained(ranks, "equal parameters in every step")
    step, off = rank.evidence.get("step") or 0, float(rank.evidence.get("difference") or 0.0)
    option = f" (DDP with {rank.evidence['option']})" if rank.evidence.get("option") else ""
    when = f"at step {step}" if step else "from the start"
    return Problem(
        f"train: {rank_name(rank)} has different parameters than the rest {when}, off by {off:.1e}{option}",
        "Data sent to it was lost or altered, or something on that rank changed its copy."
        if step
        else "The parameters of rank 0 did not arrive there when the model was wrapped.",
        commands(_report_of(rank, ranks), "mgpu doctor --only packages"),
        {"rank": rank.rank, "rung": "train", "difference": off, "step": step},
        (f"rank {rank.rank}",),
    )


@check(
    Severity.ERROR,
    source=_DDP,
    because_of=(*LOST, *DIAGNOSES, "rank_computes_wrong_gradients", "parameters_not_synchronised"),
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
        return _ok_if_trained(ranks, "gradients match a single process")
    off, suspects = float(rank.evidence.get("difference") or 0.0), list(rank.evidence.get("suspects") or ())
    by = f"; the error is in the share of rank {listed(suspects)}" if suspects else ""
    guilty = suspects[0] if suspects else rank.rank
    return Problem(
        f"train: averaged gradients on {rank_name(rank)} are off by {off:.1e}{by}",
        fix=commands("CUDA_VISIBLE_DEVICES=0,1 mgpu smoke-test"),
        evidence={"rank": guilty, "rung": "train", "difference": off, "step": rank.evidence.get("step")},
        subjects=tuple(f"rank {number}" for number in suspects or (rank.rank,)),
    )


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
    because_of=(*LOST, *DIAGNOSES, "rank_computes_wrong_gradients", "parameters_not_synchronised"),
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
        return _ok_if_trained(ranks, "the loss decreases")
    first, last = (float(rank.evidence.get(key) or 0.0) for key in ("first", "last"))
    return Problem(
        f"train: the loss does not decrease on {rank_name(rank)}: {first:.3f} -> {last:.3f}",
        fix=commands("mgpu smoke-test --cpu 1", "mgpu smoke-test --gpus 1"),
        evidence={"rank": rank.rank, "rung": "train", "first": first, "last": last},
        subjects=tuple(f"rank {r.rank}" for r in own_failures(ranks) if r.kind == rank.kind),
    )


@check(Severity.ERROR, source=_DDP_CLASS, because_of=LOST)
def gradient_accumulation_wrong(ranks: Ranks) -> Answer:
    """Gradients accumulated over micro-batches differ from those of the whole batch.

    Why: The optimizer would use different gradients than those of the batch in the config.
    More: With no_sync, each rank keeps its own gradients until the last micro-batch, when the sums are exchanged.
    Earlier exchanges cost time and count some samples twice; without any exchange the ranks diverge.

    Fix: Check which torch version the ranks import.
    More: Train without accumulation until the cause is found.
    """
    rank = first_failure_of_kind(ranks, "accumulation_wrong")
    if rank is None:
        return _ok_beyond_quick(ranks, "no_sync accumulates and exchanges gradients correctly")
    return Problem(
        f"train: gradient accumulation is wrong on {rank_name(rank)}: {rank.error}",
        fix=commands("mgpu doctor --only packages", _report_of(rank, ranks)),
        evidence={"rank": rank.rank, "rung": "train", "difference": rank.evidence.get("difference")},
        subjects=(f"rank {rank.rank}",),
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
        return _ok_beyond_quick(ranks, "unused parameters are detected")
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


def _unused_strategy(ranks: Ranks) -> Problem | None:
    """Return the problem of GPU ranks that passed the steps without using the config's strategy, or None."""
    proof = {"fsdp": "shard_bytes", "deepspeed": "prepared_difference"}.get(ranks.strategy)
    without = [rank for rank in ranks_that_passed(ranks, "train") if proof is not None and proof not in rank.measured]
    if ranks.cpu or not without or (ranks.strategy == "fsdp" and ranks.expected == 1):
        return None
    rank = without[0]
    why = next((text for text in rank.skipped if ranks.strategy.upper() in text.upper()), "no reason reported")
    return Problem(
        f"train: {rank_name(rank)} ran no step with {ranks.strategy}, which the config requires",
        f"The steps passed with another strategy ({why}).",
        Fix(
            "Check which torch, accelerate and DeepSpeed versions the ranks import.",
            ("mgpu doctor --only packages", _report_of(rank, ranks)),
        ),
        {"rank": rank.rank, "rung": "train", "wanted": ranks.strategy, "found": None},
        tuple(f"rank {r.rank}" for r in without),
    )


@check(Severity.ERROR, source="https://huggingface.co/docs/accelerate/usage_guides/fsdp", because_of=LOST)
def strategy_not_applied(ranks: Ranks) -> Answer:
    """The strategy that accelerate trains with differs from the config's.

    Why: The config's strategy settings have no effect.
    More: accelerate selects the strategy from the environment that the launcher sets, and silently falls back. Each
    rank then has the whole model, and runs out of memory with a batch that was planned for a shard.

    Fix: Check the config against the installed accelerate version.
    """
    rank = first_failure_of_kind(ranks, "strategy_not_applied")
    if rank is None:
        return _unused_strategy(ranks) or _ok_beyond_quick(ranks, f"{ranks.strategy} as configured")
    wanted, found = rank.evidence.get("wanted"), rank.evidence.get("found")
    return Problem(
        f"train: the config requires {wanted}, but accelerate trains {rank_name(rank)} with {found}",
        fix=commands("mgpu configure --validate accelerate.yaml"),
        evidence={"rank": rank.rank, "rung": "train", "wanted": wanted, "found": found},
        subjects=tuple(f"rank {r.rank}" for r in own_failures(ranks) if r.kind == rank.kind),
    )


@check(Severity.ERROR, source=_ACCELERATOR, because_of=(*LOST, "strategy_not_applied"))
def accelerate_trains_otherwise(ranks: Ranks) -> Answer:
    """Steps with accelerate have a different loss than a single process on the whole batch.

    Why: The strategy itself gave the right gradients; its settings in the config change the steps.
    More: Such settings are mixed precision, offloading, clipping, or a DeepSpeed file.

    Fix: Check the strategy's settings, then remove them one by one.
    """
    rank = first_failure_of_kind(ranks, "prepared_differs")
    if rank is None:
        tried = [rank for rank in ranks.ranks if "prepared_difference" in rank.measured]
        return Ok(f"losses match a single process on {counted(len(tried), 'rank')}") if tried else Skip("not tested")
    step, found, wanted = (rank.evidence.get(key) for key in ("step", "found", "wanted"))
    return Problem(
        f"train: {rank.error} ({rank_name(rank)})",
        fix=commands("mgpu configure --validate accelerate.yaml"),
        evidence={"rank": rank.rank, "rung": "train", "step": step, "found": found, "wanted": wanted},
        subjects=(f"rank {rank.rank}",),
    )


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
        f"train: {'rank' if len(odd) == 1 else 'ranks'} {listed(odd)} {'has' if len(odd) == 1 else 'have'} "
        "different parameters than the rest"
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
