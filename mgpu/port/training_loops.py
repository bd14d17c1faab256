"""Which loops of the script train, which evaluate, and which loader does each read?"""

from __future__ import annotations

import re
from dataclasses import dataclass

import libcst as cst

from mgpu.port.makers import Origin
from mgpu.port.roles import Roles
from mgpu.port.source_tree import Function, SourceTree, assigned, calls, dotted, method, nodes, receiver, targets

_STEPS = re.compile(r"zero_grad|step|update|unscale_|backward|clip_grad_(?:norm|value)_")
_NO_GRAD = re.compile(r"torch\.(?:no_grad|inference_mode|autograd\.no_grad)")


@dataclass(frozen=True)
class Loop:
    """A loop over the batches of loaders."""

    node: cst.For
    loaders: frozenset[Origin]
    trains: bool


class Loops:
    """The loops of a script, and its backward passes."""

    def __init__(self, tree: SourceTree, roles: Roles) -> None:
        self.tree, self.roles = tree, roles
        self.backwards = [call for call in calls(tree.module) if is_backward(tree, call)]
        self.training_functions = self._training_functions()
        self.all = [self._loop(node) for node in nodes(tree.module) if isinstance(node, cst.For)]
        self.all = [loop for loop in self.all if loop.loaders]
        self.feeds = bool(roles.origins("loader"))  # a DataLoader makes the batches

    def _loop(self, node: cst.For) -> Loop:
        inner = node.iter
        of_containers = isinstance(inner, (cst.List, cst.Tuple)) or (
            isinstance(inner, cst.Call) and method(inner) in ("items", "values")
        )
        loaders = frozenset() if of_containers else self.roles.of(inner, "loader")
        return Loop(node, loaders, self.trains(node))

    def trains(self, node: cst.CSTNode) -> bool:
        """Whether a node contains a backward pass, or a call of a function that does."""
        for call in calls(node):
            if any(call is one for one in self.backwards):
                return True
            if any(f in self.training_functions for f in self.roles.local_function(call)):
                return True
        return False

    def _training_functions(self) -> set[Function]:
        found = {f for call in self.backwards if (f := self.tree.inside(call, cst.FunctionDef)) is not None}
        every = [f for group in self.tree.functions.values() for f in group]
        called = {f: {g for call in calls(f.body) for g in self.roles.local_function(call)} for f in every}
        while more := {f for f in every if f not in found and called[f] & found}:
            found |= more
        return found

    def without_gradients(self, node: cst.CSTNode) -> bool:
        """Whether a node runs under torch.no_grad, here or in its function."""
        for above in self.tree.parents(node):
            if isinstance(above, cst.With):
                for item in above.items:
                    call = item.item
                    if isinstance(call, cst.Call) and _NO_GRAD.fullmatch(self.tree.name(call.func)):
                        return True
            if isinstance(above, cst.FunctionDef):
                for one in above.decorators:
                    func = one.decorator.func if isinstance(one.decorator, cst.Call) else one.decorator
                    if _NO_GRAD.fullmatch(self.tree.name(func)):
                        return True
        return False

    def in_training(self, node: cst.CSTNode) -> bool:
        """Whether a node may run as a part of the training: in its loop, or in a function called from there."""
        if self.without_gradients(node):
            return False
        function = self.tree.inside(node, cst.FunctionDef)
        loops = [loop for backward in self.backwards if (loop := back_loop(self.tree, backward)) is not None]
        for above in self.tree.parents(node):
            if isinstance(above, cst.FunctionDef):
                break
            if any(above is loop for loop in loops):
                return True
        return function is not None and function in self._called_in_training()

    def _called_in_training(self) -> set[Function]:
        if not hasattr(self, "_reached"):
            found: set[Function] = set()
            for backward in self.backwards:
                around = self.tree.inside(backward, cst.FunctionDef)
                where = back_loop(self.tree, backward) or around
                if around is not None and back_loop(self.tree, backward) is None:
                    found.add(around)
                if where is not None:
                    self._collect(where, found)
            self._reached = found
        return self._reached

    def _collect(self, node: cst.CSTNode, found: set[Function]) -> None:
        for call in calls(node):
            if self.without_gradients(call):
                continue
            for function in self.roles.local_function(call):
                if function not in found:
                    found.add(function)
                    self._collect(function.body, found)


def back_loop(tree: SourceTree, backward: cst.CSTNode) -> cst.For | cst.While | None:
    """The innermost loop around a backward pass, in its function."""
    for above in tree.parents(backward):
        if isinstance(above, cst.FunctionDef):
            return None
        if isinstance(above, (cst.For, cst.While)):
            return above
    return None


def shared_line(loops: Loops) -> cst.CSTNode | None:
    """A backward pass on one line with a statement that computes or reports something: nothing can be added between."""
    for backward in loops.backwards:
        small = loops.tree.simple_statement(backward)
        line = loops.tree.parent(small) if small is not None else None
        if isinstance(line, (cst.SimpleStatementLine, cst.SimpleStatementSuite)):
            losses = {dotted(one) for call in calls(line) for one in nodes(call) if method(call) == "backward"}
            if not all(one is small or _only_steps(one, losses - {""}) for one in line.body):
                return backward
    return None


def _only_steps(statement: cst.BaseSmallStatement, losses: set[str]) -> bool:
    """`optimizer.zero_grad()`, `optimizer.step()` or `loss = ...`."""
    if isinstance(statement, cst.Expr) and isinstance(statement.value, cst.Call):
        return bool(_STEPS.fullmatch(method(statement.value)))
    return assigned(statement) is not None and {dotted(one) for one in targets(statement)} <= losses


def is_backward(tree: SourceTree, call: cst.Call) -> bool:
    """Whether a call is a backward pass of a loss (not the method of an autograd.Function)."""
    on = receiver(call)
    if method(call) != "backward" or on is None:
        return False
    name = tree.name(on)
    return name not in tree.classes and name not in ("self", "torch.autograd", "super")
