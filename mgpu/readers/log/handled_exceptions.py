"""Which exceptions in a log did not terminate their rank?

A script that catches an exception and logs its traceback leaves the same text as one that fails with it. Two facts
separate them: torch prints the prefix "[rank1]: " only for uncaught exceptions, and a rank fails only once, so if there
are more tracebacks than ranks, some were caught.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from mgpu.snapshot import FailedRank, UncaughtException

# Consequences of another rank's failure, which say nothing about earlier exceptions.
_CONSEQUENCE = re.compile(r"[Cc]onnection (?:closed|reset)|[Bb]roken pipe|NCCL|gloo|Timed out|TCPStore|^Dist\w*Error")

# A process that raises another exception has caught the one before. The log then goes on after the last one.
_SURELY_CAUGHT, _LINES_AFTER = 3, 10


def mark_caught(
    raised: tuple[UncaughtException, ...], fallen: Sequence[FailedRank], ranks: Sequence[int]
) -> tuple[UncaughtException, ...]:
    """Return the exceptions, with `caught` set for those after which their rank continued."""
    raised = tuple(replace(one, caught=True) if _went_on(one, fallen) else one for one in raised)
    own = [one for one in raised if not one.of_launcher and not one.caught]
    first = {rank.rank for rank in fallen if rank.first}
    if len({one.file for one in own}) != 1 or not first:
        return raised
    deadly = max((one for one in own if first & {*one.ranks}), key=lambda one: -one.after, default=None)
    if deadly is not None:
        if _CONSEQUENCE.search(f"{deadly.type.rpartition('.')[2]}: {deadly.message}"):
            return raised
        survived = [one for one in own if one.after > deadly.after and (not one.ranks or first >= {*one.ranks})]
    elif not any(one.ranks for one in own):
        there = max([len(ranks), *(rank.rank + 1 for rank in fallen)])
        if sum(one.times for one in own) <= there:
            return raised
        dead = max(1, sum(rank.exit_code > 0 for rank in fallen))
        survived = sorted(own, key=lambda one: -one.after)[:-dead]
    else:
        return raised
    lines = {one.line for one in survived}
    return tuple(replace(one, caught=True) if one.line in lines else one for one in raised)


def _went_on(one: UncaughtException, fallen: Sequence[FailedRank]) -> bool:
    """Whether the processes that raised it went on: each of them raised several exceptions, and none failed."""
    return one.by_one >= _SURELY_CAUGHT and one.after >= _LINES_AFTER and not one.by_torch and not fallen
