"""Has a variable no value because what sets it had failed before, in an exception that the program caught?"""

from __future__ import annotations

import re
from typing import NamedTuple

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.snapshot import Log, UncaughtException

from ._first_of_chain import in_handler
from ._messages import advice, in_one_line, short_name, whole_message

_UNSET = re.compile(
    r"(?:cannot access (?:local|free) variable|local variable) '(?P<name>\w+)' (?:where it is not associated|"
    r"referenced before)|free variable '(?P<free>\w+)' referenced before"
)
_REFUSES = re.compile(
    r"\b(?:(?:not|n't) (?:be )?(?:supported|implemented|found|available|recognized|known|valid|exist)|unsupported|"
    r"unknown|invalid|unrecognized|no such(?! file or directory))\b",
    re.I,
)
_VALUES = re.compile(r"'[^']*'|\"[^\"]*\"|\S*[\d_/\\]\S*")  # parts of a message that its source does not have
_LEVEL = re.compile(r"\W*(?:error|warning|critical|fatal|info)\b\W*", re.I)
_LONGEST = 80  # characters of the other exception in a title


class Answered(NamedTuple):
    """What was wrong, why, and what to do."""

    title: str
    cause: str
    fixes: tuple[Fix, ...]


def unset_name(one: UncaughtException) -> str | None:
    """Return the variable that has no value, if the exception is about one."""
    found = _UNSET.search(one.message) if short_name(one.type) == "UnboundLocalError" else None
    return (found["name"] or found["free"]) if found else None


def consequence(one: UncaughtException, log: Log) -> Answered | None:
    """Explain a variable that was not set because each try failed, or because its own try block did."""
    name = unset_name(one)
    if name is None:
        return None
    if handled := in_handler(one):
        return Answered(
            f"{handled}; what handled it then failed too: {one.place} reads {name}, which was not set yet",
            f"The first exception is the cause. If the line that sets {name} is in the same try block, it was skipped; "
            "else the code that handles the exception has a mistake of its own.",
            (
                Fix("Start with the first exception, and its traceback above the second."),
                Fix(
                    f"Give {name} a value at the start of the function that reads it ({one.place}), and test for it "
                    "there."
                ),
            ),
        )
    earlier = [before for before in log.raised if _failed_before(before, one)]
    if not earlier:
        return _of_refused_value(one, name)
    first = earlier[-1]
    text = f"{short_name(first.type)}: {in_one_line(first)}" if first.message else short_name(first.type)
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST].rpartition(' ')[0]} ..."
    advised = advice(whole_message(first))
    return Answered(
        f"{first.place} failed, and probably {name} was therefore never set: {shown}",
        f"The function caught that exception, printed it and went on, and read {name} later ({one.place}). If the line "
        "that sets it comes after the one that failed, the missing value is only a consequence.",
        (
            Fix(f"Look at {first.place} first.{' The message says: ' + ' '.join(advised) if advised else ''}"),
            Fix("Let that except block raise the exception again, so that the run ends with it.", ("raise",)),
        ),
    )


def _of_refused_value(one: UncaughtException, name: str) -> Answered | None:
    """Explain a variable that was not set because no branch handles a value, which the program reported."""
    said = next((text for text in (one.said_before, one.said_after) if text and _REFUSES.search(text)), None)
    if said is None:
        return None
    shown = said if len(said) <= _LONGEST else f"{said[:_LONGEST].rpartition(' ')[0]} ..."
    return Answered(
        f'the program printed "{shown}" and went on: probably {name} was therefore never set, which {one.place} reads',
        "The code prints that for a value that none of its branches handles: a name, an option, a file. It goes on "
        "without the value that the right branch sets.",
        (
            Fix(
                "Find the message in the script, and pass a value that the branches above it handle. The source has a "
                "variable in place of the value: search for another part if it is not found.",
                (shell("grep -rnF --include='*.py' -B 20 {} .", _without_value(said)),),
            ),
            Fix("Raise an exception there instead of printing.", ("raise ValueError(value)",)),
        ),
    )


def _without_value(said: str) -> str:
    """Return the longest part of a message that is probably in its source: not the value, nor what follows a colon."""
    level = _LEVEL.match(said)
    text = said[level.end() :] if level else said
    parts = (part.strip(" .,;:") for part in _VALUES.split(text.partition(": ")[0]))
    return max(parts, key=len) or said.rstrip(".")


def _failed_before(before: UncaughtException, one: UncaughtException) -> bool:
    """Whether the function that reads the name had caught an exception, by the traceback that it printed.

    That of a caught exception begins in the function that caught it, that of an uncaught one in the script.
    """
    same = before.file == one.file and before.line < one.line and before.ranks == one.ranks
    other = short_name(before.type) != short_name(one.type) and bool(before.place)
    function = one.frames[-1] if one.frames else "<module>"
    return same and other and before.frames[:1] == (function,) and not function.endswith("<module>")
