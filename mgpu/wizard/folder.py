"""Which script in this folder trains?"""

from __future__ import annotations

import contextlib
import re
from itertools import islice
from pathlib import Path
from typing import Final

from mgpu import file_reading

_TRAINS: Final = re.compile(rb"\.backward\(|Trainer\(|\.fit\(")
_MOST_FILES: Final = 200
_MOST_BYTES: Final = 1 << 18  # per script: longer ones are not training scripts
DEFAULT: Final = "train.py"


def command(folder: Path) -> tuple[str, ...]:
    """Return the training script of a folder: train.py, else the only script that trains, else train.py."""
    if (folder / DEFAULT).exists():
        return (DEFAULT,)
    try:
        found = [path.name for path in islice(sorted(folder.glob("*.py")), _MOST_FILES) if _trains(path)]
    except OSError:
        found = []
    return (found[0] if len(found) == 1 else DEFAULT,)


def _trains(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return bool(_TRAINS.search(file_reading.read(path, most=_MOST_BYTES)))
    return False
