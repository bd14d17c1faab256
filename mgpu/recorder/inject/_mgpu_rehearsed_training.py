"""What the optimizers of this rank do: parameters at the start, gradients and loss of each step, and its phases.

A parameter or gradient is described by three numbers in float64: its sum, its norm, and a weighted sum of a sample of
its values. Reading them waits for a GPU, which is fine in a rehearsal.
"""

from __future__ import annotations

import functools
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:  # imported from mgpu, not in a rank
    from mgpu.recorder.inject._mgpu_rehearsal import guarded, user_line
else:
    from _mgpu_rehearsal import guarded, user_line

_MOST_PARAMETERS = 100  # described one by one; the others together
_SAMPLE = 64
_OTHER_LIBRARIES = ("horovod.torch", "bagua", "byteps", "mpi4py.MPI", "torch_xla")  # exchange gradients in their ways
_MOST_LOSSES = 2000


class Training:
    """The optimizers and losses of this rank."""

    def __init__(self, rehearsal: Any, torch: Any) -> None:
        self.rehearsal, self.torch = rehearsal, torch
        self.names: dict[int, str] = {}  # of parameters in a wrapped model, by identity
        self.numbers: dict[int, int] = {}  # of optimizers, by identity
        self.steps: dict[int, int] = {}
        self.trained = 0  # batches that were followed by a backward pass
        self.trained_last = -1  # of the batches drawn so far, at the last backward pass
        self.batches: dict[int, int] = {}  # `trained` when an optimizer last stepped
        self.unsynced: set[int] = set()  # optimizers with a backward pass without synchronization since their last step
        self.losses = 0
        self.unscaled: float | None = None
        self.backward_line: str | None = None
        self.no_sync = False
        self.outermost: Any = None
        self.began = 0.0
        self.ended = time.monotonic()
        self.before = (0.0, 0.0, 0.0, 0.0, 0)
        self.storages: set[int] = set()  # addresses of the parameters of optimizers that have stepped
        self.kept: list[Any] = []  # optimizers, so that no identity is used twice

    def pre(self, optimizer: Any, *_: Any) -> None:
        """Before a step of any optimizer. A step inside the step of another optimizer is part of that one."""
        if self.outermost is not None and self.outermost is not optimizer:
            return
        self.outermost = optimizer
        if self.rehearsal.rank is None:
            self.rehearsal.join(0)
        self.rehearsal.look(lambda: self.describe(optimizer))
        self.began = time.monotonic()

    def describe(self, optimizer: Any) -> None:
        """Note the gradients, and before the first step the parameters."""
        number = self.numbers.get(id(optimizer))
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if number is None:
            number = self.numbers[id(optimizer)] = len(self.numbers)
            self.kept.append(optimizer)
            self.storages.update(p.data_ptr() for p in parameters if hasattr(p, "data_ptr") and p.numel())
            self._start(number, optimizer, parameters)
        step = self.steps.get(number, 0) + 1
        rate = optimizer.param_groups[0].get("lr")
        last = self.batches.get(number, 0)
        self.batches[number] = self.trained
        unsynced, self.unsynced = number in self.unsynced or self.no_sync, self.unsynced - {number}
        self.rehearsal.note(
            "step",
            o=number,
            n=step,
            lr=float(rate) if rate is not None else None,
            grads=self.sums([p.grad for p in parameters]),
            batches=self.trained - last,
            unsynced=unsynced,
            line=user_line(),
            backward=self.backward_line,
        )

    def _start(self, number: int, optimizer: Any, parameters: list[Any]) -> None:
        other = next((name for name in _OTHER_LIBRARIES if name in sys.modules), None)
        if other:
            self.rehearsal.note("other", name=other)
        shown = parameters[:_MOST_PARAMETERS]
        self.rehearsal.note(
            "optimizer",
            o=number,
            type=type(optimizer).__name__,
            parameters=len(parameters),
            sharded=sum(is_sharded(p) for p in parameters),
            wrapped=sum(id(p) in self.names for p in parameters),
            names=[self.names.get(id(p), "") for p in shown],
            shapes=["x".join(map(str, p.shape)) for p in shown],
            start=self.sums(parameters),
            line=user_line(),
        )

    def post(self, optimizer: Any, *_: Any) -> None:
        """After a step of any optimizer. Raises Stop after the last one."""
        if self.outermost is not optimizer:
            return
        self.outermost = None
        number = self.numbers.get(id(optimizer), 0)
        step = self.steps[number] = self.steps.get(number, 0) + 1
        if not self.rehearsal.measuring:
            guarded(lambda: self._stepped(number, step))
        if step >= self.rehearsal.wanted:
            self.rehearsal.reach(optimizer)

    def _stepped(self, number: int, step: int) -> None:
        if self.torch.cuda.is_initialized():
            self.torch.cuda.synchronize()
        now, known = time.monotonic(), self.rehearsal
        totals = (known.waited, known.backward, known.saved, known.own, known.samples)
        waited, backward, saved, own, samples = (after - before for after, before in zip(totals, self.before))  # noqa: B905 - Python 3.8
        known.note(
            "stepped",
            o=number,
            n=step,
            s=now - self.ended - own,
            own=own,
            wait=waited,
            backward_s=backward,
            optimizer=now - self.began,
            save=saved,
            samples=samples,
        )
        known.step_seconds.append(now - self.ended - own)
        self.ended, self.before = now, totals

    def sums(self, tensors: list[Any]) -> list[Any]:
        """Return the description of each tensor, and of those beyond the limit as one; None for one that is not there.

        Values that are not finite are None.
        """
        with self.torch.no_grad():
            found = [self._describe_tensor(one) for one in tensors]
            there = [one for one in found if one is not None]
            listed = iter(self.torch.stack([one.cpu() for one in there]).tolist() if there else ())
        every = [next(listed) if one is not None else None for one in found]
        shown, others = every[:_MOST_PARAMETERS], [one for one in every[_MOST_PARAMETERS:] if one is not None]
        if others:
            shown.append([sum(part) for part in zip(*others)])  # noqa: B905 - Python 3.8
        return [one and [v if v - v == 0 else None for v in one] for one in shown]

    def _describe_tensor(self, tensor: Any) -> Any:
        torch = self.torch
        if tensor is None or not (tensor.is_floating_point() or tensor.is_sparse):
            return None
        local = (tensor.to_local() if hasattr(tensor, "to_local") else tensor).detach()
        local = local.coalesce().values() if local.is_sparse else local
        flat = local.reshape(-1)
        sample = flat[:: max(1, flat.numel() // _SAMPLE)][:_SAMPLE].to(torch.float64)
        weights = torch.arange(1, sample.numel() + 1, dtype=torch.float64, device=sample.device)
        total = torch.sum(flat, dtype=torch.float64)
        norm = torch.linalg.vector_norm(flat, dtype=torch.float64)
        return torch.stack([total, norm, torch.dot(sample, weights)])

    def loss(self, tensors: Any) -> None:
        """Note the loss that backward is called with."""
        tensor = tensors[0] if isinstance(tensors, (tuple, list)) else tensors
        self.backward_line = user_line()
        if self.no_sync:
            self.unsynced.update(self.numbers.values())
        self.losses += 1
        if self.rehearsal.drawn != self.trained_last:  # a loader may draw ahead
            self.trained_last = self.rehearsal.drawn
            self.trained += 1
        if self.losses > _MOST_LOSSES or not hasattr(tensor, "numel") or tensor.numel() != 1:
            return
        value = tensor.item() if self.unscaled is None else self.unscaled
        self.unscaled = None
        finite = value - value == 0
        loader = self.rehearsal.drawn_from
        self.rehearsal.note("loss", v=value if finite else str(value), line=self.backward_line, loader=loader)


def is_sharded(tensor: Any) -> bool:
    placements = getattr(tensor, "placements", None)
    if placements is not None:
        return not all(one.is_replicate() for one in placements)
    return type(tensor).__name__ == "FlatParameter" or hasattr(tensor, "ds_id")


def training_of(rehearsal: Any) -> Any:
    """Return the one Training of this process."""
    if rehearsal.training is None:
        rehearsal.training = Training(rehearsal, sys.modules["torch"])
    return rehearsal.training


def _optimizers(rehearsal: Any, module: Any) -> None:
    training = training_of(rehearsal)
    module.register_optimizer_step_pre_hook(training.pre)
    module.register_optimizer_step_post_hook(training.post)


def _backward(rehearsal: Any, module: Any) -> None:
    original = module.backward

    @functools.wraps(original)
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        rehearsal.look(lambda: training_of(rehearsal).loss(tensors))
        began = time.monotonic()
        try:
            return original(tensors, *args, **kwargs)
        finally:
            rehearsal.backward += time.monotonic() - began

    module.backward = backward


def _scaler(rehearsal: Any, module: Any) -> None:
    original = module.GradScaler.scale

    @functools.wraps(original)
    def scale(self: Any, outputs: Any) -> Any:
        if not rehearsal.measuring:  # it waits for the GPU
            guarded(lambda: _keep(training_of(rehearsal), outputs))
        return original(self, outputs)

    module.GradScaler.scale = scale


def _keep(training: Training, outputs: Any) -> None:
    if hasattr(outputs, "numel") and outputs.numel() == 1:
        training.unscaled = outputs.item()


HOOKS = {
    "torch.optim.optimizer": _optimizers,
    "torch.autograd": _backward,
    "torch.amp.grad_scaler": _scaler,
}
