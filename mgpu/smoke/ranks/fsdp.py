"""FSDP 2: every rank holds a part of each parameter, its gradient and its optimizer state."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh

from . import reference_model
from .context import Here
from .journal import Failure


class Sharded:
    """The model cut along the first dimension of every parameter."""

    name = "FSDP2"
    compared_steps = 4  # each gathers the whole model, so that the reference goes on from the same bits

    def __init__(self, here: Here, precision: str) -> None:
        fully_shard, policy = _api()
        self.here = here
        self.forward = reference_model.cast(precision)
        self.scale = reference_model.LOSS_SCALE if precision == "fp16" else 1.0
        self.model = reference_model.model(here)
        self.whole = list(reference_model.model(here).parameters())
        dtype = reference_model.DTYPES.get(precision)
        # Gradients are added up in fp32, so that only the order of the sums differs from one process.
        mixed = policy(param_dtype=dtype, reduce_dtype=torch.float32 if dtype else None)
        # Of the ranks' own group: beside gloo init_device_mesh would make one of NCCL for tensors on GPUs.
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
                f"holds {found} of {sum(p.numel() for p in self.whole)} parameters, its part is {wanted}",
                "not_sharded",
                found=found,
                wanted=wanted,
                suspects=[self.here.rank],
            )

    def begin(self) -> None:
        """A new optimizer step."""
        self.optimizer.zero_grad()

    def micro_step(self, inputs: Any, targets: Any, micro_steps: int, last: bool) -> Any:
        """Forward and backward; gradients are exchanged with the last micro-step only. The loss."""
        self.model.set_requires_gradient_sync(last)
        loss = reference_model.loss_of(self.model(inputs), targets)
        (loss / micro_steps * self.scale).backward()
        return loss.detach()

    def gradients(self) -> list[Any]:
        """After the last micro-step: this rank's part."""
        for parameter in self.model.parameters():
            if self.scale != 1.0:
                parameter.grad.div_(self.scale)
        return [_local(parameter.grad) for parameter in self.model.parameters()]

    def update(self) -> None:
        """The optimizer's step."""
        self.optimizer.step()

    def parameters(self) -> list[Any]:
        """What this rank holds of them."""
        return [_local(parameter) for parameter in self.model.parameters()]

    def held(self, whole: list[Any]) -> list[Any]:
        """The part of whole tensors that this rank holds: fully_shard cuts as torch.chunk does."""
        return [_part(tensor, self.here.world, self.here.rank) for tensor in whole]

    def gathered(self) -> list[Any]:
        """The whole parameters; every rank must ask."""
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
