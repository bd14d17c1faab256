"""Where does output go: stdout, stderr, a pager, a file, the page of a CI run; with progress and a time limit."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import IO

from mgpu import errors, files, messages
from mgpu.errors import MgpuError, reason
from mgpu.process import signals
from mgpu.report.screen import Line, Screen, can_ask, is_terminal, unstyled


def to_stdout(text: str) -> None:
    """Print lines for a person."""
    Screen.of().show(unstyled(text.split("\n")))


def to_stderr(text: str) -> None:
    """Print a message beside the report."""
    if sys.stderr is not None:
        print(messages.message(text), file=sys.stderr)


def write_text(stream: IO[str], text: str) -> None:
    """Write a report in one piece."""
    stream.write(text)
    stream.flush()


def show_paged(lines: Callable[[Screen], Iterable[Line]]) -> None:
    """Print lines. If the terminal has fewer rows, use the user's pager ($PAGER, else less)."""
    screen = Screen.of()
    shown = list(lines(screen))
    if not can_ask() or len(shown) < shutil.get_terminal_size().lines:
        screen.show(shown)
        return
    import pydoc

    buffer = io.StringIO()
    replace(screen, stream=buffer).show(shown)
    os.environ.setdefault("LESS", "-FRX")  # like git: keep colors, do not clear the screen on exit
    pydoc.pager(buffer.getvalue())


def append_summary(text: str) -> None:
    """Append to the summary page of a GitHub run. A failure only prints a message."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        files.refuse_strangers_links(Path(path))
        with open(path, "a", encoding="utf-8") as file:
            file.write(text + "\n")
    except errors.MgpuError as error:
        to_stderr(f"mgpu: cannot write the job summary: {error.message}")
    except OSError as error:
        to_stderr(f"mgpu: cannot write the job summary: {reason(error)}")


def write_out(output: str, show: Callable[[IO[str]], None]) -> None:
    """Write a report to stdout, or atomically to a file."""
    if output in ("", "-"):
        if sys.stdout is not None:
            show(sys.stdout)
        return
    buffer = io.StringIO()
    show(buffer)
    files.write_named(Path(output), buffer.getvalue())


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str], None] | None]:
    """Show the running probes in a line on stderr, if it is a terminal."""
    stream = sys.stderr
    if not is_terminal(stream):
        yield None
        return
    started, shown = time.monotonic(), ""

    def show(what: str) -> None:
        nonlocal shown
        if what != shown and time.monotonic() - started > 0.3:  # quick answers need no progress
            shown = what
            stream.write(f"\r\x1b[Kprobing: {what}"[:78])
            stream.flush()

    try:
        yield show
    finally:
        if shown:
            stream.write("\r\x1b[K")
            stream.flush()


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise MgpuError (exit 124) when the block takes longer; 0 means no limit."""
    if not seconds:
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise MgpuError(f"stopped after --timeout {seconds:g} s", errors.TIMED_OUT)

    with signals.installed_handlers({signal.SIGALRM: ring}, even_ignored=[signal.SIGALRM]):
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
