"""Do the ranks train one model, and the same that one process would?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Rank, Ranks
from mgpu.text import counted, listed

from ._causes import LOST
from ._diagnoses import DIAGNOSES
from ._rank_states import first_of_kind, odd_ones, own_failures, through, who

_DDP_CLASS = "https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"
_SYNC_BATCH_NORM = "https://pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html"
_ACCELERATOR = "https://huggingface.co/docs/accelerate/package_reference/accelerator"
_DDP = "https://pytorch.org/docs/stable/notes/ddp.html"
_FSDP = "https://pytorch.org/docs/stable/distributed.fsdp.fully_shard.html"
_NO_STEPS = "no rank came through the training steps"


def _well(ranks: Ranks, evidence: str) -> Answer:
    """Ok when ranks came through the steps."""
    trained = through(ranks, "train")
    return Ok(f"{evidence} on {counted(len(trained), 'rank')}") if trained else Skip(_NO_STEPS)


def _well_beyond_quick(ranks: Ranks, evidence: str) -> Answer:
    return Skip("not tried at the quick level") if ranks.level == "quick" else _well(ranks, evidence)


def _report_of(rank: Rank, ranks: Ranks) -> str:
    return shell("cat {:path}/rank{:number}.json", ranks.folder, rank.rank)


def _gpu_alone(rank: Rank) -> tuple[str, ...]:
    """The smoke test on the suspect's GPU alone; a rank on the CPU has none."""
    return (shell("CUDA_VISIBLE_DEVICES={:id} mgpu smoke-test --gpus 1", rank.gpu_uuid),) if rank.gpu_uuid else ()


@check(Severity.ERROR, source="measured torch 2.13 CPU 2026-11", because_of=LOST)
def rank_computes_wrong_gradients(ranks: Ranks) -> Answer:
    """A rank computes other gradients of its own samples than one process does.

    Why: They are wrong before any exchange, so this rank itself is the cause; what others say is a consequence.
    More: Neither the network nor another GPU has part in it: other data, another model, a library that differs, or a
    GPU that computes wrongly. Averaged, they spoil the step of every rank.

    Fix: Compare its machine and libraries with the others'.
    """
    rank = first_of_kind(ranks, "own_gradients_wrong")
    if rank is None:
        return _well(ranks, "the gradients of their own samples are right")
    off = float(rank.evidence.get("difference") or 0.0)
    option = f" (DDP with {rank.evidence['option']})" if rank.evidence.get("option") else ""
    return Problem(
        f"train: {who(rank)} computes wrong gradients of its own samples, off by {off:.1e}{option}",
        fix=(
            commands("mgpu doctor", _report_of(rank, ranks)),
            Fix("Does its GPU compute wrongly when it is alone?", _gpu_alone(rank), who="admin"),
        ),
        evidence={"rank": rank.rank, "rung": "train", "difference": off, "step": rank.evidence.get("step")},
        subjects=(f"rank {rank.rank}",),
    )


