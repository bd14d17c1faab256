"""Which folder do a run's files go to, and which files there may mgpu remove?

mgpu writes into its own folder: a new one, an empty one, or one that an earlier run of mgpu wrote to. Such a folder
has a marker, `.mgpu-run.json`, which lists the files of mgpu. Only listed files are ever removed, and the marker is
valid only in the folder in which it was created: a copy in another folder (for example in a cloned repository) is
ignored. A --log-dir with other files gets a subfolder. Two runs never write to the same folder: the marker is locked
during a run.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from mgpu import files, messages
from mgpu.errors import REFUSED, USAGE, MgpuError, reason
from mgpu.file_reading import Unreadable, read_own
from mgpu.launchers import project_folder
from mgpu.structured_text import json_of

MARKER = ".mgpu-run.json"
_SCHEMA = 1
_LARGEST = 4 << 20  # bytes of a marker; a pre-flight of 10,000 nodes lists about 300 KiB
_DEPTH = 4  # folders below a run's folder: pre-flight / stage / smoke test / trial


@dataclass(frozen=True)
class Kind:
    """A kind of run, with the prefix of its folders and the names of the files it writes.

    The names are plain names or keys of `_PATTERNS`. A name that ends in `/` is a folder, removed once it is empty.
    """

    name: str
    prefix: str
    writes: tuple[str, ...]
    keeps: tuple[str, ...] = ()  # written too, but replaced rather than removed
    among_others: bool = False  # may write beside the user's files, because a job script names the folder


# The names in the marker that stand for several files, as regular expressions.
_PATTERNS = {
    "rank*": r"rank\d+\.(?:jsonl|json|json\.tmp|stack|beat|recorder|recorder\.tmp)",
    "nccl.*.txt": r"nccl\.[\w.-]+\.\d+\.txt",
    "turn.*": r"turn\.[\w.-]+",
    "try-*/": r"try-\d+",
    ".mgpu-smoke-*/": r"\.mgpu-smoke-[0-9a-f]{12}",
    "run.log.*": r"run\.log\.\d+",
    ".gpus.json.*": r"\.gpus\.json\.\d+",
    "preflight-*/": r"preflight-\d+",
    "watch-*/": r"watch-\d+",
    "watch-*/*": r"watch-\d+/(?:watch\.log|ask|hang\.json|pace\.json)",
    "hosts/*": r"hosts/(?:\d+\.json|ask|pace\.json|spare)",
    "recorder/*": r"recorder/\d+\.(?:\d+\.(?:stacks|beat|raised|values|flight|ask|nan|rehearsal)(?:\.tmp)?|done|left)",
}
_OF_RANKS = ("orders.json", "launcher.log", "ask", "rank*", "nccl.*.txt", "turn.*", ".mgpu-smoke-*/")
_OF_SCRIPT = ("script.log", "recorder/", "recorder/*")
SMOKE_TEST = Kind("smoke-test", "smoke-", ("smoke.json", "facts.json", "try-*/", *_OF_RANKS, *_OF_SCRIPT))
TRIAL = Kind("trial", "try-", _OF_RANKS)
# fmt: off
LAUNCH = Kind(
    "launch",
    "",
    ("run.log", "run.log.*", "mgpu.log", "result.json", "facts.json", "gpus.json", ".gpus.json.*", "hang.json",
     "pace.json", "steps.json", "ranks.json", "hosts.json", "hosts/", "hosts/*", "recorder/", "recorder/*",
     "watch-*/", "watch-*/*"),
)
PRE_FLIGHT = Kind(
    "pre-flight",
    "preflight-",
    ("nodes.sh", "preflight.json", "passing_nodes.txt", "failing_nodes.txt", "machines/", "alone/", "pairs/",
     "together/"),
    keeps=("hostfile",),  # a shell that has sourced the earlier nodes.sh needs it
    among_others=True,
)
# fmt: on


def plan_folder(wanted: str, kind: Kind) -> Path:
    """Return the folder that a run would use: --log-dir or a subfolder of it, or a new one in .mgpu/runs.

    Creates nothing. Raises MgpuError if --log-dir cannot be used.
    """
    name = f"{kind.prefix}{datetime.now():%Y%m%d-%H%M%S}"
    if not wanted:
        base = base_folder()
        with contextlib.suppress(OSError, StopIteration):
            return next(path for path in map(base.joinpath, _names(name)) if not path.exists())
        return base / name
    path = Path(wanted)
    try:
        files.refuse_strangers_links(path)
        there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    except (OSError, ValueError) as error:
        raise MgpuError(f"cannot use the folder {path}: {reason(error)}", USAGE) from None
    if not there.is_dir():
        raise MgpuError(f"cannot use the folder {path}: {there} is a file", USAGE)
    if not os.access(there, os.W_OK | os.X_OK):
        raise MgpuError(f"cannot use the folder {path}: no permission to write to {there}", USAGE)
    if find_obstacle(path, kind) is None:
        return path
    label = kind.prefix or f"{kind.name}-"
    return path / f"{label}{datetime.now():%Y%m%d-%H%M%S}"


def base_folder() -> Path:
    """Return MGPU_LOG_DIR, or `.mgpu/runs` in this folder. Raises MgpuError if that is linked out of this folder."""
    if named := os.environ.get("MGPU_LOG_DIR"):
        return Path(named)
    base = Path(project_folder.RUNS)
    target = os.path.realpath(base)
    if not Path(target).is_relative_to(os.path.realpath(".")):
        raise MgpuError(
            f"{base} leads to {target} through a symbolic link, outside this folder. mgpu does not write there.\n"
            f"  If it is yours, set --log-dir, or MGPU_LOG_DIR in the environment",
            REFUSED,
        )
    return base


def find_obstacle(folder: Path, kind: Kind) -> str | None:
    """Return why a run of this kind may not write into the folder; None if it may. Raises MgpuError."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MgpuError(f"cannot use the folder {folder}: {reason(error)}", USAGE) from None
    marker = _read_marker(folder)
    others = [name for name in names if name != MARKER]
    if marker is None and not kind.among_others:
        return f"it contains other files, such as {min(names)}" if names else None
    listed = [name for writes in (marker or {}).values() for name in writes]
    ours = (*kind.writes, *kind.keeps)
    taken = [name for name in others if _matches(name, ours) and not _matches(name, listed)]
    if MARKER in names and marker is None:
        return f"its {MARKER} belongs to another folder"
    return f"mgpu did not create {min(taken)} there" if taken else None


