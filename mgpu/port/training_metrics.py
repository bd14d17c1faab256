"""What a training loop reports: the loss and the counts of the whole batch, not of one rank's part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import libcst as cst

from mgpu.port.batch_names import accumulates, batch_names, follow_batch, names_collected, names_in, names_read
from mgpu.port.gathered_metrics import GATHER
from mgpu.port.porting import Porting
from mgpu.port.source_tree import assigned, calls, dotted, flat, method, nodes, receiver, targets
from mgpu.port.training_loops import Loop, back_loop

_LOSS = "Each rank has the loss of its own part: what is printed and compared is the mean over all ranks."
_PARTLY = "this counts only the part of the batch on this rank: sum it over the ranks with {}.reduce."
_GATHER = "this collects only the part of the batch on this rank: gather it first with {}.gather_for_metrics."


def plan(porting: Porting) -> None:
    """Collect the changes of the metrics of training."""
    for loop in porting.loops.all:
        if loop.trains:
            _training(porting, loop)
    _steps_elsewhere(porting)


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
    for name in dict.fromkeys(losses):
        if name.isidentifier() and name not in names_read(after):
            _report_after(porting, loop.node, name)
    outputs = _outputs(porting, loop)
    tracked, derived = follow_batch(batch_names(loop) | outputs, earlier, outputs)
    tracked -= set(losses)
    for statement in after:
        if lost := names_collected([statement], derived - set(losses)):
            porting.changes.decide(statement, f"{', '.join(sorted(lost))}: {_PARTLY.format(porting.ranks)}")
    read = names_collected(after, tracked)
    sized = {name for name in read if _only_size(after, name)}
    whole = sorted(read - sized)
    if whole:
        values = ", ".join(f"{name}.detach()" if name in outputs else name for name in whole)
        joined = ", ".join(whole)
        group = values if len(whole) == 1 else f"({values})"
        porting.changes.after(at, [f"{joined} = {porting.ranks}.gather_for_metrics({group})"], GATHER)
    for name in sized:
        _sizes(porting, after, name, whole)
    for statement in earlier:
        if accumulates(statement, tracked) and not _accumulates_loss_only(statement, tracked, losses):
            _sum_here(porting, statement, tracked, losses)
        elif lost := _collected(loop, statement, derived - set(losses)):
            porting.changes.decide(statement, f"{', '.join(sorted(lost))}: {_GATHER.format(porting.ranks)}")


def _collected(loop: Loop, statement: cst.CSTNode, derived: set[str]) -> set[str]:
    """The names computed from this rank's part of the batch that a statement adds to what outlives the iteration."""
    own = {dotted(name) for node in nodes(loop.node) for one in targets(node) for name in flat(one)}
    found: set[str] = set()
    for node in nodes(statement):
        if isinstance(node, cst.Call) and method(node) in ("append", "extend"):
            on = receiver(node)
            if on is not None and dotted(on) not in own:
                found |= {name for one in node.args for name in names_in(one.value)} & derived
    return found


def _steps_elsewhere(porting: Porting) -> None:
    """Steps of the training that are not in a loop over a loader: a function for one step, `while`, `next`."""
    loops = {id(loop.node) for loop in porting.loops.all}
    blocks: dict[int, tuple[cst.CSTNode, list[cst.Call]]] = {}
    for backward in porting.loops.backwards:
        around = back_loop(porting.tree, backward) or porting.tree.inside(backward, cst.FunctionDef)
        if around is not None and id(around) not in loops and porting.loops.feeds:
            blocks.setdefault(id(around), (around.body, []))[1].append(backward)
    for body, own in blocks.values():
        _step(porting, body, own)


def _step(porting: Porting, body: cst.CSTNode, own: list[cst.Call]) -> None:
    """Report the loss of a step, and mark what else is reported of this rank's part."""
    at = _in_body(porting, own[-1], body)
    after = _later(body, at)
    losses = [dotted(_loss(porting, backward)) for backward in own]
    lines = [node for node in nodes(body) if isinstance(node, cst.SimpleStatementLine)]
    earlier = [s for s in lines if porting.tree.line(s) < porting.tree.line(own[-1])]
    earlier = [s for s in earlier if not any(one is b for one in nodes(s) for b in own)]
    _report_losses(porting, own, losses, at, earlier, after)
    computed = _computed(porting, earlier) - set(losses)
    for statement in after:
        lost = names_collected([statement], computed)
        values = [n.value for n in nodes(statement) if isinstance(n, cst.Return) and n.value is not None]
        lost |= {name for value in values for name in names_in(value)} & computed
        if lost:
            porting.changes.decide(statement, f"{', '.join(sorted(lost))}: {_PARTLY.format(porting.ranks)}")


