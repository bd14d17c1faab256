"""What gives a name its value: an assignment, a parameter, a loop, a `with`, an import?"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.ExceptHandler, ast.match_case)


class Binding(NamedTuple):
    """One statement that gives a name a value."""

    statement: ast.stmt
    value: ast.expr | None  # None: not an expression of its own, as the items of a loop or one of several targets
    branches: tuple[ast.AST, ...] = ()  # in which it is, outermost first


def statement_at(tree: ast.AST, line: int) -> tuple[ast.stmt | None, tuple[ast.AST, ...]]:
    """Return the smallest statement that a line belongs to, and what it is in, outermost first."""
    inside: list[ast.AST] = []
    node: ast.AST = tree
    found: ast.stmt | None = None
    while True:
        below = [
            one
            for one in ast.iter_child_nodes(node)
            if isinstance(one, (ast.stmt, ast.ExceptHandler, ast.match_case))
            and _first_line(one) <= line <= _last_line(one)
        ]
        if not below:
            return found, tuple(inside)
        node = below[0]
        if isinstance(node, ast.stmt):
            if found is not None:
                inside.append(found)
            found = node
        elif found is not None:
            inside += [found, node]
            found = None


def _first_line(node: ast.AST) -> int:
    if isinstance(node, ast.match_case):
        return _first_line(node.pattern)
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    first: int = getattr(node, "lineno", 0)
    return min([first, *(one.lineno for one in decorators)])


def _last_line(node: ast.AST) -> int:
    if isinstance(node, ast.match_case):
        return _last_line(node.body[-1])
    last: int | None = getattr(node, "end_lineno", None)
    return last or _first_line(node)


def of_name(scope: ast.AST, name: str) -> list[Binding]:
    """Return all statements of a function, class or module that bind a name, in their order."""
    return [one for part, around in _statements(scope, ()) for one in _bound(part, name, around)]


def of_attribute(scope: ast.AST, root: str, attribute: str) -> list[Binding]:
    """Return all statements of a function that set an attribute of one of its names."""
    return [
        Binding(part, _value_for(part, target), around)
        for part, around in _statements(scope, ())
        for target in _targets(part)
        if isinstance(target, ast.Attribute)
        and target.attr == attribute
        and isinstance(target.value, ast.Name)
        and target.value.id == root
    ]


def _statements(node: ast.AST, around: tuple[ast.AST, ...]) -> Iterator[tuple[ast.stmt, tuple[ast.AST, ...]]]:
    """All statements of a scope, without those of the scopes in it."""
    for one in ast.iter_child_nodes(node):
        inner = (*around, one) if isinstance(one, _BRANCHES) else around
        if isinstance(one, ast.stmt):
            yield one, around
        if isinstance(one, (ast.stmt, ast.ExceptHandler, ast.match_case)) and not isinstance(one, _SCOPES):
            yield from _statements(one, inner)


def _targets(part: ast.stmt) -> list[ast.expr]:
    """The single targets of an assignment, without tuples."""
    if isinstance(part, ast.Assign):
        return [one for target in part.targets for one in _unpacked(target)]
    if isinstance(part, (ast.AnnAssign, ast.AugAssign)):
        return [part.target] if part.value is not None else []
    return []


def _unpacked(target: ast.expr) -> list[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        return [one for item in target.elts for one in _unpacked(item)]
    return [target.value] if isinstance(target, ast.Starred) else [target]


def _value_for(part: ast.stmt, target: ast.expr) -> ast.expr | None:
    """The expression that a target gets; the whole call if several targets unpack it."""
    if isinstance(part, ast.AugAssign):
        return None
    value = getattr(part, "value", None)
    if not isinstance(value, ast.expr):
        return None
    for whole in getattr(part, "targets", []):
        if isinstance(whole, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
            pairs = zip(whole.elts, value.elts, strict=False)
            return next((given for one, given in pairs if one is target), None)
    return value


def _bound(part: ast.stmt, name: str, around: tuple[ast.AST, ...]) -> Iterator[Binding]:
    for target in _targets(part):
        if isinstance(target, ast.Name) and target.id == name:
            yield Binding(part, _value_for(part, target), around)
    if isinstance(part, (ast.For, ast.AsyncFor)) and _names(part.target, name):
        yield Binding(part, None, around)
    if isinstance(part, (ast.With, ast.AsyncWith)):
        for item in part.items:
            if item.optional_vars is not None and _names(item.optional_vars, name):
                yield Binding(part, item.context_expr, around)
    if isinstance(part, (*FUNCTIONS, ast.ClassDef)) and part.name == name:
        yield Binding(part, None, around)
    if isinstance(part, (ast.Expr, ast.If, ast.While)):
        tested = part.value if isinstance(part, ast.Expr) else part.test
        for inner in ast.walk(tested):
            if isinstance(inner, ast.NamedExpr) and inner.target.id == name:
                yield Binding(part, inner.value, around)


def _names(target: ast.expr, name: str) -> bool:
    return any(isinstance(one, ast.Name) and one.id == name for one in _unpacked(target))


def can_end_without_value(function: Function) -> bool:
    """Whether a function that returns values can also end without a return: its value is then None."""
    returns = [one for one, _ in _statements(function, ()) if isinstance(one, ast.Return)]
    generates = any(isinstance(one, (ast.Yield, ast.YieldFrom)) for one in ast.walk(function))
    if generates or not any(one.value is not None and not _is_none(one.value) for one in returns):
        return False
    return any(one.value is None or _is_none(one.value) for one in returns) or not _leaves(function.body)


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _leaves(body: list[ast.stmt]) -> bool:
    """Whether statements always end with a return or an exception."""
    last = body[-1] if body else None
    if isinstance(last, (ast.Return, ast.Raise)):
        return True
    if isinstance(last, ast.If):
        return _leaves(last.body) and _leaves(last.orelse)
    if isinstance(last, (ast.With, ast.AsyncWith)):
        return _leaves(last.body)
    if isinstance(last, (ast.For, ast.AsyncFor)):  # its `else` runs unless it breaks
        return _leaves(last.orelse)
    if isinstance(last, ast.While):
        return (isinstance(last.test, ast.Constant) and bool(last.test.value)) or _leaves(last.orelse)
    if isinstance(last, ast.Try):
        handled = all(_leaves(one.body) for one in last.handlers)
        return _leaves(last.finalbody) or ((_leaves(last.body) or _leaves(last.orelse)) and handled)
    if isinstance(last, ast.Match):
        return all(_leaves(case.body) for case in last.cases)
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        name = ast.unparse(last.value.func).rpartition(".")[2]
        return name in ("exit", "quit", "_exit", "error", "fail", "abort", "skip")
    return isinstance(last, ast.Assert) and isinstance(last.test, ast.Constant) and not last.test.value


def is_otherwise_bound(function: Function, name: str) -> bool:
    """Whether a function gets a name in a way whose value is not looked up: **kwargs, an import, `as error`, global."""
    arguments = function.args
    return name in (getattr(arguments.vararg, "arg", ""), getattr(arguments.kwarg, "arg", "")) or any(
        name in _otherwise(node) for node in ast.walk(function)
    )


def _otherwise(node: ast.AST) -> list[str | None]:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [one.asname or one.name.partition(".")[0] for one in node.names]
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return [*node.names]
    if isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        return [node.name]
    return [one.id for one in node.targets if isinstance(one, ast.Name)] if isinstance(node, ast.Delete) else []
