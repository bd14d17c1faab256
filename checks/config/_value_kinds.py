"""How does accelerate read a nested value, and which values make it fail?

The launcher copies each key of a section to its arguments and passes it to the workers as an environment variable; the
workers parse the text. A test tries every key with values of every kind on the installed accelerate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ._spelling import intended_name

# flag: accelerate's str_to_bool, which raises on anything else; truth: "true", anything else is silently false; count:
# compared as a number by the launcher itself, which raises on text; triple: three flags in a list.
Kind = Literal["flag", "truth", "integer", "count", "number", "choice", "text", "triple"]

_YES = frozenset({"y", "yes", "t", "true", "on", "1"})
_NO = frozenset({"n", "no", "f", "false", "off", "0"})
_LONGEST = 40  # characters of a plausible number
_MANY = 8  # from this number on, a title does not list the choices
_NONE = ("none", "no", "no_prefetch", "no_wrap")  # choices that turn a setting off
_NOT_THREE = "is not a list of three true or false"


@dataclass(frozen=True)
class Key:
    """One key and how its value is read. `read`: whether it is read at all, given the other values of the section."""

    kind: Kind
    choices: tuple[str, ...] = ()
    exact: bool = False  # choices are case-sensitive
    null: bool = False  # null is the same as leaving the key out
    plain: bool = False  # passed on without conversion, so it must be text
    also: Callable[[str], bool] | None = None  # accepts further choices that cannot be listed
    least: int | None = None
    most: int | None = None
    read: Callable[[Mapping[str, Any]], bool] | None = None


@dataclass(frozen=True)
class Section:
    """One section: the distributed types that use it, and its keys under the launcher's names."""

    name: str
    prefix: str
    keys: Mapping[str, Key]
    types: tuple[str, ...]
    root: str = ""  # keys that do not begin with this get the prefix; empty: they must be spelled in full
    renamed: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)  # keys that some accelerate version wrote -> why not read

    def canonical(self, key: str) -> str:
        """Return the launcher's name for a key of the file."""
        return self.prefix + key if self.root and not key.startswith(self.root) else key


def integer(value: Any) -> int | None:
    """Return the number that int(str(value)) returns; None if that raises."""
    text = str(value)
    sound = len(text) < _LONGEST and re.fullmatch(r"\s*[+-]?\d+(_\d+)*\s*", text, re.ASCII)
    return int(text) if sound else None


def truth(value: Any) -> bool | None:
    """Return the value as accelerate's str_to_bool reads it; None if that raises."""
    text = str(value).lower()
    return True if text in _YES else False if text in _NO else None


def launcher_fault(key: Key, value: Any) -> str | None:
    """Return why the launcher itself fails on a value, even if no worker reads it; None if it does not."""
    if key.plain and not isinstance(value, str):
        return "is not text"
    if key.kind == "triple" and value is not None and (not isinstance(value, list | str) or len(value) < 3):
        return _NOT_THREE  # of a text the launcher uses the first three letters
    return None


def value_fault(key: Key, value: Any) -> str | None:
    """Return what is wrong with a value, as the end of a sentence; None if it is valid."""
    if value is None:
        return None if key.null else "has no value"
    text = str(value)
    match key.kind:
        case "flag":
            return None if truth(value) is not None else "is not true or false"
        case "truth":
            return None if text.lower() in ("true", "false") else "counts as false"
        case "integer" | "count":
            usable = key.kind == "integer" or type(value) is int
            return None if text.lower() in key.choices else _range(key, integer(value) if usable else None)
        case "number":
            return None if text.lower() in key.choices or _number(text) else "is not a number"
        case "choice":
            known = key.choices if key.exact else tuple(choice.lower() for choice in key.choices)
            words = [choice for choice in key.choices if not choice.isdecimal()]
            if (text if key.exact else text.lower()) in known or (key.also and key.also(text)):
                return None
            return (
                f"is not one of {', '.join(words)}" if len(words) < _MANY else f"is not one of its {len(words)} values"
            )
        case "triple":
            sound = isinstance(value, list) and len(value) >= 3 and all(truth(part) is not None for part in value[:3])
            return None if sound else _NOT_THREE
        case "text":
            return None


def _range(key: Key, number: int | None) -> str | None:
    if number is None:
        return "is not a whole number"
    if (key.least is None or number >= key.least) and (key.most is None or number <= key.most):
        return None
    return f"is not a number from {key.least} to {key.most}" if key.most is not None else f"is less than {key.least}"


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def intended_value(key: Key, value: Any) -> str | int | list[bool] | None:
    """Return the only value that can be meant; None if it is not clear."""
    if key.kind == "triple" and value is False:
        return [False] * 3
    if isinstance(value, bool):
        none = next((choice for choice in key.choices if choice.lower() in _NONE), None)
        return none if value is False and key.kind == "choice" else None
    if key.kind == "triple":
        words = re.findall(r"true|false", str(value).lower())
        return [word == "true" for word in words] if len(words) == 3 else None
    if key.kind in ("integer", "count"):
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            return None
        whole = int(number) if number.is_integer() and abs(number) < 1e15 else None
        return whole if whole is not None and value_fault(key, whole) is None else None
    if not isinstance(value, str):
        return None
    none = next((choice for choice in key.choices if choice.lower() in _NONE), None)
    words = [choice for choice in key.choices if not choice.isdecimal()]
    return none if none and value.lower() in _NONE else intended_name(value, words)


def allowed_values(key: Key) -> str:
    """Return what a key accepts, as the end of a sentence."""
    words = [choice for choice in key.choices if not choice.isdecimal()]
    if key.kind == "choice":
        return ", ".join(words[:-1]) + (" or " if len(words) > 1 else "") + words[-1]
    kinds = {"flag": "true or false", "number": "a number", "triple": "[false, false, false]"}
    return kinds.get(key.kind, "a whole number" if key.most is None else f"a number from {key.least} to {key.most}")
