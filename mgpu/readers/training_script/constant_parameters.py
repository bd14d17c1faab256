"""Which parameters of the script's functions have one constant value in every run, and which conditions do they decide?

`train(data, method="sharded")` is the only call of `train`, so its `if method == "plain":` is never taken.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from mgpu.readers.training_script.known_libraries import FRAMEWORKS, is_harmless
from mgpu.readers.training_script.scopes import Function, Walk

Constants: TypeAlias = Mapping[str, object]
Place: TypeAlias = tuple[str, int]  # file and line of a function
_UNKNOWN = object()


def constant_parameters(walk: Walk) -> dict[Place, Constants]:
    """Return the parameters that a condition tests and that have the same constant in every call, by function."""
    if walk.cut:
        return {}
    unclear = _unresolved_calls(walk)
    found: dict[Place, Constants] = {}
    for function in walk.functions:
        if function.owner or function.decorated or not function.calls or function.node.name in unclear:
            continue
        values = {name: _value_in_all_calls(function, name) for name in _tested(function.node)}
        if known := {name: value for name, value in values.items() if value is not _UNKNOWN}:
            found[function.source.file, function.node.lineno] = known
    return found


def _unresolved_calls(walk: Walk) -> set[str]:
    """Return the last names of calls that may be calls of a function of the project, although no function was found."""
    imported = {*walk.imports, *walk.modules, *(name.rpartition(".")[0] for name in walk.imports)}
    names = {what["name"] for _, what in walk.calls if what["name"] not in walk.by_name}
    outside = {name for name in names if is_harmless(name) or name.partition(".")[0] in FRAMEWORKS}
    return {name.rpartition(".")[2] for name in names - outside if name.rpartition(".")[0] in {"", *imported}}


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]


def _tested(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the parameters that a condition compares with constants, and that nothing in the function changes."""
    names = {name for one in ast.walk(node) if isinstance(one, ast.If) for name in _compared(one.test)}
    names &= set(_parameters(node))
    if not names:
        return names
    inner = [one for one in ast.walk(node) if isinstance(one, ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef)]
    shadowed = {argument.arg for one in inner if one is not node for argument in one.args.args}
    changed = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    return names - shadowed - changed


def _compared(test: ast.expr) -> Iterator[str]:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _compared(test.operand)
    elif isinstance(test, ast.BoolOp):
        for part in test.values:
            yield from _compared(part)
    elif isinstance(test, ast.Compare):
        yield from _compared(test.left)
    elif isinstance(test, ast.Name):
        yield test.id


def _value_in_all_calls(function: Function, name: str) -> object:
    values = [_given(function.node, name, node, flags) for node, flags in function.calls]
    first = values[0]
    return first if all(type(one) is type(first) and one == first for one in values) else _UNKNOWN


def _given(
    function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, node: ast.expr, flags: Mapping[str, bool]
) -> object:
    """Return the constant that a call gives to a parameter."""
    if not isinstance(node, ast.Call) or any(keyword.arg is None for keyword in node.keywords):
        return _UNKNOWN
    positional = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    if any(isinstance(one, ast.Starred) for one in node.args):
        return _UNKNOWN
    given = dict(zip(positional, node.args, strict=False)) | {one.arg: one.value for one in node.keywords if one.arg}
    value = given.get(name) or _default(function, name)
    return flags.get(value.id, _UNKNOWN) if isinstance(value, ast.Name) else _constant(value)


def _default(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> ast.expr | None:
    arguments = function.args
    positional = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    defaults = dict(zip(reversed(positional), reversed(arguments.defaults), strict=False))
    named = {one.arg: value for one, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value}
    return (defaults | named).get(name)


def _constant(node: ast.expr | None) -> object:
    if not isinstance(node, ast.Constant | ast.UnaryOp):
        return _UNKNOWN
    try:
        return ast.literal_eval(node)
    except ValueError:
        return _UNKNOWN


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
        values = [_constant(one) for one in right.elts]
        return None if _UNKNOWN in values else (left in values) is isinstance(operator, ast.In)
    value = _constant(right)
    if value is _UNKNOWN or not isinstance(operator, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
        return None
    same = type(left) is type(value) and left == value
    return same is isinstance(operator, ast.Eq | ast.Is)
