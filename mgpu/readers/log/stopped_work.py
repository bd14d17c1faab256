"""How far was a run that a user stopped, if it had not trained yet? The last bar before the signal shows it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mgpu.readers.log.counters import OF_DATASET, SEARCHED, counter, epoch_of, evaluates, prepares, training_step
from mgpu.readers.log.line import parse_start, shown_text
from mgpu.snapshot import LastStep

LINES = 300  # before the signal: a hundred workers of a loader or of map() can print parts of tracebacks first
STOPPED = re.compile(
    rb"^KeyboardInterrupt\b|closing signal SIGINT|Received (?:Signals\.SIGINT|2) death signal|got signal: 2\b|"
    rb"Main process received SIGINT"
)
_BAR = re.compile(r"\d%\|")
_LOSS = re.compile(r"\bloss\b|\bgrad_norm\b|\breward\b", re.I)  # steps that are printed without a bar
# A counter without a value can be of a configuration ("steps: 400"), and a time is no value.
_VALUE = re.compile(r"(?<![\w./])(?<!\d:)\d{1,9}\.\d|\d%")
_SIGNAL = re.compile(r"[EWI]\d{4} \d\d:\d\d:\d\d")  # of a launcher, after a bar without a line break


def find(lines: Sequence[tuple[int, bytes]], name: str) -> LastStep | None:
    """Return the bar of a dataset that was being prepared, or of a training run without a step, in numbered lines.

    None if the training had begun, or if nothing shows how far the run was.
    """
    for place in range(len(lines) - 1, -1, -1):
        number, raw = lines[place]
        line = parse_start(raw)
        text = line.text[:SEARCHED]
        if _LOSS.search(text):
            return None
        if not _BAR.search(text) or (seen := counter(text)) is None:
            continue
        _, at, of = seen
        title = text.partition("%|")[0]  # whole: that of the counter is cut
        if of is None or evaluates(title):
            return None
        if at < of and (OF_DATASET.search(text) or (at == 0 and not prepares(title))):
            if at == 0 and (epoch_of(title) > 1 or any(_trained(raw) for _, raw in lines[:place])):
                return None
            whole = _SIGNAL.split(line.whole, maxsplit=1)[0]
            return LastStep(shown_text(whole), name, number, at, of)
        if not prepares(title) and not OF_DATASET.search(text):
            return None
    return None


def _trained(raw: bytes) -> bool:
    """Whether a line before a bar at 0 shows that the run has trained, for example in an earlier epoch."""
    text = parse_start(raw).text[:SEARCHED]
    if not _BAR.search(text):
        return epoch_of(text) > 1 or bool(_VALUE.search(text) and (_LOSS.search(text) or training_step(text)))
    seen = counter(text)
    return seen is not None and seen[1] > 0 and training_step(text)
