"""What did the names on a failed line stand for, and on which other ranks for something else?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mgpu.report.json_types import OtherValuesEntry, ValuesEntry
    from mgpu.snapshot import EndedRank, LineValues

_OTHER_RANKS = 3
_OF_RANK = re.compile(r"( on cuda):\d+$|( on cpu), (?:from -?\d+ to -?\d+|all -?\d+)$")
_NAMES = 4  # of a line, on the screen


def entries(rank: int, ranks: Sequence[EndedRank]) -> list[ValuesEntry]:
    """Return the values of a rank as JSON has them, the innermost line first."""
    by_rank = {one.rank: one.values for one in ranks if one.values}
    return [
        {
            "file": line.file,
            "line": line.line,
            "function": line.function,
            "names": dict(line.values),
            "condition": line.condition,
            "other_ranks": _others(line, {other: lines for other, lines in by_rank.items() if other != rank}),
        }
        for line in by_rank.get(rank, ())
        if line.values or line.condition
    ]


def _others(line: LineValues, by_rank: Mapping[int, Sequence[LineValues]]) -> list[OtherValuesEntry]:
    """Return what differs on ranks that failed at the same line: shapes, types, None."""
    found: list[OtherValuesEntry] = []
    for rank, lines in sorted(by_rank.items()):
        same = next((one for one in lines if (one.file, one.line) == (line.file, line.line)), None)
        differing = {
            name: text
            for name, text in (same.values if same else {}).items()
            if name in line.values and _kind(text) != _kind(line.values[name])
        }
        if differing and len(found) < _OTHER_RANKS:
            found.append({"rank": rank, "names": differing})
    return found


def _kind(text: str) -> str:
    """Return a description without what each rank has of its own: its GPU's number, and the range of its batch."""
    return _OF_RANK.sub(r"\1\2", text)


def texts(values: Sequence[ValuesEntry], most: int) -> list[str]:
    """Return a text for each of the innermost lines, and for each rank on which the first of them has other values."""
    found = []
    for number, one in enumerate(values[:most]):
        place = f"{one['file'].rpartition('/')[2]}:{one['line']}"
        why = f", raised because {one['condition']}" if one["condition"] else ""
        found.append(f"{place}{why}{': ' if one['names'] else ''}{_listed(one['names'])}")
        others = one["other_ranks"] if not number else []
        found += [f"on rank {other['rank']}: {_listed(other['names'])}" for other in others]
    return found


def _listed(names: Mapping[str, str]) -> str:
    """Name the first of the names and their values; the JSON document has all of them."""
    shown = [f"{name} is {text}" for name, text in [*names.items()][:_NAMES]]
    more = len(names) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")
