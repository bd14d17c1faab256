"""What does this folder train, and how is mgpu called from a job?"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from itertools import islice
from pathlib import Path
from typing import Final

from mgpu import file_reading

_TRAINS: Final = re.compile(rb"\.backward\(|Trainer\(|\.fit\(")
_MOST_FILES: Final = 200
_MOST_BYTES: Final = 1 << 18  # of a script: longer ones are not training scripts that somebody starts
DEFAULT: Final = "train.py"


def command(folder: Path) -> tuple[str, ...]:
    """The script of a folder that trains: train.py, else the only one that does; train.py where nobody can tell."""
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


def own_command() -> str:
    """How a job calls this mgpu, as shell words: by its whole path, since a job's PATH may be another."""
    called, beside = Path(sys.argv[0]), Path(sys.executable).with_name("mgpu")
    for path in (called, beside):
        if path.name == "mgpu" and os.access(path, os.X_OK):
            return shlex.quote(str(path.absolute()))
    return shlex.join([sys.executable, "-m", "mgpu"])
