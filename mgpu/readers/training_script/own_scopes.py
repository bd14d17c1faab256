"""Which variables do comprehensions and lambdas have of their own, and which of their parts see them?"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TypeAlias

from mgpu.readers.training_script.scopes import Scope

OwnScope: TypeAlias = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp | ast.Lambda
OWN_SCOPES = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)


def inner_scope(node: OwnScope, above: Scope, is_unique: Callable[[ast.expr], bool]) -> Scope:
    """Return the scope of the parts that see the variables; `is_unique`: whether a value depends on the rank."""
    scope = Scope({}, above)
    for name, source in _own_variables(node):
        scope.names[name] = name
        scope.looped.add(name)
        scope.unknown.add(name)
        if source is not None and is_unique(source):
            scope.unique.add(name)
    return scope


def _own_variables(node: OwnScope) -> list[tuple[str, ast.expr | None]]:
    """Return the variables, each with what it goes through; None for a parameter."""
    if isinstance(node, ast.Lambda):
        return [(one.arg, None) for one in ast.walk(node.args) if isinstance(one, ast.arg)]
    names = [(one, loop.iter) for loop in node.generators for one in ast.walk(loop.target)]
    return [(one.id, source) for one, source in names if isinstance(one, ast.Name)]


def parts_of(node: OwnScope) -> tuple[list[ast.expr], list[ast.expr], list[ast.expr]]:
    """Return the parts that see the variables, those that do not, and the conditions on each item."""
    if isinstance(node, ast.Lambda):
        return [node.body], [*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)], []
    tests = [test for loop in node.generators for test in loop.ifs]
    values = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    return [*values, *tests, *(loop.iter for loop in node.generators[1:])], [node.generators[0].iter], tests
