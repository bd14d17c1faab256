"""Did the last step before an error take far longer than those before it? The times of the lines show it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from mgpu.durations import seconds_between
from mgpu.readers.log.counters import SEARCHED, counter, prepares
from mgpu.readers.log.line import parse_line, shown_text
from mgpu.snapshot import Pause

_FEWEST = 2  # steps before it, whose time is usual
_TIMES, _LEAST_S = 10.0, 600.0  # shorter pauses are checkpoints and evaluations
_LINES = 200


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
