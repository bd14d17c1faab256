"""Loaders: every rank gets its part of each batch, so that the batch of the whole run stays the same."""

from __future__ import annotations

import re

import libcst as cst

from mgpu.port import batch_sizes
from mgpu.port.makers import Origin
from mgpu.port.porting import Porting
from mgpu.port.source_tree import argument, assigned, calls, dotted, keywords, nodes, targets, text_of

_REASON = (
    "Each rank gets its part of every batch. The batch of the whole run, the steps per epoch, the learning rate and "
    "the schedule stay as they are."
)
_SAME = "every rank trains on the batches of this batch_sampler (right, but not faster): let it make the rank's part."
_WHOLE = "every rank evaluates all of this data: right, but not faster."


def plan(porting: Porting) -> None:
    """Collect the changes of loaders. Evaluation loaders are split only if their loops were understood."""
    for origin in porting.roles.origins("loader"):
        loops = [loop for loop in porting.loops.all if origin in loop.loaders]
        trains = any(loop.trains for loop in loops) or _feeds_training(porting, origin)
        if trains and _own_batches(porting, origin):
            porting.changes.decide(origin.node, _SAME)
        elif trains or origin in porting.split:
            porting.split.add(origin)
            _wrap(porting, origin, trains=trains)
        elif loops:
            porting.note(_WHOLE, origin.node)


def _own_batches(porting: Porting, origin: Origin) -> bool:
    """Whether a sampler of the script makes whole batches: they have no size by which they could be split."""
    given = argument(origin.node, 99, "batch_sampler") if isinstance(origin.node, cst.Call) else None
    return given is not None and bool(porting.roles.of(given, "object"))


def _wrap(porting: Porting, origin: Origin, *, trains: bool) -> None:
    call = origin.node
    assert isinstance(call, cst.Call)

    def edit(updated: cst.Call) -> cst.Call:
        return cst.Call(func=cst.parse_expression(f"{porting.ranks}.prepare"), args=[cst.Arg(updated)])

    if not _joins(porting, call):
        porting.changes.edit(call, edit, _REASON)
    size = argument(call, 1, "batch_size")
    if (size is None and "**" not in keywords(call)) or (isinstance(size, cst.Integer) and size.value == "1"):
        porting.changes.decide(call, "batches of 1 cannot be split: choose a multiple of the number of ranks.")
    elif isinstance(size, cst.Integer):
        porting.note(f"the number of ranks must divide {size.value}.", call)
    if "drop_last" not in keywords(call):
        porting.note("On several ranks, an incomplete last batch is filled up with samples of the first one.")
    if isinstance(size, (cst.Name, cst.Attribute)) and trains:
        batch_sizes.divide(porting, size)
    for one in _reads_of(porting, origin, "batch_size"):
        porting.changes.edit(one, lambda updated: updated.with_changes(attr=cst.Name("total_batch_size")), _REASON)


def _joins(porting: Porting, call: cst.Call) -> bool:
    """Add a loader to the prepare of its block, if it has a name there; return whether it was added."""
    assign, statement = porting.tree.parent(call), porting.tree.statement(call)
    if assign is None or assigned(assign) is None or len(targets(assign)) != 1:
        return False
    name = dotted(targets(assign)[0])
    for site in porting.sites:
        if site.at is None or porting.tree.parent(statement) is not site.block or not name or not site.models:
            continue
        if porting.tree.line(statement) <= porting.tree.line(site.at):
            site.loaders.append(name)
            return True
    return False


def _reads_of(porting: Porting, origin: Origin, name: str) -> list[cst.Attribute]:
    return [
        node
        for node in nodes(porting.tree.module)
        if isinstance(node, cst.Attribute)
        and node.attr.value == name
        and origin in porting.roles.of(node.value, "loader")
    ]


def _feeds_training(porting: Porting, origin: Origin) -> bool:
    """Whether batches are taken with `next` in a function, or a block, that trains."""
    return any(
        dotted(call.func) == "next"
        and call.args
        and origin in porting.roles.of(call.args[0].value, "loader")
        and porting.loops.in_training(call)
        for call in calls(porting.tree.module)
    )


def can_split_evaluation(porting: Porting, origin: Origin) -> bool:
    """Whether gathered batches of an evaluation loader are certainly the same as on one process."""
    call = origin.node
    if not isinstance(call, cst.Call) or porting.tree.name(call.func).rpartition(".")[2] != "DataLoader":
        return False
    if keywords(call) & {"sampler", "batch_sampler", "collate_fn"} or _is_iterable(porting, call):
        return False
    size = argument(call, 1, "batch_size")
    if size is None:
        return any(_unpacked_names(porting, one.value) for one in call.args if one.star == "**")
    return not (isinstance(size, cst.Integer) and size.value == "1")


def _unpacked_names(porting: Porting, given: cst.BaseExpression) -> bool:
    """Whether unpacked options have a batch size, and nothing that changes how batches are made."""
    names: set[str] = set()
    name = dotted(given)
    for node in nodes(porting.tree.module):
        value = assigned(node)
        if value is not None and any(dotted(one) == name for one in targets(node)):
            names |= {text_of(one) or "" for one in nodes(value) if isinstance(one, cst.SimpleString)}
            names |= {one.keyword.value for one in nodes(value) if isinstance(one, cst.Arg) and one.keyword}
    return "batch_size" in names and not names & {"sampler", "batch_sampler", "collate_fn"}


def _is_iterable(porting: Porting, call: cst.Call) -> bool:
    """Whether the dataset of a loader is one of the script's iterable ones, or not known to be indexed."""
    classes = [
        name
        for name, every in porting.tree.classes.items()
        for found in every
        if porting.roles.is_class(found, r"torch\.utils\.data\.(?:\w+\.)?IterableDataset")
    ]
    return any(re.search(rf"\b{re.escape(name)}\(", one.text) for name in classes for one in porting.tree.files)
