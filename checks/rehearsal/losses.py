"""Are the losses numbers, and close to each other?"""

from __future__ import annotations

from mgpu.check import Answer, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Rehearsal
from mgpu.text import counted

from ._rehearsed import at, place, several_ranks

_BACKWARD = "https://pytorch.org/docs/stable/generated/torch.Tensor.backward.html"
_FAR = 10.0  # times; the mean losses of two ranks on different samples of one data set are of one size


@check(Severity.ERROR, source=_BACKWARD)
def loss_not_finite(rehearsal: Rehearsal) -> Answer:
    """A loss is NaN or infinite in the first steps.

    Why: Its gradients are not finite either, and the exchange gives them to all ranks: the model is lost.

    Fix: Look for a division by zero, a logarithm of zero, a learning rate that is too high, or fp16 without a scaler.
    """
    for rank in rehearsal.ranks:
        for number, loss in enumerate(rank.losses, 1):
            if loss.value is None:
                return Problem(
                    f"the loss of rank {rank.rank} is {loss.text or 'not a number'} in backward pass {number}"
                    f"{at(loss.line)}",
                    evidence={"rank": rank.rank, "backward": number},
                    subjects=(f"rank {rank.rank}",),
                    place=place(loss.line),
                )
    seen = sum(len(rank.losses) for rank in rehearsal.ranks)
    return Ok(f"{counted(seen, 'loss', 'losses')} finite") if seen else Skip("no loss was seen")


@check(
    Severity.WARNING,
    source="measured torch 2.13 CPU 2026-11",
    because_of=("loss_not_finite", "separate_trainings", "different_start"),
    given=several_ranks,
)
def loss_far_apart(rehearsal: Rehearsal) -> Answer:
    """The losses of the ranks have different sizes.

    Why: All ranks train the same model on samples of the same data, so their losses are of one size. A rank with a far
    larger one has other data, other labels, or another scale of the loss.

    Fix: Compare what the ranks read and how they compute the loss.
    """
    middles = {
        rank.rank: sorted(map(abs, values))[len(values) // 2]
        for rank in rehearsal.ranks
        if len(values := [loss.value for loss in rank.losses if loss.value is not None]) > 1
    }
    if len(middles) < 2:
        return Skip("fewer than two ranks have two finite losses")
    high, low = max(middles, key=lambda n: middles[n]), min(middles, key=lambda n: middles[n])
    if middles[high] <= _FAR * middles[low] or middles[low] == 0.0:
        return Ok(f"losses from {middles[low]:.3g} to {middles[high]:.3g} (medians of the ranks)")
    line = next(loss.line for rank in rehearsal.ranks if rank.rank == high for loss in rank.losses)
    return Problem(
        f"the median loss is {middles[high]:.3g} on rank {high} and {middles[low]:.3g} on rank {low}{at(line)}",
        evidence={"rank": high, "loss": middles[high], "other": low, "others_loss": middles[low]},
        subjects=(f"rank {high}",),
        place=place(line),
    )
