"""Which condition on the rank does a variable hold that gets one of several values?

`first = dist.get_rank() == 0 if dist.is_initialized() else True` is a condition for rank 0 in a run of several ranks.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from mgpu.readers.training_script.rank_conditions import NOTHING, SOME, Guards, Split, classify_name
from mgpu.readers.training_script.scopes import Scope, Walk


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


def known_condition(
    node: ast.expr, scope: Scope, walk: Walk, resolve: Callable[[ast.expr], str | None]
) -> Split | None:
    """Return the condition that a variable, an attribute, or a function or property of the script is known to hold."""
    if isinstance(node, ast.Name):
        return scope.find_split(node.id)
    if isinstance(node, ast.Attribute):
        above = resolve(node.value) or ""
        objects = (above, *(f"{base}()" for base in walk.all_bases(above.removesuffix("()"))))
        found = next((split for one in objects if (split := walk.splits.get(f"{one}.{node.attr}"))), None)
        own = walk.own_function(f"{above}.{node.attr}") if found is None else None
        return own.split if own is not None and own.is_property else found
    if isinstance(node, ast.Call):
        own = walk.own_function(resolve(node.func) or "")
        return own.split if own is not None else None
    return None


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value
