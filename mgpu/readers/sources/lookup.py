"""Follow the names of one failed line: to an assignment, a parameter, the caller's argument, an option, a layer.

It is what a person would look up before reading on.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import TypeAlias

from mgpu.readers.log.line import shown_text
from mgpu.readers.sources import bindings, classes, expressions, message_subjects, option_definitions
from mgpu.readers.sources.bindings import FUNCTIONS, Binding
from mgpu.readers.sources.frame_scopes import Scope, call_of, scope_at
from mgpu.readers.sources.shown_code import shown_code
from mgpu.readers.sources.source_files import Module, Sources
from mgpu.readers.training_script.call_arguments import parameter, passed_to, unpacks
from mgpu.recorder.inject._mgpu_conditions import condition
from mgpu.snapshot import Definition, TracedCall, UncaughtException

_MOST = 8  # definitions of one exception
_DEEPEST = 4  # steps from the failed line
# Between a call of the user's own and the function that it calls.
_BETWEEN = ("torch/nn/modules/module.py", "torch/_dynamo/", "torch/utils/_contextlib.py", "torch/nn/parallel/")

Next: TypeAlias = "list[tuple[Scope, str]]"


class Lookup:
    """The definitions of one exception. `frames`: of its calls; None where the source is not known."""

    def __init__(self, sources: Sources, frames: Sequence[Scope | None], calls: Sequence[TracedCall]) -> None:
        self.sources, self.frames, self.calls = sources, frames, calls
        self.modules = list(dict.fromkeys(one.module for one in reversed(frames) if one))
        self.found: list[Definition] = []
        self._seen: set[tuple[str, int, str]] = set()
        self._depth = 0

    def add_subjects(self, one: UncaughtException) -> None:
        """Add the definitions that the message of the exception is about."""
        for it in message_subjects.find(one, self._with_imported(self.modules), self.sources):
            inside = f" in {it.inside.name}" if it.inside is not None and it.inside is not it.node else ""
            self._add(it.module, it.node, it.name, it.kind, inside, flag=it.flag, code=it.code)

    def follow_line(self, scope: Scope, one: UncaughtException) -> None:
        """Follow the names of a frame's line: what Python underlines, and what the message is about, first."""
        parts = expressions.evaluated(scope.statement)
        if isinstance(scope.statement, ast.Raise):  # the question is why the line was reached
            if code := raised_if(scope.module, scope.line, one):
                self._add_in(scope, scope.statement, "", "condition", code=code)
            above = [node for node in scope.around if isinstance(node, (ast.If, ast.For, ast.While, *FUNCTIONS))]
            if above and isinstance(above[-1], (ast.If, ast.While)):
                parts = [above[-1].test]
        names = [name for part in parts for name in expressions.names(part)]
        marked = "".join(self.calls[scope.frame or 0].marked)
        names = [name for name in names if name.rpartition(".")[2] in marked] or names
        about = [name for part in message_subjects.objects(one, parts) for name in expressions.names(part)]
        queue = [(scope, name, 0) for name in dict.fromkeys([*(name for name in about if name in names), *names])]
        while queue and len(self.found) < _MOST:
            where, name, self._depth = queue.pop(0)
            if self._depth <= _DEEPEST:
                queue += [(there, name, self._depth + 1) for there, name in self._follow(where, name)]

    def _follow(self, scope: Scope, name: str) -> Next:
        """Add the definition of a name. Returns the names that it depends on."""
        if (*scope.key, name) in self._seen:
            return []
        self._seen.add((*scope.key, name))
        root, _, rest = name.partition(".")
        if rest and root == scope.own_object:
            return self._follow_attribute(scope, rest)
        functions = [node for node in scope.around if isinstance(node, FUNCTIONS)]
        if any(bindings.is_otherwise_bound(node, root) for node in functions):
            return []
        if any(parameter(node, root) for node in functions[:-1]):  # of a function around this one
            return []
        if (
            rest
            and "." not in rest
            and option_definitions.holds_settings(root)
            and self._add_option(scope.module, name)
        ):
            return []
        function = scope.function
        if rest and function and (found := bindings.of_attribute(function, root, rest)):
            return self._add_binding(scope, name, scope.nearest(found) or found[0])
        if function and parameter(function, root):
            nearest = scope.nearest(bindings.of_name(function, root))
            return self._add_binding(scope, root, nearest) if nearest else self._follow_parameter(scope, name)
        for node in reversed(scope.around):
            if isinstance(node, FUNCTIONS) and (found := bindings.of_name(node, root)):
                return self._add_binding(scope, root, scope.nearest(found) or found[0])
        return self._follow_global(scope, root)

    def _follow_parameter(self, scope: Scope, name: str) -> Next:
        """Follow what the caller passes; without a caller, or if it passes nothing, add the default."""
        function = scope.function
        assert function is not None
        root, dot, rest = name.partition(".")
        position, default = parameter(function, root) or (None, None)
        if position is not None and scope.own_object:
            position -= 1
        there, call = self._call(scope)
        if there is not None and call is not None:
            value = passed_to(call, root, position)
            if value is not None:
                self._add_in(there, call, root, "passed", value=expressions.shown(value))
                whole = f"{dot}{rest}" if rest and expressions.dotted(value) else ""
                return [(there, f"{one}{whole}") for one in expressions.names(value)]
        if default is not None and (call is None or not unpacks(call)):
            self._add(scope.module, function, root, "parameter", value=expressions.shown(default))
        return []

    def _call(self, scope: Scope) -> tuple[Scope | None, ast.Call | None]:
        """Return the call of the traceback that called a scope's function, and where it is."""
        if scope.frame is None:
            return None, None
        above = scope.frame - 1
        while above > 0 and self.calls[above].place.startswith(_BETWEEN):
            above -= 1
        caller = self.frames[above] if above >= 0 else None
        return (caller, call_of(caller, scope)) if caller else (None, None)

    def _follow_attribute(self, scope: Scope, rest: str) -> Next:
        """Follow self.x: where the class, or one that it derives from, sets it."""
        assert scope.owner is not None
        attribute, _, setting = rest.partition(".")
        if setting and option_definitions.holds_settings(attribute) and self._add_option(scope.module, f"self.{rest}"):
            return []
        found = [
            (module, method, one)
            for module, owner in classes.with_bases(self.sources, scope.module, scope.owner)
            for method in classes.methods(owner)
            for one in bindings.of_attribute(method, classes.own_object(method), attribute)
        ]
        if len(found) == 1 and (there := scope_at(found[0][0], found[0][2].statement.lineno)):
            one = found[0][2]
            self._add_in(there, one.statement, f"self.{attribute}", "set")
            return [(there, name) for name in expressions.names(one.value)] if one.value is not None else []
        return []

    def _follow_global(self, scope: Scope, name: str) -> Next:
        if found := bindings.of_name(scope.module.tree, name):
            one = (scope.nearest(found) if scope.function is None else None) or found[-1]
            return self._add_binding(scope, name, one)
        away = self.sources.imported(scope.module, name)
        if away and away[1] and (found := bindings.of_name(away[0].tree, away[1])):
            last = found[-1].statement
            self._add(away[0], last, name, _kind(last))
        return []

    def _add_binding(self, scope: Scope, name: str, one: Binding) -> Next:
        """Add what binds a name. Returns the names in its value."""
        there = scope_at(scope.module, one.statement.lineno)
        if one.statement is scope.statement or there is None:
            return []
        self._add_in(there, one.statement, name, _kind(one.statement), keys=self._keys(scope, name, one))
        source = one.value if one.value is not None else getattr(one.statement, "iter", None)
        defines = isinstance(one.statement, (*FUNCTIONS, ast.ClassDef))
        return [] if source is None or defines else [(scope, inner) for inner in expressions.names(source)]

    @staticmethod
    def _keys(scope: Scope, name: str, one: Binding) -> tuple[str, ...]:
        """Return the keys of a dict that is written out and that nothing in its file changes; else nothing."""
        text, word = "\n".join(scope.module.lines), rf"\b{re.escape(name)}"
        item = rf"{word}(?:\[[^\]\n]*\])+\s*[-+*/|]?=(?!=)"
        call = rf"{word}(?:\[[^\]\n]*\])*\.(?:update|setdefault|pop|clear)\b|{word}\s*\|="
        plain = isinstance(one.statement, (ast.Assign, ast.AnnAssign)) and not one.branches
        again = len(re.findall(rf"(?m)^\s*{re.escape(name)}\s*(?::[^=\n]*)?=(?!=)", text)) > 1
        changed = re.search(f"{item}|{call}", text)
        return () if not plain or again or changed else expressions.keys(one.value)

    def _add_option(self, module: Module, name: str) -> bool:
        """Add the option or field that a name reads: "args.data"; whether there is one."""
        near = list(dict.fromkeys([module, *self.modules]))
        found = option_definitions.find(self._with_imported(near), name.rpartition(".")[2])
        if found is None:
            return False
        default = expressions.shown(found.default) if found.default is not None else None
        kind = "option" if found.flag else "field"
        self._add(found.module, found.node, name, kind, value=default, flag=found.flag, code=found.code)
        return True

    def _with_imported(self, modules: Sequence[Module]) -> list[Module]:
        return list(dict.fromkeys([*modules, *(there for one in modules for there in self.sources.all_imported(one))]))

    def _add_in(
        self,
        scope: Scope,
        node: ast.AST,
        name: str,
        kind: str,
        *,
        value: str | None = None,
        keys: tuple[str, ...] = (),
        code: str = "",
    ) -> None:
        """Add a definition with the function that it is in."""
        inside = f" in {scope.function.name}" if scope.function is not None else ""
        self._add(scope.module, node, name, kind, inside, value=value, keys=keys, code=code)

    def _add(
        self,
        module: Module,
        node: ast.AST,
        name: str,
        kind: str,
        inside: str = "",
        *,
        value: str | None = None,
        flag: str = "",
        keys: tuple[str, ...] = (),
        code: str = "",
    ) -> None:
        if isinstance(node, ast.ClassDef) and kind == "class":
            module, node = classes.constructor(self.sources, module, node)
        new = Definition(
            shown_text(name),
            kind,
            f"{module.name}:{getattr(node, 'lineno', 0)}{'' if isinstance(node, FUNCTIONS) else inside}",
            shown_code(code) if code else module.text_of(node),
            value,
            flag or None,
            self._depth,
            keys,
            isinstance(node, FUNCTIONS) and bindings.can_end_without_value(node),
        )
        if not any((one.place, one.name) == (new.place, new.name) for one in self.found):
            self.found.append(new)


def raised_if(module: Module, line: int, one: UncaughtException) -> str:
    """Return the condition under which a line raises an exception, as code; "" if it does not raise it itself."""
    kind = one.type.rpartition(".")[2]
    held = condition(module.tree, "\n".join(module.lines), line, kind)
    return shown_code(f"if {held}: raise {kind}") if held else ""


def _kind(statement: ast.stmt) -> str:
    if isinstance(statement, ast.ClassDef):
        return "class"
    if isinstance(statement, FUNCTIONS):
        return "function"
    return "loop" if isinstance(statement, (ast.For, ast.AsyncFor)) else "set"
