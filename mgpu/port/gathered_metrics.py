"""Metrics: after the forward pass of an evaluation, every rank gets the outputs of the whole batch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import libcst as cst

from mgpu.port.data_loading import can_split_evaluation
from mgpu.port.porting import Porting
from mgpu.port.source_tree import calls, dotted, flat, method, nodes, parameters, receiver, targets
from mgpu.port.training_loops import Loop, back_loop

_GATHER = "From here on, every rank has the whole batch, so the metrics are those of all data, and equal on all ranks."
_LOSS = "Each rank has the loss of its own part: what is printed and compared is the mean over all ranks."
_PARTLY = "this counts only the part of the batch on this rank: sum it over the ranks with {}.reduce."
# Calls that keep the first dimension of a batch.
_KEEPS_BATCH = re.compile(
    r"to|cuda|float|long|double|half|detach|cpu|argmax|sigmoid|softmax|log_softmax|round|squeeze|int|max|topk|data"
)


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
            origins_ok = all(can_split_evaluation(porting, origin) and not any(
                id(other.node) in refused and origin in other.loaders for other in evaluations)
                for origin in loop.loaders)  # fmt: skip
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
            porting.changes.after(at, [f"{joined} = {porting.ranks}.gather_for_metrics({group})"], _GATHER)
        elif loop.loaders & training and _counts(loop):
            porting.changes.decide(loop.node, "each rank evaluates only its part of this data: gather the results.")
    for loop in porting.loops.all:
        if loop.trains:
            _training(porting, loop)
    for function in porting.loops.training_functions:
        _step(porting, function)


# ---- evaluation


def _evaluation(porting: Porting, loop: Loop) -> tuple[cst.CSTNode, list[str]] | None:
    """The forward pass of an evaluation loop, and the names to gather after it; None if not understood."""
    forward = [call for call in calls(loop.node.body) if porting.roles.is_model(call.func)]
    if len(forward) != 1 or any(isinstance(one, (cst.Continue, cst.Yield)) for one in nodes(loop.node.body)):
        return None
    assign = porting.tree.parent(forward[0])
    statement = porting.tree.statement(forward[0])
    if not isinstance(assign, cst.Assign) or porting.tree.inside(statement, cst.For) is not loop.node:
        return None
    if not _is_straight(porting, statement, loop.node):
        return None
    outputs = [dotted(name) for one in targets(assign) for name in flat(one)]
    batch = _batch_names(loop)
    if not all(outputs) or not batch or any("." in name for name in outputs):
        return None
    before, after = _around(porting, loop, statement)
    tracked, derived = _tracked(batch, before)
    if any(_accumulates(node, tracked | derived | batch) for node in before):
        return None
    read = _reads(after)
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


def _batch_names(loop: Loop) -> set[str]:
    """The names of a batch: the loop's target, without the counter of enumerate."""
    target: cst.BaseExpression = loop.node.target
    inner: cst.BaseExpression = loop.node.iter
    while isinstance(inner, cst.Call):
        if dotted(inner.func) == "enumerate":
            if not isinstance(target, cst.Tuple) or len(target.elements) != 2:
                return set()
            target = target.elements[1].value
        if dotted(inner.func) == "zip" or not inner.args:
            return set()
        inner = inner.args[0].value
    return {name for one in flat(target) if (name := dotted(one)) and name != "_"}


def _around(
    porting: Porting, loop: Loop, statement: cst.CSTNode
) -> tuple[list[cst.CSTNode], list[cst.CSTNode]]:  # fmt: skip
    """The simple statements of a loop before and after one of them."""
    line = porting.tree.line(statement)
    every = [
        node for node in nodes(loop.node.body)
        if isinstance(node, (cst.SimpleStatementLine, cst.If, cst.For, cst.While, cst.With))
    ]  # fmt: off
    before = [one for one in every if porting.tree.line(one) < line and isinstance(one, cst.SimpleStatementLine)]
    after = [one for one in every if porting.tree.line(one) > porting.tree.last_line(statement)]
    return before, after


