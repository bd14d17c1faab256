"""Does every field of a Snapshot declare what it is, once, and is what it declares what is read from it?"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from mgpu import snapshot
from mgpu.snapshot import Config, Gap, Gpu, Snapshot, hints_of
from mgpu.snapshot.field_marks import marked_fields, marks, parts, subject_prefix
from mgpu.snapshot.field_types import (
    Compared,
    Label,
    Measure,
    Moment,
    Name,
    Pid,
    Redaction,
    Same,
    SecretsByKey,
    Subject,
    Text,
    Texts,
    Wording,
)
from mgpu.snapshot.json_form import marked_hints_of

FIELDS = marked_fields()


def unmarked(hint: Any) -> Iterator[Any]:
    """The texts in a type of which nothing says what is replaced in them. Keys go by the values of their mapping, if
    there are texts in these."""
    if any(isinstance(mark, Redaction) for mark in getattr(hint, "__metadata__", ())):
        return
    if hasattr(hint, "__metadata__"):
        yield from unmarked(hint.__origin__)
    elif hint in (str, Any):
        yield hint
    elif typing.get_origin(hint) is not Literal:
        inner = typing.get_args(hint)
        mapping = isinstance(typing.get_origin(hint), type) and issubclass(typing.get_origin(hint), Mapping)
        declared = any(isinstance(part, Redaction) for part in parts(hint))
        for part in inner[1:] if mapping and declared else inner:
            yield from unmarked(part)


def test_every_text_says_what_is_replaced_in_it() -> None:
    """A machine may be called `wheel` or `no`: to replace a name everywhere is as wrong as to keep it everywhere."""
    found = [where for where, hint in FIELDS.items() if list(unmarked(hint))]
    assert not found, f"declare a kind of text: Label, Text, Name ... of mgpu/snapshot/field_types.py: {found}"


class Bare:
    """Fields with a text of no kind."""

    text: str
    maybe: Same[str | None]
    several: Moment[tuple[str, ...]]
    one_of_two: tuple[Label, str]
    anything: Any
    mapping: Mapping[str, str] | None
    secrets: SecretsByKey[Mapping[str, str]]
    lists: Mapping[str, tuple[str, ...]]
    tree: Mapping[str, Any]
    keys: Mapping[str, int]
    inner_keys: Mapping[Label, Mapping[str, float]]
    keys_of_facts: Mapping[str, Gap]


class Declared:
    """Fields without such a text."""

    text: Label
    maybe: Same[Text | None]
    several: Moment[tuple[Name, ...]]
    mapping: Mapping[str, Text] | None
    secrets: SecretsByKey[Mapping[str, Label]]
    tree: Mapping[str, Texts]
    keys: Mapping[Label, int]
    inner_keys: Mapping[Label, Mapping[Label, float]]
    keys_of_facts: Mapping[Label, Gap]
    one_of: Literal["a", "b"] | None
    facts: tuple[Gpu, ...]
    pid: Pid
    numbers: tuple[int, int] | None


def test_a_text_without_a_kind_is_found() -> None:
    assert [name for name, hint in marked_hints_of(Bare).items() if not list(unmarked(hint))] == []
    assert [name for name, hint in marked_hints_of(Declared).items() if list(unmarked(hint))] == []


def test_a_field_declares_each_thing_once() -> None:
    for where, hint in FIELDS.items():
        found = list(parts(hint))
        for kind in (Compared, Wording, Measure, Subject):
            assert sum(isinstance(part, kind) for part in found) < 2, where
        assert len({part for part in found if isinstance(part, Redaction)}) < 2, where


def test_the_types_without_marks_are_the_types() -> None:
    kinds = [kind for kind in vars(snapshot).values() if isinstance(kind, type) and dataclasses.is_dataclass(kind)]
    assert len(kinds) > 90
    for kind in kinds:
        assert hints_of(kind) == typing.get_type_hints(kind)
        assert list(hints_of(kind)) == [field.name for field in dataclasses.fields(kind)]


def test_what_is_declared_is_read() -> None:
    assert marks("Gpu.temperature_c").compared == Compared("moment", moves=True)
    assert marks("Gpu.temperature_c").measure == Measure("high", least=15, what="hottest GPU")
    assert marks("Gpu.lost").wording == Wording("state", none="responding")
    assert marks("Config.values.num_processes") == marks("Config.values")
    assert marks("Config.values").redaction.name_at == "main_process_ip" and marks("Config.values").secret_by_key
    assert marks("no field") == marks("") == marks("Gpu.") == marks("Snapshot.host")
    assert [subject_prefix(kind.__name__) for kind in (Gpu, Config, Snapshot)] == ["GPU ", "config ", ""]
