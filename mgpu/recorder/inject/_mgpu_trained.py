"""How many bytes have the parameters that this rank trains? With DDP, the ranks exchange at least as many.

Runs with any Python from 3.8 on. It never imports torch.
"""

from __future__ import annotations

import contextlib
from struct import calcsize, pack_into
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:  # imported from mgpu, not in a rank
    from mgpu.recorder.inject._mgpu_recorder import MEMORY, MEMORY_AT
else:
    from _mgpu_recorder import MEMORY, MEMORY_AT

TRAINED = "=Q"  # struct of what follows the peaks in the beat file
TRAINED_AT = MEMORY_AT + calcsize(MEMORY)


def hook(recorder: Any, module: Any) -> None:
    """Count the parameters of each optimizer after its first step. `module`: torch.optim.optimizer."""
    seen: set[int] = set()
    parameters: dict[int, int] = {}

    def stepped(optimizer: Any, *_: Any) -> None:
        if id(optimizer) in seen or recorder._beat is None:
            return
        seen.add(id(optimizer))
        with contextlib.suppress(Exception):
            for group in optimizer.param_groups:
                for one in group["params"]:
                    if one.grad is not None:
                        parameters[id(one)] = one.numel() * one.element_size()
            pack_into(TRAINED, recorder._beat, TRAINED_AT, sum(parameters.values()))

    module.register_optimizer_step_post_hook(stepped)
