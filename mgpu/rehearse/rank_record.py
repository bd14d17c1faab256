"""What has one rank recorded of the user's script? Its file is read line by line; a damaged line is skipped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from mgpu import file_reading
from mgpu.readers import recorded_values
from mgpu.secrets_masking import masked
from mgpu.snapshot import (
    BadSnapshot,
    Batch,
    Call,
    Checksum,
    Loss,
    Measured,
    MeasuredStep,
    OptimizerStep,
    RehearsedLoader,
    RehearsedOptimizer,
    RehearsedRank,
    SavedCheckpoint,
    Wrapper,
    WrittenFile,
    decode,
)
from mgpu.structured_text import json_of
from mgpu.text import clean

NAME = re.compile(r"(\d{1,7})\.(\d{1,9})\.rehearsal")
_MOST_BYTES = 64 << 20
_MOST_LINES = 30_000
_LONGEST_TEXT = 1000
_MOST_LISTED = 2000  # of a kind
_MOST_LOADERS = 64
_LONGEST_S = 1e9
_MEASURED = {
    "batch": "batch",
    "static_bytes": "static",
    "peak_bytes": "peak",
    "reserved_bytes": "held",
    "threads": "threads",
}

T = TypeVar("T")


@dataclass
class _Known:
    """What the lines so far say."""

    rank: RehearsedRank
    wrappers: list[Wrapper] = field(default_factory=list)
    optimizers: dict[int, RehearsedOptimizer] = field(default_factory=dict)
    steps: dict[int, dict[int, OptimizerStep]] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    loaders: dict[int, RehearsedLoader] = field(default_factory=dict)
    epochs: dict[int, list[int | None]] = field(default_factory=dict)
    delivered: dict[int, dict[int, int]] = field(default_factory=dict)
    batches: dict[int, list[Batch]] = field(default_factory=dict)
    trains: set[int] = field(default_factory=set)
    last: dict[int, tuple[int, int]] = field(default_factory=dict)  # the pass of each loader, and its batches so far
    trained: tuple[int | None, int | None] = (None, None)  # the same of the last batch that was trained
    calls: list[Call] = field(default_factory=list)
    files: list[WrittenFile] = field(default_factory=list)
    checkpoints: list[SavedCheckpoint] = field(default_factory=list)
    subgroups: list[int] = field(default_factory=list)
    prepared: list[str] = field(default_factory=list)


def read(path: Path) -> RehearsedRank | None:
    """Return what a rank has recorded; None if this is not a rank's file, or it cannot be read."""
    named = NAME.fullmatch(path.name)
    if named is None:
        return None
    try:
        content = file_reading.read_part(path, most=_MOST_BYTES, start=0)
    except OSError:
        return None
    known = _Known(RehearsedRank(int(named[1]), int(named[2])))
    for line in content.split(b"\n")[:_MOST_LINES]:
        try:
            record = json_of(line.decode("utf-8", "replace"))
            take = _TAKE.get(record["k"])
            if take is not None:
                take(known, _plain(record))
                known.rank = replace(known.rank, inside_call=record["k"] == "collective")
        except (ValueError, KeyError, TypeError, AttributeError, BadSnapshot):
            continue
    rank = _whole(known)
    return replace(rank, values=recorded_values.read(path.parent, rank.rank, rank.pid)) if rank.raised else rank


def _whole(known: _Known) -> RehearsedRank:
    optimizers = tuple(
        replace(one, steps=tuple(known.steps.get(number, {}).values())) for number, one in known.optimizers.items()
    )
    loaders = tuple(
        replace(
            one,
            trains=number in known.trains,
            epochs=tuple(known.epochs.get(number, ())),
            delivered=_by_pass(known.delivered.get(number, {})),
            batches=tuple(known.batches.get(number, ())),
        )
        for number, one in known.loaders.items()
    )
    return replace(
        known.rank,
        wrappers=tuple(known.wrappers),
        optimizers=optimizers,
        losses=tuple(known.losses),
        loaders=loaders,
        calls=tuple(known.calls),
        files=tuple(known.files),
        checkpoints=tuple(known.checkpoints),
        subgroups=tuple(known.subgroups),
        prepared=tuple(known.prepared),
    )


def _by_pass(counts: dict[int, int]) -> tuple[int | None, ...]:
    return tuple(counts.get(number) for number in range(max(counts, default=-1) + 1))


def _plain(value: Any) -> Any:
    """Return JSON values whose texts are short, printable, and without secrets."""
    if isinstance(value, str):
        return masked(clean(value[:_LONGEST_TEXT]))
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return {key: _plain(one) for key, one in value.items()} if isinstance(value, dict) else value


