"""What cannot be changed safely is marked: batches that no DataLoader makes, losses that are sums, BatchNorm."""

from __future__ import annotations

import re
from itertools import takewhile

import libcst as cst

from mgpu.port.porting import Porting
from mgpu.port.source_tree import argument, assigned, calls, dotted, keywords, method, nodes, receiver, targets, text_of
from mgpu.port.training_loops import back_loop

_SUM = "{} sums the loss over the batch, but gradients are averaged over the ranks: multiply it by {}.num_processes."
_BATCHES = "every rank trains on the same batches (right, but not faster): give each rank its part of the batch."
_NORM = (
    "BatchNorm uses the part of the batch on each rank. On GPUs, SyncBatchNorm.convert_sync_batchnorm(model) keeps it."
)
_IGNORED = "each rank averages over its own targets that count, so those of a rank with fewer of them weigh more."
_BATCH_NORM = re.compile(
    r"torch\.nn\.(?:Lazy)?BatchNorm[123]d|torchvision\.models\.(?:\w+\.)*(?:resnet|vgg\w*_bn|mobile)\w*"
)
_BY_TIME = (
    "each rank has another text here, and the script loads files: if it names one, send the main process's text to all "
    "ranks{}."
)
_SEND = " (accelerate.utils.broadcast_object_list)"
_TIME = re.compile(r"(?:datetime\.)?datetime\.(?:now|today|utcnow)|time\.(?:time|time_ns|strftime|ctime)|uuid\.uuid\d")
_PART = "Each rank trains on its part of the batch, which all ranks draw equally."


def plan(porting: Porting) -> None:
    """Mark what the user has to decide."""
    _sums(porting)
    _manual_batches(porting)
    _loose_parameters(porting)
    _norm(porting)
    _tokens(porting)
    _names_by_time(porting)
    _special(porting)


def _sums(porting: Porting) -> None:
    """Losses with reduction="sum" in the training."""
    tree = porting.tree
    for call in calls(tree.module):
        total = text_of(argument(call, 99, "reduction")) == "sum"
        total = total or dotted(argument(call, 99, "size_average") or call) == "False"
        if not total:
            continue
        holder = next((o for o in porting.roles.origins("criterion") if o.node is call), None)
        if holder is not None:
            used = [c for c in calls(tree.module) if holder in porting.roles.of(c.func, "criterion")]
        else:
            used = [call]
        trains = any(porting.loops.in_training(c) for c in used)
        if trains and not _is_averaged(porting, [*used, *porting.loops.backwards]):
            for backward in porting.loops.backwards:
                porting.changes.decide(backward, _SUM.format(tree.where(call), porting.ranks))
            return


def _is_averaged(porting: Porting, used: list[cst.Call]) -> bool:
    """Whether a sum is divided by the size of the batch, as the mean over the rank's part is."""
    tree = porting.tree
    functions = [tree.inside(call, cst.FunctionDef) for call in used]
    for node in nodes(tree.module):
        if (parts := _division(node)) is None:
            continue
        function = tree.inside(node, cst.FunctionDef)
        kept = isinstance(tree.simple_statement(node), (cst.Assign, cst.AnnAssign, cst.Return))
        reported = any(method(call) == "item" for call in calls(parts[0]))
        if kept and not reported and any(function is one for one in functions) and _is_size(porting, parts[1]):
            return True
    return False


def _division(node: cst.CSTNode) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """What is divided, and by what: `a / b`, `a.div(b)`."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Divide):
        return node.left, node.right
    if isinstance(node, cst.Call) and method(node) == "div" and len(node.args) == 1 and receiver(node) is not None:
        return cst.ensure_type(node.func, cst.Attribute).value, node.args[0].value
    return None


def _is_size(porting: Porting, node: cst.BaseExpression, depth: int = 0) -> bool:
    """Whether an expression is the length of a tensor: `x.size(0)`, `x.shape[0]`, `len(x)`, or a variable for it."""
    if isinstance(node, cst.Name) and depth == 0:
        values = [
            (porting.tree.inside(one, cst.FunctionDef), value)
            for one in nodes(porting.tree.module)
            if (value := assigned(one)) and node.value == dotted(targets(one)[0])
        ]
        here = porting.tree.inside(node, cst.FunctionDef)
        own = [value for function, value in values if function is here] or [value for _, value in values]
        return bool(own) and all(_is_size(porting, one, 1) for one in own)
    if isinstance(node, cst.Subscript):
        return dotted(node.value).endswith(".shape")
    if not isinstance(node, cst.Call) or not node.args:
        return False
    of_tensor = dotted(node.func) == "len" and not porting.roles.value(node.args[0].value)
    return method(node) == "size" or (of_tensor and "data" not in porting.tree.code(node))


def _manual_batches(porting: Porting) -> None:
    """A training loop whose batches no loader makes."""
    tree = porting.tree
    for backward in porting.loops.backwards:
        function = tree.inside(backward, cst.FunctionDef)
        loops = [a for a in tree.parents(backward) if isinstance(a, cst.For) and porting.roles.of(a.iter, "loader")]
        if loops or (porting.split and (_gets_batches(porting, function) or _takes_next(porting))):
            continue
        at = back_loop(tree, backward) or backward
        if not _split_draw(porting, at):
            porting.changes.decide(at, _BATCHES)


def _gets_batches(porting: Porting, function: cst.FunctionDef | None, depth: int = 0) -> bool:
    """Whether a function is called for each batch of a loader."""
    if function is None or depth > 3:
        return False
    for call in calls(porting.tree.module):
        if function in porting.roles.local_function(call):
            around = [a for a in porting.tree.parents(call) if isinstance(a, cst.For)]
            if any(porting.roles.of(one.iter, "loader") for one in around):
                return True
            if _gets_batches(porting, porting.tree.inside(call, cst.FunctionDef), depth + 1):
                return True
    return False


def _takes_next(porting: Porting) -> bool:
    """Whether the training takes its batches with `next`."""
    return any(
        dotted(call.func) == "next"
        and call.args
        and porting.roles.of(call.args[0].value, "loader") & porting.split
        and porting.loops.in_training(call)
        for call in calls(porting.tree.module)
    )


def _split_draw(porting: Porting, loop: cst.CSTNode) -> bool:
    """Split a batch that is drawn by random indices: `x[index]`, or a function that stacks such samples."""
    if not isinstance(loop, (cst.For, cst.While)):
        return False
    for node in nodes(loop.body, nested=False):
        drawn = assigned(node)
        if len(targets(node)) != 1 or not isinstance(drawn, cst.Call):
            continue
        names = [dotted(name) for one in targets(node) for name in flat_names(one)]
        functions = porting.roles.local_function(drawn)
        if names and all(names) and functions and all(_stacks_random(porting, f) for f in functions):
            if porting.tree.inside(node, type(loop)) is not loop:
                return False
            part = f".tensor_split({porting.ranks}.num_processes)[{porting.ranks}.process_index]"
            values = ", ".join(name + part for name in names)
            porting.changes.after(node, [f"{', '.join(names)} = {values}"], _PART)
            return True
    return False


def flat_names(target: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The elements of a tuple of targets, or the target."""
    return [e.value for e in target.elements] if isinstance(target, (cst.Tuple, cst.List)) else [target]


