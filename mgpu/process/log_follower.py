"""What has a run written so far, and what does it still write? Its log is followed through all its parts."""

from __future__ import annotations

import os
from pathlib import Path

from mgpu import file_reading
from mgpu.process import run_log

_CHUNK = 1 << 16
_TAIL_LINES = 100
_GOES_ON = b"nothing is left out]"  # ends the head of a part that follows on the one before
_TAIL_BYTES = 256 << 10  # a progress bar is one long line


class Output:
    """The bytes of a run, in their order.

    A part of the log begins with a line of mgpu's own; it is passed over where nothing was left out before it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = -1  # of the part that is read
        self._file: int | None = None
        self._ahead = b""
        self._in_header = False
        self.at_line_start = True  # after all that was read

    @property
    def is_there(self) -> bool:
        """Whether there is any log."""
        return bool(run_log.parts(self._folder))

    def read(self) -> bytes:
        """What came since; empty when there is nothing new yet."""
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
            if data := self._read_part():  # it came before the next part was begun
                return data
            if not self._open(*later[0]):
                return b""

    def skip_to_tail(self) -> None:
        """Begin with the last lines of what is there by now."""
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
        """The end of a part; of the last one, what comes later is read from there on."""
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
    """Which part of the log it is: run.log, run.log.1, run.log.2 …"""
    last = path.suffix[1:]
    return int(last) if last.isdigit() else 0


def last_lines(data: bytes, most: int, *, whole: bool) -> bytes:
    """The last lines of a text, and the one that still grows.

    Where the text was cut (not `whole`), the rest of its first line goes; when there is no other, all before a carriage
    return, with which a progress bar is drawn anew.
    """
    lines = data.split(b"\n")  # the last one is empty, or still growing
    if len(lines) > most + 1:
        return b"\n".join(lines[-most - 1 :])
    if whole:
        return data
    if len(lines) > 1:
        return b"\n".join(lines[1:])
    return data.partition(b"\r")[2] or data
