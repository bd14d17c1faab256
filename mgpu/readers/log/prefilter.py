"""Which plain text must a line contain for a pattern to match it?

A log of a gigabyte has ten million lines; searching each with hundreds of patterns takes hours. These texts let the
reader skip nearly all lines. They are compared with a line's shape: lower case, without digits, spaces, progress bar
characters and non-ASCII characters, so that all lines of one progress bar have the same shape.
"""

from __future__ import annotations

import functools
import string
from collections.abc import Iterable, Sequence
from typing import Any

try:
    from re import _parser as _sre  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_parse as _sre

_DROPPED = frozenset(string.digits + " \t#=>.-+\u2588")
_TABLE = bytes.maketrans(string.ascii_uppercase.encode() + b"\r", string.ascii_lowercase.encode() + b"\n")
_DELETED = bytes([*range(0x80, 0x100), *(ord(c) for c in _DROPPED if ord(c) < 0x80)])
_BETWEEN = "\n"  # marks where something was dropped, which ends a word
_SHORTEST = 4  # shorter texts are in too many lines


def shape(text: bytes) -> bytes:
    """Return the shapes of lines; a carriage return also ends a line."""
    return text.translate(_TABLE, _DELETED)


def required_texts(pattern: str) -> tuple[str, ...]:
    """Return texts of which the shape of every matching line contains at least one; empty if none is known."""
    return tuple(text.replace(_BETWEEN, "") for text in _texts(pattern))


def required_words(pattern: str) -> tuple[str, ...]:
    """Return the longest word of each of these texts; it is part of a word of every matching line."""
    return tuple(max(text.split(_BETWEEN), key=len) for text in _texts(pattern))


def all_required_texts(pattern: str) -> tuple[tuple[bytes, ...], ...]:
    """Return groups of texts; the shape of every matching line contains at least one text of each group."""
    groups = (tuple(text.replace(_BETWEEN, "").encode() for text in texts) for texts in _every(pattern))
    return tuple(group for group in groups if all(group))


@functools.cache  # to parse a pattern takes longest, and its texts and words are both needed
def _texts(pattern: str) -> tuple[str, ...]:
    best = _rarest_texts(_every(pattern))
    return tuple(sorted(best)) if best and min(map(_size, best)) >= _SHORTEST else ()


@functools.cache
def _every(pattern: str) -> tuple[frozenset[str], ...]:
    return tuple(_candidates(_sre.parse(pattern)))


def _size(text: str) -> int:
    return len(text) - text.count(_BETWEEN)


def _rarest_texts(candidates: Iterable[frozenset[str]]) -> frozenset[str]:
    """Return the set whose shortest text is longest, which is probably the rarest in a log."""
    return max(candidates, key=lambda texts: (min(map(_size, texts)), -len(texts)), default=frozenset())


def _candidates(parsed: Iterable[Any]) -> list[frozenset[str]]:
    """Return every set of texts of which a match must contain one."""
    found: list[frozenset[str]] = []
    run = ""
    for name, value in _flat(parsed):
        letter = _letter(name, value)
        if letter is not None:
            run += letter
            continue
        if run.strip(_BETWEEN):
            found.append(frozenset({run}))
        run = ""
        if name == "BRANCH":
            branches = [_rarest_texts(_candidates(branch)) for branch in value[1]]
            if all(branches):
                found.append(frozenset().union(*branches))
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") and value[0] >= 1:
            found += _candidates(value[2])
    return [*found, frozenset({run})] if run.strip(_BETWEEN) else found


def _flat(parsed: Iterable[Any]) -> Iterable[tuple[str, Any]]:
    """Yield the parts of a pattern, including those in groups."""
    for code, value in parsed:
        name = str(code)
        if name == "SUBPATTERN":
            yield from _flat(value[3])
        elif name == "ATOMIC_GROUP":
            yield from _flat(value)
        else:
            yield name, value


def _letter(name: str, value: Any) -> str | None:
    """Return a part's text in a shape.

    A letter, _BETWEEN if it is always dropped, "" if it matches no characters, None if it is not known.
    """
    if name in ("AT", "ASSERT", "ASSERT_NOT"):
        return ""
    if name == "LITERAL":
        char = chr(value)
        return _BETWEEN if char in _DROPPED or not char.isascii() else char.lower()
    if name == "IN":
        return _letter_of_set(value)
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        inner = [_letter(*part) for part in _flat(value[2])]
        return _BETWEEN if all(letter in ("", _BETWEEN) for letter in inner) else None
    return None


def _letter_of_set(members: Sequence[Any]) -> str | None:
    letters: set[str | None] = set()
    for code, value in members:
        name = str(code)
        if name == "CATEGORY":
            letters.add(_BETWEEN if str(value) in ("CATEGORY_DIGIT", "CATEGORY_SPACE") else None)
        else:
            letters.add(_letter(name, value))
    return letters.pop() if len(letters) == 1 else None
