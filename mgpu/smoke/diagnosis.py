"""Which one change makes a failed rung work?"""

from __future__ import annotations

from collections.abc import Callable

from mgpu.smoke.climb import Attempt
from mgpu.snapshot import Ranks, Trial


def search(attempt: Attempt, ranks: Ranks, tell: Callable[[Trial], None] | None = None) -> tuple[Trial, ...]:
    """Run the failing rung again in fresh processes, with one thing changed at a time; time-boxed.

    `tell` is called with every trial as it ends.
    """
    return ()
