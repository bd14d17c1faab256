"""Does the optimizer's step follow from the gradients, on this rank's own parameters?

This needs no communication, so every step is compared, even if the whole model is compared only in the first ones.
"""

from __future__ import annotations

from typing import Any

from . import numeric_diff, reference_model
from .context import Here

_TOLERANCE = 1e-5  # measured with torch 2.13 on the CPU: 1e-7, from the order of operations


class OwnSteps:
    """SGD with momentum, computed beside the optimizer under test."""

    def __init__(self, here: Here, strategy: Any) -> None:
        self.here, self.strategy = here, strategy
        self.momentum: list[Any] = []
        self.expected: list[Any] = []

    def expect(self, gradients: list[Any]) -> None:
        """Compute the parameters after the step with these gradients."""
        old = self.momentum or [0.0] * len(gradients)
        self.momentum = [reference_model.MOMENTUM * a + b.detach() for a, b in zip(old, gradients, strict=True)]
        self.expected = [
            parameter.detach() - reference_model.LEARNING_RATE * momentum
            for parameter, momentum in zip(self.strategy.parameters(), self.momentum, strict=True)
        ]

    def compare(self, step: int) -> None:
        """Raise Failure if the optimizer took another step."""
        apart = reference_model.difference(self.strategy.parameters(), self.expected)
        numeric_diff.check_parameters(self.here, apart, _TOLERANCE, step)
