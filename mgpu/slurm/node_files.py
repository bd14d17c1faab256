"""The folder on a node in which the ranks of a Slurm job record themselves: /tmp/mgpu-UID-JOB-NODE.

The watch of the job removes it, or the watch of a later job on this node. Only a folder that mgpu has made is removed:
its name, its owner and its mode are right, and so is every file in it. No link is followed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from mgpu.errors import reason
from mgpu.hangs.hang_evidence import RECORDED
from mgpu.process import processes
from mgpu.recorder.inject._mgpu_recorder import FOLDER, folder_in, make_own

_BASE = Path("/tmp")
_NAME = re.compile(r"mgpu-(?P<user>\d+)-(?P<job>\d+)-(?P<node>[\w.-]+)")
_FILE = re.compile(r"\d+\.(?P<pid>\d+)\.(?:stacks|beat|raised|values|flight|ask|nan)(?:\.tmp)?")
_LOCKED_S = 5.0  # for a watch that was killed to release the folder: a child of it ends within 2 s
_TIMES = 3  # a rank that ends may still write


class NotOwn(Exception):
    """mgpu has not made this folder, or it has something that mgpu has not made."""


def of_job(environ: Mapping[str, str]) -> Path:
    """Return the folder of this job on this node."""
    return _BASE / f"mgpu-{os.geteuid()}-{environ['SLURM_JOB_ID']}-{environ['SLURMD_NODENAME']}"


def claim(folder: Path) -> int:
    """Create the folder, and lock it as long as the returned descriptor is open. Raises OSError."""
    make_own(str(folder / RECORDED))
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    until = time.monotonic() + _LOCKED_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(_LOCKED_S / 50)


def remove(folder: Path) -> str:
    """Remove the folder; return why it is still there, or ""."""
    for _ in range(_TIMES):
        try:
            with _checked(folder) as (outer, inner, names):
                for name in names:
                    os.unlink(name, dir_fd=inner)
                if inner is not None:
                    os.rmdir(RECORDED, dir_fd=outer)
                os.rmdir(folder)
            return ""
        except FileNotFoundError:
            if not os.path.lexists(folder):
                return ""
        except NotOwn as error:
            return f"not removed: {error}"
        except OSError as error:
            trouble = f"not removed: {reason(error)}"
    return trouble


def remove_left_over(folder: Path) -> None:
    """Remove what earlier jobs of this user have left on this node: nothing watches it, and no process uses it."""
    own = _NAME.fullmatch(folder.name)
    if own is None:
        return
    for path in folder.parent.glob(f"mgpu-{own['user']}-*-{own['node']}"):
        found = _NAME.fullmatch(path.name)
        if found is not None and found["node"] == own["node"] and found["job"] != own["job"] and not _is_used(path):
            remove(path)


def is_recorded(pid: int, recorded: Path) -> bool:
    """Whether a process records itself in this folder, and is not another one with its number."""
    given = {os.fsdecode(name): os.fsdecode(value) for name, value in processes.environment(pid).items()}
    return FOLDER in given and folder_in(given) == str(recorded) and processes.state_of(pid) not in (None, "ended")


def _is_used(folder: Path) -> bool:
    try:
        with _checked(folder) as (outer, _, names):
            fcntl.flock(outer, fcntl.LOCK_EX | fcntl.LOCK_NB)
            pids = {int(found["pid"]) for name in names if (found := _FILE.fullmatch(name))}
            return not names or any(is_recorded(pid, folder / RECORDED) for pid in pids)
    except (OSError, NotOwn):
        return True


@contextlib.contextmanager
def _checked(folder: Path) -> Iterator[tuple[int, int | None, list[str]]]:
    """Open the folder and the one with the recorders' files; give their descriptors and the files. Raises NotOwn."""
    name = _NAME.fullmatch(folder.name)
    if name is None or name["user"] != str(os.geteuid()):
        raise NotOwn("it does not have the name of a folder of this user")
    with _opened(str(folder)) as outer:
        inside = os.listdir(outer)
        if others := sorted(set(inside) - {RECORDED}):
            raise NotOwn(f"it contains {others[0]!r}, which is not mgpu's")
        if not inside:
            yield outer, None, []
            return
        with _opened(RECORDED, outer) as inner:
            names = os.listdir(inner)
            for one in names:
                about = os.stat(one, dir_fd=inner, follow_symlinks=False)
                plain = stat.S_ISREG(about.st_mode) or stat.S_ISFIFO(about.st_mode)
                if not (_FILE.fullmatch(one) and plain and about.st_uid == os.geteuid() and about.st_nlink == 1):
                    raise NotOwn(f"it contains {one!r}, which is not mgpu's")
            yield outer, inner, names


@contextlib.contextmanager
def _opened(path: str, inside: int | None = None) -> Iterator[int]:
    """Open a folder that belongs to this user alone; never through a link. Raises NotOwn."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=inside)
    except NotADirectoryError:
        raise NotOwn(f"{path} is a link or a file") from None
    try:
        about = os.fstat(handle)
        if about.st_uid != os.geteuid() or about.st_mode & 0o022:
            raise NotOwn(f"{path} is not a folder of this user alone")
        yield handle
    finally:
        os.close(handle)