def _fact(kind: Callable[..., T], record: dict[str, Any], /, **names: str) -> T:
    """Return the fact whose fields are named keys of the record. Raises BadSnapshot, KeyError."""
    return decode(kind, {field: record[key] for field, key in names.items()}, "")


def _merge(before: T, found: T, fields: Iterable[str]) -> T:
    """Return the earlier fact with some fields of the new one."""
    return replace(before, **{name: getattr(found, name) for name in fields})  # type: ignore[type-var]


def _rank(known: _Known, record: dict[str, Any]) -> None:
    known.rank = replace(known.rank, launched_world=_count(record["world"]))


def _group(known: _Known, record: dict[str, Any]) -> None:
    names = {
        "world": "world",
        "backend": "backend",
        "replaced_backend": "replaced",
        "group_line": "line",
    }
    # Its rank is the launcher's: a script that sets the variables itself may have another one.
    known.rank = _merge(known.rank, _fact(RehearsedRank, record, rank="rank", **names), names)


def _wrapper(known: _Known, record: dict[str, Any]) -> None:
    names = {name: name for name in ("kind", "parameters", "ranks", "dropout", "batch_norms", "line")}
    _append(known.wrappers, _fact(Wrapper, record, **names))


def _optimizer(known: _Known, record: dict[str, Any]) -> None:
    names = {name: name for name in ("parameters", "sharded", "wrapped", "names", "shapes", "line")}
    found = _fact(RehearsedOptimizer, record, kind="type", **names)
    if len(known.optimizers) < _MOST_LOADERS:
        known.optimizers[int(record["o"])] = replace(found, start=_checksums(record["start"]))


def _step(known: _Known, record: dict[str, Any]) -> None:
    found = _fact(
        OptimizerStep,
        record,
        number="n",
        rate="lr",
        batches="batches",
        unsynced="unsynced",
        line="line",
        backward_line="backward",
    )
    steps = known.steps.setdefault(int(record["o"]), {})
    if len(steps) < _MOST_LISTED:
        of_pass, drawn = known.trained
        steps[found.number] = replace(found, gradients=_checksums(record["grads"]), of_pass=of_pass, drawn=drawn)


def _stepped(known: _Known, record: dict[str, Any]) -> None:
    times = {"step_s": "s", "loader_s": "wait", "backward_s": "backward_s", "optimizer_s": "optimizer"}
    times |= {"saving_s": "save", "recording_s": "own", "samples": "samples"}
    found = _fact(OptimizerStep, record, number="n", **times)
    steps = known.steps.setdefault(int(record["o"]), {})
    steps[found.number] = _merge(steps.get(found.number, found), found, times)


def _checksums(values: Any) -> tuple[Checksum | None, ...]:
    return tuple(None if one is None else Checksum(*map(_number, one)) for one in values)


def _number(value: Any) -> float | None:
    if value is not None and not isinstance(value, int | float):
        raise TypeError(value)
    return None if value is None else float(value)


def _loss(known: _Known, record: dict[str, Any]) -> None:
    value, line = record["v"], record["line"]
    shown = value if isinstance(value, str) else ""
    _append(known.losses, Loss(None if shown else _number(value), shown, line if isinstance(line, str) else None))
    if isinstance(record["loader"], int):
        known.trains.add(record["loader"])
        known.trained = known.last.get(record["loader"], (None, None))


def _loader(known: _Known, record: dict[str, Any]) -> None:
    names = ("dataset", "samples", "batch", "sampler", "batch_sampler", "replicas", "shuffle", "workers", "line")
    found = _fact(RehearsedLoader, record, length="batches", **{name: name for name in names})
    if len(known.loaders) < _MOST_LOADERS:
        known.loaders[int(record["l"])] = found


def _epoch(known: _Known, record: dict[str, Any]) -> None:
    _append(known.epochs.setdefault(int(record["l"]), []), _count(record["epoch"]))


def _batch(known: _Known, record: dict[str, Any]) -> None:
    number = int(record["l"])
    found = _fact(Batch, record, number="n", epoch="p", fingerprint="print", each="each", samples="samples")
    known.last[number] = (found.epoch, found.number + 1)
    _append(known.batches.setdefault(number, []), found)


def _exhausted(known: _Known, record: dict[str, Any]) -> None:
    found = known.delivered.setdefault(int(record["l"]), {})
    if 0 <= int(record["p"]) < _MOST_LISTED:
        found[int(record["p"])] = int(record["n"])


