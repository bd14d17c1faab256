"""Which names do imports, `global` and `nonlocal` bind, and where? Modules of the script's own folder are read."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Protocol

from mgpu.readers.training_script.aliases import canonical
from mgpu.readers.training_script.names import Frame
from mgpu.readers.training_script.scopes import Around, Scope


class Reader(Protocol):
    """What reads the script (walk.py). `find` returns what a module of the script's folder binds."""

    find: Callable[[Any, str], Scope | None]
    imports: set[str]
    elsewhere: set[str]


def read_import(walk: Reader, node: ast.Import, frame: Frame, around: Around) -> None:
    """Bind the names of an `import`, and add the modules to what `walk` has found."""
    for alias in node.names:
        _load(walk, alias.name)
        walk.imports.add(alias.name)
        if alias.asname:
            frame.scope.names[alias.asname] = canonical(alias.name)
        else:
            top = alias.name.partition(".")[0]
            frame.scope.names[top] = top


def read_import_from(walk: Reader, node: ast.ImportFrom, frame: Frame, around: Around) -> None:
    """Bind the names of a `from ... import`; `walk` as above."""
    if not (module := frame.source.module_of(node)):
        return
    names = _load(walk, module)
    for alias in node.names:
        if alias.name == "*":
            frame.scope.names.update({k: v for k, v in (names.names if names else {}).items() if k[0] != "_"})
            if names is not None:  # also from a file that is not read because it only defines layers
                frame.scope.names.setdefault("nn", "torch.nn")
            walk.imports.add(f"{module}.*")
            continue
        whole = f"{module}.{alias.name}"
        walk.imports.add(whole)
        bound = names.names.get(alias.name) if names is not None else None
        frame.note_read(alias.name if alias.asname else "")
        if bound is None and names is not None:
            walk.find(walk, whole)  # a module in that package
        frame.scope.names[alias.asname or alias.name] = canonical(bound or whole)
        if names is not None and (split := names.splits.get(alias.name)) is not None:
            frame.scope.splits[alias.asname or alias.name] = split


def read_declaration(walk: Reader, node: ast.Global | ast.Nonlocal, frame: Frame, around: Around) -> None:
    """Note in which scope a function assigns its global or nonlocal variables; `walk` as above."""
    for name in node.names:
        frame.scope.declare(name, is_global=isinstance(node, ast.Global))


def _load(walk: Reader, module: str) -> Scope | None:
    found = walk.find(walk, module)
    if found is None:
        walk.elsewhere.add(module)
    return found
