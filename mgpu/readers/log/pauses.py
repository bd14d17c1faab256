"""Did the last step before an error take far longer than those before it, or was the program silent before its end?

The times of the lines show it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from mgpu.durations import seconds_between
from mgpu.readers.log.counters import SEARCHED, counter, prepares
from mgpu.readers.log.line import parse_line, shown_text
from mgpu.snapshot import Pause, SignatureMatch

_FEWEST = 2  # steps before it, whose time is usual
_TIMES, _LEAST_S = 10.0, 600.0  # shorter pauses are checkpoints and evaluations
_LINES = 200
_SILENT_S = 1800.0  # an evaluation or a checkpoint is silent for less
_ZONE_S, _ZONE_ROOM_S = 1800.0, 120.0  # time zones differ by multiples of 30 minutes
_OF_SLURM = re.compile(r"(?:slurmstepd|srun|sbatch|salloc)\b")


def before_line(tail: str, lines: int, error: int) -> Pause | None:
    """Return the pause before the last step in front of a line; None if it took about as long as the others.

    `tail`: the end of the log, `lines`: how many it has, `error`: the number of that line.
    """
    text = tail.removesuffix("\n").split("\n")
    numbered = list(enumerate(text, lines - len(text) + 1))
    steps: list[tuple[str, int, str]] = []
    for number, raw in [one for one in numbered if one[0] < error][-_LINES:]:
        line = parse_line(raw)
        found = counter(line.text[:SEARCHED]) if line.at else None
        if found and line.at and not prepares(found[0]):
            steps.append((line.at, number, shown_text(line.text)))
    took = _seconds([at for at, _, _ in steps])
    if len(took) <= _FEWEST:
        return None
    usual = median(took[:-1])
    if usual <= 0 or took[-1] < max(_LEAST_S, _TIMES * max(took[:-1])):
        return None
    return Pause(steps[-1][2], steps[-1][1], took[-1], usual)


def _seconds(times: Sequence[str]) -> list[float]:
    return [seconds_between(*pair) or 0.0 for pair in pairwise(times)]


def before_limit(tail: str, lines: int, limit: SignatureMatch) -> Pause | None:
    """Return the silence before the scheduler's time limit; None if it was not longer than others, or is not known.

    `tail`: the end of the log, `lines`: how many it has, `limit`: the scheduler's line, with the time in it.
    """
    text = tail.removesuffix("\n").split("\n")
    before = [one for one in enumerate(text, lines - len(text) + 1) if one[0] < limit.line][-_LINES:]
    written = [(number, line) for number, raw in before if (line := parse_line(raw)).text and not _OF_SLURM.match(raw)]
    at = limit.groups.get("at") or limit.at
    if not written or not at or not (last := written[-1][1]).at:
        return None  # a bar without times may have gone on
    took = _seconds([*(line.at for _, line in written if line.at), at])
    if len(took) <= _FEWEST or took[-1] < max(_SILENT_S, _TIMES * max(took[:-1])) or _of_other_clock(took[-1]):
        return None
    return Pause(shown_text(last.text), written[-1][0], took[-1], median(took[:-1]))


def _of_other_clock(seconds: float) -> bool:
    """Whether the two times are a number of time zones apart: the program's are in UTC, and the scheduler's local."""
    return min(seconds % _ZONE_S, _ZONE_S - seconds % _ZONE_S) < _ZONE_ROOM_S