def _collective(known: _Known, record: dict[str, Any]) -> None:
    names = {"name": "op", "shape": "shape", "dtype": "dtype", "detail": "detail", "ranks": "ranks", "line": "line"}
    _append(known.calls, _fact(Call, record, **names))
    if record["inside"] is True:
        known.rank = replace(known.rank, optimizer_exchanges=True)


def _other(known: _Known, record: dict[str, Any]) -> None:
    known.rank = replace(known.rank, other_library=str(record["name"]))


def _averages(known: _Known, record: dict[str, Any]) -> None:
    known.rank = replace(known.rank, averages_parameters=str(record["by"]))


def _joins(known: _Known, record: dict[str, Any]) -> None:
    known.rank = replace(known.rank, joins_uneven=True)


def _file(known: _Known, record: dict[str, Any]) -> None:
    names = {"path": "path", "how": "how", "cache": "cache", "lock": "lock", "line": "line"}
    _append(known.files, _fact(WrittenFile, record, **names))


def _checkpoint(known: _Known, record: dict[str, Any]) -> None:
    names = {"path": "path", "ok": "ok", "error": "error", "read_s": "s", "size_bytes": "size"}
    names |= {"how": "how", "write_s": "wrote"} if "how" in record else {}
    found = _fact(SavedCheckpoint, record, **names)
    _append(known.checkpoints, found)


def _subgroup(known: _Known, record: dict[str, Any]) -> None:
    _append(known.subgroups, int(record["ranks"]))


def _prepare(known: _Known, record: dict[str, Any]) -> None:
    for kind in record["types"][:_MOST_LOADERS]:
        _append(known.prepared, str(kind))
    known.rank = replace(known.rank, unused=tuple(str(name) for name in record["unused"][:_MOST_LOADERS]))


def _random(known: _Known, record: dict[str, Any]) -> None:
    states: dict[str, str] = {name: str(record[name]) for name in ("torch", "numpy", "python") if name in record}
    known.rank = replace(known.rank, random_states=states)


def _raised(known: _Known, record: dict[str, Any]) -> None:
    found = _fact(RehearsedRank, {**record, "rank": 0}, rank="rank", raised_line="line", raised_after_stop="after")
    text = f"{record['type']}: {record['message']}"
    known.rank = replace(
        known.rank, raised=text, raised_line=found.raised_line, raised_after_stop=found.raised_after_stop
    )


def _done(known: _Known, record: dict[str, Any]) -> None:
    _end(known, record)
    known.rank = replace(known.rank, reached=True)


def _end(known: _Known, record: dict[str, Any]) -> None:
    host, allocated, reserved = (_count(record.get(name)) for name in ("host", "allocated", "reserved"))
    known.rank = replace(known.rank, ended=True, host_bytes=host, allocated_bytes=allocated, reserved_bytes=reserved)


def _measured(known: _Known, record: dict[str, Any]) -> None:
    names = ("step_s", "loader_s", "exchange_s", "optimizer_s", "saving_s", "samples")
    rows = [decode(MeasuredStep, dict(zip(names, row, strict=True)), "") for row in record["steps"][:_MOST_LISTED]]
    if not all(0 <= value < _LONGEST_S for row in record["steps"] for value in row if value is not None):
        raise ValueError("an impossible time")
    sizes = {name: _count(record.get(key)) for name, key in _MEASURED.items()}
    known.rank = replace(known.rank, measured=Measured(tuple(rows), queued=_count(record["queued"]) or 0, **sizes))


def _unmeasured(known: _Known, record: dict[str, Any]) -> None:
    known.rank = replace(known.rank, unmeasured=str(record["why"]))


def _refused(known: _Known, record: dict[str, Any]) -> None:
    known.rank = replace(known.rank, checkpoint_refused=str(record["why"]))


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _append(items: list[T], item: T) -> None:
    if len(items) < _MOST_LISTED:
        items.append(item)


_TAKE: dict[str, Callable[[_Known, dict[str, Any]], None]] = {
    "rank": _rank,
    "group": _group,
    "wrapper": _wrapper,
    "optimizer": _optimizer,
    "step": _step,
    "stepped": _stepped,
    "loss": _loss,
    "loader": _loader,
    "epoch": _epoch,
    "batch": _batch,
    "exhausted": _exhausted,
    "collective": _collective,
    "other": _other,
    "averages": _averages,
    "joins": _joins,
    "file": _file,
    "checkpoint": _checkpoint,
    "subgroup": _subgroup,
    "prepare": _prepare,
    "random": _random,
    "measured": _measured,
    "unmeasured": _unmeasured,
    "checkpoint_refused": _refused,
    "raised": _raised,
    "done": _done,
    "end": _end,
}
