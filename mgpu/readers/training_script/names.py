"""Which value does an expression of a script have, as far as names show?"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from mgpu.errors import clip
from mgpu.readers.training_script.rank_conditions import NOTHING, Guards, Split, classify, merge_guards

LONGEST = 80  # characters of a value
_LONGEST_NAME = 160
MOST = 5000  # entries of each kind; a script of 2,000 lines has about 800 calls

# Methods that return their object, and functions that return their argument.
_SAME = frozenset(
    {"to", "cuda", "cpu", "train", "eval", "half", "float", "bfloat16", "double", "requires_grad_", "apply"}
)
_WRAPS = frozenset({"torch.compile", "int", "str", "bool", "float"})
# Objects with several names.
_ALIASES = (
    ("torch.nn.parallel.distributed.", "torch.nn.parallel."),
    ("torch.nn.parallel.data_parallel.", "torch.nn.parallel."),
    ("torch.nn.parallel.DataParallel", "torch.nn.DataParallel"),
    ("torch.distributed.distributed_c10d.", "torch.distributed."),
    ("torch.distributed.fsdp.fully_sharded_data_parallel.", "torch.distributed.fsdp."),
    ("torch.utils.data.dataloader.", "torch.utils.data."),
    ("torch.utils.data.distributed.", "torch.utils.data."),
    ("torch.utils.data.sampler.", "torch.utils.data."),
    ("torch.multiprocessing.spawn.spawn", "torch.multiprocessing.spawn"),
    ("torch.multiprocessing.spawn.", "torch.multiprocessing."),
    ("accelerate.accelerator.", "accelerate."),
    ("accelerate.state.", "accelerate."),
    ("pytorch_lightning.", "lightning.pytorch."),
    ("lightning.Trainer", "lightning.pytorch.Trainer"),
)
_ALIASED = tuple(old for old, _ in _ALIASES)
_TEXTS = re.compile(r"cuda(?::\d+)?$|(?:tcp|file|env)://|.*\b(?:localhost|127\.0\.0\.1)\b")

Around: TypeAlias = tuple[Guards, tuple[str, ...], tuple[int, ...], tuple[str, ...]]
OUTSIDE: Around = ((), (), (), ())


@dataclass
class Scope:
    """The names in a function or at a module's top level."""

    names: dict[str, str]
    above: Scope | None = None
    splits: dict[str, Split] = field(default_factory=dict)  # variables whose value is a condition on the rank

    def find(self, name: str) -> str | None:
        """Return the resolved name of a variable, from this scope or one above it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.above
        return None

    def find_split(self, name: str) -> Split | None:
        """Return the rank condition that a variable holds, from this scope or one above it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.splits:
                return scope.splits[name]
            if name in scope.names:
                return None
            scope = scope.above
        return None


@dataclass
class Function:
    """A function of the script or of a module in its folder."""

    name: str  # as in `ScriptCall.function`
    node: ast.FunctionDef | ast.AsyncFunctionDef
    scope: Scope  # that contains it
    source: Source
    number: int
    owner: str = ""  # the class it is a method of, resolved
    guards: Guards = ()  # of its decorators
    read: bool = False
    returns: str | list[str | None] | None = None  # what it returns, resolved
    split: Split | None = None  # it returns a condition on the rank
    # Its calls: the number of the calling function, and the context.
    sites: list[tuple[int, Around]] = field(default_factory=list)


@dataclass
class Source:
    """A file while it is read."""

    file: str  # "" for the script
    module: str  # dotted; "" for the script
    lines: list[bytes]
    package: str = ""

    def words(self, node: ast.AST, longest: int = LONGEST) -> str:
        """Return the source text of a node, as one clipped line."""
        first, last = getattr(node, "lineno", 0) - 1, (getattr(node, "end_lineno", 0) or 0) - 1
        if first < 0 or last >= len(self.lines):
            return ""
        start, end = node.col_offset, node.end_col_offset  # type: ignore[attr-defined]
        if first == last:
            raw = self.lines[first][start:end]
        else:
            raw = b" ".join([self.lines[first][start:], *self.lines[first + 1 : last][:8], self.lines[last][:end]])
        text = " ".join(raw[: 4 * longest].decode("utf-8", "replace").split())
        return clip(text, longest)

    def column(self, node: ast.AST) -> int:
        """Return the column of a node in characters, from 1."""
        line, offset = node.lineno - 1, node.col_offset  # type: ignore[attr-defined]
        return len(self.lines[line][:offset].decode("utf-8", "replace")) + 1 if line < len(self.lines) else 1


