"""In which step do the gradients of two ranks differ first?"""

from __future__ import annotations

from dataclasses import dataclass

from mgpu.snapshot import OptimizerStep, Rehearsal

from ._rehearsed import differ, pairs_of_optimizers, parameter_name

# Equal gradients are equal bit by bit after an all-reduce; clipping and unscaling may round differently on other GPUs.
_TOLERANCE = 1e-4  # of the norm; gradients of different samples differ by far more


@dataclass(frozen=True)
class Difference:
    """The first difference."""

    rank: int
    other: int
    step: int
    parameter: str
    parameters: int  # that differ in this step
    line: str | None
    backward_line: str | None
    kind: str
    wrapped: int  # of the optimizer's parameters
    unsynced: bool


def _accumulates(step: OptimizerStep) -> bool:
    return step.unsynced or step.batches > 1


def first_difference(rehearsal: Rehearsal, *, accumulated: bool | None = None) -> Difference | None:
    """Return the first difference between the first rank and another one; None if there is none.

    `accumulated`: only in steps after several batches, or only in the others; None: in all steps.
    """
    for ranks, optimizers in pairs_of_optimizers(rehearsal):
        first = {step.number: step for step in optimizers[0].steps}
        for rank, optimizer in zip(ranks[1:], optimizers[1:], strict=True):
            for step in optimizer.steps:
                other = first.get(step.number)
                if other is None or (accumulated is not None and _accumulates(step) != accumulated):
                    continue
                pairs = zip(other.gradients, step.gradients, strict=False)
                wrong = [index for index, (a, b) in enumerate(pairs) if differ(a, b, _TOLERANCE)]
                if wrong:
                    return Difference(
                        ranks[0].rank,
                        rank.rank,
                        step.number,
                        parameter_name(optimizer, wrong[0]),
                        len(wrong),
                        step.line,
                        step.backward_line,
                        optimizer.kind,
                        optimizer.wrapped,
                        step.unsynced,
                    )
    return None


def compared_steps(rehearsal: Rehearsal, *, accumulated: bool) -> int:
    """Return how many steps of the first rank have gradients that can be compared."""
    first = rehearsal.ranks[0].optimizers
    return sum(_accumulates(step) == accumulated and bool(step.gradients) for one in first for step in one.steps)