def _computed(porting: Porting, statements: Sequence[cst.CSTNode]) -> set[str]:
    """The names that hold what a model computed, or something computed from it."""
    found: set[str] = set()
    for statement in statements:
        for node in nodes(statement):
            if (value := assigned(node)) is None:
                continue
            by_model = any(porting.roles.is_model(call.func) for call in calls(value))
            if by_model or names_in(value) & found:
                found |= {dotted(name) for one in targets(node) for name in flat(one)} - {""}
    return found


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
    if not isinstance(body, (cst.IndentedBlock, cst.Module)):
        return ()
    place = next((n for n, one in enumerate(body.body) if one is at), len(body.body))
    return body.body[place + 1 :]


def _simple(loop: Loop) -> list[cst.SimpleStatementLine]:
    return [node for node in nodes(loop.node.body) if isinstance(node, cst.SimpleStatementLine)]


def _outputs(porting: Porting, loop: Loop) -> set[str]:
    """The names that hold the output of a model in a loop."""
    found: set[str] = set()
    for node in nodes(loop.node.body):
        value = assigned(node)
        if isinstance(value, cst.Call) and porting.roles.is_model(value.func):
            found |= {dotted(name) for one in targets(node) for name in flat(one)} - {""}
    return found


def _report_losses(
    porting: Porting,
    own: list[cst.Call],
    losses: list[str],
    at: cst.CSTNode,
    earlier: Sequence[cst.CSTNode],
    after: Sequence[cst.CSTNode],
) -> None:
    """Average the losses that are reported, without a second use of their graphs."""
    ranks = porting.ranks
    again = any(any(a.keyword and a.keyword.value == "retain_graph" for a in b.args) for b in own)
    for name in dict.fromkeys(losses):
        if not name:
            continue
        if name in names_read(after) and not again:
            line = f'{name} = {ranks}.reduce({name}.detach(), reduction="mean")'
            porting.changes.after(at, [line], _LOSS)
        elif name in names_read(after):
            porting.changes.decide(at, f"{name} is the loss of this rank's part of the batch.")
        for statement in earlier:
            for call in calls(statement):
                on = _read(call)
                if on is not None and dotted(on) == name:
                    new = f'{ranks}.reduce({name}.detach(), reduction="mean")'
                    porting.changes.replace(on, new, _LOSS, on_all=True)


def _report_after(porting: Porting, loop: cst.CSTNode, name: str) -> None:
    """Average the loss of the last batch once, if it is read after the loop: all ranks run that statement."""
    current = loop
    while (block := porting.tree.parent(current)) is not None:
        for statement in _later(block, current):
            names = {one.value for one in nodes(statement, nested=False) if isinstance(one, cst.Name)}
            if name not in names or isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
                continue
            bound = [dotted(one) for node in nodes(statement) for target in targets(node) for one in flat(target)]
            if name not in bound:
                line = f'{name} = {porting.ranks}.reduce({name}.detach(), reduction="mean")'
                porting.changes.before(statement, [line], _LOSS)
            return
        if isinstance(block, (cst.FunctionDef, cst.Module)):
            return
        current = block


def _read(call: cst.Call) -> cst.BaseExpression | None:
    """The tensor whose value a call reads: `loss` of `loss.item()`, `loss.detach().cpu().numpy()` and `float(loss)`."""
    on = call.args[0].value if dotted(call.func) == "float" and len(call.args) == 1 else receiver(call)
    if on is None or not (dotted(call.func) == "float" or method(call) in ("item", "tolist", "numpy")):
        return None
    while True:
        if isinstance(on, cst.Call) and method(on) in ("detach", "cpu", "clone") and not on.args:
            assert isinstance(on.func, cst.Attribute)
            on = on.func.value
        elif isinstance(on, cst.Attribute) and on.attr.value == "data":
            on = on.value
        else:
            return on


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
    return not (names_in(statement) & tracked)


def _sum_here(porting: Porting, statement: cst.CSTNode, tracked: set[str], losses: Sequence[str]) -> None:
    """Sum a count over the ranks where it is made: `(pred == y).sum().item()`, `y.size(0)`."""
    done = False
    for node in nodes(statement):
        if isinstance(node, cst.Call) and method(node) == "item" and not done:
            on = receiver(node)
            if isinstance(on, cst.Call) and method(on) == "sum" and names_in(on) & tracked:
                code = f'{porting.ranks}.reduce({porting.tree.code(on)}, reduction="sum")'
                porting.changes.replace(on, code, GATHER, on_all=True)
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
