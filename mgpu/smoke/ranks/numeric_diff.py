"""Do this rank's numbers match a single process, and if not, which rank is at fault?

Every rank can compute what every other rank should have contributed. The rank at fault detects itself, and the others
detect it if the error has the direction of its contribution. No communication is needed.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from . import reference_model, store_sync
from .context import Here
from .journal import Failure

# Largest difference from the reference, relative to the largest number of the tensor. Measured on 1 to 4 gloo CPU
# ranks, DDP and FSDP2, accumulation 1 and 4, torch 2.13: 3e-7 in fp32, bf16 and fp16, because every rank's share is
# computed by the same operations on the same shapes and only the order of the sum differs. One of 2 ranks that scales
# its gradients by 1.01 causes 1e-2, a wrong shard more. The low-precision limits allow for GPU kernels that sum in no
# fixed order.
TOLERANCE = {"no": 1e-4, "bf16": 1e-3, "fp16": 1e-3, "fp8": 1e-3}
# A share explains an error if removing it leaves less than this fraction of the error.
_EXPLAINS = 0.05


class Judge:
    """Compares a strategy's numbers with the reference's. Raises Failure with the rank at fault."""

    def __init__(self, here: Here, strategy: Any, reference: reference_model.Reference, precision: str) -> None:
        self.here, self.strategy, self.reference = here, strategy, reference
        self.tolerance = TOLERANCE[precision]

    def start(self) -> None:
        """Check that this rank starts with the parameters of rank 0."""
        apart = self._parameters_apart()
        if not apart <= self.tolerance:
            message = f"starts with different parameters than rank 0 (off by {apart:.1e})"
            raise _own_fault(self.here, message, "parameters_not_synchronised", apart, 0)

    def own(self, found: list[Any], step: int) -> None:
        """Check the gradients of this rank's own samples, before any exchange."""
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
        message = f"the gradients of its own samples are off by {apart:.1e}, before any exchange"
        raise _own_fault(self.here, message, "own_gradients_wrong", apart, step + 1)

    def loss(self, loss: float, step: int) -> None:
        """Check that the loss of this rank's own samples is a number."""
        if not math.isfinite(loss):
            message = f"step {step + 1}: the loss of its own samples is {loss}"
            raise _own_fault(self.here, message, "own_gradients_wrong", math.inf, step + 1)

    def finite(self, found: list[Any], step: int) -> None:
        """Check that the gradients after the exchange are numbers, in a step that is not compared otherwise."""
        if not all(bool(torch.isfinite(gradient).all()) for gradient in found):
            self._differ(math.inf, step, [])

    def _mean(self, step: int) -> list[Any]:
        """Return the mean of all ranks' gradients of one micro-batch."""
        world = self.here.world
        shares = [self.reference.own(rank, step) for rank in range(world)]
        return [sum(parts) / world for parts in zip(*shares, strict=True)]

    def gradients(self, found: list[Any], step: int) -> float:
        """Check the gradients after the exchange. Returns their difference from the reference."""
        whole = [parameter.grad for parameter in self.reference.model.parameters()]
        expected = self.strategy.held(whole)
        apart = reference_model.difference(found, expected, whole)
        if not apart <= self.tolerance:
            self._accuse(found, expected, apart, step)
        store_sync.publish_right(self.here, f"gradients {step}")
        return apart

    def parameters(self, step: int) -> None:
        """Check the parameters after the optimizer's step."""
        check_parameters(self.here, self._parameters_apart(), self.tolerance, step)

    def _parameters_apart(self) -> float:
        whole = list(self.reference.model.parameters())
        return reference_model.difference(self.strategy.parameters(), self.strategy.held(whole), whole)

    def _accuse(self, found: list[Any], expected: list[Any], apart: float, step: int) -> None:
        """Raise Failure for its own parameters, its own share, another rank's share, or an unknown rank."""
        drifted = self._parameters_apart()
        if not drifted <= self.tolerance:
            message = f"step {step + 1}: its parameters are off by {drifted:.1e}, and so are the gradients"
            raise _own_fault(self.here, message, "parameters_not_synchronised", drifted, step + 1)
        if hasattr(self.strategy, "alone"):
            self.own(self.strategy.alone(*self.reference.taught.of(self.here.rank, step)), step)
        self._differ(apart, step, self._shares_that_explain(found, expected))

    def _differ(self, apart: float, step: int, suspects: list[int]) -> None:
        """Raise Failure for wrong gradients after the exchange, with what the other ranks found in this step."""
        # They compare it at the same time, or wait in the next one. A rank that published nothing may have either.
        others = store_sync.reports_of_ranks(self.here, f"gradients {step}", f"{apart:.1e}")
        raise Failure(
            f"step {step + 1}: gradients differ from the single-process reference by {apart:.1e}",
            "gradients_differ",
            difference=apart,
            tolerance=self.tolerance,
            step=step + 1,
            suspects=suspects,
            wrong_on=[int(rank) for rank, finding in others.items() if finding != store_sync.RIGHT],
            right_on=[int(rank) for rank, finding in others.items() if finding == store_sync.RIGHT],
        )

    def _shares_that_explain(self, found: list[Any], expected: list[Any]) -> list[int]:
        """Return the rank whose scaled share of the gradients would explain the error, if there is one.

        Each micro-batch has its own factor: a rank may have dropped or repeated some of them.
        """
        error = _flat([a.float() - b.float() for a, b in zip(found, expected, strict=True)])
        if not torch.isfinite(error).all():
            return []
        left = []
        for share in self.reference.shares:
            parts = torch.stack([_flat(self.strategy.held(part)) for part in share], dim=1)
            # Normal equations: there are at most four micro-batches, and no LAPACK driver for tall matrices is needed.
            factors = torch.linalg.pinv(parts.T @ parts) @ (parts.T @ error)
            left.append(float((error - parts @ factors).norm() / error.norm().clamp(min=1e-30)))
        return [rank for rank, rest in enumerate(left) if rest < _EXPLAINS]


def check_parameters(here: Here, apart: float, tolerance: float, step: int) -> None:
    """Raise Failure if this rank's parameters after a step are further from the expected ones than the tolerance."""
    if not apart <= tolerance:
        message = f"step {step + 1}: its parameters do not match its gradients (off by {apart:.1e})"
        raise _own_fault(here, message, "parameters_not_synchronised", apart, step + 1)


def _own_fault(here: Here, message: str, kind: str, difference: float, step: int) -> Failure:
    """Return the failure of a rank that is at fault itself. `step`: counted from 1; 0 before the first."""
    return Failure(message, kind, difference=difference, step=step, suspects=[here.rank])


def _flat(tensors: list[Any]) -> Any:
    """Return all numbers as one vector, in fp64 on the CPU."""
    return torch.cat([tensor.detach().reshape(-1).cpu().double() for tensor in tensors])
