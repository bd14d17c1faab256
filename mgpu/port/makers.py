"""Which calls create a model, an optimizer, a loader, and whichever object of the script's own classes?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from mgpu.port.source_tree import Key, SourceTree, assigned, dotted, method, nodes, targets


@dataclass(frozen=True)
class Origin:
    """Where an object was made, and what it is."""

    kind: str  # model, optimizer, scheduler, loader, scaler, writer, criterion, object (of another class of the script)
    node: cst.CSTNode

    def __hash__(self) -> int:
        return hash((self.kind, id(self.node)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Origin) and (self.kind, id(self.node)) == (other.kind, id(other.node))


Value = frozenset[Origin]

_KINDS = (
    ("scheduler", r"torch\.optim\.lr_scheduler\.\w+|transformers\.(?:optimization\.)?get_\w*schedule\w*"),
    ("optimizer", r"torch\.optim\.(?:\w+\.)?[A-Z]\w*|transformers\.(?:AdamW|Adafactor)|bitsandbytes\.optim\.[A-Z]\w*"),
    ("loader", r"torch\.utils\.data\.(?:dataloader\.)?DataLoader"),
    ("scaler", r"torch\.(?:cuda\.)?amp\.(?:grad_scaler\.)?GradScaler"),
    ("writer", r"(?:torch\.utils\.tensorboard|tensorboardX)\.(?:writer\.)?SummaryWriter"),
    ("criterion", r"torch\.nn\.(?:modules\.\w+\.)?\w*Loss"),
    ("model", r"torch\.nn\.Sequential|torchvision\.models\.(?:\w+\.)*\w+|timm\.create_model"),
    ("model", r"transformers\.\w+\.from_(?:pretrained|config)"),
)
_BASES = (
    ("model", r"torch\.nn\.(?:modules\.(?:\w+\.)?)?Module|torch\.nn\.Sequential"),
    ("optimizer", r"torch\.optim\.(?:\w+\.)?Optimizer"),
    ("loader", r"torch\.utils\.data\.(?:\w+\.)?DataLoader"),
    ("scheduler", r"torch\.optim\.lr_scheduler\.\w+"),
)
_DEEPEST = 3  # variables that hold a class


class Makers:
    """What the calls of a script create."""

    def __init__(self, tree: SourceTree) -> None:
        self._tree = tree
        self._classes = self._class_values()

    def made(self, call: cst.Call) -> Value:
        """The object that a call creates."""
        for name in sorted(self._callees(call.func, 0)):
            for kind, pattern in _KINDS:
                if re.fullmatch(pattern, name):
                    return frozenset({Origin(kind, call)})
        if (found := self._tree.class_of(call.func)) is not None:
            bases = list(self.bases(found))
            for kind, pattern in _BASES:
                if any(re.fullmatch(pattern, base) for base in bases):
                    of_loss = kind == "model" and method(call).lower().endswith("loss")
                    return frozenset({Origin("criterion" if of_loss else kind, call)})
            return frozenset({Origin("object", call)})
        return frozenset()

    def _callees(self, func: cst.BaseExpression, depth: int) -> set[str]:
        """The names of what a call may call: `getattr(optim, name)`, `{"sgd": optim.SGD}[name]`, a variable."""
        if isinstance(func, (cst.Name, cst.Attribute)):
            key = self._tree.key(func)
            values = self._classes.get(key, []) if key is not None and depth < _DEEPEST else []
            return {self._tree.name(func)}.union(*(self._callees(value, depth + 1) for value in values))
        if isinstance(func, cst.Call) and dotted(func.func) == "getattr" and len(func.args) > 1:
            return {f"{self._tree.name(func.args[0].value)}.Any"}
        if isinstance(func, cst.Call) and self._tree.name(func.func) == "functools.partial" and func.args:
            return self._callees(func.args[0].value, depth + 1)
        if isinstance(func, cst.Subscript):
            if isinstance(func.value, cst.Attribute) and func.value.attr.value == "__dict__":
                return {f"{self._tree.name(func.value.value)}.Any"}
            return self._callees(func.value, depth)
        if isinstance(func, cst.Dict):
            return set[str]().union(*(self._callees(one.value, depth) for one in func.elements))
        if isinstance(func, cst.IfExp):
            return self._callees(func.body, depth) | self._callees(func.orelse, depth)
        return set()

    def _class_values(self) -> dict[Key, list[cst.BaseExpression]]:
        """What is assigned to each variable, if it may be a class or a function."""
        found: dict[Key, list[cst.BaseExpression]] = {}
        for node in nodes(self._tree.module):
            value = assigned(node)
            if isinstance(value, (cst.Attribute, cst.Dict, cst.IfExp, cst.Subscript)) or (
                isinstance(value, cst.Call)
                and (dotted(value.func) == "getattr" or self._tree.name(value.func) == "functools.partial")
            ):
                for target in targets(node):
                    if isinstance(target, (cst.Name, cst.Attribute)) and (key := self._tree.key(target)):
                        found.setdefault(key, []).append(value)
        return found

    def bases(self, found: cst.ClassDef, seen: frozenset[cst.ClassDef] = frozenset()) -> Iterator[str]:
        """The names of the classes that a class inherits from."""
        for one in found.bases:
            yield self._tree.name(one.value)
            if (base := self._tree.class_of(one.value)) is not None and base not in seen:
                yield from self.bases(base, seen | {base})
