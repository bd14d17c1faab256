"""DistributedDataParallel: the whole model on every rank, with averaged gradients."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch

from . import reference_model
from .context import Here


class Replicated:
    """The model of rank 0 on every rank; the plain model on a single rank."""

    compared_steps = reference_model.STEPS

    def __init__(self, here: Here, precision: str, **options: Any) -> None:
        self.name = "DDP" if here.world > 1 else "one process"
        self.precision = precision
        self.forward = reference_model.autocast(here, precision)
        self.scaler: Any = None
        if precision == "fp16":
            self.scaler = torch.amp.GradScaler(here.device.type, init_scale=reference_model.LOSS_SCALE)
        # Different numbers on every rank: DDP must copy those of rank 0 to all.
        self.plain = reference_model.model(here, reference_model.SEED + here.rank)
        self.model = wrap_ddp(here, self.plain, **options) if here.world > 1 else self.plain
        self.optimizer = reference_model.optimizer(self.model.parameters())

    def begin(self) -> None:
        """Start a new optimizer step."""
        self.optimizer.zero_grad()

    def micro_step(self, inputs: Any, targets: Any, micro_steps: int, last: bool) -> Any:
        """Run forward and backward; gradients are exchanged in the last micro-step only. Returns the loss."""
        waits = self.model is self.plain or last
        with nullcontext() if waits else self.model.no_sync():
            loss = reference_model.loss_of(self.forward(self.model, inputs), targets)
            scaled = loss / micro_steps
            (self.scaler.scale(scaled) if self.scaler else scaled).backward()
        return loss.detach()

    def alone(self, inputs: Any, targets: Any) -> list[Any]:
        """Return the gradients of this rank before any exchange."""
        self.begin()
        self.micro_step(inputs, targets, 1, last=False)
        scale = self.scaler.get_scale() if self.scaler else 1.0
        found = [parameter.grad / scale for parameter in self.model.parameters()]
        self.begin()
        return found

    def gradients(self) -> list[Any]:
        """Return the gradients after the last micro-step."""
        if self.scaler:
            self.scaler.unscale_(self.optimizer)
        return [parameter.grad for parameter in self.model.parameters()]

    def update(self) -> None:
        """Take the optimizer's step."""
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()

    def parameters(self) -> list[Any]:
        """Return the parameters that this rank stores: all."""
        return list(self.model.parameters())

    def held(self, whole: list[Any]) -> list[Any]:
        """Return the part of whole tensors that this rank stores."""
        return whole

    def gathered(self) -> list[Any]:
        """Return the whole parameters."""
        return self.parameters()

    def state(self) -> list[Any]:
        """Return the optimizer's momentum buffers."""
        return [self.optimizer.state[p]["momentum_buffer"] for p in self.model.parameters()]


def wrap_ddp(here: Here, plain: Any, **options: Any) -> Any:
    """Return the model wrapped in DDP, as documented for this device."""
    devices = [here.device.index] if here.on_gpu else None
    return torch.nn.parallel.DistributedDataParallel(plain, device_ids=devices, **options)
