"""Does a Python script always use the first GPU that it sees, because the number of its GPU is a variable that is 0?

Such a script is written for one GPU per task: `local_rank = 0; torch.cuda.set_device(local_rank)`.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from mgpu.readers.job_script.python_files import parsed
from mgpu.readers.training_script.bound_names import names_bound

_MAY_USE = re.compile(r"^[ \t]*\w+[ \t]*(?::[ \t]*int[ \t]*)?=[ \t]*0\b", re.MULTILINE)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def uses_only_first_gpu(text: str) -> bool:
    """Whether every GPU that a script selects by a number is GPU 0, and at least one of these numbers is a variable."""
    if not _MAY_USE.search(text):
        return False
    if (tree := parsed(text)) is None:
        return False
    try:
        module = _Scope(tree, None)
    except RecursionError:
        return False
    numbers = [(number, scope) for scope in module.all() for number in scope.gpu_numbers()]
    by_name = any(isinstance(number, ast.Name) for number, _ in numbers)
    return by_name and all(_is_zero(number) or scope.has_zero(number) for number, scope in numbers)


class _Scope:
    """A module, a function or a class, without the functions in it."""

    def __init__(self, node: ast.AST, outer: _Scope | None) -> None:
        self._outer, self._name = outer, getattr(node, "name", "")
        self._nodes, nested = _own_nodes(node)
        self._bound: defaultdict[str, list[int]] = defaultdict(list)  # lines that bind a name
        for one in self._nodes:
            for name in names_bound(one):
                self._bound[name].append(getattr(one, "lineno", 0))
        self._zeros = {name: (line, end) for block in _blocks(self._nodes) for name, line, end in _zeros_of(block)}
        self._inner = [_Scope(one, self) for one in nested]

    def all(self) -> Iterator[_Scope]:
        """Yield this scope and those in it."""
        yield self
        for one in self._inner:
            yield from one.all()

    def gpu_numbers(self) -> Iterator[ast.expr]:
        """Yield the numbers by which the code selects GPUs: set_device(N), f"cuda:{N}", device_ids=[N] ..."""
        for node in self._nodes:
            if isinstance(node, ast.Call):
                yield from _numbers_of_call(node)
            elif isinstance(node, ast.JoinedStr):
                for before, after in zip(node.values, node.values[1:], strict=False):
                    ends = isinstance(before, ast.Constant) and str(before.value).endswith("cuda:")
                    if ends and isinstance(after, ast.FormattedValue):
                        yield after.value

    def has_zero(self, number: ast.expr) -> bool:
        """Whether a variable is certainly 0 here: the last line that binds it sets 0, in a block around this line."""
        if not isinstance(number, ast.Name):
            return False
        if lines := self._bound.get(number.id):
            line, end = self._zeros.get(number.id, (0, 0))
            is_set = line == max(lines) and line < number.lineno <= end
            return is_set or (len(lines) == 1 and self._is_returned_zero(number.id))
        return self._outer is not None and self._outer._is_always_zero(number.id)

    def _is_returned_zero(self, name: str) -> bool:
        """Whether a variable gets, among other values, one that a function of the module returns, and that is 0."""
        for node in self._nodes:
            if isinstance(node, ast.Assign) and isinstance(call := node.value, ast.Call):
                names = [getattr(one, "id", "") for one in getattr(node.targets[0], "elts", ())]
                if name in names and isinstance(call.func, ast.Name):
                    called = [one for one in self._module()._inner if one._name == call.func.id]
                    return len(called) == 1 and called[0]._returns_zero(names.index(name), len(names))
        return False

    def _returns_zero(self, place: int, number: int) -> bool:
        """Whether a value of every return of this function is 0: that at a place of so many."""
        values = [node.value for node in self._nodes if isinstance(node, ast.Return)]
        return bool(values) and all(
            isinstance(one, ast.Tuple)
            and len(one.elts) == number
            and (
                _is_zero(one.elts[place]) or (isinstance(one.elts[place], ast.Name) and self.has_zero(one.elts[place]))
            )
            for one in values
        )

    def _module(self) -> _Scope:
        return self if self._outer is None else self._outer._module()

    def _is_always_zero(self, name: str) -> bool:
        """Whether a global variable is 0 in every function of the module."""
        if self._outer is not None:
            return name not in self._bound and self._outer._is_always_zero(name)
        is_changed = any(name in scope._bound for scope in self.all() if scope is not self and scope._declares(name))
        return not is_changed and len(self._bound.get(name, ())) == 1 and name in self._zeros

    def _declares(self, name: str) -> bool:
        return any(isinstance(one, ast.Global) and name in one.names for one in self._nodes)


def _own_nodes(scope: ast.AST) -> tuple[list[ast.AST], list[ast.AST]]:
    """Return the nodes of a scope without those of nested functions, and the nested functions."""
    nodes: list[ast.AST] = []
    nested: list[ast.AST] = []
    waiting = [*ast.iter_child_nodes(scope)]
    while waiting:
        node = waiting.pop()
        nodes.append(node)
        if isinstance(node, _FUNCTIONS):
            nested.append(node)
        else:
            waiting += ast.iter_child_nodes(node)
    return nodes, nested


def _blocks(nodes: Sequence[ast.AST]) -> Iterator[list[ast.stmt]]:
    """Yield the lists of statements: the bodies of loops and branches, and that of the scope itself."""
    own = [node for node in nodes if isinstance(node, ast.stmt)]
    inner: list[list[ast.stmt]] = [
        block
        for node in nodes
        if not isinstance(node, _FUNCTIONS)
        for name in ("body", "orelse", "finalbody")
        if isinstance(block := getattr(node, name, None), list)
    ]
    below = {id(one) for block in inner for one in block}
    yield sorted((one for one in own if id(one) not in below), key=lambda one: one.lineno)
    yield from inner


def _zeros_of(block: Sequence[ast.stmt]) -> Iterator[tuple[str, int, int]]:
    """Yield the variables that a block sets to 0: the name, the line, and the last line of the block."""
    for one in block:
        targets = one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AnnAssign) else []
        value = one.value if isinstance(one, (ast.Assign, ast.AnnAssign)) else None
        if value is not None and _is_zero(value):
            for target in targets:
                if isinstance(target, ast.Name):
                    yield target.id, one.lineno, block[-1].end_lineno or one.lineno


def _is_zero(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and type(value.value) is int and value.value == 0


def _numbers_of_call(call: ast.Call) -> Iterator[ast.expr]:
    """Yield the numbers of GPUs among the arguments of a call."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in ("set_device", "cuda"):
        yield from call.args[:1]
    elif name == "device" and call.args and getattr(call.args[0], "value", None) == "cuda":
        yield from call.args[1:2]
    for keyword in call.keywords:
        if keyword.arg == "device_ids" and isinstance(keyword.value, ast.List):
            yield from keyword.value.elts
