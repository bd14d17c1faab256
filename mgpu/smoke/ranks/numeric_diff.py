"""Are this rank's numbers those of one process, and if not, who spoiled them?

Every rank can compute what every other should have contributed, so the rank at fault names itself, and the others name
it where the error has the direction of its share. Nothing is exchanged for it.
"""

from __future__ import annotations

from typing import Any

import torch

from . import reference_model
from .context import Here
from .journal import Failure

# Largest difference from the reference, relative to the largest number of the tensor. Measured on 1 to 4 gloo CPU
# ranks, DDP and FSDP2, accumulation 1 and 4, torch 2.13: 3e-7 in fp32, bf16 and fp16 alike, since every rank's share is
# computed by the same operations on the same shapes and only the sum of shares runs in another order. A rank of 2 that
# scales its gradients by 1.01 gives 1e-2, a wrong shard more. In low precision there is room for GPU kernels that add
# in no fixed order.
TOLERANCE = {"no": 1e-4, "bf16": 1e-3, "fp16": 1e-3, "fp8": 1e-3}
# A share explains an error when what is left of the error without it is less than this part of it.
_EXPLAINS = 0.05


class Judge:
    """Compares a strategy's numbers with the reference's; a Failure says which rank is at fault."""

    def __init__(self, here: Here, strategy: Any, reference: reference_model.Reference, precision: str) -> None:
        self.here, self.strategy, self.reference = here, strategy, reference
        self.tolerance = TOLERANCE[precision]

    def start(self) -> None:
        """Every rank begins with the parameters of rank 0."""
        apart = self._parameters_apart()
        if not apart <= self.tolerance:
            raise Failure(
                f"begins with other parameters than rank 0 (off by {apart:.1e})",
                "parameters_not_synchronised",
                difference=apart,
                step=0,
                suspects=[self.here.rank],
            )

    def own(self, found: list[Any], step: int) -> None:
        """The gradients of this rank's own samples, before anything is exchanged."""
        expected = self.reference.own(self.here.rank, step)
        apart = reference_model.difference(found, expected)
        if apart <= self.tolerance:
            return
        if self.here.world > 1 and reference_model.difference(found, self._mean(step)) <= self.tolerance:
            raise Failure(
                "gradients were exchanged although no_sync forbids it",
                "accumulation_wrong",
                difference=apart,
                suspects=[self.here.rank],
            )
        raise Failure(
            f"the gradients of its own samples are off by {apart:.1e}, before any exchange",
            "own_gradients_wrong",
            difference=apart,
            step=step + 1,
            suspects=[self.here.rank],
        )

    def _mean(self, step: int) -> list[Any]:
        """Of all ranks' gradients of one micro-batch."""
        world = self.here.world
        shares = [self.reference.own(rank, step) for rank in range(world)]
        return [sum(parts) / world for parts in zip(*shares, strict=True)]

    def gradients(self, found: list[Any], step: int) -> float:
        """After the exchange; how far they are off."""
        whole = [parameter.grad for parameter in self.reference.model.parameters()]
        expected = self.strategy.held(whole)
        apart = reference_model.difference(found, expected, whole)
        if not apart <= self.tolerance:
            self._accuse(found, expected, apart, step)
        return apart

    def parameters(self, step: int) -> None:
        """After the optimizer's step."""
        apart = self._parameters_apart()
        if not apart <= self.tolerance:
            raise Failure(
                f"step {step + 1}: its parameters are not what the gradients make of them (off by {apart:.1e})",
                "parameters_not_synchronised",
                difference=apart,
                step=step + 1,
                suspects=[self.here.rank],
            )

    def _parameters_apart(self) -> float:
        whole = list(self.reference.model.parameters())
        return reference_model.difference(self.strategy.parameters(), self.strategy.held(whole), whole)

    def _accuse(self, found: list[Any], expected: list[Any], apart: float, step: int) -> None:
        """Raise: its own parameters are off, or its own share, or another's, or nobody can be named."""
        drifted = self._parameters_apart()
        if not drifted <= self.tolerance:
            raise Failure(
                f"step {step + 1}: its parameters are off by {drifted:.1e}, and so are the gradients",
                "parameters_not_synchronised",
                difference=drifted,
                step=step + 1,
                suspects=[self.here.rank],
            )
        if hasattr(self.strategy, "alone"):
            self.own(self.strategy.alone(*self.reference.taught.of(self.here.rank, step)), step)
        raise Failure(
            f"step {step + 1}: gradients differ from the single-process reference by {apart:.1e}",
            "gradients_differ",
            difference=apart,
            tolerance=self.tolerance,
            step=step + 1,
            suspects=self._shares_that_explain(found, expected),
        )

    def _shares_that_explain(self, found: list[Any], expected: list[Any]) -> list[int]:
        """The ranks whose share of the gradients, larger or smaller, would make up for the error; one or none."""
        error = torch.cat([(a.float() - b.float()).reshape(-1) for a, b in zip(found, expected, strict=True)])
        left = []
        for share in self.reference.shares:
            direction = torch.cat([part.reshape(-1).float() for part in self.strategy.held(share)])
            along = (error @ direction) / (direction @ direction).clamp(min=1e-30)
            left.append(float((error - along * direction).norm() / error.norm().clamp(min=1e-30)))
        return [rank for rank, rest in enumerate(left) if rest < _EXPLAINS]
