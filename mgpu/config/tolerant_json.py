"""How does DeepSpeed read a config that is not strict JSON?

DeepSpeed uses hjson, which also accepts comments (#, //, /* */), keys and texts without quotes, single quotes, missing
and trailing commas, and a file without the outer braces. The time is linear in the length of the text.
"""

from __future__ import annotations

import bisect
import re
from typing import Any, NamedTuple

from mgpu.snapshot import Mark
from mgpu.structured_text import DEEPEST, MOST_DIGITS, MOST_NODES, Malformed, json_of, refuse_extremes

_BLANK = re.compile(r"(?:[\s\ufeff]|#[^\n]*|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)*")
_KEY = re.compile(r"[^\s,:\[\]{}][^\s,:\[\]{}]*")
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'')
_LONG = re.compile(r"'''(.*?)'''", re.DOTALL)
# A word that ends before a comma, a bracket, a comment or the end of the line; else the value is the rest of the line.
_WORD = re.compile(
    r"(?P<word>true|false|null|-?(?:0|[1-9]\d*)(?P<real>(?:\.\d+)?(?:[eE][-+]?\d+)?))[ \t]*(?=[,\]}#\r\n]|//|/\*|\Z)"
)
_REST = re.compile(r"[^\n]*")
_WORDS = {"true": True, "false": False, "null": None}


class Tolerated(NamedTuple):
    """The values of a text, the position of each dotted key, and the keys that are in it twice."""

    values: Any
    marks: dict[str, Mark]
    twice: tuple[str, ...]


def tolerant(text: str) -> Tolerated:
    """Parse a text like hjson. Raises Malformed with the position."""
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.place, self.number = text, 0, 0
        self.marks: dict[str, Mark] = {}
        self.twice: list[str] = []
        self._ends = [found.start() for found in re.finditer("\n", text)]

    def read(self) -> Tolerated:
        self._skip()
        first = self.text[self.place : self.place + 1]
        values = self._value("", 0) if first in ("{", "[") else self._members("", 0, "")
        self._skip()
        if self.place < len(self.text):
            raise self._wrong("text after the end of the object")
        refuse_extremes(values)
        return Tolerated(values, self.marks, tuple(self.twice))

    def _mark(self, place: int) -> Mark:
        line = bisect.bisect_left(self._ends, place)
        return Mark(line + 1, place - (self._ends[line - 1] if line else -1))

    def _wrong(self, why: str) -> Malformed:
        mark = self._mark(self.place)
        return Malformed(why, mark.line, mark.column)

    def _skip(self) -> None:
        found = _BLANK.match(self.text, self.place)
        self.place = found.end() if found else self.place
        if self.text.startswith("/*", self.place):
            raise self._wrong("a comment is not closed")

    def _members(self, prefix: str, depth: int, end: str) -> dict[str, Any]:
        """Return the keys and values up to the bracket `end`, "" for the end of the text."""
        found: dict[str, Any] = {}
        while True:
            self._skip()
            if self.text[self.place : self.place + 1] == end:
                self.place += len(end)
                return found
            start, key = self.place, self._key()
            self._skip()
            if self.text[self.place : self.place + 1] != ":":
                raise self._wrong(f"no colon after {key[:40]}")
            self.place += 1
            if key in found:
                self.twice.append(f"{prefix}{key}")
            self.marks[f"{prefix}{key}"] = self._mark(start)
            found[key] = self._value(f"{prefix}{key}.", depth)
            self._comma()

    def _comma(self) -> None:
        self._skip()
        self.place += self.text[self.place : self.place + 1] == ","

    def _items(self, prefix: str, depth: int) -> list[Any]:
        found: list[Any] = []
        while True:
            self._skip()
            if self.text[self.place : self.place + 1] == "]":
                self.place += 1
                return found
            found.append(self._value(f"{prefix}{len(found)}.", depth))
            self._comma()

    def _key(self) -> str:
        if (text := self._quoted()) is not None:
            return text
        found = _KEY.match(self.text, self.place)
        if found is None:
            raise self._wrong("a key is missing" if self.place < len(self.text) else "a closing bracket is missing")
        self.place = found.end()
        return found.group()

    def _quoted(self) -> str | None:
        """Return a text in quotes; None if there is no quote."""
        if self.text[self.place : self.place + 1] not in ('"', "'"):
            return None
        found = _QUOTED.match(self.text, self.place)
        if found is None:
            raise self._wrong("a quote is not closed")
        inner = found.group()[1:-1]
        if found.group()[0] == "'":
            inner = inner.replace("\\'", "'").replace('"', '\\"')
        text = json_of(f'"{inner}"')
        self.place = found.end()
        return str(text)

    def _value(self, prefix: str, depth: int) -> Any:
        self._skip()
        self.number += 1
        if depth > DEEPEST or self.number > MOST_NODES:
            raise Malformed(
                f"it is nested more than {DEEPEST} levels deep" if depth > DEEPEST else "it has too many values"
            )
        first = self.text[self.place : self.place + 1]
        if first in ("{", "["):
            self.place += 1
            return self._members(prefix, depth + 1, "}") if first == "{" else self._items(prefix, depth + 1)
        if found := _LONG.match(self.text, self.place):
            self.place = found.end()
            return found[1].strip()  # hjson also removes the indentation of each line
        if (text := self._quoted()) is not None:
            return text
        if first in ("", "}", "]", ",", ":"):
            raise self._wrong("a value is missing")
        return self._word()

    def _word(self) -> Any:
        """Return a value without quotes: a number, true, false, null, or the text up to the end of the line."""
        found = _WORD.match(self.text, self.place)
        if found is None:
            rest = _REST.match(self.text, self.place)
            self.place = rest.end() if rest else len(self.text)
            return rest.group().strip() if rest else ""
        self.place = found.end()
        word = found["word"]
        if word in _WORDS:
            return _WORDS[word]
        if found["real"]:
            return float(word)
        if len(word) > MOST_DIGITS:
            raise Malformed(f"it has a number with {len(word):,} digits")
        return int(word)