def _tracked(
    batch: set[str], before: Iterable[cst.CSTNode], outputs: Iterable[str] = ()
) -> tuple[set[str], set[str]]:  # fmt: skip
    """The names that hold a tensor of the batch, and those computed from them in another way."""
    tracked, derived = set(batch), set[str]()
    for statement in before:
        for node in nodes(statement):
            if not isinstance(node, cst.Assign):
                continue
            names = {dotted(name) for one in targets(node) for name in flat(one)} - {""}
            if not _names(node.value) & (tracked | derived) or names <= set(outputs):
                continue
            if isinstance(node.value, cst.Tuple) or _keeps_batch(node.value, tracked):
                tracked |= names
            else:
                derived |= names
    return tracked - derived, derived


def _keeps_batch(value: cst.BaseExpression, tracked: set[str]) -> bool:
    """Whether an expression is a batch tensor, moved or with another type: `x.to(device).float()`, `batch["x"]`."""
    while True:
        if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
            if not _KEEPS_BATCH.fullmatch(value.func.attr.value):
                return False
            if dotted(value.func.value) == "torch" and value.args:
                value = value.args[0].value
                continue
            value = value.func.value
        elif isinstance(value, cst.Subscript):
            index = value.slice[0].slice
            if not (isinstance(index, cst.Index) and isinstance(index.value, (cst.SimpleString, cst.Integer))):
                return False
            value = value.value
        else:
            return dotted(value) in tracked


def _names(node: cst.CSTNode) -> set[str]:
    """The names that an expression reads (not keywords and attributes)."""
    found: set[str] = set()
    for one in nodes(node):
        if isinstance(one, cst.Name):
            found.add(one.value)
    for one in nodes(node):
        if isinstance(one, cst.Attribute) and one.attr.value in found and not _is_plain(node, one.attr.value):
            found.discard(one.attr.value)
    return found


def _is_plain(node: cst.CSTNode, name: str) -> bool:
    """Whether a name is used as a variable somewhere in a node."""
    attributes = {id(one.attr) for one in nodes(node) if isinstance(one, cst.Attribute)}
    attributes |= {id(one.keyword) for one in nodes(node) if isinstance(one, cst.Arg) and one.keyword}
    return any(isinstance(one, cst.Name) and one.value == name and id(one) not in attributes for one in nodes(node))


def _reads(statements: Iterable[cst.CSTNode]) -> set[str]:
    """The names that statements read, also if they assign them first."""
    found: set[str] = set()
    for statement in statements:
        for node in nodes(statement):
            if isinstance(node, cst.Assign):
                found |= _names(node.value)
            elif isinstance(node, (cst.AugAssign, cst.Expr, cst.If, cst.Return, cst.For)):
                part = node.test if isinstance(node, cst.If) else node.iter if isinstance(node, cst.For) else node
                found |= _names(part)
    return found


def _accumulates(statement: cst.CSTNode, names: set[str]) -> bool:
    """Whether a statement adds what it computes from these names to something that outlives the iteration."""
    for node in nodes(statement):
        if isinstance(node, cst.AugAssign) and _names(node.value) & names:
            return True
        if isinstance(node, cst.Call) and method(node) in ("append", "extend", "update", "add") and receiver(node):
            if any(_names(one.value) & names for one in node.args):
                return True
    return False


def _is_scalar(statements: Iterable[cst.CSTNode], name: str) -> bool:
    """Whether an output is used as a number: `loss.item()`, `outputs.loss`."""
    for statement in statements:
        for node in nodes(statement):
            if isinstance(node, cst.Attribute) and dotted(node.value) == name:
                if node.attr.value in ("item", "loss", "mean", "logits", "tolist") and node.attr.value != "mean":
                    return True
            if isinstance(node, cst.Call) and dotted(node.func) == "float" and node.args:
                if dotted(node.args[0].value) == name:
                    return True
            if isinstance(node, cst.AugAssign) and dotted(node.value) == name:
                return True
    return "loss" in name.lower()


def _counts(loop: Loop) -> bool:
    return any(isinstance(one, cst.AugAssign) for one in nodes(loop.node.body))


# ---- training


