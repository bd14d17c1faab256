"""Faults of a training, for one rank of the smoke test or all: `patch` of a case of tests/rungs.py.

Each is what a broken library, machine or script does; the rungs themselves know nothing of it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from mgpu.smoke.ranks import data, fsdp, identity, reference_model

_NEW_MOUNTS, _PRIVATE = 0x20000, 0x44000  # CLONE_NEWNS; MS_REC | MS_PRIVATE
VICTIM = 1


def _after_wrapping(change: Any, **options: Any) -> None:
    """Call `change(model)` on every DDP model when it is there."""
    begin = DistributedDataParallel.__init__

    def init(self: Any, *arguments: Any, **keywords: Any) -> None:
        begin(self, *arguments, **{**keywords, **options})
        change(self)

    DistributedDataParallel.__init__ = init


def gradients_scaled(rank: int) -> None:
    """One rank's gradients are 1 % too large."""

    def scale(model: Any) -> None:
        for parameter in model.parameters():
            parameter.register_hook(lambda gradient: gradient * 1.01)

    if rank == VICTIM:
        _after_wrapping(scale)


def share_scaled_on_the_way(rank: int) -> None:
    """What one rank sends is 1 % larger than what it computed."""

    def hook(_: Any, bucket: Any) -> Any:
        tensor = bucket.buffer() * (1.01 if rank == VICTIM else 1.0) / torch.distributed.get_world_size()
        work = torch.distributed.all_reduce(tensor, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    hook.__annotations__.clear()  # DDP wants its own types there, or none
    _after_wrapping(lambda model: model.register_comm_hook(None, hook))


def other_samples(rank: int) -> None:
    """One rank trains on something else than its share."""
    forward = DistributedDataParallel.forward

    def elsewhere(self: Any, x: Any) -> Any:
        return forward(self, x.flip(0))

    if rank == VICTIM:
        DistributedDataParallel.forward = elsewhere


def not_broadcast(_: int) -> None:
    """DDP does not send the parameters of rank 0 to the others."""
    torch.nn.parallel.distributed._sync_module_states = lambda *_, **__: None


def parameter_changed(rank: int) -> None:
    """One rank changes a parameter once its model is wrapped."""

    def change(model: Any) -> None:
        with torch.no_grad():
            next(model.parameters()).add_(0.1)

    if rank == VICTIM:
        _after_wrapping(change)


def _freeze(rank: int, victim: int) -> None:
    begin = DistributedDataParallel.__init__

    def init(self: Any, module: Any, *arguments: Any, **keywords: Any) -> None:
        if rank == victim:
            next(module.parameters()).requires_grad_(False)
        begin(self, module, *arguments, **keywords)

    DistributedDataParallel.__init__ = init


def parameter_frozen(rank: int) -> None:
    """One rank does not train a parameter that the others do."""
    _freeze(rank, VICTIM)


def parameter_frozen_on_rank_2(rank: int) -> None:
    """The same; each rank reports its difference from another one."""
    _freeze(rank, 2)


def steps_too_far(rank: int) -> None:
    """One rank's optimizer takes other steps."""
    if rank == VICTIM:
        step = torch.optim.SGD.step

        def too_far(self: Any) -> None:
            if self.param_groups[0]["lr"] == reference_model.LEARNING_RATE and _wrapped_in(self):
                self.param_groups[0]["lr"] *= 1.01
            step(self)

        torch.optim.SGD.step = too_far


_first: list[int] = []


def _wrapped_in(optimizer: Any) -> bool:
    """Whether it is not the reference's: that one takes the first step."""
    _first[:] = _first or [id(optimizer)]
    return id(optimizer) != _first[0]


def learns_nothing(_: int) -> None:
    """The optimizer's steps have no effect."""
    reference_model.LEARNING_RATE = 0.0


def buffers_kept(_: int) -> None:
    """DDP leaves each rank its own batch-norm statistics."""
    _after_wrapping(lambda model: None, broadcast_buffers=False)


def sampler_repeats(rank: int) -> None:
    """One rank's sampler deals out the samples of rank 0."""
    if rank == VICTIM:
        begin = DistributedSampler.__init__

        def init(self: Any, dataset: Any, replicas: int, _: int, **options: Any) -> None:
            begin(self, dataset, replicas, 0, **options)

        DistributedSampler.__init__ = init


def epochs_alike(_: int) -> None:
    """set_epoch has no effect."""
    DistributedSampler.set_epoch = lambda self, epoch: None


def exchanged_under_no_sync(_: int) -> None:
    """no_sync does not keep the gradients back."""
    from contextlib import nullcontext

    DistributedDataParallel.no_sync = lambda self: nullcontext()


def unused_not_seen(_: int) -> None:
    """DDP takes a model with an unused parameter without a word."""
    _after_wrapping(lambda model: None, find_unused_parameters=True)


def share_scaled_under_fsdp(rank: int) -> None:
    """One rank's share of the sharded gradients is 1 % too large."""
    micro_step = fsdp.Sharded.micro_step

    def scaled(self: Any, inputs: Any, targets: Any, micro_steps: int, last: bool) -> Any:
        return micro_step(self, inputs, targets, micro_steps / 1.01, last)  # type: ignore[arg-type]

    if rank == VICTIM:
        fsdp.Sharded.micro_step = scaled  # type: ignore[method-assign]


def not_sharded(rank: int) -> None:
    """fully_shard leaves the model whole."""
    policy = fsdp._api()[1]
    fsdp._api = lambda: (lambda model, **_: model, policy)


def each_alone(_: int) -> None:
    """accelerate hands the model back as it was."""
    import accelerate

    prepare = accelerate.Accelerator.prepare

    def unprepared(self: Any, model: Any, *others: Any) -> Any:
        return (model, *prepare(self, *others))

    accelerate.Accelerator.prepare = unprepared


def worker_fails(rank: int) -> None:
    """A loader worker meets an error of its own."""

    def fails(self: Any, number: int) -> Any:
        raise ValueError("no such image")

    if rank == VICTIM:
        data.Images.__getitem__ = fails  # type: ignore[method-assign]


def worker_alters(rank: int) -> None:
    """What a loader worker hands over is not what it made."""

    def batches(self: Any) -> Iterator[Any]:
        for batch in real(self):
            yield batch + 1

    real = DataLoader.__iter__
    if rank == VICTIM:
        DataLoader.__iter__ = batches


def small_shm(rank: int) -> None:
    """One rank's /dev/shm has 4 MiB, in a mount namespace of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    if rank == VICTIM and (
        libc.unshare(_NEW_MOUNTS)
        or libc.mount(b"none", b"/", None, _PRIVATE, None)
        or libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=4m")
    ):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def another_model(rank: int) -> None:
    """The ranks' devices are not of one model."""
    identity.kernels = lambda here: f"model {here.rank}"
