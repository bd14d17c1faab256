"""Has one rank left a loop in which others still are? The stacks have their lines, the source has the loop."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from typing import TypeAlias

from mgpu.readers.sources.shown_code import shown_code
from mgpu.readers.sources.source_files import Module, Sources
from mgpu.snapshot import HangRank, LeftLoop

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)

Loop: TypeAlias = "ast.For | ast.AsyncFor | ast.While"
Places: TypeAlias = "dict[int, int]"  # rank -> line


def find(ranks: Iterable[HangRank]) -> LeftLoop | None:
    """Return the outermost loop of a function in which some ranks are, and which others of that function have left."""
    together: dict[tuple[str, str], Places] = defaultdict(dict)
    for rank in ranks:
        for frame in reversed(rank.frames):  # the outermost first; of a recursive function, that one counts
            if not frame.library:
                together[frame.file, frame.function].setdefault(rank.rank, frame.line)
    sources = Sources(())
    for (file, _), lines in together.items():
        module = sources.module(file) if len({*lines.values()}) > 1 else None
        if module is not None and (found := _in_module(module, file, lines)):
            return found
    return None


def _in_module(module: Module, file: str, lines: Places) -> LeftLoop | None:
    for loop in _around(module.tree, max(lines.values()), min(lines.values())):
        last = loop.body[-1].end_lineno or 0
        inside = tuple(sorted(rank for rank, line in lines.items() if loop.lineno <= line <= last))
        left = tuple(sorted(rank for rank, line in lines.items() if line > last))
        if inside and left:
            return LeftLoop(file, loop.lineno, shown_code(module.lines[loop.lineno - 1]), inside, left)
    return None


def _around(tree: ast.AST, last: int, first: int) -> list[Loop]:
    """Return the loops of the innermost function that has these two lines, the outer ones before those inside."""
    function: ast.AST = tree
    for node in ast.walk(tree):  # a function comes after the one that it is in
        if isinstance(node, _FUNCTIONS) and node.lineno <= first and last <= (node.end_lineno or 0):
            function = node
    found: list[Loop] = []
    below = list(ast.iter_child_nodes(function))
    while below:
        node = below.pop(0)
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            continue
        if isinstance(node, _LOOPS):
            found.append(node)
        below += ast.iter_child_nodes(node)
    return found
