"""Stage "bandwidth": how fast do the ranks communicate, and how does training scale with their number?

Each rank times every repetition and reports its own numbers; the runner uses the slowest rank's. Sizes are counted as
in nccl-tests: the data of one rank for all-reduce and broadcast, the whole array for the other collectives.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import scaling
from .collectives import all_gather_into, reduce_scatter_into
from .context import Here
from .store_sync import Turns

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# The first repetitions connect the ranks: nccl-tests warms up 5 times; without it, rates are up to 6 times too low.
_WARM_UP = 5
_ITEM = 4  # bytes of a float32


@dataclass(frozen=True)
class _Plan:
    """The sizes and the time of a level."""

    sizes: tuple[int, ...]
    budget_s: float  # for all collectives together; larger sizes are omitted once it is used up


_ON_CPU = {
    "quick": _Plan((8 * KIB, MIB), 0.2),
    "standard": _Plan((8 * KIB, 256 * KIB, 4 * MIB), 1.0),
    "long": _Plan((8 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB), 20.0),
}
_ON_GPU = {
    "quick": _Plan((8 * KIB, 64 * MIB), 1.0),
    "standard": _Plan((8 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB), 8.0),
    "long": _Plan((8 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB, GIB, 4 * GIB), 60.0),
}
# Two buffers of the largest size are allocated; at least half of the free memory is not touched.
_SHARE_OF_FREE = 4


def run_stage(here: Here) -> str:
    """Time collectives on all ranks, then training steps on 1, 2, 4 … of them."""
    results = []
    if here.world > 1:
        results.append(_collectives(here))
    if here.orders.scaling and here.orders.level != "quick":
        start = time.monotonic()
        results.append(scaling.measure(here))
        here.measured(scaling_seconds=time.monotonic() - start)
    return "; ".join(results) or "only one rank"


def collectives_of(strategy: str, level: str, zero_stage: int | None) -> tuple[str, ...]:
    """Return the collectives that a strategy uses; always including all-reduce, to compare machines."""
    if level == "quick":
        return ("all_reduce",)
    sharded = strategy == "fsdp" or (strategy == "deepspeed" and zero_stage != 0)
    used = ("all_reduce", "all_gather", "reduce_scatter") if sharded else ("all_reduce", "broadcast")
    return (*used, "all_to_all") if level == "long" else used


def _collectives(here: Here) -> str:
    plan = (_ON_GPU if here.on_gpu else _ON_CPU)[here.orders.level]
    stage = os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "")
    names = collectives_of(here.orders.strategy, here.orders.level, int(stage) if stage.isdecimal() else None)
    if here.on_gpu and _backend(here) == "gloo":
        names = tuple(name for name in names if name in ("all_reduce", "broadcast"))
        here.skips("bandwidth of some collectives: gloo needs host memory for them")
    turns = Turns(here, "bandwidth")
    here.about_to("agree on the sizes")
    sizes = _that_fit(here, turns, plan.sizes)
    items = max(-(-max(sizes) // _ITEM), here.world)
    buffers = [here.torch.zeros(items, device=here.device) for _ in range(2)]
    start = time.monotonic()
    rows: list[dict[str, Any]] = []
    left_out: list[str] = []
    for size in sizes:
        for name in names:
            before = next((row for row in reversed(rows) if row["collective"] == name), None)
            ahead = _ahead(size, before, here.on_gpu)
            in_time = time.monotonic() - start + ahead < plan.budget_s and ahead < here.orders.stall_s / 2
            here.about_to(f"time {_words(name)} {_text(size)}")
            if turns.broadcast(in_time or before is None):  # the smallest size is always timed
                rows.append(_row(here, name, size, buffers))
            else:
                left_out.append(f"{_words(name)} {_text(size)}")
    here.reports(bandwidth=rows)
    if left_out:
        here.skips(f"bandwidth of {', '.join(left_out)}: {plan.budget_s:g} s limit reached")
    first = rows[0]
    here.measured(
        latency_p50_s=first["seconds_p50"],
        latency_p99_s=first["seconds_p99"],
        bandwidth_seconds=time.monotonic() - start,
    )
    last = max((row for row in rows if row["collective"] == "all_reduce"), key=lambda row: row["size_bytes"])
    return f"all-reduce {_text(last['size_bytes'])}: {last['seconds_p50'] * 1000:.3g} ms"


def _ahead(size: int, before: dict[str, Any] | None, on_gpu: bool) -> float:
    """Estimate the seconds for the next size from the last one; 0 after a small size, which only shows latency."""
    if before is None or before["size_bytes"] < MIB // 2:
        return 0.0
    each: float = before["seconds_p50"] * size / before["size_bytes"]
    warm_up, repetitions = _repetitions(size, on_gpu)
    return each * (warm_up + repetitions)


def _row(here: Here, name: str, size: int, buffers: list[Any]) -> dict[str, Any]:
    run, whole = _call(here, name, size, buffers)
    times = _measure_times(here, run, *_repetitions(size, here.on_gpu))
    return {
        "collective": name,
        "backend": _backend(here),
        "ranks": here.world,
        "size_bytes": whole,
        "seconds_p50": _share(times, 0.5),
        "seconds_p99": _share(times, 0.99),
    }


def _backend(here: Here) -> str:
    """Return the backend for the ranks' device, also if there are several (cuda:nccl,cpu:gloo)."""
    return "nccl" if here.on_gpu and "nccl" in here.torch.distributed.get_backend() else "gloo"


