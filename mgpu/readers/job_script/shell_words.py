"""What are the words of a shell script: their quotes, variables and substitutions? Nothing is expanded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

DEEPEST = 40  # maximum depth of nested blocks
ENDS_WORD = frozenset(" \t\n;&|()<>")
PLAIN = re.compile(r"[^\s;&|()<>'\"\\$`]+")
_BLANK = " \t\r"
_VARIABLE = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!_-]")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "\\": "\\", "'": "'", '"': '"'}


class TooMuch(Exception):
    """The text is too large or too deeply nested to be parsed completely."""


class Text:
    """Characters, each with its line in the script."""

    __slots__ = ("at", "s")

    def __init__(self, s: str = "", at: Sequence[int] | None = None, line: int = 1) -> None:
        self.s = s
        self.at: list[int] = list(at) if at is not None else [line] * len(s)

    @classmethod
    def of_file(cls, s: str, line: int = 1) -> Text:
        """Return a whole script as Text; `line` is the number of its first line."""
        at = []
        for character in s:
            at.append(line)
            line += character == "\n"
        return cls(s, at)

    def cut(self, start: int, end: int) -> Text:
        """Return a part of the text."""
        return Text(self.s[start:end], self.at[start:end])

    def add(self, other: Text) -> None:
        """Append characters."""
        self.s += other.s
        self.at += other.at

    def line(self, otherwise: int = 1) -> int:
        """Return the line of the first character."""
        return self.at[0] if self.at else otherwise


@dataclass(frozen=True)
class Part:
    """A part of a word. `var`: the name, or the content of ${ }; `cmd`: of $( ); `arith`: of $(( ))."""

    kind: Literal["lit", "var", "cmd", "arith"]
    text: Text
    quoted: bool
    line: int


@dataclass
class Word:
    """One word of the shell, before expansion."""

    parts: list[Part]
    line: int
    raw: str = ""

    @property
    def plain(self) -> str | None:
        """The text of a word without quotes and variables; None for all others."""
        if all(part.kind == "lit" and not part.quoted for part in self.parts):
            return "".join(part.text.s for part in self.parts)
        return None


class WordReader:
    """Parses the words of a text. Its position is `i`, of `n` characters `s`."""

    def __init__(self, text: Text, budget: list[int]) -> None:
        self.text, self.s, self.n, self.i = text, text.s, len(text.s), 0
        self.budget = budget  # remaining character reads, shared by all readers of a script
        self._depth = 0

    def _read_word(self) -> Word | None:
        parts: list[Part] = []
        start, line = self.i, self._line()
        while self.i < self.n:
            character = self.s[self.i]
            if character in ENDS_WORD:
                break
            if plain := PLAIN.match(self.s, self.i):
                self._spend(plain.end() - self.i)
                parts.append(Part("lit", self.text.cut(self.i, plain.end()), False, self._line()))
                self.i = plain.end()
            elif character == "\\":
                if self.s[self.i + 1 : self.i + 2] != "\n" and self.i + 1 < self.n:
                    parts.append(Part("lit", self.text.cut(self.i + 1, self.i + 2), True, self._line()))
                self.i += 2
            elif character == "'":
                parts.append(self._single())
            elif character == '"':
                parts += self._double()
            else:
                parts.append(self._dollar(quoted=False))
        self.i = min(self.i, self.n)
        return Word(parts, line, self.s[start : self.i]) if self.i > start else None

    def _single(self) -> Part:
        end = self.s.find("'", self.i + 1)
        end = self.n if end < 0 else end
        self._spend(end - self.i)
        part = Part("lit", self.text.cut(self.i + 1, end), True, self._line())
        self.i = end + 1
        return part

    def _double(self) -> list[Part]:
        self.i += 1
        parts = self.quoted('"')
        self.i += 1
        return parts or [Part("lit", Text(), True, self._line())]

    def quoted(self, end: str = "") -> list[Part]:
        """Return the parts of a double-quoted text, up to `end`; of a heredoc, up to the end of the text."""
        parts: list[Part] = []
        start = self.i

        def flush() -> None:
            if self.i > start:
                parts.append(Part("lit", self.text.cut(start, self.i), True, self.text.at[start]))

        while self.i < self.n and self.s[self.i] != end:
            character = self.s[self.i]
            if character == "\\" and self.s[self.i + 1 : self.i + 2] in ("$", "`", '"', "\\", "\n"):
                flush()
                start = self.i + 1 if self.s[self.i + 1] != "\n" else self.i + 2
                self.i += 2
            elif character in "$`":
                flush()
                parts.append(self._dollar(quoted=True))
                start = self.i
            else:
                self.i += 1
        self.i = min(self.i, self.n)
        flush()
        self._spend(self.i - start)
        return parts

    def _dollar(self, *, quoted: bool) -> Part:
        """Parse an expansion that starts with $ or a backquote."""
        line, start = self._line(), self.i
        if self.s[start] == "`":
            end = self._backquote(start + 1)
            inner = self.text.cut(start + 1, end)
            self.i = min(end + 1, self.n)
            return Part("cmd", inner, quoted, line)
        following = self.s[start + 1 : start + 2]
        if self.s.startswith("$((", start):
            end = self._closing(start + 3, "(", ")")
            if self.s[end : end + 1] == ")":
                self.i = end + 1
                return Part("arith", self.text.cut(start + 3, end - 1), quoted, line)
        if following == "(":
            end = self._closing(start + 2, "(", ")")
            self.i = end
            return Part("cmd", self.text.cut(start + 2, end - (self.s[end - 1 : end] == ")")), quoted, line)
        if following == "{":
            end = self._closing(start + 2, "{", "}")
            self.i = end
            return Part("var", self.text.cut(start + 2, end - (self.s[end - 1 : end] == "}")), quoted, line)
        if following == "'" and not quoted:
            return self._ansi()
        if following == '"' and not quoted:
            self.i += 1
            return Part("lit", Text(), quoted, line)
        if name := _VARIABLE.match(self.s, start + 1):
            self.i = name.end()
            return Part("var", self.text.cut(start + 1, name.end()), quoted, line)
        self.i += 1
        return Part("lit", self.text.cut(start, start + 1), quoted, line)

    def _ansi(self) -> Part:
        """Parse $'...', with escapes."""
        line, start = self._line(), self.i + 2
        made = Text()
        place = start
        while place < self.n and self.s[place] != "'":
            if self.s[place] == "\\" and place + 1 < self.n:
                following = self.s[place + 1]
                made.add(Text(_ESCAPES.get(following, "\\" + following), line=self.text.at[place]))
                place += 2
            else:
                made.add(self.text.cut(place, place + 1))
                place += 1
        self._spend(place - start)
        self.i = min(place + 1, self.n)
        return Part("lit", made, True, line)

    def _backquote(self, place: int) -> int:
        while place < self.n and self.s[place] != "`":
            place += 2 if self.s[place] == "\\" else 1
        self._spend(max(place - self.i, 1))
        return min(place, self.n)

    def _closing(self, place: int, opens: str, closes: str) -> int:
        """Return the index after the closing bracket, respecting quotes; the end of the text if there is none."""
        start, depth, quote = place, 1, ""
        while place < self.n:
            character = self.s[place]
            if character == "\\" and quote != "'":
                place += 1
            elif quote:
                if character == quote:
                    quote = ""
                elif quote == '"' and self.s.startswith("$(", place):
                    self._spend(place - start)
                    inner = self._nested_end(place + 2)
                    start = place = inner
                    continue
            elif character in "'\"":
                quote = character
            elif character == opens:
                depth += 1
            elif character == closes:
                depth -= 1
                if not depth:
                    self._spend(place - start + 1)
                    return place + 1
            place += 1
        self._spend(max(place - start, 1))
        return self.n

    def _nested_end(self, place: int) -> int:
        self._depth += 1
        if self._depth > DEEPEST:
            raise TooMuch
        end = self._closing(place, "(", ")")
        self._depth -= 1
        return end

    def _blanks(self) -> None:
        """Skip blanks, line continuations and a comment."""
        while self.i < self.n:
            character = self.s[self.i]
            if character in _BLANK:
                self.i += 1
            elif character == "\\" and self.s[self.i + 1 : self.i + 2] == "\n":
                self.i += 2
            elif character == "\\" and self.s.startswith("\\\r\n", self.i):
                self.i += 3
            elif character == "#":
                end = self.s.find("\n", self.i)
                self.i = self.n if end < 0 else end
            else:
                return

    def _expect(self, character: str) -> None:
        if self.s[self.i : self.i + 1] == character:
            self.i += 1

    def _line(self) -> int:
        return self.text.at[min(self.i, self.n - 1)] if self.n else 1

    def _spend(self, number: int) -> None:
        self.budget[0] -= number
        if self.budget[0] < 0:
            raise TooMuch
