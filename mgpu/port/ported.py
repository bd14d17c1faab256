"""The result: the new text, and its differences, each with its reasons."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mgpu.port.change import Change
from mgpu.port.source_tree import Place

_CONTEXT = 1
_LONG = 5000  # lines; equal ones make difflib quadratic


@dataclass(frozen=True)
class Hunk:
    """One place of the diff, and why it changes."""

    lines: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class PortedFile:
    """Another file that changes with the script."""

    name: str  # relative to the script's folder
    old: str | None  # None: a new file
    text: str
    hunks: tuple[Hunk, ...]


@dataclass(frozen=True)
class Ported:
    """A script's port. `text` is the old text if there is nothing to change; `refused` says why."""

    text: str
    hunks: tuple[Hunk, ...] = ()
    notes: Mapping[str, Sequence[Place]] = field(default_factory=dict)  # text -> places in the old texts
    decisions: tuple[tuple[Place, str], ...] = ()  # place in the old text, what to decide
    refused: str = ""
    others: tuple[PortedFile, ...] = ()


def hunks(old: str, new: str, changes: Sequence[Change]) -> tuple[Hunk, ...]:
    """Return the differences in groups, each with the reasons of its changes."""
    before, after = _lines(old), _lines(new)
    found = []
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=len(after) > _LONG)
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        first, last = group[0], group[-1]
        head = f"@@ -{first[1] + 1},{last[2] - first[1]} +{first[3] + 1},{last[4] - first[3]} @@"
        lines = [head]
        for kind, start, stop, new_start, new_stop in group:
            if kind == "equal":
                lines += [f" {line}" for line in before[start:stop]]
            else:
                lines += [f"-{line}" for line in before[start:stop]]
                lines += [f"+{line}" for line in after[new_start:new_stop]]
        touched = [one for one in changes if first[1] < one.last_line + 1 and one.line <= last[2] + 1]
        reasons = tuple(dict.fromkeys(one.reason for one in touched if not one.decide and _changes(one, group)))
        found.append(Hunk(tuple(lines), reasons))
    return tuple(found)


def _lines(text: str) -> list[str]:
    """The lines that Python counts. `splitlines` also splits at a form feed, for example."""
    lines = re.split(r"\r\n|\r|\n", text)
    return lines if lines[-1] else lines[:-1]


def _changes(change: Change, group: Sequence[tuple[str, int, int, int, int]]) -> bool:
    """Whether a change is at a difference of the group, not only near it."""
    return any(
        kind != "equal" and start <= change.last_line and change.line <= max(stop, start + 1)
        for kind, start, stop, _, _ in group
    )
