"""Gradients of what a method or a part of a model computes: the wrapper averages only those of `model(...)`."""

from __future__ import annotations

import libcst as cst

from mgpu.port.porting import Porting, free_name
from mgpu.port.source_tree import calls, dotted, method, receiver
from mgpu.port.training_loops import back_loop

_AVERAGE = (
    "{} goes past the wrapper, which averages only the gradients of {}(...): average them here. With FSDP or "
    "DeepSpeed, call {}(...) instead."
)
_NOT_COMPUTED = (
    "load_state_dict",
    "state_dict",
    "named_parameters",
    "modules",
    "named_modules",
    "children",
    "apply",
)


def trains_by_method(porting: Porting, call: cst.Call, name: str) -> bool:
    """Whether a method of the model computes with its parameters in the training."""
    if name in _NOT_COMPUTED or not porting.loops.in_training(call):
        return False
    own = [f for f in porting.tree.functions.get(name, []) if porting.tree.inside(f, cst.ClassDef) is not None]
    if not own:
        return True
    return any(
        (dotted(receiver(one) or one) == "self" and method(one) not in ("parameters", "named_parameters"))
        or dotted(one.func) == "self"
        for function in own
        for one in calls(function.body)
    )


def average(porting: Porting, node: cst.CSTNode, model: str, what: str) -> None:
    """Average the gradients of a model after each backward pass that a node leads to, or mark the node.

    `model` is its variable, `what` the call or part that goes past the wrapper. Averaging again what the wrapper has
    averaged changes nothing. A parameter must have a gradient on all ranks or on none.
    """
    around = porting.tree.inside(node, cst.FunctionDef)
    loop = back_loop(porting.tree, node)
    passes = [
        one
        for one in porting.loops.backwards
        if porting.tree.inside(one, cst.FunctionDef) is around
        and back_loop(porting.tree, one) is loop
        and porting.tree.line(one) >= porting.tree.line(node)
    ]
    if porting.unused or not passes or not all(part.isidentifier() for part in model.split(".")):
        text = f"gradients of what {what} computes are not averaged: call {model}(...) to train."
        porting.changes.decide(node, text)
        return
    one = free_name(porting.tree, "parameter", "averaged")
    lines = (
        f"for {one} in {model}.parameters():\n    if {one}.grad is not None:\n"
        f'        {one}.grad = {porting.ranks}.reduce({one}.grad, reduction="mean")'
    )
    for backward in passes:
        if (id(backward), model) not in porting.averaged:
            porting.averaged.add((id(backward), model))
            porting.changes.after(backward, [lines], _AVERAGE.format(what, model, model))
