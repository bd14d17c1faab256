"""The folder `.mgpu` in which mgpu keeps what belongs to one project: its runs, and which configs are verified.

Not `runs/`, which is where TensorBoard's SummaryWriter writes by default. A run of an older mgpu is still read there.
"""

from __future__ import annotations

from pathlib import Path

from mgpu import files
from mgpu.file_reading import read_own

FOLDER = ".mgpu"
RUNS = f"{FOLDER}/runs"
RUNS_BEFORE = "runs"  # of mgpu 0.1 until 2026-11
_LARGEST = 4096  # bytes of a .gitignore
_IGNORE, _EVERYTHING = ".gitignore", "*\n"  # what is verified on one machine must not be committed


def create(project: Path) -> Path:
    """Create `.mgpu` in a project's folder, ignored by git. Raises OSError: Unreadable if it is a link or another's."""
    folder = files.private_folder(project / FOLDER)
    ignore = folder / _IGNORE
    if not ignore.exists():
        files.write(ignore, _EVERYTHING, mode=0o600)
    return folder


def remove_if_unused(folder: Path) -> None:
    """Remove a `.mgpu` that has nothing but the .gitignore that `create` wrote. Raises OSError."""
    if folder.name != FOLDER or [path.name for path in folder.iterdir()] != [_IGNORE]:
        return
    if read_own(folder / _IGNORE, most=_LARGEST) == _EVERYTHING.encode():
        (folder / _IGNORE).unlink()
        folder.rmdir()
