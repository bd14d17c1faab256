"""Is a name that does not exist a misspelled one? A similar name is in the lines of the traceback.

Python itself suggests names that the object has, since 3.10, but not for attributes that are set later, for keys and
for older releases.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from mgpu.snapshot import UncaughtException

_ATTRIBUTE = re.compile(r"\.([A-Za-z_]\w{3,})\b(?!\()")  # what a line reads or sets, and does not call
_ALIKE = 0.85  # of two names with one letter more, less or exchanged, from six letters on
_SHORTEST = 6


def similar_in_lines(one: UncaughtException, name: str) -> str | None:
    """Return the only name in the traceback's lines that is nearly this one; None if there is none, or several."""
    if len(name) < _SHORTEST:
        return None
    lines = [call.code or "" for call in one.calls]
    others = {other for line in lines for other in _ATTRIBUTE.findall(line)} - {name}
    alike = {other for other in others if _is_typing_mistake(name, other)}
    return alike.pop() if len(alike) == 1 else None


def _is_typing_mistake(name: str, other: str) -> bool:
    """Whether one letter is missing, added or exchanged. A plural or a number at the end makes another name."""
    if name.startswith(other) or other.startswith(name):
        return False  # decode and decoded, encode and encoder
    if abs(len(name) - len(other)) > 1 or name.rstrip("s_0123456789") == other.rstrip("s_0123456789"):
        return False
    if {name.lower(), other.lower()} == {name.lower()}:
        return False  # only capital letters differ: a class and its instance
    return SequenceMatcher(None, name, other).ratio() >= _ALIKE and name[0] == other[0]
