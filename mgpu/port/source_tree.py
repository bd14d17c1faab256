"""The syntax tree of the user's script, with its positions, parents and qualified names."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TypeVar

import libcst as cst
from libcst import metadata

Function = cst.FunctionDef
Key = tuple[cst.CSTNode | None, str]  # the function, class or module (None) that holds a variable, and its name
_Node = TypeVar("_Node", bound=cst.CSTNode)


class SourceTree:
    """A parsed script. All nodes are those of `module`."""

    def __init__(self, text: str) -> None:
        wrapper = metadata.MetadataWrapper(cst.parse_module(text))
        self.text = text
        self.module = wrapper.module
        self._positions = wrapper.resolve(metadata.PositionProvider)
        self._parents = wrapper.resolve(metadata.ParentNodeProvider)
        self._names = wrapper.resolve(metadata.QualifiedNameProvider)
        self.functions: dict[str, list[Function]] = {}
        self.classes: dict[str, cst.ClassDef] = {}
        for node in nodes(self.module):
            if isinstance(node, cst.FunctionDef):
                self.functions.setdefault(node.name.value, []).append(node)
            elif isinstance(node, cst.ClassDef):
                self.classes[node.name.value] = node
        self._locals: dict[cst.CSTNode, set[str]] = {}

    def line(self, node: cst.CSTNode) -> int:
        """The line where a node starts."""
        return self._positions[node].start.line

    def last_line(self, node: cst.CSTNode) -> int:
        """The line where a node stops."""
        return self._positions[node].end.line

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The node that contains this one."""
        return self._parents.get(node)

    def parents(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The nodes that contain this one, innermost first."""
        while (above := self._parents.get(node)) is not None:
            yield above
            node = above

    def inside(self, node: cst.CSTNode, kind: type[_Node]) -> _Node | None:
        """The innermost node of a kind that contains this one."""
        return next((above for above in self.parents(node) if isinstance(above, kind)), None)

    def name(self, node: cst.CSTNode) -> str:
        """The qualified name of an expression (`torch.optim.Adam`), else its dotted text, else ""."""
        named = self._names.get(node, ())
        for found in named() if callable(named) else named:  # libcst computes most of them late
            if found.source is metadata.QualifiedNameSource.IMPORT:
                return str(found.name)
        return dotted(node)

    def statement(self, node: cst.CSTNode) -> cst.CSTNode:
        """The statement in a block that contains a node (a compound statement is its own)."""
        for one in (node, *self.parents(node)):
            if isinstance(self.parent(one), (cst.IndentedBlock, cst.Module)):
                return one
        return node

    def simple_statement(self, node: cst.CSTNode) -> cst.BaseSmallStatement | None:
        """The simple statement that a node is or is in: one of `a; b`."""
        return next((one for one in (node, *self.parents(node)) if isinstance(one, cst.BaseSmallStatement)), None)

    def code(self, node: cst.CSTNode) -> str:
        """The source text of a node."""
        return self.module.code_for_node(node)

    # ---- variables

    def key(self, node: cst.CSTNode) -> Key | None:
        """The variable that an expression names: a name, or an attribute such as `self.model`."""
        text = dotted(node)
        if not text:
            return None
        first, _, rest = text.partition(".")
        if first == "self" and rest:
            return self.inside(node, cst.ClassDef), text
        return self.holder(node, first), text

    def holder(self, node: cst.CSTNode, name: str) -> cst.CSTNode | None:
        """The function that holds a name read at this node; None for the module."""
        for above in self.parents(node):
            if isinstance(above, cst.FunctionDef) and name in self.locals(above):
                return above
        return None

    def locals(self, function: Function) -> set[str]:
        """The names that a function holds itself."""
        if function not in self._locals:
            found = {name.value for name in parameters(function)}
            outer: set[str] = set()
            for node in nodes(function.body, nested=False):
                if isinstance(node, cst.Global):
                    outer |= {item.name.value for item in node.names}
                found |= {name.value for target in targets(node) for name in flat(target) if isinstance(name, cst.Name)}
            self._locals[function] = found - outer
        return self._locals[function]


@functools.cache  # libcst finds the children of a node by visiting it, and every part of the port searches
def nodes(node: cst.CSTNode, *, nested: bool = True) -> tuple[cst.CSTNode, ...]:
    """A node and all nodes below it, in source order. Without `nested`, not those in functions and classes below it."""
    found = [node]
    for child in node.children:
        if nested or not isinstance(child, (cst.FunctionDef, cst.ClassDef)):
            found += nodes(child, nested=nested)
    return tuple(found)


def calls(node: cst.CSTNode, *, nested: bool = True) -> Iterator[cst.Call]:
    """The calls in a node."""
    return (one for one in nodes(node, nested=nested) if isinstance(one, cst.Call))


def dotted(node: cst.CSTNode) -> str:
    """The text of a name or a chain of attributes, else ""."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr.value}" if before else ""
    return ""


def targets(node: cst.CSTNode) -> list[cst.BaseExpression]:
    """The expressions that a node assigns to."""
    if isinstance(node, cst.Assign):
        return [target.target for target in node.targets]
    if isinstance(node, (cst.AnnAssign, cst.AugAssign, cst.For, cst.NamedExpr)):
        return [node.target]
    if isinstance(node, cst.With):
        return [item.asname.name for item in node.items if item.asname is not None]
    return []


def flat(target: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The single targets of a possibly nested tuple."""
    if isinstance(target, (cst.Tuple, cst.List)):
        return [name for element in target.elements for name in flat(element.value)]
    return [target]


def parameters(function: Function) -> list[cst.Name]:
    """The names of a function's parameters, in order."""
    group = function.params
    return [one.name for one in (*group.posonly_params, *group.params, *group.kwonly_params)]


def argument(call: cst.Call, position: int, name: str) -> cst.BaseExpression | None:
    """The value of an argument, by position or name."""
    for one in call.args:
        if one.keyword is not None and one.keyword.value == name:
            return one.value
    plain = [one for one in call.args if one.keyword is None and not one.star]
    return plain[position].value if position < len(plain) else None


def keywords(call: cst.Call) -> set[str]:
    """The names of a call's keyword arguments; "**" for an unpacked mapping."""
    return {one.keyword.value if one.keyword else one.star for one in call.args if one.keyword or one.star}


def method(call: cst.Call) -> str:
    """The last part of a called name."""
    func = call.func
    return func.attr.value if isinstance(func, cst.Attribute) else func.value if isinstance(func, cst.Name) else ""


def receiver(call: cst.Call) -> cst.BaseExpression | None:
    """The object whose method is called."""
    return call.func.value if isinstance(call.func, cst.Attribute) else None


def text_of(node: cst.CSTNode | None) -> str | None:
    """The value of a string constant."""
    if isinstance(node, cst.SimpleString):
        value = node.evaluated_value
        return value if isinstance(value, str) else None
    return None
