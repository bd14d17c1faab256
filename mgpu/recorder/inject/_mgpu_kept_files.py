"""The user's files that a rehearsed script is about to overwrite, move or delete: their content is kept first.

`kept/index` in the run's folder has one JSON object a line. A process adds one, under a lock, before it changes a file
that no process of the run has changed before: where the copy of the file is, or that there was no file. mgpu puts the
copies back after the run (mgpu/rehearse/put_back.py). If a file cannot be kept, this process ends before it changes it.

Python audits an operation before it does it. C++ and Rust code is not audited: its functions that are known are hooked.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

if TYPE_CHECKING or __package__:  # imported from mgpu, not in a rank
    from mgpu.recorder.inject._mgpu_rehearsal import user_line
else:
    from _mgpu_rehearsal import user_line

FOLDER, INDEX = "kept", "index"
BEGAN = "MGPU_REHEARSAL_BEGAN"  # the variable with the time of the start, in seconds since 1970
EVENTS = ("open", "os.rename", "os.remove", "os.truncate", "sqlite3.connect")
MOST_BYTES = 8 << 30  # copied in one run
_MOST_IN_FOLDER = 10_000  # files of a folder that is moved
_CLONE = 0x40049409  # FICLONE: the copy shares its blocks with the file, and needs no room
_WRITES = os.O_WRONLY | os.O_RDWR
# Other processes use these at the same time, under locks; an older content put back could be the wrong one.
_CACHES = ("__pycache__", ".cache", ".triton", ".nv")
_NOT_FILES = ("/dev/", "/proc/", "/sys/")


class _Cannot(Exception):
    """The file cannot be kept."""


class Kept:
    """The files that the processes of this run have kept so far."""

    def __init__(self, recorded: str, caches: tuple[str, ...]) -> None:
        run = os.path.dirname(os.path.realpath(recorded))
        self._began = _number(os.environ.get(BEGAN))
        self.folder = os.path.join(run, FOLDER)
        self._skipped = (*caches, *_NOT_FILES, os.path.realpath(recorded) + os.sep, self.folder + os.sep)
        self._known: set[str] = set()
        self._read = self._copied = self._number = 0

    def audit(self, event: str, args: Any) -> None:
        """Keep what an operation is about to change. Does not return if that is impossible."""
        if event == "open":
            path, mode, flags = args
            if writes(mode, flags):
                self.before_write(path)
        elif event == "os.rename":
            source, target, source_folder, target_folder = args
            self._before(_place(source, source_folder), moved=True)
            self._before(_place(target, target_folder))
        elif event == "os.remove":
            self._before(_place(*args))
        elif isinstance(args[0], (str, bytes, os.PathLike)):
            self.before_write(args[0])

    def before_write(self, path: Any) -> None:
        """Keep the file that is about to be written through this path."""
        if isinstance(path, (str, bytes, os.PathLike)):
            name = os.path.realpath(os.fsdecode(path))
            if os.access(name, os.W_OK) or not os.path.exists(name):
                self._before(name)

    def _before(self, name: str, moved: bool = False) -> None:
        if not name or name in self._known or self._is_skipped(name):
            return
        try:
            found = os.lstat(name)
        except FileNotFoundError:
            if os.path.isdir(os.path.dirname(name)) and not moved:
                self._keep(name, None)
            return
        except OSError:
            return  # the operation fails, too
        if not os.access(os.path.dirname(name), os.W_OK) and not os.access(name, os.W_OK):
            return
        if stat.S_ISDIR(found.st_mode) and moved:
            for number, one in enumerate(_files_in(name)):
                if number >= _MOST_IN_FOLDER:
                    _end(name, f"the folder has more than {_MOST_IN_FOLDER:,} files")
                self._before(one, moved=True)
        elif (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)) and not (moved and self._is_late(found)):
            self._keep(name, found)

    def _is_late(self, found: os.stat_result) -> bool:
        """Whether a file was changed after the start of the run, perhaps by code that Python does not audit."""
        return found.st_ctime > self._began

    def _is_skipped(self, name: str) -> bool:
        parts = name.split(os.sep)
        return name.startswith(self._skipped) or name.endswith((".pyc", ".lock")) or any(p in _CACHES for p in parts)

    def _keep(self, name: str, found: os.stat_result | None) -> None:
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            # Unlocked when it is closed, or when this process ends.
            with open(os.path.join(self.folder, INDEX), "a+", encoding="utf-8") as index:
                fcntl.flock(index, fcntl.LOCK_EX)
                self._read_others(index)
                if name in self._known:
                    return
                try:
                    record = {"path": name, **(self._copy(name, found) if found is not None else {})}
                except Exception as error:  # whatever it is: nothing may be changed that is not kept
                    size = found.st_size if found is not None else 0
                    record = {"path": name, "refused": _reason(error), "size": size, "line": user_line()}
                index.write(json.dumps(record) + "\n")
                self._known.add(name)
        except Exception as error:
            if found is None:
                return
            record = {"path": name, "refused": _reason(error)}
        if "refused" in record:
            _end(name, record["refused"])

    def _read_others(self, index: Any) -> None:
        """Read what other processes have added since."""
        index.seek(self._read)
        for line in index:
            self._number += 1
            try:
                one = json.loads(line)
            except ValueError:  # of a process that was stopped while it wrote
                continue
            self._known.add(one["path"])
            self._copied += one.get("copied", 0)
        self._read = index.seek(0, os.SEEK_CUR)

    def _copy(self, name: str, found: os.stat_result) -> dict[str, Any]:
        if stat.S_ISLNK(found.st_mode):
            return {"link": os.readlink(name)}
        copy = str(self._number)
        there = os.path.join(self.folder, copy)
        if os.path.lexists(there):
            os.unlink(there)  # of a process that was stopped while it copied: it has not changed the file
        copied = self._copy_content(name, there, found.st_size)
        shutil.copystat(name, there)
        of = [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
        late = self._is_late(found)
        return {"copy": copy, "of": of, "links": found.st_nlink, "copied": copied, "late": late, "line": user_line()}

    def _copy_content(self, name: str, there: str, size: int) -> int:
        """Copy a file; return the bytes that needed room."""
        with open(name, "rb") as source, open(there, "xb") as target:
            try:
                fcntl.ioctl(target.fileno(), _CLONE, source.fileno())
                return 0
            except OSError:
                pass  # this file system cannot, or it is another one
            if self._copied + size > MOST_BYTES:
                raise _Cannot(f"mgpu copies at most {MOST_BYTES >> 30} GiB")
            if size > shutil.disk_usage(self.folder).free // 2:
                raise _Cannot("there is not enough room on the disk for a copy")
            shutil.copyfileobj(source, target, 1 << 20)
        return size


def writes(mode: Any, flags: Any) -> bool:
    """Whether a file that is opened in this way is opened for writing."""
    if isinstance(mode, str):
        return bool(set(mode) & set("wax+"))
    # O_TMPFILE has no name.
    return isinstance(flags, int) and bool(flags & _WRITES or flags & os.O_TRUNC) and not flags & os.O_DIRECTORY


def _place(path: Any, folder: Any) -> str:
    """Return the path of a directory's entry, which may be a link. `folder`: the descriptor it is relative to."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        return ""
    name = os.fsdecode(path).rstrip(os.sep)
    if isinstance(folder, int) and folder >= 0:
        name = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), name)
    above, own = os.path.split(os.path.abspath(name))
    return os.path.join(os.path.realpath(above), own)


def _files_in(folder: str) -> Iterator[str]:
    for at, folders, names in os.walk(folder):
        yield from (os.path.join(at, one) for one in names)
        yield from (path for one in folders if os.path.islink(path := os.path.join(at, one)))


def _reason(error: Exception) -> str:
    if isinstance(error, _Cannot):
        return str(error)
    name = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
    return f"it cannot be copied ({name})"


def _number(text: str | None) -> float:
    try:
        return float(text or "inf")
    except ValueError:
        return float("inf")


def _end(name: str, why: str) -> None:
    """End this process before it changes a file that could not be kept. No exception: the script could catch it."""
    try:
        sys.stdout.flush()
        sys.stderr.write(f"mgpu: the rehearsal ends before the script changes {name}: {why}.\n")
        sys.stderr.flush()
    finally:
        os._exit(1)
