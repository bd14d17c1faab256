"""Which Python frames is a process in, according to what faulthandler wrote?"""

from __future__ import annotations

import itertools
import os
import re
from functools import cache

from mgpu import file_reading
from mgpu.readers.log.traceback_frames import FOREIGN
from mgpu.secrets_masking import masked
from mgpu.snapshot import StackFrame
from mgpu.text import clean

_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.+)')
_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+|Stack \(most recent call first\)")
_OF_RECORDER = re.compile(r"/_mgpu_recorder\.py$")  # in a handler of Python, it is the innermost
_LONGEST = 120  # characters of a line of code
MOST_FRAMES = 60
_MOST_BYTES = 2 << 20  # of a file of code
_WAIT_S = 1.0  # the mount that the run hangs on may be the one that the code is on


def main_thread(dump: str) -> tuple[StackFrame, ...] | None:
    """Return the frames of the main thread of the last dump, the innermost first; None if there is no dump.

    faulthandler writes the main thread last. It has no Python frame while the interpreter ends.
    """
    threads: list[list[StackFrame]] = []
    for line in dump.splitlines():
        if _THREAD.match(line):
            threads.append([])
        elif threads and (found := _FRAME.match(line)):
            threads[-1].append(frame_at(found[1], int(found[2]), found[3]))
    if not threads:
        return None
    outside = itertools.dropwhile(lambda frame: _OF_RECORDER.search(frame.file) is not None, threads[-1])
    return tuple(itertools.islice(outside, MOST_FRAMES))


def frame_at(file: str, line: int, function: str, *, with_code: bool = True) -> StackFrame:
    """Return a frame with its line of code, if the file can be read here.

    `with_code=False` for names that a stranger may have written: no file is opened.
    """
    lines = _lines_of(file) if with_code and not FOREIGN.search(file) else ()
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return StackFrame(
        masked(clean(file)),
        line,
        masked(clean(function))[:_LONGEST],
        masked(clean(text))[:_LONGEST],
        FOREIGN.search(file) is not None,
    )


@cache
def _lines_of(file: str) -> tuple[str, ...]:
    """Return the lines of a file. Its name comes from a rank: it may be a pipe or a device, which are not read."""
    if not os.path.isabs(file) or file.startswith(("/dev/", "/proc/")):
        return ()
    try:
        code = file_reading.read_start(file, most=_MOST_BYTES, wait_s=_WAIT_S)
    except (OSError, ValueError):
        return ()
    return tuple(code.decode("utf-8", "replace").splitlines())
