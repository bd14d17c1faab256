"""Which modules of the project are not valid Python, and certainly imported when the script starts?"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator

from mgpu.readers.training_script.local_modules import LocalModules
from mgpu.readers.training_script.scopes import Source
from mgpu.snapshot import ScriptFault


def broken_modules(tree: ast.Module, source: Source, modules: LocalModules) -> list[ScriptFault]:
    """Return the syntax errors of the modules that the top level of the script imports, or that these import.

    Only imports without a condition, none in a function or in a `try`.
    """
    if not modules.broken:
        return []
    trees = {one.file: (body, one) for body, one in modules.parsed()}
    new, seen, found = [(tree, source)], {""}, []
    while new:
        body, file = new.pop(0)
        for module in _imported(body, file):
            for name in _files(module, modules):
                if name in seen:
                    continue
                seen.add(name)
                if name in modules.broken:
                    line, text = modules.broken[name]
                    found.append(ScriptFault(line, file=name, kind="syntax", name=text, of=module))
                elif name in trees:
                    new.append(trees[name])
    return found


def _imported(tree: ast.Module, source: Source) -> Iterator[str]:
    """Return the modules that a file's top level imports, dotted; also the names in them, which may be modules."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = source.package.split(".") if source.package and node.level else []
            parts = parts[: len(parts) - node.level + 1] if node.level > 1 else parts
            module = ".".join([*parts, *([node.module] if node.module else [])])
            yield from (module, *(f"{module}.{one.name}" for one in node.names if module)) if module else ()


def _files(module: str, modules: LocalModules) -> Iterator[str]:
    """Return the files that the import of a module runs, as they are named in `modules`: its packages come first."""
    parts = module.split(".")
    if parts[0] in sys.stdlib_module_names:
        return
    for number in range(1, len(parts) + 1):
        places = (os.path.join(root, *parts[:number]) for root in modules.roots)
        paths = (path for place in places for path in (f"{place}.py", os.path.join(place, "__init__.py")))
        if (path := next(filter(os.path.isfile, paths), "")) == "":
            return
        yield os.path.relpath(path, modules.folder)
