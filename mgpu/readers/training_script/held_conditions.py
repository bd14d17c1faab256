"""Which condition on the rank does a variable hold that gets one of several values?

`first = dist.get_rank() == 0 if dist.is_initialized() else True` is a condition for rank 0 in a run of several ranks.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from mgpu.readers.training_script.rank_conditions import NOTHING, SOME, Guards, Split, classify_name

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def one_of(found: Sequence[tuple[Guards, Split]]) -> Split:
    """Return the condition that a variable holds after branches, each with the ranks that take it and its condition."""
    conditions = [split for _, split in found]
    if all(split == conditions[0] for split in conditions):
        return conditions[0]
    for guards, split in found:
        if "distributed" in guards and split != NOTHING:
            return split
    different = {split for split in conditions if split != NOTHING}
    of_ranks = any(guards for guards, _ in found)  # the other branch is that of a single process
    return different.pop() if len(different) == 1 and of_ranks else SOME


def held_condition(
    value: ast.expr,
    split: Callable[[ast.expr], Split],
    known: Callable[[ast.expr], Split | None],
    words: Callable[[ast.expr], str],
) -> Split:
    """Return the condition on the rank that a variable with this value holds.

    `split` returns the ranks for which a condition is true, and those for which it is false; `known` those of a
    variable, an attribute or a function of the script; `words` the text of an expression.
    """
    if isinstance(value, ast.IfExp):
        yes, no = split(value.test)
        held = [held_condition(one, split, known, words) for one in (value.body, value.orelse)]
        if held == [NOTHING, NOTHING] and _is_false(value.body) != _is_false(value.orelse):
            return (no, yes) if _is_false(value.body) else (yes, no)  # `writer = Writer() if main else None`
        return one_of([(yes, held[0]), (no, held[1])])
    if isinstance(value, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.NamedExpr):
        return split(value)
    if isinstance(value, ast.Call):  # its arguments say nothing about its result
        return known(value) or classify_name(f"{words(value.func)}()")
    return (known(value) if isinstance(value, ast.Name | ast.Attribute) else None) or NOTHING


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def kept_by(node: ast.AST) -> list[ast.expr]:
    """Return the conditions of a comprehension that do not depend on its own variables."""
    loops: list[ast.comprehension] = node.generators  # type: ignore[attr-defined]
    own = {one.id for loop in loops for one in ast.walk(loop.target) if isinstance(one, ast.Name)}
    tests = [test for loop in loops for test in loop.ifs]
    return [test for test in tests if own.isdisjoint(one.id for one in ast.walk(test) if isinstance(one, ast.Name))]
