"""Clocks of the bandwidth rung that differ between ranks: what is left out must be left out by all."""

from __future__ import annotations

from dataclasses import replace

from mgpu.smoke.ranks import bandwidth, scaling


def first_rank(rank: int) -> None:
    """Only rank 0 finds that the time is used up."""
    if rank == 0:
        bandwidth._ON_CPU["standard"] = replace(bandwidth._ON_CPU["standard"], budget_s=0.0)
        scaling._BUDGET_S["standard"] = 0.0


def last_rank(rank: int) -> None:
    """Rank 0 has time, another thinks it has none."""
    if rank == 1:
        bandwidth._ON_CPU["standard"] = replace(bandwidth._ON_CPU["standard"], budget_s=0.0)
        scaling._BUDGET_S["standard"] = 0.0


def dies_while_others_wait(rank: int) -> None:
    """Rank 0 fails in its training alone, for which the others wait."""
    if rank == 0:

        def broken(*_: object) -> None:
            raise RuntimeError("made to fail")

        scaling._steps = broken  # type: ignore[assignment]
