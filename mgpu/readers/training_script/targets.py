"""Which names does an assignment or a loop bind, and to which values?"""

from __future__ import annotations

import ast
import re

from mgpu.readers.training_script.names import Frame

_BY_CONFIG = re.compile(r"(?:.*\.)?instantiate(?:_from_config)?")  # creates an object of a class that a config names


def value_pairs(node: ast.Assign) -> list[tuple[ast.expr, list[ast.expr]]]:
    """Return the values of an assignment with the targets of each: `a, b = f(), g()` has two."""
    first, value = node.targets[0], node.value
    if len(node.targets) == 1 and isinstance(first, ast.Tuple) and isinstance(value, ast.Tuple):
        starred = any(isinstance(one, ast.Starred) for one in (*first.elts, *value.elts))
        if not starred and len(first.elts) == len(value.elts):
            return [(part, [target]) for target, part in zip(first.elts, value.elts, strict=True)]
    return [(value, node.targets)]


def annotated_object(annotation: ast.expr, value: ast.expr, frame: Frame) -> ast.Call | None:
    """Return `Trainer()` for `trainer: Trainer = instantiate(config)`, whose class only the run knows; else None."""
    if not isinstance(value, ast.Call) or not isinstance(annotation, ast.Name | ast.Attribute):
        return None
    if not _BY_CONFIG.fullmatch(frame.resolve(value.func) or ""):
        return None
    made = ast.Call(annotation, [], [])
    return ast.copy_location(made, value)


def names_in(target: ast.expr) -> list[str]:
    """Return the names in a target."""
    return [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]


def names_stored(tree: ast.AST) -> set[str]:
    """Return the variables that statements bind."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
