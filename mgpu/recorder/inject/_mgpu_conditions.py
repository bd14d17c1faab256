"""Why did the code raise its exception: which conditions led to the `raise`?

Reads the source only. Runs with any Python from 3.8 on.
"""

from __future__ import annotations

import ast
import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_LARGEST = 1 << 21  # bytes of a file: parsed in about 0.5 s
_MOST, _LONGEST = 4, 200
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LEAVE = (ast.Return, ast.Continue, ast.Break)
# Of an order there is none: for NaN, neither `loss > 0` nor `loss <= 0` holds.
_OPPOSITES: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}


def of_raise(source: str, line: int, kind: str) -> str:
    """Return the condition that held where a line raises an exception: "size != 1 and self.pad is None".

    `kind`: the name of the exception's class. "": the line does not raise such an exception itself, or nothing in its
    function decides whether it is reached.
    """
    return condition(ast.parse(source), source, line, kind) if len(source) <= _LARGEST else ""


def condition(tree: ast.AST, source: str, line: int, kind: str) -> str:
    """Return the same for a file that is parsed."""
    path, text = _path(tree, line), _Text(source)
    last = path[-1]
    if _raised(last) != kind:
        return ""
    if isinstance(last, ast.Assert) and not isinstance(last.test, ast.Constant):
        return _joined([text.opposite(last.test)])
    start = max(at for at, node in enumerate(path) if at == 0 or isinstance(node, (*_SCOPES, ast.ExceptHandler)))
    steps = [(path[at], path[at + 1]) for at in range(start, len(path) - 1)]
    around = [one for outer, inner in steps for one in _branches(outer, inner, text)]
    return _joined(around or [one for outer, inner in steps for one in _not_left(outer, inner, text)])


def _path(tree: ast.AST, line: int) -> list[ast.AST]:
    """Return the nodes that a line is in, down to its statement."""
    path = [tree]
    while True:
        below = (node for node in _parts(path[-1]) if node.lineno <= line <= (node.end_lineno or 0))
        node = next(below, None)
        if node is None:
            return path
        path.append(node)


def _parts(node: ast.AST) -> Iterator[Any]:
    for body in _bodies(node):
        yield from body
    yield from getattr(node, "handlers", ())
    for case in getattr(node, "cases", ()):
        yield from case.body


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        body = getattr(node, name, None)
        if isinstance(body, list):
            yield body


def _raised(statement: ast.AST) -> str:
    """Return the class of the exception that a statement makes; "" also if it passes one on."""
    if isinstance(statement, ast.Assert):
        return "AssertionError"
    made = statement.exc if isinstance(statement, ast.Raise) else None
    made = made.func if isinstance(made, ast.Call) else made
    return made.attr if isinstance(made, ast.Attribute) else getattr(made, "id", "")


def _branches(outer: ast.AST, inner: ast.AST, text: _Text) -> Iterator[str]:
    """Yield what must hold in a statement for one inside it to run."""
    if isinstance(outer, ast.If):
        yield text.opposite(outer.test) if inner in outer.orelse else text.of(outer.test)
    elif isinstance(outer, ast.While) and inner in outer.body and not isinstance(outer.test, ast.Constant):
        yield text.of(outer.test)
    for case in getattr(outer, "cases", ()):
        if inner in case.body:
            yield text.of_case(outer, case)


def _not_left(outer: ast.AST, inner: ast.AST, text: _Text) -> Iterator[str]:
    """Yield what must hold because no earlier statement of the block left it."""
    body = next((body for body in _bodies(outer) if inner in body), [])
    for earlier in itertools.takewhile(lambda one: one is not inner, body):
        if isinstance(earlier, ast.If) and not earlier.orelse and isinstance(earlier.body[-1], _LEAVE):
            yield text.opposite(earlier.test)


class _Text:
    """Expressions as their file has them, in one line."""

    def __init__(self, source: str) -> None:
        self.source = source

    def of(self, node: ast.AST) -> str:
        segment = ast.get_source_segment(self.source, node) or ""
        lines = [line if "'" in line or '"' in line else line.partition(" #")[0] for line in segment.split("\n")]
        return " ".join(" ".join(lines).split()).replace("( ", "(").replace(" )", ")")

    def opposite(self, node: ast.expr) -> str:
        """Return the condition that holds if this one does not."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.of(node.operand)
        one = isinstance(node, ast.Compare) and len(node.ops) == 1
        if isinstance(node, ast.Compare) and one and type(node.ops[0]) in _OPPOSITES:
            opposite = _OPPOSITES[type(node.ops[0])]
            return f"{self.of(node.left)} {opposite} {self.of(node.comparators[0])}"
        simple = one or isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call))
        return f"not {self.of(node)}" if simple else f"not ({self.of(node)})"

    def of_case(self, match: Any, case: Any) -> str:
        subject = self.of(match.subject)
        if case.guard is None and getattr(case.pattern, "pattern", None) is None and hasattr(case.pattern, "name"):
            return f"no case matches {subject}"
        guard = f" if {self.of(case.guard)}" if case.guard is not None else ""
        return f"{subject} matches {self.of(case.pattern)}{guard}"


def _joined(found: list[str]) -> str:
    """Return conditions as one."""
    last = [f"({one})" if " or " in one and len(found) > 1 else one for one in found[-_MOST:]]
    text = " and ".join(last)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
