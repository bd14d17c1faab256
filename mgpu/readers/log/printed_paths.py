"""Which paths did the program print in its last lines before an exception? Often it reads from one of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mgpu.readers.log.line import parse_line, shown_text
from mgpu.readers.log.said_before import first_head

_LINES = 30  # that are not empty
_MOST = 6
_PATH = re.compile(
    r"\b(?:load\w*|read\w*|open\w*|from|data\w*|path|dir\w*|folder|root|train\w*|dev|val\w*|test\w*|files?)\b"
    r"[^/\\]{0,40}?(?:^|[\s'\"=:(])(?P<path>(?:/|[A-Za-z]:[\\/])[^\s'\",;:()*]{3,300})",
    re.I,
)
_OF_LIBRARY = re.compile(r"(?:site|dist)-packages|\bFile \"|\w+Warning\b|\.py:\d+")


def find(lines: Sequence[str], last: int, rank: int | None) -> tuple[str, ...]:
    """Return such paths of the same rank, the latest last. Parameters as in `said_before.find`."""
    head = first_head(lines, last)
    if head is None:
        return ()
    said = [one for raw in lines[max(0, head - 3 * _LINES) : head] if (one := parse_line(raw)).text.strip()]
    found: list[str] = []
    for one in said[-_LINES:]:
        if (one.rank is None or rank is None or one.rank == rank) and not _OF_LIBRARY.search(one.text):
            found += [shown_text(match["path"].rstrip(".")) for match in _PATH.finditer(one.text[:2000])]
    return tuple(dict.fromkeys(found))[-_MOST:]
