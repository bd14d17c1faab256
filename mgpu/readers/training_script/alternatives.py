"""What do names stand for after branches of which a run takes one, `if` and `else`?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

from mgpu.readers.training_script.held_conditions import one_of
from mgpu.readers.training_script.names import Frame
from mgpu.readers.training_script.rank_conditions import NOTHING, Guards, Split

Value = TypeVar("Value")
# A model that only a run of several ranks has: it counts, not that of the other branch.
_WRAPPED = re.compile(
    r"torch\.nn\.parallel\.DistributedDataParallel\(\)|torch\.distributed\.fsdp\.(?:\w+\.)?FullyShardedDataParallel\(\)"
)
_MOST_COPIED = 4_000_000  # entries, for all branches of a script; about 1 s


class Alternatives:
    """What names and attributes are before some branches, and what each of the branches makes of them.

    Each branch starts from what was before. A value of None stands for one that a branch removed.
    """

    def __init__(self, frame: Frame) -> None:
        """Keep what was before."""
        self._scope, self._walk = frame.scope, frame.walk
        self._names = (frame.scope.names, frame.walk.attributes)
        self._splits = (frame.scope.splits, frame.walk.splits)
        frame.walk.copied += sum(map(len, self._names)) + sum(map(len, self._splits))
        self._known = frame.walk.copied < _MOST_COPIED
        if not self._known:
            frame.walk.cut = True
            return
        self._names_before = [dict(one) for one in self._names]
        self._splits_before = [dict(one) for one in self._splits]
        self._branches: list[tuple[Guards, list[dict[str, str | None]], list[dict[str, Split | None]]]] = []
        self._unique: set[str] = set()

    def end(self, guards: Guards, *, leaves: bool) -> None:
        """Note what a branch has changed, which these ranks take, and restore what was before.

        `leaves`: no code after it is reached from it, so its variables do not count; other functions read attributes.
        """
        if not self._known:
            return
        names = [_changes(now, old) for now, old in zip(self._names, self._names_before, strict=True)]
        splits = [_changes(now, old) for now, old in zip(self._splits, self._splits_before, strict=True)]
        if leaves:
            names[0], splits[0] = {}, {}
        self._branches.append((guards, names, splits))
        self._unique |= self._scope.unique
        for one, was in zip(self._names, self._names_before, strict=True):
            _restore(one, was)
        for split, before in zip(self._splits, self._splits_before, strict=True):
            _restore(split, before)

    def merge(self, *, first: bool) -> None:
        """Bind the names to what they may be after the branches: the last value, or that of a run of several ranks.

        `first`: the names that the first branch binds keep its values.
        """
        if not self._known:
            return
        self._scope.unique |= self._unique
        for place, names in enumerate(self._names):
            several = [branch[1][place] for branch in self._branches]
            for changed in several:
                _apply(names, changed)
            for changed in several:
                _apply(names, {name: value for name, value in changed.items() if value and _WRAPPED.fullmatch(value)})
        if first or "distributed" in self._branches[0][0]:
            _apply(self._names[0], self._branches[0][1][0])
        for place, splits in enumerate(self._splits):
            before = self._splits_before[place]
            for name in dict.fromkeys(name for branch in self._branches for name in branch[2][place]):
                held = [(one[0], one[2][place].get(name, before.get(name))) for one in self._branches]
                _apply(splits, {name: _merged(held)})


def _merged(held: Sequence[tuple[Guards, Split | None]]) -> Split | None:
    """Return the rank condition of a variable after branches; None if its name says what it means, or nothing does."""
    if all(split == held[0][1] for _, split in held):
        return held[0][1]
    split = one_of([(guards, one or NOTHING) for guards, one in held])
    return split if split != NOTHING else None


def _changes(now: Mapping[str, Value], before: Mapping[str, Value]) -> dict[str, Value | None]:
    changed: dict[str, Value | None] = {key: value for key, value in now.items() if before.get(key) != value}
    return changed | dict.fromkeys(before.keys() - now.keys())


def _apply(values: dict[str, Value], changed: Mapping[str, Value | None]) -> None:
    for key, value in changed.items():
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value


def _restore(values: dict[str, Value], before: Mapping[str, Value]) -> None:
    values.clear()
    values.update(before)
