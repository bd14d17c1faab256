"""Which lines are rows of a terminal that were copied with the spaces up to its border?

A terminal breaks a long line at its width. In a wider window (a pane of tmux, a block of several columns), its rows
can be copied as one line: each of them filled with spaces up to the width of the window.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

_LARGEST = 1 << 18  # bytes of an excerpt; a longer log was not copied from a terminal
_GAP = " " * 20
_PADDED = re.compile(rf"\S{_GAP} *(?=\S)")
_ABOUT_ERROR = re.compile(r"\w(?:Error|Exception|Exit|Interrupt)\b ?:|^.{0,40}\bFile \"|Traceback \(most recent")
_IN_PATH = re.compile(rf"(\bFile \"[^\"\s]+){_GAP} *(?=[^\"\s]+\")")  # no path has that many spaces
_WHOLE_FRAME = re.compile(r"\bFile \"[^\"\s]+\", line \d+, in \S+$")
_NARROWEST = 40
_MOST_TRIMMED = 2  # spaces at the end of a row, which look like the filling


def unpadded(piece: bytes, is_known: Callable[[str], object]) -> bytes:
    """Return the lines with their rows joined, as the program wrote them. `is_known`: whether a row matches a line."""
    if _GAP.encode() not in piece or len(piece) > _LARGEST:
        return piece
    lines = piece.decode("utf-8", "replace").split("\n")
    padded = [line for line in lines if _PADDED.search(line)]
    if any(map(_ABOUT_ERROR.search, padded)):
        first = _second_row(padded)  # which can begin with a space
        lines = _joined(lines, first, is_known) or _joined(lines, first - 1, is_known) or lines
    return "\n".join(_IN_PATH.sub(r"\1", line) for line in lines).encode()


def _second_row(padded: Sequence[str]) -> int:
    """Return where most second rows begin, which is the width of the window."""
    starts = Counter(found.end() for line in padded if (found := _PADDED.search(line)))
    return min(start for start, times in starts.items() if times == max(starts.values()))


def _joined(lines: Sequence[str], window: int, is_known: Callable[[str], object]) -> list[str] | None:
    """Return the lines with joined rows; None if the pieces of this length are not rows of one width."""
    split = [_rows(line, window) for line in lines]
    broken = [len(row) for rows in split for row in rows[:-1]]
    width = max((len(row) for rows in split for row in rows), default=0)
    if not broken or min(broken) < max(_NARROWEST, width - _MOST_TRIMMED) or width > window - len(_GAP):
        return None
    tried = [[_line(rows, cells) for rows in split] for cells in (width, width + 1)]
    if len({*broken, width}) > 1:
        return tried[0]  # a row that is shorter ends with a space
    return max(tried, key=lambda one: sum(bool(_WHOLE_FRAME.search(line) or is_known(line)) for line in one))


def _line(rows: Sequence[str], width: int) -> str:
    return "".join((*(row.ljust(width) for row in rows[:-1]), rows[-1]))


def _rows(line: str, window: int) -> list[str]:
    rows = [line[start : start + window].rstrip() for start in range(0, max(1, len(line)), window)]
    while len(rows) > 1 and not rows[-1]:
        rows.pop()
    return rows
