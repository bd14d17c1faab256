"""How far was the run when the first rank had waited without success? The last counter before it shows it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from mgpu.readers.log.counters import OF_DATASET, SEARCHED, counter, evaluates, prepares
from mgpu.readers.log.line import parse_start, shown_text
from mgpu.snapshot import LastStep

_BAR = re.compile(r"\d%\|")
# What another stream printed in the same line, after "1.57it/s]".
_BEHIND_BAR = re.compile(r"(?:(?<=it/s\])|(?<=s/it\]))\S.*", re.S)
_OF_TRAINING = re.compile(r"train|epoch|step|iter|progress|batch|loss")  # in the name of a bar
_VALUE = re.compile(r"\b[A-Za-z]\w{0,40}[:=] ?-?\d{1,9}\.\d")  # "d: -37.755;gen: -2.093:  10%|", "acc=0.91"
_EPOCH = re.compile(r"'epoch': '?(?P<at>\d{1,6}\.\d{1,9})\b")  # in what Trainer logs


def find(lines: Sequence[tuple[int, bytes]], name: str, *, advancing: bool = False) -> LastStep | None:
    """Return the last counter of these numbered lines; None if the run had not counted a step.

    `advancing`: a number without a total counts only if an earlier line has the same counter with a smaller number. An
    option ("iters=4") has none. A bar with a name counts only if it can be the training's: by its name, or by values
    such as a loss.
    """
    last: LastStep | None = None
    lowest: dict[str, float] = {}  # by the name of a counter without a total
    outer: tuple[str, float] | None = None  # name and total of a bar that was not complete when another one began
    epoch: float | None = None
    for number, raw in lines:
        line = parse_start(raw)
        text = line.text[:SEARCHED]
        if found := _EPOCH.search(text):
            epoch = float(found["at"])
        seen = counter(text)
        if seen is None or prepares(seen[0]) or OF_DATASET.search(text):
            continue
        title, at, of = seen
        if of is None and "epoch" in title:
            continue
        bar = bool(_BAR.search(text)) and of is not None
        if advancing and of is None and not at > lowest.setdefault(title, at):
            continue
        if advancing and bar and title and not (_OF_TRAINING.search(title) or _VALUE.search(text)):
            continue
        inner = bar and (evaluates(title) or (outer is not None and outer[0] == title and outer[1] != of))
        if bar and of is not None and not inner and at < of:
            outer = title, of
        last = LastStep(line.whole, name, number, at, of, inner)
    text = _BEHIND_BAR.sub("", last.text) if last else ""
    return last and replace(last, text=shown_text(text), epoch=epoch)  # masking one line is slow: not each
