"""Messages of mgpu between the lines of a program's output: on stderr, never inside a line, never waiting for a reader.

If stderr is a terminal, all messages appear there. If it is a file or a pipe, only those that matter to the user who
reads it later. The program's own streams keep their bytes; a message goes to mgpu's stderr alone.
"""

from __future__ import annotations

import contextlib
import os
import select
import textwrap
import time
from collections.abc import Sequence

from mgpu.process.run_log import RunLog
from mgpu.process.stream import Stream
from mgpu.process.terminal import is_terminal
from mgpu.secrets_masking import masked
from mgpu.text import clean

_SAY_S = 3.0  # after this time a message interrupts a line, because a progress bar never ends its line
_NAME = "mgpu: "
_NARROWEST = 20  # columns: in a narrower terminal lines are broken by it
_LONGEST = 4000  # bytes on a stderr that is no terminal: a pipe accepts 4096 at once


class Notices:
    """The messages that have not been printed yet."""

    def __init__(self) -> None:
        self._pending: list[tuple[float, str]] = []

    def __bool__(self) -> bool:
        """Whether there is a message to print."""
        return bool(self._pending)

    def add(self, text: str, *, important: bool, log: RunLog | None = None) -> None:
        """Keep a message for stderr; if stderr is no terminal, only an important one. That is also added to the log."""
        if important and log is not None:
            log.add_message(text)
        if is_terminal(2) or important:
            line = "".join(letter if letter.isprintable() else " " for letter in text)
            self._pending.append((time.monotonic(), line))

    def show(self, streams: Sequence[Stream], *, raw: bool, at_once: bool = False) -> None:
        """Print them when no line of the program is interrupted. `raw`: the terminal needs CR LF."""
        to_terminal = is_terminal(2)
        shown = [stream for stream in streams if stream.to_terminal or not to_terminal]
        between = all(stream.at_line_start for stream in shown)
        if not at_once:
            waited = time.monotonic() - self._pending[0][0]
            if any(stream.waits or stream.full_screen for stream in shown) or (not between and waited < _SAY_S):
                return
        end = "\r\n" if raw else "\n"
        begin, width = "" if between else end, _columns() if to_terminal else 0
        while self._pending and (to_terminal or _accepts()):
            _, line = self._pending.pop(0)
            text = (begin + end.join(_folded(clean(masked(line)), width))).encode("utf-8", "replace")
            begin = ""
            if not to_terminal:
                text = text[:_LONGEST].decode("utf-8", "ignore").encode()
            with contextlib.suppress(OSError):
                os.write(2, text + end.encode())


def _folded(line: str, width: int) -> list[str]:
    """Break a message between words; 0: not at all. A command, which follows two spaces, stays whole to be copied."""
    if not width or len(line) + len(_NAME) <= width:
        return [f"{_NAME}{line}"]
    words, _, command = line.partition("  ")
    shape = textwrap.TextWrapper(
        max(width, _NARROWEST), _NAME, " " * len(_NAME), break_long_words=False, break_on_hyphens=False
    )
    folded = shape.wrap(words)
    return [*folded, f"{shape.subsequent_indent}{command}"] if command else folded


def _columns() -> int:
    """Return the width of the terminal on stderr; 0 if it reports none."""
    try:
        return os.get_terminal_size(2).columns
    except OSError:
        return 0


def _accepts() -> bool:
    """Whether stderr accepts a message now. A file always does, a full pipe does not."""
    try:
        return bool(select.select([], [2], [], 0)[1])
    except (OSError, ValueError):  # it is closed
        return False