def _that_fit(here: Here, turns: Turns, sizes: tuple[int, ...]) -> list[int]:
    """Return the sizes that fit into the memory of every rank; at least the smallest."""
    if not here.on_gpu:
        return list(sizes)
    free = turns.least(here.torch.cuda.mem_get_info(here.device)[0])
    return [size for size in sizes if size * _SHARE_OF_FREE <= free] or [sizes[0]]


def _call(here: Here, name: str, size: int, buffers: list[Any]) -> tuple[Callable[[], object], int]:
    """Return the collective as a call, and its size in bytes, rounded to equal parts if the ranks share it."""
    distributed = here.torch.distributed
    part = max(1, size // _ITEM // here.world)
    whole = part * here.world
    one, other = buffers
    count = size // _ITEM
    calls: dict[str, tuple[Callable[[], object], int]] = {
        "all_reduce": (lambda: distributed.all_reduce(one[:count]), count),
        "broadcast": (lambda: distributed.broadcast(one[:count], src=0), count),
        "all_gather": (lambda: all_gather_into(distributed)(one[:whole], other[:part]), whole),
        "reduce_scatter": (lambda: reduce_scatter_into(distributed)(one[:part], other[:whole]), whole),
        "all_to_all": (lambda: distributed.all_to_all_single(one[:whole], other[:whole]), whole),
    }
    run, items = calls[name]
    return run, items * _ITEM


def _repetitions(size: int, on_gpu: bool) -> tuple[int, int]:
    """Return how often to warm up and to time. Small sizes more often: their p99 shows jitter."""
    if size <= 64 * KIB:
        return _WARM_UP, 100 if on_gpu else 40
    if size <= 256 * MIB:
        return _WARM_UP, 20 if on_gpu else 8
    return 2, 5  # the ranks are already connected


def _measure_times(here: Here, run: Callable[[], object], warm_up: int, repetitions: int) -> list[float]:
    """Return the seconds of each repetition, measured with GPU events to exclude the launch overhead."""
    for _ in range(warm_up):
        run()
    here.wait()
    if not here.on_gpu:
        times = []
        for _ in range(repetitions):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        return times
    event = here.torch.cuda.Event
    marks = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(repetitions)]
    for begin, end in marks:
        begin.record()
        run()
        end.record()
    here.wait()
    return [begin.elapsed_time(end) / 1000 for begin, end in marks]


def _share(times: list[float], share: float) -> float:
    """Return the quantile of the times at this share."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _words(name: str) -> str:
    return name.replace("_", "-")


def _text(size: int) -> str:
    return f"{size / MIB:g} MiB" if size >= MIB else f"{size / KIB:g} KiB"