# A position, kept until the whole script is read: file, line, column, function, and context.
Spot: TypeAlias = tuple[str, int, int, int, Around]


class Walk(Protocol):
    """The parts of `walk.Walk` that its frames use."""

    by_name: dict[str, Function]
    attributes: dict[str, str]
    splits: dict[str, Split]
    calls: list[tuple[Spot, dict[str, Any]]]
    options: list[tuple[Spot, dict[str, Any]]]
    texts: list[tuple[Spot, dict[str, Any]]]
    cut: bool

    @property
    def mask(self) -> Callable[[str, str], str]:
        """Masks secrets in a text (the second argument), also by the name it is assigned to (the first)."""

    def own_function(self, name: str) -> Function | None:
        """Return the script's own function with a resolved name."""

    def record_call(self, name: str, node: ast.Call | None, frame: Frame, around: Around) -> Function | None:
        """Record a call of the script's own function, and read the function if it has not been read."""


@dataclass
class Frame:
    """The body of a function or class, or a module's top level, while it is read."""

    walk: Walk
    source: Source
    scope: Scope
    number: int  # of the function; -1: the top level
    inside: str  # prefix of the names of functions in it
    owner: str = ""  # the class whose body this is

    def spot(self, node: ast.AST, around: Around) -> Spot:
        """Return the position of a node."""
        return self.source.file, node.lineno, self.source.column(node), self.number, around  # type: ignore[attr-defined]

    def look(self, tree: ast.expr, around: Around, targets: Sequence[ast.expr] = ()) -> None:
        """Record the calls in an expression; `targets` are the names its value is assigned to."""
        found: list[tuple[ast.AST, Around]] = []
        stack: list[tuple[ast.AST, Around]] = [(tree, around)]
        while stack:
            node, here = stack.pop()
            kind = type(node)
            if kind is ast.Constant:
                if type(node.value) is str and _TEXTS.match(node.value):  # type: ignore[attr-defined]
                    self._text(node, here)
                continue
            found.append((node, here))
            if kind is ast.Attribute:
                stack.append((node.value, here))  # type: ignore[attr-defined]
            elif kind is ast.IfExp or kind is ast.BoolOp:
                stack.extend(self._branches(node, here))  # type: ignore[arg-type]
            elif kind is not ast.Name:
                stack.extend([(child, here) for child in ast.iter_child_nodes(node)])
        heads = {id(node.func) for node, _ in found if isinstance(node, ast.Call)}
        for node, here in reversed(found):
            if isinstance(node, ast.Call):
                self._call(node, here, targets if node is tree else ())
            elif isinstance(node, ast.Name) and id(node) not in heads:
                if (name := self.scope.find(node.id)) is not None and name in self.walk.by_name:
                    self.walk.record_call(name, None, self, here)  # passed as a value: its caller is not known
            elif isinstance(node, ast.NamedExpr):
                self.bind(node.target, node.value)

    def _branches(self, node: ast.IfExp | ast.BoolOp, around: Around) -> list[tuple[ast.AST, Around]]:
        """Return the parts of `a if test else b` and `test and a`, guarded by the test as in an `if`."""

        def under(guards: Guards) -> Around:
            return (merge_guards(around[0], guards), *around[1:])

        if isinstance(node, ast.IfExp):
            yes, no = self.split(node.test)
            return [(node.test, around), (node.body, under(yes)), (node.orelse, under(no))]
        yes, no = self.split(node.values[0])
        behind = under(yes if isinstance(node.op, ast.And) else no)
        return [(node.values[0], around), *((value, behind) for value in node.values[1:])]

    def _text(self, node: ast.AST, around: Around) -> None:
        if len(self.walk.texts) >= MOST:
            self.walk.cut = True
            return
        text = self.walk.mask("", node.value[:LONGEST])  # type: ignore[attr-defined]
        self.walk.texts.append((self.spot(node, around), {"text": text}))

    def _call(self, node: ast.Call, around: Around, targets: Sequence[ast.expr]) -> None:
        walk, words = self.walk, self.source.words
        name = self.resolve(node.func) or words(node.func, _LONGEST_NAME)
        walk.record_call(name, node, self, around)
        if len(walk.calls) >= MOST:
            walk.cut = True
            return
        keywords = {
            (keyword.arg or "**"): walk.mask(keyword.arg or "", self.value(keyword.value)) for keyword in node.keywords
        }
        what = {
            "name": name,
            "arguments": tuple(walk.mask("", self.value(argument)) for argument in node.args),
            "keywords": keywords,
            "targets": tuple(words(one) for target in targets for one in parts(target)),
            "written": (
                *(walk.mask("", words(argument)) for argument in node.args),
                *(walk.mask(keyword.arg or "", words(keyword.value)) for keyword in node.keywords),
            ),
        }
        walk.calls.append((self.spot(node, around), what))
        if name.endswith(".add_argument") or name in ("click.option", "click.argument"):
            self._option(node, keywords, around)

    def _option(self, node: ast.Call, keywords: dict[str, str], around: Around) -> None:
        names = tuple(a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str))
        if names:
            what = {"names": names, **{key: keywords.get(key) for key in ("default", "action", "type")}}
            self.walk.options.append((self.spot(node, around), what))

    # --- values ------------------------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> str:
        """Return a value as text."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = repr(node.value[:LONGEST])
            return text if len(text) <= LONGEST else text[: LONGEST - 4] + "...'"
        if isinstance(node, ast.Starred):
            return "*" + self.value(node.value)
        if isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
            return (self.resolve(node) or self.source.words(node))[:LONGEST]
        return self.source.words(node)

    def resolve(self, node: ast.expr) -> str | None:
        """Return the dotted name of an expression's value if it can be resolved; else as written, or None."""
        if isinstance(node, ast.Name):
            return self.scope.find(node.id) or node.id
        if isinstance(node, ast.Attribute):
            return self._attribute(self.resolve(node.value), node.attr)
        if isinstance(node, ast.Call):
            return self._call_result(node)
        if isinstance(node, ast.Subscript):
            above = self.resolve(node.value)
            key = node.slice
            if isinstance(key, ast.Constant) and above is not None:
                name = f"{above}[{key.value!r}]"[:_LONGEST_NAME]
                return self.walk.attributes.get(name, name)
            return None if above is None else f"{above}[]"
        if isinstance(node, ast.Await | ast.Starred | ast.NamedExpr):
            return self.resolve(node.value)
        if isinstance(node, ast.IfExp):
            return self.resolve(node.body)
        return None

    def _attribute(self, above: str | None, name: str) -> str | None:
        """Return the name of an attribute of the object named `above`."""
        if above is None or len(above) > _LONGEST_NAME:
            return None
        whole = canonical(f"{above}.{name}")
        return self.walk.attributes.get(whole, whole)

    def _call_result(self, node: ast.Call) -> str | None:
        """Return the name of a call's result."""
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in _SAME:
            above = self.resolve(function.value)  # once: a chain of these would double the work at each link
            if above is not None and above != "torch" and self.walk.own_function(f"{above}.{function.attr}") is None:
                return above
            name = self._attribute(above, function.attr)
        else:
            name = self.resolve(function)
        if name is None:
            return None
        if name in _WRAPS and node.args:
            return self.resolve(node.args[0]) or f"{name}()"
        if name in ("os.environ.get", "os.getenv") and node.args and isinstance(key := node.args[0], ast.Constant):
            return f"os.environ[{key.value!r}]"
        own = self.walk.own_function(name)
        if own is not None and own.node.name != "__init__" and isinstance(own.returns, str) and "." in own.returns:
            return own.returns
        return f"{name}()"[:_LONGEST_NAME]

    def split(self, test: ast.expr) -> Split:
        """Return the ranks for which a condition is true, and those for which it is false."""
        return classify(test, self._both, self.known_split)

    def _both(self, node: ast.expr) -> str:
        return f"{self.source.words(node)}\n{self.resolve(node) or ''}"

    def known_split(self, node: ast.expr) -> Split | None:
        """Return the rank condition that a variable, attribute or the script's own function holds."""
        if isinstance(node, ast.Name):
            return self.scope.find_split(node.id)
        if isinstance(node, ast.Attribute):
            return self.walk.splits.get(self.resolve(node) or "")
        if isinstance(node, ast.Call):
            own = self.walk.own_function(self.resolve(node.func) or "")
            return own.split if own is not None else None
        return None

    def bind(self, target: ast.expr, value: ast.expr) -> None:
        """Bind a name to a value."""
        if isinstance(target, ast.Tuple | ast.List):
            values = self._several(value, len(target.elts))
            for one, given in zip(target.elts, values, strict=True):
                self._bind(one, given)
            return
        split = self.split(value) if isinstance(value, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Call) else NOTHING
        if split == NOTHING and isinstance(value, ast.Name | ast.Attribute):
            split = self.known_split(value) or NOTHING
        self._bind(target, self.resolve(value), split)

    def _several(self, value: ast.expr, number: int) -> list[str | None]:
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == number:
            return [self.resolve(item) for item in value.elts]
        if isinstance(value, ast.Call):
            own = self.walk.own_function(self.resolve(value.func) or "")
            if own is not None and isinstance(own.returns, list) and len(own.returns) == number:
                return own.returns
            return [self.resolve(value)] * number
        return [None] * number

    def _bind(self, target: ast.expr, given: str | None, split: Split = NOTHING) -> None:
        if isinstance(target, ast.Starred):
            target = target.value
        if isinstance(target, ast.Name):
            self.scope.names[target.id] = given if given is not None else target.id
            self.scope.splits.pop(target.id, None)
            if split != NOTHING:
                self.scope.splits[target.id] = split
        elif isinstance(target, ast.Attribute):
            above = self.resolve(target.value)
            name = f"{above}.{target.attr}"
            self.walk.splits.pop(name, None)
            if split != NOTHING:
                self.walk.splits[name] = split
            self.walk.attributes.pop(name, None)
            if given is not None and given != name and name not in given:
                self.walk.attributes[name] = given

    def forget(self, name: str) -> None:
        """Bind a loop variable, which resolves to itself."""
        self.scope.names[name] = name
        self.scope.splits.pop(name, None)


