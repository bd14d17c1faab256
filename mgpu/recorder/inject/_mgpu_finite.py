"""The first loss or gradient norm of this rank that is not finite, seen without waiting for a GPU.

A loss on the CPU is read when `backward` is called with it, a gradient norm on the CPU when `clip_grad_norm_` returns
it, and the values that transformers' Trainer logs are numbers already. A tensor on a GPU is read only every N steps
(`MGPU_NAN_CHECK=N`), because that waits until the GPU has computed it.

Runs with any Python from 3.8 on. It never imports torch.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY = "MGPU_NAN_CHECK"
_LOSS, _NORM = "loss", "gradient norm"


class Finite:
    """What this rank has found."""

    def __init__(self, recorder: Any, torch: Any) -> None:
        self.recorder, self.torch = recorder, torch
        every = os.environ.get(EVERY, "")
        self.every = int(every) if every.isdigit() else 0  # steps between two tensors of a GPU that are read
        self.scaled = False  # a GradScaler is used: infinite gradients are usual, and it skips their step
        self.found = False

    def look(self, what: str, tensor: Any) -> None:
        """Read a tensor with one element, if that is cheap or due."""
        if self.found or type(tensor) is not self.torch.Tensor or tensor.numel() != 1:
            return
        on_cpu = tensor.device.type == "cpu"
        if on_cpu or (self.every and not (self.recorder.steps + 1) % self.every):
            self.check(what, tensor.item(), self.recorder.steps + 1, inputs=what == _LOSS)

    def check(self, what: str, value: float, step: int, *, inputs: bool = False) -> None:
        """Write the first value that is not finite, with the user's line. `inputs`: they are those of this step."""
        if self.found or value - value == 0:
            return
        had = []
        if inputs and value != value:
            with contextlib.suppress(Exception):
                import _mgpu_inputs  # type: ignore[import-not-found]

                had = _mgpu_inputs.with_nan(sys._getframe(1))
        self.write(what, str(value), step, had, *_frames())

    def write(self, what: str, value: str, step: int, inputs: list[list[Any]], *frames: list[Any]) -> None:
        """Write what was not finite, and the inputs that had NaN already."""
        self.found = True
        content = {"what": what, "value": value, "step": step, "at": time.time(), "frames": frames, "inputs": inputs}
        self.recorder.store("nan", json.dumps(content))


def _frames() -> list[list[Any]]:
    frame: Any = sys._getframe(2)
    found: list[list[Any]] = []
    while frame is not None and len(found) < 30:
        if frame.f_code.co_filename != __file__:
            found.append([frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name])
        frame = frame.f_back
    return found


def hook(recorder: Any, module: Any) -> None:
    """Add the hooks to one of the modules in `MODULES`, which has just been imported."""
    torch = sys.modules["torch"]
    if recorder.finite is None:
        recorder.finite = Finite(recorder, torch)
    MODULES[module.__name__](recorder.finite, torch, module)


def _backward(finite: Finite, torch: Any, module: Any) -> None:
    original = module.backward

    @functools.wraps(original)
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if not finite.scaled and not finite.found:
            with contextlib.suppress(Exception):
                finite.look(_LOSS, tensors[0] if isinstance(tensors, (tuple, list)) else tensors)
        return original(tensors, *args, **kwargs)

    module.backward = backward


def _clip(finite: Finite, torch: Any, module: Any) -> None:
    original = module.clip_grad_norm_

    @functools.wraps(original)
    def clip_grad_norm_(*args: Any, **kwargs: Any) -> Any:
        # torch.compile traces this function, and reading a value would break its graph. Old releases do not report it.
        compiler: Any = getattr(torch, "compiler", None)
        if not hasattr(compiler, "is_compiling") or compiler.is_compiling():
            return original(*args, **kwargs)
        norm = original(*args, **kwargs)
        if not finite.scaled:
            with contextlib.suppress(Exception):
                finite.look(_NORM, norm)
        return norm

    module.clip_grad_norm_ = clip_grad_norm_


def _scaler(finite: Finite, torch: Any, module: Any) -> None:
    original = module.GradScaler.scale

    @functools.wraps(original)
    def scale(self: Any, outputs: Any) -> Any:
        with contextlib.suppress(Exception):
            finite.scaled = finite.scaled or bool(self._enabled)
            finite.look(_LOSS, outputs)
        return original(self, outputs)

    module.GradScaler.scale = scale


def _trainer(finite: Finite, torch: Any, module: Any) -> None:
    original = module.Trainer.log

    @functools.wraps(original)
    def log(self: Any, logs: Any, *args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(Exception):
            for name, what in (("loss", _LOSS), ("grad_norm", _NORM)):
                if isinstance(logs.get(name), float) and not (what == _NORM and finite.scaled):
                    finite.check(what, logs[name], self.state.global_step)
        return original(self, logs, *args, **kwargs)

    module.Trainer.log = log


MODULES: dict[str, Callable[[Finite, Any, Any], None]] = {
    "torch.autograd": _backward,
    "torch.nn.utils.clip_grad": _clip,
    "torch.amp.grad_scaler": _scaler,
    "transformers.trainer": _trainer,
}
