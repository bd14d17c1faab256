"""What does a file hold that somebody else still writes, on another machine?"""

from __future__ import annotations

import contextlib
import os

from mgpu import file_reading

_CHUNK = 1 << 16


class Tail:
    """The bytes of a file, in their order: from its beginning, once it is there; anew, when it was begun anew."""

    def __init__(self) -> None:
        self.path = ""  # that is read
        self.begun_anew = 0
        self._file: int | None = None
        self._at = 0

    def read(self, names: tuple[str, ...]) -> bytes:
        """What came since; empty when there is nothing new. `names`: what the file may be called."""
        if self.path and self.path not in names:  # another run of the job writes another file
            self.close()
        if self._file is None and not self._open(names):
            return b""
        assert self._file is not None
        try:
            if os.fstat(self._file).st_size < self._at:  # a job that was put back writes it from the start
                self._at = 0
                self.begun_anew += 1
            data = os.pread(self._file, _CHUNK, self._at)
        except OSError:  # a file system that was away; the file is opened again
            self._drop()
            return b""
        self._at += len(data)
        return data

    def again(self) -> None:
        """Open it anew with the next read: what others have written is then seen on a network's file system, too."""
        self._drop()

    def close(self) -> None:
        """Read no more of it."""
        self._drop()
        self.path, self._at = "", 0

    def _drop(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self, names: tuple[str, ...]) -> bool:
        for name in names:
            with contextlib.suppress(OSError):
                # A job may send its output nowhere; every other device is refused.
                null = name == os.devnull
                self._file = os.open(os.devnull, os.O_RDONLY) if null else file_reading.open_checked(name)
                self.path = name
                return True
        return False