@contextlib.contextmanager
def claim_folder(
    folder: Path, kind: Kind, *, named: bool, more: Sequence[str] = (), outlived: bool = False
) -> Iterator[Path]:
    """Create and lock the folder of a run for the duration of the block, without files of an earlier run of this kind.

    `named`: the folder is --log-dir; else a similar name or a temporary folder may be used, removed if it is
    empty. `more`: further names that the run writes. `outlived`: the run continues after the block in another
    process that inherits the lock (--detach). Raises MgpuError, with exit code 5 while another run writes there.
    """
    path = folder if named else _new(folder)
    try:
        if named:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if why := find_obstacle(path, kind):
            raise MgpuError(f"cannot use the folder {path}: {why}", REFUSED)
        handle = _open_marker(path)
    except (OSError, ValueError) as error:
        raise MgpuError(f"cannot use the folder {path}: {reason(error)}", USAGE) from None
    try:
        _lock(handle, path)
        before = _read_marker(path) or {}
        writes = [*kind.writes, *kind.keeps, *more]
        try:
            _clear(path, [name for name in before.get(kind.name, ()) if name not in kind.keeps], _DEPTH)
            if left := [name for name in os.listdir(path) if _matches(name, kind.writes)]:
                raise MgpuError(f"cannot use the folder {path}: mgpu did not create all of its {min(left)}", REFUSED)
            _write_marker(handle, path, {**before, kind.name: writes})
        except OSError as error:
            raise MgpuError(f"cannot use the folder {path}: {reason(error)}", USAGE) from None
        try:
            yield path
        finally:
            if not outlived:
                _settle(handle, path, before, kind, writes, named=named)
    finally:
        os.close(handle)


def _settle(
    handle: int, folder: Path, before: dict[str, list[str]], kind: Kind, writes: Sequence[str], *, named: bool
) -> None:
    """List in the marker what was actually written; remove an automatically named folder if that is nothing."""
    with contextlib.suppress(OSError):
        there = [name for name in _relative_names(folder) if _matches(name, writes)]
        _write_marker(handle, folder, {**before, kind.name: there})
        if not named and os.listdir(folder) == [MARKER]:
            (folder / MARKER).unlink()
            folder.rmdir()
            folder.parent.rmdir()  # if this was the first
            project_folder.remove_if_unused(folder.parent.parent)


def make_below(folder: Path, kind: Kind) -> Path:
    """Create a folder inside a claimed one, with its own marker. Raises OSError."""
    folder.mkdir(mode=0o700)
    handle = _open_marker(folder)
    try:
        _write_marker(handle, folder, {kind.name: [*kind.writes, *kind.keeps]})
    finally:
        os.close(handle)
    return folder


