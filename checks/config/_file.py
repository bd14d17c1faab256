"""Can the file be read, and where in it does a key stand?"""

from __future__ import annotations

import difflib

from mgpu.check import Place
from mgpu.snapshot import Config

LAUNCH = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/commands/launch.py"
ARGS = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/commands/config/config_args.py"

BROKEN = "the file cannot be read"


def place_of(config: Config, key: str | None = None) -> Place:
    """Where a key stands in the file; without a key, the file."""
    mark = config.marks.get(key or "")
    return Place(config.path, mark.line if mark else None, mark.column if mark else None, key)


def suggestion(name: str, names: tuple[str, ...]) -> str:
    """What a title adds where one of the names is near."""
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f". Did you mean {near[0]}?" if near else ""


def readable(config: Config) -> bool:
    """Whether the file is YAML and a mapping."""
    return not any(fault.fatal for fault in config.faults)
