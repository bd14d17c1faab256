"""Which line before a cut traceback reports an error? It often has the message that the traceback lost."""

from __future__ import annotations

import re
from dataclasses import replace

from mgpu.readers.log.course import is_exit
from mgpu.readers.log.line import parse_line, shown_text
from mgpu.snapshot import CutTraceback

_BEFORE = 10  # lines
_HEAD = re.compile(r"Traceback \(most recent call last\)")
_LEVEL = re.compile(r"\b(?:ERROR|CRITICAL|FATAL)\b(?:[\]):|\s-]+)?(?=\w)(?!Traceback)")
_ELSEWHERE = re.compile(r"http|^[Ff]or (?:more|further) (?:info|details)")  # where to read more
_WORDS = 3  # of a line that says something


def with_report(one: CutTraceback, tail: str, lines: int) -> CutTraceback:
    """Return a cut traceback with the error that the same rank reports just before it.

    `tail`: the end of its file. `lines`: how many it has.
    """
    text = tail.removesuffix("\n").split("\n")
    first = lines - len(text) + 1
    until = [place for place, raw in enumerate(text[: max(0, one.line - first)]) if _HEAD.search(raw)]
    for raw in reversed(text[max(0, until[-1] - _BEFORE) : until[-1]] if until else []):
        line = parse_line(raw)
        level = _LEVEL.search(line.whole)
        said = line.whole[level.end() :] if level and not is_exit(line.text) else ""
        if line.rank in (one.rank, None) and len(said.split()) >= _WORDS and not _ELSEWHERE.search(said):
            return replace(one, reported=shown_text(said))
    return one
