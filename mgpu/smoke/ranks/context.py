"""What does a stage know about the rank it runs on?"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Any

from .journal import Journal
from .rank_plan import Orders


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
        """Record measured numbers; their names contain the units."""
        self.journal.report["measured"] |= numbers

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

    def first(self, count: int) -> Any:
        """Return the process group of ranks 0 to count - 1; None for all ranks, like in torch.

        Every rank must call this, in the same order.
        """
        if count == self.world:
            return None
        members = tuple(range(count))
        if members not in self.groups:
            self.groups[members] = self.torch.distributed.new_group(list(members))
        return self.groups[members]
