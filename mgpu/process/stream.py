"""Passes a program's output on to the reader of mgpu: unchanged, immediately, and without ever blocking mgpu."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections import deque

from mgpu.errors import reason

_BUFFER_BYTES = 256 << 10
# While the reader drains one buffer, a terminal in pieces of 4 KiB, the program fills the other.
_BUFFERS = 2
# A pipe of this size lets the program run ahead (Linux's default limit for users). With the usual 64 KiB, 100 MB take
# twice as long as without mgpu (measured 2026-11, 2 cores).
_PIPE_BYTES = 1 << 20
_OTHER_SCREEN = b"\x1b[?1049"  # h: a full-screen program enters the alternate screen, l: leaves it
_GONE = (errno.EPIPE, errno.EIO, errno.ENXIO)  # no reader: the pipe or terminal was closed


class Stream:
    """The program's output, from the descriptor `source` to the descriptor `target`."""

    def __init__(self, source: int, target: int) -> None:
        self.source = source
        self.name = "stderr" if target == 2 else "stdout"
        self.to_terminal = os.isatty(target) if _is_open(target) else False
        self.target: int | None = _without_waiting(target) if _is_open(target) else None  # None: no reader
        self.ended = False
        self._rest: int | None = None  # bytes still to read; None: no limit
        self.lost = ""  # why output could not be written although there is a reader: a full disk
        self._left: deque[memoryview] = deque()  # read from the program, but not yet accepted by the reader
        self._used: deque[bytearray] = deque()  # the buffers that these are in
        self.at_line_start = True
        self.full_screen = False
        self._free = [bytearray(_BUFFER_BYTES) for _ in range(_BUFFERS)]
        self.buffer = self._free[-1]  # filled by the last `read`
        os.set_blocking(source, False)
        for end in (source, self.target):
            if end is not None:
                with contextlib.suppress(OSError):  # not a pipe, or the user's limit for pipes is reached
                    fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    @property
    def waits(self) -> bool:
        """Whether the reader has not accepted all output yet."""
        return bool(self._left)

    @property
    def takes(self) -> bool:
        """Whether there is room for more of the program's output."""
        return bool(self._free) and not self.ended

    def read(self) -> int:
        """Read the available output into the buffer and return its size in bytes."""
        self.buffer = self._free.pop()
        view = memoryview(self.buffer)
        size, most = 0, _BUFFER_BYTES if self._rest is None else min(_BUFFER_BYTES, self._rest)
        passed = 0  # bytes of this buffer that the reader has accepted: it gets them while more are read
        while size < most:
            try:
                got = os.readv(self.source, [view[size:most]])
            except BlockingIOError:
                break
            except OSError:  # EIO: the last process closed the pseudo-terminal
                got = 0
            if not got:
                self.ended = True
                break
            size += got
            self.write()
            if not self._left:
                passed += self._pass_on(view[passed:size])
        if self._rest is not None:
            self._rest -= size
            self.ended = self.ended or size < most or not self._rest
        if self.target is not None and passed < size:
            self._left.append(view[passed:size])
            self._used.append(self.buffer)
        else:
            self._free.append(self.buffer)
        if size:
            self.at_line_start = self.buffer[size - 1] == ord("\n")
            if self.to_terminal and (place := self.buffer.rfind(_OTHER_SCREEN, 0, size)) >= 0:
                after = place + len(_OTHER_SCREEN)
                self.full_screen = self.buffer[after : min(size, after + 1)] == b"h"
        return size

    def write(self) -> None:
        """Write what the reader accepts now."""
        while self._left and self.target is not None:
            accepted = self._pass_on(self._left[0])
            if not self._left:  # there is no reader any more
                return
            if accepted < len(self._left[0]):
                self._left[0] = self._left[0][accepted:]
                return
            self._left.popleft()
            self._free.append(self._used.popleft())

    def _pass_on(self, data: memoryview) -> int:
        """Return how many bytes the reader accepts now. A terminal accepts some and is full."""
        if self.target is None:
            return 0
        try:
            return os.write(self.target, data)
        except BlockingIOError:
            return 0
        except OSError as error:  # the reader closed the pipe, or the disk is full: the training continues
            if error.errno not in _GONE:
                self.lost = reason(error)
            self.give_up()
            return 0

    def finish(self) -> None:
        """Read only what is available now, at most a full pipe."""
        if self._rest is None:
            self._rest = _PIPE_BYTES

    def give_up(self) -> None:
        """Drop the reader."""
        self.target = None
        self._left.clear()
        self._free += self._used
        self._used.clear()


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _without_waiting(number: int) -> int:
    """Open the same pipe or terminal again, so that writing never blocks.

    Making the stream itself non-blocking would change it for every other program that uses it. If it cannot be opened
    again (a socket, another user's terminal), the original is used.
    """
    mode = os.fstat(number).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        with contextlib.suppress(OSError):
            return os.open(f"/proc/self/fd/{number}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    return number
