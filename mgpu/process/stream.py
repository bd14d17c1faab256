"""How do a program's bytes reach whoever reads mgpu: unchanged, at once, and without ever making mgpu wait?"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat

from mgpu.errors import reason

_BUFFER_BYTES = 256 << 10
# A pipe this large lets the program run ahead (Linux's own limit for users). Read in pieces of the usual 64 KiB,
# 100 MB take twice as long as without mgpu (measured 2026-11, 2 cores).
_PIPE_BYTES = 1 << 20
_OTHER_SCREEN = b"\x1b[?1049"  # h: a full-screen program takes the terminal, l: gives it back
_GONE = (errno.EPIPE, errno.EIO, errno.ENXIO)  # nobody reads any more: a pipe or a terminal that was closed


class Stream:
    """What comes from the program by `source`, and where it goes."""

    def __init__(self, source: int, target: int) -> None:
        self.source = source
        self.name = "stderr" if target == 2 else "stdout"
        self.to_terminal = os.isatty(target) if _is_open(target) else False
        self.target: int | None = _without_waiting(target) if _is_open(target) else None  # None: nobody reads any more
        self.ended = False
        self._rest: int | None = None  # bytes that are still read; None: all that comes
        self.lost = ""  # why what was printed could not be written, though somebody wanted it: a full disk
        self.left = memoryview(b"")  # read, and not yet taken by the reader
        self.at_line_start = True
        self.full_screen = False
        self.buffer = bytearray(_BUFFER_BYTES)  # what `read` has found
        self._view = memoryview(self.buffer)
        os.set_blocking(source, False)
        for end in (source, self.target):
            if end is not None:
                with contextlib.suppress(OSError):  # no pipe, or the user has used up what pipes he may have
                    fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    @property
    def waits(self) -> bool:
        """Whether the reader has to take something first."""
        return bool(self.left)

    def read(self) -> int:
        """Take what is there now into the buffer; how many bytes there were."""
        size, most = 0, _BUFFER_BYTES if self._rest is None else min(_BUFFER_BYTES, self._rest)
        while size < most:
            try:
                got = os.readv(self.source, [self._view[size:most]])
            except BlockingIOError:
                break
            except OSError:  # EIO: the last process has closed the pseudo-terminal
                got = 0
            if not got:
                self.ended = True
                break
            size += got
        if self._rest is not None:
            self._rest -= size
            self.ended = self.ended or size < most or not self._rest
        if self.target is not None:
            self.left = self._view[:size]
            self.write()
        if size and self.to_terminal:
            self.at_line_start = self.buffer[size - 1] == ord("\n")
            if (place := self.buffer.rfind(_OTHER_SCREEN, 0, size)) >= 0:
                after = place + len(_OTHER_SCREEN)
                self.full_screen = self.buffer[after : min(size, after + 1)] == b"h"
        return size

    def write(self) -> None:
        """Hand on what the reader takes now."""
        while self.left and self.target is not None:
            try:
                self.left = self.left[os.write(self.target, self.left) :]
            except BlockingIOError:
                return
            except OSError as error:  # our reader went away, or the disk is full: the training goes on
                if error.errno not in _GONE:
                    self.lost = reason(error)
                self.give_up()

    def finish(self) -> None:
        """Read what is there, a pipe full at most, and nothing that comes after it."""
        if self._rest is None:
            self._rest = _PIPE_BYTES

    def give_up(self) -> None:
        """Nobody reads any more."""
        self.target, self.left = None, memoryview(b"")


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _without_waiting(number: int) -> int:
    """The same pipe or terminal, opened once more so that writing never waits: to set that on the stream itself would
    change it for every other program that has it. What cannot be opened again (a socket, another user's terminal) is
    written as it is."""
    mode = os.fstat(number).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        with contextlib.suppress(OSError):
            return os.open(f"/proc/self/fd/{number}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    return number