def _stacks_random(porting: Porting, function: cst.FunctionDef) -> bool:
    """Whether a function draws torch.randint indices and stacks a sample for each: the batch is dimension 0."""
    names = [porting.tree.name(call.func) for call in calls(function.body)]
    return "torch.randint" in names and names.count("torch.stack") >= 1


def _norm(porting: Porting) -> None:
    for call in calls(porting.tree.module):
        if _BATCH_NORM.fullmatch(porting.tree.name(call.func)):
            porting.note(_NORM, call)
            return


def _loose_parameters(porting: Porting) -> None:
    """Tensors that an optimizer trains without a model around them: `Adam([{"params": [log_alpha]}])`."""
    for origin in porting.roles.origins("optimizer"):
        given = argument(origin.node, 0, "params") if isinstance(origin.node, cst.Call) else None
        for node in nodes(given) if given is not None else ():
            if not isinstance(node, (cst.List, cst.Tuple)):
                continue
            loose = [dotted(one.value) for one in node.elements if isinstance(one.value, (cst.Name, cst.Attribute))]
            if loose:
                text = f"gradients of {', '.join(loose)} are not averaged unless a prepared model holds them."
                porting.changes.decide(origin.node, text)


def _tokens(porting: Porting) -> None:
    """Losses that are averaged over the tokens that count."""
    for call in calls(porting.tree.module):
        if "ignore_index" in keywords(call):
            porting.note(_IGNORED, call)
            return


def _names_by_time(porting: Porting) -> None:
    """Texts made of the time: a file with such a name is another one on each rank."""
    tree = porting.tree
    if not any(tree.name(call.func) == "torch.load" for call in calls(tree.module)):
        return
    for call in calls(tree.module):
        if not _TIME.fullmatch(tree.name(call.func)):
            continue
        small = tree.simple_statement(call)
        around = takewhile(lambda above: not isinstance(above, cst.BaseSmallStatement), tree.parents(call))
        if any(_makes_text(one) for one in (call, *around)) and (
            assigned(small) is not None or any(method(c) == "add_argument" for c in calls(small or call))
        ):
            porting.changes.decide(call, _BY_TIME.format("" if porting.ddp else _SEND))


def _makes_text(node: cst.CSTNode) -> bool:
    """Whether an expression makes a text of what is in it."""
    made = ("str", "hex", "strftime", "isoformat", "format", "ctime")
    return isinstance(node, cst.FormattedString) or (isinstance(node, cst.Call) and method(node) in made)


def _special(porting: Porting) -> None:
    """Constructs that DistributedDataParallel does not follow."""
    tree = porting.tree
    for call in calls(tree.module):
        name = tree.name(call.func)
        if name == "torch.autograd.backward":
            porting.changes.decide(call, f"use {porting.ranks}.backward(loss), which averages the gradients.")
        elif name.startswith(("torch.func.", "torch.autograd.functional.")) and porting.loops.in_training(call):
            porting.changes.decide(call, "gradients computed here are not averaged over the ranks.")
        elif name == "torch.autograd.grad" and porting.loops.in_training(call) and "create_graph" not in keywords(call):
            porting.changes.decide(call, "gradients computed by autograd.grad are not averaged over the ranks.")
        elif name == "input":
            porting.changes.decide(call, "every rank waits for an answer, and only one of them can get it.")
        elif name in ("breakpoint", "pdb.set_trace", "ipdb.set_trace"):
            porting.changes.decide(call, "every rank stops in a debugger here, and only one of them can be typed to.")
        elif name == "apex.amp.initialize":
            porting.changes.decide(call, "apex.amp does not know accelerate's optimizer: use mixed_precision instead.")
        elif name == "get_ipython":
            porting.changes.decide(call, "this line is for a notebook: remove it, a script stops here.")
        elif name == "torch.optim.LBFGS":
            porting.changes.decide(call, "LBFGS calls a closure: check that every rank has the same loss in it.")
    for node in nodes(tree.module):
        steps = isinstance(node, cst.Call) and method(node) == "step" and bool(node.args)
        if steps and isinstance(node, cst.Call) and porting.roles.of(receiver(node), "optimizer"):
            porting.changes.decide(node, "the closure computes the loss of this rank only.")
