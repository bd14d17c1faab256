"""What can go wrong with a checkpoint, done to a rank before it climbs (`patch` of tests/rungs.py)."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mgpu.smoke.ranks import checkpoint, full_checkpoint, sharded

_CLONE_NEWNS, _MS_RDONLY, _MS_PRIVATE, _MS_REC = 0x20000, 1, 1 << 18, 1 << 14
TARGET = "out"  # in the home of the ranks: the folder they are told to save to


def everyone_is_main(rank: int) -> None:
    """As a script that saves without asking who it is."""
    checkpoint.is_main = lambda here: True


def nobody_is_main(rank: int) -> None:
    """As a script whose ranks all think that another one saves."""
    checkpoint.is_main = lambda here: False


def one_bit_flips(rank: int) -> None:
    """A disk that gives back other data than it got."""
    if rank == 0:
        _after(full_checkpoint, "save", lambda folder: _flip(folder / full_checkpoint.FILE))


def one_half_is_lost(rank: int) -> None:
    """A file system that loses what was written."""
    if rank == 0:
        _after(full_checkpoint, "save", lambda folder: os.truncate(folder / full_checkpoint.FILE, 1 << 20))


def one_part_is_altered(rank: int) -> None:
    """The same in what rank 1 wrote of a sharded checkpoint."""
    if rank == 0:
        real = sharded.load

        def spoilt(state: Any, parts: Path, **how: Any) -> None:
            _flip(parts / "__1_0.distcp")
            real(state, parts, **how)

        sharded.load = spoilt


def quota(rank: int) -> None:
    """The user's quota ends in the middle of the file."""
    real, written = os.write, 0

    def write(handle: int, data: Any) -> int:
        nonlocal written
        if len(data) > 1 << 20:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        written += len(data)
        return real(handle, data)

    os.write = write


def full_disk(rank: int) -> None:
    """A file system with room for a quarter of the checkpoint."""
    _mount("size=1m")


def read_only(rank: int) -> None:
    """A file system mounted read-only."""
    _mount("", _MS_RDONLY)


def its_own_folder(rank: int) -> None:
    """As on another host: under the same name there is another folder for rank 1."""
    if rank == 1:
        _mount("size=64m")


def _mount(options: str, flags: int = 0) -> None:
    """A tmpfs that only this rank sees."""
    libc = ctypes.CDLL(None, use_errno=True)
    target = Path(os.environ["HOME"]) / TARGET
    target.mkdir(exist_ok=True)
    calls: tuple[Callable[[], int], ...] = (
        lambda: libc.unshare(_CLONE_NEWNS),
        lambda: libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None),
        lambda: libc.mount(b"tmpfs", bytes(target), b"tmpfs", ctypes.c_ulong(flags), options.encode()),
    )
    for call in calls:
        if call() != 0:
            raise OSError(ctypes.get_errno(), "no mount namespace")


def _after(module: Any, name: str, what: Callable[[Path], None]) -> None:
    real = getattr(module, name)

    def wrapped(here: Any, folder: Path, *rest: Any) -> Any:
        result = real(here, folder, *rest)
        what(folder)
        return result

    setattr(module, name, wrapped)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