def _new(planned_folder: Path) -> Path:
    """Create the folder, or one with a similar name if it exists by now; a temporary one if that fails."""
    try:
        if planned_folder.parent == Path(project_folder.RUNS):
            project_folder.create(Path())
        planned_folder.parent.mkdir(parents=True, exist_ok=True)
        for name in _names(planned_folder.name):
            path = planned_folder.with_name(name)
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
                return path
    except OSError as error:
        fallback = Path(tempfile.mkdtemp(prefix="mgpu-run-"))
        messages.notice(f"cannot write to {planned_folder.parent} ({reason(error)}). Logs are in {fallback}")
        return fallback
    raise MgpuError(f"no unused name for a run folder in {planned_folder.parent}")


def _names(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}-{number}" for number in range(2, 100))


# The marker


def _open_marker(folder: Path) -> int:
    """Open the marker, or create it. Raises OSError if it is not a regular file of this user."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    handle = os.open(folder / MARKER, flags, 0o600)
    about = os.fstat(handle)
    if not stat.S_ISREG(about.st_mode) or about.st_uid != os.getuid():
        os.close(handle)
        raise Unreadable(f"its {MARKER} is not a file of this user", errno.EPERM)
    return handle


def _lock(handle: int, folder: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise MgpuError(f"another run is writing to {folder}. Use another --log-dir", REFUSED) from None
    except OSError:
        pass  # a file system without locks


def _read_marker(folder: Path) -> dict[str, list[str]] | None:
    """Return what the marker lists, by kind of run; None if there is no valid marker of this folder."""
    try:
        found = json_of(read_own(folder / MARKER, most=_LARGEST))
        if found["schema"] != _SCHEMA or found["inode"] != folder.stat().st_ino:
            return None
        return {str(kind): [name for name in names if _is_plain(name)] for kind, names in found["wrote"].items()}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _write_marker(handle: int, folder: Path, wrote: dict[str, list[str]]) -> None:
    """Rewrite the marker in place: a new file would not be locked."""
    content: dict[str, Any] = {
        "about": "Files written by mgpu. Only these are removed when mgpu uses the folder again.",
        "schema": _SCHEMA,
        "inode": folder.stat().st_ino,
        "wrote": wrote,
    }
    data = json.dumps(content, indent=1).encode() + b"\n"
    os.ftruncate(handle, 0)
    os.pwrite(handle, data, 0)


def _is_plain(name: Any) -> bool:
    """Whether a listed name stays inside the folder."""
    return isinstance(name, str) and all(
        part not in ("", ".", "..") and "\0" not in part for part in name.removesuffix("/").split("/")
    )


def _matches(name: str, listed: Iterable[str]) -> bool:
    """Whether a file or folder name is among the listed ones."""
    return any(
        name.removesuffix("/") == one.removesuffix("/")
        or (one in _PATTERNS and re.fullmatch(_PATTERNS[one], name.removesuffix("/")) is not None)
        for one in listed
    )


# Removing


def _relative_names(folder: Path) -> list[str]:
    """Return the names in the folder, and those in its subfolders as `machines/n1.json`."""
    found = []
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            found += [f"{entry.name}/", *(f"{entry.name}/{name}" for name in os.listdir(entry.path))]
        else:
            found.append(entry.name)
    return sorted(found)


def _clear(folder: Path, listed: Sequence[str], depth: int) -> None:
    """Remove the listed files and FIFOs of this user, then the listed folders that are empty."""
    if depth < 0:
        return
    for name in _relative_names(folder):
        path = folder / name
        if not _matches(name, listed) or path.is_symlink() or path.lstat().st_uid != os.getuid():
            continue
        if not name.endswith("/") and (path.is_file() or path.is_fifo()):
            path.unlink(missing_ok=True)
    for name in (name for name in _relative_names(folder) if name.endswith("/") and _matches(name, listed)):
        _clear_folder(folder / name, depth - 1)


def _clear_folder(folder: Path, depth: int) -> None:
    """Remove a folder of mgpu and its subfolders, as far as their own markers list the content."""
    if folder.is_symlink() or folder.lstat().st_uid != os.getuid():
        return
    if (wrote := _read_marker(folder)) is not None:
        for listed in wrote.values():
            _clear(folder, listed, depth)
        (folder / MARKER).unlink(missing_ok=True)
    elif depth > 0:
        for entry in list(os.scandir(folder)):
            if entry.is_dir(follow_symlinks=False):
                _clear_folder(Path(entry.path), depth - 1)
    with contextlib.suppress(OSError):  # it contains other files
        folder.rmdir()
