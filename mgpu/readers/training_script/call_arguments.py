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
