"""Which lines did Windows PowerShell break at the width of its window?

It does so with all that a program writes to stderr, if that is redirected: `*> run.log`, `2>&1 | Tee-Object`. The
first line of stderr becomes an error record: "python : Traceback (most recent call last):", "At line:1 char:1" and
"+ CategoryInfo". It shows the width. Lines of stdout are not broken, and can be between those of stderr.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_MARK = b"+ CategoryInfo "
_CATEGORY = re.compile(r"\s{1,8}\+ CategoryInfo\s")
_ERROR_ID = re.compile(r"\s{1,8}\+ FullyQualifiedError")
_CONTINUES = re.compile(r" {2,3}\S")  # how the two are indented after a break
_POSITION = re.compile(r"[^+].*:\d+ \S+:\d+\s*$")  # "At line:1 char:1", in the language of Windows
_HEAD = re.compile(r"[\w.:/\\ ~()-]{1,160}? : (?=\S)")  # the command, as the user typed it
_FRAME = re.compile(r' {2}File "')
_WHOLE_FRAME = re.compile(r' {2}File ".*", line \d+(?:, in \S.*\S|, in \S)?$')
_BLOCK_LINES = 10  # most lines between the parts of a record
_NARROWEST = 20
_MOST_PARTS = 60  # of one line


class PowerShell:
    """Joins the broken lines of one file."""

    def __init__(self) -> None:
        self._began = self._anywhere = False  # also within words that would fit into a line
        self._width: int | None = None
        self._exact = False

    def joined(self, piece: bytes) -> bytes:
        """Return the next lines, with empty ones in place of those that became a part of another."""
        if not self._began and _MARK not in piece:
            return piece
        lines = piece.decode("utf-8", "replace").split("\n")
        start = 0
        if not self._began:
            mark = next((at for at, line in enumerate(lines) if _CATEGORY.match(line)), None)
            if mark is None:
                return piece
            start = self._begin(lines, mark)
        return "\n".join([*lines[:start], *self._join(lines[start:])]).encode()

    def _begin(self, lines: list[str], mark: int) -> int:
        """Remove the error record from the lines, except the program's own text. Return where that begins."""
        self._began = True
        position = _above(lines, mark, _POSITION)
        head = _above(lines, position, _HEAD)
        record = range(mark, min(len(lines), mark + _BLOCK_LINES))
        last = next((at for at in record if _ERROR_ID.match(lines[at])), mark)
        while last + 1 < len(lines) and _CONTINUES.match(lines[last + 1]):
            last += 1
        self._measure(lines, mark, last)
        if head is None or position is None:
            return mark
        name = _HEAD.match(lines[head])
        assert name is not None
        first = lines[head]
        full = self._exact and _cells(first) == self._width and first[-1] != " "
        self._anywhere = full and not self._is_cut(first, lines[head + 1])
        said = self._join(lines[head:position])
        lines[head : last + 1] = [said[0][name.end() :], *said[1:], *[""] * (last + 1 - position)]
        if last + 1 < len(lines) and not lines[last + 1].strip():
            lines[last + 1] = ""
        return last + 1

    def _measure(self, lines: Sequence[str], mark: int, last: int) -> None:
        """Find the width: of a line of the record that was broken, else of the longest frame that was."""
        record = [lines[at] for at in range(mark, last) if _CONTINUES.match(lines[at + 1])]
        if record:
            self._width, self._exact = max(map(_cells, record)), True
            return
        frames = [line for line in lines[last:] if _FRAME.match(line) and not _WHOLE_FRAME.match(line)]
        if frames:
            self._width = max(map(_cells, frames))
            self._exact = any(_cells(line) == self._width and line[-1:] != " " for line in frames)

    def _join(self, lines: Sequence[str]) -> list[str]:
        if self._width is None or self._width < _NARROWEST:
            return list(lines)
        done: list[str] = []
        at = 0
        while at < len(lines):
            text, end = lines[at], at + 1
            while end < min(len(lines), at + _MOST_PARTS) and self._is_broken(lines[end - 1], text, lines[end]):
                text += lines[end]
                end += 1
            done += [text, *[""] * (end - at - 1)]
            at = end
        return done

    def _is_broken(self, line: str, text: str, below: str) -> bool:
        """Whether a line goes on in the one below. `text`: the line with what was broken off before."""
        if not line.strip() or not below.strip():
            return False
        width = self._width or 0
        full = self._exact and _cells(line) == width
        if self._anywhere or below[0] == " ":
            return full and self._anywhere
        if line[-1] == " ":
            word = _cells(below.split(" ")[0])  # a longer one than a line begins in the line above, and is cut
            return word < width <= _cells(line) + word
        return full and self._is_cut(text, below)

    def _is_cut(self, text: str, below: str) -> bool:
        """Whether the word at the end of a full line is too long for any line, so that it was cut."""
        word = text.rpartition(" ")[2]
        is_rule = len(set(word)) == 1
        is_underline = not word.strip("~^") and below[:1] not in "~^"  # Python's, with the exception below it
        return not (is_rule or is_underline) and _cells(word + below.split(" ")[0]) > (self._width or 0)


def _above(lines: Sequence[str], before: int | None, pattern: re.Pattern[str]) -> int | None:
    """Return the nearest of the lines above that begins so."""
    if before is None:
        return None
    return next((at for at in range(before - 1, max(-1, before - _BLOCK_LINES), -1) if pattern.match(lines[at])), None)


def _cells(text: str) -> int:
    """Return how many columns a text takes: two for each letter of Chinese, Japanese and Korean."""
    return len(text) if text.isascii() else sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)
