"""One dataclass as JSON in a file of a run's folder, for other processes, nodes and later commands to read."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, TypeVar

from mgpu import file_reading, files
from mgpu.errors import MgpuError
from mgpu.snapshot import BadSnapshot, decode
from mgpu.structured_text import json_of

T = TypeVar("T")


def write(path: Path, fact: dict[str, Any]) -> None:
    """Replace the file. The disk may be full, which may also be what is reported; the run matters more."""
    with contextlib.suppress(MgpuError):
        files.write(path, json.dumps(fact) + "\n", mode=0o600)


def read(path: Path, kind: type[T], *, most: int) -> T | None:
    """Return the fact; None if there is none, or if it has more than `most` bytes or cannot be read."""
    try:
        return decode(kind, json_of(file_reading.read_whole(path, most=most)), "")
    except (OSError, ValueError, BadSnapshot):
        return None


def remove(path: Path) -> None:
    """Remove what no longer holds."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
