"""How this rank works with the others: its process groups, what wraps the model, and each collective it calls."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:  # imported from mgpu, not in a rank
    from mgpu.recorder.inject._mgpu_rehearsal import ON_CPU, guarded, user_line
    from mgpu.recorder.inject._mgpu_rehearsed_training import training_of
else:
    from _mgpu_rehearsal import ON_CPU, guarded, user_line
    from _mgpu_rehearsed_training import training_of

# fmt: off
COLLECTIVES = (
    "all_reduce", "all_reduce_coalesced", "broadcast", "broadcast_object_list", "reduce", "all_gather",
    "all_gather_object", "all_gather_into_tensor", "all_gather_coalesced", "gather", "gather_object", "scatter",
    "scatter_object_list", "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "barrier",
    "monitored_barrier",
)
# fmt: on
_SAME_SHAPE = ("all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter_tensor")
_MOST = 1000  # collectives
_GPU_BACKENDS = ("nccl", "ucc", "cuda:nccl", "cpu:gloo,cuda:nccl")


def _groups(rehearsal: Any, module: Any) -> None:
    original = module.init_process_group

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        replaced = None
        if os.environ.get(ON_CPU):
            args, kwargs, replaced = _on_cpu(args, kwargs)
        found = original(*args, **kwargs)
        guarded(lambda: _joined(rehearsal, module, replaced))
        return found

    module.init_process_group = init_process_group
    new_group = module.new_group

    @functools.wraps(new_group)
    def group_of(*args: Any, **kwargs: Any) -> Any:
        found = new_group(*args, **kwargs)
        ranks = kwargs.get("ranks", args[0] if args else None)
        if ranks is not None:
            guarded(lambda: rehearsal.note("subgroup", ranks=len(list(ranks)), line=user_line()))
        return found

    module.new_group = group_of
    _record_calls(rehearsal, module)


def _on_cpu(args: Any, kwargs: Any) -> Any:
    """Replace a backend that needs GPUs by gloo; also return it."""
    named = kwargs.get("backend", args[0] if args else None)
    kwargs = {name: value for name, value in kwargs.items() if name != "device_id"}
    if str(named).lower() not in _GPU_BACKENDS:
        return args, kwargs, None
    if args:
        return ("gloo", *args[1:]), kwargs, str(named)
    return args, {**kwargs, "backend": "gloo"}, str(named)


def _joined(rehearsal: Any, module: Any, replaced: str | None) -> None:
    rank, world = module.get_rank(), module.get_world_size()
    rehearsal.join(rank, world)
    backend = str(module.get_backend())
    rehearsal.note("group", rank=rank, world=world, backend=backend, replaced=replaced, line=user_line())


class _Calls:
    """The collectives of this rank. One that another one calls is part of that one."""

    def __init__(self, rehearsal: Any, module: Any) -> None:
        self.rehearsal, self.module = rehearsal, module
        self.number = self.depth = 0

    def wrap(self, name: str) -> None:
        original = getattr(self.module, name)

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if self.depth == 0 and not self.rehearsal.measuring:
                guarded(lambda: self.record(name, args, kwargs))
            self.depth += 1
            try:
                return original(*args, **kwargs)
            finally:
                self.depth -= 1

        setattr(self.module, name, wrapped)

    def record(self, name: str, args: Any, kwargs: Any) -> None:
        self.number += 1
        if self.number > _MOST:
            return
        group = kwargs.get("group") or next((one for one in args if type(one).__name__ == "ProcessGroup"), None)
        size = group.size() if group is not None and hasattr(group, "size") else self.module.get_world_size()
        tensor = next((one for one in (*args, *kwargs.values()) if hasattr(one, "data_ptr")), None)
        known = tensor is not None and name in _SAME_SHAPE
        self.rehearsal.note(
            "collective",
            op=name,
            shape=("x".join(map(str, tensor.shape)) or "scalar") if known and tensor is not None else "",
            dtype=str(tensor.dtype).replace("torch.", "") if known and tensor is not None else "",
            ranks=size,
            inside=training_of(self.rehearsal).outermost is not None,
            line=user_line(),
        )


def _record_calls(rehearsal: Any, module: Any) -> None:
    calls = _Calls(rehearsal, module)
    for name in COLLECTIVES:
        if hasattr(module, name):
            calls.wrap(name)


def _note_wrapper(rehearsal: Any, kind: str, model: Any, ranks: int | None) -> None:
    training = training_of(rehearsal)
    number = 0
    for name, parameter in model.named_parameters():
        training.names[id(parameter)] = name[7:] if name.startswith("module.") else name
        number += 1
    kinds = {type(one).__name__ for one in model.modules() if getattr(one, "p", 0)}
    dropout = any("Dropout" in one for one in kinds)
    rehearsal.note("wrapper", kind=kind, parameters=number, ranks=ranks, dropout=dropout, line=user_line())


def _class_hook(kind: str, name: str) -> Any:
    """Note each model that a class wraps."""

    def hook(rehearsal: Any, module: Any) -> None:
        wrapper = getattr(module, name)
        original = wrapper.__init__

        @functools.wraps(original)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            group = getattr(self, "process_group", None)
            ranks = group.size() if group is not None and hasattr(group, "size") else None
            guarded(lambda: _note_wrapper(rehearsal, kind, self, ranks))

        wrapper.__init__ = init
        if kind == "DDP":
            _watch_no_sync(rehearsal, wrapper)

    return hook


def _watch_no_sync(rehearsal: Any, wrapper: Any) -> None:
    original = wrapper.no_sync

    @contextlib.contextmanager
    def no_sync(self: Any) -> Iterator[None]:
        training = training_of(rehearsal)
        with original(self):
            before, training.no_sync = training.no_sync, True
            try:
                yield
            finally:
                training.no_sync = before

    wrapper.no_sync = no_sync


def _fully_shard(rehearsal: Any, module: Any) -> None:
    original = module.fully_shard

    @functools.wraps(original)
    def fully_shard(model: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(model, *args, **kwargs)
        guarded(lambda: _note_wrapper(rehearsal, "FSDP2", model, None))
        return found

    module.fully_shard = fully_shard


def _accelerator(rehearsal: Any, module: Any) -> None:
    original = module.Accelerator.prepare

    @functools.wraps(original)
    def prepare(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(self, *args, **kwargs)
        kind = str(getattr(self, "distributed_type", "")).replace("DistributedType.", "")
        types = [type(one).__name__ for one in args]
        guarded(lambda: rehearsal.note("prepare", kind=kind, types=types, line=user_line()))
        return found

    module.Accelerator.prepare = prepare


HOOKS = {
    "torch.distributed.distributed_c10d": _groups,
    "torch.nn.parallel.distributed": _class_hook("DDP", "DistributedDataParallel"),
    "torch.distributed.fsdp.fully_sharded_data_parallel": _class_hook("FSDP", "FullyShardedDataParallel"),
    "torch.distributed.fsdp._fully_shard._fully_shard": _fully_shard,
    "deepspeed.runtime.engine": _class_hook("DeepSpeed", "DeepSpeedEngine"),
    "accelerate.accelerator": _accelerator,
}
