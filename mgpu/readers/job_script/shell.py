"""What is the structure of a shell script: which commands, words and branches? Nothing is expanded.

Parses the constructs that job scripts use, not all of bash: anything it does not recognize becomes a word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

DEEPEST = 40  # maximum depth of nested blocks
_BLANK = " \t\r"
_ENDS_WORD = frozenset(" \t\n;&|()<>")
_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGNS = re.compile(r"([A-Za-z_]\w*)(\[[^\]\s]{0,80}\])?(\+?)=")
_VARIABLE = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!_-]")
_REDIRECTS = re.compile(r"(?:\d+|\{\w+\})?(?:&>>|&>|<<<|<<-|<<|>>|>\||>&|<&|<>|<|>)")
_PLAIN = re.compile(r"[^\s;&|()<>'\"\\$`]+")
# fmt: off
_RESERVED = frozenset({
    "if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "case", "esac", "{", "}", "function",
    "select", "[[", "!", "time", "coproc",
})
# fmt: on
_DECLARES = frozenset({"export", "declare", "local", "readonly", "typeset"})
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


@dataclass
class Assign:
    """NAME=value, NAME+=value, NAME=(values)."""

    name: str
    values: list[Word]
    line: int
    array: bool = False
    append: bool = False
    element: bool = False  # NAME[3]=value
    raw: str = ""


@dataclass
class Simple:
    """A simple command: assignments and words."""

    words: list[Word]
    assigns: list[Assign]
    line: int
    heredoc: Text | None = None  # its stdin
    heredoc_quoted: bool = False


@dataclass
class Block:
    """A compound command: a group, the parts of an `if` or `case`, or the body of a loop."""

    kind: Literal["group", "subshell", "if", "loop", "case", "function", "pipe", "or"]
    parts: list[list[Node]] = field(default_factory=list)  # if: its conditions, then one list per branch
    name: str = ""  # of a function, or a loop's variable
    otherwise: bool = False  # if: there is an else
    background: bool = False
    line: int = 1


Node: TypeAlias = "Simple | Block"


class Reader:
    """Parses the statements of a text."""

    def __init__(self, text: Text, budget: list[int]) -> None:
        self.text, self.s, self.n, self.i = text, text.s, len(text.s), 0
        self.budget = budget  # remaining character reads, shared by all readers of a script
        self._waiting: list[tuple[Simple, str, bool, bool]] = []  # heredocs: command, end, quoted, tabs stripped
        self.handed: set[int] = set()  # lines of heredocs, between << END and END
        self._depth = 0

    # --- statements -------------------------------------------------------------------------------------------

    def all(self) -> tuple[list[Node], bool]:
        """Return all statements, and whether the text was parsed completely."""
        found: list[Node] = []
        try:
            while self.i < self.n:
                self._statements((), found)
                if self.i < self.n:
                    self.i += 1  # an unmatched closing parenthesis or word
        except TooMuch:
            return found, False
        return found, True

    def _statements(self, stops: tuple[str, ...], into: list[Node] | None = None) -> list[Node]:
        found: list[Node] = [] if into is None else into
        self._depth += 1
        if self._depth > DEEPEST:
            raise TooMuch
        while True:
            self._skip_separators()
            if self.i >= self.n or self.s[self.i] == ")" or self.s.startswith(";;", self.i):
                break
            if (self._reserved_word() or "") in stops:
                break
            before, line = self.i, self._line()
            node = self._and_or()
            if node is not None:
                if isinstance(node, Block):
                    node.line = line
                found.append(node)
            if self.i == before:
                if not stops and into is None:
                    break
                self.i += 1  # not the start of a command
        self._depth -= 1
        return found

    def _and_or(self) -> Node | None:
        first = self._pipeline()
        found: list[Node] = [first] if first is not None else []
        alternatives = False
        while True:
            self._blanks()
            operator = self.s[self.i : self.i + 2]
            if operator not in ("&&", "||"):
                break
            self.i += 2
            self._skip_separators(semicolons=False)
            following = self._pipeline()
            if following is None:
                break
            if operator == "||" or alternatives:
                alternatives = True
                following = Block("or", [[following]])
            found.append(following)
        background = self.s[self.i : self.i + 1] == "&" and self.s[self.i : self.i + 2] != "&&"
        if background:
            self.i += 1
        if not found:
            return None
        if len(found) == 1 and not background:
            return found[0]
        return Block("group", [found], background=background)

    def _pipeline(self) -> Node | None:
        self._blanks()
        while (word := self._reserved_word()) in ("!", "time", "coproc"):
            assert word is not None
            self.i += len(word)
            self._blanks()
        found: list[Node] = []
        while True:
            node = self._command()
            if node is not None:
                found.append(node)
            self._blanks()
            if self.s[self.i : self.i + 1] != "|" or self.s[self.i : self.i + 2] == "||" or node is None:
                break
            self.i += 2 if self.s[self.i : self.i + 2] == "|&" else 1
            self._skip_separators(semicolons=False)
        if len(found) > 1:
            return Block("pipe", [[node] for node in found])
        return found[0] if found else None

    def _command(self) -> Node | None:
        word = self._reserved_word()
        made: Node | None
        if self.s.startswith("((", self.i):
            end = self.s.find("))", self.i)
            self.i = self.n if end < 0 else end + 2
            made = Simple([], [], self._line())
        elif self.s[self.i : self.i + 1] == "(":
            self.i += 1
            made = Block("subshell", [self._statements(())])
            self._expect(")")
        elif word == "{":
            self.i += 1
            made = Block("group", [self._statements(("}",))])
            self._word("}")
        elif word == "[[":
            made = self._test()
        elif word == "if":
            made = self._if()
        elif word in ("for", "select", "while", "until"):
            made = self._loop(word)
        elif word == "case":
            made = self._case()
        elif word == "function" or re.compile(r"[\w.:-]+[ \t]*\([ \t]*\)").match(self.s, self.i):
            made = self._function()
        else:
            return self._simple()
        self._after_compound()
        return made

    def _test(self) -> Node:
        line, end = self._line(), re.compile(r"(?<=\s)\]\](?=[\s;&|)]|$)").search(self.s, self.i)
        self._spend((end.end() if end else self.n) - self.i)
        self.i = end.end() if end else self.n
        return Simple([], [], line)

    def _if(self) -> Node:
        block = Block("if", [[]])
        self.i += 2
        while True:
            block.parts[0] += self._statements(("then", "fi"))
            self._word("then")
            block.parts.append(self._statements(("elif", "else", "fi")))
            if not self._word("elif"):
                break
        if self._word("else"):
            block.otherwise = True
            block.parts.append(self._statements(("fi",)))
        self._word("fi")
        return block

    def _loop(self, word: str) -> Node:
        block = Block("loop")
        self.i += len(word)
        self._blanks()
        if word in ("while", "until"):
            condition = self._statements(("do",))
        else:
            condition = []
            if name := _NAME.match(self.s, self.i):
                block.name = name.group()
            while self.i < self.n and self.s[self.i] not in "\n;":  # in WORDS, or (( ; ; ))
                if self.s.startswith("((", self.i):
                    end = self.s.find("))", self.i)
                    self.i = self.n if end < 0 else end + 2
                elif self._read_word() is None:
                    self.i += 1
                self._blanks()
            self._skip_separators()
        self._word("do")
        block.parts = [condition + self._statements(("done",))]
        self._word("done")
        return block

    def _case(self) -> Node:
        block = Block("case")
        self.i += 4
        self._blanks()
        self._read_word()
        self._skip_separators()
        self._word("in")
        while self.i < self.n:
            self._skip_separators()
            if self._word("esac"):
                break
            end = self.s.find(")", self.i + 1)  # of the pattern
            if end < 0:
                self.i = self.n
                break
            self._spend(end - self.i)
            self.i = end + 1
            block.parts.append(self._statements(("esac",)))
            if self.s.startswith(";;", self.i):
                self.i += 2
                self.i += self.s[self.i : self.i + 1] == "&"
            elif self.s[self.i : self.i + 1] == ")":
                self.i += 1
        return block

    def _function(self) -> Node:
        self._word("function")
        self._blanks()
        name = re.compile(r"[\w.:-]+").match(self.s, self.i)
        self.i = name.end() if name else self.i + 1
        called = re.compile(r"[ \t]*\([ \t]*\)").match(self.s, self.i)
        self.i = called.end() if called else self.i
        self._skip_separators()
        self._depth += 1
        if self._depth > DEEPEST:
            raise TooMuch
        body = self._command()
        self._depth -= 1
        return Block("function", [[body] if body is not None else []], name=name.group() if name else "")

    def _after_compound(self) -> None:
        while True:
            self._blanks()
            if not (found := _REDIRECTS.match(self.s, self.i)):
                return
            self._redirect(found, None)

    # --- simple commands --------------------------------------------------------------------------------------

    def _simple(self) -> Node | None:
        made = Simple([], [], self._line())
        start = self.i
        while True:
            self._blanks()
            if self.i >= self.n or self.s[self.i] in "\n;|)":
                break
            if found := _REDIRECTS.match(self.s, self.i):
                if re.match(r"[<>]\(", self.s[self.i : self.i + 2]):  # process substitution
                    end = self._closing(self.i + 2, "(", ")")
                    made.words.append(Word([Part("lit", self.text.cut(self.i, end), True, self._line())], self._line()))
                    self.i = end
                else:
                    self._redirect(found, made)
                continue
            if self.s[self.i] == "&":
                break
            if self.s[self.i] == "(":
                break
            if assign := self._assign(made):
                made.assigns.append(assign)
                continue
            word = self._read_word()
            if word is None:
                break
            made.words.append(word)
        return made if made.words or made.assigns or self.i > start else None

    def _assign(self, made: Simple) -> Assign | None:
        if made.words and (made.words[0].plain or "") not in _DECLARES:
            return None
        found = _ASSIGNS.match(self.s, self.i)
        if not found:
            return None
        line, start = self._line(), self.i
        self.i = found.end()
        assign = Assign(found[1], [], line, append=bool(found[3]), element=bool(found[2]))
        if self.s[self.i : self.i + 1] == "(":
            assign.array = True
            self.i += 1
            while True:
                self._skip_separators(semicolons=False)
                if self.i >= self.n or self.s[self.i] == ")":
                    self.i += 1
                    break
                word = self._read_word()
                if word is None:
                    self.i += 1
                else:
                    assign.values.append(word)
        elif (word := self._read_word()) is not None:
            assign.values.append(word)
        assign.raw = self.s[start : self.i]
        return assign

    def _redirect(self, found: re.Match[str], command: Simple | None) -> None:
        self.i = found.end()
        operator = found.group().lstrip("0123456789")
        self._blanks()
        word = self._read_word()
        if word is None:
            return
        if operator in ("<<", "<<-"):
            end = "".join(part.text.s for part in word.parts)
            quoted = any(part.quoted for part in word.parts) or "\\" in word.raw
            self._waiting.append((command or Simple([], [], 1), end, quoted, operator == "<<-"))

    def _heredocs(self) -> None:
        """Read the heredocs that begin on this line."""
        waiting, self._waiting = self._waiting, []
        for command, end, quoted, strip in waiting:
            start = self.i
            while self.i < self.n:
                stop = self.s.find("\n", self.i)
                stop = self.n if stop < 0 else stop
                line = self.s[self.i : stop].rstrip("\r")
                if (line.lstrip("\t") if strip else line) == end:
                    command.heredoc = self.text.cut(start, self.i)
                    self.i = min(stop + 1, self.n)
                    break
                self.i = min(stop + 1, self.n)
            else:
                command.heredoc = self.text.cut(start, self.n)
            command.heredoc_quoted = quoted
            self.handed.update(self.text.at[start : self.i])

    # --- words ------------------------------------------------------------------------------------------------

    def _read_word(self) -> Word | None:
        parts: list[Part] = []
        start, line = self.i, self._line()
        while self.i < self.n:
            character = self.s[self.i]
            if character in _ENDS_WORD:
                break
            if plain := _PLAIN.match(self.s, self.i):
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

    # --- between words ----------------------------------------------------------------------------------------

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

    def _skip_separators(self, *, semicolons: bool = True) -> None:
        """Skip everything that can separate two commands."""
        while True:
            self._blanks()
            if self.i >= self.n:
                return
            if self.s[self.i] == "\n":
                self.i += 1
                if self._waiting:
                    self._heredocs()
            elif semicolons and self.s[self.i] == ";" and not self.s.startswith(";;", self.i):
                self.i += 1
            else:
                return

    def _reserved_word(self) -> str | None:
        """Return the reserved word at the current position."""
        found = _PLAIN.match(self.s, self.i, min(self.n, self.i + 12))
        word = found.group() if found else ""
        return word if word in _RESERVED else None

    def _word(self, word: str) -> bool:
        """Skip this reserved word, and return whether it was at the current position."""
        self._skip_separators()
        if not self.s.startswith(word, self.i):
            return False
        following = self.s[self.i + len(word) : self.i + len(word) + 1]
        if following and following not in _ENDS_WORD and following != "\r":
            return False
        self.i += len(word)
        return True

    def _expect(self, character: str) -> None:
        if self.s[self.i : self.i + 1] == character:
            self.i += 1

    def _line(self) -> int:
        return self.text.at[min(self.i, self.n - 1)] if self.n else 1

    def _spend(self, number: int) -> None:
        self.budget[0] -= number
        if self.budget[0] < 0:
            raise TooMuch
