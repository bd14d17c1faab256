"""What did each rank do when torch's watchdog gave up? Read from the flight recorder files that it writes.

One file for each rank, `nccl_trace_rank_N` (TORCH_NCCL_DEBUG_INFO_TEMP_FILE, TORCH_FR_DUMP_TEMP_FILE; by default in
/tmp), as a pickle or JSON. They are read as data of a stranger: nothing in them is executed.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mgpu import file_reading
from mgpu.readers import flight_recorder, plain_pickle
from mgpu.readers.stack_dump import frame_at
from mgpu.snapshot import AS_RECORDED, Hang, HangRank, StackFrame
from mgpu.structured_text import json_of

_NAME = re.compile(r".*(?:trace|fr|dump)_rank_(\d{1,7})(?:\.json|\.pickle|\.pkl)?")
_MOST_BYTES = 32 << 20
_MOST_FILES = 1024
_MOST_RANKS = 1 << 17
_NO_FILE = "written no flight recorder: it had probably ended before the others gave up"
_MOST_FRAMES = 12
_TOGETHER_S = 3600.0  # between a log and the files of the same run: in /tmp there may be those of another one


class _Recorded(NamedTuple):
    """What is kept of one file: they may have 32 MiB each."""

    rank: HangRank
    world: int
    timeout_s: float | None
    backend: str | None


def beside(log: Path) -> Hang | None:
    """Return what the flight recorders beside a log say; None if there are none of about the same time."""
    folder = log.parent
    try:
        of_log, shared = log.stat(), bool(folder.stat().st_mode & stat.S_IWOTH)
    except OSError:
        return None
    found: dict[int, _Recorded] = {}
    for rank, path in sorted(_files(folder))[:_MOST_FILES]:
        content = _content(path) if _is_of_run(path, of_log, shared=shared) else None
        if content is not None:
            found[rank] = _recorded(rank, content)
    return _hang(found) if found else None


def _is_of_run(path: Path, of_log: os.stat_result, *, shared: bool) -> bool:
    """Whether a file is about as old as the log; in a folder that all users write to, also of the same user."""
    try:
        about = path.stat()
    except OSError:
        return False
    return abs(about.st_mtime - of_log.st_mtime) < _TOGETHER_S and (not shared or about.st_uid == of_log.st_uid)


def _files(folder: Path) -> Iterable[tuple[int, Path]]:
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return
    for name in names:
        if (number := _NAME.fullmatch(name)) is not None:
            yield int(number[1]), folder / name


def _content(path: Path) -> Mapping[str, Any] | None:
    """Return one file as plain values; None if it is not a flight recorder."""
    try:
        data = file_reading.read(path, most=_MOST_BYTES)
        content = json_of(data) if data.lstrip()[:1] == b"{" else plain_pickle.load(data)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and isinstance(content.get("entries"), list) else None


def _recorded(number: int, content: Mapping[str, Any]) -> _Recorded:
    named = _named(content)
    return _Recorded(
        _rank(number, content, named),
        _world(content),
        flight_recorder.timeout_s(named),
        flight_recorder.backend(named),
    )


def _hang(found: Mapping[int, _Recorded]) -> Hang:
    first = next(iter(found.values()))
    world = max(one.world for one in found.values())
    world = world if max(found) < world else max(found) + 1
    ranks = [one.rank for one in found.values()]
    # Ranks of nodes whose files are elsewhere are not missing: name one only if most are here.
    absent = [number for number in range(world) if number not in found] if 2 * len(found) >= world else []
    ranks += [HangRank(number, unrecorded=_NO_FILE) for number in absent]
    return Hang(
        0.0,
        0.0,
        tuple(sorted(ranks, key=lambda rank: rank.rank)),
        len(ranks),
        world,
        first.timeout_s,
        first.backend,
    )


def _world(content: Mapping[str, Any]) -> int:
    """Return the number of ranks of the default process group; 0 if it is not known."""
    config = content.get("pg_config")
    groups = config.values() if isinstance(config, dict) else ()
    sizes = [len(_numbers(group.get("ranks"))) for group in groups if isinstance(group, dict)]
    return max(sizes, default=0)


def _numbers(ranks: Any) -> list[str]:
    return re.findall(r"\d+", ranks[: 8 * _MOST_RANKS])[:_MOST_RANKS] if isinstance(ranks, str) else []


def _rank(number: int, content: Mapping[str, Any], named: Mapping[str, Any]) -> HangRank:
    known = flight_recorder.collectives(named, with_code=False)
    entries = content["entries"]
    frames = _frames(next((one for one in reversed(entries) if _is_open(one)), None))
    return HangRank(
        number, state=AS_RECORDED, frames=frames, silent="only its flight recorder is known", collectives=known
    )


def _is_open(entry: Any) -> bool:
    return isinstance(entry, dict) and not entry.get("retired") and entry.get("state") != "completed"


def _named(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content with frames in the form of mgpu's own recorder: file, line, function."""
    entries = [one for one in content["entries"][-200:] if isinstance(one, dict)]
    return {"entries": [{**one, "frames": _as_lists(one.get("frames"))} for one in entries]}


def _as_lists(frames: Any) -> list[list[Any]]:
    listed = frames[:_MOST_FRAMES] if isinstance(frames, list) else []
    return [[one.get("filename", ""), one.get("line"), one.get("name", "")] for one in listed if isinstance(one, dict)]


def _frames(entry: Any) -> tuple[StackFrame, ...]:
    listed = _as_lists(entry.get("frames")) if isinstance(entry, dict) else []
    return tuple(
        frame_at(flight_recorder.plain(file), line, flight_recorder.plain(name), with_code=False)
        for file, line, name in listed
        if isinstance(line, int)
    )
