"""FSDP2: every rank stores a part of each parameter, its gradient and its optimizer state."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh

from . import reference_model
from .context import Here
from .journal import Failure


class Sharded:
    """The model, sharded along the first dimension of every parameter."""

    name = "FSDP2"
    compared_steps = 4  # each gathers the whole model, so the reference continues from the same bits

    def __init__(self, here: Here, precision: str) -> None:
        fully_shard, policy = _api()
        self.here, self.precision = here, precision
        self.forward = reference_model.cast(precision)
        self.scale = reference_model.LOSS_SCALE if precision == "fp16" else 1.0
        self.model = reference_model.model(here)
        self.whole = list(reference_model.model(here).parameters())
        dtype = reference_model.DTYPES.get(precision)
        # Gradients are summed in fp32, so only the order of the sums differs from a single process.
        mixed = policy(param_dtype=dtype, reduce_dtype=torch.float32 if dtype else None)
        # From the existing group: with gloo, init_device_mesh would create an NCCL group for GPU tensors.
        mesh = DeviceMesh.from_group(torch.distributed.group.WORLD, here.device.type)
        for block in self.model.blocks:
            fully_shard(block, mesh=mesh, mp_policy=mixed)
        fully_shard(self.model, mesh=mesh, mp_policy=mixed)
        self.optimizer = reference_model.optimizer(self.model.parameters())
        self._must_hold_its_part_only()

    def _must_hold_its_part_only(self) -> None:
        wanted = sum(part.numel() for part in self.held(self.whole))
        found = sum(part.numel() for part in self.parameters())
        self.here.measured(shard_bytes=4 * found, model_bytes=4 * sum(p.numel() for p in self.whole))
        if found != wanted:
            raise Failure(
                f"stores {found} of {sum(p.numel() for p in self.whole)} parameters, its share is {wanted}",
                "not_sharded",
                found=found,
                wanted=wanted,
                suspects=[self.here.rank],
            )

    def begin(self) -> None:
        """Start a new optimizer step."""
        self.optimizer.zero_grad()

    def micro_step(self, inputs: Any, targets: Any, micro_steps: int, last: bool) -> Any:
        """Run forward and backward; gradients are exchanged in the last micro-step only. Returns the loss."""
        self.model.set_requires_gradient_sync(last)
        loss = reference_model.loss_of(self.model(inputs), targets)
        (loss / micro_steps * self.scale).backward()
        return loss.detach()

    def gradients(self) -> list[Any]:
        """Return this rank's part of the gradients after the last micro-step."""
        for parameter in self.model.parameters():
            if self.scale != 1.0:
                parameter.grad.div_(self.scale)
        return [_local(parameter.grad) for parameter in self.model.parameters()]

    def update(self) -> None:
        """Take the optimizer's step."""
        self.optimizer.step()

    def parameters(self) -> list[Any]:
        """Return the parts of the parameters that this rank stores."""
        return [_local(parameter) for parameter in self.model.parameters()]

    def held(self, whole: list[Any]) -> list[Any]:
        """Return the part of whole tensors that this rank stores: fully_shard splits like torch.chunk."""
        return [_part(tensor, self.here.world, self.here.rank) for tensor in whole]

    def gathered(self) -> list[Any]:
        """Return the whole parameters; every rank must call this."""
        return [parameter.full_tensor() for parameter in self.model.parameters()]


def _api() -> tuple[Any, Any]:
    try:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    except ImportError:  # torch 2.4 and 2.5
        from torch.distributed._composable.fsdp import MixedPrecisionPolicy, fully_shard
    return fully_shard, MixedPrecisionPolicy


def _local(tensor: Any) -> Any:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _part(tensor: Any, world: int, rank: int) -> Any:
    parts = torch.chunk(tensor, world)
    return parts[rank] if rank < len(parts) else tensor[:0]
