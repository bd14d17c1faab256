"""What does a stage know about the rank it runs on?"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .journal import Failure, Journal
from .rank_plan import Orders


@dataclass
class OwnWork:
    """Seconds that this rank spent on its own work: elapsed, on a core, and waiting for a core."""

    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    queued_s: float | None = 0.0

    @staticmethod
    def now() -> OwnWork:
        """Return the clocks of this process and its main thread."""
        return OwnWork(time.monotonic(), time.process_time(), _queued_s())

    def add(self, before: OwnWork, after: OwnWork) -> None:
        """Add the time between two readings of the clocks."""
        self.elapsed_s += after.elapsed_s - before.elapsed_s
        self.cpu_s += after.cpu_s - before.cpu_s
        if self.queued_s is None or before.queued_s is None or after.queued_s is None:
            self.queued_s = None
        else:
            self.queued_s += after.queued_s - before.queued_s

    def figures(self) -> dict[str, float]:
        """Return the measurements to report."""
        queued = {} if self.queued_s is None else {"own_work_queued_seconds": self.queued_s}
        return {"own_work_seconds": self.elapsed_s, "own_work_cpu_seconds": self.cpu_s, **queued}


@dataclass
class Here:
    """This rank. The stages fill in the fields as they run."""

    orders: Orders
    journal: Journal
    rank: int
    local_rank: int
    world: int
    torch: Any = None  # from stage "start" on
    device: Any = None  # from stage "device" on
    store: Any = None  # of the rendezvous; from stage "group" on
    accelerator: Any = None  # from stage "group" on, if accelerate is the launcher
    groups: dict[tuple[int, ...], Any] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    held: list[Any] = field(default_factory=list)  # memory allocated by --fill
    own_work: OwnWork = field(default_factory=OwnWork)

    @property
    def by_accelerate(self) -> bool:
        """Whether accelerate's launcher started this rank: it sets such variables for its ranks."""
        return "ACCELERATE_MIXED_PRECISION" in os.environ

    @property
    def on_gpu(self) -> bool:
        """Whether this rank computes on a GPU."""
        return self.device is not None and self.device.type == "cuda"

    def about_to(self, word: str, limit_s: float | None = None) -> None:
        """Announce the next step."""
        self.journal.about_to(word, limit_s)

    def measured(self, **numbers: float) -> None:
        """Record measured numbers; their names contain the units. NaN and infinity are not measurements."""
        self.journal.report["measured"] |= {name: number for name, number in numbers.items() if math.isfinite(number)}

    def reports(self, **facts: Any) -> None:
        """Record facts: keys are fields of mgpu.snapshot.Rank."""
        self.journal.report |= facts

    def skips(self, what: str) -> None:
        """Record what cannot be tested here, and why."""
        self.journal.report.setdefault("skipped", []).append(what)

    def wait(self) -> None:
        """Wait until the GPU has finished all queued work."""
        if self.on_gpu:
            self.torch.cuda.synchronize(self.device)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Time work that waits for no other rank: a rank that is slow or stopped again and again shows in the sum."""
        self.wait()
        before = OwnWork.now()
        yield
        self.wait()
        self.own_work.add(before, OwnWork.now())
        self.measured(**self.own_work.figures())

    def first(self, count: int) -> Any:
        """Return the process group of ranks 0 to count - 1; None for all ranks, like in torch.

        Every rank must call this, in the same order. Raises Failure for a group with other members.
        """
        if count == self.world:
            return None
        members = tuple(range(count))
        if members not in self.groups:
            group = self.torch.distributed.new_group(list(members))
            size = self.torch.distributed.get_world_size(group)  # -1 on a rank that is not a member
            if size != (count if self.rank < count else -1):
                raise Failure(
                    f"new_group of ranks 0 to {count - 1} returned a group of {size} ranks on rank {self.rank}"
                )
            self.groups[members] = group
        return self.groups[members]


def _queued_s() -> float | None:
    """Return how long the main thread has waited for a core; None if the kernel does not count it.

    https://docs.kernel.org/scheduler/sched-stats.html#proc-pid-schedstat
    """
    try:
        return int(Path("/proc/thread-self/schedstat").read_text("ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
