"""Where the training reads the size of the whole batch: what is combined with a rank's part must have its size."""

from __future__ import annotations

import re

import libcst as cst

from mgpu.port.porting import Porting
from mgpu.port.source_tree import (
    Function,
    argument,
    assigned,
    calls,
    dotted,
    flat,
    keywords,
    method,
    nodes,
    parameters,
    targets,
)

_SIZE = "The rank's part of the batch: what is combined with it must have its size."
_EITHER = (
    "callers give the size of the whole batch, or another one: what is combined with a rank's part needs its size."
)
_MAKES = re.compile(
    r"(?:torch|numpy(?:\.random)?)\.(?:ones|zeros|full|empty|rand\w*|normal|uniform|arange|standard_normal|choice)"
    r"|(?:.*\.)?(?:view|reshape|expand|repeat|fill_|normal_|init_hidden|init_state|new_\w+|\w*Tensor)"
)
_DEEPEST = 5  # calls from which a size comes
_UNKNOWN = "?"


def divide(porting: Porting, size: cst.BaseExpression) -> None:
    """`torch.ones(batch_size, 1)`, `len(x) < batch_size` in the training, where it is the size of this loader's batch.

    A function that gets a `batch_size` may get that of the rank's part (`x.size(0)`), or of something that it samples.
    """
    text, whole = dotted(size), _sources(porting, size)
    for node in nodes(porting.tree.module):
        if not isinstance(node, (cst.Name, cst.Attribute)) or dotted(node) != text:
            continue
        above = porting.tree.parent(node)
        call = porting.tree.inside(node, cst.Call)
        if isinstance(above, cst.Attribute) or (isinstance(above, cst.Arg) and above.keyword is node):
            continue
        if not porting.loops.in_training(node) or porting.changes.touches(node):
            continue
        makes = call is not None and _MAKES.fullmatch(porting.tree.name(call.func) or method(call))
        if not makes and not _is_compared(porting, node):
            continue
        found = _sources(porting, node)
        if found <= whole:
            porting.changes.replace(node, f"{text} // {porting.ranks}.num_processes", _SIZE)
        elif _sources(porting, node, of_training=True) & (whole | {_UNKNOWN}):
            porting.changes.decide(node, f"{text}: {_EITHER}")


def _sources(
    porting: Porting, node: cst.BaseExpression, depth: int = 0, *, of_training: bool = False
) -> frozenset[object]:
    """The expressions that a variable gets its value from, through the calls of the function whose parameter it is.

    With `of_training`, only through the calls that the training makes.
    """
    if not isinstance(node, (cst.Name, cst.Attribute)):
        return frozenset({porting.tree.code(node)})
    key = porting.tree.key(node)
    if depth > _DEEPEST or key is None:
        return frozenset({_UNKNOWN})
    holder, name = key
    if isinstance(holder, cst.FunctionDef) and name in [one.value for one in parameters(holder)]:
        return _given(porting, holder, name, depth, of_training=of_training)
    values = [
        value
        for one in nodes(porting.tree.module)
        if (value := assigned(one)) is not None
        for target in targets(one)
        for single in flat(target)
        if dotted(single) == dotted(node) and porting.tree.key(single) == key
    ]
    if len(values) == 1 and isinstance(values[0], (cst.Name, cst.Attribute)):
        return _sources(porting, values[0], depth + 1, of_training=of_training)
    return frozenset({key if name.startswith("self.") or "." not in name else name})


def _given(porting: Porting, function: Function, name: str, depth: int, *, of_training: bool) -> frozenset[object]:
    """The values that the calls of a function give to a parameter; unknown if no call of it is visible."""
    found: set[object] = set()
    names = [one.value for one in parameters(function)]
    bound = bool(names) and names[0] in ("self", "cls")
    for call in calls(porting.tree.module):
        if function not in porting.roles.local_function(call):
            continue
        if of_training and not porting.loops.in_training(call):
            continue
        value = argument(call, names.index(name) - bound, name)
        if value is not None and not keywords(call) & {"*", "**"}:
            found |= _sources(porting, value, depth + 1, of_training=of_training)
        else:
            default = next((one.default for one in function.params.params if one.name.value == name), None)
            found |= {_UNKNOWN if default is None else porting.tree.code(default)}
    return frozenset(found or {_UNKNOWN})


def _is_compared(porting: Porting, node: cst.CSTNode) -> bool:
    """Whether a batch size is compared with the size of a tensor: `x.size(0) != batch_size`."""
    above = porting.tree.parent(node)
    comparison = porting.tree.parent(above) if isinstance(above, cst.ComparisonTarget) else above
    return isinstance(comparison, cst.Comparison) and any(
        (isinstance(one, cst.Call) and (method(one) == "size" or dotted(one.func) == "len"))
        or (isinstance(one, cst.Attribute) and one.attr.value == "shape")
        for one in nodes(comparison)
    )
