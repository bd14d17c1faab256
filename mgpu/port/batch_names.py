"""Which names of a loop hold tensors of the batch, and which statements read or collect them?"""

from __future__ import annotations

import re
from collections.abc import Iterable

import libcst as cst

from mgpu.port.source_tree import assigned, dotted, flat, method, nodes, targets
from mgpu.port.training_loops import Loop

# Calls that keep the first dimension of a batch.
_KEEPS_BATCH = re.compile(
    r"to|cuda|float|long|double|half|detach|cpu|argmax|sigmoid|softmax|log_softmax|round|squeeze|int|max|topk|data"
)


def batch_names(loop: Loop) -> set[str]:
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


def follow_batch(
    batch: set[str], before: Iterable[cst.CSTNode], outputs: Iterable[str] = ()
) -> tuple[set[str], set[str]]:
    """The names that hold a tensor of the batch, and those computed from them in another way."""
    tracked, derived = set(batch), set[str]()
    for statement in before:
        for node in nodes(statement):
            if (value := assigned(node)) is None:
                continue
            names = {dotted(name) for one in targets(node) for name in flat(one)} - {""}
            if not names_in(value) & (tracked | derived) or names <= set(outputs):
                continue
            if isinstance(value, cst.Tuple) or _keeps_batch(value, tracked):
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
            of_torch = dotted(value.func.value) == "torch" and bool(value.args)
            value = value.args[0].value if of_torch else value.func.value
        elif isinstance(value, cst.Subscript):
            index = value.slice[0].slice
            if not (isinstance(index, cst.Index) and isinstance(index.value, (cst.SimpleString, cst.Integer))):
                return False
            value = value.value
        else:
            return dotted(value) in tracked


def names_in(node: cst.CSTNode) -> set[str]:
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


def names_read(statements: Iterable[cst.CSTNode]) -> set[str]:
    """The names that statements read, also if they assign them first."""
    found: set[str] = set()
    for statement in statements:
        for node in nodes(statement):
            if (value := assigned(node)) is not None:
                found |= names_in(value)
            elif isinstance(node, (cst.AugAssign, cst.Expr, cst.If, cst.Return, cst.For)):
                part = node.test if isinstance(node, cst.If) else node.iter if isinstance(node, cst.For) else node
                found |= names_in(part)
    return found


def accumulates(statement: cst.CSTNode, names: set[str]) -> bool:
    """Whether a statement adds what it computes from these names to something that outlives the iteration."""
    for node in nodes(statement):
        if isinstance(node, cst.AugAssign) and names_in(node.value) & names:
            return True
        collects = isinstance(node, cst.Call) and method(node) in ("append", "extend", "update", "add")
        if collects and isinstance(node, cst.Call) and any(names_in(one.value) & names for one in node.args):
            return True
    return False


def names_collected(statements: Iterable[cst.CSTNode], tracked: set[str]) -> set[str]:
    """The tracked names that reports and counters read: not those that only a step of the training uses."""
    found: set[str] = set()
    for statement in statements:
        for node in nodes(statement):
            value = node.value if isinstance(node, cst.AugAssign) else assigned(node)
            if value is not None:
                found |= names_in(value) & tracked
            elif isinstance(node, cst.Call) and method(node) in ("append", "extend", "update", "add", "print"):
                found |= {name for one in node.args for name in names_in(one.value)} & tracked
    return found
