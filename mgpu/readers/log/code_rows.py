"""Which rows match the line of code that raised an exception?

A traceback shows source code, whose strings are messages that no one printed: rows are not matched with it, except with
the very line that raised the exception, outside its strings and comments.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from dataclasses import replace

from mgpu.readers.log.line import named_groups
from mgpu.readers.log.row_matching import Signatures
from mgpu.readers.log.survival import Latest, key_of
from mgpu.snapshot import SignatureMatch, UncaughtException

_INDENT = "    "  # of the line in the traceback
_QUOTE = re.compile(r"(?<!\\)['\"]")


def add_matches(
    raised: MutableMapping[tuple[str, str, str | None], UncaughtException],
    seen: MutableMapping[str, SignatureMatch],
    latest: MutableMapping[object, Latest],
    signatures: Signatures,
) -> None:
    """Add the rows of these lines of code to the exceptions, and to what the log shows."""
    for key, one in raised.items():
        line = f"{_INDENT}{one.code}"
        for name, match in signatures.rows_of(line) if one.code else ():
            if name in signatures.context or not _is_code(line, match.start()) or _holds(one, match):
                continue
            raised[key] = one = replace(one, signatures=tuple(dict.fromkeys((*one.signatures, name))))
            latest[name] = latest[key_of(one)]
            place, groups = (one.file, one.line, one.rank, one.at), named_groups(match)
            seen.setdefault(name, SignatureMatch(name, one.code or "", *place, one.times, one.ranks, groups))


def _holds(one: UncaughtException, match: re.Match[str]) -> bool:
    """Whether a row is about an assertion that did not fail: its line raised another exception, such as x % 0."""
    return match[0].lstrip().startswith("assert") and "AssertionError" not in one.type


def _is_code(line: str, place: int) -> bool:
    """Whether a place in a line of code is outside its strings and comments."""
    before = line[:place]
    return len(_QUOTE.findall(before)) % 2 == 0 and " # " not in before
