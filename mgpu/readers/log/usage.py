"""Which option of the usage that a program printed is the one it did not accept, written in another way?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import takewhile

from mgpu.readers.log.line import parse_line

_MOST_LINES = 200  # of a usage
_UNKNOWN = re.compile(r"(?<!\S)--[A-Za-z][\w.-]*")
_OPTION = re.compile(r"(?<![\w-])--[A-Za-z][\w.-]*")
_USAGE = re.compile(r"\s*usage: ")
_SHORTEST = 5  # letters of a name of which one can be wrong
_ALIKE = 0.85


def similar_option(lines: Sequence[str], error: int, argument: str) -> tuple[str, str] | None:
    """Return an option of the error and the one of the usage above that is meant; None if none is alike.

    `lines`: of the end of the log. `error`: the place of the error among them. `argument`: what was not accepted.
    """
    above = [parse_line(line).text for line in reversed(lines[max(0, error - _MOST_LINES) : error])]
    usage = list(takewhile(lambda text: not _USAGE.match(text), above))
    if len(usage) == len(above):
        return None
    known = {name for text in (*usage, above[len(usage)]) for name in _OPTION.findall(text)}
    for option in _UNKNOWN.findall(argument):
        if right := _alike(option, known):
            return option, right
    return None


def _alike(option: str, known: set[str]) -> str | None:
    """Return the only option with the same letters, or else the nearest with nearly the same."""
    if option in known:  # its value was wrong, or another of its parsers has it
        return None
    same = [one for one in known if _letters(one) == _letters(option)]
    if same:
        return same[0] if len(same) == 1 else None
    if len(_letters(option)) < _SHORTEST:
        return None
    return next(iter(get_close_matches(option, sorted(known), 1, _ALIKE)), None)


def _letters(option: str) -> str:
    return re.sub(r"[-_.]", "", option).lower()
