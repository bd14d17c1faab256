"""What did the names on a rank's failed lines stand for, as its recorder described them?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mgpu import file_reading
from mgpu.readers.sources.shown_code import shown_code
from mgpu.readers.stack_dump import frame_at
from mgpu.secret_names import is_secret_name
from mgpu.secrets_masking import masked
from mgpu.snapshot import LineValues
from mgpu.structured_text import json_of
from mgpu.text import clean

_MOST_BYTES = 1 << 16
_MOST_LINES, _MOST_NAMES, _LONGEST = 4, 12, 200


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
    if not (isinstance(one, list) and len(one) == 5 and isinstance(one[1], int) and isinstance(one[3], dict)):
        return None
    values = {_described(name): _value(name, text) for name, text in list(one[3].items())[:_MOST_NAMES]}
    frame = frame_at(str(one[0]), one[1], str(one[2]), with_code=False)
    return LineValues(frame.file, frame.line, frame.function, values, shown_code(_described(one[4])) or None)


def _value(name: str, text: Any) -> str:
    text = _described(text)
    return "str" if text.startswith(("'", '"')) and is_secret_name(name) else text


def _described(value: Any) -> str:
    return masked(clean(str(value)))[:_LONGEST]
