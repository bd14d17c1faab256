"""Which functions get the number of their process from `torch.multiprocessing.spawn`, as their first argument?

`spawn(work, args=(2,))` calls `work(0, 2)` and `work(1, 2)`, so `if worker == 0:` in `work` is a condition on the rank,
whatever the name of its parameter.
"""

from __future__ import annotations

import ast

from mgpu.readers.training_script.rank_conditions import is_rank
from mgpu.readers.training_script.scopes import Function, Scope, Source

_STARTERS = ("spawn", "start_processes")
_NUMBER = "local_rank"  # the number of a process on its node


def spawned_functions(tree: ast.Module, source: Source) -> set[tuple[str, str]]:
    """Return the functions and methods that a file passes to spawn: module, and name without a class."""
    given = [_started(node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = {one.id if isinstance(one, ast.Name) else one.attr for one in given if one is not None}
    if not names:
        return set()
    imported = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
        for alias in node.names
    }
    return {imported.get(name, (source.module, name)) for name in names}


def bind_rest(function: Function, scope: Scope, spawned: set[tuple[str, str]]) -> None:
    """Bind the parameters of a function that its first call does not bind."""
    arguments = function.node.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    named = [one.arg for one in (*every, arguments.vararg, arguments.kwarg) if one is not None]
    scope.unknown.update(name for name in named if name not in scope.names)
    for place, name in enumerate(named):
        scope.names.setdefault(name, f"{function.owner}()" if place == 0 and function.owner else name)
    number = named[1 if function.owner else 0 :][:1]
    if number and (function.source.module, function.node.name) in spawned and not is_rank(number[0]):
        scope.names[number[0]] = _NUMBER
        scope.unique.add(number[0])


def _started(call: ast.Call) -> ast.Name | ast.Attribute | None:
    """Return the function that a call starts in several processes."""
    if not isinstance(call.func, ast.Name | ast.Attribute):
        return None
    if (call.func.id if isinstance(call.func, ast.Name) else call.func.attr) not in _STARTERS:
        return None
    given = call.args[0] if call.args else next((one.value for one in call.keywords if one.arg == "fn"), None)
    return given if isinstance(given, ast.Name | ast.Attribute) else None
