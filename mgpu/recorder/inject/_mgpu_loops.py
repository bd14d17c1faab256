"""Which loops is a line in, and what do they go over? Read from the source, without running it.

Runs with any Python from 3.8 on.
"""

from __future__ import annotations

import ast
import contextlib
import linecache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from types import CodeType, TracebackType

_LARGEST = 1 << 21  # characters of a file
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


class Loop(NamedTuple):
    """One `for` of a function."""

    line: int
    targets: tuple[str, ...]  # the names that each item is given
    names: tuple[str, ...]  # in what it goes over
    over: str  # this, as the source has it
    node: ast.For


def around(trace: TracebackType) -> list[Loop]:
    """Return the loops that a traceback's line is in, the innermost first."""
    line = trace.tb_lineno
    loops = of_function(trace.tb_frame.f_code)
    return [one for one in reversed(loops) if one.node.body[0].lineno <= line <= (one.node.body[-1].end_lineno or 0)]


def of_function(code: CodeType) -> list[Loop]:
    """Return the loops of a function, or of a module's own code, in the order of their lines."""
    source = "".join(linecache.getlines(code.co_filename))
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        tree = ast.parse(source) if len(source) <= _LARGEST else ast.Module([], [])
        return sorted(
            (_loop(node, source) for node in _nodes(tree, code) if isinstance(node, ast.For)),
            key=lambda loop: loop.line,
        )
    return []


def statements(code: CodeType) -> list[ast.AST]:
    """Return all nodes of a function's own code."""
    source = "".join(linecache.getlines(code.co_filename))
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        return _nodes(ast.parse(source), code) if len(source) <= _LARGEST else []
    return []


def _nodes(tree: ast.Module, code: CodeType) -> list[ast.AST]:
    scope: ast.AST | None = tree
    if code.co_name != "<module>":
        scope = next((one for one in ast.walk(tree) if _is_of(one, code)), None)
    found: list[ast.AST] = []
    left = list(ast.iter_child_nodes(scope)) if scope is not None else []
    while left:
        node = left.pop()
        found.append(node)
        if not isinstance(node, _SCOPES):
            left.extend(ast.iter_child_nodes(node))
    return found


def _is_of(node: ast.AST, code: CodeType) -> bool:
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.name != code.co_name:
        return False
    # With decorators, co_firstlineno is the first of them.
    return code.co_firstlineno in (node.lineno, *(one.lineno for one in node.decorator_list))


def _loop(node: ast.For, source: str) -> Loop:
    targets = tuple(one.id for one in ast.walk(node.target) if isinstance(one, ast.Name))
    names = tuple(one.id for one in ast.walk(node.iter) if isinstance(one, ast.Name))
    return Loop(node.lineno, targets, names, ast.get_source_segment(source, node.iter) or "", node)