@check(Severity.ERROR, source=_DDP, because_of=(*LOST, "rank_computes_wrong_gradients"))
def parameters_not_synchronised(ranks: Ranks) -> Answer:
    """A rank trains with other parameters than the rest.

    Why: DDP sends the parameters of rank 0 to all when a model is wrapped, and equal gradients keep them equal. A rank
    that begins with others, or changes its copy by itself, trains a model of its own, and no error is raised.

    Fix: Look for code or a library that acts on one rank only; then test pairs of GPUs.
    """
    rank = first_of_kind(ranks, "parameters_not_synchronised")
    if rank is None:
        return _well(ranks, "the same parameters at every step")
    step, off = rank.evidence.get("step") or 0, float(rank.evidence.get("difference") or 0.0)
    option = f" (DDP with {rank.evidence['option']})" if rank.evidence.get("option") else ""
    when = f"at step {step}" if step else "from the start"
    return Problem(
        f"train: {who(rank)} holds other parameters than the rest {when}, off by {off:.1e}{option}",
        "What it was sent was lost or altered, or something on that rank alone changed its copy."
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
    """The exchanged gradients are not the mean of what the ranks computed.

    Why: What each rank computed was right; what came back was not the mean of it.
    More: Data was lost or altered on the way, or one rank sent something else than it had computed. The training goes
    on, and learns something else.

    Fix: Test pairs of GPUs to find the one that is at fault.
    """
    rank = first_of_kind(ranks, "gradients_differ")
    if rank is None:
        return _well(ranks, "exchanged gradients as on one process")
    off, suspects = float(rank.evidence.get("difference") or 0.0), list(rank.evidence.get("suspects") or ())
    by = f"; the error is in the share of rank {listed(suspects)}" if suspects else ""
    guilty = suspects[0] if suspects else rank.rank
    return Problem(
        f"train: {who(rank)} gets exchanged gradients that are off by {off:.1e}{by}",
        fix=commands("CUDA_VISIBLE_DEVICES=0,1 mgpu smoke-test"),
        evidence={"rank": guilty, "rung": "train", "difference": off, "step": rank.evidence.get("step")},
        subjects=tuple(f"rank {number}" for number in suspects or (rank.rank,)),
    )


@check(Severity.ERROR, source=_FSDP, because_of=LOST)
def parameters_not_sharded(ranks: Ranks) -> Answer:
    """FSDP left a rank with another part of the model than its own.

    Why: The model was not cut as FSDP does it.
    More: Each rank is to hold one part of every parameter; one that holds more has no memory to gain, and the config's
    batch will not fit.

    Fix: See which torch and which accelerate the ranks import.
    """
    rank = first_of_kind(ranks, "not_sharded")
    if rank is not None:
        found, wanted = rank.evidence.get("found"), rank.evidence.get("wanted")
        return Problem(
            f"train: {who(rank)} holds {found} parameters under FSDP, its part is {wanted}",
            fix=commands("mgpu doctor --only packages"),
            evidence={"rank": rank.rank, "rung": "train", "found": found, "wanted": wanted},
            subjects=(f"rank {rank.rank}",),
        )
    if ranks.strategy != "fsdp":
        return Skip("the strategy cuts no parameters")
    sharded = [rank for rank in ranks.ranks if "shard_bytes" in rank.measured]
    return Ok(f"{counted(len(sharded), 'rank')} hold their part only") if sharded else Skip("FSDP was not tried")


@check(
    Severity.ERROR,
    source="measured torch 2.13 CPU 2026-11",
    because_of=(*LOST, *DIAGNOSES, "rank_computes_wrong_gradients", "parameters_not_synchronised"),
)
def loss_does_not_fall(ranks: Ranks) -> Answer:
    """The loss does not fall in the training steps, on the same samples.

    Why: Gradients were right at the steps that were compared; what the optimizer made of them was not.
    More: The steps are so simple that they always learn; when they do not, the optimizer's steps have no effect, or the
    numbers are spoiled on every rank alike.

    Fix: See whether one process learns on this machine.
    """
    rank = first_of_kind(ranks, "loss_did_not_fall")
    if rank is None:
        return _well(ranks, "the loss falls")
    first, last = (float(rank.evidence.get(key) or 0.0) for key in ("first", "last"))
    return Problem(
        f"train: the loss does not fall on {who(rank)}: {first:.3f} -> {last:.3f}",
        fix=commands("mgpu smoke-test --cpu 1", "mgpu smoke-test --gpus 1"),
        evidence={"rank": rank.rank, "rung": "train", "first": first, "last": last},
        subjects=tuple(f"rank {r.rank}" for r in own_failures(ranks) if r.kind == rank.kind),
    )


@check(Severity.ERROR, source=_DDP_CLASS, because_of=LOST)
def gradient_accumulation_wrong(ranks: Ranks) -> Answer:
    """Gradients accumulated over micro-batches are not those of the whole batch.

    Why: The optimizer would step on other gradients than those of the batch that the config describes.
    More: Under no_sync each rank keeps its own gradients until the last micro-batch, when the sums are exchanged.
    Earlier exchanges cost time and count some samples twice; none at all lets the ranks drift apart.

    Fix: See which torch the ranks import.
    More: Train without accumulation until it is found.
    """
    rank = first_of_kind(ranks, "accumulation_wrong")
    if rank is None:
        return _well_beyond_quick(ranks, "no_sync keeps and exchanges gradients as it should")
    return Problem(
        f"train: gradient accumulation is wrong on {who(rank)}: {rank.error}",
        fix=commands("mgpu doctor --only packages", _report_of(rank, ranks)),
        evidence={"rank": rank.rank, "rung": "train", "difference": rank.evidence.get("difference")},
        subjects=(f"rank {rank.rank}",),
    )


@check(Severity.ERROR, source=_DDP, because_of=LOST)
def unused_parameters_not_reported(ranks: Ranks) -> Answer:
    """DDP does not notice a parameter that gets no gradient.

    Why: A script with such a parameter would train ranks that drift apart.
    More: DDP waits for every parameter's gradient before it exchanges a bucket. One that never comes must be an error
    at the next step; without it the bucket is never exchanged.

    Fix: See which torch the ranks import.
    """
    rank = first_of_kind(ranks, "unused_not_reported")
    if rank is None:
        return _well_beyond_quick(ranks, "an unused parameter is an error, as it should be,")
    return Problem(
        f"train: DDP on {who(rank)} trains on with a parameter that gets no gradient",
        fix=commands("mgpu doctor --only packages"),
        evidence={"rank": rank.rank, "rung": "train"},
        subjects=(f"rank {rank.rank}",),
    )


@check(Severity.ERROR, source=_SYNC_BATCH_NORM, because_of=(*LOST, "parameters_not_synchronised"))
def batch_norm_not_synchronised(ranks: Ranks) -> Answer:
    """The ranks hold different batch-norm statistics.

    Why: each rank sees its own samples. DDP sends the statistics of rank 0 to all before each forward pass, and
    SyncBatchNorm takes them over the whole batch. Without either, a model evaluates differently on every rank, and the
    one that is saved fits the samples of one rank.

    Fix: Leave DDP's broadcast_buffers on, and do not switch it off in the environment or a library.
    """
    held = {rank.rank: rank.digests["buffers"] for rank in ranks.ranks if "buffers" in rank.digests}
    rank = first_of_kind(ranks, "batch_norm_not_synchronised")
    fix = commands("mgpu doctor --only packages")
    if rank is not None:
        return Problem(
            f"train: {who(rank)}: {rank.error}",
            "The statistics are not those of the whole batch.",
            fix,
            {"rank": rank.rank, "rung": "train", "difference": rank.evidence.get("difference")},
            (f"rank {rank.rank}",),
        )
    if len(held) < 2:
        return Skip("fewer than two ranks trained with batch norm")
    if len(set(held.values())) == 1:
        return Ok(f"equal statistics on {len(held)} ranks")
    odd = odd_ones(held) or [number for number, digest in held.items() if digest != held[min(held)]]
    return Problem(
        f"train: batch norm is not synchronised: rank {listed(odd)} holds other statistics than rank {min(held)}",
        "DDP did not send the statistics of rank 0 to the others before the forward pass.",
        fix,
        {"rank": odd[0], "rung": "train", **{f"rank_{number}": digest for number, digest in held.items()}},
        tuple(f"rank {number}" for number in odd),
    )


def _unproven(ranks: Ranks) -> Problem | None:
    """Ranks on GPUs that came through the steps, and never took one with the strategy of the config."""
    proof = {"fsdp": "shard_bytes", "deepspeed": "prepared_difference"}.get(ranks.strategy)
    without = [rank for rank in through(ranks, "train") if proof is not None and proof not in rank.measured]
    if ranks.cpu or not without or (ranks.strategy == "fsdp" and ranks.expected == 1):
        return None
    rank = without[0]
    why = next((words for words in rank.skipped if ranks.strategy.upper() in words.upper()), "it was not told why")
    return Problem(
        f"train: {who(rank)} took no step with {ranks.strategy}, which the config asks for",
        f"What passed is another strategy ({why}).",
        Fix(
            "See which torch, accelerate and DeepSpeed the ranks import.",
            ("mgpu doctor --only packages", _report_of(rank, ranks)),
        ),
        {"rank": rank.rank, "rung": "train", "wanted": ranks.strategy, "found": None},
        tuple(f"rank {r.rank}" for r in without),
    )


@check(Severity.ERROR, source="https://huggingface.co/docs/accelerate/usage_guides/fsdp", because_of=LOST)
def strategy_not_applied(ranks: Ranks) -> Answer:
    """accelerate trains with another strategy than the config asks for.

    Why: The settings of the strategy have no effect.
    More: accelerate decides by the environment that the launcher sets, and falls back in silence; each rank then holds
    the whole model, and runs out of memory with a batch that was planned for a share of it.

    Fix: Check the config against the accelerate that is installed.
    """
    rank = first_of_kind(ranks, "strategy_not_applied")
    if rank is None:
        return _unproven(ranks) or _well_beyond_quick(ranks, f"{ranks.strategy} as configured")
    wanted, found = rank.evidence.get("wanted"), rank.evidence.get("found")
    return Problem(
        f"train: the config asks for {wanted}, accelerate trains {who(rank)} as {found}",
        fix=commands("mgpu configure --validate accelerate.yaml"),
        evidence={"rank": rank.rank, "rung": "train", "wanted": wanted, "found": found},
        subjects=tuple(f"rank {r.rank}" for r in own_failures(ranks) if r.kind == rank.kind),
    )


@check(Severity.ERROR, source=_ACCELERATOR, because_of=(*LOST, "strategy_not_applied"))
def accelerate_trains_otherwise(ranks: Ranks) -> Answer:
    """Steps through accelerate give another loss than one process on the whole batch.

    Why: The strategy itself gave the right gradients; its settings in the config change the steps.
    More: They are mixed precision, offloading, clipping, a DeepSpeed file.

    Fix: Check the settings of the strategy, then leave them out one by one.
    """
    rank = first_of_kind(ranks, "prepared_differs")
    if rank is None:
        tried = [rank for rank in ranks.ranks if "prepared_difference" in rank.measured]
        return Ok(f"losses as on one process on {counted(len(tried), 'rank')}") if tried else Skip("not tried")
    step, found, wanted = (rank.evidence.get(key) for key in ("step", "found", "wanted"))
    return Problem(
        f"train: {rank.error} ({who(rank)})",
        fix=commands("mgpu configure --validate accelerate.yaml"),
        evidence={"rank": rank.rank, "rung": "train", "step": step, "found": found, "wanted": wanted},
        subjects=(f"rank {rank.rank}",),
    )


@check(Severity.ERROR, source=_DDP, because_of=("rank_failed", "parameters_not_synchronised", "gradients_not_averaged"))
def parameters_differ_between_ranks(ranks: Ranks) -> Answer:
    """After the same training steps the ranks hold different parameters.

    Why: The copies of the model have drifted apart.
    More: DDP keeps them equal by averaging gradients: something between the GPUs loses or alters data.

    Fix: Test pairs of GPUs to find the one that is at fault.
    """
    held = {rank.rank: rank.parameters for rank in ranks.ranks if rank.parameters}
    if len(held) < 2:
        return Skip("fewer than two ranks trained")
    if len(set(held.values())) == 1:
        return Ok(f"equal bit for bit on {len(held)} ranks")
    odd = odd_ones(held)
    return Problem(
        f"train: {'rank' if len(odd) == 1 else 'ranks'} {listed(odd)} {'holds' if len(odd) == 1 else 'hold'} "
        "other parameters than the rest"
        if odd
        else f"train: ranks {listed(held)} hold different parameters",
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
    """After the same training steps the ranks hold different optimizer states.

    Why: Something on one rank changes the optimizer: a library, a patch, memory that was altered.
    More: Each rank steps by itself; with equal gradients the states stay equal. One that differs leads its parameters
    away from the others' at the next step, and makes a checkpoint that fits one rank only.

    Fix: See which libraries the ranks import.
    More: Create the optimizer the same way on every rank.
    """
    held = {rank.rank: rank.digests["optimizer"] for rank in ranks.ranks if "optimizer" in rank.digests}
    if len(held) < 2:
        return Skip("fewer than two ranks hold a whole optimizer state")
    if len(set(held.values())) == 1:
        return Ok(f"equal bit for bit on {len(held)} ranks")
    odd = odd_ones(held)
    names = f"rank {listed(odd)} holds another optimizer state than the rest" if odd else ""
    return Problem(
        f"train: {names or f'ranks {listed(held)} hold different optimizer states'}",
        fix=commands("mgpu doctor --only packages"),
        evidence={
            "rank": odd[0] if odd else None,
            "rung": "train",
            **{f"rank_{number}": d for number, d in held.items()},
        },
        subjects=tuple(f"rank {number}" for number in odd or held),
    )
