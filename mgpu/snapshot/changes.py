"""What changed on this machine since a Snapshot of it was saved?

Pure: compares two Snapshots field by field, using the fields' types. Items with an identity are matched by it (GPUs by
UUID, interfaces by name, folders by path). Values that always vary (free memory, temperatures, load, times) are
skipped. A fact that was known and no longer is, is reported as unknown, never as gone.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mgpu.errors import clip
from mgpu.quantities import gib
from mgpu.snapshot import FACTS, Gpu, Snapshot, bus_address, hints_of
from mgpu.snapshot.field_marks import marks, subject_prefix
from mgpu.snapshot.field_types import unit_of

Kind = Literal["added", "removed", "changed", "unknown"]
Plain = str | int | float | bool | None

_SHOWN_PAIRS = 4
_LONGEST = 60  # characters; longer values are clipped on screens


@dataclass(frozen=True)
class Change:
    """One difference between two Snapshots."""

    fact: str
    what: str  # "GPU 3", "driver", "NCCL_DEBUG"
    kind: Kind
    before: Plain = None
    after: Plain = None

    @property
    def text(self) -> str:
        """The change as text: `575.57 -> 580.65`, `gone`, `now unknown: …`."""
        match self.kind:
            case "added":
                return f"new: {_short(self.after)}" if self.after not in (None, "") else "new"
            case "removed":
                return f"gone (was {_short(self.before)})" if self.before not in (None, "") else "gone"
            case "unknown":
                return f"now unknown: {self.after}"
            case _:
                return f"{_short(self.before)} -> {_short(self.after)}"


def _short(value: Plain) -> str:
    return clip(str(value), _LONGEST)


def find_changes(before: Snapshot, after: Snapshot) -> tuple[Change, ...]:
    """Return the differences, in the order of the facts."""
    hints = hints_of(Snapshot)
    found: list[Change] = []
    for fact in FACTS:
        if marks(f"Snapshot.{fact}").compared.moves:
            continue
        old, new = getattr(before, fact), getattr(after, fact)
        if old is None or (new is None and after.left_out(fact)):
            continue  # nothing to compare with
        if new is None:
            found.append(Change(fact, fact.replace("_", " "), "unknown", None, after.gap(fact).reason))
        elif fact == "gpus":
            found += _compare_gpus(old, new)
        elif fact == "links":
            found += _compare_links(before, after)
        elif fact == "env":
            found += _compare_mappings(fact, "", old, new)
        elif fact == "config":
            found += _compare_mappings(fact, "config ", _flatten(old.values), _flatten(new.values))
        else:
            found += _compare_values(fact, hints[fact], old, new, "", fact)
    return tuple(dict.fromkeys(found))


def _compare_values(fact: str, hint: Any, old: Any, new: Any, subject: str, where: str) -> Iterator[Change]:
    """Yield the changes between two values of one field by its type; `where` is Class.field."""
    if old == new:
        return
    hint = _without_none(hint)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint) and old is not None and new is not None:
        yield from _compare_fields(fact, typing.cast("type[Any]", hint), old, new, subject)
    elif origin is tuple and args[-1] is Ellipsis and dataclasses.is_dataclass(args[0]):
        yield from _compare_items(fact, typing.cast("type[Any]", args[0]), old or (), new or ())
    elif isinstance(old, Mapping) and isinstance(new, Mapping):
        name = field_label(where)
        yield from _compare_mappings(fact, "" if where in FACTS or name == "wheels" else f"{name} ", old, new)
    elif origin is tuple and args[-1] is Ellipsis and old is not None and new is not None:
        for kind, items in (("removed", [i for i in old if i not in new]), ("added", [i for i in new if i not in old])):
            if items:
                named = ", ".join(map(str, items))
                before, after = (named, None) if kind == "removed" else (None, named)
                yield Change(fact, f"{subject}{field_label(where)}", typing.cast("Kind", kind), before, after)
    elif old is None and marks(where).wording.none is None:
        return  # the old value was not known
    elif new is None and marks(where).wording.none is None:
        yield Change(
            fact, f"{subject}{field_label(where)}", "unknown", format_value(where, old), "it could not be read"
        )
    else:
        yield Change(
            fact, f"{subject}{field_label(where)}", "changed", format_value(where, old), format_value(where, new)
        )


def _compare_fields(fact: str, kind: type[Any], old: Any, new: Any, subject: str) -> Iterator[Change]:
    is_fact = _without_none(hints_of(Snapshot)[fact]) is kind
    words = subject_prefix(kind.__name__) if is_fact else f"{fact.replace('_', ' ')} "
    for name, hint in hints_of(typing.cast("Any", kind)).items():
        where = f"{kind.__name__}.{name}"
        if not marks(where).compared.moves:
            prefix = subject or ("" if marks(where).wording.name else words)
            yield from _compare_values(fact, hint, getattr(old, name), getattr(new, name), prefix, where)


# The identity of an item in a list; None: do not report when such an item appears or disappears.
_IDENTITY: dict[str, Callable[[Any], str | None]] = {
    "Interface": lambda one: None if one.virtual and not one.loopback else f"interface {one.name}",
    "PciDevice": lambda one: f"{one.kind.upper()} at {one.address}",
    "HcaPort": lambda one: f"port {one.name}",
    "Folder": lambda one: one.path if one.role in ("named", "output") else f"{one.role.replace('_', ' ')} folder",
    "NcclLibrary": lambda one: one.path,
    "Library": lambda one: one.path,
    "NvLink": lambda one: f"NVLink {one.link}",
}


def _compare_items(fact: str, kind: type[Any], old: Sequence[Any], new: Sequence[Any]) -> Iterator[Change]:
    identity = _IDENTITY.get(kind.__name__)
    if identity is None:
        return
    olds = {name: one for one in old if (name := identity(one)) is not None}
    news = {name: one for one in new if (name := identity(one)) is not None}
    for name in (*olds, *(name for name in news if name not in olds)):
        if name not in news:
            yield Change(fact, name, "removed")
        elif name not in olds:
            yield Change(fact, name, "added")
        else:
            yield from _compare_fields(fact, kind, olds[name], news[name], f"{name} ")


def _compare_gpus(old: Sequence[Gpu], new: Sequence[Gpu]) -> Iterator[Change]:
    """Compare GPUs by UUID. One without a UUID (lost, or not permitted) is matched by its index."""
    left = {gpu.uuid: gpu for gpu in new if gpu.uuid}
    nameless = {gpu.index: gpu for gpu in new if not gpu.uuid}
    for gpu in old:
        now = left.pop(gpu.uuid, None) if gpu.uuid else nameless.pop(gpu.index, None)
        if now is None:
            now = nameless.pop(gpu.index, None)
        subject = f"GPU {gpu.index} "
        if now is None:
            yield Change("gpus", subject.strip(), "removed", gpu.name)
        elif now.lost and not gpu.lost:
            yield Change("gpus", subject.strip(), "changed", marks("Gpu.lost").wording.none, now.lost)
        else:
            if now.index != gpu.index and len(old) == len(new):
                yield Change("gpus", f"{subject}number", "changed", gpu.index, now.index)
            yield from _compare_fields("gpus", Gpu, _without_links(gpu), _without_links(now), subject)
            before, after = gpu.nvlinks_active, now.nvlinks_active
            if before != after and before is not None and after is not None:
                yield Change("gpus", f"{subject}active NVLinks", "changed", before, after)
    for gpu in (*left.values(), *nameless.values()):
        yield Change("gpus", f"GPU {gpu.index}", "added", None, gpu.name)


def _without_links(gpu: Gpu) -> Gpu:
    return dataclasses.replace(gpu, nvlinks=())


def _compare_links(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    """Compare paths between GPUs present in both Snapshots, whatever their indices are now."""
    now = {
        gpu.index: other.index
        for gpu in before.gpus or ()
        for other in after.gpus or ()
        if gpu.uuid is not None and gpu.uuid == other.uuid
    }
    news = {frozenset((link.a, link.b)): link for link in after.links or ()}
    moved: dict[tuple[str, str, str], list[str]] = {}
    for old in before.links or ():
        new = news.get(frozenset((now.get(old.a), now.get(old.b))))  # type: ignore[arg-type]
        if new is None:
            continue
        pair = f"{old.a}-{old.b}"
        if old.name != new.name and "?" not in (old.name, new.name):
            moved.setdefault(("link of GPU", old.name, new.name), []).append(pair)
        for field, word in (("p2p_read", "peer reads of GPU"), ("p2p_write", "peer writes of GPU")):
            was, is_ = getattr(old, field), getattr(new, field)
            if was is not None and is_ is not None and (was == 0) != (is_ == 0):
                moved.setdefault((word, _on_off(was), _on_off(is_)), []).append(pair)
    for (word, was, is_), pairs in moved.items():
        more = f" and {len(pairs) - _SHOWN_PAIRS} more" if len(pairs) > _SHOWN_PAIRS else ""
        yield Change("links", f"{word} {', '.join(pairs[:_SHOWN_PAIRS])}{more}", "changed", was, is_)


def _on_off(status: int) -> str:
    return "on" if status == 0 else "off"


def _compare_mappings(fact: str, subject: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    for key in (*old, *(key for key in new if key not in old)):
        if key not in new:
            yield Change(fact, f"{subject}{key}", "removed", format_value("", old[key]))
        elif key not in old:
            yield Change(fact, f"{subject}{key}", "added", None, format_value("", new[key]))
        elif old[key] != new[key]:
            yield Change(fact, f"{subject}{key}", "changed", format_value("", old[key]), format_value("", new[key]))


def _flatten(values: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(values, Mapping):
        return {prefix: values}
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= _flatten(value, f"{prefix}.{key}" if prefix else str(key))
    return found


def _without_none(hint: Any) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next(arg for arg in typing.get_args(hint) if arg is not type(None))
    return hint


def field_label(where: str) -> str:
    """Return a field's name as messages show it: `power limit` for Gpu.power_limit_w."""
    name = where.partition(".")[2] or where
    return marks(where).wording.name or name.removesuffix(unit_of(name)[0]).replace("_", " ")