def bind_arguments(function: Function, node: ast.Call, frame: Frame) -> tuple[dict[str, str], dict[str, Split]]:
    """Return what a call binds to a function's parameters: values, and conditions on the rank."""
    names = [argument.arg for argument in (*function.node.args.posonlyargs, *function.node.args.args)]
    if function.owner and names:
        names = names[1:]
    pairs: list[tuple[str, ast.expr]] = []
    for name, value in zip(names, node.args, strict=False):
        if isinstance(value, ast.Starred):
            break
        pairs.append((name, value))
    pairs += [(keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg]
    values = {name: found for name, value in pairs if (found := frame.resolve(value)) is not None}
    splits = {}
    for name, value in pairs:
        test = frame.split(value) if isinstance(value, ast.Compare | ast.BoolOp) else frame.known_split(value)
        if test is not None and test != NOTHING:
            splits[name] = test
    return values, splits


def canonical(name: str) -> str:
    """Return the canonical name of an object that libraries export under several names."""
    if not name.startswith(_ALIASED):
        return name
    for old, new in _ALIASES:
        if name.startswith(old):
            return new + name[len(old) :]
    return name


def parts(target: ast.expr) -> Sequence[ast.expr]:
    """Return the targets that a value is unpacked to; the target itself if it is not unpacked."""
    return target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
