"""What is kept about names, functions and files while a script is read?"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from mgpu.errors import clip
from mgpu.readers.training_script.rank_conditions import Guards, Split, merge_guards

LONGEST = 80  # characters of a value
_MOST_TESTS = 100  # conditions around a position; each `if rank: return` adds one for all that follows

# Guards, other conditions, loops, contexts of `with`, and the conditions that the guards come from.
Around: TypeAlias = tuple[Guards, tuple[str, ...], tuple[int, ...], tuple[str, ...], tuple[str, ...]]
# A position, kept until the whole script is read: file, line, column, function, and context.
Spot: TypeAlias = tuple[str, int, int, int, Around]
OUTSIDE: Around = ((), (), (), (), ())


@dataclass
class Scope:
    """The names in a function or at a module's top level."""

    names: dict[str, str]
    above: Scope | None = None
    splits: dict[str, Split] = field(default_factory=dict)  # variables whose value is a condition on the rank
    unique: set[str] = field(default_factory=set)  # variables that contain the rank, a time or a random name
    elsewhere: dict[str, Scope] = field(default_factory=dict)  # global and nonlocal variables: the scope that has them
    looped: set[str] = field(default_factory=set)  # variables of loops, whose name says nothing about the rank
    unknown: set[str] = field(default_factory=set)  # parameters and variables of a function whose value is not known

    def declare(self, name: str, *, is_global: bool) -> None:
        """Note that a variable is a global one, or one of a function around."""
        scope = self.above
        while scope is not None and scope.above is not None and (is_global or name not in scope.names):
            scope = scope.above
        if scope is not None:
            self.elsewhere[name] = scope

    def home(self, name: str) -> Scope:
        """Return the scope in which an assignment binds a name."""
        return self.elsewhere.get(name, self)

    def _binding(self, name: str) -> Scope | None:
        """Return this scope, or the nearest one above it, that has a variable of this name."""
        scope: Scope | None = self
        while scope is not None and name not in scope.names:
            scope = scope.above
        return scope

    def find(self, name: str) -> str | None:
        """Return the resolved name of a variable, from this scope or one above it."""
        scope = self._binding(name)
        return scope.names[name] if scope is not None else None

    def is_unknown(self, name: str) -> bool:
        """Whether a name is that of a parameter or variable of unknown value, not of a function of the same name."""
        scope = self._binding(name)
        return scope is not None and name in scope.unknown

    def is_looped(self, name: str) -> bool:
        """Whether a name is that of a variable of a loop, also in a comprehension."""
        scope = self._binding(name)
        return scope is not None and name in scope.looped

    def is_unique(self, name: str) -> bool:
        """Whether a variable of this scope or one above it contains the rank, a time or a random name."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.unique:
                return True
            if name in scope.names:
                return False
            scope = scope.above
        return False

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
    decorated: bool = False  # by a decorator that may register it: a library can call it
    is_property: bool = False
    as_decorator: Guards | None = None  # the ranks on which it runs a function that it decorates, if it has done so
    returns: str | list[str | None] | None = None  # what it returns, resolved
    split: Split | None = None  # it returns a condition on the rank
    spot: Spot = ("", 1, 1, -1, OUTSIDE)
    sites: list[Spot] = field(default_factory=list)  # where it is called, or passed as a value
    calls: list[tuple[ast.expr, dict[str, bool]]] = field(default_factory=list)  # the same, with the flags of the file


@dataclass
class Source:
    """A file while it is read."""

    file: str  # "" for the script
    module: str  # dotted; "" for the script
    lines: list[bytes]
    package: str = ""
    flags: dict[str, bool] = field(default_factory=dict)  # variables that keep one value

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

    def module_of(self, node: ast.ImportFrom) -> str:
        """Return the dotted name of the module that an import takes names from, also of a relative import."""
        if not node.level:
            return node.module or ""
        parts = self.package.split(".") if self.package else []
        parts = parts[: len(parts) - node.level + 1] if node.level > 1 else parts
        return ".".join([*parts, *([node.module] if node.module else [])])

    def column(self, node: ast.AST) -> int:
        """Return the column of a node in characters, from 1."""
        line, offset = node.lineno - 1, node.col_offset  # type: ignore[attr-defined]
        return len(self.lines[line][:offset].decode("utf-8", "replace")) + 1 if line < len(self.lines) else 1


class Walk(Protocol):
    """The parts of `walk.Walk` that its frames use."""

    functions: list[Function]
    modules: dict[str, Scope]
    by_name: dict[str, Function]
    attributes: dict[str, str]
    splits: dict[str, Split]
    unique: set[str]
    timed: set[str]
    bases: dict[str, list[str]]
    passed: set[str]
    used: dict[int, set[str]]
    reads: dict[int, set[str]]
    variables: list[tuple[str, range, set[str]]]
    imports: set[str]
    maybe: dict[str, list[Spot]]
    calls: list[tuple[Spot, dict[str, Any]]]
    options: list[tuple[Spot, dict[str, Any]]]
    texts: list[tuple[Spot, dict[str, Any]]]
    cut: bool
    copied: int

    @property
    def mask(self) -> Callable[[str, str], str]:
        """Masks secrets in a text (the second argument), also by the name it is assigned to (the first)."""

    def all_bases(self, name: str) -> list[str]:
        """Return the base classes of one of the script's classes, and theirs; nothing for any other name."""

    def own_function(self, name: str) -> Function | None:
        """Return the script's own function with a resolved name."""

    def record_call(self, name: str, node: ast.expr, frame: Any, around: Around) -> Function | None:
        """Record a call of the script's own function, and read the function if it has not been read."""


def under(around: Around, guards: Guards, conditions: tuple[str, ...], test: str) -> Around:
    """Return a context under a condition: its guards, and the condition itself if it is another one."""
    tests = (*around[4], test) if guards and len(around[4]) < _MOST_TESTS else around[4]
    return merge_guards(around[0], guards), around[1] + conditions, around[2], around[3], tests


def within(around: Around, *contexts: str) -> Around:
    """Return a context in which further ones hold: a `with`, an error that is caught."""
    return (*around[:3], (*around[3], *contexts), *around[4:])
