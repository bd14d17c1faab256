"""Which nodes does a Slurm host list "n[1-3,7]" contain, and how are names folded into one?

Same rules as `scontrol show hostnames` and `show hostlist` (measured with Slurm 22.05): numbers at the end of a name
are folded and keep their zeros, "n[098-101]"; several brackets multiply, "r[1-2]n[1-4]". Slurm accepts no text after
the last bracket, so names like "n1.site" are read in every form but written one by one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

MOST = 100_000  # names; no cluster has that many, and one wrong digit would fill the memory
_DIGITS = 18  # of a number; a longer one is treated as text
_RANGE = re.compile(rf"([0-9]{{1,{_DIGITS}}})(?:-([0-9]{{1,{_DIGITS}}}))?")


def expand(text: str) -> tuple[str, ...]:
    """Return the names in a Slurm host list, in its order. Raises ValueError with a message for the user."""
    found: list[str] = []
    for part in _parts(text):
        pieces = re.split(r"\[([^\[\]]*)\]", part)  # text, inside, text, inside, ..., text
        if any("[" in piece or "]" in piece for piece in pieces[::2]):
            raise ValueError(f"{part!r}: unmatched bracket")
        choices = [list(_numbers(p, part)) if place % 2 else [p] for place, p in enumerate(pieces)]
        names = 1
        for choice in choices:
            names *= len(choice)
        if len(found) + names > MOST:
            raise ValueError(f"{part!r}: more than {MOST} names")
        found += map("".join, itertools.product(*choices))
    return tuple(found)


def _parts(text: str) -> Iterator[str]:
    """Split at commas, blanks and line ends that are not in brackets."""
    depth, start = 0, 0
    for place, character in enumerate(text):
        depth += {"[": 1, "]": -1}.get(character, 0)
        if depth <= 0 and (character == "," or character.isspace()):
            if part := text[start:place].strip():
                yield part
            start = place + 1
    if part := text[start:].strip():
        yield part


def _numbers(inside: str, part: str) -> Iterator[str]:
    """Expand the text in a pair of brackets: "1-3,07" is 1, 2, 3 and 07. A range has its first number's width."""
    for one in inside.split(","):
        found = _RANGE.fullmatch(one.strip())
        if not found:
            raise ValueError(f"{part!r}: {one.strip()!r} is not a number or range")
        first, last = found[1], found[2] or found[1]
        if int(last) < int(first):
            raise ValueError(f"{part!r}: {one.strip()} runs backwards")
        if int(last) - int(first) >= MOST:
            raise ValueError(f"{part!r}: more than {MOST} names")
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))


def order(name: str) -> tuple[str, int, str]:
    """Sort key for names: n2 comes before n10."""
    prefix, digits = _split(name)
    return prefix, int(digits or -1), name


def prefix(name: str) -> str:
    """The name without the number at its end, which nodes of one type usually share."""
    return _split(name)[0]


def fold(names: Iterable[str]) -> str:
    """Fold names into a Slurm host list, sorted and without duplicates: "gpu[001-003,007],login"."""
    groups: dict[str, list[str]] = {}
    for name in sorted(set(names), key=order):
        before, digits = _split(name)
        groups.setdefault(before, []).append(digits)
    return ",".join(_fold_group(before, numbers) for before, numbers in groups.items())


def _split(name: str) -> tuple[str, str]:
    """Split a name into text and the number at its end ("" if there is none)."""
    stem = name.rstrip("0123456789")
    stem = name[: max(len(stem), len(name) - _DIGITS)]
    return stem, name[len(stem) :]


def _fold_group(before: str, numbers: list[str]) -> str:
    """Fold one prefix with its sorted numbers; "" stands for the prefix alone."""
    alone = [before] if "" in numbers else []
    runs: list[tuple[str, str]] = []
    for number in (number for number in numbers if number):
        if runs and number == str(int(runs[-1][1]) + 1).zfill(len(runs[-1][0])):
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    if not runs:
        return before
    ranges = ",".join(first if first == last else f"{first}-{last}" for first, last in runs)
    bare = len(runs) == 1 and runs[0][0] == runs[0][1]
    return ",".join([*alone, f"{before}{ranges}" if bare else f"{before}[{ranges}]"])
