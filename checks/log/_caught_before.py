"""Is a value that is missing only the consequence of an error that the program had caught and printed just before?

"Error in trial 9: ..." for each trial, and then the code that reads the best of them, which is None.
"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.snapshot import UncaughtException

from ._own_objects import Meaning
from ._values_that_are_none import is_setting

# What the program said, then the exception's own message.
_CAUGHT = re.compile(
    r"(?:[^:]{0,40}: )?[^:]{0,60}\b(?:errors?|failed|failure|exception|could not|cannot|unable)\b[^:]{0,60}: +"
    r"(?P<why>\S.{7,})",
    re.I,
)
_LONGEST = 120  # characters of it in a title
_NONE = re.compile(r"(?P<name>[\w.]+) is None \(")
_SEE = Fix(
    "Correct that error first. Print its traceback where it is caught, or let it stop the run.",
    ("import traceback; traceback.print_exc()",),
)


def caught_error(one: UncaughtException) -> str | None:
    """Return the message of the exception that the program reported in its last lines before this one."""
    found = _CAUGHT.match(one.said_before or "")
    return found["why"].strip() if found else None


def consequence_of_caught(meant: Meaning, one: UncaughtException) -> Meaning:
    """Return what a value means that is None after an error that was caught; any other meaning as it is."""
    why, none = caught_error(one), _NONE.match(meant.title)
    if why is None or none is None or is_setting(none["name"]):
        return meant
    shown = why if len(why) <= _LONGEST else f"{why[:_LONGEST].rpartition(' ')[0]} ..."
    return Meaning(
        f"an error that the program caught: {shown}; probably therefore {meant.title}",
        "The code went on after that error, without the value that the failed part returns or sets. What it reads "
        "later is only missing.",
        (_SEE, *meant.fixes),
        meant.of_code,
    )
