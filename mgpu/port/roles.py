"""Which variables of the script hold a model, an optimizer, a loader? Followed through assignments and local calls."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from mgpu.port.source_tree import (
    Function,
    Key,
    SourceTree,
    argument,
    calls,
    dotted,
    flat,
    method,
    nodes,
    parameters,
    receiver,
)


@dataclass(frozen=True)
class Origin:
    """Where an object was made, and what it is."""

    kind: str  # model, optimizer, scheduler, loader, scaler, writer, criterion
    node: cst.CSTNode

    def __hash__(self) -> int:
        return hash((self.kind, id(self.node)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Origin) and (self.kind, id(self.node)) == (other.kind, id(other.node))


Value = frozenset[Origin]
_NOTHING: Value = frozenset()
_ROUNDS = 12

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
_MODULE = re.compile(r"torch\.nn\.(?:modules\.(?:\w+\.)?)?Module")
_SAME_OBJECT = {"to", "cuda", "cpu", "train", "eval", "double", "float", "half", "requires_grad_", "apply", "compile"}
_PASSES_ON = re.compile(
    r"enumerate|iter|zip|list|reversed|itertools\.(?:cycle|islice|chain)|(?:tqdm\.)*(?:tqdm|auto\.tqdm|tqdm_notebook)"
    r"|tqdm\.\w+\.tqdm|torch\.compile|torch\.nn\.(?:parallel\.)?DataParallel|rich\.progress\.track|track"
)
PARAMETERS = ("parameters", "named_parameters")


class Roles:
    """The objects that each variable may hold."""

    def __init__(self, tree: SourceTree) -> None:
        self.tree = tree
        self.values: dict[Key, Value] = {}
        self._returns: dict[Function, list[Value]] = {}
        self._evaluating: set[int] = set()
        self._all = list(nodes(tree.module))
        for _ in range(_ROUNDS):
            before = sum(len(value) for value in self.values.values())
            self._round()
            if sum(len(value) for value in self.values.values()) == before:
                break
        self.optimized = self._optimized()

    # ---- questions

    def of(self, node: cst.CSTNode | None, kind: str) -> Value:
        """The objects of a kind that an expression may be."""
        if node is None:
            return _NOTHING
        return frozenset(origin for origin in self.value(node) if origin.kind == kind)

    def is_model(self, node: cst.CSTNode | None) -> bool:
        """Whether an expression is a model that an optimizer trains."""
        return bool(self.of(node, "model") & self.optimized)

    def origins(self, kind: str) -> list[Origin]:
        """All objects of a kind, in source order."""
        found = {origin for value in self.values.values() for origin in value if origin.kind == kind}
        for node in self._all:
            if isinstance(node, cst.Call):
                found |= {origin for origin in self._made(node) if origin.kind == kind}
        return sorted(found, key=lambda origin: self.tree.line(origin.node))

    def local_function(self, call: cst.Call) -> list[Function]:
        """The functions of the script that a call may run."""
        if isinstance(call.func, cst.Name):
            if call.func.value in self.tree.classes:
                return [one for one in self._methods("__init__") if self._class(one) == call.func.value]
            found = self.tree.functions.get(call.func.value, [])
            return [one for one in found if not self._class(one)]
        name = method(call)
        on = receiver(call)
        if isinstance(on, cst.Name) and on.value == "self":
            inside = self.tree.inside(call, cst.ClassDef)
            own = [one for one in self._methods(name) if inside and self._class(one) == inside.name.value]
            return own or self._methods(name)
        if self.of(on, "loader") or self.of(on, "optimizer") or name in ("train", "eval", "to", "step", "parameters"):
            return []
        return self._methods(name)

    def _methods(self, name: str) -> list[Function]:
        return [one for one in self.tree.functions.get(name, []) if self._class(one)]

    def _class(self, function: Function) -> str:
        inside = self.tree.inside(function, cst.ClassDef)
        return inside.name.value if inside and self.tree.inside(function, cst.FunctionDef) is None else ""

    # ---- values

    def value(self, node: cst.CSTNode) -> Value:
        """The objects that an expression may be."""
        if id(node) in self._evaluating:
            return _NOTHING
        self._evaluating.add(id(node))
        try:
            return self._value(node)
        finally:
            self._evaluating.discard(id(node))

    def _value(self, node: cst.CSTNode) -> Value:
        if isinstance(node, (cst.Name, cst.Attribute)):
            key = self.tree.key(node)
            return self.values.get(key, _NOTHING) if key else _NOTHING
        if isinstance(node, cst.Call):
            return self._call(node)
        if isinstance(node, cst.IfExp):
            return self.value(node.body) | self.value(node.orelse)
        if isinstance(node, cst.Subscript):
            return self.value(node.value)
        if isinstance(node, (cst.Tuple, cst.List)):
            return frozenset().union(*(self.value(element.value) for element in node.elements))
        if isinstance(node, cst.Dict):
            return frozenset().union(*(self.value(element.value) for element in node.elements))
        if isinstance(node, (cst.DictComp, cst.ListComp, cst.GeneratorExp)):
            return self.value(node.value if isinstance(node, cst.DictComp) else node.elt)
        return _NOTHING

    def _call(self, call: cst.Call) -> Value:
        if made := self._made(call):
            return made
        name = self.tree.name(call.func)
        if _PASSES_ON.fullmatch(name) and call.args:
            return frozenset().union(*(self.value(one.value) for one in call.args))
        on = receiver(call)
        if method(call) in (*_SAME_OBJECT, "values", "items", "get") and on is not None and (value := self.value(on)):
            return value
        if method(call) == "prepare" and call.args:
            return frozenset().union(*(self.value(one.value) for one in call.args))
        found = _NOTHING
        for function in self.local_function(call):
            found |= frozenset().union(*self._returns.get(function, []))
        return found

    def _made(self, call: cst.Call) -> Value:
        """The object that a call creates."""
        name = self.tree.name(call.func)
        for kind, pattern in _KINDS:
            if re.fullmatch(pattern, name):
                return frozenset({Origin(kind, call)})
        if isinstance(call.func, cst.Name) and (found := self.tree.classes.get(call.func.value)):
            bases = self._bases(found, set())
            if any(_MODULE.fullmatch(base) for base in bases):
                return frozenset({Origin("criterion" if name.lower().endswith("loss") else "model", call)})
            if any(re.fullmatch(r"torch\.optim\.(?:\w+\.)?Optimizer", base) for base in bases):
                return frozenset({Origin("optimizer", call)})
            if any(re.fullmatch(r"torch\.utils\.data\.(?:\w+\.)?DataLoader", base) for base in bases):
                return frozenset({Origin("loader", call)})
        return _NOTHING

    def _bases(self, found: cst.ClassDef, seen: set[str]) -> Iterator[str]:
        for one in found.bases:
            name = self.tree.name(one.value)
            yield name
            if name in self.tree.classes and name not in seen:
                yield from self._bases(self.tree.classes[name], seen | {name})

    def is_class(self, found: cst.ClassDef, pattern: str) -> bool:
        """Whether a class of the script has a base that matches."""
        return any(re.fullmatch(pattern, base) for base in self._bases(found, set()))

    # ---- one round of the flow

    def _round(self) -> None:
        for node in self._all:
            if isinstance(node, cst.Assign):
                for target in node.targets:
                    self._assign(target.target, node.value)
            elif isinstance(node, cst.AnnAssign) and node.value is not None:
                self._assign(node.target, node.value)
            elif isinstance(node, (cst.For, cst.CompFor)):
                if not self.of(node.iter, "loader"):
                    self._assign(node.target, node.iter)
                elif isinstance(node.target, cst.Tuple):  # for phase, loader in loaders.items()
                    self._loop_over_containers(node)
                elif isinstance(node.iter, (cst.List, cst.Tuple)):
                    self._assign(node.target, node.iter)
            elif isinstance(node, cst.With):
                for item in node.items:
                    if item.asname is not None:
                        self._assign(item.asname.name, item.item)
            elif isinstance(node, cst.Return) and node.value is not None:
                self._return(node, node.value)
            elif isinstance(node, cst.Call):
                self._arguments(node)
                self._parameters_of(node)

    def _loop_over_containers(self, loop: cst.For | cst.CompFor) -> None:
        if isinstance(loop.iter, cst.Call) and method(loop.iter) == "items" and isinstance(loop.target, cst.Tuple):
            self._add(loop.target.elements[-1].value, self.of(loop.iter, "loader"))

    def _assign(self, target: cst.BaseExpression, value: cst.BaseExpression) -> None:
        names = [e.value for e in target.elements] if isinstance(target, (cst.Tuple, cst.List)) else None
        if names is None:
            self._add(target, self.value(value))
            return
        parts = self._parts(value)
        if parts and len(parts) == len(names):
            for name, part in zip(names, parts, strict=True):
                self._add(name, part)

    def _parts(self, value: cst.BaseExpression) -> list[Value]:
        """The values of the elements of a tuple, or of what a local function returns as a tuple."""
        if isinstance(value, (cst.Tuple, cst.List)):
            return [self.value(element.value) for element in value.elements]
        if isinstance(value, cst.Call):
            if method(value) == "prepare":
                return [self.value(one.value) for one in value.args]
            found = [self._returns[f] for f in self.local_function(value) if len(self._returns.get(f, [])) > 1]
            return found[0] if found else []
        return []

    def _add(self, target: cst.BaseExpression, value: Value) -> None:
        key = self.tree.key(target) if isinstance(target, (cst.Name, cst.Attribute)) else None
        if isinstance(target, cst.Subscript):
            key = self.tree.key(target.value)
        if key and value:
            self.values[key] = self.values.get(key, _NOTHING) | value

    def _return(self, node: cst.Return, value: cst.BaseExpression) -> None:
        function = self.tree.inside(node, cst.FunctionDef)
        if function is None:
            return
        if isinstance(value, cst.Tuple):
            parts = [self.value(element.value) for element in value.elements]
        else:
            parts = self._parts(value) or [self.value(value)]
        old = self._returns.get(function, [])
        if len(old) == len(parts):
            parts = [a | b for a, b in zip(old, parts, strict=True)]
        self._returns[function] = parts

    def _arguments(self, call: cst.Call) -> None:
        for function in self.local_function(call):
            names = parameters(function)
            if names and names[0].value in ("self", "cls"):
                names = names[1:]
            by_name = {name.value: name for name in names}
            position = 0
            for one in call.args:
                if one.star:
                    continue
                if one.keyword is not None:
                    target = by_name.get(one.keyword.value)
                else:
                    target = names[position] if position < len(names) else None
                    position += 1
                if target is not None and (value := self.value(one.value)):
                    key = (function, target.value)
                    self.values[key] = self.values.get(key, _NOTHING) | value

    # ---- models by their use

    def _parameters_of(self, call: cst.Call) -> None:
        """What an optimizer gets the parameters of is a model, also if its class is not known."""
        if not any(origin.kind == "optimizer" for origin in self._made(call)):
            return
        for root in self.trained_by(call):
            if not self.of(root, "model") and (key := self.tree.key(root)):
                self.values[key] = self.values.get(key, _NOTHING) | {Origin("model", self._definition(key) or root)}

    def _definition(self, key: Key) -> cst.CSTNode | None:
        """The node that stands for a variable of unknown class: its first assignment."""
        for node in self._all:
            if isinstance(node, cst.Assign):
                for target in node.targets:
                    if any(
                        isinstance(o, (cst.Name, cst.Attribute)) and self.tree.key(o) == key
                        for o in flat(target.target)
                    ):
                        return node
        return None

    def trained_by(self, optimizer: cst.CSTNode) -> list[cst.BaseExpression]:
        """The expressions whose parameters an optimizer gets: `model` of `model.fc.parameters()`."""
        found: list[cst.BaseExpression] = []
        given = argument(optimizer, 0, "params") if isinstance(optimizer, cst.Call) else None
        if given is not None:
            self._roots(given, found, 0)
        return found

    def _roots(self, node: cst.CSTNode, found: list[cst.BaseExpression], depth: int) -> None:
        for call in calls(node):
            on = receiver(call)
            if on is not None and (method(call) in PARAMETERS or self.of(on, "model")):
                found.append(self._root(on))
        key = self.tree.key(node) if isinstance(node, (cst.Name, cst.Attribute)) else None
        if key is None or depth > 2:
            return
        for other in self._all:
            if isinstance(other, (cst.Assign, cst.AugAssign)):
                ends = [other.target] if isinstance(other, cst.AugAssign) else [t.target for t in other.targets]
                if any(isinstance(end, (cst.Name, cst.Attribute)) and self.tree.key(end) == key for end in ends):
                    self._roots(other.value, found, depth + 1)
        for call in calls(self.tree.module):
            on = receiver(call)
            if method(call) in ("append", "extend") and on is not None and self.tree.key(on) == key:
                self._roots(call, found, depth + 1)

    def _root(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """The model of an expression for a part of it: `self.model` of `self.model.encoder`."""
        while isinstance(node, (cst.Attribute, cst.Subscript)) and not self.of(node, "model"):
            if isinstance(node, cst.Attribute) and dotted(node.value) == "self":
                break
            node = node.value
        return node

    def _optimized(self) -> Value:
        """The models that an optimizer trains."""
        found = _NOTHING
        for origin in self.origins("optimizer"):
            for root in self.trained_by(origin.node):
                found |= self.of(root, "model")
        return found
