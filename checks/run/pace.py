"""Does one rank keep the others waiting in most steps?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import RankPace, Run

_SOURCE = "mgpu: the start of each collective on each rank, from torch's flight recorder"
_WAITED_SHARE = 0.05  # of the time of a step: less is not worth a line (issue 19)
# mgpu: of the steps; equal ranks come last equally often, and chance makes it 60 % of 30 steps on 2 ranks at most.
_LAST_SHARE = 0.7
_MOST_OF_IT = 0.5  # of the wait: explained by the loader


@check(Severity.WARNING, source=_SOURCE, tags=("remark", "uneven_ranks"))
def run_rank_slows_others(run: Run) -> Answer:
    """One rank comes last to the collectives of most steps, and the others wait for it.

    Why: Every step takes as long as its slowest rank.

    Fix: Find out why this rank takes longer.
    """
    pace = run.pace
    if pace is None:
        return Skip("the steps of the ranks were not compared")
    slow = max(pace.ranks, key=lambda rank: rank.last_share)
    if slow.last_share < _LAST_SHARE or pace.waited_share < _WAITED_SHARE:
        return Ok(f"the ranks wait {pace.waited_share:.0%} of the time for each other ({pace.steps:,} steps)")
    others = [rank for rank in pace.ranks if rank is not slow]
    wait_s = max(rank.wait_s for rank in others)
    by_loader = _is_loader(slow, others, wait_s)
    return Problem(
        f"rank {slow.rank} comes last in {slow.last_share:.0%} of the steps, and the others wait {_ms(wait_s)} of "
        f"{_ms(pace.step_s)}: "
        + ("it waits for its data loader" if by_loader else "probably its own computing takes longer"),
        fix=Fix(
            "Give the loader of this rank more workers, or balance what the ranks load."
            if by_loader
            else "Compare the length of its samples, its GPU's clock and temperature, and what only this rank does."
        ),
        evidence={
            "rank": slow.rank,
            "last_share": slow.last_share,
            "waited_share": pace.waited_share,
            "step_s": round(pace.step_s, 6),
            "loader_s": slow.loader_s,
        },
        subjects=(f"rank {slow.rank}",),
    )


def _is_loader(slow: RankPace, others: list[RankPace], wait_s: float) -> bool:
    """Whether the difference of the loaders' waits explains most of what the others wait."""
    return slow.loader_s - min(rank.loader_s for rank in others) > _MOST_OF_IT * wait_s


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms" if seconds >= 0.001 else f"{1000 * seconds:.1f} ms"
