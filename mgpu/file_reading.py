"""How does mgpu read a file that it does not trust?

`read` checks the type before opening, and limits size and waiting time. `read_own` reads files that mgpu itself wrote
earlier, only if the user owns them, others cannot write to them, and they are not links. `read_part` reads in a run
folder, to which the user's script can also write. Every file that is not mgpu's own code is opened here
(tests/test_file_reading.py checks it).
"""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mgpu.errors import reason

WAIT_S = 10.0  # for one file: longer than a cold network file system needs for a small one
_PIECE = 1 << 20
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)
# A pipe that the shell or a parent process handed over: <(command), /dev/stdin.
HANDED_OVER = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
Result = TypeVar("Result")


class Unreadable(OSError):
    """A file that mgpu refuses to read or to write. `strerror` is the reason, as a clause."""

    def __init__(self, why: str, number: int = errno.EINVAL) -> None:
        super().__init__(number, why)


def current_folder() -> str | None:
    """Return the current folder; None if it was deleted."""
    try:
        return os.path.realpath(os.getcwd())
    except OSError:
        return None


def read(path: str | Path, *, most: int, wait_s: float = WAIT_S) -> bytes:
    """Return the bytes of a regular file, or of a pipe that was handed over (`<(command)`, /dev/stdin).

    Raises OSError: Unreadable if it is something else, larger than `most` bytes, or does not respond within `wait_s`.
    """
    found = _read(os.fspath(path), most + 1, wait_s)
    if len(found) > most:
        raise Unreadable(f"it is larger than {_size(most)}", errno.EFBIG)
    return found


def read_start(path: str | Path, *, most: int, wait_s: float = WAIT_S) -> bytes:
    """Return the first `most` bytes of a file; otherwise like `read`. Raises OSError."""
    return _read(os.fspath(path), most, wait_s)


def _read(name: str, most: int, wait_s: float) -> bytes:
    def work() -> bytes:
        deadline = time.monotonic() + wait_s
        handle = open_checked(name)
        try:
            return _up_to(handle, most, deadline)
        finally:
            os.close(handle)

    return _within(wait_s, work)


def open_checked(path: str | Path) -> int:
    """Open a file for reading after checking that it is a regular file or a pipe that was handed over.

    The check does not open the file, because opening a device can act on it. Raises OSError.
    """
    name = os.fspath(path)
    try:
        _refuse_kind(name, os.stat(name).st_mode)
        handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except ValueError as error:  # a NUL or a surrogate in the name
        raise Unreadable(f"not a file name: {reason(error)}") from None
    try:
        _refuse_kind(name, os.fstat(handle).st_mode)
    except OSError:
        os.close(handle)
        raise
    return handle


def read_own(path: Path, *, most: int, owner: int | None = None) -> bytes:
    """Return the bytes of a file that mgpu wrote for this user, or of one that belongs to `owner` (a user ID).

    Raises OSError: Unreadable if it is a link, belongs to another user, or others can write to it.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        about = os.fstat(handle)
        _refuse_kind(os.fspath(path), about.st_mode)
        if about.st_uid != (os.getuid() if owner is None else owner):
            raise Unreadable("it belongs to another user", errno.EPERM)
        if about.st_mode & _OTHERS_WRITE:
            raise Unreadable("other users can write to it", errno.EPERM)
        found = _up_to(handle, most + 1, time.monotonic() + WAIT_S)
    finally:
        os.close(handle)
    if len(found) > most:
        raise Unreadable(f"it is larger than {_size(most)}", errno.EFBIG)
    return found


def read_part(path: str | Path, *, most: int, start: int | None = None) -> bytes:
    """Return at most `most` bytes of a regular file in a run folder: from `start`, or the end of the file (None).

    It is read many times during a run, so without the thread that enforces a time limit: if the folder's file system
    hung, so would the run. Raises OSError: Unreadable for a link and for anything but a regular file.
    """
    handle = open_part(path)
    try:
        at = max(0, os.fstat(handle).st_size - most) if start is None else start
        found = bytearray()
        while len(found) < most and (piece := os.pread(handle, min(_PIECE, most - len(found)), at + len(found))):
            found += piece
        return bytes(found)
    finally:
        os.close(handle)


def open_part(path: str | Path) -> int:
    """Open a regular file in a run folder for reading. Raises OSError: Unreadable like `read_part`."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    mode = os.fstat(handle).st_mode
    if what := kind(mode):
        os.close(handle)
        raise Unreadable(f"it is {what}", errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL)
    return handle


def read_whole(path: str | Path, *, most: int) -> bytes:
    """Return all bytes of a regular file in a run folder.

    Raises OSError: Unreadable like `read_part`, also if the file is larger than `most` bytes.
    """
    found = read_part(path, most=most + 1, start=0)
    if len(found) > most:
        raise Unreadable(f"it is larger than {_size(most)}", errno.EFBIG)
    return found


def standard_input(*, most: int) -> bytes:
    """Return the bytes of stdin, without a time limit.

    Raises OSError: Unreadable if stdin is closed, is a folder, or has more than `most` bytes.
    """
    if sys.stdin is None:
        raise Unreadable("stdin is closed", errno.EBADF)
    try:
        found = sys.stdin.buffer.read(most + 1)
    except ValueError as error:  # closed by this process
        raise Unreadable(reason(error), errno.EBADF) from None
    if len(found) > most:
        raise Unreadable(f"it is larger than {_size(most)}", errno.EFBIG)
    return found


def kind(mode: int) -> str:
    """The type of a file that is not a regular one, as a phrase; "" for a regular file."""
    return next((name for test, name in _KINDS if test(mode)), "")


def _refuse_kind(name: str, mode: int) -> None:
    what = kind(mode)
    if not what or (name.startswith(HANDED_OVER) and not stat.S_ISDIR(mode) and not stat.S_ISBLK(mode)):
        return
    raise Unreadable(f"it is {what}", errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL)


def _up_to(handle: int, most: int, deadline: float) -> bytes:
    found = bytearray()
    while len(found) < most:
        left = deadline - time.monotonic()
        ready = left > 0 and select.select([handle], [], [], left)[0]
        if not ready:
            raise Unreadable("it did not respond in time", errno.ETIMEDOUT)
        if not (piece := os.read(handle, min(_PIECE, most - len(found)))):
            break
        found += piece
    return bytes(found)


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


def _within(wait_s: float, work: Callable[[], Result]) -> Result:
    """Run `work` in a thread that is abandoned after `wait_s`: a read from a dead file server cannot be interrupted."""
    results: list[Result] = []
    errors: list[BaseException] = []

    def attempt() -> None:
        try:
            results.append(work())
        except BaseException as error:  # raised again in the caller's thread
            errors.append(error)

    try:
        thread = threading.Thread(target=attempt, daemon=True)
        thread.start()
    except RuntimeError:  # no more threads for this user: read without a time limit
        attempt()
    else:
        thread.join(wait_s + 1.0)
    if errors:
        raise errors[0]
    if not results:
        raise Unreadable(f"it did not respond within {wait_s:g} s", errno.ETIMEDOUT)
    return results[0]
