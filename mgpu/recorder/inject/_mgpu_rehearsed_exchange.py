"""How this rank works with the others: its process groups, what wraps the model, and each collective it calls."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
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
_BATCH_NORMS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d")
_MOST = 1000  # collectives
_LONGEST = 200
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
    calls = rehearsal.calls = _Calls(rehearsal, module)
    new_group = module.new_group

    @functools.wraps(new_group)
    def group_of(*args: Any, **kwargs: Any) -> Any:
        found = new_group(*args, **kwargs)
        ranks = kwargs.get("ranks", args[0] if args else None)
        if ranks is not None:
            guarded(lambda: rehearsal.note("subgroup", ranks=len(list(ranks)), line=user_line()))
        return found

    group_of = _recorded_group(group_of, calls)

    module.new_group = group_of
    for name in COLLECTIVES:
        if hasattr(module, name):
            calls.wrap(name)


def _recorded_group(original: Any, calls: _Calls) -> Any:
    """Return new_group, recorded as a collective: all ranks must call it, also those that are not in the group."""

    @functools.wraps(original)
    def new_group(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
        counts = calls.depth == 0 and not calls.rehearsal.measuring
        if counts and not kwargs.get("use_local_synchronization"):
            members = "all" if ranks is None else ",".join(map(str, ranks))
            guarded(lambda: calls.note("new_group", detail=f"ranks={members}"[:_LONGEST]))
        return original(ranks, *args, **kwargs)

    return new_group


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
        parameters = inspect.signature(original)

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if self.depth == 0 and not self.rehearsal.measuring:
                guarded(lambda: self.record(name, parameters, args, kwargs))
            self.depth += 1
            try:
                return original(*args, **kwargs)
            finally:
                self.depth -= 1

        setattr(self.module, name, wrapped)

    def record(self, name: str, parameters: Any, args: Any, kwargs: Any) -> None:
        given = parameters.bind(*args, **kwargs).arguments
        group = kwargs.get("group") or next((one for one in args if type(one).__name__ == "ProcessGroup"), None)
        size = group.size() if group is not None and hasattr(group, "size") else self.module.get_world_size()
        tensor = next((one for one in (*args, *kwargs.values()) if hasattr(one, "data_ptr")), None)
        known = tensor is not None and name in _SAME_SHAPE
        shape = ("x".join(map(str, tensor.shape)) or "scalar") if known and tensor is not None else ""
        dtype = str(tensor.dtype).replace("torch.", "") if known and tensor is not None else ""
        training = training_of(self.rehearsal)
        if tensor is not None and training.steps and tensor.data_ptr() in training.storages:
            self.rehearsal.note("averages", by=name)
        self.note(name, shape, dtype, _options(given), size)

    def note(self, name: str, shape: str = "", dtype: str = "", detail: str = "", ranks: int | None = None) -> None:
        """Note one call. `ranks`: None for all of them."""
        self.number += 1
        if self.number > _MOST:
            return
        self.rehearsal.note(
            "collective",
            op=name,
            shape=shape,
            dtype=dtype,
            detail=detail,
            ranks=ranks,
            inside=training_of(self.rehearsal).outermost is not None,
            line=user_line(),
        )


def _options(given: Any) -> str:
    """Return the arguments that must be equal on all ranks: "src=0", "op=SUM"."""
    names = ("src", "dst", "group_src", "group_dst", "op")
    found = ((name, given[name]) for name in names if given.get(name) is not None)
    return ", ".join(f"{name}={str(value).rpartition('.')[2]}" for name, value in found)


def _note_wrapper(rehearsal: Any, kind: str, model: Any, ranks: int | None) -> None:
    training = training_of(rehearsal)
    number = 0
    for name, parameter in model.named_parameters():
        training.names[id(parameter)] = name[7:] if name.startswith("module.") else name
        number += 1
    kinds = {type(one).__name__ for one in model.modules() if getattr(one, "p", 0)}
    dropout = any("Dropout" in one for one in kinds)
    norms = [one for one in model.modules() if type(one).__name__ in _BATCH_NORMS and one.track_running_stats]
    rehearsal.note(
        "wrapper",
        kind=kind,
        parameters=number,
        ranks=ranks,
        dropout=dropout,
        batch_norms=len(norms),
        line=user_line(),
    )


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
            _watch_buffers(rehearsal, wrapper)

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


def _watch_buffers(rehearsal: Any, wrapper: Any) -> None:
    """Record the calls of a model that send its buffers: to the other ranks, they are a collective."""
    original = wrapper.forward

    @functools.wraps(original)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if rehearsal.calls is not None and self.will_sync_module_buffers():
            trains = sys.modules["torch"].is_grad_enabled()
            guarded(lambda: rehearsal.calls.note("the model's forward", detail="" if trains else "no_grad"))
        return original(self, *args, **kwargs)

    wrapper.forward = forward


def _shards(rehearsal: Any, module: Any) -> None:
    """Record the calls that collect a parameter from all ranks."""
    original = module.DTensor.full_tensor

    @functools.wraps(original)
    def full_tensor(self: Any, *args: Any, **kwargs: Any) -> Any:
        if rehearsal.calls is not None:
            shape = "x".join(map(str, self.shape))
            size = self.device_mesh.size()
            guarded(lambda: rehearsal.calls.note("full_tensor", shape, str(self.dtype).rpartition(".")[2], ranks=size))
        return original(self, *args, **kwargs)

    module.DTensor.full_tensor = full_tensor


def _joins(rehearsal: Any, module: Any) -> None:
    original = module.Join.__enter__

    @functools.wraps(original)
    def enter(self: Any) -> Any:
        guarded(lambda: rehearsal.note("joins"))
        return original(self)

    module.Join.__enter__ = enter


def _fully_shard(rehearsal: Any, module: Any) -> None:
    original = module.fully_shard

    @functools.wraps(original)
    def fully_shard(model: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(model, *args, **kwargs)
        guarded(lambda: _note_wrapper(rehearsal, "FSDP2", model, None))
        return found

    module.fully_shard = fully_shard


# What accelerate sets if the config or the script requests a strategy; on CPU ranks it then uses DDP (1.15).
_REQUESTED = {"DeepSpeed": "ACCELERATE_USE_DEEPSPEED", "FSDP": "ACCELERATE_USE_FSDP"}


def _accelerator(rehearsal: Any, module: Any) -> None:
    original = module.Accelerator.prepare

    @functools.wraps(original)
    def prepare(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(self, *args, **kwargs)
        kind = str(getattr(self, "distributed_type", "")).replace("DistributedType.", "")
        types = [type(one).__name__ for one in args]
        unused = [name for name in _REQUESTED if os.environ.get(_REQUESTED[name]) == "true" and name.upper() != kind]
        guarded(lambda: rehearsal.note("prepare", kind=kind, types=types, unused=unused, line=user_line()))
        return found

    module.Accelerator.prepare = prepare


def _averages(name: str) -> Any:
    """Note that parameters are averaged from time to time instead of gradients in each step, once a class is used."""

    def hook(rehearsal: Any, module: Any) -> None:
        averager = getattr(module, name)
        original = averager.__init__

        @functools.wraps(original)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if getattr(self, "enabled", True):
                guarded(lambda: rehearsal.note("averages", by=name))

        averager.__init__ = init

    return hook


HOOKS = {
    "torch.distributed.tensor._api": _shards,
    "torch.distributed.algorithms.join": _joins,
    "accelerate.local_sgd": _averages("LocalSGD"),
    "torch.distributed.algorithms.model_averaging.averagers": _averages("ModelAverager"),
    "torch.distributed.distributed_c10d": _groups,
    "torch.nn.parallel.distributed": _class_hook("DDP", "DistributedDataParallel"),
    "torch.distributed.fsdp.fully_sharded_data_parallel": _class_hook("FSDP", "FullyShardedDataParallel"),
    "torch.distributed.fsdp._fully_shard._fully_shard": _fully_shard,
    "deepspeed.runtime.engine": _class_hook("DeepSpeed", "DeepSpeedEngine"),
    "accelerate.accelerator": _accelerator,
}
