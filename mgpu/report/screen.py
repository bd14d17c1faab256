"""How are outcomes shown on a screen?

The only file with color. Every status is also a word. A screen is a list of lines of (text, style) spans: `rich` prints
them on a terminal, elsewhere they are plain text. Secrets are masked, and control characters shown as escapes, here and
only once, when the lines are written.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Literal, TypeAlias

from mgpu.engine import Status
from mgpu.messages import clean, one_line
from mgpu.secrets_masking import masked

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

Style = Literal["", "bold", "ok", "warn", "fail", "crash", "title"]
Span: TypeAlias = tuple[str, Style]
Line: TypeAlias = list[Span]
Mark = Status | Literal["run", "wait"]  # the status of a row; the last two only for something in progress

WIDTH_PLAIN = 80  # when there is no terminal to ask
WIDTH_MAX = 100  # longer lines are hard to read
_NARROW = 60  # below this width a row's text is printed under its label

# ANSI color names, so that the user's theme and contrast settings apply.
_PAINT: dict[Style, str] = {
    "": "",
    "bold": "bold",
    "title": "bold",
    "ok": "cyan",
    "warn": "bold yellow",
    "fail": "bold bright_red",
    "crash": "bold magenta",
}
WORD: dict[Mark, tuple[str, str, Style]] = {  # status -> word, UTF-8 glyph, style
    "ok": ("ok", "✓", "ok"),
    "info": ("info", "i", ""),
    "warn": ("warn", "!", "warn"),
    "fail": ("FAIL", "✗", "fail"),
    "waived": ("waive", "~", "bold"),
    "skip": ("skip", "-", ""),
    "crash": ("crash", "?", "crash"),
    "run": ("run", ">", "bold"),
    "wait": ("", " ", ""),
}


@dataclass(frozen=True)
class Screen:
    """An output for lines: its stream, width, characters and colors."""

    width: int
    glyphs: bool
    colour: bool
    stream: IO[str]
    live: bool = False  # a terminal on which lines can be redrawn

    @classmethod
    def of(cls, stream: IO[str] | None = None, environ: Mapping[str, str] = os.environ) -> Screen:
        """Return the screen for a stream: a terminal with color, a pipe without."""
        stream = stream if stream is not None else sys.stdout
        if stream is None:  # started with stdout closed
            stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        terminal = is_terminal(stream)
        dumb = environ.get("TERM", "") in ("", "dumb")
        columns = _columns(stream, environ) if terminal or environ.get("COLUMNS") else WIDTH_PLAIN
        return cls(
            width=max(20, min(columns, WIDTH_MAX)),
            glyphs=terminal
            and not dumb
            and not environ.get("MGPU_ASCII")
            and _locale_is_utf8(environ)
            and _encodes(stream, "✓✗─"),
            colour=_colour(terminal and not dumb, environ),
            stream=stream,
            live=terminal and not dumb and not environ.get("MGPU_ACCESSIBLE"),
        )

    @property
    def narrow(self) -> bool:
        """Whether a row's text is printed under its label."""
        return self.width < _NARROW

    def show(self, lines: Iterable[Line]) -> None:
        """Write the lines."""
        if self.colour:
            self._paint(lines)
            return
        for line in lines:
            self.stream.write("".join(text for text, _ in _shown(line)).rstrip() + "\n")
        self.stream.flush()

    def _paint(self, lines: Iterable[Line]) -> None:
        console = self.console(width=10_000)
        for line in lines:
            console.print(painted(line), soft_wrap=True)

    def console(self, width: int | None = None) -> Console:
        """Return a rich console that prints to it."""
        from rich.console import Console

        return Console(
            file=self.stream,
            force_terminal=True,
            color_system="auto" if self.colour else None,
            highlight=False,
            width=width,
            legacy_windows=False,
        )

    def paragraph(self, text: str, first: str = "", rest: str = "", style: Style = "") -> list[Line]:
        """Wrap text to the screen's width, with a prefix for the first line and one for the others."""
        return [[(line, style)] for line in wrapped(text, self.width, first, rest)]

    def status(self, status: Mark) -> list[Span]:
        """The status word, padded; on a UTF-8 terminal with its glyph first."""
        word, glyph, style = WORD[status]
        return [(f"{glyph} {word:<6}" if self.glyphs else f"{word:<6}", style)]

    def rule(self, text: str) -> str:
        """A headline padded with dashes to the screen's width."""
        dash = "─" if self.glyphs else "-"
        head = f"{dash * 3} {text} "
        return head + dash * max(0, min(self.width, WIDTH_PLAIN) - len(head))


