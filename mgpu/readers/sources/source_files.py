"""Which files of the user's own does a traceback name, and are they still as they were?"""

from __future__ import annotations

import ast
import os
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mgpu import file_reading
from mgpu.file_reading import current_folder
from mgpu.readers.log.line import shown_text
from mgpu.readers.sources import bindings
from mgpu.readers.sources.shown_code import shown_code
from mgpu.readers.training_script import python_source
from mgpu.readers.training_script.local_modules import project_folder

_MOST_FILES = 60
_MOST_BYTES = 2 << 20  # of all files together: parsed in about 1 s (measured on one core, 2026-11)
_MOST_S = 3.0  # from the first file to the last one that is begun
_WAIT_S = 2.0  # for one of them: its file system may no longer answer
_SEPARATOR = re.compile(r"[/\\]+")


@dataclass(frozen=True, eq=False)
class Module:
    """A parsed file of the user's own."""

    path: str
    tree: ast.Module
    lines: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its name as the places of a finding have it."""
        return os.path.basename(self.path)

    @cached_property
    def imports(self) -> tuple[ast.Import | ast.ImportFrom, ...]:
        """The imports of the file itself, also in its branches."""
        inner = [self.tree.body]
        found: list[ast.Import | ast.ImportFrom] = []
        for body in inner:
            for node in body:
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    found.append(node)
                elif isinstance(node, (ast.If, ast.Try, ast.With)):
                    inner += [node.body, getattr(node, "orelse", [])]
                    inner += [handler.body for handler in getattr(node, "handlers", [])]
        return tuple(found)

    def text_of(self, node: ast.AST) -> str:
        """Return the source of a statement's first part in one line, with secrets masked."""
        first = getattr(node, "lineno", 1)
        body: list[ast.stmt] = getattr(node, "body", None) or []
        last = getattr(node, "end_lineno", None) or first
        if isinstance(body, list) and body and body[0].lineno > first:
            last = body[0].lineno - 1
        text = " ".join(line.strip() for line in self.lines[first - 1 : last] if not line.lstrip().startswith("#"))
        return shown_code(re.sub(r"([(\[{]) | (?=[)\]}])", r"\1", text))


class Changed(Exception):
    """The source is not the one that ran: what it says of other lines may be wrong, too."""


