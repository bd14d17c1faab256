"""Does a model's forward pass certainly use all of its parameters?

It is certain only for plain code: __init__ makes layers of torch.nn, or models of the script for which the same holds,
and each of them reaches the one value that forward returns, without any condition.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from mgpu.readers.training_script.targets import names_in

# Layers all of whose parameters are in each forward pass. One that returns several values may be used in part.
PLAIN_LAYER = re.compile(
    r"torch\.nn\.(?:modules\.\w+\.)?(?:Linear|Bilinear|Conv\w+|Embedding|EmbeddingBag|BatchNorm\w+|SyncBatchNorm"
    r"|LayerNorm|GroupNorm|InstanceNorm\w+|RMSNorm|PReLU|TransformerEncoder|TransformerEncoderLayer|TransformerDecoder"
    r"|TransformerDecoderLayer|Transformer)"
)
CONTAINER = re.compile(r"torch\.nn\.(?:modules\.\w+\.)?(?:Sequential|ModuleList)")
_WITHOUT_PARAMETERS = re.compile(
    r"torch\.nn\.(?:modules\.\w+\.)?(?:\w*ReLU6?|GELU|SiLU|Mish|E?LU|SELU|CELU|GLU|Tanh|Sigmoid|Hard\w+|Softplus"
    r"|(?:Log)?Softmax|Dropout\w*|\w+Pool[123]d|Flatten|Unflatten|Identity|Upsample|PixelShuffle|ZeroPad\w+|\w+Loss)"
)
_MODULE = re.compile(r"torch\.nn\.(?:modules\.(?:module\.)?)?Module")
_BRANCHES = (ast.If, ast.IfExp, ast.BoolOp, ast.Try, ast.While, ast.With, ast.Match, ast.Lambda, ast.NamedExpr)
_OTHER_WAYS = frozenset(
    {"requires_grad", "requires_grad_", "detach", "no_grad", "add_module", "register_module", "data"}
)
_OTHER_NAMES = frozenset({"setattr", "getattr", "no_grad"})
Resolve = Callable[[ast.expr], str | None]


def needed_classes(node: ast.ClassDef, resolve: Resolve) -> frozenset[str] | None:
    """Return the script's classes that a model's layers have, if its forward pass certainly uses all its parameters.

    None: it may not, or that is not known. The same must hold for each of the classes.
    """
    methods = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
    init, forward = methods.get("__init__"), methods.get("forward")
    if init is None or forward is None or init.decorator_list or forward.decorator_list:
        return None
    if not all(_MODULE.fullmatch(resolve(base) or "") for base in node.bases) or not node.bases:
        return None
    if any(_is_other_way(one) for one in ast.walk(node)):
        return None
    layers = _layers(init, resolve)
    if layers is None or not _uses_all(forward, {name for name, made in layers.items() if made is not None}):
        return None
    return frozenset(name for made in layers.values() if made for name in made)


def uses_all(name: str, needed: Mapping[str, frozenset[str] | None], seen: frozenset[str] = frozenset()) -> bool:
    """Whether a class of the script certainly uses all of its parameters, with all that its layers are made of."""
    below = needed.get(name)
    return below is not None and name not in seen and all(uses_all(one, needed, seen | {name}) for one in below)


def _is_other_way(node: ast.AST) -> bool:
    """Whether a node may freeze, hide or add parameters in a way that is not followed."""
    if isinstance(node, ast.Attribute):
        return node.attr in _OTHER_WAYS
    return isinstance(node, ast.Name) and node.id in _OTHER_NAMES


def _layers(init: ast.FunctionDef, resolve: Resolve) -> dict[str, tuple[str, ...] | None] | None:
    """Return the attributes that __init__ sets: the script's classes in them, or None if they have no parameters.

    None for all: one of them may be anything.
    """
    found: dict[str, tuple[str, ...] | None] = {}
    for statement in init.body:
        own = [one for one in ast.walk(statement) if isinstance(one, ast.Attribute) and _is_own(one)]
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if [one for one in own if isinstance(one.ctx, ast.Store)] != [one for one in targets if one in own]:
            return None  # in a branch or loop, or several at once
        for target in targets:
            if isinstance(target, ast.Attribute) and _is_own(target):
                made = _made(statement.value, resolve)  # type: ignore[attr-defined]
                if made == "unknown" or target.attr in found:
                    return None
                found[target.attr] = made  # type: ignore[assignment]
    return found


def _made(value: ast.expr, resolve: Resolve) -> tuple[str, ...] | str | None:
    """Return the script's classes in a layer with parameters, None for a value without any, or "unknown"."""
    if not any(isinstance(one, ast.Name | ast.Call | ast.Attribute) for one in ast.walk(value)):
        return None  # a constant
    if not isinstance(value, ast.Call):
        return "unknown"
    name = resolve(value.func) or ""
    if _WITHOUT_PARAMETERS.fullmatch(name) and name.rpartition(".")[2] != "PReLU":
        return None
    if PLAIN_LAYER.fullmatch(name):
        return ()
    if not CONTAINER.fullmatch(name):
        return (name,)
    parts = value.args
    if len(parts) == 1 and isinstance(parts[0], ast.List):
        parts = parts[0].elts
    elif len(parts) == 1 and isinstance(parts[0], ast.ListComp):
        parts = [parts[0].elt]
    inner = [_made(one, resolve) for one in parts]
    if "unknown" in inner or value.keywords:
        return "unknown"
    return tuple(name for one in inner if one for name in one)


