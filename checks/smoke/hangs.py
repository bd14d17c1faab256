"""If the ranks wait forever, which one do they wait for?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mgpu.check import Answer, Fix, Ok, Problem, Severity, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Rank, Ranks
from mgpu.text import listed

from ._causes import CAUSES, LOST
from ._rank_states import SILENT_S, TORCH, rank_name, stage_of
from ._stack_dumps import are_at_different_places, is_waiting, python_location, ranks_elsewhere


@check(Severity.ERROR, source=TORCH, because_of=(*LOST, *CAUSES, "rank_failed"))
def ranks_hang(ranks: Ranks) -> Answer:
    """The ranks made no progress within the stall limit.

    Why: all ranks are alive and waiting. If one is behind the others, it did not reach the collective that they
    wait in; if one is ahead with fewer collectives, it did not take part in one. If all are in the same call, the
    rank whose stack differs is the cause; if none differs, the collective itself hangs (transport, interface,
    driver).

    Fix: Check the stacks of the ranks.
    """
    if ranks.ended not in ("stalled", "timed_out"):
        return Ok("the ranks did not stall")
    waiting = [rank for rank in ranks.ranks if not rank.finished]
    if not waiting:
        return Problem(
            f'all ranks finished, but the launcher did not exit after stage "{ranks.rungs[-1]}" ({_limit(ranks)})',
            "The launcher is waiting for something other than its ranks.",
            Fix("Check its output.", (shell("cat {:path}/launcher.log", ranks.folder),)),
            {"rank": None, "rung": ranks.rungs[-1]},
        )
    if ranks.ended == "timed_out" and ranks.quiet_s is not None and ranks.quiet_s < ranks.stall_limit_s / 3:
        return _too_slow_problem(waiting, ranks)
    if pair := _rank_that_skipped(waiting, ranks):
        return _skipped_problem(*pair, ranks)
    behind, first = min(waiting, key=lambda r: _progress(r, ranks)), max(ranks.ranks, key=lambda r: _progress(r, ranks))
    if _progress(behind, ranks) < _progress(first, ranks):
        if stage_of(behind, ranks) == "pairs" and is_waiting(behind):
            return _lost_between_problem(behind, first, ranks)
        progress = behind.last_word or "no progress reported"
        how = f'is behind at "{progress}" in stage "{stage_of(behind, ranks)}"'
        return _problem([behind], how, _why_others_wait(first, ranks), first.collective, ranks)
    if ranks.ended == "stalled" and (odd := ranks_elsewhere(waiting)):
        how = f"{'is' if len(odd) == 1 else 'are'} elsewhere than the others in {_at(behind, ranks)}"
        healthy = next(rank for rank in waiting if rank not in odd)
        return _problem(odd, how, f"The others wait at {python_location(healthy)}.", healthy.collective, ranks)
    return _all_wait_problem(waiting, ranks)


def _too_slow_problem(waiting: Sequence[Rank], ranks: Ranks) -> Problem:
    """Return the problem of ranks that still made progress: which of them was behind is chance."""
    behind = min(waiting, key=lambda rank: _place(rank, ranks))
    return Problem(
        f"the time limit was reached at {_at(behind, ranks)}, while the ranks still made progress",
        f"The last progress was {ranks.quiet_s:g} s before. No rank was stuck: the test needs more time, fewer ranks, "
        "or a machine that is less busy.",
        Fix("Give it more time, or test fewer ranks.", ("mgpu smoke-test --timeout SEC", "uptime")),
        {"rank": None, "rung": stage_of(behind, ranks), "last_word": behind.last_word},
    )


def _lost_between_problem(behind: Rank, first: Rank, ranks: Ranks) -> Problem:
    """Return the problem of a pair of which one rank waits for data, and the other one is past the exchange."""
    return Problem(
        f"rank {behind.rank} waits at {_at(behind, ranks)} for data from a rank that is past it ({_limit(ranks)})",
        f'Rank {first.rank} is at "{first.last_word}": it did not send the data, or the data was lost on the way. '
        f"Which of the two cannot be determined.{_own_place(behind)}",
        commands(shell("cat {:path}/rank*.stack", ranks.folder)),
        {"rank": None, "rung": "pairs", "last_word": behind.last_word, "collective": behind.collective},
        (f"rank {behind.rank}", f"rank {first.rank}"),
    )


def _limit(ranks: Ranks) -> str:
    return f"{ranks.stall_limit_s:g} s without progress" if ranks.ended == "stalled" else "time limit reached"


def _at(rank: Rank, ranks: Ranks) -> str:
    return f'"{rank.last_word or "no progress reported"}" in stage "{stage_of(rank, ranks)}"'


def _problem(odd: Sequence[Rank], how: str, why: str, collective: str | None, ranks: Ranks) -> Problem:
    """Return the problem of the ranks that the others wait for."""
    rank = odd[0]
    names = rank_name(rank) if len(odd) == 1 else f"ranks {listed(r.rank for r in odd)}"
    return Problem(
        f"{names} {how} ({_limit(ranks)})",
        f"{why}{_own_place(rank)}",
        commands(shell("cat {:path}/rank*.stack", ranks.folder)),
        {
            "rank": rank.rank,
            "rung": stage_of(rank, ranks),
            "last_word": rank.last_word,
            "collective": collective,
            "stack": python_location(rank),
        },
        tuple(f"rank {r.rank}" for r in odd),
    )


def _all_wait_problem(waiting: Sequence[Rank], ranks: Ranks) -> Problem:
    """Return the problem of ranks among which none stands out."""
    rank = waiting[0]
    why = "Every rank is at the same place, and the operation there does not finish."
    if ranks.ended == "timed_out":
        why = "No rank was stuck for longer than the stall limit: the test needs more time, or a faster machine."
    elif are_at_different_places(waiting):
        places = "; ".join(f"rank {r.rank} at {python_location(r)}" for r in waiting[:2])
        why = f"Their stacks differ, but do not show which of them is the cause: {places}."
    return Problem(
        f"all ranks wait at {_at(rank, ranks)} ({_limit(ranks)})",
        f"{why}{_own_place(rank)}",
        commands(shell("cat {:path}/rank*.stack", ranks.folder)),
        {
            "rank": None,
            "rung": stage_of(rank, ranks),
            "last_word": rank.last_word,
            "collective": rank.collective,
            "stack": python_location(rank),
        },
        tuple(f"rank {r.rank}" for r in waiting),
    )


def _why_others_wait(first: Rank, ranks: Ranks) -> str:
    waits = f" in {first.collective}" if first.collective else ""
    return f'The others are at "{first.last_word}" ({stage_of(first, ranks)}) and wait for it{waits}.'


def _own_place(rank: Rank) -> str:
    """Return where a rank is, as sentences."""
    place = f" It is in {rank.collective}." if rank.collective else ""
    if at := python_location(rank):
        place += f" Python is at {at}."
    if (rank.silent_s or 0.0) > SILENT_S:
        place += f" Its heartbeat was missing for {rank.silent_s:.0f} s: a library holds the GIL."
    return place


def _rank_that_skipped(waiting: Sequence[Rank], ranks: Ranks) -> tuple[Rank, Rank] | None:
    """Return a rank that did not take part in a collective, and a rank that still waits in it; None if there is none.

    A rank that passed the place where another one waits in a collective of all ranks must have started that collective.
    A rank that is further, but started fewer collectives, or is in another one with the same number, left one out.
    """
    for healthy in waiting:
        if healthy.collective_seq is None or not healthy.collective_open:
            continue
        for rank in waiting:
            if rank.collective_seq is None or _place(rank, ranks) <= _place(healthy, ranks):
                continue
            fewer = rank.collective_seq < healthy.collective_seq
            other = rank.collective_seq == healthy.collective_seq and rank.collective_open
            if fewer or (other and rank.collective != healthy.collective):
                return rank, healthy
    return None


def _skipped_problem(rank: Rank, healthy: Rank, ranks: Ranks) -> Problem:
    """Return the problem of a rank that went on without the collective in which another one waits."""
    how = f'did not take part in {healthy.collective or "a collective"} in stage "{stage_of(healthy, ranks)}"'
    why = f'Rank {healthy.rank} waits in it at "{healthy.last_word}"; this rank went on to "{rank.last_word}".'
    found = _problem([rank], how, why, healthy.collective, ranks)
    return replace(found, evidence={**found.evidence, "rung": stage_of(healthy, ranks)})


def _place(rank: Rank, ranks: Ranks) -> tuple[int, int]:
    """Return how far a rank came according to its journal: the stage, and the last progress."""
    return ranks.rungs.index(stage_of(rank, ranks)), rank.last_word_order


def _progress(rank: Rank, ranks: Ranks) -> tuple[int, int, bool, int]:
    """Return how far a rank came, as a sort key.

    The key contains the stage, the number of collectives over all ranks that it started (if every rank's flight
    recorder reports it), whether it is in one, and its last progress.
    """
    if rank.finished:
        return len(ranks.rungs), 0, False, 0
    stage, order = _place(rank, ranks)
    recorded = all(r.collective_seq is not None for r in ranks.ranks if not r.finished)
    seq = (rank.collective_seq or 0) if recorded else 0
    return stage, seq, recorded and rank.collective is not None, order
