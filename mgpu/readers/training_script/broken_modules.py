"""Which modules of the project are not valid Python, and certainly imported when the script starts?"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mgpu.readers.training_script.bound_names import bindings
from mgpu.readers.training_script.branches import until_exit
from mgpu.readers.training_script.local_modules import LocalModules
from mgpu.readers.training_script.scopes import Source
from mgpu.snapshot import ScriptFault

_DEFINES_ANYTHING = frozenset({"*", "__getattr__", "globals", "setattr", "exec"})


def broken_modules(tree: ast.Module, source: Source, modules: LocalModules) -> list[ScriptFault]:
    """Return the syntax errors of the modules that the top level of the script imports, or that these import.

    Only imports without a condition, none in a function or in a `try`.
    """
    found = []
    for module, name in imported_at_start(tree, source, modules).items():
        if modules.tree(module) is None and name in modules.broken:
            line, text = modules.broken[name]
            found.append(ScriptFault(line, file=name, kind="syntax", name=text, of=module))
    return found


def imported_at_start(tree: ast.Module, source: Source, modules: LocalModules) -> dict[str, str]:
    """Return the modules that every start of the script imports, dotted, with their files."""
    new, found = [(tree, source)], {"": ""}
    while new:
        for module in _imported(*new.pop(0), modules):
            name = modules.name_of(modules.locate(module) or modules.folder)
            if module in found or name in found.values():
                continue
            found[module] = name
            if (parsed := modules.tree(module)) is not None:
                new.append(parsed)
    return found


def _imported(tree: ast.Module, source: Source, modules: LocalModules) -> Iterator[str]:
    """Return the modules of the project that a file's top level imports, dotted; their packages come first."""
    for node in until_exit(tree.body):
        if isinstance(node, ast.Import):
            for one in node.names:
                yield from _with_packages(one.name, modules)
        elif isinstance(node, ast.ImportFrom) and (module := source.module_of(node)):
            yield from _with_packages(module, modules)
            yield from (f"{module}.{one.name}" for one in node.names if _is_module(module, one.name, source, modules))


def _with_packages(module: str, modules: LocalModules) -> Iterator[str]:
    parts = module.split(".")
    for number in range(1, len(parts) + 1):
        if modules.locate(name := ".".join(parts[:number])) is None:
            return
        yield name


def _is_module(package: str, name: str, source: Source, modules: LocalModules) -> bool:
    """Whether an import in `source` certainly takes a module from a package, which does not define the name itself."""
    if modules.locate(f"{package}.{name}") is None or (file := modules.locate(package)) is None:
        return False
    if file == "":  # a folder without __init__.py defines nothing
        return True
    if (parsed := modules.tree(package)) is None:
        return False
    names = bindings(parsed[0])
    imports = parsed[1].file == source.file  # the package itself, in which the import binds the name
    return names.bound[name] == imports and not names.mentioned & _DEFINES_ANYTHING
