"""The model of stage "train", and its training on a single process as the reference.

A small model with a few blocks for sharding to wrap. Every rank knows the whole batch of each optimizer step, so it can
compute what every other rank should have computed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from . import compute
from .context import Here

STEPS = 20  # with one micro-batch each; enough for a wrong gradient to show in the parameters
MICRO_BATCH = 4
WIDTH, INNER, CLASSES, BLOCKS = 32, 64, 10, 2
SEED = 7
LEARNING_RATE, MOMENTUM = 0.2, 0.9
# Every rank does the work of all ranks for the reference: the maximum of its forward and backward passes.
_REFERENCE_PASSES = 160
_LEAST_STEPS = 3
# fp16 overflows beyond 65504: this scale keeps the model's gradients in range, and is a power of two (no rounding).
LOSS_SCALE = 1024.0
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}  # fp8 itself runs through accelerate


class Block(nn.Module):  # type: ignore[misc]
    """One of the blocks that a sharded strategy wraps."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(INNER)
        self.up, self.down = nn.Linear(INNER, 2 * INNER), nn.Linear(2 * INNER, INNER)

    def forward(self, x: Any) -> Any:
        """Return the output of the residual block."""
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Model(nn.Module):  # type: ignore[misc]
    """A model with 36,000 parameters."""

    _no_split_modules = ("Block",)  # wrapped by accelerate if the config names no class

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(WIDTH, INNER)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.out = nn.Linear(INNER, CLASSES)

    def forward(self, x: Any) -> Any:
        """Return the class scores."""
        x = self.into(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def model(here: Here, seed: int = SEED) -> Any:
    """Return the model; it is equal on all ranks with the same seed."""
    torch.manual_seed(seed)  # drawn on the CPU: the same whatever the device
    return Model().to(here.device)


def optimizer(parameters: Iterable[Any]) -> Any:
    """Return SGD with momentum: one state tensor per parameter."""
    return torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=MOMENTUM)


def loss_of(scores: Any, targets: Any) -> Any:
    """Return the loss, computed in fp32 for scores of any type."""
    return nn.functional.cross_entropy(scores.float(), targets)


@dataclass(frozen=True)
class Batches:
    """Every rank's samples of every micro-step, on this rank's device."""

    inputs: Any  # [steps, micro-steps, ranks, MICRO_BATCH, WIDTH]
    targets: Any
    micro_steps: int

    @property
    def steps(self) -> int:
        """Return the number of optimizer steps."""
        return len(self.inputs)

    def of(self, rank: int, step: int, micro: int = 0) -> tuple[Any, Any]:
        """Return inputs and targets of a rank."""
        return self.inputs[step, micro, rank], self.targets[micro, rank]


def batches(here: Here, micro_steps: int, steps: int) -> Batches:
    """Return the same samples with new noise for each step, in learnable classes, so that the loss must fall."""
    generator = torch.Generator().manual_seed(11)
    shape = (micro_steps, here.world, MICRO_BATCH)
    samples = torch.randn(*shape, WIDTH, generator=generator)
    noise = torch.randn(steps, *shape, WIDTH, generator=generator)
    targets = (samples @ torch.randn(WIDTH, CLASSES, generator=generator)).argmax(-1)
    return Batches((samples + 0.1 * noise).to(here.device), targets.to(here.device), micro_steps)


Forward = Callable[[Any, Any], Any]  # (model, inputs) -> scores, in the precision of the strategy


def autocast(here: Here, precision: str) -> Forward:
    """Return a forward pass with autocast, like DDP in mixed precision: fp32 parameters, precision per operation."""
    dtype = DTYPES.get(precision)

    def forward(net: Any, x: Any) -> Any:
        with torch.autocast(here.device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            return net(x)

    return forward


def cast(precision: str) -> Forward:
    """Return a forward pass like FSDP2 in mixed precision: everything in one precision, master parameters in fp32."""
    dtype = DTYPES.get(precision)
    if dtype is None:
        return lambda net, x: net(x)

    def forward(net: Any, x: Any) -> Any:
        low = {name: parameter.to(dtype) for name, parameter in net.named_parameters()}
        return torch.func.functional_call(net, low, x.to(dtype))

    return forward


class Reference:
    """A single process training on the whole batch, micro-batch by micro-batch: only the order of sums differs."""

    def __init__(self, here: Here, taught: Batches, forward: Forward, scale: float, most_steps: int) -> None:
        self.here, self.taught, self.forward, self.scale = here, taught, forward, scale
        self.model = model(here)
        self.optimizer = optimizer(self.model.parameters())
        self.steps = min(most_steps, max(_LEAST_STEPS, _REFERENCE_PASSES // (here.world * taught.micro_steps)))
        # The contributions of each rank to the gradients of this step, micro-batch by micro-batch.
        self.shares: list[list[list[Any]]] = []

    def own(self, rank: int, step: int, micro: int = 0, micro_steps: int = 1) -> list[Any]:
        """Return the contribution of one micro-batch to the gradients of its rank."""
        inputs, targets = self.taught.of(rank, step, micro)
        loss = loss_of(self.forward(self.model, inputs), targets)
        gradients = torch.autograd.grad(loss / micro_steps * self.scale, list(self.model.parameters()))
        return [gradient / self.scale for gradient in gradients]

    def learn(self, step: int) -> list[Any]:
        """Return the gradients of the whole batch of a step; `update` takes the step."""
        world, micros = self.here.world, self.taught.micro_steps
        self.shares = []
        for rank in range(world):
            share = [[gradient / world for gradient in self.own(rank, step, m, micros)] for m in range(micros)]
            self.shares.append(share)
        for number, parameter in enumerate(self.model.parameters()):
            parameter.grad = sum(sum(part[number] for part in share) for share in self.shares)
        return [parameter.grad for parameter in self.model.parameters()]

    def update(self) -> None:
        """Take the optimizer step with the gradients of `learn`."""
        self.optimizer.step()

    def follow(self, parameters: Sequence[Any]) -> None:
        """Continue from these parameters: rounding to bf16 would amplify a difference in the last bit."""
        with torch.no_grad():
            for mine, theirs in zip(self.model.parameters(), parameters, strict=True):
                mine.copy_(theirs)


def difference(ours: Sequence[Any], theirs: Sequence[Any], whole: Sequence[Any] | None = None) -> float:
    """Return the largest difference, relative to the largest number of its (whole) tensor; inf if there is a NaN."""
    apart = []
    for a, b, of in zip(ours, theirs, whole or theirs, strict=True):
        if b.numel():
            most = (a.detach().float() - b.detach().float()).abs().max()
            apart.append(most / of.detach().abs().max().clamp(min=1e-3))
    worst = float(torch.stack(apart).max()) if apart else 0.0
    return worst if worst == worst else float("inf")


def digest(tensors: Iterable[Any]) -> str:
    """Return the digest of the bits of all tensors."""
    return hashlib.sha256("".join(map(compute.digest, tensors)).encode()).hexdigest()[:16]