def _uses_all(forward: ast.FunctionDef, layers: set[str]) -> bool:
    """Whether each layer reaches the value that forward returns at its end, its only one."""
    statements = [one for one in forward.body if not _only_raises(one)]
    last = statements[-1] if statements else None
    returns = [one for one in ast.walk(forward) if isinstance(one, ast.Return)]
    if not isinstance(last, ast.Return) or len(returns) != 1 or isinstance(last.value, _SEVERAL):
        return False
    if any(isinstance(inner, _BRANCHES) for one in statements for inner in ast.walk(one)):
        return False
    live, used = _read(last)
    if isinstance(last.value, ast.Name) and _may_be_several(statements, last.value.id):
        return False
    _go_back(statements[:-1], live, used)
    return layers <= used


_SEVERAL = (ast.Tuple, ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp)


def _may_be_several(statements: Iterable[ast.stmt], name: str) -> bool:
    """Whether a variable holds a tuple or dict, of which the loss may read only a part."""
    values = [one.value for one in statements if isinstance(one, ast.Assign) and name in names_in(one.targets[0])]
    return any(isinstance(value, _SEVERAL) for value in values)


def _go_back(statements: Sequence[ast.stmt], live: set[str], used: set[str]) -> None:
    """Follow the value of the variables in `live` back to the layers that it is computed with; add them to `used`."""
    for one in reversed(statements):
        if isinstance(one, ast.Assign | ast.AnnAssign | ast.AugAssign) and one.value is not None:
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            bound = {name for target in targets for name in names_in(target)}
            if not bound & live:
                continue
            if all(isinstance(target, ast.Name) for target in targets) and not isinstance(one, ast.AugAssign):
                live -= bound
            names, layers = _read(one.value)
            live |= names
            used |= layers
        elif isinstance(one, ast.For):
            for _ in range(2):  # a value of one round may reach the next
                _go_back(one.body, live, used)
            if live.intersection(names_in(one.target)):
                names, layers = _read(one.iter)
                live |= names
                used |= layers


def _read(node: ast.AST) -> tuple[set[str], set[str]]:
    """Return the variables and the layers that a node reads."""
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    layers = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute) and _is_own(one)}
    return names - {"self"}, layers


def _only_raises(node: ast.stmt) -> bool:
    """Whether a statement only checks something: an assertion, a condition whose branch raises an error."""
    checks = isinstance(node, ast.If) and not node.orelse and all(isinstance(one, ast.Raise) for one in node.body)
    return checks or isinstance(node, ast.Assert)


def _is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"
