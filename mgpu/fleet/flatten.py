"""Flatten one node's facts into a table of keys and values that can be compared.

Keys are dotted as in the Snapshot. Objects with their own names keep them (`network.interfaces.eth0.mtu`). All others
in a list count as one: their number, and the different values of each field.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import typing
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

from mgpu.fleet import field_kinds
from mgpu.snapshot import Snapshot, hints_of
from mgpu.snapshot.field_types import Measure

Values: TypeAlias = dict[str, Hashable]
Reader: TypeAlias = Callable[[Values, str, Any], None]

KNOWN = "known"
NOT_CHECKED = "not checked"  # (checks/fleet matches it) --quick, or another mgpu: nothing is wrong with the node
NODE = "{node}"


def flat(facts: Mapping[str, Any]) -> Values:
    """Return the table of one node from its Snapshot as JSON. An unknown fact has a key with the reason."""
    values: Values = {}
    for fact, read in _readers():
        data = facts.get(fact)
        values[fact] = KNOWN if data is not None else _gap(facts, fact)
        if data is not None:
            read(values, fact, data)
    values["mgpu"] = facts.get("mgpu")
    if facts.get("visible") and facts.get("gpus"):  # only the number: Slurm chooses the GPUs on each node
        values["gpus.visible.count"] = len(facts["visible"]["gpus"])
    return {
        sys.intern(key): sys.intern(value) if isinstance(value, str) else value
        for key, value in values.items()
        if not field_kinds.is_own(key)
    }


def _gap(facts: Mapping[str, Any], fact: str) -> str:
    """Return why a fact is unknown: "timed out"."""
    gap = (facts.get("gaps") or {}).get(fact)
    kind = gap.get("kind") if isinstance(gap, dict) else None
    return NOT_CHECKED if kind in (None, "not_asked") else str(kind).replace("_", " ")


def impersonal(value: Hashable, names: Sequence[str]) -> Hashable:
    """Return a value with its own node's name replaced by "{node}"."""
    if isinstance(value, str):
        return _replace_names(value, names)
    if isinstance(value, tuple):
        return type(value)(_replace_names(part, names) if isinstance(part, str) else part for part in value)
    return value


def _replace_names(text: str, names: Sequence[str]) -> str:
    if not any(name in text for name in names):  # the usual case, a thousand times faster than the regex
        return text
    return re.sub(rf"(?<![\w-])(?:{'|'.join(map(re.escape, names))})(?![\w-])", NODE, text)


def names_of(facts: Mapping[str, Any], node: str) -> tuple[str, ...]:
    """Return the names of this node, the longest first."""
    known = [node, *((facts.get(fact) or {}).get(field) for fact, field in (("host", "name"), ("network", "hostname")))]
    names = {name for name in known if isinstance(name, str) and len(name) > 1 and not name.isdecimal()}
    names |= {short for name in names if len(short := name.partition(".")[0]) > 1 and not short.isdecimal()}
    names -= {"localhost"}
    return tuple(sorted(names, key=len, reverse=True))


@cache
def _readers() -> tuple[tuple[str, Reader], ...]:
    hints = hints_of(Snapshot)
    return tuple((fact, reader) for fact in field_kinds.compared_facts() if (reader := _reader(hints[fact], fact)))


def _reader(hint: Any, where: str) -> Reader | None:
    """Return the function that puts a value of this type into the table; None if it is not compared."""
    hint = field_kinds.without_none(hint)
    if "." in where and field_kinds.kind_of(where, hint) in ("identity", "moment"):
        return None
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if where == "Gpu.nvlinks":
        return _active_links
    if where == "Nccl.libraries":
        return _first_library
    if dataclasses.is_dataclass(hint):
        return _fields(typing.cast("Any", hint))
    if origin is tuple and dataclasses.is_dataclass(args[0]):
        return _things(typing.cast("Any", args[0]))
    if origin is tuple:
        return _pair if Ellipsis not in args else _set
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping
    return _plain


def _plain(values: Values, key: str, data: Any) -> None:
    values[key] = data if isinstance(data, Hashable) else json.dumps(data, sort_keys=True)


def _pair(values: Values, key: str, data: Any) -> None:
    values[key] = None if data is None else tuple(data)


def _set(values: Values, key: str, data: Any) -> None:
    values[key] = None if data is None else tuple(sorted(set(map(str, data))))


def _mapping(values: Values, key: str, data: Any) -> None:
    """Add one key per entry; None counts as an empty mapping."""
    for name, value in (data or {}).items():
        if isinstance(value, Mapping):
            _mapping(values, f"{key}.{name}", value)
        else:
            _plain(values, f"{key}.{name}", value)


def _active_links(values: Values, key: str, data: Any) -> None:
    values[key] = None if data is None else sum(bool(link["active"]) for link in data)


