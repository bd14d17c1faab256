"""Is the code and the data on this machine the same as on the others? Facts about the current folder, in words."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Sequence

from mgpu.process import child_process

_GIT_S = 10.0
_WALK_S = 5.0  # for each path: a data set may have millions of files
_SHORT = 10  # characters of a commit and of a hash
MISSING = "missing"


def facts(data: Sequence[str]) -> dict[str, str]:
    """Return name -> state: the git commit, uncommitted changes, and the size of each data path."""
    found = {}
    if commit := _git("rev-parse", "HEAD"):
        found["commit"] = commit.strip()[:_SHORT]
        changes = _git("diff", "HEAD", "--no-color", "--no-ext-diff")
        found["uncommitted changes"] = "none" if not changes else _hash(changes.encode("utf-8", "replace"))
    return found | {f"data in {path}": _size(path) for path in data}


def _git(*words: str) -> str | None:
    """Return git's answer about the current folder; None if there is no git or no repository."""
    try:
        done = child_process.run(["git", *words], _GIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def _size(path: str) -> str:
    """Return the number of files below a path and their size, or why it is unknown."""
    try:
        if os.path.isfile(path):
            return f"{os.stat(path).st_size:,} bytes"
        os.listdir(path)
    except FileNotFoundError:
        return MISSING
    except OSError as error:
        return f"not readable: {error.strerror}"
    count = total = 0
    until = time.monotonic() + _WALK_S
    for folder, _, names in os.walk(path):
        for name in names:
            count += 1
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue
        if time.monotonic() > until:
            return f"more than {count:,} files"
    return f"{count:,} files, {total:,} bytes"


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_SHORT]
