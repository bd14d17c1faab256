"""Which of the indices of x[a, b] is too large? And what does one that no line shows mean?

numpy counts the axis over all dimensions. torch leaves those out that an int or a slice before a tensor took away:
x[0, t] and x[:, t] report dimension 0 (measured torch 2.13 CPU 2026-11).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import NamedTuple

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException
from mgpu.text import plural

from .._followed_values import parsed
from .._wording import at_place


class _Item(NamedTuple):
    of: str
    indices: tuple[str, ...]


def _only_item(code: str) -> _Item | None:
    """Return the only item that a line reads or writes, if it has several indices, all of known places."""
    tree = parsed(code) if code else None
    items = [node for node in ast.walk(tree) if isinstance(node, ast.Subscript)] if tree else []
    if len(items) != 1 or not isinstance(items[0].slice, ast.Tuple):
        return None
    indices = items[0].slice.elts
    if any(isinstance(one, ast.Constant) and one.value in (None, ...) for one in indices):
        return None
    return _Item(ast.unparse(items[0].value), tuple(map(ast.unparse, indices)))


def _possible(item: _Item, groups: Mapping[str, str]) -> list[str]:
    """Return the indices that can be the one in the message."""
    axis = int(groups["axis"])
    places = range(axis, axis + 1) if groups["kind"] == "axis" else range(axis, len(item.indices))
    found = [item.indices[place] for place in places if place < len(item.indices)]
    return [one for one in found if ":" not in one and (not one.lstrip("-").isdigit() or one == groups["index"])]


def _counted(groups: Mapping[str, str]) -> str:
    return f"{int(groups['size']):,} {plural(int(groups['size']), 'element')}"


def _past_the_end(groups: Mapping[str, str]) -> str:
    if groups["index"] != groups["size"] or groups["size"] == "0":
        return ""
    return f" Positions count from 0, so {int(groups['size']) - 1} is the last one: numbers from 1 on are one too high."


def one_of_several(code: str, groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain an index that is too large in a line that reads one item by several indices."""
    item = _only_item(code)
    possible = _possible(item, groups) if item else []
    if item is None or not possible:
        return None
    at = at_place(raised)
    which = possible[0] if len(possible) == 1 else f"{', '.join(possible[:-1])} or {possible[-1]}"
    shown = python("print({:dotted}.shape)", item.of)
    return Meaning(
        f"an index is too large: {which} is, or holds, {groups['index']}, and {item.of} has {_counted(groups)} in that "
        f"dimension{at}",
        f"{which} was computed for another or a larger {'array' if groups['kind'] == 'axis' else 'tensor'} than "
        f"{item.of}: an id or a label that is not below the number of columns, a fixed number in the code, or an index "
        f"into the whole data where {item.of} is a part of it.{_past_the_end(groups)}",
        (
            Fix("Print the shape and the range of the index before that line.", (shown or "print(x.shape)",)),
            Fix("If the index is a tensor, print its limits, too.", ("print(index.min(), index.max())",)),
        ),
        complete=True,
    )


def index_in_own_line(groups: Mapping[str, str], raised: UncaughtException) -> Meaning | None:
    """Explain an index into a tensor in a line of the script's that does not show which one it is."""
    if not raised.raised_in_own_code:
        return None
    at = at_place(raised)
    line = f' The line is "{raised.code}".' if raised.code else ""
    return Meaning(
        f"an index is too large: {groups['index']}, but the dimension has {_counted(groups)}{at}",
        f"It was computed for another or a larger tensor: an id or a label beyond the size of a table, a fixed number "
        f"in the code, or an index into the whole data where the tensor is a part of it.{_past_the_end(groups)}{line}",
        (
            Fix(
                "Print the shape of each tensor in that line, and the limits of its index.",
                ("print(x.shape, index.min(), index.max())",),
            ),
        ),
        complete=True,
    )
