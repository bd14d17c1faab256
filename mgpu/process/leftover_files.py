"""What did a run leave in /dev/shm and the temporary folder, and which of it may be removed?

Also: did the kernel kill a process of this control group for lack of memory?
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path

from mgpu.known_launchers import OTHERS

_SHM = Path("/dev/shm")
_CGROUPS = Path("/sys/fs/cgroup")
_EVENTS = ("memory.events.local", "memory.events")  # of this group alone (Linux 5.2 and later), else with those in it
# In the command line of a launcher, and of whatever else torch, accelerate or DeepSpeed starts.
_LAUNCHERS = tuple({known.modules[0].partition(".")[0].rstrip("*").encode() for known in OTHERS})
# What torch, NCCL, Python and the launchers make there; files of other programs are none of ours.
_OURS = {
    _SHM: ("torch_*", "nccl-*", "sem.*", "psm_*", "cuda.shm.*"),
    Path(tempfile.gettempdir()): ("torchelastic_*", "pymp-*", "torch-shm-dir-*"),
}
# The process that made it, where the name tells: torch_4711_…, pymp-…/listener-4711-0-….
_MAKER = re.compile(r"^(?:torch_|listener-)(\d+)[_-]")
# Folders that a rank names as its own (Rank.wrote); nothing else is ever removed by name.
_OWN = re.compile(r"^(?:torchelastic_\w+|\.mgpu-smoke-[\w.-]+)$")


def killed_for_memory() -> int | None:
    """How many processes of this control group (a container, a job, a session; the ranks inherit it) the kernel has
    killed for want of memory: of theirs, or of the whole machine."""
    for path in _counters():
        with contextlib.suppress(OSError, ValueError, StopIteration):
            lines = path.read_text("utf-8").splitlines()
            return int(next(line for line in lines if line.startswith("oom_kill ")).split()[1])
    return None


def _counters() -> list[Path]:
    """Where the kernel may count them: cgroup v2 and v1, seen from the host and from within a container."""
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
    """Files of this user that a run may leave, as they are now."""
    found = set()
    for folder, patterns in _OURS.items():
        for pattern in patterns:
            with contextlib.suppress(OSError):
                found |= {path for path in folder.glob(pattern) if path.lstat().st_uid == os.getuid()}
    return frozenset(found)


def sweep(before: frozenset[Path], pids: Collection[int], wrote: Collection[str]) -> tuple[str, ...]:
    """Remove what the processes of a run that is over have left; what is still there, in use by nobody."""
    for path in map(Path, wrote):
        if _OWN.match(path.name):
            _remove(path)
    new = sorted(path for path in files() - before if path.exists())
    for path in new:
        if _makers(path) & set(pids) or (path.name.startswith("torchelastic_") and _nobodys(path)):
            _remove(path)
    wanted = {path for path in map(Path, wrote) if _OWN.match(path.name)}
    left = [path for path in (*new, *sorted(wanted - set(new))) if path.exists()]
    # Another run of this user's may have made the others: only what is certainly of this one is told.
    mine = [path for path in left if path in wanted or _makers(path) & set(pids)]
    in_use = _mapped() if len(left) > len(mine) else frozenset()
    strange = [p for p in left if p not in mine and p.parent == _SHM and not _makers(p) and str(p) not in in_use]
    return tuple(map(str, (*mine, *strange)))


def _makers(path: Path) -> set[int]:
    """The processes that made a file, or something in a folder, by the names."""
    names = [path.name]
    with contextlib.suppress(OSError):
        names += os.listdir(path)
    return {int(found.group(1)) for found in map(_MAKER.match, names) if found}


def _nobodys(path: Path) -> bool:
    """Whether a launcher's folder is empty and no launcher lives that may have made it: ours died before it started a
    rank that could have named it."""
    with contextlib.suppress(OSError):
        if any(path.iterdir()):
            return False
    ours = Path("/proc/self/cmdline").read_bytes()  # `mgpu launch --launcher torchrun` is none, nor is what it forked
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
    """A file, or a folder with all that is in it; one of another user's, or a link, stays."""
    with contextlib.suppress(OSError):
        if path.is_symlink() or path.lstat().st_uid != os.getuid():
            return
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _mapped() -> frozenset[str]:
    """The shared memory that this user's live processes use."""
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{name}/maps").read_text("utf-8", "replace").splitlines():
                if str(_SHM) in line:
                    found.add(line[line.index(str(_SHM)) :].removesuffix(" (deleted)"))
    return frozenset(found)


def error_folder(error_file: str) -> str:
    """The folder that torchrun makes for every run, and removes never (measured torch 2.13), by a rank's error file:
    …/torchelastic_XXXX/RUN_XXXX/attempt_0/RANK/error.json."""
    return str(Path(error_file).parents[3])
