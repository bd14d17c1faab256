"""Which paths did the program print in its last lines before an exception? Often it reads from one of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mgpu.readers.log.line import parse_line, shown_text
from mgpu.readers.log.said_before import first_head

_LINES = 30  # that are not empty
_MOST = 6
_PATH = re.compile(
    r"\b(?:load\w*|read\w*|open\w*|from|data\w*|path|dir\w*|folder|root|train\w*|dev|val\w*|test\w*|files?)\b"
    r"[^/\\]{0,40}?(?:^|[\s'\"=:(])(?P<path>(?:/|[A-Za-z]:[\\/])[^\s'\",;:()*]{3,300})",
    re.I,
)
# What the program says of a path that is not one of data.
_NOT_DATA = re.compile(
    r"(?<![A-Za-z])(?:checkpoints?|ckpt|weights?|(?:pre)?trained|backbone|models?|save[ds]?|saving|logs?|logging|"
    r"out(?:puts?)?|results?|writ(?:es?|ing|ten)|config\w*)(?![A-Za-z])",
    re.I,
)
_NOT_DATA_FILE = re.compile(r"\.(?:pth?|ckpt|bin|safetensors|log|ya?ml|py)$", re.I)
_SAID = 60  # characters before a path
_TWICE = re.compile(r"(?:^|[/\\])((?:[^/\\]+[/\\]){2,6})\1")  # such a path is wrong, whatever it is for
_OF_LIBRARY = re.compile(r"(?:site|dist)-packages|\bFile \"|\w+Warning\b|\.py:\d+")


def find(lines: Sequence[str], last: int, rank: int | None) -> tuple[str, ...]:
    """Return such paths of the same rank, the latest last. Parameters as in `said_before.find`."""
    head = first_head(lines, last)
    if head is None:
        return ()
    said = [one for raw in lines[max(0, head - 3 * _LINES) : head] if (one := parse_line(raw)).text.strip()]
    found: list[str] = []
    for one in said[-_LINES:]:
        if (one.rank is None or rank is None or one.rank == rank) and not _OF_LIBRARY.search(one.text):
            found += _paths(one.text[:2000])
    return tuple(dict.fromkeys(found))[-_MOST:]


def _paths(text: str) -> list[str]:
    """Return the paths in a line, without those of weights and outputs."""
    found = []
    for match in _PATH.finditer(text):
        path = match["path"].rstrip(".")
        said = text[max(0, match.start("path") - _SAID) : match.start("path")]
        if _TWICE.search(path) or not (_NOT_DATA_FILE.search(path) or _NOT_DATA.search(said)):
            found.append(shown_text(path))
    return found
