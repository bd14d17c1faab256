"""Which variables of the script hold a model, an optimizer, a loader? Followed through assignments and local calls."""

from __future__ import annotations

import re

import libcst as cst

from mgpu.port.makers import Makers, Origin, Value
from mgpu.port.source_tree import (
    Function,
    Key,
    SourceTree,
    argument,
    assigned,
    calls,
    dotted,
    flat,
    method,
    nodes,
    parameters,
    receiver,
    targets,
)

_NOTHING: Value = frozenset()
_ROUNDS = 12

_SAME_OBJECT = {"to", "cuda", "cpu", "train", "eval", "double", "float", "half", "requires_grad_", "apply", "compile"}
_PASSES_ON = re.compile(
    r"enumerate|iter|zip|list|reversed|itertools\.(?:cycle|islice|chain)|(?:tqdm\.)*(?:tqdm|auto\.tqdm|tqdm_notebook)"
    r"|tqdm\.\w+\.tqdm|torch\.compile|torch\.nn\.(?:parallel\.)?DataParallel|rich\.progress\.track|track"
)
PARAMETERS = ("parameters", "named_parameters")
_OF_MODELS = ("train", "eval", "state_dict", "load_state_dict", *PARAMETERS)


class Roles:
    """The objects that each variable may hold."""

    def __init__(self, tree: SourceTree) -> None:
        self.tree = tree
        self.values: dict[Key, Value] = {}
        self._returns: dict[Function, list[Value]] = {}
        self._evaluating: set[int] = set()
        self._all = list(nodes(tree.module))
        self._makers = Makers(tree)
        for _ in range(_ROUNDS):
            before = sum(len(value) for value in self.values.values())
            self._round()
            if sum(len(value) for value in self.values.values()) == before:
                break
        self.optimized = self._optimized()

    # ---- questions

    def is_class(self, found: cst.ClassDef, pattern: str) -> bool:
        """Whether a class of the script has a base that matches."""
        return any(re.fullmatch(pattern, base) for base in self._makers.bases(found))

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
                found |= {origin for origin in self._makers.made(node) if origin.kind == kind}
        return sorted(found, key=lambda origin: self.tree.line(origin.node))

    def local_function(self, call: cst.Call) -> list[Function]:
        """The functions of the script that a call may run."""
        if (made := self.tree.class_of(call.func)) is not None:
            return self._inherited(made, "__init__")
        if isinstance(call.func, cst.Name):
            here = self.tree.file(call)
            inner = self.tree.functions.get(call.func.value, [])
            inner = [one for one in inner if self.tree.inside(one, cst.FunctionDef) and self.tree.file(one) == here]
            found = [one for one in self.tree.definitions(call.func) if isinstance(one, cst.FunctionDef)]
            if not found and self.of(call.func, "object"):
                return self._of_object(call, call.func, "__call__")
            return found or [one for one in inner if not self._class(one)]
        if found := [one for one in self.tree.definitions(call.func) if isinstance(one, cst.FunctionDef)]:
            return found
        return self._of_object(call, receiver(call), method(call))

    def _of_object(self, call: cst.Call, on: cst.BaseExpression | None, name: str) -> list[Function]:
        """The methods that a call of an object's method may run."""
        inside = self.tree.inside(call, cst.ClassDef)
        if isinstance(on, cst.Name) and on.value == "self" and inside is not None:
            own = self._inherited(inside, name)
            below = [f for f in self._methods(name) if f not in own and inside in self._line_of(f)]
            return [*own, *below] or self._methods(name)
        if isinstance(on, cst.Call) and dotted(on.func) == "super" and inside is not None:
            bases = [b for one in inside.bases if (b := self.tree.class_of(one.value)) is not None]
            return [f for base in bases for f in self._inherited(base, name)]
        if on is not None and (instances := self.of(on, "object")):
            classes = [c for o in instances if isinstance(o.node, cst.Call) and (c := self.tree.class_of(o.node.func))]
            return [f for one in classes for f in self._inherited(one, name)]
        if self.of(on, "loader") or self.of(on, "optimizer") or name in ("train", "eval", "to", "step", "parameters"):
            return []
        return self._methods(name)

    def _inherited(self, found: cst.ClassDef, name: str) -> list[Function]:
        """The method of a class, or of the first class above it that has one."""
        own = [one for one in self.tree.functions.get(name, []) if self.tree.inside(one, cst.ClassDef) is found]
        if own:
            return own
        bases = [b for one in found.bases if (b := self.tree.class_of(one.value)) is not None and b is not found]
        return next((f for base in bases if (f := self._inherited(base, name))), [])

    def _line_of(self, function: Function) -> set[cst.ClassDef]:
        """The class of a method and those above it."""
        found: set[cst.ClassDef] = set()
        new = [one] if (one := self.tree.inside(function, cst.ClassDef)) is not None else []
        while new:
            one = new.pop()
            if one not in found:
                found.add(one)
                new += [b for base in one.bases if (b := self.tree.class_of(base.value)) is not None]
        return found

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
            found = self.values.get(key, _NOTHING) if key else _NOTHING
            if isinstance(node, cst.Attribute) and dotted(node.value) != "self":
                found |= self._attribute(node)
            return found
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

    def _attribute(self, node: cst.Attribute) -> Value:
        """What an attribute of an object of the script holds: `trainer.model`."""
        found = _NOTHING
        for origin in self.value(node.value):
            made = self.tree.class_of(origin.node.func) if isinstance(origin.node, cst.Call) else None
            if origin.kind in ("object", "model") and made is not None:
                found |= self.values.get((self.tree.oldest(made), f"self.{node.attr.value}"), _NOTHING)
        return found

    def _call(self, call: cst.Call) -> Value:
        if made := self._makers.made(call):
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

    # ---- one round of the flow

    def _round(self) -> None:
        for node in self._all:
            if (value := assigned(node)) is not None:
                for target in targets(node):
                    self._assign(target, value)
            elif isinstance(node, (cst.For, cst.CompFor)):
                if (
                    isinstance(node.iter, cst.Call)
                    and method(node.iter) == "items"
                    and isinstance(node.target, cst.Tuple)
                ):
                    self._add(node.target.elements[-1].value, self.value(node.iter))
                elif not self.of(node.iter, "loader") or isinstance(node.iter, (cst.List, cst.Tuple)):
                    self._assign(node.target, node.iter)
            elif isinstance(node, cst.With):
                for item in node.items:
                    if item.asname is not None:
                        self._assign(item.asname.name, item.item)
            elif isinstance(node, cst.Return) and node.value is not None:
                self._return(node, node.value)
            elif isinstance(node, cst.Yield):
                self._yields(node)
            elif isinstance(node, cst.Call):
                on = receiver(node)
                if method(node) == "append" and on is not None and len(node.args) == 1:
                    self._add(on, self.value(node.args[0].value))
                self._arguments(node)
                self._parameters_of(node)

    def _yields(self, node: cst.Yield) -> None:
        """A generator that passes on the batches of a loader: `while True: yield from loader`."""
        given = node.value.item if isinstance(node.value, cst.From) else node.value
        sources = [given] if isinstance(node.value, cst.From) else []
        sources += [above.iter for above in self.tree.parents(node) if isinstance(above, cst.For)]
        if isinstance(given, cst.Call) and dotted(given.func) == "next" and given.args:
            sources.append(given.args[0].value)
        function = self.tree.inside(node, cst.FunctionDef)
        loaders = frozenset(loader for source in sources for loader in self.of(source, "loader"))
        if function is not None and loaders:
            first, *others = self._returns.get(function, [_NOTHING])
            self._returns[function] = [first | loaders, *others]

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
        if not any(origin.kind == "optimizer" for origin in self._makers.made(call)):
            return
        for root in self.trained_by(call):
            if not self.of(root, "model") and (key := self.tree.key(root)):
                self.values[key] = self.values.get(key, _NOTHING) | {Origin("model", self._definition(key) or root)}

    def container(self, name: str) -> str:
        """What holds the objects of a variable: "dict", "list" or "" for an object itself."""
        for node in self._all:
            value = assigned(node)
            if value is not None and any(dotted(one) == name for one in targets(node)):
                if isinstance(value, (cst.Dict, cst.DictComp)):
                    return "dict"
                if isinstance(value, (cst.List, cst.ListComp)):
                    return "list"
        return ""

    def _definition(self, key: Key) -> cst.CSTNode | None:
        """The node that stands for a variable of unknown class: its first assignment."""
        for node in self._all:
            if assigned(node) is not None:
                ends = [one for target in targets(node) for one in flat(target)]
                if any(isinstance(one, (cst.Name, cst.Attribute)) and self.tree.key(one) == key for one in ends):
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
                found.append(self._container_of(self._root(on)))
            else:  # a function that makes the groups: weight_decay_groups(model)
                found += [one.value for one in call.args if self.of(one.value, "model") or self._is_used_as_model(one)]
        for one in nodes(node):  # groups: {"params": weights}
            if isinstance(one, cst.DictElement) and isinstance(one.value, (cst.Name, cst.Attribute)):
                self._roots(one.value, found, depth + 1)
        key = self.tree.key(node) if isinstance(node, (cst.Name, cst.Attribute)) else None
        if key is None or depth > 2:
            return
        for other in self._all:
            value = other.value if isinstance(other, cst.AugAssign) else assigned(other)
            if value is not None:
                ends = targets(other)
                if any(isinstance(end, (cst.Name, cst.Attribute)) and self.tree.key(end) == key for end in ends):
                    self._roots(value, found, depth + 1)
        for call in calls(self.tree.module):
            on = receiver(call)
            if method(call) in ("append", "extend") and on is not None and self.tree.key(on) == key:
                self._roots(call, found, depth + 1)

    def _is_used_as_model(self, given: cst.Arg) -> bool:
        """Whether a variable is moved, saved or switched as models are, also if its class is not known."""
        name = dotted(given.value)
        return bool(name) and any(
            method(call) in _OF_MODELS and (on := receiver(call)) is not None and dotted(on) == name
            for call in calls(self.tree.module)
        )

    def _container_of(self, root: cst.BaseExpression) -> cst.BaseExpression:
        """The dict or list that a comprehension takes a model from: `models` for `m` in `models.values()`."""
        for above in self.tree.parents(root):
            if not isinstance(above, (cst.ListComp, cst.GeneratorExp, cst.DictComp, cst.SetComp)):
                continue
            part: cst.CompFor | None = above.for_in
            while part is not None:
                if dotted(root) in {dotted(one) for one in flat(part.target)} - {""}:
                    on = receiver(part.iter) if isinstance(part.iter, cst.Call) else part.iter
                    return on if isinstance(on, (cst.Name, cst.Attribute)) else root
                part = part.inner_for_in
        return root

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
