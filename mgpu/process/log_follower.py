"""Follow the log of a run, through all its parts."""

from __future__ import annotations

import os
from pathlib import Path

from mgpu import file_reading
from mgpu.process import run_log

_CHUNK = 1 << 16
_TAIL_LINES = 100
_GOES_ON = b"nothing is left out]"  # ends the first line of a part that continues the previous one
_TAIL_BYTES = 256 << 10  # a progress bar is one long line


class Output:
    """The output of a run, in order.

    A part of the log begins with a line from mgpu, which is skipped if nothing is missing before it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = -1  # of the current part
        self._file: int | None = None
        self._ahead = b""
        self._in_header = False
        self.at_line_start = True  # after all that was read

    @property
    def is_there(self) -> bool:
        """Whether there is a log."""
        return bool(run_log.parts(self._folder))

    def read(self) -> bytes:
        """Return the new output; empty if there is none yet."""
        if data := self._read():
            self.at_line_start = data.endswith((b"\n", b"\r"))
        return data

    def _read(self) -> bytes:
        if self._ahead:
            data, self._ahead = self._ahead, b""
            return data
        while True:
            if data := self._read_part():
                return data
            later = [(number(path), path) for path in run_log.parts(self._folder) if number(path) > self._number]
            if not later:
                return b""
            if data := self._read_part():  # written before the next part was started
                return data
            if not self._open(*later[0]):
                return b""

    def skip_to_tail(self) -> None:
        """Start with the last lines of the current log."""
        tail = b""
        for path in reversed(run_log.parts(self._folder)):
            data = self._last_of(path, _TAIL_BYTES - len(tail), follow=not tail)
            tail = data + tail
            if tail.count(b"\n") > _TAIL_LINES or len(tail) >= _TAIL_BYTES:
                break
        self._ahead = last_lines(tail, _TAIL_LINES, whole=len(tail) < _TAIL_BYTES)

    def _read_part(self) -> bytes:
        while self._file is not None and (data := os.read(self._file, _CHUNK)):
            if not self._in_header:
                return data
            _, end, rest = data.partition(b"\n")
            self._in_header = not end
            if rest:
                return rest
        return b""

    def _open(self, which: int, path: Path) -> bool:
        try:
            opened = file_reading.open_part(path)
        except OSError:
            return False
        if self._file is not None:
            os.close(self._file)
        self._in_header = which > 0 and which == self._number + 1
        self._number, self._file = which, opened
        return True

    def _last_of(self, path: Path, most: int, *, follow: bool) -> bytes:
        """Return the end of a part. `follow`: continue reading after it."""
        try:
            start = max(0, path.stat().st_size - most)
            data = file_reading.read_part(path, most=most, start=start)
        except OSError:
            return b""
        if follow and self._open(number(path), path) and self._file is not None:
            os.lseek(self._file, start + len(data), os.SEEK_SET)
            self._in_header = False
        head, _, rest = data.partition(b"\n")
        return rest if start == 0 and number(path) > 0 and _GOES_ON in head else data


def number(path: Path) -> int:
    """Return the number of a part of the log: run.log, run.log.1, run.log.2, ..."""
    last = path.suffix[1:]
    return int(last) if last.isdigit() else 0


def last_lines(data: bytes, most: int, *, whole: bool) -> bytes:
    """Return the last lines of a text, and the incomplete one at its end.

    If the text was cut (not `whole`), its partial first line is dropped; if it is the only one, everything up to a
    carriage return, with which progress bars redraw.
    """
    lines = data.split(b"\n")  # the last one is empty or incomplete
    if len(lines) > most + 1:
        return b"\n".join(lines[-most - 1 :])
    if whole:
        return data
    if len(lines) > 1:
        return b"\n".join(lines[1:])
    return data.partition(b"\r")[2] or data
