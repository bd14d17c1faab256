"""What do several ranks' reports of the same exception show together?"""

from __future__ import annotations

from dataclasses import replace

from mgpu.snapshot import UncaughtException


def fullness(one: UncaughtException) -> tuple[int, int]:
    """Return how much a traceback shows. Ranks that write to one file at the same time cut each other's."""
    return len({*one.frames}), sum(map(bool, one.own_lines))


def joined(old: UncaughtException, new: UncaughtException) -> UncaughtException:
    """Return both as one exception, with the traceback that shows more."""
    first = new if new.at and old.at and new.at < old.at else old
    fuller = max(first, new if first is old else old, key=fullness)
    return replace(
        first,
        times=old.times + 1,
        ranks=tuple(sorted({*old.ranks, *new.ranks})),
        after=min(old.after, new.after),
        by_torch=old.by_torch or new.by_torch,
        logged=new.logged,
        by_one=min(old.by_one, new.by_one),
        frames=fuller.frames,
        calls=fuller.calls,
        packages=fuller.packages,
        cloned=fuller.cloned,
        own_lines=fuller.own_lines,
        own_code=fuller.own_code,
    )
