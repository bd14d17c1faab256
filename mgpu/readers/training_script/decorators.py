"""What does a decorator mean for its function: on which ranks does it run, and may a library call it?"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence

from mgpu.readers.training_script.branches import leaves
from mgpu.readers.training_script.rank_conditions import Guards, Split, merge_guards

# fmt: off
# Decorators that run a function only on some ranks.
RANKS_OF: dict[str, Guards] = {
    "on_main_process": ("main",), "rank_zero_only": ("main",), "main_process_only": ("main",), "master_only": ("main",),
    "on_local_main_process": ("local_main",), "on_last_process": ("some",), "on_process": ("some",),
}
# fmt: on
_OF_RANKS = frozenset({"main", "local_main", "not_main", "some"})
# Decorators that do not register a function with a library that could call it.
INERT = re.compile(
    r"staticmethod|classmethod|property|.*\.(?:setter|getter|deleter|no_grad|inference_mode|wraps|lru_cache|cache|record"
    r"|abstractmethod|compile|autocast|overload|script|dynamo\.disable|custom_fwd|custom_bwd|on_\w*process|rank_zero_only)"
    r"|no_grad|inference_mode|wraps|lru_cache|cache|record|abstractmethod|overload|\w*(?:master|main|rank|timed?r?)\w*"
    r"|(?:dataclasses\.)?dataclass|(?:contextlib\.)?contextmanager"
)


def are_registering(decorators: Sequence[ast.expr], resolve: Callable[[ast.expr], str | None]) -> bool:
    """Whether one of these decorators may pass its function or class to a library that uses it."""
    names = [(resolve(one) or "?").removesuffix("()") for one in decorators]
    return not all(INERT.fullmatch(name) for name in names)


def own_ranks(decorator: ast.FunctionDef | ast.AsyncFunctionDef, split: Callable[[ast.expr], Split]) -> Guards:
    """Return the ranks on which the script's own decorator, or a function that makes one, runs the function it gets.

    `split` returns the ranks for which a condition is true, and those for which it is false.
    """
    if (found := _visible_ranks(decorator, split)) is not None:
        return found
    return ("some",) if _asks_rank([decorator], split) else ()


def _visible_ranks(
    decorator: ast.FunctionDef | ast.AsyncFunctionDef, split: Callable[[ast.expr], Split]
) -> Guards | None:
    """Return these ranks if the one function in it calls the function, with at most an `if` around; else None."""
    inner = [one for one in decorator.body if isinstance(one, ast.FunctionDef)]
    given = decorator.args.args[:1]
    if len(inner) != 1 or not given or _asks_rank([one for one in decorator.body if one not in inner], split):
        return None
    left: Guards = ()  # the ranks that an `if` before has not sent back
    runs: list[Guards] = []
    for statement in inner[0].body:
        bodies: list[tuple[Guards, Sequence[ast.stmt]]] = [((), [statement])]
        if isinstance(statement, ast.If):
            yes, no = split(statement.test)
            bodies = [(yes, statement.body), (no, statement.orelse)]
        for guards, body in bodies:
            number = _calls_of(given[0].arg, body)
            if (number or _returns(body)) and _asks_rank(body, split):
                return None
            runs += [merge_guards(left, guards)] * number
        if isinstance(statement, ast.If):
            left = merge_guards(left, no) if leaves(statement.body) else left
    return tuple(guard for guard in runs[0] if all(guard in one for one in runs)) if runs else None


def _asks_rank(body: Sequence[ast.stmt], split: Callable[[ast.expr], Split]) -> bool:
    """Whether any condition in these statements depends on the rank."""
    tests = (test for statement in body for node in ast.walk(statement) for test in _tests(node))
    return any(_OF_RANKS.intersection(merge_guards(*split(test))) for test in tests)


def _returns(body: Sequence[ast.stmt]) -> bool:
    return any(isinstance(node, ast.Return) for statement in body for node in ast.walk(statement))


def _tests(node: ast.AST) -> Sequence[ast.expr]:
    """Return the conditions in a node on which its parts depend."""
    if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
        return [node.test]
    if isinstance(node, ast.BoolOp):
        return node.values[:1]
    return node.ifs if isinstance(node, ast.comprehension) else ()


def _calls_of(name: str, body: Sequence[ast.stmt]) -> int:
    """Return how often a function is called in these statements."""
    nodes = (node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Call))
    return sum(isinstance(node.func, ast.Name) and node.func.id == name for node in nodes)
