"""The syntax tree of the user's script, with its positions, parents and qualified names."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, TypeVar

import libcst as cst
from libcst import metadata

from mgpu.port.script_files import Names, SourceFile

Function = cst.FunctionDef
# The function, class or module (None: the script's) that holds a variable, and its name.
Place = tuple[str, int]  # a file, "" for the script, and a line in it
Key = tuple[cst.CSTNode | None, str]
_PLACES = re.compile(r"\.cuda\(|cuda:\d|device")
_Node = TypeVar("_Node", bound=cst.CSTNode)


class SourceTree:
    """A parsed script and the modules of its own. All nodes are those of `module`."""

    def __init__(self, text: str, others: Sequence[SourceFile] = (), module: str = "") -> None:
        self.text = text
        self.files = (SourceFile("", module, text), *others)
        self._positions: dict[cst.CSTNode, metadata.CodeRange] = {}
        self._parents: dict[cst.CSTNode, cst.CSTNode] = {}
        self._qualified: dict[cst.CSTNode, Any] = {}
        self.modules: list[cst.Module] = []
        for one in self.files:
            wrapper = metadata.MetadataWrapper(cst.parse_module(one.text))
            self.modules.append(wrapper.module)
            self._positions |= wrapper.resolve(metadata.PositionProvider)
            self._parents |= wrapper.resolve(metadata.ParentNodeProvider)
            self._qualified |= wrapper.resolve(metadata.QualifiedNameProvider)
        self.main = self.modules[0]
        self._in_file: dict[cst.CSTNode, int] = {}
        self._numbers: dict[cst.CSTNode, int] = {module: number for number, module in enumerate(self.modules)}
        self._first_lines = list(accumulate((len(one.text.splitlines()) + 1 for one in self.files), initial=0))
        self.module = self.main.with_changes(body=[*self.main.body, *self._used()]) if others else self.main
        self._meanings = Names(self.files, self.modules)
        self._definitions: dict[tuple[int, str], list[Function | cst.ClassDef]] = {}
        self.functions: dict[str, list[Function]] = {}
        self.classes: dict[str, list[cst.ClassDef]] = {}
        self._known: dict[cst.CSTNode, tuple[int, str] | str] = {}
        self._keys: dict[cst.CSTNode, Key | None] = {}
        self._locals: dict[cst.CSTNode, set[str]] = {}
        for node in nodes(self.module):
            if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
                name = node.name.value
                if isinstance(node, cst.FunctionDef):
                    self.functions.setdefault(name, []).append(node)
                else:
                    self.classes.setdefault(name, []).append(node)
                if self.inside(node, cst.FunctionDef) is None and self.inside(node, cst.ClassDef) is None:
                    self._definitions.setdefault((self.file(node), name), []).append(node)

    def _used(self) -> list[cst.CSTNode]:
        """The statements of the other files that may run: not what they run as scripts, nor what no one calls."""
        found: list[cst.CSTNode] = []
        rest = [s for module in self.modules[1:] for s in module.body if not is_main_guard(s)]
        names = _identifiers(self.main)
        while True:
            new = [s for s in rest if not isinstance(s, (cst.FunctionDef, cst.ClassDef)) or s.name.value in names]
            rest = [s for s in rest if not any(s is one for one in new)]
            found += new
            if not new:
                break
            for one in new:
                names |= _identifiers(one)
        # A class that is chosen by name in the run.
        found += [s for s in rest if isinstance(s, cst.ClassDef) and _PLACES.search(self.module_of(s).code_for_node(s))]
        return sorted(found, key=lambda one: self.line(one))

    def module_of(self, node: cst.CSTNode) -> cst.Module:
        """The file that contains a node."""
        return self.modules[self.file(node)]

    def file(self, node: cst.CSTNode) -> int:
        """The number of the file that contains a node. The script is 0."""
        if node not in self._in_file:
            above = self._parents.get(node)
            self._in_file[node] = self.file(above) if above is not None else self._numbers.get(node, 0)
        return self._in_file[node]

    def first_line(self, file: int) -> int:
        """The number of lines before a file: lines are counted through all of them, starting with the script."""
        return self._first_lines[file]

    def line(self, node: cst.CSTNode) -> int:
        """The line where a node starts, counted through all files."""
        return self._positions[node].start.line + self._first_lines[self.file(node)]

    def last_line(self, node: cst.CSTNode) -> int:
        """The line where a node stops, counted through all files."""
        return self._positions[node].end.line + self._first_lines[self.file(node)]

    def place(self, node: cst.CSTNode) -> Place:
        """The file and the line where a node starts."""
        return self.files[self.file(node)].name, self._positions[node].start.line

    def where(self, node: cst.CSTNode) -> str:
        """The place of a node as text: `line 3`, `engine.py line 3`."""
        file, line = self.place(node)
        return f"{file} line {line}".strip()

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
        meaning = self._meaning(node)
        return meaning if isinstance(meaning, str) else meaning[1]

    def _meaning(self, node: cst.CSTNode) -> tuple[int, str] | str:
        if node not in self._known:
            self._known[node] = self._find_meaning(node)
        return self._known[node]

    def _find_meaning(self, node: cst.CSTNode) -> tuple[int, str] | str:
        """What an expression names: a file and what is in it, or the name in a library, or its dotted text."""
        named, file = self._qualified.get(node, ()), self.file(node)
        for found in named() if callable(named) else named:  # libcst computes most of them late
            if found.source is metadata.QualifiedNameSource.IMPORT:
                return self._meanings.imported(file, str(found.name))
        text = dotted(node)
        if not text or self.holder(node, text.partition(".")[0]) is not None:
            return text
        return self._meanings.in_file(file, text)

    def definitions(self, node: cst.CSTNode) -> list[Function | cst.ClassDef]:
        """The functions and classes at module level that an expression names, in whichever file."""
        meaning = self._meaning(node)
        return self._definitions.get(meaning, []) if isinstance(meaning, tuple) else []

    def class_of(self, node: cst.CSTNode) -> cst.ClassDef | None:
        """The class of the script that an expression names."""
        found = [one for one in self.definitions(node) if isinstance(one, cst.ClassDef)]
        if not found and isinstance(node, cst.Name):  # a class in a function
            here = self.classes.get(node.value, [])
            found = [one for one in here if self.inside(one, cst.FunctionDef) and self.file(one) == self.file(node)]
        return found[-1] if found else None

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
        if node not in self._keys:
            self._keys[node] = self._find_key(node)
        return self._keys[node]

    def _find_key(self, node: cst.CSTNode) -> Key | None:
        text = dotted(node)
        if not text:
            return None
        first, _, rest = text.partition(".")
        if first == "self" and rest:
            inside = self.inside(node, cst.ClassDef)
            return self.oldest(inside) if inside is not None else None, text
        if (holder := self.holder(node, first)) is not None:
            return holder, text
        meaning = self._meanings.in_file(self.file(node), text)
        file, name = meaning if isinstance(meaning, tuple) else (self.file(node), text)
        return self.modules[file] if file else None, name

    def oldest(self, found: cst.ClassDef) -> cst.ClassDef:
        """The class of the script that a class inherits from in the end: both hold the same attributes."""
        seen = {found}
        while (base := next((b for one in found.bases if (b := self.class_of(one.value))), None)) and base not in seen:
            seen.add(base)
            found = base
        return found

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


def _identifiers(node: cst.CSTNode) -> set[str]:
    """The names and attributes that a node mentions, without those that it imports."""
    if isinstance(node, cst.SimpleStatementLine) and any(
        isinstance(s, (cst.Import, cst.ImportFrom)) for s in node.body
    ):
        return set()
    body = node.body if isinstance(node, cst.Module) else None
    if body is not None:
        return set[str]().union(*(_identifiers(one) for one in body))
    return {one.value for one in nodes(node) if isinstance(one, cst.Name)}


def is_main_guard(node: cst.CSTNode | None) -> bool:
    """Whether a statement is `if __name__ == "__main__":`."""
    return isinstance(node, cst.If) and any(
        isinstance(one, cst.Name) and one.value == "__name__" for one in nodes(node.test)
    )


def dotted(node: cst.CSTNode) -> str:
    """The text of a name or a chain of attributes, else ""."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr.value}" if before else ""
    return ""


def assigned(node: cst.CSTNode | None) -> cst.BaseExpression | None:
    """The value of an assignment, annotated or not."""
    return node.value if isinstance(node, (cst.Assign, cst.AnnAssign)) else None


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
