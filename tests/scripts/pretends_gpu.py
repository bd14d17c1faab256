"""Ranks that take their CPU for a GPU, and gloo for NCCL: a patch (tests/rungs.py) under which the lines run that only
ranks on GPUs reach. It shows what Python makes of them, nothing about CUDA."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from mgpu.smoke.ranks import bandwidth, collectives, compute, device, options, pairs, scaling
from mgpu.smoke.ranks.context import Here

_FREE, _TOTAL = 256 << 20, 512 << 20


class _Event:
    def __init__(self, enable_timing: bool = False) -> None:
        assert enable_timing
        self.at: float | None = None

    def record(self) -> None:
        self.at = time.perf_counter()

    def elapsed_time(self, other: _Event) -> float:
        assert self.at is not None and other.at is not None
        return max(1e-6, (other.at - self.at) * 1000)


def patch(rank: int) -> None:
    """NCCL by name, with gloo beside it."""
    Here.on_gpu = property(lambda self: self.device is not None)  # type: ignore[assignment, method-assign]
    named = SimpleNamespace(name="NVIDIA Pretended", uuid=f"0000-{rank}", multi_processor_count=1, major=9, minor=0)
    for name, answer in {
        "synchronize": None, "empty_cache": None, "mem_get_info": (_FREE, _TOTAL), "max_memory_allocated": 1,
        "is_bf16_supported": True, "get_device_properties": named,
    }.items():  # fmt: skip
        setattr(torch.cuda, name, lambda *_, answer=answer, **__: answer)
    torch.cuda.nccl.version = lambda: (2, 27, 3)
    torch.cuda.Event = _Event
    device._device = lambda here: torch.device("cpu", 0)
    compute._gemm_size = lambda here, kind: 64
    compute._work = lambda torch, matrix, rounds: None
    options._sync_batch_norm = lambda here: None  # torch refuses it on a CPU
    pairs._SIZES_ON_GPU = dict.fromkeys(pairs._SIZES_ON_GPU, 1 << 12)
    collectives._LARGEST_ON_GPU = dict.fromkeys(collectives._LARGEST_ON_GPU, 1 << 16)
    bandwidth._ON_GPU = {
        level: bandwidth._Plan(plan.sizes[:2], plan.budget_s) for level, plan in bandwidth._ON_CPU.items()
    }
    scaling._ON_GPU = scaling._ON_CPU
    _without("pin_memory", torch, "empty")
    _without("device_ids", dist, "barrier")
    _without("device_ids", torch.nn.parallel.DistributedDataParallel, "__init__")
    real, begin = dist.get_backend, dist.init_process_group
    dist.get_backend = lambda group=None: "nccl" if group is None else real(group)
    dist.init_process_group = lambda backend, **options: begin("gloo", **options)


def over_gloo(rank: int) -> None:
    """gloo alone: tensors on GPUs, as ranks have them that share one."""
    real = dist.get_backend
    patch(rank)
    dist.get_backend = real


def gloo_has_no_way(rank: int) -> None:
    """NCCL finds the others, gloo does not."""
    patch(rank)
    real = dist.new_group

    def new_group(*arguments: Any, **options: Any) -> Any:
        if options.get("backend") == "gloo":
            raise RuntimeError("Connect timeout [127.0.1.1]:1")
        return real(*arguments, **options)

    dist.new_group = new_group


def _without(option: str, owner: Any, name: str) -> None:
    real = getattr(owner, name)

    def called(*arguments: Any, **options: Any) -> Any:
        options.pop(option, None)
        return real(*arguments, **options)

    setattr(owner, name, called)
