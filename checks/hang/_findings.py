"""How a finding about a hang is written: who, where, and who waits for it."""

from __future__ import annotations

from mgpu.check import WHY, Answer, Fix, Ok, Problem
from mgpu.snapshot import Hang

from ._verdict import Kind, Rank, at, evidence, names, subjects, verdict, what_waiting_do

SOURCE = "mgpu: the stacks of all ranks, and torch's flight recorder"
# What is known about a stopped run without its stacks, and the message about the hang in the log.
SAME_AS = ("run_rank_silent", "run_timed_out", "log_run_hung")


def suspects(hang: Hang, kind: Kind) -> tuple[Rank, ...]:
    """Return the ranks that keep the others waiting, if they do so in this way."""
    found = verdict(hang)
    return found.suspects if found.kind == kind else ()


def problem(hang: Hang, how: str, fix: Fix | tuple[Fix, ...], *, why: str = WHY, where: bool = True) -> Problem:
    """Return the problem of the suspects: "rank 1 sleeps at train.py:31"."""
    found = verdict(hang)
    several = len(found.suspects) > 1
    verb = how.partition(" ")
    text = f"{_PLURALS.get(verb[0], verb[0])}{verb[1]}{verb[2]}" if several else how
    title = f"{names(found.suspects)} {text}{at(found.suspects[0]) if where else ''}"
    waiting = what_waiting_do(found)
    return Problem(title, f"{waiting} {why}".strip(), fix, evidence(hang, found), subjects(found.suspects))


# A verb for one rank, and for several.
_PLURALS = {"is": "are", "has": "have", "sleeps": "sleep", "waits": "wait", "does": "do", "works": "work"}


def other_reason(hang: Hang) -> Answer:
    """Return the answer of a check for a hang of another kind."""
    return Ok(f"not seen in {len(hang.ranks)} ranks")