def _training(porting: Porting, loop: Loop) -> None:
    """The loss and the outputs that a training loop reports."""
    tree = porting.tree
    own = [b for b in porting.loops.backwards if tree.inside(b, cst.For) is loop.node]
    if not own:
        return
    at = _in_body(porting, own[-1], loop.node.body)
    losses = [dotted(_loss(porting, backward)) for backward in own]
    after = _later(loop.node.body, at)
    earlier = [s for s in _simple(loop) if tree.line(s) < tree.line(own[-1])]
    earlier = [s for s in earlier if not any(one is b for one in nodes(s) for b in own)]
    _report_losses(porting, own, losses, at, earlier, after)
    outputs = _outputs(porting, loop)
    tracked, derived = _tracked(_batch_names(loop) | outputs, earlier, outputs)
    tracked -= set(losses)
    for statement in after:
        if lost := _accumulated([statement], derived - set(losses)):
            porting.changes.decide(statement, f"{', '.join(sorted(lost))}: {_PARTLY.format(porting.ranks)}")
    read = {name for name in _accumulated(after, tracked)}
    sized = {name for name in read if _only_size(after, name)}
    whole = sorted(read - sized)
    if whole:
        values = ", ".join(f"{name}.detach()" if name in outputs else name for name in whole)
        joined = ", ".join(whole)
        group = values if len(whole) == 1 else f"({values})"
        porting.changes.after(at, [f"{joined} = {porting.ranks}.gather_for_metrics({group})"], _GATHER)
    for name in sized:
        _sizes(porting, after, name, whole)
    for statement in earlier:
        if _accumulates(statement, tracked) and not _accumulates_loss_only(statement, tracked, losses):
            _sum_here(porting, statement, tracked, losses)


def _step(porting: Porting, function: cst.FunctionDef) -> None:
    """A function that makes one step of the training and returns its loss."""
    own = [b for b in porting.loops.backwards
           if porting.tree.inside(b, cst.FunctionDef) is function and back_loop(porting.tree, b) is None]  # fmt: skip
    if not own or not any(isinstance(loop.node, cst.For) for loop in porting.loops.all):
        return
    at = _in_body(porting, own[-1], function.body)
    after = _later(function.body, at)
    losses = [dotted(_loss(porting, backward)) for backward in own]
    lines = [node for node in nodes(function.body) if isinstance(node, cst.SimpleStatementLine)]
    earlier = [s for s in lines if porting.tree.line(s) < porting.tree.line(at)]
    _report_losses(porting, own, losses, at, earlier, after)
    given = {name.value for name in parameters(function)} - {"self"}
    local = {dotted(t) for s in earlier for n in nodes(s) for one in targets(n) for t in flat(one)} - {""}
    for statement in after:
        lost = _accumulated([statement], (given | local) - set(losses))
        values = {n for n in nodes(statement) if isinstance(n, cst.Return) and n.value is not None}
        lost |= {name for one in values for name in _names(one)} & local - set(losses)
        if lost:
            porting.changes.decide(statement, f"{', '.join(sorted(lost))}: {_PARTLY.format(porting.ranks)}")


def _loss(porting: Porting, backward: cst.Call) -> cst.BaseExpression:
    """The loss of a backward pass, without a scaler around it."""
    on = receiver(backward)
    assert on is not None
    if isinstance(on, cst.Call) and method(on) == "scale" and on.args:
        return on.args[0].value
    return on


def _in_body(porting: Porting, node: cst.CSTNode, body: cst.CSTNode) -> cst.CSTNode:
    """The statement of a block that contains a node."""
    at = porting.tree.statement(node)
    while (parent := porting.tree.parent(at)) is not None and parent is not body:
        at = parent
    return at


def _later(body: cst.CSTNode, at: cst.CSTNode) -> Sequence[cst.CSTNode]:
    """The statements of a block after one of them."""
    if not isinstance(body, cst.IndentedBlock):
        return ()
    place = next((n for n, one in enumerate(body.body) if one is at), len(body.body))
    return body.body[place + 1 :]


def _simple(loop: Loop) -> list[cst.SimpleStatementLine]:
    return [node for node in nodes(loop.node.body) if isinstance(node, cst.SimpleStatementLine)]


def _outputs(porting: Porting, loop: Loop) -> set[str]:
    """The names that hold the output of a model in a loop."""
    found: set[str] = set()
    for node in nodes(loop.node.body):
        if isinstance(node, cst.Assign) and isinstance(node.value, cst.Call):
            if porting.roles.is_model(node.value.func):
                found |= {dotted(name) for one in targets(node) for name in flat(one)} - {""}
    return found


