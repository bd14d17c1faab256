"""What does a training script do, by its syntax tree? Nothing of it is imported or run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mgpu.snapshot import Script


def read(path: Path, arguments: Sequence[str] = ()) -> Script:
    """The fact `script`. Raises MgpuError for a file that cannot be read or is no Python."""
    return Script(str(path), tuple(arguments))
