"""What is the structure of a shell script: which commands, words and branches? Nothing is expanded.

Parses the constructs that job scripts use, not all of bash: anything it does not recognize becomes a word.
"""

from __future__ import annotations

import re

from mgpu.readers.job_script.shell_nodes import Assign, Block, Node, Simple
from mgpu.readers.job_script.shell_words import DEEPEST, ENDS_WORD, PLAIN, Part, Text, TooMuch, Word, WordReader

_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGNS = re.compile(r"([A-Za-z_]\w*)(\[[^\]\s]{0,80}\])?(\+?)=")
_REDIRECTS = re.compile(r"(?:\d+|\{\w+\})?(?:&>>|&>|<<<|<<-|<<|>>|>\||>&|<&|<>|<|>)")
# fmt: off
_RESERVED = frozenset({
    "if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "case", "esac", "{", "}", "function",
    "select", "[[", "!", "time", "coproc",
})
# fmt: on
_WRITES = frozenset({">", ">>", ">|", "&>", "&>>"})
_DECLARES = frozenset({"export", "declare", "local", "readonly", "typeset"})


class Reader(WordReader):
    """Parses the statements of a text."""

    def __init__(self, text: Text, budget: list[int]) -> None:
        super().__init__(text, budget)
        self._waiting: list[tuple[Simple, str, bool, bool]] = []  # heredocs: command, end, quoted, tabs stripped
        self.handed: set[int] = set()  # lines of heredocs, between << END and END

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
        elif command is not None and operator in _WRITES:
            command.outputs.append(word)

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

    # --- between words ----------------------------------------------------------------------------------------

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
        found = PLAIN.match(self.s, self.i, min(self.n, self.i + 12))
        word = found.group() if found else ""
        return word if word in _RESERVED else None

    def _word(self, word: str) -> bool:
        """Skip this reserved word, and return whether it was at the current position."""
        self._skip_separators()
        if not self.s.startswith(word, self.i):
            return False
        following = self.s[self.i + len(word) : self.i + len(word) + 1]
        if following and following not in ENDS_WORD and following != "\r":
            return False
        self.i += len(word)
        return True
