"""Do all ranks have the same parameters and gradients?"""

from __future__ import annotations

from mgpu.check import Answer, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Rehearsal
from mgpu.text import counted

from ._gradients import Difference, compared_steps, first_difference
from ._rehearsed import at, differ, pairs_of_optimizers, parameter_name, place, replicated

_DDP = "https://pytorch.org/docs/stable/notes/ddp.html"
_NO_SYNC = "https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"
_START = 1e-6  # of the norm: parameters are sent, so they are equal bit by bit


@check(
    Severity.ERROR,
    source=_DDP,
    because_of=("script_failed", "separate_trainings"),
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
    same_as=("script_model_not_prepared", "script_wrapped_model_not_used", "script_trains_unwrapped_model"),
    given=replicated,
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
    return Ok(f"equal gradients in {counted(steps, 'step')}") if steps else Skip("all steps accumulate gradients")


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
    given=replicated,
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
