"""Is a line the message of an exception whose traceback is missing, as people paste it?

The type may be missing too: Python's own messages show which exception they belong to.
"""

from __future__ import annotations

import re

from mgpu.readers.log.line import parse_line, shown_text
from mgpu.readers.log.traceback_frames import FRAME, INSTALLED, IPYTHON_FRAME
from mgpu.snapshot import UncaughtException

# What people and other programs put in front of a quoted line: a list's dash, a quotation mark, pytest's "E   ".
_ORNAMENT = re.compile(r"(?:[>\[*`-]{1,3} ?|E {2,9})(?=[\w(])")
_BARE = re.compile(
    r"(?P<type>(?:[A-Za-z_]\w*\.)*_*[A-Z]\w*(?:Error|Exception|NotFound|Refused|Timeout|Expired)) ?:(?!:) ?"
    r"(?P<message>.*\S)$"
)
# The message begins on the next line.
_TYPE_ALONE = re.compile(r"(?P<type>(?:[A-Za-z_]\w*\.)*_*[A-Z]\w+(?:Error|Exception)) ?:$")
# Python's own messages, with the exceptions that have them: the whole line, or the beginning of a wrapped one.
_OWN_MESSAGES = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"'\w+' object has no attribute '\w+'?", "AttributeError"),
        (r"module '[\w.]+' has no attribute '\w+'?", "AttributeError"),
        (r"[A-Za-z_][\w.]*\(\) (?:got an unexpected keyword argument|got multiple values for) '?\w", "TypeError"),
        (r"[A-Za-z_][\w.]*\(\) (?:missing \d+ required|takes (?:from )?\d+ .*positional arguments? but)", "TypeError"),
        (r"'\w+' object is not (?:callable|subscriptable|iterable)", "TypeError"),
        (r"unsupported operand type\(s\) for ", "TypeError"),
        (r"(?:list|tuple) index out of range$", "IndexError"),
        (r"invalid literal for int\(\) with base \d+: ", "ValueError"),
    )
)
_LONGEST_CODE = 1000  # bytes of a line that can be code
_CODE_LINE = re.compile(r" {4,}[A-Za-z_*@\[(](?=.*[.(=\[]).*[\w)\]}'\":]$")
_PROSE = re.compile(  # two words without an operator between them
    r"\b(?!(?:return|raise|assert|for|in|if|not|is|and|or|else|elif|await|async|with|as|lambda|yield|from|import|del|"
    r"while)\b)[A-Za-z_]\w* (?!(?:for|in|if|not|is|and|or|else|as|from|import)\b)[A-Za-z_]|://|%\|"
)
_CLOSING = "]`"
_NEAR = 5  # lines between a message and the frames that were pasted below it


def read_bare(text: str) -> tuple[str, str] | None:
    """Return type and message of an exception without its traceback; None if the line is something else."""
    ornament = _ORNAMENT.match(text)
    inner = text[ornament.end() :] if ornament else text
    if ornament and ornament[0][0] in "[`":
        inner = inner.rstrip(_CLOSING)
    if found := _BARE.match(inner):
        return found["type"], found["message"]
    if found := _TYPE_ALONE.match(inner):
        return found["type"], ""
    own = next((name for pattern, name in _OWN_MESSAGES if pattern.match(inner)), None)
    return (own, inner) if own else None


def code_above(raw: bytes) -> str | None:
    """Return the code that the line above an exception shows, as the end of a cut traceback; None if it shows none."""
    text = shown_text(whole := parse_line(raw[:_LONGEST_CODE].decode("utf-8", "replace")).text)
    return text if _CODE_LINE.match(whole) and not _PROSE.search(text) else None


def opens_another(text: str) -> bool:
    """Whether the line after an exception without its traceback is not a part of its message."""
    return bool(read_bare(text) or FRAME.match(text) or is_frame_of_package(text))


def is_frame_of_package(text: str) -> bool:
    """Whether the line is a frame as IPython shows it, in an installed package: the head of its traceback was cut."""
    found = IPYTHON_FRAME.match(text)
    return found is not None and bool(INSTALLED.search(found["file"]))


def takes_frames(one: UncaughtException, below: int) -> bool:
    """Whether frames from line `below` on belong to a message above them: the log has no other traceback for them."""
    return one.bare and not one.frames and 0 < below - one.line <= _NEAR
