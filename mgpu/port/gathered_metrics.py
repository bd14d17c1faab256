"""Metrics: after the forward pass of an evaluation, every rank gets the outputs of the whole batch."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from mgpu.port.batch_names import accumulates, batch_names, follow_batch, names_read
from mgpu.port.data_loading import can_split_evaluation
from mgpu.port.porting import Porting
from mgpu.port.source_tree import assigned, calls, dotted, flat, method, nodes, targets
from mgpu.port.training_loops import Loop

GATHER = "From here on, every rank has the whole batch, so the metrics are those of all data, and equal on all ranks."


def plan(porting: Porting) -> None:
    """Collect the changes of metrics, and decide which evaluation loaders are split."""
    understood: dict[int, tuple[cst.CSTNode, list[str]] | None] = {}
    evaluations = [loop for loop in porting.loops.all if not loop.trains]
    for loop in evaluations:
        understood[id(loop.node)] = _evaluation(porting, loop)
    training = frozenset(o for loop in porting.loops.all if loop.trains for o in loop.loaders)
    changed = True
    refused: set[int] = set()
    while changed:  # a loader is split only if all its loops are understood, and a loop only if all its loaders are
        changed = False
        for loop in evaluations:
            if id(loop.node) in refused:
                continue
            origins_ok = all(
                can_split_evaluation(porting, origin)
                and not any(id(other.node) in refused and origin in other.loaders for other in evaluations)
                for origin in loop.loaders
            )
            if understood[id(loop.node)] is None or not origins_ok:
                refused.add(id(loop.node))
                changed = True
    for loop in evaluations:
        found = understood[id(loop.node)]
        if id(loop.node) not in refused and found is not None:
            porting.split |= loop.loaders
            at, names = found
            joined = ", ".join(names)
            group = joined if len(names) == 1 else f"({joined})"
            porting.changes.after(at, [f"{joined} = {porting.ranks}.gather_for_metrics({group})"], GATHER)
        elif loop.loaders & training and _counts(loop):
            porting.changes.decide(loop.node, "each rank evaluates only its part of this data: gather the results.")


def _evaluation(porting: Porting, loop: Loop) -> tuple[cst.CSTNode, list[str]] | None:
    """The forward pass of an evaluation loop, and the names to gather after it; None if not understood."""
    forward = [call for call in calls(loop.node.body) if porting.roles.is_model(call.func)]
    if len(forward) != 1 or any(isinstance(one, (cst.Continue, cst.Yield)) for one in nodes(loop.node.body)):
        return None
    assign = porting.tree.parent(forward[0])
    statement = porting.tree.statement(forward[0])
    if assign is None or assigned(assign) is None or porting.tree.inside(statement, cst.For) is not loop.node:
        return None
    if not _is_straight(porting, statement, loop.node):
        return None
    outputs = [dotted(name) for one in targets(assign) for name in flat(one)]
    batch = batch_names(loop)
    if not all(outputs) or not batch or any("." in name for name in outputs):
        return None
    before, after = _around(porting, loop, statement)
    tracked, derived = follow_batch(batch, before)
    if any(accumulates(node, tracked | derived | batch) for node in before):
        return None
    read = names_read(after)
    names = [name for name in dict.fromkeys([*outputs, *sorted(tracked)]) if name in read]
    if derived & read or not names or any(_is_scalar(after, name) for name in outputs):
        return None
    return statement, names


def _is_straight(porting: Porting, statement: cst.CSTNode, loop: cst.For) -> bool:
    """Whether a statement runs in every iteration: only `with` may be between it and the loop."""
    for above in porting.tree.parents(statement):
        if above is loop:
            return True
        if isinstance(above, (cst.If, cst.Try, cst.While, cst.For, cst.FunctionDef)):
            return False
    return False


def _around(porting: Porting, loop: Loop, statement: cst.CSTNode) -> tuple[list[cst.CSTNode], list[cst.CSTNode]]:
    """The simple statements of a loop before and after one of them."""
    line = porting.tree.line(statement)
    every: list[cst.CSTNode] = [
        node
        for node in nodes(loop.node.body)
        if isinstance(node, (cst.SimpleStatementLine, cst.If, cst.For, cst.While, cst.With))
    ]
    simple = [one for one in every if isinstance(one, cst.SimpleStatementLine)]
    before: list[cst.CSTNode] = [one for one in simple if porting.tree.line(one) < line]
    after = [one for one in every if porting.tree.line(one) > porting.tree.last_line(statement)]
    return before, after


def _is_scalar(statements: Iterable[cst.CSTNode], name: str) -> bool:
    """Whether an output is used as a number: `loss.item()`, `outputs.loss`."""
    for statement in statements:
        for node in nodes(statement):
            of_output = isinstance(node, cst.Attribute) and dotted(node.value) == name
            if of_output and isinstance(node, cst.Attribute) and node.attr.value in ("item", "loss", "logits"):
                return True
            converts = isinstance(node, cst.Call) and dotted(node.func) == "float" and bool(node.args)
            if converts and isinstance(node, cst.Call) and dotted(node.args[0].value) == name:
                return True
            if isinstance(node, cst.AugAssign) and dotted(node.value) == name:
                return True
    return "loss" in name.lower()


def _counts(loop: Loop) -> bool:
    return any(
        isinstance(one, cst.AugAssign) or (isinstance(one, cst.Call) and method(one) in ("append", "extend"))
        for one in nodes(loop.node.body)
    )
