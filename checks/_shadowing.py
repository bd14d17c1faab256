"""What is there to say of a file or folder that is imported in place of an installed module?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Fix, Place, Problem
from mgpu.command_line import shell
from mgpu.text import listed

SYS_PATH = "https://docs.python.org/3/library/sys.html#sys.path"


def problem(shadowed: Mapping[str, str], why: str, place: Place | None = None) -> Problem:
    """The problem with its renames; `shadowed` has the path of the file or package by the module's name."""
    paths = tuple(shadowed.values())
    names = [path.rpartition("/")[2] for path in paths]
    names = [name if "." in name else f"{name}/" for name in names]
    return Problem(
        f"{listed(names)} {'hides the module' if len(names) == 1 else 'hide the modules'} of that name",
        why,
        Fix("Rename it.", tuple(shell("mv {:path} {:path}", path, _other(path)) for path in paths)),
        dict(shadowed),
        () if place else tuple(shadowed),
        place=place,
    )


def _other(path: str) -> str:
    """A name that no library has: `torch_of_mine.py`."""
    folder, slash, name = path.rpartition("/")
    module, dot, suffix = name.partition(".")
    return f"{folder}{slash}{module}_of_mine{dot}{suffix}"
