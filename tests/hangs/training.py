"""What the programs in this folder share: their names, a small training, and the process group (gloo)."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from tests.hangs.matrix import PROGRESS

PROGRAMS: dict[str, Callable[[int], None]] = {}
WORK_S = float(os.environ.get("WORK_S", "14"))  # of a program that is slow, but healthy

# Set by tests/hangs/table.py: torch's timeout in place of its default; whether lines show the progress.
LIMIT_S = os.environ.get("MGPU_HANGS_TIMEOUT_S")
SHOWS = "MGPU_HANGS_SHOW" in os.environ


def program(function: Callable[[int], None]) -> Callable[[int], None]:
    """Register a program under its name."""
    PROGRAMS[function.__name__] = function
    return function


def steps(number: int) -> Iterator[int]:
    """Train a small model with DDP, and yield before each step."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(20, 20))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(number):
        _show()
        yield step
        optimizer.zero_grad()
        model(torch.randn(4, 20)).sum().backward()  # STEP
        optimizer.step()


def work(seconds: float = WORK_S) -> None:
    """Compute."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))


def _show() -> None:
    if SHOWS:
        print(PROGRESS, flush=True)


def _limit() -> None:
    """Replace torch's timeout, and show when a process group exists."""
    init, inside = dist.init_process_group, dist.distributed_c10d

    @functools.wraps(init)
    def limited(*given: Any, **named: Any) -> Any:
        found = init(*given, **{**named, "timeout": timedelta(seconds=float(LIMIT_S or 0))})
        _show()
        return found

    dist.init_process_group = inside.init_process_group = limited
    inside._get_default_timeout = lambda backend: timedelta(seconds=float(LIMIT_S or 0))


def main() -> None:
    """Run the program that the command line names. Those that begin with "start_" make the process group themselves."""
    name = sys.argv[1]
    if LIMIT_S:
        _limit()
    if name.startswith("start_"):
        PROGRAMS[name](int(os.environ["RANK"]))
        return
    dist.init_process_group("gloo")
    _show()
    PROGRAMS[name](dist.get_rank())
    dist.destroy_process_group()
