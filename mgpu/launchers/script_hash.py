"""Is this the script that was rehearsed? By a hash of its file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from mgpu import file_reading
from mgpu.launchers.module_file import find_module_file

_SCRIPT_BYTES = 16 << 20


def script_hash(target: Sequence[str]) -> str | None:
    """Return the hash of the script's file; None if it cannot be read."""
    path = find_module_file(target[1]) if target[0] == "-m" else Path(target[0])
    return None if path is None else hash_of(path)


def hash_of(path: Path) -> str | None:
    """Return the hash of a file; None if it cannot be read."""
    try:
        return hashlib.sha256(file_reading.read_whole(path, most=_SCRIPT_BYTES)).hexdigest()
    except OSError:
        return None
