"""What did the names on a rank's failed lines stand for, as its recorder described them?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mgpu import file_reading
from mgpu.readers.sources.shown_code import shown_code
from mgpu.readers.stack_dump import frame_at
from mgpu.secret_names import is_secret_name
from mgpu.secrets_masking import masked
from mgpu.snapshot import EmptyLoop, LineValues, ListedFolder, ReadFile
from mgpu.structured_text import json_of
from mgpu.text import clean

_MOST_BYTES = 1 << 16
_MOST_LINES, _MOST_NAMES, _LONGEST = 4, 12, 200
_LONGEST_PATH, _LARGEST = 1024, 1 << 60


def read(recorded: Path, rank: int, pid: int | None) -> tuple[LineValues, ...]:
    """Return the values on the lines that raised the exception, the innermost first.

    `recorded`: the folder with the recorder's files.
    """
    try:
        found = json_of(file_reading.read_whole(recorded / f"{rank}.{pid}.values", most=_MOST_BYTES))
    except (OSError, ValueError):
        return ()
    lines = found if isinstance(found, list) else []
    return tuple(line for one in lines[:_MOST_LINES] if (line := _line(one)) is not None)


def _line(one: Any) -> LineValues | None:
    if not (isinstance(one, list) and len(one) in (5, 6) and isinstance(one[1], int) and isinstance(one[3], dict)):
        return None
    values = {_described(name): _value(name, text) for name, text in list(one[3].items())[:_MOST_NAMES]}
    frame = frame_at(str(one[0]), one[1], str(one[2]), with_code=False)
    condition = shown_code(_described(one[4])) or None
    facts = one[5] if one[5:] and isinstance(one[5], dict) else {}
    found = _read_file(facts), _empty_loop(facts), _folder(facts)
    return LineValues(frame.file, frame.line, frame.function, values, condition, *found)


def _empty_loop(one: dict[str, Any]) -> EmptyLoop | None:
    line, over, fills = one.get("loop"), shown_code(_described(one.get("over", ""))), _described(one.get("fills", ""))
    if not (isinstance(line, int) and 0 < line < _LARGEST and over and fills.isidentifier()):
        return None
    return EmptyLoop(line, over, fills)


def _folder(one: dict[str, Any]) -> ListedFolder | None:
    path, missing, names, count = one.get("folder"), one.get("missing"), one.get("names"), one.get("count")
    if not (
        isinstance(path, str) and _is_path(path) and isinstance(missing, str) and (not missing or _is_path(missing))
    ):
        return None
    if not (isinstance(names, list) and isinstance(count, int) and 0 <= count < _LARGEST):
        return None
    shown = tuple(_described(name) for name in names[:_MOST_NAMES])
    return ListedFolder(path, shown, max(count, len(shown)), missing, one.get("here") is True)


def _is_path(text: str) -> bool:
    return text.isprintable() and 0 < len(text) <= _LONGEST_PATH and masked(text) == text


def _read_file(one: dict[str, Any]) -> ReadFile | None:
    path, size, line = one.get("path"), one.get("size"), one.get("line")
    if not (isinstance(path, str) and _is_path(path)):
        return None
    if not (isinstance(size, int) and 0 <= size < _LARGEST):
        return None
    line = line if isinstance(line, int) and 0 < line < _LARGEST else None
    return ReadFile(path, size, _described(one.get("form", "")), line, _described(one.get("fault", "")))


def _value(name: str, text: Any) -> str:
    text = _described(text)
    return "str" if text.startswith(("'", '"')) and is_secret_name(name) else text


def _described(value: Any) -> str:
    return masked(clean(str(value)))[:_LONGEST]
