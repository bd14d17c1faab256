"""Does one rank, or one of several hosts, keep the others waiting in most steps?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mgpu.check import WHY, Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Pace, RankPace, Run

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
    if _slow_host(pace) is not None:
        return Ok("a host is slower than the others, not one rank")
    slow = max(pace.ranks, key=lambda rank: rank.last_share)
    if slow.last_share < _LAST_SHARE or pace.waited_share < _WAITED_SHARE:
        return Ok(f"the ranks wait {pace.waited_share:.0%} of the time for each other ({pace.steps:,} steps)")
    others = [rank for rank in pace.ranks if rank is not slow]
    wait_s = max(rank.wait_s for rank in others)
    by_loader = _is_loader([slow], others, wait_s)
    where = f" (host {slow.host})" if slow.host else ""
    return Problem(
        f"rank {slow.rank}{where} comes last in {slow.last_share:.0%} of the steps, and the others wait {_ms(wait_s)} "
        f"of {_ms(pace.step_s)}: "
        + ("it waits for its data loader" if by_loader else "probably its own computing takes longer"),
        fix=Fix(
            "Give the loader of this rank more workers, or balance what the ranks load."
            if by_loader
            else "Compare the length of its samples, its GPU's clock and temperature, and what only this rank does."
        ),
        evidence={
            "rank": slow.rank,
            "host": slow.host,
            "last_share": slow.last_share,
            "waited_share": pace.waited_share,
            "step_s": round(pace.step_s, 6),
            "loader_s": slow.loader_s,
        },
        subjects=(f"rank {slow.rank}",),
    )


@check(Severity.WARNING, source=_SOURCE, tags=("remark", "uneven_ranks"))
def run_host_slows_others(run: Run) -> Answer:
    """The ranks of one host come last to the collectives of most steps, and those of the other hosts wait for them.

    Why: Every step takes as long as on the slowest host.
    More: The estimate assumes that each rank has the same batch size: n hosts process n times what one does in a step.

    Fix: Find out why this host takes longer, or leave it out.
    """
    pace = run.pace
    if pace is None or any(rank.host is None for rank in pace.ranks):
        return Skip("the steps of ranks on several hosts were not compared")
    slow = _slow_host(pace)
    if slow is None:
        return Ok(f"the ranks wait {pace.waited_share:.0%} of the time for each other ({pace.steps:,} steps)")
    without_s, hosts = pace.step_s - slow.wait_s, len({rank.host for rank in pace.ranks})
    kept = hosts * without_s / pace.step_s / (hosts - 1)  # what all do in a second, by what the others would
    others, wait = ("the other host", "waits") if hosts == 2 else (f"the other {hosts - 1} hosts", "wait")
    by_loader = _is_loader(slow.ranks, slow.others, slow.wait_s)
    cause = "waiting for data loaders" if by_loader else "its computing takes longer"
    title = (
        f"host {slow.name} is slower: its ranks come last in {slow.last_share:.0%} of the steps, and {others} {wait} "
        f"{_ms(slow.wait_s)} of {_ms(pace.step_s)}: {cause}"
    )
    worth = f"With it, the run processes {kept:.1f} times as much as {others} alone."
    if kept < 1:
        worth = f"Without it, the run would process {1 / kept:.1f} times as much."
    return Problem(
        title,
        f"{WHY} {worth}",
        _fix_of_host(kept, by_loader=by_loader),
        {
            "host": slow.name,
            "last_share": round(slow.last_share, 3),
            "wait_s": round(slow.wait_s, 6),
            "step_s": round(pace.step_s, 6),
            "gain": round(kept, 2),
        },
        tuple(f"rank {rank.rank}" for rank in slow.ranks),
    )


def _fix_of_host(kept: float, *, by_loader: bool) -> Fix:
    if kept < 1:
        return Fix("Leave this host out (--hosts), unless it can be made faster.")
    if by_loader:
        return Fix("Give the loaders on this host more workers, or put its data on a faster disk.")
    return Fix("Compare its GPUs, their clocks and temperature, and what else runs there.")


class _SlowHost(NamedTuple):
    name: str
    last_share: float
    ranks: Sequence[RankPace]
    others: Sequence[RankPace]
    wait_s: float  # in a step: of the ranks of the next slower host


def _slow_host(pace: Pace) -> _SlowHost | None:
    """Return the host whose ranks keep those of the others waiting; None if it is one rank, or not worth a line."""
    hosts = sorted({rank.host for rank in pace.ranks if rank.host is not None})
    if len(hosts) < 2 or any(rank.host is None for rank in pace.ranks) or pace.waited_share < _WAITED_SHARE:
        return None
    shares = {host: sum(rank.last_share for rank in pace.ranks if rank.host == host) for host in hosts}
    name = max(shares, key=lambda host: shares[host])
    ranks = [rank for rank in pace.ranks if rank.host == name]
    others = [rank for rank in pace.ranks if rank.host != name]
    is_one_rank = len(ranks) > 1 and max(rank.last_share for rank in ranks) >= _LAST_SHARE
    if shares[name] < _LAST_SHARE or is_one_rank:
        return None
    return _SlowHost(name, shares[name], ranks, others, min(rank.wait_s for rank in others))


def _is_loader(slow: Sequence[RankPace], others: Sequence[RankPace], wait_s: float) -> bool:
    """Whether the difference of the loaders' waits explains most of what the others wait."""
    longest = max(rank.loader_s for rank in slow)
    return longest - min(rank.loader_s for rank in others) > _MOST_OF_IT * wait_s


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms" if seconds >= 0.001 else f"{1000 * seconds:.1f} ms"
