"""Which unknown prefix does a log put before its lines?

Launchers, container tools and loggers add prefixes that no list is complete for. The head of a traceback shows them:
what is before "Traceback (most recent call last)" is before the other lines of that traceback too.
"""

from __future__ import annotations

import re
from dataclasses import replace

from mgpu.readers.log.line import Line

HEAD = "Traceback (most recent call last)"
_FRAME = re.compile(r'(?P<prefix>.*\S) {2,3}File "[^"]+", line \d+, in \S')
_MOST = 16  # different prefixes of one file
_LONGEST = 120  # characters of a prefix
_RANK = re.compile(r"\brank[ _:=-]{0,2}(\d{1,9})\b|^\s{0,4}(\d{1,5}):\s?$", re.I)  # srun --label: "3: "
_CLOCK = re.compile(r"\d\d:\d\d")
_DIGITS = re.compile(r"\d+")
# IPython's heads, boxes of rich, exception groups, and what Python itself writes there.
_NO_PREFIX = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w* {2,}$|[─╭]|^\s*\+|Exception Group|^(?:Original|Remote|Worker) $")


class LearnedPrefixes:
    """The prefixes found in one file."""

    def __init__(self) -> None:
        self._found: dict[str, re.Pattern[str]] = {}

    def strip(self, line: Line) -> Line:
        """Return the line without a prefix that the head of a traceback had; its number can be the rank."""
        place = line.text.find(HEAD)
        if place > 0:
            self._learn(line.text[:place])
        elif '", line ' in line.text and (frame := _FRAME.match(line.text)):
            self._learn(f"{frame['prefix']} ")
        for pattern in self._found.values():
            if (found := pattern.match(line.text)) and found.end():
                prefix = found[0]
                rank = _RANK.search(prefix)
                text = line.text[found.end() :]
                return replace(
                    line,
                    text=f" {text}" if text.startswith(" File ") else text,
                    rank=line.rank if rank is None else int(rank[1] or rank[2]),
                    source=line.source or (None if _CLOCK.search(prefix) else prefix),
                )
        return line

    def _learn(self, prefix: str) -> None:
        if not prefix.strip() or len(prefix) > _LONGEST or len(self._found) >= _MOST or _NO_PREFIX.search(prefix):
            return
        template = _DIGITS.sub("0", prefix)
        # Numbers are dates, processes and ranks, which differ between lines.
        self._found.setdefault(template, re.compile(r"\d+".join(map(re.escape, _DIGITS.split(prefix)))))
