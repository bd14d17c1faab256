"""Reads a file while a process, possibly on another machine, writes it."""

from __future__ import annotations

import contextlib
import os

from mgpu import file_reading

_CHUNK = 1 << 16


class Tail:
    """The content of a file, in order, as soon as it exists; from the start again if it was rewritten."""

    def __init__(self) -> None:
        self.path = ""  # of the current file
        self.begun_anew = 0
        self._file: int | None = None
        self._at = 0

    def read(self, names: tuple[str, ...]) -> bytes:
        """Return the new content; empty if there is none. `names`: possible names of the file."""
        if self.path and self.path not in names:  # another run of the job writes another file
            self.close()
        if self._file is None and not self._open(names):
            return b""
        assert self._file is not None
        try:
            if os.fstat(self._file).st_size < self._at:  # a requeued job writes it from the start
                self._at = 0
                self.begun_anew += 1
            data = os.pread(self._file, _CHUNK, self._at)
        except OSError:  # the file system was temporarily unavailable: open the file again
            self._drop()
            return b""
        self._at += len(data)
        return data

    def again(self) -> None:
        """Reopen the file on the next read, which makes new content visible on network file systems."""
        self._drop()

    def close(self) -> None:
        """Close the file."""
        self._drop()
        self.path, self._at = "", 0

    def _drop(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self, names: tuple[str, ...]) -> bool:
        for name in names:
            with contextlib.suppress(OSError):
                # A job may write its output to /dev/null; every other device is refused.
                null = name == os.devnull
                self._file = os.open(os.devnull, os.O_RDONLY) if null else file_reading.open_checked(name)
                self.path = name
                return True
        return False
