"""What is the value of a condition on parameters whose constants are known?"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TypeAlias

Constants: TypeAlias = Mapping[str, object]  # by parameter
Place: TypeAlias = tuple[str, int]  # file and line of a function
UNKNOWN = object()


def constant_of(node: ast.expr | None) -> object:
    """Return the value of a constant; UNKNOWN for any other expression."""
    if not isinstance(node, ast.Constant | ast.UnaryOp):
        return UNKNOWN
    try:
        return ast.literal_eval(node)
    except ValueError:
        return UNKNOWN


def decides(test: ast.expr, constants: Constants) -> bool | None:
    """Return the value of a condition on parameters with these constants; None if it is not known."""
    if isinstance(test, ast.Name):
        return bool(constants[test.id]) if test.id in constants else None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        value = decides(test.operand, constants)
        return None if value is None else not value
    if isinstance(test, ast.BoolOp):
        values = [decides(part, constants) for part in test.values]
        stops = isinstance(test.op, ast.Or)  # the value that decides it alone
        return stops if stops in values else None if None in values else not stops
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _compares(test, constants)
    return None


def _compares(test: ast.Compare, constants: Constants) -> bool | None:
    if not isinstance(test.left, ast.Name) or test.left.id not in constants:
        return None
    left, right, operator = constants[test.left.id], test.comparators[0], test.ops[0]
    if isinstance(operator, ast.In | ast.NotIn) and isinstance(right, ast.Tuple | ast.List | ast.Set):
        values = [constant_of(one) for one in right.elts]
        return None if UNKNOWN in values else (left in values) is isinstance(operator, ast.In)
    value = constant_of(right)
    if value is UNKNOWN or not isinstance(operator, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
        return None
    same = type(left) is type(value) and left == value
    return same is isinstance(operator, ast.Eq | ast.Is)
