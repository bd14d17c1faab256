"""Does a line assign another number of values than names, with both written in the line itself?"""

from __future__ import annotations

import ast

from mgpu.check import Fix
from mgpu.snapshot import UncaughtException
from mgpu.text import counted

from ._messages import short_name
from ._own_objects import Meaning


def unpacked_literal(one: UncaughtException) -> Meaning | None:
    """Explain `a, b = [], [], []`; None if the line is another one, or the log has only a part of it."""
    if short_name(one.type) != "ValueError" or "values to unpack" not in one.message:
        return None
    try:
        statements = ast.parse((one.code or "").strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if len(statements) != 1 or not isinstance(statements[0], ast.Assign) or len(statements[0].targets) != 1:
        return None
    names, values = _parts(statements[0].targets[0]), _parts(statements[0].value)
    if not names or not values or len(names) == len(values):
        return None
    many = len(values) > len(names)
    return Meaning(
        f"{one.place} assigns {counted(len(values), 'value')} to {counted(len(names), 'name')} "
        f"({', '.join(map(ast.unparse, names))})",
        "Both sides are written out in that line, so it fails whatever the data and the settings are: it has "
        f"{'a value too many, or lacks a name' if many else 'a name too many, or lacks a value'}.",
        (
            Fix(
                "Remove the value that is too many, or add the name that is missing on the left."
                if many
                else "Add the value that is missing on the right, or remove the name."
            ),
        ),
    )


def _parts(node: ast.expr) -> list[ast.expr]:
    """Return the items of a tuple or list as written; none if their number is not known from the text."""
    if not isinstance(node, ast.Tuple | ast.List) or any(isinstance(item, ast.Starred) for item in node.elts):
        return []
    return node.elts
