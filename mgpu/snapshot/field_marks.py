"""Which marks do the fields of a Snapshot declare (mgpu/snapshot/field_types.py)?

The types are read on first use, because a quick doctor does not need them.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

from mgpu.snapshot import Snapshot
from mgpu.snapshot.fast_dataclass import dataclass
from mgpu.snapshot.field_types import Compared, Measure, Redaction, SecretByKey, Subject, Wording
from mgpu.snapshot.json_form import marked_hints_of

T = TypeVar("T")


@dataclass(frozen=True)
class Marks:
    """The marks that one field declares."""

    compared: Compared = Compared()
    wording: Wording = Wording()
    measure: Measure | None = None
    redaction: Redaction = Redaction("label")
    secret_by_key: bool = False


_NONE = Marks()


def marks(where: str) -> Marks:
    """Return the marks of a field (`Class.field`), or of the field that an entry (`Class.field.key`) belongs to."""
    every = _marks()
    return every.get(where) or every.get(".".join(where.split(".", 2)[:2]), _NONE)


def subject_prefix(kind: str) -> str:
    """Return the prefix for field names of a class in messages, with a trailing space; "" if none is declared."""
    return _subject_prefixes().get(kind, "")


@cache
def marked_fields() -> Mapping[str, Any]:
    """Return the type, with marks, of every field in a Snapshot at any depth, by `Class.field`."""
    fields: dict[str, Any] = {}
    kinds: list[type[Any]] = [Snapshot]
    for kind in kinds:
        for name, hint in marked_hints_of(typing.cast("Any", kind)).items():
            fields[f"{kind.__name__}.{name}"] = hint
            kinds += [part for part in _dataclasses(hint) if part not in kinds]
    return fields


def parts(hint: Any) -> Iterator[Any]:
    """Yield a type and all its parts, at any depth, marks included."""
    yield hint
    yield from getattr(hint, "__metadata__", ())
    for part in (hint.__origin__,) if hasattr(hint, "__metadata__") else typing.get_args(hint):
        yield from parts(part)


def _dataclasses(hint: Any) -> list[type[Any]]:
    return [part for part in parts(hint) if isinstance(part, type) and dataclasses.is_dataclass(part)]


@cache
def _marks() -> Mapping[str, Marks]:
    return {where: _marks_of_type(tuple(parts(hint))) for where, hint in marked_fields().items()}


def _marks_of_type(found: tuple[Any, ...]) -> Marks:
    return Marks(
        _first_of_kind(Compared, found, Compared()),
        _first_of_kind(Wording, found, Wording()),
        _first_of_kind(Measure, found, None),
        _first_of_kind(Redaction, found, Redaction("label")),
        SecretByKey in found,
    )


def _first_of_kind(kind: type[Any], found: tuple[Any, ...], otherwise: T) -> T:
    return next((part for part in found if isinstance(part, kind)), otherwise)


@cache
def _subject_prefixes() -> Mapping[str, str]:
    return {
        part.__name__: f"{subject.name} "
        for hint in marked_fields().values()
        for subject in parts(hint)
        if isinstance(subject, Subject)
        for part in _dataclasses(hint)
    }
