"""Where does mgpu put files that only the running command needs, and how are they removed after a `kill -9`?

Each folder contains a marker file that is locked (flock) while its owner lives. The next command that creates a folder
removes those whose lock is free, so nothing stays forever after `kill -9` or the OOM killer. A folder without the
marker, of another user, with other permissions, behind a link, or created before the last boot is never touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from mgpu.process.boot import boot_id

_PREFIX = "mgpu-"
_MARKER = ".mgpu-scratch"
_REMOVALS, _BETWEEN_REMOVALS_S = 15, 0.2
_HEAD = "A scratch folder of mgpu, removed with its owner.\nboot "
# A temporary folder with very many entries must not slow down a start: 20,000 take about 10 ms to list.
_MOST_ENTRIES, _MOST_REMOVED, _LONGEST_S = 20_000, 16, 0.25

_swept = False


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Create a folder (0700) that is removed at the end of the block. Raises OSError."""
    global _swept
    parent = tempfile.gettempdir()
    if not _swept:
        _swept = True
        sweep(parent)
    path = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
    lock = _mark(path)
    try:
        yield Path(path)
    finally:
        with contextlib.suppress(OSError):
            _remove(parent, os.path.basename(path))
        if lock is not None:
            os.close(lock)


@contextlib.contextmanager
def adopted(path: str) -> Iterator[None]:
    """Treat a folder that was created before mgpu ran as one of its own: remove it at the end of the block."""
    lock = _mark(path)
    try:
        yield
    finally:
        _remove_persistently(path)
        if lock is not None:
            os.close(lock)


def _remove_persistently(path: str) -> None:
    """Remove a folder in which a process that just ends may still create and remove files."""
    for _ in range(_REMOVALS):
        try:
            return _remove(os.path.dirname(path), os.path.basename(path))
        except OSError:
            if not os.path.lexists(path):
                return None
            time.sleep(_BETWEEN_REMOVALS_S)
    return None


def _mark(path: str) -> int | None:
    """Create the locked marker in a folder; None if files cannot be locked: then the folder is never swept.

    It is renamed after it is locked, so that no other process sees it unlocked.
    """
    boot = boot_id()
    if not boot:
        return None
    marker = os.path.join(path, _MARKER)
    lock = os.open(f"{marker}.new", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(lock, f"{_HEAD}{boot}\n".encode())
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(f"{marker}.new", marker)
    except OSError:
        os.close(lock)
        return None
    return lock


def sweep(parent: str) -> None:
    """Remove the scratch folders of this user whose owner has exited."""
    until, removed = time.monotonic() + _LONGEST_S, 0
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for count, entry in enumerate(entries):
            if count >= _MOST_ENTRIES or removed >= _MOST_REMOVED or time.monotonic() > until:
                return
            if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    removed += _sweep(parent, entry.name)


def _sweep(parent: str, name: str) -> bool:
    """Remove one folder if it is a scratch folder whose owner has exited. Raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    place = os.open(os.path.join(parent, name), flags)
    try:
        found = os.fstat(place)
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) != 0o700:
            return False
        lock = os.open(_MARKER, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
        try:
            found = os.fstat(lock)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_nlink != 1:
                return False
            # Of this boot only: on a shared file system another machine's lock may not be visible here.
            boot = boot_id()
            if not boot or os.read(lock, 200) != f"{_HEAD}{boot}\n".encode():
                return False
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: its owner lives
            _remove(parent, name, place)
        finally:
            os.close(lock)
    finally:
        os.close(place)
    return True


def _remove(parent: str, name: str, place: int | None = None) -> None:
    """Remove a folder and its content, the marker last. Raises OSError.

    Everything is removed by its name in an open folder and no link is followed, so nothing outside can be removed.
    """
    if place is None:
        place = os.open(os.path.join(parent, name), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _remove(parent, name, place)
        finally:
            os.close(place)
        return
    for root, folders, files, at in os.fwalk(".", topdown=False, follow_symlinks=False, dir_fd=place):
        for one in files:
            if (root, one) != (".", _MARKER):
                os.unlink(one, dir_fd=at)
        for one in folders:
            try:
                os.rmdir(one, dir_fd=at)
            except NotADirectoryError:  # a link to a folder
                os.unlink(one, dir_fd=at)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_MARKER, dir_fd=place)
    os.rmdir(os.path.join(parent, name))
