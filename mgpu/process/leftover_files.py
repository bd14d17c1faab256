"""Which files did a run leave in /dev/shm and the temporary folder, and which of them may be removed?

Also: did the OOM killer kill a process of this control group?
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mgpu.known_launchers import OTHERS

_SHM = Path("/dev/shm")
_CGROUPS = Path("/sys/fs/cgroup")
_EVENTS = ("memory.events.local", "memory.events")  # of this group alone (Linux 5.2 and later), else with those in it
# Names in the command lines of launchers and other processes that torch, accelerate or DeepSpeed start.
_LAUNCHERS = tuple({known.modules[0].partition(".")[0].rstrip("*").encode() for known in OTHERS})
# Files that torch, NCCL, Python and the launchers create there; others are never touched.
_OURS = {
    _SHM: ("torch_*", "nccl-*", "sem.*", "psm_*", "cuda.shm.*"),
    Path(tempfile.gettempdir()): ("torchelastic_*", "pymp-*", "torch-shm-dir-*"),
}
# The pid of the creator, if the name contains it: torch_4711_…, pymp-…/listener-4711-0-….
_MAKER = re.compile(r"^(?:torch_|listener-)(\d+)[_-]")
# Folders that a rank may list as its own (Rank.wrote); nothing else is ever removed by name.
_OWN = re.compile(r"^(?:torchelastic_\w+|\.mgpu-smoke-[\w.-]+)$")


def killed_for_memory() -> int | None:
    """Return how many processes of this control group the OOM killer has killed; None if unknown.

    The group is that of a container, job or session, and inherited by the ranks. Its own memory limit or the machine's
    memory may have been exceeded.
    """
    for path in _counters():
        with contextlib.suppress(OSError, ValueError, StopIteration):
            lines = path.read_text("utf-8").splitlines()
            return int(next(line for line in lines if line.startswith("oom_kill ")).split()[1])
    return None


def _counters() -> list[Path]:
    """Return the possible files with the counter: cgroup v2 and v1, seen from the host and from inside a container."""
    with contextlib.suppress(OSError):
        groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines()]
        return [
            _CGROUPS / base / place / name
            for _, controllers, path in groups
            for base, names in (("", _EVENTS), ("memory", ("memory.oom_control",)))
            if controllers == base or base in controllers.split(",")
            for place in (path.lstrip("/"), "")
            for name in names
        ]
    return []


def files() -> frozenset[Path]:
    """Return the current files of this user that a run may leave behind."""
    found = set()
    for folder, patterns in _OURS.items():
        for pattern in patterns:
            with contextlib.suppress(OSError):
                found |= {path for path in folder.glob(pattern) if path.lstat().st_uid == os.getuid()}
    return frozenset(found)


@dataclass(frozen=True)
class Swept:
    """The files that a run left: those that were removed from shared memory, and those that remain."""

    removed: Mapping[str, int] = field(default_factory=dict)  # path -> pid of the process that made it
    remaining: tuple[str, ...] = ()


def sweep(before: frozenset[Path], pids: Collection[int], wrote: Collection[str]) -> Swept:
    """Remove the files that the processes of a finished run left, and return them.

    `remaining`: those that could not be removed, or whose name does not contain a pid if no process uses them.
    """
    wanted = {path for path in map(Path, wrote) if _OWN.match(path.name)}
    for path in wanted:
        _remove(path)
    new = sorted(path for path in files() - before if path.exists())
    ours = [path for path in new if _makers(path) & set(pids)]
    # In the temporary folder, ranks that exit at once always leave the folder of their DataLoader's sockets.
    removed = {str(path): min(_makers(path) & set(pids)) for path in ours if path.parent == _SHM}
    for path in (*ours, *(path for path in new if path.name.startswith("torchelastic_") and _nobodys(path))):
        _remove(path)
    left = [path for path in (*new, *sorted(wanted - set(new))) if path.exists()]
    # Another run of this user may have created the others: report only those that certainly belong to this run.
    mine = [path for path in left if path in wanted or path in ours]
    in_use = _mapped_files() if len(left) > len(mine) else frozenset()
    strange = [p for p in left if p not in mine and p.parent == _SHM and not _makers(p) and str(p) not in in_use]
    removed = {path: maker for path, maker in removed.items() if not Path(path).exists()}
    return Swept(removed, tuple(map(str, (*mine, *strange))))


def _makers(path: Path) -> set[int]:
    """Return the pids in the names of a file, or of the files in a folder."""
    names = [path.name]
    with contextlib.suppress(OSError):
        names += os.listdir(path)
    return {int(found.group(1)) for found in map(_MAKER.match, names) if found}


def _nobodys(path: Path) -> bool:
    """Whether a launcher's folder is empty and no running launcher can own it.

    Then our launcher died before it started a rank that could have listed it.
    """
    with contextlib.suppress(OSError):
        if any(path.iterdir()):
            return False
    ours = Path("/proc/self/cmdline").read_bytes()  # `mgpu launch --launcher torchrun` and its forks are not launchers
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{name}/cmdline").read_bytes()
            if command == ours:
                continue
            variables = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
            temporary = next((v[7:] for v in variables if v.startswith(b"TMPDIR=")), b"/tmp")
            launcher = any(word in command for word in _LAUNCHERS)
            if launcher and Path(os.fsdecode(temporary)) == path.parent:
                return False
    return True


def _remove(path: Path) -> None:
    """Remove a file, or a folder with its content, unless it is a link or belongs to another user."""
    with contextlib.suppress(OSError):
        if path.is_symlink() or path.lstat().st_uid != os.getuid():
            return
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _mapped_files() -> frozenset[str]:
    """Return the shared memory files that this user's running processes have mapped."""
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{name}/maps").read_text("utf-8", "replace").splitlines():
                if str(_SHM) in line:
                    found.add(line[line.index(str(_SHM)) :].removesuffix(" (deleted)"))
    return frozenset(found)


def error_folder(error_file: str) -> str:
    """Return the folder that torchrun creates for every run and never removes (measured with torch 2.13).

    A rank's error file is …/torchelastic_XXXX/RUN_XXXX/attempt_0/RANK/error.json.
    """
    return str(Path(error_file).parents[3])