def format_value(where: str, value: Any) -> Plain:
    """Return a value as messages show it; numbers without a unit stay numbers."""
    name = where.partition(".")[2]
    if value is None:
        none = marks(where).wording.none
        return "not known" if none is None else none
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_bytes") and isinstance(value, int):
        return gib(value)
    if isinstance(value, (int, float)):
        unit = unit_of(name)[1]
        return f"{value:g}{unit}" if unit else value
    if isinstance(value, (tuple, list)):
        dotted = len(value) == 2 and all(type(part) is int for part in value)
        return (".".join if dotted else ", ".join)(map(str, value)) or "none"
    if name == "pci" and isinstance(value, str):
        return bus_address(value)
    return str(value)


def time_saved(before: Snapshot, after: Snapshot) -> str:
    """Return when `before` was taken: `12 Nov 10:02 UTC`; with the year if it differs from that of `after`."""
    taken = before.taken or ""
    try:
        year, month, day = (int(part) for part in taken[:10].split("-"))
        name = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")[month - 1]
    except (ValueError, IndexError):
        return "it was saved"
    same = (after.taken or "")[:4] == taken[:4]
    clock = f" {taken[11:16]} UTC" if taken[13:14] == ":" else ""
    return f"{day} {name}{'' if same else f' {year}'}{clock}"
