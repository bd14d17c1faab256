"""Which names does a file bind, in any scope and in any way, and which does it use?"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Bindings:
    """The names of one file, collected in one pass."""

    bound: Counter[str] = field(default_factory=Counter)  # how often; a parameter counts, "*" is an import of all names
    used: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)  # their last part
    of_sys: Counter[str] = field(default_factory=Counter)  # how often: "path", "path.append", "modules"

    @property
    def mentioned(self) -> set[str]:
        """Every name, bound or used."""
        return {*self.bound, *self.used}

    @property
    def changes_path(self) -> bool:
        """Whether the file may put a folder before the one of the script, or replace modules."""
        return self.of_sys["path"] > self.of_sys["path.append"] or self.of_sys["modules"] > 0


def bindings(tree: ast.Module) -> Bindings:
    """Return the names of a file."""
    found = Bindings()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.used.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.attributes.add(node.attr)
            if name := _of_sys(node):
                found.of_sys[name] += 1
        else:
            found.bound.update(names_bound(node))
            found.of_sys.update(_imported_of_sys(node))
    return found


def _of_sys(node: ast.Attribute) -> str:
    """Return what an attribute is of the module sys, if it concerns modules: "path", "path.append", "modules"."""
    above = node.value
    if isinstance(above, ast.Name) and above.id == "sys":
        return node.attr if node.attr in ("path", "modules") else ""
    return "path.append" if node.attr == "append" and isinstance(above, ast.Attribute) and _of_sys(above) else ""


def _imported_of_sys(node: ast.AST) -> list[str]:
    """Return what an import may change of sys by another name: `import sys as system`, `from sys import path`."""
    if isinstance(node, ast.Import) and any(one.name == "sys" and one.asname for one in node.names):
        return ["path", "modules"]
    names = [one.name for one in node.names] if isinstance(node, ast.ImportFrom) and node.module == "sys" else []
    return [one for one in ("path", "modules") if one in names]


def names_bound(node: ast.AST) -> list[str]:
    """Return the names that a node binds."""
    if isinstance(node, ast.Name):
        return [] if isinstance(node.ctx, ast.Load) else [node.id]
    if isinstance(node, ast.alias):
        return [(node.asname or node.name).partition(".")[0]]
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.Global | ast.Nonlocal):
        return node.names
    if isinstance(node, ast.MatchMapping):
        return [node.rest] if node.rest else []
    name = getattr(node, "name", None)  # of functions, classes, exceptions, patterns and type parameters
    return [name] if isinstance(name, str) else []
