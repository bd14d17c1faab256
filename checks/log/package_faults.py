"""Did an installed package fail in its own code, whatever it was given?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.command_line import shell
from mgpu.snapshot import Log, UncaughtException

from .. import _version_skew as skew
from ._messages import short_name

# Folders of code that is generated at run time: a mistake in it is not one of an installed package.
_GENERATED = frozenset({"unsloth_compiled_cache", "transformers_modules"})
# Python raises them for a mistake in the code itself.
_MISTAKES = frozenset({"UnboundLocalError", "NameError", "IndentationError", "SyntaxError", "TabError"})
# Names that Python 3 does not have.
_PYTHON_2 = frozenset(
    {"basestring", "file", "long", "raw_input", "reduce", "unichr", "unicode", "xrange", "execfile", "cmp", "reload"}
)
_UNDEFINED = re.compile(r"name '(?P<name>\w+)' is not defined")
_SHORT_NAMES = {"bnb": "bitsandbytes"}


def _package_of_name(one: UncaughtException) -> tuple[str, str] | None:
    """Return the name that is not defined, and the package that has it; None if no known one has."""
    found = _UNDEFINED.match(one.message) if short_name(one.type) == "NameError" else None
    if not found or one.signatures or one.caught:
        return None
    name = found["name"]
    package = _SHORT_NAMES.get(name) or skew.package_of(name) or skew.package_in_name(name)
    package = package or (name if skew.is_known(name) else None)
    return (name, package) if package and one.packages[-1:] != (package,) else None


@check(
    Severity.ERROR,
    source="https://docs.python.org/3/library/exceptions.html#NameError",
    role="root",
    kind="script",
    tags=("precise",),
    same_as=("log_exception",),
)
def log_optional_package_missing(log: Log) -> Answer:
    """A name of a package is not defined, because the package could not be imported.

    Why: Code that can do without a package often imports it only if it is installed, and goes on otherwise. The name is
    missing later, when it is needed: the package is not installed, or is too old or too new to have it.

    Fix: Install the package, in the version that the code asks for.
    """
    for one in log.raised:
        if meant := _package_of_name(one):
            name, package = meant[0], skew.distribution(meant[1])
            own = one.raised_in_own_code
            return Problem(
                f"{name} is not defined: {package} is probably not installed, or too old",
                fix=(
                    Fix(
                        "See what is installed, and what the code asks for (its requirements.txt or README).",
                        (shell("pip show {:package}", package), shell("pip install --upgrade {:package}", package)),
                    ),
                    Fix(
                        "If your own file uses it, import it there." if own else "Or turn off the option that needs it."
                    ),
                ),
                evidence={"exception": one.type, "place": one.place, "rank": one.rank, "at": one.at},
                subjects=tuple(f"rank {rank}" for rank in one.ranks),
                place=Place(one.file, one.line),
            )
    return Ok(f"no such exception in {log.lines:,} lines")


def _for_python_2(one: UncaughtException, package: str, name: str) -> Problem:
    return Problem(
        f"{package} was written for Python 2: it uses {name}, which Python 3 does not have",
        "This file of the package, or this part of it, was never adapted. Another release, or a successor of the "
        "package, may support Python 3.",
        (
            Fix(
                "Install a release that supports Python 3, or look for its successor.",
                (shell("pip install --upgrade {:package}", package), shell("pip show {:package}", package)),
            ),
            Fix("Or avoid the function that leads to this line."),
        ),
        {"exception": one.type, "place": one.place, "rank": one.rank, "at": one.at},
        tuple(f"rank {rank}" for rank in one.ranks),
        Place(one.file, one.line),
    )


@check(
    Severity.ERROR,
    source="https://docs.python.org/3/library/exceptions.html#UnboundLocalError",
    role="root",
    kind="script",
    tags=("precise",),
    same_as=("log_exception",),
    because_of=("log_bitsandbytes_without_cuda", "log_optional_package_missing"),
)
def log_package_has_a_fault(log: Log) -> Answer:
    """An installed package failed because of a mistake in its own code.

    Why: Its code uses a name that it never set, in a case that its authors did not try, or the package was changed or
    installed only in part.

    Fix: Upgrade the package. Avoid the option that leads there until then.
    """
    for one in log.raised:
        short = short_name(one.type)
        package = one.packages[-1] if one.packages else ""
        if short not in _MISTAKES or not package or package in _GENERATED or one.signatures or one.caught:
            continue
        name = skew.distribution(package)
        undefined = _UNDEFINED.match(one.message)
        if undefined and undefined["name"] in _PYTHON_2:
            return _for_python_2(one, name, undefined["name"])
        return Problem(
            f"{name} has a mistake in its own code: {short}: {one.message}",
            fix=(
                Fix(
                    "Upgrade it, or look for this message in its issues.",
                    (shell("pip install --upgrade {:package}", name), shell("pip show {:package}", name)),
                ),
                Fix("Until then, avoid the option or the case that leads to this line."),
            ),
            evidence={"exception": one.type, "place": one.place, "rank": one.rank, "at": one.at},
            subjects=tuple(f"rank {rank}" for rank in one.ranks),
            place=Place(one.file, one.line),
        )
    return Ok(f"no such exception in {log.lines:,} lines")
