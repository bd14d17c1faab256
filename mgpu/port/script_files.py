"""The files of a script, and which definition in which of them an imported name is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst
from libcst.helpers import get_full_name_for_node

_DEEPEST = 8  # names that are imported from one module to the next


@dataclass(frozen=True)
class SourceFile:
    """A Python file: the script, or a module that it imports from its own folder."""

    name: str  # relative to the script's folder
    module: str  # dotted, as others import it; a package's __init__.py has the name of the package
    text: str

    @property
    def package(self) -> str:
        """The package that relative imports in this file start from."""
        return self.module if self.name.endswith("__init__.py") else self.module.rpartition(".")[0]


class Names:
    """What the names at module level of several files mean."""

    def __init__(self, files: Sequence[SourceFile], modules: Sequence[cst.Module]) -> None:
        self._files = files
        self._modules = {one.module: number for number, one in enumerate(files) if one.module}
        self._imports: list[dict[str, str]] = [{} for _ in files]  # the name in the file -> dotted name
        self._stars: list[list[str]] = [[] for _ in files]
        self._own: list[set[str]] = [set() for _ in files]
        for number, module in enumerate(modules):
            for statement in module.body:
                self._statement(number, statement)

    def _statement(self, number: int, statement: cst.CSTNode) -> None:
        if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
            self._own[number].add(statement.name.value)
            return
        if isinstance(statement, (cst.Import, cst.ImportFrom)):
            self._import(number, statement)
        elif isinstance(statement, (cst.Assign, cst.AnnAssign)):
            targets = [t.target for t in statement.targets] if isinstance(statement, cst.Assign) else [statement.target]
            for target in targets:
                names = [e.value for e in target.elements] if isinstance(target, cst.Tuple) else [target]
                self._own[number] |= {one.value for one in names if isinstance(one, cst.Name)}
        elif isinstance(statement, (cst.SimpleStatementLine, cst.If, cst.Try, cst.IndentedBlock, cst.Else)):
            for child in statement.children:
                self._statement(number, child)
        elif isinstance(statement, (cst.ExceptHandler, cst.With)):
            self._statement(number, statement.body)

    def _import(self, number: int, node: cst.Import | cst.ImportFrom) -> None:
        if isinstance(node, cst.Import):
            for one in node.names:
                dotted = one.evaluated_name
                if one.asname is None:
                    self._imports[number][dotted.partition(".")[0]] = dotted.partition(".")[0]
                else:
                    self._imports[number][one.evaluated_alias or ""] = dotted
            return
        module = self.absolute(
            number, "." * len(node.relative) + (get_full_name_for_node(node.module) or "" if node.module else "")
        )
        if isinstance(node.names, cst.ImportStar):
            self._stars[number].append(module)
            return
        for one in node.names:
            self._imports[number][one.evaluated_alias or one.evaluated_name] = f"{module}.{one.evaluated_name}"

    def absolute(self, number: int, name: str) -> str:
        """Return a name without leading dots, which count from the package of its file."""
        dots = len(name) - len(name.lstrip("."))
        if not dots:
            return name
        package = self._files[number].package.split(".") if self._files[number].package else []
        above = package[: len(package) - dots + 1]
        return ".".join([*above, name[dots:]]).strip(".")

    def in_file(self, number: int, name: str) -> tuple[int, str] | str:
        """What a dotted name at module level of a file is: a file and the name there, or the name in a library."""
        return self._in_file(number, name, 0)

    def imported(self, number: int, name: str) -> tuple[int, str] | str:
        """What an imported, qualified name is."""
        return self._qualified(self.absolute(number, name), 0)

    def _in_file(self, number: int, name: str, depth: int) -> tuple[int, str] | str:
        first, _, rest = name.partition(".")
        if depth > _DEEPEST:
            return name
        if first in self._own[number]:
            return number, name
        if first in self._imports[number]:
            return self._qualified(".".join(filter(None, (self._imports[number][first], rest))), depth + 1)
        for module in self._stars[number]:
            if module in self._modules and self._has(self._modules[module], first, depth + 1):
                return self._in_file(self._modules[module], name, depth + 1)
        return number, name

    def _has(self, number: int, name: str, depth: int) -> bool:
        if name in self._own[number] or name in self._imports[number]:
            return True
        inner = (self._modules[module] for module in self._stars[number] if module in self._modules)
        return depth < _DEEPEST and any(self._has(one, name, depth + 1) for one in inner)

    def _qualified(self, name: str, depth: int) -> tuple[int, str] | str:
        for module, rest in _splits(name):
            if module in self._modules:
                return self._in_file(self._modules[module], rest, depth + 1) if rest else name
        return name


def _splits(name: str) -> Iterator[tuple[str, str]]:
    """The ways to split a dotted name into a module and what is in it, the longest module first."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        yield ".".join(parts[:count]), ".".join(parts[count:])
