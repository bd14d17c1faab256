"""How much faster do 2, 4 … all ranks train than one, with the same micro-batch?

Measured with a small test model; a larger model may scale better (more compute per byte sent) or worse. Uses sub-groups
of the world: the other ranks wait.
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import Any

from .context import Here
from .store_sync import Turns

# A step takes a few milliseconds: on a CPU core 3 layers of 512 x 512 with 64 samples, on a GPU 4 of 2048 x 2048 with
# 512 (67 MB of gradients, about 0.4 GB of memory).
_ON_CPU = (512, 3, 64)
_ON_GPU = (2048, 4, 512)
_WARM_UP = 3
_STEPS = {"standard": 8, "long": 40}
_BUDGET_S = {"standard": 3.0, "long": 60.0}


def measure(here: Here) -> str:
    """Time training steps on the first 1, 2, 4 … ranks."""
    steps = _STEPS[here.orders.level]
    width, layers, _ = _ON_GPU if here.on_gpu else _ON_CPU
    counts = group_sizes(here.world)
    turns = Turns(here, "scaling")
    here.about_to("create the groups of ranks")
    groups = {count: here.first(count) for count in counts if count > 1}
    rows: list[dict[str, Any]] = []
    here.measured(scaling_gradient_bytes=4.0 * layers * (width * width + width))
    start = time.monotonic()
    for count in counts:
        in_time = turns.broadcast(time.monotonic() - start < _BUDGET_S[here.orders.level])
        if not in_time and count < here.world:  # the full world is always measured
            here.skips(f"scaling to {count} ranks: {_BUDGET_S[here.orders.level]:g} s limit reached")
            continue
        row = turns.done(partial(_train, here, count, groups.get(count), steps), count)
        rows += [row] if row else []
    here.reports(scaling=rows)
    mine = rows[-1]  # every rank takes part in the last one
    rate = mine["samples_per_s"]
    return f"{f'{rate:.0f}' if rate < 10_000 else f'{rate / 1000:.0f}k'} samples/s"


def group_sizes(world: int) -> tuple[int, ...]:
    """Return 1, 2, 4 … and `world`."""
    return (*(2**power for power in range(world.bit_length()) if 2**power < world), world)


def _train(here: Here, count: int, group: Any, steps: int) -> dict[str, Any]:
    """Run a few DDP steps on `count` ranks: first without communication (compute time), then with it."""
    torch, device = here.torch, here.device
    width, layers, batch = _ON_GPU if here.on_gpu else _ON_CPU
    some = f"{count} of {here.world} ranks"
    here.about_to(f"scaling: create the model on {some}")
    torch.manual_seed(3)
    plain = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers))).to(device)
    model, alone = plain, contextlib.nullcontext
    if count > 1:
        from .ddp import wrap_ddp

        model = wrap_ddp(here, plain, process_group=group)
        alone = model.no_sync
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = torch.randn(batch, width, device=device)
    here.about_to(f"scaling: {steps} steps on {some}, no_sync")
    with alone():
        own = _steps(here, model, optimizer, inputs, steps)
    here.measured(step_compute_seconds=min(own))
    here.about_to(f"scaling: {steps} steps on {some}")
    seconds = sum(_steps(here, model, optimizer, inputs, steps) if count > 1 else own) / steps
    return {
        "ranks": count,
        "samples_per_s": count * batch / seconds,
        "seconds_per_step": seconds,
        "compute_seconds": sum(own) / steps,
    }


def _steps(here: Here, model: Any, optimizer: Any, inputs: Any, steps: int) -> list[float]:
    """Return the seconds of each step."""
    torch = here.torch
    lower = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(here.orders.precision) if here.on_gpu else None
    times = []
    for _ in range(_WARM_UP + steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast(here.device.type, dtype=lower) if lower else contextlib.nullcontext():
            loss = model(inputs).float().square().mean()
        loss.backward()
        optimizer.step()
        here.wait()
        times.append(time.perf_counter() - start)
    return times[_WARM_UP:]
