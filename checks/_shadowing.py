"""The problem that a file or directory is imported instead of the installed module of the same name."""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Fix, Place, Problem
from mgpu.command_line import shell
from mgpu.text import listed

SYS_PATH = "https://docs.python.org/3/library/sys.html#sys.path"


def shadowing_problem(shadowed: Mapping[str, str], why: str, place: Place | None = None) -> Problem:
    """Return the problem with the renames that fix it. `shadowed` maps module names to the shadowing paths."""
    paths = tuple(shadowed.values())
    names = [path.rpartition("/")[2] for path in paths]
    names = [name if "." in name else f"{name}/" for name in names]
    return Problem(
        f"{listed(names)} {'shadows the module' if len(names) == 1 else 'shadow the modules'} of the same name",
        why,
        Fix("Rename it.", tuple(shell("mv {:path} {:path}", path, _renamed_path(path)) for path in paths)),
        dict(shadowed),
        () if place else tuple(shadowed),
        place=place,
    )


def _renamed_path(path: str) -> str:
    """Return a path that no library uses: `my_torch.py`."""
    folder, slash, name = path.rpartition("/")
    module, dot, suffix = name.partition(".")
    return f"{folder}{slash}my_{module}{dot}{suffix}"
