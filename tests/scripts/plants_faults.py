"""Faults planted in a rank, or in all: `patch` of a case of tests/rungs.py. The rank at fault is `VICTIM`.

Each is what a script, a library or a plugin in that process could do; the rungs themselves know nothing of it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from mgpu.smoke.ranks import ddp, fsdp, journal, reference_model

VICTIM = 1


def _at(word: str, do: Callable[[], Any]) -> None:
    """Do something once the journal has announced a step that begins with `word`."""
    real = journal.Journal.about_to
    left = [do]

    def about_to(self: Any, announced: str, limit_s: float | None = None) -> None:
        real(self, announced, limit_s)
        if announced.startswith(word) and left:
            left.pop()()

    setattr(journal.Journal, "about_to", about_to)  # noqa: B010


def _wrap(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    setattr(owner, name, make(getattr(owner, name)))


def _on_victim(fault: Callable[[], None]) -> Callable[[int], None]:
    def patch(rank: int) -> None:
        if rank == VICTIM:
            fault()

    return patch


def _hangs(name: str) -> Callable[[int], None]:
    """That function of torch.distributed never returns on the victim."""
    return _on_victim(lambda: _wrap(distributed, name, lambda real: lambda *_, **__: time.sleep(600)))


# Ends without an error

ends_with_0 = _on_victim(lambda: _at("step 3", lambda: os._exit(0)))
ends_with_3 = _on_victim(lambda: _at("step 3", lambda: os._exit(3)))
calls_sys_exit = _on_victim(lambda: _at("step 3", lambda: sys.exit(0)))
gives_up = _on_victim(lambda: _at("arithmetic in int64", lambda: sys.exit("no data set")))

# Hangs

hangs_in_init = _hangs("init_process_group")
hangs_in_new_group = _hangs("new_group")
hangs_in_destroy = _hangs("destroy_process_group")


@_on_victim
def skips_a_collective() -> None:
    """Its second all-reduce returns without taking part."""
    calls = [0]

    def make(real: Any) -> Any:
        def reduce(*arguments: Any, **keywords: Any) -> Any:
            calls[0] += 1
            return None if calls[0] == 2 else real(*arguments, **keywords)

        return reduce

    _wrap(distributed, "all_reduce", make)


@_on_victim
def calls_another_collective() -> None:
    """A plugin exchanges something of its own in a step."""
    _at("step 4", lambda: distributed.broadcast(torch.zeros(3), src=0))


# Numbers


@_on_victim
def broadcasts_wrong() -> None:
    """What it sends to all is wrong, and nothing else."""

    def make(real: Any) -> Any:
        def broadcast(tensor: Any, src: int, **keywords: Any) -> Any:
            return real(tensor.add_(1) if distributed.get_rank() == src else tensor, src=src, **keywords)

        return broadcast

    _wrap(distributed, "broadcast", make)


@_on_victim
def loss_becomes_nan() -> None:
    """Its loss is NaN in a late step."""
    _at("step 18", lambda: _wrap(reference_model, "loss_of", lambda real: lambda *a: real(*a) * float("nan")))


@_on_victim
def receives_another_average() -> None:
    """What comes out of the exchange is altered there only."""

    def hook(_: Any, bucket: Any) -> Any:
        done = distributed.all_reduce(bucket.buffer() / distributed.get_world_size(), async_op=True)
        return done.get_future().then(lambda reduced: reduced.value()[0] + 0.01)

    hook.__annotations__.clear()  # DDP wants its own types there, or none
    begin = DistributedDataParallel.__init__

    def init(self: Any, *arguments: Any, **keywords: Any) -> None:
        begin(self, *arguments, **keywords)
        self.register_comm_hook(None, hook)

    DistributedDataParallel.__init__ = init


@_on_victim
def drops_micro_batches() -> None:
    """Only the last micro-batch of a step counts there."""
    real = ddp.Replicated.micro_step

    def micro_step(self: Any, inputs: Any, targets: Any, micro_steps: int, last: bool) -> Any:
        if last and micro_steps > 1:
            self.optimizer.zero_grad()
        return real(self, inputs, targets, micro_steps, last)

    ddp.Replicated.micro_step = micro_step  # type: ignore[method-assign]


@_on_victim
def steps_wrong_once() -> None:
    """Its optimizer takes one wrong step, late: not one of those that are compared with the reference."""
    step = torch.optim.SGD.step
    wrapped: list[Any] = []

    def wrong(self: Any) -> None:
        step(self)
        if wrapped and self is wrapped[0].optimizer:
            with torch.no_grad():
                for parameter in wrapped[0].parameters():
                    parameter.mul_(1.01)
            wrapped.clear()

    real = fsdp.Sharded.micro_step
    counts = [0]

    def micro_step(self: Any, *arguments: Any) -> Any:
        counts[0] += 1
        wrapped[:] = [self] if counts[0] == 12 else []
        return real(self, *arguments)

    setattr(fsdp.Sharded, "micro_step", micro_step)  # noqa: B010
    torch.optim.SGD.step = wrong


@_on_victim
def adam_steps_wrong_once() -> None:
    """The same with the optimizer that accelerate prepared."""
    step, calls = torch.optim.AdamW.step, [0]

    def wrong(self: Any, closure: Any = None) -> Any:
        calls[0] += 1
        if calls[0] == 2:
            with torch.no_grad():
                for parameter in self.param_groups[0]["params"]:
                    parameter.add_(0.05 * torch.randn_like(parameter))
        return step(self)

    torch.optim.AdamW.step = wrong


# Settings


def no_autocast(_: int) -> None:
    """Autocast has no effect on any rank."""
    torch.autocast = lambda *_, **__: nullcontext()


no_autocast_on_one = _on_victim(lambda: no_autocast(0))


def no_low_precision(_: int) -> None:
    """FSDP's precision policy is empty on every rank."""
    real = fsdp._api
    fsdp._api = lambda: (real()[0], lambda **_: real()[1]())


@_on_victim
def another_precision() -> None:
    """accelerate gets another precision in the environment of one rank."""
    os.environ["ACCELERATE_MIXED_PRECISION"] = "no"


@_on_victim
def another_accumulation() -> None:
    """accelerate does not accumulate on one rank."""
    os.environ["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] = "1"


# Pace


@_on_victim
def sleeps_in_forward() -> None:
    """Each of its forward passes takes longer."""
    real = DistributedDataParallel.forward

    def forward(self: Any, inputs: Any) -> Any:
        time.sleep(0.1)
        return real(self, inputs)

    DistributedDataParallel.forward = forward
