"""Which values does a call bind to the parameters of the script's own function?"""

from __future__ import annotations

import ast

from mgpu.readers.training_script.names import Frame
from mgpu.readers.training_script.rank_conditions import NOTHING
from mgpu.readers.training_script.scopes import Function, Scope


def bind_arguments(function: Function, node: ast.Call, frame: Frame) -> Scope:
    """Return what a call binds to a function's parameters: values, and conditions on the rank."""
    names = [argument.arg for argument in (*function.node.args.posonlyargs, *function.node.args.args)]
    if function.owner and names:
        names = names[1:]
    pairs: list[tuple[str, ast.expr]] = []
    for name, value in zip(names, node.args, strict=False):
        if isinstance(value, ast.Starred):
            break
        pairs.append((name, value))
    pairs += [(keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg]
    values = {name: found for name, value in pairs if (found := frame.resolve(value)) is not None}
    splits = {}
    for name, value in pairs:
        test = frame.split(value) if isinstance(value, ast.Compare | ast.BoolOp) else frame.known_split(value)
        if isinstance(value, ast.IfExp) and isinstance(value.orelse, ast.Constant) and not value.orelse.value:
            test = frame.split(value.test)  # `project if is_main else None`
        if test is not None and test != NOTHING:
            splits[name] = test
    unique = {name for name, value in pairs if frame.is_unique(value)}
    return Scope(values, function.scope, splits, unique)


def parameter(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> tuple[int | None, ast.expr | None] | None:
    """Return the position of a parameter (None: only by name) and its default; None if there is no such parameter."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    defaults += arguments.defaults
    for at, (one, default) in enumerate(zip(positional, defaults, strict=True)):
        if one.arg == name:
            return at, default
    for one, given in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if one.arg == name:
            return None, given
    return None


def passed_to(call: ast.Call, name: str, position: int | None) -> ast.expr | None:
    """Return what a call passes for a parameter, by name or position; None if it does not, or unpacks a list."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if position is None or any(isinstance(one, ast.Starred) for one in call.args):
        return None
    return call.args[position] if 0 <= position < len(call.args) else None


def unpacks(call: ast.Call) -> bool:
    """Whether a call unpacks a list or a dict, so that it is not known what it passes."""
    return any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords)
