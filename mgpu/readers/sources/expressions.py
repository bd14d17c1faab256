"""Which names does an expression read, and what does a statement evaluate?"""

from __future__ import annotations

import ast

from mgpu.readers.log.line import shown_text
from mgpu.readers.sources.shown_code import shown_code

_SHOWN = 60  # characters of a value
_KEYS = 100  # of a dict
_EVALUATED = ("test", "iter", "value", "exc", "msg", "items", "targets", "subject")


def evaluated(statement: ast.stmt) -> list[ast.expr]:
    """Return the expressions that a statement itself evaluates, without those of the statements in it."""
    found: list[ast.expr] = []
    for name in _EVALUATED:
        part = getattr(statement, name, None)
        for one in part if isinstance(part, list) else [part]:
            whole = one.context_expr if isinstance(one, ast.withitem) else one
            if isinstance(whole, ast.expr):
                found.append(whole)
    return found


def names(expression: ast.expr) -> list[str]:
    """Return the names that an expression reads, with their attributes: "x", "args.data", "self.fc".

    Of a method that is called, it is the object: "batch" of `batch.get("ids")`; of the object's own, the method.
    """
    found: list[str] = []

    def visit(node: ast.AST) -> None:
        whole = dotted(node)
        if isinstance(node, ast.Call) and (called := dotted(node.func)):
            of = called.rpartition(".")[0]
            found.append(called if of in ("", "self") else of)
            for one in (*node.args, *node.keywords):
                visit(one)
        elif whole and isinstance(getattr(node, "ctx", None), ast.Load):
            found.append(whole)
        elif not whole:
            for one in ast.iter_child_nodes(node):
                visit(one)

    visit(expression)
    own = _bound_inside(expression)
    return [name for name in dict.fromkeys(found) if name.partition(".")[0] not in own]


def _bound_inside(expression: ast.expr) -> set[str]:
    """Return the names of comprehensions and lambdas in an expression, which exist only there."""
    own: set[str] = set()
    for node in ast.walk(expression):
        if isinstance(node, ast.comprehension):
            own |= {one.id for one in ast.walk(node.target) if isinstance(one, ast.Name)}
        elif isinstance(node, ast.Lambda):
            own |= {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
    return own


def dotted(node: ast.AST) -> str:
    """Return "a.b.c" for a name with attributes; "" for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (above := dotted(node.value)):
        return f"{above}.{node.attr}"
    return ""


def last_name(node: ast.AST) -> str:
    """Return the last part of a dotted name; "" for any other expression."""
    return dotted(node).rpartition(".")[2]


def keys(value: ast.AST | None) -> tuple[str, ...]:
    """Return the keys of a dict that is written out; nothing for another value, or for a key that is computed."""
    if not isinstance(value, ast.Dict) or len(value.keys) > _KEYS:
        return ()
    written = [one for one in value.keys if isinstance(one, ast.Constant)]
    return tuple(shown_text(str(one.value)) for one in written) if len(written) == len(value.keys) else ()


def shown(value: ast.expr) -> str:
    """Return a value as one line of source, clipped, with secrets masked."""
    text = shown_code(" ".join(ast.unparse(value).split()))
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 4]} ..."
