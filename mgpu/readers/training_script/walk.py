"""What is in a script's syntax tree: which calls, with which values, in which loops, under which conditions?

A function is read at its first call, with that call's arguments; a function that is never called is read last. So a
name in a function resolves to the caller's value, and a caller's condition (`if rank == 0`) applies to the function.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mgpu.readers.training_script.alternatives import Alternatives
from mgpu.readers.training_script.branches import (
    caught_errors,
    constant_flags,
    fixed_value,
    is_for_one_process,
    leaves,
    remaining,
)
from mgpu.readers.training_script.call_arguments import bind_arguments
from mgpu.readers.training_script.decided_tests import Constants, Place, decides
from mgpu.readers.training_script.decorators import RANKS_OF, are_registering, own_ranks
from mgpu.readers.training_script.imported_names import read_import, read_import_from
from mgpu.readers.training_script.names import MOST, Frame
from mgpu.readers.training_script.rank_conditions import NOTHING, Guards, Split, asks_environment, merge_guards
from mgpu.readers.training_script.scopes import OUTSIDE, Around, Function, Scope, Source, Spot, under, within
from mgpu.readers.training_script.spawned import bind_rest, spawned_functions
from mgpu.readers.training_script.targets import annotated_object, names_in, value_pairs
from mgpu.readers.training_script.used_parameters import needed_classes

STOPPED = "except StopIteration"  # the context of what is done when an iterator has ended
INTERRUPTED = "except KeyboardInterrupt"  # the context of what is done when a user stops the run
HANDLED = "except"  # the context of what is done after any other error
_DEEPEST = 10  # maximum depth of nested function reads; deeper functions are read afterwards
_RANKS = frozenset({"main", "local_main", "not_main"})
_ASKS_KIND = re.compile(r"(?:isinstance|hasattr)\(")


class Walk:
    """Everything found in a script and in the modules it imports from its folder."""

    def __init__(
        self,
        find: Callable[[Walk, str], Scope | None],
        mask: Callable[[str, str], str],
        constants: Mapping[Place, Constants],
    ) -> None:
        """Set the callbacks, and the constants that parameters are known to have.

        `find` reads the module with a dotted name, if it is in the script's folder, and returns its names. `mask`
        masks secrets in a text (its second argument), also by the name it is assigned to (its first).
        """
        self.find, self.mask, self.constants = find, mask, constants
        self.functions: list[Function] = []
        self.by_name: dict[str, Function] = {}
        self.modules: dict[str, Scope] = {}  # the modules of the project that were read
        self.bases: dict[str, list[str]] = {}  # of classes
        self.attributes: dict[str, str] = {}  # of objects: "Trainer().model" -> what it is
        self.splits: dict[str, Split] = {}  # attributes whose value is a condition on the rank
        self.unique: set[str] = set()  # attributes that contain the rank, a time or a random name
        self.timed: set[str] = set()  # attributes and variables that nothing but a time makes different
        self.used: dict[int, set[str]] = {}  # by function: the classes and the names of attributes it refers to
        self.reads: dict[int, set[str]] = {}  # by function: the variables it reads
        self.variables: list[tuple[str, range, set[str]]] = []  # of top levels: file, lines of the value, names
        self.alone: set[str] = set()  # conditions on options with which the script runs only in one process
        self.maybe: dict[str, list[Spot]] = {}  # by name: calls of a method of an unknown object
        self.classes: dict[str, Spot] = {}
        self.needed: dict[str, frozenset[str] | None] = {}  # classes of models: used_parameters.needed_classes
        self.passed: set[str] = set()  # classes that are passed as values, so that others may create their objects
        self.registered: set[str] = set()  # classes with a decorator, which may register them
        self.decorated: list[tuple[str, int]] = []  # decorators and the numbers of their functions
        self.imports: set[str] = set()
        self.elsewhere: set[str] = set()  # modules that are not in the script's folder
        self.calls: list[tuple[Spot, dict[str, Any]]] = []
        self.sets: list[tuple[Spot, dict[str, Any]]] = []
        self.loops: list[tuple[Spot, dict[str, Any]]] = []
        self.jumps: list[tuple[Spot, dict[str, Any]]] = []
        self.options: list[tuple[Spot, dict[str, Any]]] = []
        self.texts: list[tuple[Spot, dict[str, Any]]] = []
        self.spawned: set[tuple[str, str]] = set()  # functions that get the number of their process
        self.main_guard, self.cut, self.depth, self.copied = False, False, 0, 0  # copied: names, for branches

    def module(self, tree: ast.Module, source: Source, scope: Scope) -> Scope:
        """Read a file's top level, and the functions it calls."""
        source.flags = constant_flags(tree)
        self.spawned |= spawned_functions(tree, source)
        self._body(tree.body, Frame(self, source, scope, -1, ""), OUTSIDE)
        return scope

    def read_uncalled(self) -> None:
        """Read the functions that are never called."""
        for function in self.functions:  # grows during the loop
            if not function.read:
                self.enter(function, Scope({}, function.scope))

    # --- statements --------------------------------------------------------------------------------------------------

    def _body(self, body: Sequence[ast.stmt], frame: Frame, around: Around) -> None:
        for statement in body:
            kind = type(statement)
            if kind is ast.Expr and isinstance(statement.value, ast.Constant):  # type: ignore[attr-defined]
                continue  # a docstring
            if (handle := _STATEMENTS.get(kind)) is not None:
                handle(self, statement, frame, around)
            else:
                for child in ast.iter_child_nodes(statement):
                    if isinstance(child, ast.expr):
                        frame.look(child, around)
            if isinstance(statement, ast.If):
                fixed = self._fixed(statement, frame)
                taken = statement.body if fixed else statement.orelse
                if fixed is not None and taken and leaves(taken):
                    break  # the rest is not reached
                passing = remaining(statement, frame) if fixed is None else ()
                around = under(around, passing, (), frame.condition(statement.test, negated=True))
            elif leaves([statement]):
                break

    def _if(self, node: ast.If, frame: Frame, around: Around) -> None:
        frame.look(node.test, around)
        yes, no = frame.split(node.test)
        words = frame.condition(node.test)
        if frame.number < 0 and "__name__" in words and "__main__" in words:
            if frame.source.file == "":  # in an imported module, it is not run
                self.main_guard = True
                self._body(node.body, frame, around)
            self._body(node.orelse, frame, around)
            return
        if (fixed := self._fixed(node, frame)) is not None:
            self._body(node.body if fixed else node.orelse, frame, around)
            return
        plain = not yes or isinstance(node.test, ast.BoolOp) or asks_environment(node.test)
        yes_words, no_words = ((words,), (f"not ({words})",)) if plain else ((), ())
        if is_for_one_process(node, frame):
            self.alone.add(words)
        outer = under(around, yes, yes_words, words)
        if not node.orelse:
            self._body(node.body, frame, outer)
            return
        branches = Alternatives(frame)
        self._body(node.body, frame, outer)
        branches.end(yes, leaves=leaves(node.body))
        self._body(node.orelse, frame, under(around, no, no_words, frame.condition(node.test, negated=True)))
        branches.end(no, leaves=leaves(node.orelse))
        branches.merge(first=bool(_ASKS_KIND.match(words)))

    def _fixed(self, node: ast.If, frame: Frame) -> bool | None:
        """Return the value that a condition has in every run; None if it is not known."""
        value = fixed_value(node.test, frame.source.words(node.test), frame.source.flags)
        if value is not None or not frame.constants:
            return value
        if frame.split(node.test) == NOTHING:
            return decides(node.test, frame.constants)
        parts = (
            node.test.values if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And) else [node.test]
        )
        options = [one for one in parts if isinstance(one, ast.Name) and frame.constants.get(one.id) is False]
        return False if options else None  # `if use_distributed:`, which no call turns on

    def _for(self, node: ast.For | ast.AsyncFor, frame: Frame, around: Around) -> None:
        frame.look(node.iter, around)
        target = frame.source.words(node.target)
        inner = self._loop(
            node, frame, around, self.mask("", frame.source.words(node.iter)), frame.resolve(node.iter) or "", target
        )
        for name in names_in(node.target):
            frame.forget(name, unique=frame.is_unique_part(node.iter))
        self._body(node.body, frame, inner)
        self._body(node.orelse, frame, around)

    def _while(self, node: ast.While, frame: Frame, around: Around) -> None:
        frame.look(node.test, around)
        inner = self._loop(node, frame, around, frame.source.words(node.test), "", "")
        self._body(node.body, frame, inner)
        self._body(node.orelse, frame, around)

    def _loop(self, node: ast.stmt, frame: Frame, around: Around, over: str, source: str, target: str) -> Around:
        if len(self.loops) >= MOST:
            self.cut = True
            return around
        self.loops.append((frame.spot(node, around), {"over": over, "source": source, "target": target}))
        return (*around[:2], (*around[2], len(self.loops) - 1), *around[3:])

    def _with(self, node: ast.With | ast.AsyncWith, frame: Frame, around: Around) -> None:
        for item in node.items:
            frame.look(item.context_expr, around)
            name = frame.resolve(item.context_expr) or frame.source.words(item.context_expr)
            if item.optional_vars is not None:
                frame.bind(item.optional_vars, item.context_expr)
            around = within(around, name.removesuffix("()"))
        self._body(node.body, frame, around)

    def _try(self, node: ast.Try, frame: Frame, around: Around) -> None:
        self._body(node.body, frame, within(around, *caught_errors(node)))
        for handler in node.handlers:
            ended = handler.type is not None and "StopIteration" in ast.unparse(handler.type)
            interrupted = handler.type is not None and "KeyboardInterrupt" in ast.unparse(handler.type)
            contexts = (*(STOPPED,) * ended, *(INTERRUPTED,) * interrupted)
            self._body(handler.body, frame, within(around, *(contexts or (HANDLED,))))
        for body in (node.orelse, node.finalbody):
            self._body(body, frame, around)

    def _match(self, node: ast.Match, frame: Frame, around: Around) -> None:
        frame.look(node.subject, around)
        for case in node.cases:
            self._body(case.body, frame, around)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, frame: Frame, around: Around) -> None:
        guards: Guards = ()
        for decorator in node.decorator_list:
            frame.look(decorator, around)
            guards = merge_guards(guards, self._ranks_of(decorator, frame))
        decorated = are_registering(node.decorator_list, frame.resolve)
        unsure = (merge_guards(around[0], ("some",)), *around[1:])  # a caller may pass another value
        for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)):
            frame.look(default, unsure)
        name = f"{frame.inside}.{node.name}" if frame.inside else node.name
        known = f"{frame.source.module}.{name}" if frame.source.module else name
        function = Function(
            name, node, frame.scope, frame.source, len(self.functions), frame.owner, merge_guards(around[0], guards)
        )
        function.decorated, function.spot = decorated, frame.spot(node, OUTSIDE)
        self.decorated += [
            ((frame.resolve(one) or "").removesuffix("()"), function.number) for one in node.decorator_list
        ]
        self.functions.append(function)
        self.by_name[known] = function
        if not frame.owner:
            frame.scope.names[node.name] = known

    def _ranks_of(self, decorator: ast.expr, frame: Frame) -> Guards:
        """Return the ranks on which a decorator runs its function."""
        made_by = [decorator.func] if isinstance(decorator, ast.Call) else []
        names = [frame.resolve(one) or "" for one in (decorator, *made_by)]
        if (known := RANKS_OF.get(names[0].removesuffix("()").rpartition(".")[2])) is not None:
            return known
        names += [f"{frame.owner}.{one}" for one in names if frame.owner]
        own = next((self.by_name[one] for one in names if one in self.by_name), None)
        if own is None:
            return ()
        if own.as_decorator is None:
            inside = Frame(self, own.source, own.scope, own.number, own.name)
            own.as_decorator = own_ranks(own.node, inside.split)
        return own.as_decorator

    def _class(self, node: ast.ClassDef, frame: Frame, around: Around) -> None:
        name = f"{frame.inside}.{node.name}" if frame.inside else node.name
        known = f"{frame.source.module}.{name}" if frame.source.module else name
        frame.scope.names[node.name] = known
        passed = set(self.passed)
        for base in (*node.bases, *(keyword.value for keyword in node.keywords)):
            frame.look(base, around)
        self.passed &= passed
        self.bases[known] = [frame.resolve(base) or "" for base in node.bases]
        self.classes[known] = frame.spot(node, OUTSIDE)
        if are_registering(node.decorator_list, frame.resolve):
            self.registered.add(known)
        inner = Frame(self, frame.source, Scope({}, frame.scope), frame.number, name, known)
        self.needed[known] = needed_classes(node, inner.resolve)
        self._body(node.body, inner, around)

    def _assign(self, node: ast.Assign, frame: Frame, around: Around) -> None:
        for value, targets in value_pairs(node):
            frame.look(value, around, targets)
        frame.note_variables(node, node.targets)
        flag = isinstance(node.value, ast.Constant) and isinstance(node.value.value, bool)
        for target in node.targets:
            self._set(target, node.value, frame, around)
            plain = frame.is_plain(target)
            frame.bind(target, node.value)
            if flag:
                frame.bind_flag(target, around, was_plain=plain)

    def _annotated_assign(self, node: ast.AnnAssign, frame: Frame, around: Around) -> None:
        if node.value is not None:
            frame.look(node.value, around, [node.target])
            frame.note_variables(node, [node.target])
            self._set(node.target, node.value, frame, around)
            frame.bind(node.target, annotated_object(node.annotation, node.value, frame) or node.value)

    def _augmented_assign(self, node: ast.AugAssign, frame: Frame, around: Around) -> None:
        frame.look(node.value, around)
        self._set(node.target, node.value, frame, around)

    def _set(self, target: ast.expr, value: ast.expr, frame: Frame, around: Around) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
                for one, given in zip(target.elts, value.elts, strict=True):
                    self._set(one, given, frame, around)
            return
        if isinstance(value, ast.Call) and not isinstance(target, ast.Subscript):
            return  # recorded in the call's targets
        if len(self.sets) >= MOST:
            self.cut = True
            return
        name = frame.resolve(target) if isinstance(target, ast.Subscript) else frame.source.words(target)
        what = {"target": name or frame.source.words(target), "value": ""}
        what["value"] = self.mask(what["target"], frame.value(value))
        self.sets.append((frame.spot(target, around), what))

    def _expression(self, node: ast.Expr, frame: Frame, around: Around) -> None:
        frame.look(node.value, around)

    def _jump(self, node: ast.Break | ast.Continue | ast.Return, frame: Frame, around: Around) -> None:
        if (around[2] or (isinstance(node, ast.Return) and _RANKS.intersection(around[0]))) and len(self.jumps) < MOST:
            self.jumps.append((frame.spot(node, around), {"kind": type(node).__name__.lower()}))

    def _raise(self, node: ast.Raise, frame: Frame, around: Around) -> None:
        self._jump(node, frame, around)  # type: ignore[arg-type]
        if node.exc is not None:
            frame.look(node.exc, around)

    def _return(self, node: ast.Return, frame: Frame, around: Around) -> None:
        self._jump(node, frame, around)
        if node.value is None:
            return
        frame.look(node.value, around)
        function = self.functions[frame.number] if frame.number >= 0 else None
        if function is None:
            return
        if isinstance(node.value, ast.Tuple):
            function.returns = [frame.resolve(item) for item in node.value.elts]
        elif not isinstance(node.value, ast.Constant):
            if not str(function.returns).endswith(".module"):  # of a wrapped model, or the model itself
                function.returns = frame.resolve(node.value)
            if (split := frame.split(node.value)) != NOTHING:
                function.split = split

    # --- functions ---------------------------------------------------------------------------------------------------

    def enter(self, function: Function, scope: Scope) -> None:
        """Read a function, with its parameters bound to a call's arguments in `scope`."""
        function.read = True
        bind_rest(function, scope, self.spawned)
        constants = self.constants.get((function.source.file, function.node.lineno), {})
        frame = Frame(self, function.source, scope, function.number, function.name, constants=constants)
        self.depth += 1
        self._body(function.node.body, frame, OUTSIDE)
        self.depth -= 1

    def record_call(self, name: str, node: ast.expr, frame: Frame, around: Around) -> Function | None:
        """Return the script's own function of this name, read now if it has not been; None if there is none."""
        if (function := self.own_function(name)) is None:
            return None
        function.sites.append(frame.spot(node, around))
        function.calls.append((node, frame.source.flags))
        if not function.read and self.depth < _DEEPEST and isinstance(node, ast.Call):
            self.enter(function, bind_arguments(function, node, frame))
        return function

    def all_bases(self, name: str) -> list[str]:
        """Return the base classes of one of the script's classes, and theirs; nothing for any other name."""
        found: list[str] = []
        open_ = list(self.bases.get(name, ()))
        while open_:
            if (base := open_.pop(0)) and base not in found:
                found.append(base)
                open_ += self.bases.get(base, ())
        return found

    def own_function(self, name: str) -> Function | None:
        """Return the script's function with a resolved name: a function, a method, or the __init__ of a class."""
        found = self.by_name.get(name)
        if found is not None:
            return found
        owner, dot, method = name.rpartition("().")
        if dot and owner in self.bases:
            return self._method(owner, method)
        return self._method(name, "__init__") if name in self.bases else None

    def _method(self, owner: str, name: str) -> Function | None:
        seen: set[str] = set()
        while owner in self.bases and owner not in seen:
            seen.add(owner)
            if (found := self.by_name.get(f"{owner}.{name}")) is not None:
                return found
            owner = next((base for base in self.bases[owner] if base in self.bases), "")
        return None


# fmt: off
_STATEMENTS: dict[type[ast.stmt], Callable[..., None]] = {
    ast.If: Walk._if, ast.For: Walk._for, ast.AsyncFor: Walk._for, ast.While: Walk._while, ast.With: Walk._with,
    ast.AsyncWith: Walk._with, ast.Try: Walk._try, ast.Match: Walk._match, ast.FunctionDef: Walk._function,
    ast.AsyncFunctionDef: Walk._function, ast.ClassDef: Walk._class, ast.Import: read_import,
    ast.ImportFrom: read_import_from, ast.Assign: Walk._assign, ast.AnnAssign: Walk._annotated_assign,
    ast.AugAssign: Walk._augmented_assign, ast.Expr: Walk._expression, ast.Return: Walk._return,
    ast.Raise: Walk._raise, ast.Break: Walk._jump, ast.Continue: Walk._jump,
}
# fmt: on
if hasattr(ast, "TryStar"):
    _STATEMENTS[ast.TryStar] = Walk._try
