"""Did an installed package raise an exception that usually means that two packages do not fit?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.command_line import shell
from mgpu.snapshot import Log, UncaughtException
from mgpu.text import listed

from .. import _package_mistakes as mistakes
from .. import _version_skew as skew
from ._messages import short_name
from .exceptions import unknown_exceptions

# What Python says if a caller was written for another version of what it calls. Objects of Python's own types are wrong
# values, not other versions.
_DO_NOT_FIT = re.compile(
    r"missing \d+ required (?:positional|keyword-only) argument|takes (?:from )?\d+ .*positional arguments? but"
    r"|(?:too many|not enough) values to unpack|cannot unpack non-iterable|got multiple values for"
    r"|'(?!(?:NoneType|str|int|float|bool|list|dict|tuple|set|function|method|Tensor)')\w+' object has no attribute"
    r"|type object '\w+' has no attribute"
)
_TYPES = frozenset({"TypeError", "AttributeError", "ValueError", "ImportError"})


def _raised_in_package(one: UncaughtException) -> tuple[str, ...]:
    """Return the innermost packages of the traceback, caller last; empty if the user's own file raised it."""
    named = [package for package in one.packages if package]
    if not named or not one.packages[-1]:
        return ()
    # torch calls the user's modules and looks up their attributes (Module.__call__, __getattr__).
    callers = [package for package in one.packages if package != "torch"]
    if not callers or not callers[-1]:
        return ()
    inner = callers[-1]
    outer = next((package for package in reversed(named) if package not in (inner, "torch")), None)
    return (inner, outer) if outer else (inner,)


@check(
    Severity.ERROR,
    source="https://docs.python.org/3/library/exceptions.html#TypeError",
    role="root",
    kind="script",
    tags=("precise",),
    same_as=("log_exception",),
)
def log_packages_do_not_fit(log: Log) -> Answer:
    """An installed package raised an exception that usually means that two packages do not fit.

    Why: The innermost call is in a package: an argument, an attribute or a returned value differs from what it was
    written for. One package is older or newer than the other expects, or it got an object that does not fit.

    Fix: Compare the versions with those that the code was tested with, and upgrade both packages together.
    """
    for one in unknown_exceptions(log):
        packages = _raised_in_package(one)
        short = short_name(one.type)
        if one.signatures or not packages or short not in _TYPES or not _DO_NOT_FIT.search(one.message):
            continue
        names = [skew.distribution(package) for package in packages]
        lacks = mistakes.LACKS.match(one.message)
        both = f"{names[0]} does not fit its caller"
        if names[1:]:
            both = f"the installed {listed(names)} probably do not fit"
        if lacks:  # whose class it is, is not known
            both = f"{names[0]} reads an attribute that an object of the class {lacks['owner']} does not have"
        own = f"If {lacks['owner']} is your own class, define {lacks['name']} in it." if lacks else ""
        return Problem(
            f"{both}: {short}: {one.message}",
            fix=(
                Fix(
                    "Compare the versions with those that the code was tested with, and upgrade them together.",
                    (shell("pip show {:package}", names), "pip check"),
                ),
                Fix(own or "If you call it yourself, compare the arguments with its documentation."),
            ),
            evidence={"exception": one.type, "place": one.place, "rank": one.rank, "at": one.at},
            subjects=tuple(f"rank {rank}" for rank in one.ranks),
            place=Place(one.file, one.line),
        )
    return Ok(f"no such exception in {log.lines:,} lines")
