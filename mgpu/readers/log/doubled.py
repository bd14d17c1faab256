"""Did several processes write their exceptions to one line at the same time?

Python writes the type, the colon and the message of an exception one after the other. Processes that share a file
without prefixes can alternate: "ValueErrorValueError: : no such axisno such axis".
"""

from __future__ import annotations

import re

_DOUBLED = re.compile(
    r"(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit))(?P<between>(?:: ){2,8})(?P<message>.*)$"
)
_SHORTEST = 3  # characters of a message


def _part(text: str, times: int) -> str | None:
    """Return what a text repeats so often, without anything between."""
    length, rest = divmod(len(text), times)
    return text[:length] if not rest and text == text[:length] * times else None


def undoubled(text: str) -> str:
    """Return the line as one process would have written it; any other line as it is."""
    if ": : " not in text or not (found := _DOUBLED.match(text)):
        return text
    times = len(found["between"]) // 2
    names = [_part(name, times) for name in found["type"].split("." * times)]
    if None in names:
        return text
    message = found["message"]
    single = _part(message, times) if len(message) >= _SHORTEST * times else None
    return f"{'.'.join(filter(None, names))}: {single or message}"
