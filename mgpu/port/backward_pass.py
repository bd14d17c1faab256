"""The backward pass and gradient clipping go through the object that knows the ranks."""

from __future__ import annotations

import libcst as cst

from mgpu.port.porting import Porting
from mgpu.port.source_tree import calls, keywords, method, receiver

_BACKWARD = "accelerator.backward also works with mixed precision, DeepSpeed and FSDP. Otherwise it is loss.backward()."
_CLIP = "The norm is that of the whole model, also if gradients are scaled or sharded."
_CLIPS = {
    "torch.nn.utils.clip_grad_norm_": ("clip_grad_norm_", {"parameters", "max_norm", "norm_type"}),
    "torch.nn.utils.clip_grad.clip_grad_norm_": ("clip_grad_norm_", {"parameters", "max_norm", "norm_type"}),
    "torch.nn.utils.clip_grad_value_": ("clip_grad_value_", {"parameters", "clip_value"}),
}


def plan(porting: Porting) -> None:
    """Collect the changes of backward passes and clipping. Plain torch.distributed needs none of them."""
    if porting.ddp:
        return
    for call in porting.loops.backwards:
        _backward(porting, call)
    for call in calls(porting.tree.module):
        name, accepted = _CLIPS.get(porting.tree.name(call.func), ("", set()))
        if name and keywords(call) <= accepted:
            porting.changes.rename_call(call, f"{porting.ranks}.{name}", _CLIP)


def _backward(porting: Porting, call: cst.Call) -> None:
    ranks = porting.ranks

    def edit(updated: cst.Call) -> cst.Call:
        assert isinstance(updated.func, cst.Attribute)
        loss = updated.func.value
        if porting.mixed_precision and _is_scaled(porting, call):
            assert isinstance(loss, cst.Call)
            loss = loss.args[0].value
        if isinstance(loss, (cst.BinaryOperation, cst.Call)) and loss.lpar:
            loss = loss.with_changes(lpar=[], rpar=[])
        comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        args = [cst.Arg(loss, comma=comma if updated.args else cst.MaybeSentinel.DEFAULT)]
        for one in updated.args:
            named = one.keyword is not None or one.star
            args.append(
                one
                if named
                else one.with_changes(
                    keyword=cst.Name("gradient"),
                    equal=cst.AssignEqual(
                        whitespace_before=cst.SimpleWhitespace(""), whitespace_after=cst.SimpleWhitespace("")
                    ),
                )
            )
        return cst.Call(func=cst.parse_expression(f"{ranks}.backward"), args=args)

    porting.changes.edit(call, edit, _BACKWARD)


def _is_scaled(porting: Porting, call: cst.Call) -> bool:
    on = receiver(call)
    return isinstance(on, cst.Call) and method(on) == "scale" and bool(porting.roles.of(receiver(on), "scaler"))
