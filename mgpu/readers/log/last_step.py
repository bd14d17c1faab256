"""How far was the run when the first rank had waited without success? The last counter before it shows it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from mgpu.readers.log.counters import SEARCHED, counter, evaluates, prepares
from mgpu.readers.log.line import parse_start, shown_text
from mgpu.snapshot import LastStep

_BAR = re.compile(r"\d%\|")
_EPOCH = re.compile(r"'epoch': '?(?P<at>\d{1,6}\.\d{1,9})\b")  # in what Trainer logs


def find(lines: Sequence[tuple[int, bytes]], name: str) -> LastStep | None:
    """Return the last counter of these numbered lines; None if the run had not counted a step."""
    last: LastStep | None = None
    outer: tuple[str, float] | None = None  # name and total of a bar that was not complete when another one began
    epoch: float | None = None
    for number, raw in lines:
        line = parse_start(raw)
        text = line.text[:SEARCHED]
        if found := _EPOCH.search(text):
            epoch = float(found["at"])
        seen = counter(text)
        if seen is None or prepares(seen[0]):
            continue
        title, at, of = seen
        if of is None and "epoch" in title:
            continue
        bar = bool(_BAR.search(text)) and of is not None
        inner = bar and (evaluates(title) or (outer is not None and outer[0] == title and outer[1] != of))
        if bar and of is not None and not inner and at < of:
            outer = title, of
        last = LastStep(shown_text(line.whole), name, number, at, of, inner)
    return last and replace(last, epoch=epoch)
