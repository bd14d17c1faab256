"""A checkpoint after the last watched step (`--checkpoint-now`): written as the script would, timed, read, and removed.

With an Accelerator, `save_state` and `load_state` on all ranks. Else, if parameters are sharded, torch's distributed
checkpoint on all ranks. Else `torch.save` of models and optimizer on rank 0. It is written below the recorder's folder.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import shutil
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

if TYPE_CHECKING or __package__:  # imported from mgpu, not in a rank
    from mgpu.recorder.inject._mgpu_rehearsal import guarded
    from mgpu.recorder.inject._mgpu_rehearsed_training import is_sharded
else:
    from _mgpu_rehearsal import guarded
    from _mgpu_rehearsed_training import is_sharded

CHECKPOINT = "MGPU_REHEARSAL_CHECKPOINT"  # set: write one
FOLDER = "checkpoint"
_ROOM = 2.0  # times the size of parameters and optimizer states that must be free on the disk
_LIMIT_S = 600.0  # for the pulse below
_PULSE_S = 1.0


class Checkpoint:
    """The checkpoint of this rank."""

    def __init__(self, rehearsal: Any) -> None:
        self.rehearsal = rehearsal
        self.accelerator: Any = None
        self.tried = False

    def write(self, optimizer: Any) -> None:
        """Write and read a checkpoint together with the other ranks, or note why not."""
        known, self.tried = self.rehearsal, True
        reason = guarded(lambda: self._reason(optimizer))
        texts = known.agree("checkpoint", "an error in mgpu" if reason is None else reason)
        if texts is None or any(texts):
            first = next((text for text in texts or () if text), "the ranks did not reach the last step together")
            known.note("checkpoint_refused", why=first)
            return
        path, done = os.path.join(known.folder, FOLDER), threading.Event()
        threading.Thread(target=self._beat, args=(done,), daemon=True).start()
        try:
            self._write(optimizer, path)
        finally:
            done.set()

    def _beat(self, done: threading.Event) -> None:
        """Show that the run has not stalled: a large checkpoint takes longer than a step."""
        deadline = time.monotonic() + _LIMIT_S
        while not done.wait(_PULSE_S) and time.monotonic() < deadline:
            self.rehearsal.note("pulse")

    def _reason(self, optimizer: Any) -> str:
        """Return why no checkpoint can be written; empty if one can."""
        parameters = _parameters(optimizer)
        if "deepspeed" in sys.modules and self.accelerator is None and any(hasattr(p, "ds_id") for p in parameters):
            return "DeepSpeed without an Accelerator saves in its own way"
        if self.accelerator is None and not _models(parameters):
            return "no model has the parameters of the optimizer"
        state = [t for values in optimizer.state.values() for t in values.values() if hasattr(t, "element_size")]
        size = sum(one.numel() * one.element_size() for one in [*parameters, *state])
        free = shutil.disk_usage(self.rehearsal.folder).free
        ranks = self.rehearsal.world or 1
        enough = free > _ROOM * size * ranks
        return "" if enough else f"{free >> 20} MiB are free, a checkpoint may need {size * ranks >> 20} MiB"

    def _write(self, optimizer: Any, path: str) -> None:
        ways = (self._by_accelerator, self._distributed, self._by_rank_0)
        sharded = any(map(is_sharded, _parameters(optimizer)))
        way = ways[0] if self.accelerator is not None else ways[1] if sharded else ways[2]
        how, save, load = way(optimizer, path)
        error, wrote = _timed(save)
        together = self.rehearsal.agree("wrote", error) is not None  # rank 0 may be the last one to write
        failed, read = _timed(load) if together and not error else (error, None)
        if save is not None and (self.rehearsal.rank == 0 or failed):
            size = guarded(lambda: _size(path)) or 0
            values = {"path": path, "ok": not failed, "error": failed or None, "s": read, "size": size}
            self.rehearsal.note("checkpoint", how=how, wrote=wrote, **values)
        texts = self.rehearsal.agree("read", failed)
        if texts is not None and not any(texts) and self.rehearsal.rank == 0:
            shutil.rmtree(path, ignore_errors=True)

    def _by_accelerator(self, optimizer: Any, path: str) -> Any:
        settings = self.accelerator.project_configuration

        def here(function: Any) -> Any:
            """Call a function with this path: with automatic names, it would use the script's own folder."""
            named, settings.automatic_checkpoint_naming = settings.automatic_checkpoint_naming, False
            try:
                return function(path)
            finally:
                settings.automatic_checkpoint_naming = named

        save, load = self.accelerator.save_state, self.accelerator.load_state
        return "accelerator.save_state", lambda: here(save), lambda: here(load)

    def _distributed(self, optimizer: Any, path: str) -> Any:
        dcp = importlib.import_module("torch.distributed.checkpoint")
        get_state_dict = importlib.import_module("torch.distributed.checkpoint.state_dict").get_state_dict
        models = _models(_parameters(optimizer))
        state: dict[str, Any] = {}

        def save() -> None:
            for number, model in enumerate(models):
                weights, states = get_state_dict(model, optimizer if len(models) == 1 else [])
                state[f"model{number}"], state[f"optimizer{number}"] = weights, states
            dcp.save(state, checkpoint_id=path)

        return "torch.distributed.checkpoint", save, lambda: dcp.load(state, checkpoint_id=path)

    def _by_rank_0(self, optimizer: Any, path: str) -> Any:
        if self.rehearsal.rank != 0:
            return "torch.save", None, None
        torch, file = sys.modules["torch"], os.path.join(path, "checkpoint.pt")
        models = _models(_parameters(optimizer))

        def save() -> None:
            os.makedirs(path, exist_ok=True)
            content = {"models": [model.state_dict() for model in models], "optimizer": optimizer.state_dict()}
            torch.save(content, file)

        def load() -> None:
            content = torch.load(file, map_location="cpu", weights_only=True)
            for model, state in zip(models, content["models"]):  # noqa: B905 - Python 3.8
                model.load_state_dict(state)
            optimizer.load_state_dict(content["optimizer"])

        return "torch.save", save, load


def _timed(function: Callable[[], object] | None) -> tuple[str, float]:
    """Call a function; return its error (empty: none) and the seconds."""
    began, error = time.monotonic(), ""
    try:
        if function is not None:
            function()
    except Exception as found:
        error = f"{type(found).__name__}: {(str(found).splitlines() or [''])[0][:300]}"
    return error, time.monotonic() - began


def _parameters(optimizer: Any) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _models(parameters: list[Any]) -> list[Any]:
    """Return the outermost modules that have parameters of the optimizer."""
    wanted, kind = set(map(id, parameters)), sys.modules["torch"].nn.Module
    found = [one for one in gc.get_objects() if _is(one, kind) and any(id(p) in wanted for p in one.parameters())]
    inner = {id(child) for one in found for child in one.modules() if child is not one}
    return [one for one in found if id(one) not in inner]


def _is(one: Any, kind: Any) -> bool:
    try:
        return isinstance(one, kind)
    except Exception:  # a lazy object that fails when it is looked at
        return False


def _size(path: str) -> int:
    return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(path) for name in names)


def begin(rehearsal: Any) -> None:
    """Write a checkpoint at the end, if it is wanted."""
    if os.environ.get(CHECKPOINT):
        rehearsal.checkpoint = Checkpoint(rehearsal)


def _accelerator(rehearsal: Any, module: Any) -> None:
    original = module.Accelerator.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if rehearsal.checkpoint is not None:
            rehearsal.checkpoint.accelerator = self

    module.Accelerator.__init__ = init


HOOKS = {"accelerate.accelerator": _accelerator}