class Sources:
    """The user's files that a log names, and those that they import from the same project. Each is read once."""

    def __init__(self, folders: Iterable[Path]) -> None:
        """Prepare to search in the project of the current folder, and in those of others."""
        roots: list[str] = []
        for folder in filter(None, [current_folder(), *map(os.fspath, folders)]):
            real = os.path.realpath(folder)
            roots += [one for one in (real, project_folder(real)) if one not in roots]
        self.roots = roots
        self._read: dict[str, Module | None] = {}
        self._imported: dict[Module, list[Module]] = {}
        self._bytes = 0
        self._until = time.monotonic() + _MOST_S

    def of_frame(self, file: str, line: int, code: str) -> Module | None:
        """Return the file of a frame; None if there is none. Raises Changed if it has another line there by now."""
        if not code:  # the log does not have the line
            return None
        found = list(dict.fromkeys(filter(None, map(self.module, self._candidates(file)))))
        found = found[:1] if found and found[0].path == file else found  # the file that ran
        if found and not (same := [module for module in found if _has_line(module.lines, line, code)]):
            raise Changed
        return same[0] if found and len(same) == 1 else None

    def of_package(self, file: str, line: int, code: str) -> Module | None:
        """Return the file of a frame in an installed package; None if it is not here, or has another line there."""
        module = self.module(file) if os.path.isabs(file) and file.endswith(".py") else None
        return module if module and code and _has_line(module.lines, line, code) else None

    def named(self, file: str) -> Module | None:
        """Return a file that a launcher names, which shows no line of it: below a folder by more than its own name."""
        whole = (path for path in self._candidates(file) if path.endswith(os.path.join("", *_parts(file)[-2:])))
        return next(filter(None, map(self.module, whole)), None)

    def _candidates(self, file: str) -> Iterable[str]:
        """The places where a file can be: its own path, then below the folders by fewer and fewer of its last parts."""
        if not file.endswith(".py"):
            return
        if os.path.isabs(file):
            yield file
        parts = _parts(file)
        for start in range(len(parts)):
            if ".." in parts[start:]:
                continue
            for root in self.roots:
                if os.path.isfile(path := os.path.join(root, *parts[start:])) and path != file:
                    yield path

    def module(self, path: str) -> Module | None:
        """Return a parsed file; None if it cannot be read or parsed, or the limits are reached."""
        whole = os.path.abspath(path)
        if whole not in self._read:
            self._read[whole] = self._parse(whole)
        return self._read[whole]

    def _parse(self, path: str) -> Module | None:
        if len(self._read) >= _MOST_FILES or self._bytes > _MOST_BYTES or time.monotonic() > self._until:
            return None
        try:
            raw = file_reading.read(path, most=python_source.LARGEST_BYTES, wait_s=_WAIT_S)
            self._bytes += len(raw)
            tree, source = python_source.parse(raw, path, "")
        except (OSError, SyntaxError, ValueError, LookupError, RecursionError, MemoryError):
            return None
        return Module(path, tree, tuple(line.decode("utf-8", "replace") for line in source.lines))

    def imported(self, module: Module, name: str) -> tuple[Module, str] | None:
        """Return the module of the project that a name of another one is imported from, with its name there.

        For an imported module itself, the name is "".
        """
        for node in module.imports:
            for alias in node.names:
                if (alias.asname or alias.name.partition(".")[0]) != name and alias.name != "*":
                    continue
                if isinstance(node, ast.Import):
                    found = self._named(module, alias.name if alias.asname else name, 0)
                    return (found, "") if found else None
                if alias.name != "*" and (
                    found := self._named(module, f"{node.module or ''}.{alias.name}", node.level)
                ):
                    return found, ""
                if found := self._named(module, node.module or "", node.level):
                    if alias.name == "*" and not bindings.of_name(found.tree, name):
                        continue
                    return found, name if alias.name == "*" else alias.name
        return None

    def all_imported(self, module: Module) -> list[Module]:
        """Return the modules of the project that one imports, in their order."""
        if module not in self._imported:
            self._imported[module] = self._find_imported(module)
        return self._imported[module]

    def _find_imported(self, module: Module) -> list[Module]:
        found: list[Module] = []
        for node in module.imports:
            names = [alias.name for alias in node.names]
            dotted = [*names] if isinstance(node, ast.Import) else [node.module or ""]
            if isinstance(node, ast.ImportFrom):
                dotted += [f"{node.module or ''}.{name}".lstrip(".") for name in names]
            for one in dotted:
                there = self._named(module, one, getattr(node, "level", 0))
                if there is not None and there not in found:
                    found.append(there)
        return found

    def _named(self, module: Module, dotted: str, level: int) -> Module | None:
        parts = [part for part in dotted.split(".") if part]
        folder = os.path.dirname(module.path)
        roots: Sequence[str] = (folder, *self.roots, *self._above(folder))
        if level:
            for _ in range(level - 1):
                folder = os.path.dirname(folder)
            roots = (folder,)
        for root in roots:
            place = os.path.join(root, *parts)
            for path in (f"{place}.py" if parts else "", os.path.join(place, "__init__.py")):
                if path and os.path.isfile(path):
                    return self.module(path)
        return None

    @staticmethod
    def _above(folder: str) -> list[str]:
        top, found = project_folder(folder), []
        while folder != top and len(folder) > len(top):
            folder = os.path.dirname(folder)
            found.append(folder)
        return found


def _parts(file: str) -> list[str]:
    return [part for part in _SEPARATOR.split(file) if part not in ("", ".")]


def _has_line(lines: Sequence[str], number: int, code: str) -> bool:
    """Whether a line is the one that a traceback shows."""
    text = shown_text(lines[number - 1]) if 0 < number <= len(lines) else ""
    return bool(text) and (code == text or code.startswith(f"{text} "))
