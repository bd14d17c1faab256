"""The options of a command line, and the fields of a dataclass that holds settings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from mgpu.readers.sources.source_files import Module

_HOLDS_SETTINGS = re.compile(r"(?i)(?:args|arguments|config|cfg|options|opts?|hparams|settings|params)$")
_DEFINES_OPTION = frozenset({"add_argument", "add_arg", "option", "add_option"})


class Option(NamedTuple):
    """One option, or one field of a dataclass."""

    module: Module
    node: ast.stmt
    flag: str  # "--data"; "" for a field
    default: ast.expr | None
    code: str  # its definition, without the text for --help


def holds_settings(name: str) -> bool:
    """Whether an object is named like one that holds settings: args, cfg, self.config."""
    return bool(_HOLDS_SETTINGS.search(name.rpartition(".")[2]))


def find(modules: Iterable[Module], name: str) -> Option | None:
    """Return the only definition of an option or field among the first module that has one; None if there are two."""
    for module in modules:
        found = _defined(module).get(name, ())
        if found:
            return found[0] if len(found) == 1 else None
    return None


@lru_cache(maxsize=256)
def _defined(module: Module) -> dict[str, list[Option]]:
    """Return all options and fields that a module defines, by name."""
    found: dict[str, list[Option]] = {}
    for name, option in (*_arguments(module), *_fields(module)):
        found.setdefault(name, []).append(option)
    return found


def _arguments(module: Module) -> Iterable[tuple[str, Option]]:
    for statement in ast.walk(module.tree):
        if not isinstance(statement, (ast.Expr, ast.Assign)) or not isinstance(statement.value, ast.Call):
            continue
        call = statement.value
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in _DEFINES_OPTION:
            continue
        flags = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        keywords = {one.arg: one.value for one in call.keywords if one.arg}
        dest = keywords.get("dest")
        if isinstance(dest, ast.Constant):
            names = [str(dest.value)]
        else:
            long = [flag for flag in flags if flag.startswith("--")] or flags
            names = [long[0].lstrip("-").replace("-", "_")] if long else []
        for name in names:
            flag = next((flag for flag in flags if flag.startswith("--")), flags[0] if flags else "")
            parts = [*call.args, *(one for one in call.keywords if one.arg not in ("help", "metavar"))]
            code = f"{ast.unparse(call.func)}({', '.join(map(ast.unparse, parts))})"
            yield name, Option(module, statement, flag if flag.startswith("-") else "", keywords.get("default"), code)


def _fields(module: Module) -> Iterable[tuple[str, Option]]:
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ClassDef):
            continue
        decorated = any("dataclass" in ast.unparse(one) for one in node.decorator_list)
        if not decorated and not holds_settings(node.name):
            continue
        for part in node.body:
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                value = f" = {ast.unparse(part.value)}" if part.value is not None else ""
                name = part.target.id
                yield name, Option(module, part, "", part.value, f"{name}: {ast.unparse(part.annotation)}{value}")


def names(module: Module) -> set[str]:
    """Return the names of the options of a command line that a module defines."""
    return {name for name, found in _defined(module).items() if any(one.flag for one in found)}
