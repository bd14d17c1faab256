"""Do all ranks have the same parameters and gradients?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Rehearsal, RehearsedOptimizer, RehearsedRank
from mgpu.text import counted

from ._gradients import Difference, compared_steps, first_difference
from ._rehearsed import (
    at,
    differ,
    exchanged,
    pairs_of_optimizers,
    parameter_name,
    place,
    replicated,
    several_ranks,
    trained,
    training_loaders,
)

_DDP = "https://pytorch.org/docs/stable/notes/ddp.html"
_NO_SYNC = "https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"
_FEW_SAMPLES = 16  # as the check of the script's source
_START = 1e-6  # of the norm: parameters are sent, so they are equal bit by bit


@check(
    Severity.ERROR,
    source=_DDP,
    because_of=("script_failed", "separate_trainings"),
    same_as=("script_loads_on_one_rank",),
    tags=("named_if_unproved",),
    given=replicated,
)
def different_start(rehearsal: Rehearsal) -> Answer:
    """The ranks start with different parameters.

    Why: Equal gradients keep parameters equal, they do not make them so. The ranks then train different models, and the
    one that is saved never had the averaged gradients.

    Fix: Wrap the model before the first step (DDP sends the parameters of rank 0), or use one seed on all ranks.
    """
    compared = 0
    for ranks, optimizers in pairs_of_optimizers(rehearsal):
        for rank, optimizer in zip(ranks[1:], optimizers[1:], strict=True):
            pairs = list(zip(optimizers[0].start, optimizer.start, strict=False))
            compared = max(compared, len(pairs))
            wrong = [index for index, (a, b) in enumerate(pairs) if differ(a, b, _START)]
            if renamed := _other_names(optimizers[0], optimizer):
                return _in_another_order(ranks[0], rank, optimizer, *renamed)
            if wrong or len(optimizers[0].start) != len(optimizer.start):
                name = parameter_name(optimizer, wrong[0]) if wrong else "the number of parameters"
                return Problem(
                    f"{name} differs between ranks {ranks[0].rank} and {rank.rank} before the first step"
                    f"{at(optimizer.line)}",
                    evidence={"rank": rank.rank, "parameters": len(wrong), "of": optimizer.parameters},
                    subjects=(f"rank {rank.rank}",),
                    place=place(optimizer.line),
                )
    return Ok(f"{counted(compared, 'parameter')} equal at the start") if compared else Skip("no parameters were seen")


def _other_names(one: RehearsedOptimizer, other: RehearsedOptimizer) -> tuple[str, str] | None:
    """Return the names of the first parameters with one number that have different names on two ranks."""
    pairs = zip(one.names, other.names, strict=False)
    return next(((a, b) for a, b in pairs if a and b and a != b), None)


def _in_another_order(
    rank: RehearsedRank, other: RehearsedRank, optimizer: RehearsedOptimizer, name: str, its: str
) -> Problem:
    return Problem(
        f"the parameters have another order on rank {other.rank}: {its} is where rank {rank.rank} has {name}"
        f"{at(optimizer.line)}",
        "Parameters and gradients are exchanged by their order, so different ones are averaged.",
        Fix("Build the model in one order on all ranks: iterate over lists, not over sets."),
        {"rank": other.rank, "parameters": 1, "of": optimizer.parameters},
        (f"rank {other.rank}",),
        place(optimizer.line),
    )


def _problem(found: Difference, text: str) -> Problem:
    unwrapped = "" if found.wrapped else f" The parameters of {found.kind} belong to no wrapped model."
    return Problem(
        f"the gradient of {found.parameter} differs between ranks {found.rank} and {found.other} in step {found.step}"
        f"{at(found.line)}",
        f"{text}{unwrapped}",
        evidence={"rank": found.other, "step": found.step, "parameters": found.parameters, "wrapped": found.wrapped},
        subjects=(f"rank {found.other}",),
        place=place(found.backward_line or found.line),
    )


@check(
    Severity.ERROR,
    source=_DDP,
    because_of=("script_failed", "separate_trainings", "different_start", "rank_steps_differ"),
    same_as=(
        "script_model_not_prepared",
        "script_model_not_wrapped",
        "script_wrapped_model_not_used",
        "script_trains_unwrapped_model",
        "script_trains_inner_model",
    ),
    tags=("named_if_unproved",),
    given=exchanged,
)
def gradients_differ_between_ranks(rehearsal: Rehearsal) -> Answer:
    """The gradients differ between the ranks when the optimizer steps.

    Why: Gradients are averaged only for the parameters of the wrapped model, in a backward pass that starts from its
    own output.

    Fix: Prepare or wrap every model that is trained, and call the wrapped model itself.
    """
    found = first_difference(rehearsal, accumulated=False)
    if found is not None:
        return _problem(
            found, "Gradients are averaged only for a wrapped model, in a backward pass from its own output."
        )
    if any(not rank.wrappers for rank in rehearsal.ranks) and any((r.world or 1) < 2 for r in rehearsal.ranks):
        return Skip("the ranks train separately")
    steps = compared_steps(rehearsal, accumulated=False)
    return Ok(f"equal gradients in {counted(steps, 'step')}" if steps else "all steps accumulate gradients")


@check(
    Severity.ERROR,
    source=_NO_SYNC,
    because_of=(
        "script_failed",
        "separate_trainings",
        "different_start",
        "rank_steps_differ",
        "gradients_differ_between_ranks",
    ),
    same_as=("script_never_exchanges",),
    given=exchanged,
)
def gradients_differ_in_accumulation(rehearsal: Rehearsal) -> Answer:
    """After accumulation over several batches, the gradients differ between the ranks.

    Why: Inside no_sync nothing is exchanged. The backward pass of the last batch before a step must be outside of it;
    then it exchanges the sum of all batches.

    Fix: Leave no_sync for the last batch before each optimizer step, or use accelerator.accumulate.
    """
    found = first_difference(rehearsal, accumulated=True)
    if found is not None:
        return _problem(found, "The last backward pass before the step did not exchange what was accumulated.")
    steps = compared_steps(rehearsal, accumulated=True)
    return Ok(f"equal gradients in {counted(steps, 'step')} of accumulation") if steps else Skip("no accumulation")


@check(
    Severity.ERROR,
    source="https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html",
    because_of=("script_failed",),
    same_as=("script_optimizer_before_sharding", "script_replaces_trained_layer"),
    given=trained,
)
def optimizer_without_gradients(rehearsal: Rehearsal) -> Answer:
    """An optimizer steps, but none of its parameters ever has a gradient.

    Why: It changes nothing. It was created before something replaced the model's parameters (fully_shard, a move to
    another device, a new head), so it has the old ones.

    Fix: Create the optimizer after the model is wrapped and moved, or prepare both in one call of accelerator.prepare.
    """
    seen = 0
    for rank in rehearsal.ranks:
        for optimizer in rank.optimizers:
            steps = [step for step in optimizer.steps if step.gradients]
            if steps and not any(one is not None for step in steps for one in step.gradients):
                return Problem(
                    f"{optimizer.kind} makes {counted(len(steps), 'step')} on rank {rank.rank}, and none of its "
                    f"{counted(optimizer.parameters, 'parameter')} has a gradient{at(optimizer.line)}",
                    evidence={"rank": rank.rank, "parameters": optimizer.parameters, "wrapped": optimizer.wrapped},
                    subjects=(f"rank {rank.rank}",),
                    place=place(optimizer.line),
                )
            seen += len(steps)
    return Ok(f"gradients in {counted(seen, 'step')}") if seen else Skip("no optimizer step was seen")


@check(
    Severity.INFO,
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html",
    same_as=("script_batch_norm_not_synced",),
    given=several_ranks,
)
def batch_norm_of_few_samples(rehearsal: Rehearsal) -> Answer:
    """Batch normalization uses small batches, separately on each rank.

    Why: BatchNorm computes mean and variance over the batch of one rank. With so few samples they are noisy, and the
    model gets worse than with the whole batch on one GPU.

    Fix: Convert the model before it is wrapped: torch.nn.SyncBatchNorm.convert_sync_batchnorm(model).
    """
    found = [(rank, one) for rank in rehearsal.ranks for one in rank.wrappers if one.batch_norms]
    if not any(rank.wrappers for rank in rehearsal.ranks):
        return Skip("no wrapped model was seen")
    if not found:
        return Ok("no BatchNorm of each rank's own batch")
    sizes = [size for rank in rehearsal.ranks for loader in training_loaders(rank) if (size := loader.largest)]
    if not sizes:
        return Skip("the batch size was not seen")
    if not 1 < min(sizes) < _FEW_SAMPLES:
        return Ok(f"BatchNorm over {counted(min(sizes), 'sample')} on each rank")
    rank, one = found[0]
    layers, samples = counted(one.batch_norms, "BatchNorm layer"), counted(min(sizes), "sample")
    return Problem(
        f"{layers} over {samples} on each rank{at(one.line)}",
        evidence={"rank": rank.rank, "layers": one.batch_norms, "samples": min(sizes)},
        place=place(one.line),
    )