def _report_losses(
    porting: Porting, own: list[cst.Call], losses: list[str], at: cst.CSTNode,
    earlier: Sequence[cst.CSTNode], after: Sequence[cst.CSTNode],
) -> None:  # fmt: skip
    """Average the losses that are reported, without a second use of their graphs."""
    ranks = porting.ranks
    again = any(any(a.keyword and a.keyword.value == "retain_graph" for a in b.args) for b in own)
    for name in dict.fromkeys(losses):
        if not name:
            continue
        if name in _reads(after) and not again:
            line = f'{name} = {ranks}.reduce({name}.detach(), reduction="mean")'
            porting.changes.after(at, [line], _LOSS)
        elif name in _reads(after):
            porting.changes.decide(at, f"{name} is the loss of this rank's part of the batch.")
        for statement in earlier:
            for call in calls(statement):
                on = receiver(call)
                if method(call) == "item" and on is not None and dotted(on).removesuffix(".data") == name:
                    new = f'{ranks}.reduce({name}.detach(), reduction="mean")'
                    porting.changes.replace(on, new, _LOSS)


def _accumulated(statements: Iterable[cst.CSTNode], tracked: set[str]) -> set[str]:
    """The tracked names that reports and counters read: not those that only a step of the training uses."""
    found: set[str] = set()
    for statement in statements:
        for node in nodes(statement):
            if isinstance(node, cst.AugAssign):
                found |= _names(node.value) & tracked
            elif isinstance(node, cst.Assign):
                found |= _names(node.value) & tracked
            elif isinstance(node, cst.Call) and method(node) in ("append", "extend", "update", "add", "print"):
                found |= {name for one in node.args for name in _names(one.value)} & tracked
    return found


def _only_size(statements: Iterable[cst.CSTNode], name: str) -> bool:
    """Whether only the length of a tensor is read."""
    for statement in statements:
        allowed: set[int] = set()
        for node in nodes(statement):
            if isinstance(node, cst.Call) and _is_size(node, name):
                allowed |= {id(one) for one in nodes(node)}
            if isinstance(node, cst.Subscript) and dotted(node.value) == f"{name}.shape":
                allowed |= {id(one) for one in nodes(node)}
        for node in nodes(statement):
            if isinstance(node, cst.Name) and node.value == name and id(node) not in allowed:
                return False
    return True


def _is_size(call: cst.Call, name: str) -> bool:
    if dotted(call.func) == "len" and call.args:
        return dotted(call.args[0].value) == name
    return dotted(call.func) == f"{name}.size" and len(call.args) == 1


def _sizes(porting: Porting, after: Iterable[cst.CSTNode], name: str, whole: Sequence[str]) -> None:
    """Use the size of the whole batch: that of a gathered tensor, else the part times the number of ranks."""
    for statement in after:
        for node in nodes(statement):
            size = isinstance(node, cst.Call) and _is_size(node, name)
            size = size or (isinstance(node, cst.Subscript) and dotted(node.value) == f"{name}.shape")
            if size:
                code = porting.tree.code(node)
                new = f"len({whole[0]})" if whole else f"{code} * {porting.ranks}.num_processes"
                porting.changes.replace(node, new, "The size of the whole batch, as before.")


def _accumulates_loss_only(statement: cst.CSTNode, tracked: set[str], losses: Sequence[str]) -> bool:
    return not (_names(statement) & tracked)


def _sum_here(porting: Porting, statement: cst.CSTNode, tracked: set[str], losses: Sequence[str]) -> None:
    """Sum a count over the ranks where it is made: `(pred == y).sum().item()`, `y.size(0)`."""
    done = False
    for node in nodes(statement):
        if isinstance(node, cst.Call) and method(node) == "item" and not done:
            on = receiver(node)
            if isinstance(on, cst.Call) and method(on) == "sum" and _names(on) & tracked:
                code = porting.tree.code(on)
                porting.changes.edit(
                    on, lambda _, code=code: cst.parse_expression(
                        f'{porting.ranks}.reduce({code}, reduction="sum")'), _GATHER
                )  # fmt: off
                done = True
    for name in tracked:
        for node in nodes(statement):
            if isinstance(node, cst.Call) and _is_size(node, name):
                code = porting.tree.code(node)
                porting.changes.replace(
                    node, f"{code} * {porting.ranks}.num_processes", "The size of the whole batch, as before."
                )
                done = True
    if not done:
        porting.changes.decide(statement, _PARTLY.format(porting.ranks))
