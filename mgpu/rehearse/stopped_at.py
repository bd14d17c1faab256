"""At which of the user's lines is each rank of a run that makes no progress? Asked of the recorders, before the end."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from mgpu import file_reading
from mgpu.readers.stack_dump import main_thread
from mgpu.recorder.inject._mgpu_recorder import ASK_STACKS
from mgpu.snapshot.hang_facts import own_frame

_ANSWER_S = 1.0
_POLL_S = 0.05
_MOST_BYTES = 1 << 20
_MOST_RANKS = 4096


def lines(recorded: Path) -> dict[int, str]:
    """Return the user's innermost line of each process that answers, as path:number, by its process ID."""
    asked: dict[int, Path] = {}
    with contextlib.suppress(OSError):
        for pipe in sorted(recorded.glob("*.ask"))[:_MOST_RANKS]:
            if _ask(pipe):
                asked[int(pipe.name.split(".")[1])] = pipe.with_suffix(".stacks")
    deadline = time.monotonic() + _ANSWER_S
    while time.monotonic() < deadline and not all(map(_size, asked.values())):
        time.sleep(_POLL_S)
    return {pid: line for pid, path in asked.items() if (line := _line(path))}


def _ask(pipe: Path) -> bool:
    """Request the stacks through the FIFO; return False if no one reads it."""
    with contextlib.suppress(OSError, ValueError):
        handle = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            return os.write(handle, ASK_STACKS) == len(ASK_STACKS)
        finally:
            os.close(handle)
    return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _line(path: Path) -> str | None:
    try:
        dump = file_reading.read_part(path, most=_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    frame = own_frame(main_thread(dump) or ())
    return f"{frame.file}:{frame.line}" if frame else None