def _first_library(values: Values, key: str, data: Any) -> None:
    """Add the NCCL library that a torch process would load."""
    first = data[0] if data else {}
    for field in ("version", "origin"):
        values[f"{key.rpartition('.')[0]}.loaded.{field}"] = first.get(field)


def _fields(kind: type[Any]) -> Reader:
    hints = hints_of(typing.cast("Any", kind))
    own = [(field, reader) for field, hint in hints.items() if (reader := _reader(hint, f"{kind.__name__}.{field}"))]

    def read(values: Values, key: str, data: Any) -> None:
        if data is None:
            values[key] = None
            return
        for field, reader in own:
            if field in data:
                reader(values, f"{key}.{field}", data[field])
            else:
                values[f"{key}.{field}"] = UNSAID

    return read


def _hca(one: Mapping[str, Any]) -> str | None:
    return f"{one['device']}:{one['port']}"


# The name of an object in a list; None: it is not compared. Other objects in a list count as one.
_NAMED: dict[str, Callable[[Mapping[str, Any]], str | None]] = {
    "Interface": lambda one: None if one["virtual"] or one["loopback"] else one["name"],
    "HcaPort": _hca,
    "Folder": lambda one: one["path"] if one["role"] in ("named", "output") else one["role"],
    "Library": lambda one: f"{one['name']} {one['origin']}",
    "PciDevice": lambda one: one["kind"],
}
_COUNTED = frozenset({"Gpu", "HcaPort", "PciDevice"})


def _things(kind: type[Any]) -> Reader:
    """Return the reader of a list of objects: by name if they have one, with the different values of each field."""
    name = kind.__name__
    hints = hints_of(typing.cast("Any", kind))
    own = [
        (field, reader, field_kinds.measure_of(f"{name}.{field}"))
        for field, hint in hints.items()
        if (reader := _reader(hint, f"{name}.{field}"))
    ]
    known_by = _NAMED.get(name)

    def read(values: Values, key: str, data: Any) -> None:
        groups: dict[str, list[Mapping[str, Any]]] = {}
        for one in data or ():
            if known_by is None:
                groups.setdefault(key, []).append(one)
            elif known := known_by(one):
                groups.setdefault(f"{key}.{known}", []).append(one)
        if name in _COUNTED:
            _count(values, key, name, groups, data or ())
        for group, things in groups.items():
            alive = [one for one in things if not one.get("lost")]
            for field, reader, measure in own:
                of = things if field == "lost" else alive
                if measure and name == "Gpu":
                    of = [one for one in alive if not _is_busy(one)]
                given = [one[field] for one in of if field in one]
                if of and not given:
                    values[f"{group}.{field}"] = UNSAID
                _merge(values, f"{group}.{field}", given, reader, measure)

    return read


def _is_busy(gpu: Mapping[str, Any]) -> bool:
    """Whether a process uses the GPU, which then may be warm."""
    return bool(gpu.get("processes") or gpu.get("utilization_percent"))


def _count(values: Values, key: str, name: str, groups: Mapping[str, Sequence[Any]], things: Sequence[Any]) -> None:
    """Add the number of objects: GPUs that answer and may be used, PCI devices by kind."""
    if name == "PciDevice":
        for kind in ("gpu", "nic"):
            values[f"{key}.{kind}.count"] = len(groups.get(f"{key}.{kind}", ()))
    elif name == "Gpu":
        values[f"{key}.count"] = sum(not one.get("lost") and one.get("permitted", True) for one in things)
    else:
        values[f"{key}.count"] = len(things)


def _merge(values: Values, key: str, data: Iterable[Any], reader: Reader, measure: Measure | None) -> None:
    """Add one field of several objects: the common value, or all different ones; for a measurement, the worst."""
    if measure:
        numbers = [number for number in data if isinstance(number, (int, float)) and not isinstance(number, bool)]
        if numbers:
            values[key] = max(numbers) if measure.bad == "high" else min(numbers)
        return
    merged: dict[str, dict[Hashable, None]] = {}
    scratch: Values = {}
    last: Any = _NOTHING
    for one in data:
        if last is not _NOTHING and one == last:  # usually they are all equal
            continue
        last = one
        scratch.clear()
        reader(scratch, key, one)
        for inner, value in scratch.items():
            merged.setdefault(inner, {})[value] = None
    for inner, different in merged.items():
        if len(different) == 1:
            values[inner] = next(iter(different))
        else:
            values[inner] = Several(sorted(different, key=str))


class Several(tuple[Hashable, ...]):
    """The different values of objects of one kind."""

    __slots__ = ()


_NOTHING = object()


class _Unsaid:
    """The value of a field that is unknown to the mgpu version that saved the node."""


UNSAID = _Unsaid()


def is_unsaid(values: Values, key: str) -> bool:
    """Whether this key, or a field that contains it, is unknown to the mgpu that saved the node."""
    parts = key.split(".")
    return any(values.get(".".join(parts[:end])) is UNSAID for end in range(2, len(parts) + 1))
