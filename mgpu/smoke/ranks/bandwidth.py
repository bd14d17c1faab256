"""Rung "bandwidth": how fast do the ranks talk, and what do more of them bring?

Each rank times each repetition and leaves its own figures; the runner takes the slowest rank's. A size is S as
nccl-tests counts it: what one rank holds for all-reduce and broadcast, the whole array for the others.
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
# The first repetitions connect the ranks: nccl-tests warms up 5 times; without, figures are up to 6 times too low.
_WARM_UP = 5
_ITEM = 4  # bytes of a float32


@dataclass(frozen=True)
class _Plan:
    """What is timed at a level."""

    sizes: tuple[int, ...]
    budget_s: float  # for all collectives together; larger sizes are left out when it is used up


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
# Two buffers of the largest size are held; more than half of the memory that is free is not touched.
_SHARE_OF_FREE = 4


def climb(here: Here) -> str:
    """Time collectives on all ranks, then training steps on 1, 2 … of them."""
    said = []
    if here.world > 1:
        said.append(_collectives(here))
    if here.orders.scaling and here.orders.level != "quick":
        start = time.monotonic()
        said.append(scaling.measure(here))
        here.measured(scaling_seconds=time.monotonic() - start)
    return "; ".join(said) or "one rank has nobody to talk to"


def of_strategy(strategy: str, level: str, zero_stage: int | None) -> tuple[str, ...]:
    """The collectives a strategy lives on; all-reduce is always among them, to compare machines by."""
    if level == "quick":
        return ("all_reduce",)
    sharded = strategy == "fsdp" or (strategy == "deepspeed" and zero_stage != 0)
    used = ("all_reduce", "all_gather", "reduce_scatter") if sharded else ("all_reduce", "broadcast")
    return (*used, "all_to_all") if level == "long" else used


def _collectives(here: Here) -> str:
    plan = (_ON_GPU if here.on_gpu else _ON_CPU)[here.orders.level]
    stage = os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "")
    names = of_strategy(here.orders.strategy, here.orders.level, int(stage) if stage.isdecimal() else None)
    if here.on_gpu and _backend(here) == "gloo":
        names = tuple(name for name in names if name in ("all_reduce", "broadcast"))
        here.skips("bandwidth of other collectives than all-reduce and broadcast: gloo has them in host memory only")
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
            if turns.agreed(in_time or before is None):  # the smallest of each is always timed
                rows.append(_row(here, name, size, buffers))
            else:
                left_out.append(f"{_words(name)} {_text(size)}")
    here.reports(bandwidth=rows)
    if left_out:
        here.skips(f"bandwidth of {', '.join(left_out)}: more than the {plan.budget_s:g} s for all of it")
    first = rows[0]
    here.measured(
        latency_p50_s=first["seconds_p50"],
        latency_p99_s=first["seconds_p99"],
        bandwidth_seconds=time.monotonic() - start,
    )
    last = max((row for row in rows if row["collective"] == "all_reduce"), key=lambda row: row["size_bytes"])
    return f"all-reduce {_text(last['size_bytes'])} in {last['seconds_p50'] * 1000:.3g} ms"


def _ahead(size: int, before: dict[str, Any] | None, on_gpu: bool) -> float:
    """Seconds that the next size will take, by the last one; a small one tells nothing but latency."""
    if before is None or before["size_bytes"] < MIB // 2:
        return 0.0
    each: float = before["seconds_p50"] * size / before["size_bytes"]
    warm_up, repetitions = _repetitions(size, on_gpu)
    return each * (warm_up + repetitions)


def _row(here: Here, name: str, size: int, buffers: list[Any]) -> dict[str, Any]:
    run, whole = _call(here, name, size, buffers)
    times = _timed(here, run, *_repetitions(size, here.on_gpu))
    return {
        "collective": name,
        "backend": _backend(here),
        "ranks": here.world,
        "size_bytes": whole,
        "seconds_p50": _share(times, 0.5),
        "seconds_p99": _share(times, 0.99),
    }


def _backend(here: Here) -> str:
    """What carries the ranks' tensors; of several (cuda:nccl,cpu:gloo) the one for their device."""
    return "nccl" if here.on_gpu and "nccl" in here.torch.distributed.get_backend() else "gloo"


def _that_fit(here: Here, turns: Turns, sizes: tuple[int, ...]) -> list[int]:
    """The sizes for which every rank has the memory; the smallest always."""
    if not here.on_gpu:
        return list(sizes)
    free = turns.least(here.torch.cuda.mem_get_info(here.device)[0])
    return [size for size in sizes if size * _SHARE_OF_FREE <= free] or [sizes[0]]


def _call(here: Here, name: str, size: int, buffers: list[Any]) -> tuple[Callable[[], object], int]:
    """The collective as a call, and its S: a whole number of equal parts where the ranks share it."""
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
    """How often to warm up and to time: often what is fast, since p99 of a small message is what jitter shows in."""
    if size <= 64 * KIB:
        return _WARM_UP, 100 if on_gpu else 40
    if size <= 256 * MIB:
        return _WARM_UP, 20 if on_gpu else 8
    return 2, 5  # the ranks have long been connected


def _timed(here: Here, run: Callable[[], object], warm_up: int, repetitions: int) -> list[float]:
    """Seconds of each repetition: by the GPU's own clock, so that the time to ask for it does not count."""
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
    """The time below which this share of the repetitions is."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _words(name: str) -> str:
    return name.replace("_", "-")


def _text(size: int) -> str:
    return f"{size / MIB:g} MiB" if size >= MIB else f"{size / KIB:g} KiB"
