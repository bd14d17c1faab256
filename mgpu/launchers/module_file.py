"""Which file does `python -m MODULE` run? Found by path, without importing the module or its packages."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

_INSTALLED = frozenset({"site-packages", "dist-packages"})


def find_module_file(name: str) -> Path | None:
    """Return the source file of a module of the user's; None for an installed package, or if there is none.

    `-m` puts the current folder first. A package is run through its `__main__`.
    """
    path: Sequence[str] | None = [os.getcwd(), *sys.path]
    spec: ModuleSpec | None = None
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        return None
    for number in range(len(parts)):
        spec = PathFinder.find_spec(".".join(parts[: number + 1]), path)
        if spec is None:
            return None
        path = None if spec.submodule_search_locations is None else list(spec.submodule_search_locations)
        if path is None and number + 1 < len(parts):
            return None
    if path is not None:
        spec = PathFinder.find_spec(f"{name}.__main__", path)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    file = Path(spec.origin)
    if _INSTALLED & set(file.parts):
        return None
    return Path(os.path.relpath(file)) if file.is_relative_to(os.getcwd()) else file
