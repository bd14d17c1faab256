"""Mixed precision by hand (autocast, GradScaler) is replaced by that of Accelerate, if all of it is understood."""

from __future__ import annotations

import re

import libcst as cst

from mgpu.port.porting import Porting
from mgpu.port.source_tree import argument, assigned, calls, dotted, keywords, method, nodes, receiver, text_of

_REASON = "Accelerate runs autocast and scales the loss itself, so that the settings of its config apply."
_AUTOCAST = re.compile(r"torch\.(?:cuda\.|cpu\.)?(?:amp\.)?(?:autocast_mode\.)?autocast")
_SIMPLE = {"scale", "step", "update", "unscale_"}


def plan(porting: Porting) -> None:
    """Collect the changes of mixed precision. By hand it is also right on several ranks, and stays if in doubt."""
    casts = [call for call in calls(porting.tree.module) if _AUTOCAST.fullmatch(porting.tree.name(call.func))]
    scalers = porting.roles.origins("scaler")
    if not casts and not scalers:
        return
    kind = _kind(porting, casts)
    if porting.ddp or kind is None or not _is_understood(porting, casts):
        porting.note("Mixed precision stays by hand: it is right on several ranks too.")
        return
    porting.mixed_precision = kind
    for call in casts:
        porting.changes.replace(call, f"{porting.ranks}.autocast()", _REASON)
    for origin in scalers:
        porting.changes.remove(origin.node, _REASON)
    for call in calls(porting.tree.module):
        on = receiver(call)
        if on is None or not porting.roles.of(on, "scaler"):
            continue
        if method(call) in ("update", "unscale_"):
            porting.changes.remove(call, _REASON)
        elif method(call) == "step":
            porting.changes.edit(call, _step, _REASON)


def _step(updated: cst.Call) -> cst.Call:
    return cst.Call(func=cst.Attribute(value=updated.args[0].value, attr=cst.Name("step")))


def _kind(porting: Porting, casts: list[cst.Call]) -> str | None:
    """The argument of the Accelerator; None if the calls disagree or depend on what only the run knows."""
    found = set()
    for call in casts:
        if keywords(call) - {"device_type", "dtype", "enabled", "cache_enabled"}:
            return None
        enabled = argument(call, 9, "enabled")
        if enabled is not None and dotted(enabled) != "True":
            return None
        old = porting.tree.name(call.func).startswith("torch.cuda")
        dtype = argument(call, 9 if old else 1, "dtype")
        name = porting.tree.name(dtype) if dtype is not None else "torch.float16"
        device = None if old else argument(call, 0, "device_type")
        if name not in ("torch.float16", "torch.half", "torch.bfloat16"):
            return None
        if not old and text_of(device) != "cuda" and dtype is None:
            return None  # the type depends on the device
        on_gpu = old or text_of(device) == "cuda" or name != "torch.bfloat16"
        kind = '"bf16"' if name == "torch.bfloat16" else '"fp16"'
        found.add(f'{kind} if torch.cuda.is_available() else "no"' if on_gpu else kind)
    return found.pop() if len(found) == 1 else None


def _is_understood(porting: Porting, casts: list[cst.Call]) -> bool:
    tree = porting.tree
    if any(not isinstance(tree.parent(call), cst.WithItem) for call in casts):
        return False
    for origin in porting.roles.origins("scaler"):
        assert isinstance(origin.node, cst.Call)
        if any(
            dotted(one.value) != "True" for one in origin.node.args if one.keyword and one.keyword.value == "enabled"
        ):
            return False
        if assigned(tree.parent(origin.node)) is None:
            return False
    for node in nodes(tree.module):
        if isinstance(node, (cst.Name, cst.Attribute)) and porting.roles.of(node, "scaler"):
            above = tree.parent(node)
            used = isinstance(above, cst.Attribute) and above.value is node and above.attr.value in _SIMPLE
            bound = isinstance(above, (cst.AssignTarget, cst.AnnAssign))
            part = isinstance(above, cst.Attribute) and above.attr is node
            if not (used or bound or part):
                return False
    return True
