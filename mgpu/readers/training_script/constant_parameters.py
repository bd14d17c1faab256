"""Which parameters of the script's functions have one constant value in every run, and which conditions do they decide?

`train(data, method="sharded")` is the only call of `train`, so its `if method == "plain":` is never taken.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping

from mgpu.readers.training_script.decided_tests import UNKNOWN, Constants, Place, constant_of
from mgpu.readers.training_script.known_libraries import FRAMEWORKS, is_harmless
from mgpu.readers.training_script.reach import TOP_LEVEL, reached_functions
from mgpu.readers.training_script.scopes import Function
from mgpu.readers.training_script.walk import Walk


def constant_parameters(walk: Walk) -> dict[Place, Constants]:
    """Return the parameters that a condition tests and that have the same constant in every call, by function."""
    if walk.cut:
        return {}
    unclear = _unresolved_calls(walk)
    reached = {TOP_LEVEL, *reached_functions(walk)}
    found: dict[Place, Constants] = {}
    for function in walk.functions:
        if function.owner or function.decorated or not function.calls or function.node.name in unclear:
            continue
        values = {name: _value_in_all_calls(function, name, reached) for name in _tested(function.node)}
        if known := {name: value for name, value in values.items() if value is not UNKNOWN}:
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


def _value_in_all_calls(function: Function, name: str, reached: Collection[int]) -> object:
    sites = zip(function.calls, function.sites, strict=True)
    values = [_given(function.node, name, node, flags) for (node, flags), spot in sites if spot[3] in reached]
    if not values:
        return UNKNOWN
    first = values[0]
    return first if all(type(one) is type(first) and one == first for one in values) else UNKNOWN


def _given(
    function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, node: ast.expr, flags: Mapping[str, bool]
) -> object:
    """Return the constant that a call gives to a parameter."""
    if not isinstance(node, ast.Call):
        return UNKNOWN
    unpacks = any(isinstance(one, ast.Starred) for one in node.args)
    positional = [one.arg for one in (*function.args.posonlyargs, *function.args.args)] * (not unpacks)
    given = dict(zip(positional, node.args, strict=False)) | {one.arg: one.value for one in node.keywords if one.arg}
    if name not in given and (unpacks or any(keyword.arg is None for keyword in node.keywords)):
        return UNKNOWN
    value = given.get(name) or _default(function, name)
    return flags.get(value.id, UNKNOWN) if isinstance(value, ast.Name) else constant_of(value)


def _default(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> ast.expr | None:
    arguments = function.args
    positional = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    defaults = dict(zip(reversed(positional), reversed(arguments.defaults), strict=False))
    named = {one.arg: value for one, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value}
    return (defaults | named).get(name)
