"""What each rank of a run has recorded of its memory, and of its first loss or gradient norm that is not finite."""

from __future__ import annotations

import contextlib
import re
import struct
from pathlib import Path
from typing import Any, NamedTuple

from mgpu import file_reading
from mgpu.hangs.hang_evidence import RECORDED, raised_in
from mgpu.process import processes
from mgpu.readers import recorded_values
from mgpu.readers.stack_dump import frame_at
from mgpu.recorder.inject._mgpu_recorder import MEMORY, MEMORY_AT
from mgpu.recorder.inject._mgpu_trained import TRAINED, TRAINED_AT
from mgpu.secrets_masking import masked
from mgpu.snapshot import LineValues, NotFinite, StackFrame
from mgpu.snapshot.hang_facts import own_frame
from mgpu.structured_text import json_of
from mgpu.text import clean, counted

_MOST_BYTES = 1 << 16
_MOST_FILES = 4096
_NAN = re.compile(r"(\d{1,7})\.\d+\.nan")
_RAISED = re.compile(r"(\d{1,7})\.(\d{1,10})\.raised")
_MOST_STEP = 1 << 53
_MOST_INPUTS, _INPUT_PARTS = 3, 5


class Peaks(NamedTuple):
    """Peak memory of a rank in bytes; None: it has used no GPU through torch."""

    host: int
    allocated: int | None
    reserved: int | None


def peaks(folder: Path, rank: int, pid: int) -> Peaks | None:
    """Return the peaks that a rank has stored; None if it has not."""
    size = MEMORY_AT + struct.calcsize(MEMORY)
    try:
        content = file_reading.read_part(folder / RECORDED / f"{rank}.{pid}.beat", most=size, start=0)
        host, allocated, reserved = struct.unpack(MEMORY, content[MEMORY_AT:])
    except (OSError, struct.error):
        return None
    return Peaks(host, allocated or None, reserved or None) if host else None


def trained_bytes(folder: Path, ranks: int) -> int:
    """Return the bytes of the parameters that each rank trains, of the rank with the fewest; 0: not known of all."""
    found = []
    with contextlib.suppress(OSError):
        for path in sorted((folder / RECORDED).glob("*.beat"))[:_MOST_FILES]:
            content = file_reading.read_part(path, most=TRAINED_AT + struct.calcsize(TRAINED), start=0)
            found += [*struct.unpack(TRAINED, content[TRAINED_AT:])] if len(content) > TRAINED_AT + 7 else []
    return min(found) if len(found) == ranks else 0


def host_peak(pid: int) -> int | None:
    """Return the peak of a running process's resident memory in bytes, according to the kernel."""
    try:
        return int(processes.status_of(pid, "VmHWM").removesuffix("kB")) << 10
    except ValueError:
        return None


class PeakMemory:
    """The peaks of the ranks, which the kernel drops with their processes."""

    def __init__(self) -> None:
        self._host: dict[int, int] = {}

    def look(self, rank: int, pid: int) -> None:
        """Read the memory of a process that may still run."""
        self._host[rank] = max(self._host.get(rank, 0), host_peak(pid) or 0)

    def of(self, folder: Path | None, rank: int, pid: int | None) -> Peaks:
        """Return the peaks of a rank, with those that it has stored. `host`: 0 if it is not known."""
        stored = peaks(folder, rank, pid) if folder and pid else None
        known = self._host.get(rank, 0)
        return stored._replace(host=max(stored.host, known)) if stored else Peaks(known, None, None)


def raised(folder: Path | None, rank: int, pid: int | None) -> tuple[str | None, StackFrame | None]:
    """Return the exception that has ended the script of a rank, and the user's line in it; None if there is none."""
    return raised_in(folder / RECORDED / f"{rank}.{pid}.raised") if folder else (None, None)


def values(folder: Path | None, rank: int, pid: int | None) -> tuple[LineValues, ...]:
    """Return what the names on that line, and on the user's lines that called it, stood for."""
    return recorded_values.read(folder / RECORDED, rank, pid) if folder else ()


def failed_children(folder: Path | None) -> list[tuple[int, int]]:
    """Return rank and process id of the processes that recorded the exception that ended them, the first one first."""
    try:
        paths = sorted((folder / RECORDED).glob("*.raised") if folder else ())[:_MOST_FILES]
        times = {match: path.stat().st_mtime_ns for path in paths if (match := _RAISED.fullmatch(path.name))}
    except OSError:
        return []
    return [(int(match[1]), int(match[2])) for match in sorted(times, key=times.__getitem__)]


def not_finite(folder: Path) -> tuple[NotFinite, ...] | None:
    """Return the first value of each rank that is not finite, the earliest step first; None without a recorder."""
    try:
        names = [path.name for path in (folder / RECORDED).iterdir()]
    except OSError:
        return None
    found = [(int(match[1]), name) for name in names if (match := _NAN.fullmatch(name))][:_MOST_FILES]
    values = [one for rank, name in found if (one := _not_finite(folder / RECORDED / name, rank))]
    return tuple(sorted(values, key=order))


def order(one: NotFinite) -> tuple[int, float]:
    """Return the key that sorts such values: the first one is where it began."""
    return one.step, one.at


def _not_finite(path: Path, rank: int) -> NotFinite | None:
    try:
        content = json_of(file_reading.read_whole(path, most=_MOST_BYTES))
        what, value, step, at = (content[name] for name in ("what", "value", "step", "at"))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not (isinstance(step, int) and 0 < step < _MOST_STEP and isinstance(at, int | float) and 0 <= at < _MOST_STEP):
        return None
    frames = content.get("frames")
    listed = [frame for one in (frames if isinstance(frames, list) else []) if (frame := _frame(one))]
    return NotFinite(rank, _text(what), _text(value), step, at, own_frame(listed), _inputs(content.get("inputs")))


def _inputs(found: Any) -> tuple[str, ...]:
    """Return what a rank has written of the inputs with NaN: name, elements that are NaN, elements, file, line."""
    texts = []
    for one in found[:_MOST_INPUTS] if isinstance(found, list) else []:
        if not (isinstance(one, list) and len(one) == _INPUT_PARTS):
            continue
        name, nan, elements, file, line = one
        if all(type(number) is int and 0 < number < _MOST_STEP for number in (nan, elements, line)):
            place = f"{_text(str(file).rpartition('/')[2])}:{line}"
            texts.append(f"{_text(name)} ({place}), {nan:,} of {counted(elements, 'value')}")
    return tuple(texts)


def _text(value: Any) -> str:
    return masked(clean(str(value)))[:40]


def _frame(one: Any) -> Any:
    if not (isinstance(one, list) and len(one) == 3 and isinstance(one[1], int)):
        return None
    return frame_at(str(one[0]), one[1], str(one[2]))
