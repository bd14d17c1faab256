"""Parameters that some steps do not use: DistributedDataParallel stops, unless it looks for them in each step."""

from __future__ import annotations

import re

import libcst as cst

from mgpu.port.porting import Porting
from mgpu.port.source_tree import assigned, calls, dotted, nodes, parameters, receiver, targets

_LOOKS = (
    "A step may not use {} of the model: DistributedDataParallel looks for unused parameters in each step, which takes "
    "some time. Remove find_unused_parameters if each step uses all of them."
)
_LAYERS = re.compile(
    r"torch\.nn\.(?:modules\.\w+\.)?(?:Parameter|parameter\.Parameter|\w*Linear|LazyConv\w+|Conv\w+|Embedding\w*|RNN|LSTM"
    r"|GRU|\w+Cell|(?:Lazy)?BatchNorm\w+|LayerNorm|GroupNorm|RMSNorm|Transformer\w*|MultiheadAttention|PReLU)"
)
_CONTAINERS = re.compile(r"torch\.nn\.(?:modules\.\w+\.)?(?:Sequential|ModuleList|ModuleDict|ParameterList)")
_MODULE = re.compile(r"torch\.nn\.(?:modules\.(?:module\.)?)?Module")
# Ways to reach every layer without its name.
_ALL_LAYERS = {"_modules", "children", "named_children", "__dict__", "getattr", "_parameters"}
_DEEPEST = 8  # methods that call each other


def plan(porting: Porting) -> None:
    """Let DistributedDataParallel look for the parameters that a step may not use."""
    found = [name for one in _model_classes(porting) for name in _Layers(porting, one).unused()]
    if not found:
        return
    if any(porting.tree.name(call.func).startswith("torch.utils.checkpoint.") for call in calls(porting.tree.module)):
        text = (
            f"each step must use {', '.join(found)}: DistributedDataParallel waits for the gradient of each parameter."
        )
        for site in porting.sites:
            if site.at is not None:
                porting.changes.decide(site.at, text)
        return
    porting.unused = _LOOKS.format(", ".join(found[:3]) + (f" and {len(found) - 3} more" if found[3:] else ""))


def _model_classes(porting: Porting) -> list[cst.ClassDef]:
    """The classes of the trained models, and those that they are made of."""
    tree = porting.tree
    new = [one for o in porting.roles.optimized if isinstance(o.node, cst.Call) and (one := tree.class_of(o.node.func))]
    found: list[cst.ClassDef] = []
    while new:
        one = new.pop(0)
        if one in found or not porting.roles.is_class(one, _MODULE.pattern):
            continue
        found.append(one)
        new += [made for call in calls(one) if (made := tree.class_of(call.func)) is not None]
    return sorted(found, key=tree.line)


