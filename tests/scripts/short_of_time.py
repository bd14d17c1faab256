"""The time that the bandwidth rung may take: more than it ever needs, or used up on one rank (what is left out must be
left out by all)."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from mgpu.smoke.ranks import bandwidth, scaling


def plenty(rank: int) -> None:
    """Nothing is left out, however busy the machine."""
    _set(300.0)


def first_rank(rank: int) -> None:
    """Only rank 0 finds that the time is used up."""
    _set(0.0 if rank == 0 else 300.0)


def last_rank(rank: int) -> None:
    """Rank 0 has time, another thinks it has none."""
    _set(0.0 if rank == 1 else 300.0)


def _set(seconds: float) -> None:
    for level in ("quick", "standard"):
        bandwidth._ON_CPU[level] = replace(bandwidth._ON_CPU[level], budget_s=seconds)
    scaling._BUDGET_S["standard"] = seconds


def dies_while_others_wait(rank: int) -> None:
    """Rank 0 fails in its training alone, for which the others wait."""
    if rank == 0:

        def broken(*_: object) -> None:
            raise RuntimeError("made to fail")

        scaling._steps = broken  # type: ignore[assignment]


def slow_while_others_wait(rank: int) -> None:
    """Rank 0 trains alone for longer than the ranks had to meet."""
    real = scaling._steps

    def slow(*arguments: Any) -> list[float]:
        if rank == 0:
            time.sleep(3.5)
        return real(*arguments)

    scaling._steps = slow  # type: ignore[assignment]
