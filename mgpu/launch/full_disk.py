"""How full are the file systems of a run that failed because one was full?"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace

from mgpu import file_reading, probes
from mgpu.launch import output_folders
from mgpu.probes import storage as storage_probe
from mgpu.snapshot import Log, Run, Storage

_SIGNS = re.compile(r"No space left|PytorchStreamWriter failed|Not enough free disk space|iostream error|\[Errno 122\]")
# Python's message of an OSError ends with the file: "[Errno 28] No space left on device: '/data/model.pt'".
_FILE = re.compile(r"No space left on device: '([^']+)'")
_FULL_BYTES = 64 << 10  # a file system with less space that no argument of the script names is the one that was full
_MOST_MOUNTS, _MOST_MOUNT_BYTES = 64, 1 << 20
# fmt: off
_NO_DISK = frozenset({
    "proc", "sysfs", "cgroup", "cgroup2", "devpts", "devtmpfs", "mqueue", "debugfs", "tracefs", "securityfs", "pstore",
    "bpf", "configfs", "fusectl", "hugetlbfs", "nsfs", "binfmt_misc", "autofs", "rpc_pipefs", "efivarfs", "ramfs",
    "squashfs", "iso9660", "erofs",
})
# fmt: on


def read_storage(log: Log | None, run: Run, arguments: Sequence[str]) -> Storage | None:
    """Return the folders of a failed run as they are now; None if nothing shows that one of their disks was full.

    `arguments`: the script's own, which may name its output folder.
    """
    texts = [*(one.text for one in log.seen), *(one.message for one in log.raised)] if log else []
    signs = [text for text in texts if _SIGNS.search(text)]
    if not signs and not run.log_full:
        return None
    files = [found[1] for text in signs for found in _FILE.finditer(text)]
    folders = [*(os.path.dirname(os.path.abspath(file)) for file in files), *output_folders.folders(arguments)]
    folders += [run.log] if run.log else []
    named = list(dict.fromkeys(folders))
    mounts = [] if files else [place for place in _mount_points() if place not in named]
    wanted = replace(probes.STORAGE, arguments={"outputs": [*named, *mounts]})
    child = probes.run([wanted])[0]
    storage = probes.build(child.found, probes.gaps_of(child)).storage
    return _without_room(storage, frozenset(mounts)) if storage is not None else None


def _mount_points() -> list[str]:
    """Return where file systems for files are mounted: the message of a failed write names no file."""
    try:
        lines = file_reading.read_part("/proc/self/mountinfo", most=_MOST_MOUNT_BYTES, start=0)
    except OSError:
        return []
    found = (storage_probe.mount_of(line) for line in lines.decode("utf-8", "surrogateescape").splitlines())
    return list(dict.fromkeys(place for kind, place in found if kind and kind not in _NO_DISK))[:_MOST_MOUNTS]


def _without_room(storage: Storage, mounts: frozenset[str]) -> Storage:
    """Leave out the mount points that are not certainly full: nothing shows that the run writes there."""
    kept = [
        one
        for one in storage.folders
        if one.path not in mounts
        or one.role != "output"
        or (one.free_bytes is not None and one.free_bytes < _FULL_BYTES)
    ]
    return replace(storage, folders=tuple(kept))
