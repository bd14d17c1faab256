"""The classes of the user's own: what one derives from, and how it is made."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from mgpu.readers.sources.bindings import FUNCTIONS, Function
from mgpu.readers.sources.expressions import last_name
from mgpu.readers.sources.source_files import Module, Sources

_BASES = 4  # classes from which one derives


def with_bases(sources: Sources, module: Module, owner: ast.ClassDef) -> list[tuple[Module, ast.ClassDef]]:
    """Return a class, and those of the project that it derives from, with the modules in which they are."""
    found = [(module, owner)]
    for there, one in found:
        for base in one.bases:
            away = (there, last_name(base))
            if not in_module(*away):
                away = sources.imported(*away) or (there, "")
            if (known := in_module(*away)) and (away[0], known) not in found:
                found.append((away[0], known))
        if len(found) > _BASES:
            break
    return found


def in_module(module: Module, name: str) -> ast.ClassDef | None:
    """Return the class of a name at a module's top level."""
    return next((one for one in module.tree.body if isinstance(one, ast.ClassDef) and one.name == name), None)


def named(modules: Iterable[Module], name: str) -> list[tuple[Module, ast.ClassDef]]:
    """Return all classes of a name, at whatever level."""
    return [
        (module, node)
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and node.name == name
    ]


def methods(owner: ast.ClassDef) -> Iterator[Function]:
    """Return the methods that a class itself defines, __init__ first."""
    found = [one for one in owner.body if isinstance(one, FUNCTIONS)]
    yield from sorted(found, key=lambda one: one.name != "__init__")


def own_object(method: Function) -> str:
    """Return the name that a method has for its object, usually self."""
    return method.args.args[0].arg if method.args.args else "self"


def constructor(sources: Sources, module: Module, owner: ast.ClassDef) -> tuple[Module, ast.AST]:
    """Return the __init__ that makes an object of a class; the class itself if the project has none."""
    for there, one in with_bases(sources, module, owner):
        for method in methods(one):
            if method.name == "__init__":
                return there, method
    return module, owner
