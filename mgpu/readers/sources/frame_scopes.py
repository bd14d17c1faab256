"""From where in the source are the names of a line looked up: its function, its class, its file?"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from mgpu.readers.sources import bindings
from mgpu.readers.sources.bindings import FUNCTIONS, Binding, Function
from mgpu.readers.sources.expressions import evaluated, last_name
from mgpu.readers.sources.source_files import Module, Sources
from mgpu.snapshot import TracedCall


@dataclass(frozen=True)
class Scope:
    """A statement, with what it is in. Its names have the values that they got above it."""

    module: Module
    line: int  # of the statement that runs; it can be any line of the statement
    statement: ast.stmt
    around: tuple[ast.AST, ...]  # outermost first
    frame: int | None = None  # which frame of the traceback it is; None: not one of them

    @property
    def function(self) -> Function | None:
        """The innermost function that it is in."""
        found = [node for node in self.around if isinstance(node, FUNCTIONS)]
        return found[-1] if found else None

    @property
    def owner(self) -> ast.ClassDef | None:
        """The class whose method that function is."""
        at = max((at for at, node in enumerate(self.around) if isinstance(node, FUNCTIONS)), default=0)
        above = self.around[at - 1] if at else None
        return above if isinstance(above, ast.ClassDef) else None

    @property
    def own_object(self) -> str:
        """The name that the method has for its object: "self"; "" outside of a method."""
        function = self.function
        if function is None or self.owner is None or not function.args.args:
            return ""
        static = any(last_name(one) == "staticmethod" for one in function.decorator_list)
        return "" if static else function.args.args[0].arg

    @property
    def key(self) -> tuple[str, int]:
        """Equal for two scopes in which a name means the same."""
        function = self.function
        return (self.module.path, function.lineno if function else 0)

    def nearest(self, found: Sequence[Binding]) -> Binding | None:
        """Return the last binding above the statement; None if all are below it."""
        above = [one for one in found if one.statement.lineno < self.line and one.statement is not self.statement]
        return above[-1] if above else None


def scope_at(module: Module, line: int, frame: int | None = None) -> Scope | None:
    """Return the scope of the statement at a line; None if there is none."""
    statement, around = bindings.statement_at(module.tree, line)
    return None if statement is None else Scope(module, line, statement, around, frame)


def scope_of(call: TracedCall, at: int, sources: Sources) -> Scope | None:
    """Return the scope of a frame of a traceback; None if its file is not there. Raises Changed."""
    number = call.place.partition(" in ")[0].rpartition(":")[2]
    if not call.file or not number.isdigit():
        return None
    module = sources.of_frame(call.file, int(number), call.code or "")
    return scope_at(module, int(number), at) if module else None


def call_of(caller: Scope, callee: Scope) -> ast.Call | None:
    """Return the call in the caller's statement that called the callee's function; None if it is not known which."""
    if callee.function is None:
        return None
    name = callee.function.name
    calls = [node for one in evaluated(caller.statement) for node in ast.walk(one) if isinstance(node, ast.Call)]
    named = [node for node in calls if last_name(node.func) == name]
    if not named and name == "__init__" and callee.owner:
        named = [node for node in calls if last_name(node.func) in (callee.owner.name, "cls")]
    elif not named and name in ("forward", "__call__"):
        named = [node for node in calls if node.args or node.keywords]
    return named[0] if len(named) == 1 else None
