"""How does a finding write a value of the file, and which name did its author mean?"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

_NEAR = 0.75  # share of letters in common, from which a name is worth proposing
_LONGEST = 100  # letters a name may have and still be a slip of a known one
_SHORTEST_START = 4  # letters a beginning must have to stand for a whole name


def shown(value: Any) -> str:
    """A value as YAML writes it: null, true, 'text', 3."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    flat = isinstance(value, list) and not any(isinstance(part, list | dict) for part in value)
    return f"[{', '.join(map(shown, value))}]" if flat else repr(value)


def near(name: str, names: Iterable[str], prefix: str = "") -> str | None:
    """The name that is most like it, judged without what all of them begin with; None where none is."""
    if len(name) > _LONGEST:
        return None
    ends = {known.removeprefix(prefix).lower(): known for known in names}
    found = difflib.get_close_matches(name.removeprefix(prefix).lower(), ends, n=1, cutoff=_NEAR)
    return ends[found[0]] if found else None


def meant(word: str, names: Iterable[str]) -> str | None:
    """The one name a word cannot but mean: other case or separators, a whole beginning of it, one slip of a finger."""
    if len(word) > _LONGEST:
        return None
    plain = {_plain(name): name for name in names}
    word = _plain(word)
    if word in plain:
        return plain[word]
    begun = [name for letters, name in plain.items() if len(word) >= _SHORTEST_START and letters.startswith(word)]
    if len(begun) == 1:
        return begun[0]
    slipped = [name for letters, name in plain.items() if len(letters) > _SHORTEST_START and _one_slip(word, letters)]
    return slipped[0] if len(slipped) == 1 else None


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _one_slip(one: str, other: str) -> bool:
    """Whether one letter too many, too few, wrong, or two swapped tell them apart."""
    if abs(len(one) - len(other)) > 1:
        return False
    start = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    a, b = one[start:], other[start:]
    swapped = len(a) > 1 and len(b) > 1 and a[0] == b[1] and a[1] == b[0] and a[2:] == b[2:]
    return a[1:] == b or a == b[1:] or a[1:] == b[1:] or swapped
