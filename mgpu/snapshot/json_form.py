"""How is a dataclass read from JSON, strictly by the types of its fields?"""

from __future__ import annotations

import copy
import dataclasses
import math
import operator
import sys
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache, reduce
from typing import Any, Literal, TypeVar

from mgpu.errors import clip

_TOO_LARGE = 1 << 64  # larger than any kernel or driver counter
_LONGEST_NAME = 4096  # characters; the maximum length of a path
_NAMES = frozenset({"name", "hostname", "host", "node", "os", "kernel", "machine", "uuid", "serial", "version", "user"})

_IMMUTABLE = frozenset({str, int, float, bool, type(None)})

T = TypeVar("T")


class BadSnapshot(ValueError):
    """A saved Snapshot that cannot be read. The message has the key and the reason."""

    def __init__(self, message: str) -> None:
        super().__init__(clip(message, 300))


@cache
def marked_hints_of(kind: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of a dataclass's fields, with the marks of mgpu/snapshot/field_types.py.

    Compiles once per class: `typing.get_type_hints` compiles once per field and takes twice as long.
    """
    hints: dict[str, Any] = {}
    for base in reversed(typing.cast("type[Any]", kind).__mro__):
        written = vars(base).get("__annotations__", {})
        fields = ", ".join(f"{name!r}: {hint}" for name, hint in written.items())
        hints |= eval(f"{{{fields}}}", vars(sys.modules[base.__module__]))
    return hints


@cache
def hints_of(kind: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of a dataclass's fields, without marks."""
    return {name: _strip_marks(hint) for name, hint in marked_hints_of(kind).items()}


def _strip_marks(hint: Any) -> Any:
    """Return a type without marks, at any depth."""
    while hasattr(hint, "__metadata__"):
        hint = hint.__origin__
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if not args or origin is Literal:
        return hint
    plain = tuple(_strip_marks(arg) for arg in args)
    if plain == args:
        return hint
    return reduce(operator.or_, plain) if origin in (typing.Union, types.UnionType) else origin[plain]


_PARTS: dict[int, tuple[Any, tuple[Any, ...], Any]] = {}


def origin_and_args(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return `typing.get_origin` and `get_args` of a type hint, which took half the time of reading a Snapshot.

    By identity: hints that are equal may have their arguments in another order. They are kept, so no id is used again.
    """
    if (known := _PARTS.get(id(hint))) is None:
        known = _PARTS[id(hint)] = typing.get_origin(hint), typing.get_args(hint), hint
    return known[0], known[1]


def decode(kind: Callable[..., T], data: Any, path: str) -> T:
    """Build a dataclass from JSON, strictly: unknown keys, wrong types and missing fields raise BadSnapshot."""
    if not isinstance(data, dict):
        raise BadSnapshot(f"{path or 'the file'}: expected an object, got {type(data).__name__}")
    hints = hints_of(kind)
    if unknown := sorted(set(data) - set(hints)):
        raise BadSnapshot(f"{path}{'.' if path else ''}{unknown[0]}: unknown key")
    try:
        return kind(
            **{key: _decode_value(hints[key], value, f"{path}.{key}" if path else key) for key, value in data.items()}
        )
    except TypeError as error:
        raise BadSnapshot(f"{path or 'the file'}: {str(error).partition('() ')[2]}") from None


def encode(value: Any) -> Any:
    """Return a value as `dataclasses.asdict` does, in a third of the time: it copies every text and number, too."""
    kind = type(value)
    if kind in _IMMUTABLE:
        return value
    if (names := _field_names(typing.cast("Any", kind))) is not None:
        return {name: encode(getattr(value, name)) for name in names}
    if kind is tuple or kind is list:
        return kind([encode(one) for one in value])
    if kind is dict:
        return {encode(key): encode(one) for key, one in value.items()}
    return copy.deepcopy(value)


@cache
def _field_names(kind: type[Any]) -> tuple[str, ...] | None:
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None


def _decode_value(hint: Any, data: Any, path: str) -> Any:
    """Return one value, checked and converted by its type hint."""
    origin, args = origin_and_args(hint)
    if hint is Any:
        return data
    if origin in (typing.Union, types.UnionType):
        if data is None and type(None) in args:
            return None
        return _decode_value(next(a for a in args if a is not type(None)), data, path)
    if origin is Literal:
        if data not in args or isinstance(data, bool):
            raise BadSnapshot(f"{path}: {data!r} is not one of {', '.join(map(repr, args))}")
        return data
    if origin is tuple:
        if not isinstance(data, list | tuple):
            raise BadSnapshot(f"{path}: expected a list, got {type(data).__name__}")
        if args[-1] is Ellipsis:
            return tuple(_decode_value(args[0], item, f"{path}[{i}]") for i, item in enumerate(data))
        if len(data) != len(args):
            raise BadSnapshot(f"{path}: expected {len(args)} items, got {len(data)}")
        return tuple(_decode_value(a, item, f"{path}[{i}]") for i, (a, item) in enumerate(zip(args, data, strict=True)))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(data, dict):
            raise BadSnapshot(f"{path}: expected an object, got {type(data).__name__}")
        return {key: _decode_value(args[1], item, f"{path}.{key}") for key, item in data.items()}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return decode(hint, data, path)
    if type(data) is str and len(data) > _LONGEST_NAME and path.rpartition(".")[2] in _NAMES:
        raise BadSnapshot(f"{path}: name too long ({len(data):,} characters)")
    if type(data) is int and abs(data) >= _TOO_LARGE:
        raise BadSnapshot(f"{path}: number too large ({len(str(abs(data)))} digits)")
    if hint is float and type(data) is int:
        return float(data)
    if type(data) is not hint:
        raise BadSnapshot(f"{path}: expected {hint.__name__}, got {type(data).__name__}")
    if hint is float and not math.isfinite(data):
        raise BadSnapshot(f"{path}: {data} is not a number")
    return data