def _shown(line: Line) -> Line:
    """A line that is safe to show. A secret that spans two parts is masked in the whole line."""
    parts: Line = [(one_line(text), style) for text, style in line]
    if len(parts) < 2:
        return parts
    together = "".join(text for text, _ in parts)
    hidden = masked(together)
    return parts if hidden == together else [(hidden, parts[0][1])]


def painted(line: Line) -> Text:
    """Return a line as rich text, safe to show."""
    from rich.text import Text

    text = Text()
    for part, style in _shown(line):
        text.append(part, style=_PAINT[style])
    text.rstrip()
    return text


def _columns(stream: IO[str], environ: Mapping[str, str]) -> int:
    """COLUMNS, else the width of the stream's own terminal: stdout may be a pipe while stderr is a terminal."""
    if not environ.get("COLUMNS"):
        with contextlib.suppress(OSError, ValueError):
            return os.get_terminal_size(stream.fileno()).columns or WIDTH_PLAIN
    return shutil.get_terminal_size((WIDTH_PLAIN, 24)).columns


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether a stream is a terminal; False for a closed or missing one."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def can_ask(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether mgpu can prompt: stdin and stdout are terminals, and neither CI nor MGPU_NO_INPUT is set."""
    forbidden = environ.get("CI") or environ.get("MGPU_NO_INPUT")
    return is_terminal(sys.stdin) and is_terminal(sys.stdout) and not forbidden


def _locale_is_utf8(environ: Mapping[str, str]) -> bool:
    """Whether the user's locale is UTF-8. Python itself also writes UTF-8 under LC_ALL=C (PEP 540)."""
    named = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or "C"
    return named.lower().replace("-", "").endswith("utf8")


def _encodes(stream: IO[str], text: str) -> bool:
    try:
        text.encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True


def _colour(terminal: bool, environ: Mapping[str, str]) -> bool:
    """MGPU_COLOR > NO_COLOR > FORCE_COLOR, CLICOLOR_FORCE > CLICOLOR > whether it is a terminal."""
    wish = environ.get("MGPU_COLOR", "")
    if wish in ("always", "never"):
        return wish == "always"
    if environ.get("NO_COLOR"):
        return False
    if any(environ.get(name, "") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return terminal and environ.get("CLICOLOR", "1") != "0"


def wrapped(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Wrap text to `width`, with a prefix for the first line and one for the others. Longer words are not split."""
    lines = textwrap.wrap(
        clean(text),
        max(width, len(rest) + 10),
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines or [first.rstrip()]


def unstyled(texts: Iterable[str]) -> list[Line]:
    """Return a line without a style for each text."""
    return [[(text, "")] for text in texts]


def row(screen: Screen, status: Mark, label: str, text: str, indent: int = 2) -> list[Line]:
    """`  ok    Driver      580.65.06 …`, wrapped under its own column; on narrow screens under the label."""
    pad = " " * indent if not screen.narrow else " " * (indent // 4)
    head: Line = [(pad, ""), *screen.status(status)]
    used = len(pad) + sum(len(part) for part, _ in screen.status(status))
    if screen.narrow:
        under = pad + "  "
        return [[*head, (label.rstrip(), "bold")], *screen.paragraph(text, under, under)]
    column = used + max(12, len(label))
    if column + 20 > screen.width:
        return [[*head, (label, "")], *screen.paragraph(text, " " * used, " " * used)]
    return columned([*head, (f"{label:<{column - used}}", "")], text, screen)


def labelled(label: str, text: str, screen: Screen, *, whole: bool = False) -> list[Line]:
    """`Fix      text`, wrapped under its own column; `whole`: never wrapped, so it can be pasted."""
    if whole:
        return [[(f"{label:<9}", "bold"), (text, "")]]
    return columned([(f"{label:<9}", "bold")], text, screen)


def columned(head: Line, text: str, screen: Screen, style: Style = "", least: int = 0) -> list[Line]:
    """Text after a head, wrapped under its own column, which is never narrower than `least`."""
    used = sum(len(part) for part, _ in head)
    first, *others = wrapped(text, max(least, screen.width - used))
    return [[*head, (first, style)], *([(" " * used, ""), (line, style)] for line in others)]


def headed(word: str, style: Style, text: str, screen: Screen) -> list[Line]:
    """A verdict: its word and its details, wrapped."""
    indent = " " * (len(word) + 2)
    first, *rest = wrapped(text, screen.width, indent, "" if screen.narrow else indent)
    return [[(word, style), (first[len(word) :], "")], *unstyled(rest)]