class _Layers:
    """The layers and parameters of one class of the script: does its forward pass certainly use them?"""

    def __init__(self, porting: Porting, made: cst.ClassDef) -> None:
        self._porting, self._class = porting, made
        self._methods = {one.name.value: one for one in _functions(made)}

    def unused(self) -> list[str]:
        """Those that a forward pass may not use, as `Net.head (line 9)`."""
        forward = self._methods.get("forward")
        above = [dotted(one.value) for one in self._class.bases]
        plain = all(_MODULE.fullmatch(self._porting.tree.name(one.value)) for one in self._class.bases)
        if forward is None or not above or not plain or self._reads_all():
            return []
        return [
            f"{self._class.name.value}.{name} ({self._porting.tree.where(node)})"
            for name, node in self._made()
            if not self._is_used_elsewhere(name) and not self._certain(forward.body, name, 0)
        ]

    def _reads_all(self) -> bool:
        names = {one.value for one in nodes(self._class) if isinstance(one, cst.Name)}
        return bool(names & _ALL_LAYERS)

    def _made(self) -> list[tuple[str, cst.CSTNode]]:
        """The attributes that __init__ certainly gives a layer with parameters."""
        init = self._methods.get("__init__")
        found: list[tuple[str, cst.CSTNode]] = []
        for statement in init.body.body if init is not None else ():
            for node in statement.body if isinstance(statement, cst.SimpleStatementLine) else ():
                value = assigned(node)
                names = [dotted(one) for one in targets(node)]
                if value is not None and len(names) == 1 and _is_own(names[0]) and self._has_parameters(value):
                    found.append((names[0].removeprefix("self."), node))
        return found

    def _has_parameters(self, value: cst.BaseExpression) -> bool:
        if not isinstance(value, cst.Call):
            return False
        name = self._porting.tree.name(value.func)
        if _CONTAINERS.fullmatch(name):
            return any(self._has_parameters(one) for one in calls(value) if one is not value)
        frozen = any(dotted(one.value) == "False" for one in value.args if one.keyword and "grad" in one.keyword.value)
        return bool(_LAYERS.fullmatch(name)) and not frozen

    def _is_used_elsewhere(self, name: str) -> bool:
        """Whether __init__, another class, or the training loop gets the attribute."""
        tree = self._porting.tree
        for node in nodes(tree.module):
            if not isinstance(node, cst.Attribute) or node.attr.value != name:
                continue
            inside, function = tree.inside(node, cst.ClassDef), tree.inside(node, cst.FunctionDef)
            if inside is not self._class:
                if inside is not None or self._porting.loops.in_training(node):
                    return True
            elif function is not None and function.name.value == "__init__" and self._is_passed_on(node):
                return True
        return False

    def _is_passed_on(self, node: cst.CSTNode) -> bool:
        above = self._porting.tree.parent(node)
        while isinstance(above, cst.Attribute):  # self.decoder.weight = self.encoder.weight
            node, above = above, self._porting.tree.parent(above)
        if isinstance(above, cst.Arg):
            call = self._porting.tree.parent(above)
            name = self._porting.tree.name(call.func) if isinstance(call, cst.Call) else ""
            return not name.startswith("torch.nn.init.")
        return isinstance(above, (cst.Assign, cst.AnnAssign, cst.Element, cst.StarredElement, cst.DictElement, cst.For))

    def _certain(self, node: cst.CSTNode, name: str, depth: int) -> bool:
        """Whether running a node certainly reads `self.NAME`. A loop is taken to run."""
        if isinstance(node, cst.Attribute) and dotted(node) == f"self.{name}":
            return True
        if isinstance(node, (cst.If, cst.IfExp)):
            return self._certain(node.test, name, depth) or self._certain_branches(node, name, depth)
        if isinstance(node, cst.BooleanOperation):
            return self._certain(node.left, name, depth)
        if isinstance(node, cst.Call) and depth < _DEEPEST and dotted(receiver(node) or node) == "self":
            called = self._methods.get(cst.ensure_type(node.func, cst.Attribute).attr.value)
            if called is not None and self._certain(called.body, name, depth + 1):
                return True
        return any(self._certain(child, name, depth) for child in node.children)

    def _certain_branches(self, node: cst.If | cst.IfExp, name: str, depth: int) -> bool:
        """Whether each branch that training may take reads it. One of the last `elif` is taken to be true."""
        if node.orelse is not None:
            otherwise = self._certain(node.orelse, name, depth)
        else:
            above = self._porting.tree.parent(node)
            otherwise = isinstance(above, cst.If) and above.orelse is node
        body = self._certain(node.body, name, depth)
        if any(dotted(one) == "self.training" for one in nodes(node.test)):
            return body or otherwise
        return body and otherwise


def _functions(made: cst.ClassDef) -> list[cst.FunctionDef]:
    return [one for one in made.body.body if isinstance(one, cst.FunctionDef) and parameters(one)]


def _is_own(name: str) -> bool:
    return name.startswith("self.") and name.count(".") == 1
