"""Which table lacks a key that is computed: `names[row[1]]`? A key that the line does not have is the outer one's."""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.snapshot import UncaughtException

from ._own_objects import PLAIN, Meaning

_NESTED = re.compile(rf"(?P<of>{PLAIN})\[(?P<index>[^\[\]'\"]{{0,80}}\[(?P<inner>[^\[\]]{{1,80}})\][^\[\]]{{0,80}})\]")
_POSITION = re.compile(r"[ijk]$|(?:\w*_)?(?:idx|index)$")
_LITERAL = re.compile(r"-?\d+$|(['\"])[^'\"]*\1$")


def other_literal(index: str, key: str) -> bool:
    """Whether an index in a line of code is a literal that is not the missing key."""
    return bool(_LITERAL.match(index.strip())) and index.strip().strip("'\"") != key.strip("'\"")


def computed_key(one: UncaughtException, code: str) -> Meaning | None:
    """Explain a value of the data that a table has no entry for."""
    by_position = one.message[:1] in "'\""  # a text cannot be missing where a number is looked up
    found = [
        match
        for match in _NESTED.finditer(code)
        if other_literal(match["inner"], one.message) or (by_position and _POSITION.match(match["inner"]))
    ]
    if len(found) != 1 or one.message.strip("'\"") in re.findall(r"\[['\"]([^'\"]*)['\"]\]", code):
        return None
    table, index = found[0]["of"], found[0]["index"].strip()
    return Meaning(
        f"{table} has no entry for {one.message}, the value of {index} ({one.place})",
        f"The line looks a value of the data up in {table}. The data has a value that the table lacks: another class "
        "or name, other spelling (capital letters, spaces), another type (a number instead of a text), or another "
        "version of the data.",
        (
            Fix(
                "Compare the two, before that line.",
                (python("print({:dotted}.keys())", table), "print(sorted(values))"),
            ),
            Fix(f"Add {one.message} to {table}, or drop or rename it in the data."),
        ),
        of_code=False,
    )
