"""How does a finding show a value of the file, and which name did the author mean?"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

_NEAR = 0.75  # difflib ratio from which a name is worth suggesting
_LONGEST = 100  # longer names are not compared
_SHORTEST_START = 4  # characters a prefix needs to be completed to a name


def yaml_text(value: Any) -> str:
    """Return a value as YAML writes it: null, true, 'text', 3."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    flat = isinstance(value, list) and not any(isinstance(part, list | dict) for part in value)
    return f"[{', '.join(map(yaml_text, value))}]" if flat else repr(value)


def closest_name(name: str, names: Iterable[str], prefix: str = "") -> str | None:
    """Return the most similar name, compared without the common prefix; None if none is similar."""
    if len(name) > _LONGEST:
        return None
    ends = {known.removeprefix(prefix).lower(): known for known in names}
    found = difflib.get_close_matches(name.removeprefix(prefix).lower(), ends, n=1, cutoff=_NEAR)
    return ends[found[0]] if found else None


def intended_name(word: str, names: Iterable[str]) -> str | None:
    """Return the only name a word can mean: other case or separators, a prefix, one typo; None if not clear."""
    if len(word) > _LONGEST:
        return None
    known = _known(frozenset(names))
    word = _plain(word)
    if word in known.by_letters:
        return known.by_letters[word]
    if len(word) >= _SHORTEST_START:
        begun = [letters for letters in known.by_letters if letters.startswith(word)]
        if len(begun) == 1:
            return known.by_letters[begun[0]]
    near = {letters for shorter in _shorter(word) for letters in known.by_shorter.get(shorter, ())}
    slipped = [letters for letters in near if _one_slip(word, letters)]
    return known.by_letters[slipped[0]] if len(slipped) == 1 else None


class _Known(NamedTuple):
    """The known names by their letters, and these by what is left without one letter."""

    by_letters: Mapping[str, str]
    by_shorter: Mapping[str, Sequence[str]]


@lru_cache(maxsize=16)  # a file may have thousands of unknown keys, of which most are near to none
def _known(names: frozenset[str]) -> _Known:
    by_letters = {_plain(name): name for name in sorted(names)}
    by_shorter: dict[str, list[str]] = {}
    for letters in by_letters:
        for shorter in _shorter(letters) if len(letters) > _SHORTEST_START else ():
            by_shorter.setdefault(shorter, []).append(letters)
    return _Known(by_letters, by_shorter)


def _shorter(word: str) -> set[str]:
    """Return a word, and it without one of its letters: two words that differ by one slip share one of these."""
    return {word, *(word[:at] + word[at + 1 :] for at in range(len(word)))}


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _one_slip(one: str, other: str) -> bool:
    """Whether they differ by one added, missing or wrong letter, or two swapped ones."""
    if abs(len(one) - len(other)) > 1:
        return False
    start = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    a, b = one[start:], other[start:]
    swapped = len(a) > 1 and len(b) > 1 and a[0] == b[1] and a[1] == b[0] and a[2:] == b[2:]
    return a[1:] == b or a == b[1:] or a[1:] == b[1:] or swapped
