"""Did an installed package raise an exception that usually means that two packages do not fit?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.command_line import shell
from mgpu.snapshot import Log, UncaughtException
from mgpu.text import listed

from .. import _package_mistakes as mistakes
from .. import _version_skew as skew
from ._first_of_chain import in_handler
from ._functions_as_values import FUNCTIONS
from ._messages import NO_TRACEBACK, short_name, whole_message
from ._missing_settings import missing_in_config
from ._refused_by_programs import refused_by_program
from ._refused_inputs import refused_input
from ._trainer_arguments import wrong_argument
from ._unpacked_values import unpacked_batch
from .exceptions import unknown_exceptions

# What Python says if a caller was written for another version of what it calls. Objects of Python's own types are wrong
# values, not other versions.
_DO_NOT_FIT = re.compile(
    r"missing \d+ required (?:positional|keyword-only) argument|takes (?:from )?\d+ .*positional arguments? but"
    r"|(?:too many|not enough) values to unpack|cannot unpack non-iterable|got multiple values for"
    rf"|'(?!(?:NoneType|str|int|float|bool|list|dict|tuple|set|Tensor|{FUNCTIONS})')\w+' object has no attribute"
    r"|type object '\w+' has no attribute"
)
_GIVEN = re.compile(r"(?P<call>[A-Za-z_][\w.]*)\(\) (?:missing \d+ required|takes (?:from )?\d+ )")
_READ = re.compile(r"'(?P<owner>\w+)' object has no attribute '(?P<name>\w+)'")
# Internal names of packages have a leading underscore and several words. Scripts seldom have such names.
_INTERNAL = re.compile(r"(?:^|\.)_(?!_)[a-z0-9]+(?:_[a-z0-9]+)+$")
_OF_EVERY_CLASS = frozenset({"forward", "__init__", "__call__"})
_TYPES = frozenset({"TypeError", "AttributeError", "ValueError", "ImportError"})


def _raised_in_package(one: UncaughtException) -> tuple[str, ...]:
    """Return the innermost packages of the traceback, caller last; empty if the user's own file raised it."""
    named = [package for package in one.packages if package]
    if not named or not one.packages[-1] or missing_in_config(one):
        return ()
    # torch calls the user's modules and looks up their attributes (Module.__call__, __getattr__).
    callers = [package for package in one.packages if package != "torch"]
    if not callers or not callers[-1]:
        return ()
    inner = callers[-1]
    outer = next((package for package in reversed(callers) if package != inner), None)
    return (inner, outer) if outer else (inner,)  # "": the script made the call


def _by_whom(one: UncaughtException, reasons: str) -> str:
    """Return what the log shows of the code that made the call; `one` has no frame in a package."""
    if one.packages:
        return (
            f"The call is in your own file ({one.place}): it was written for an older or newer release of that package."
        )
    return f"{NO_TRACEBACK} {reasons}"


def _name_of_a_package(one: UncaughtException) -> str | None:
    """Return the function, class or attribute of a message, if it is probably a package's own.

    None with the frames of a package, which show more.
    """
    if any(one.packages):
        return None
    if (found := _GIVEN.search(one.message)) and (_INTERNAL.search(found["call"]) or _is_of_package(found["call"])):
        return found["call"]
    read = _READ.search(one.message)
    if read and _is_of_package(read["owner"]):
        return read["owner"]
    return read["name"] if read and _INTERNAL.search(read["name"]) else None


def _is_of_package(name: str) -> bool:
    return bool(skew.package_of(name) or skew.package_in_name(name))


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

    Why: An argument, an attribute or a returned value differs from what the failed call was written for. One package
    is older or newer than the other expects, or it got an object that does not fit.

    Fix: Compare the versions with those that the code was tested with, and upgrade both packages together.
    """
    for one in unknown_exceptions(log):
        short = short_name(one.type)
        if one.signatures or short not in _TYPES or not _DO_NOT_FIT.search(one.message) or in_handler(one):
            continue
        if wrong_argument(one):
            continue  # what the script passes
        if known := refused_input(one) or refused_by_program(one) or unpacked_batch(one):
            return _problem(one, known.title, known.fixes, known.why)
        if packages := _raised_in_package(one):
            return _between(one, packages)
        if meant := _name_of_a_package(one):
            return _by_name(one, meant)
    return Ok(f"no such exception in {log.lines:,} lines")


def _between(one: UncaughtException, packages: tuple[str, ...]) -> Problem:
    """Return what is wrong between these packages, which the traceback shows: the innermost one first."""
    names = [skew.distribution(package) for package in packages]
    lacks = mistakes.LACKS.match(one.message)
    both = f"{names[0]} does not fit its caller"
    if names[1:]:
        both = f"the installed {listed(names)} probably do not fit"
    elif "" not in one.packages and _GIVEN.search(
        one.message
    ):  # who calls a package's function is not in the log: a package that uses or patches
        both = f"the installed {names[0]} and the package that it patches or that calls it probably do not fit"
    if lacks:  # whose class it is, is not known
        both = f"{names[0]} reads an attribute that an object of the class {lacks['owner']} does not have"
    own = f"If {lacks['owner']} is your own class, define {lacks['name']} in it." if lacks else ""
    return _problem(
        one,
        both,
        (
            Fix(
                "Compare the versions with those that the code was tested with, and upgrade them together.",
                (shell("pip show {:package}", names), "pip check"),
            ),
            Fix(own or "If you call it yourself, compare the arguments with its documentation."),
        ),
        "The innermost call is in a package: an argument, an attribute or a returned value differs from what it was "
        "written for. One package is older or newer than the other expects, or it got an object that does not fit.",
    )


def _by_name(one: UncaughtException, name: str) -> Problem:
    """Return what is wrong with a call or an attribute of this name, of which the log has no traceback."""
    package, like = skew.package_of(name), skew.package_in_name(name) if _INTERNAL.search(name) else None
    guess = f" The name looks like one of {skew.distribution(like)}." if like and not package else ""
    shown = package or like
    lacks = mistakes.LACKS.match(one.message)
    owner, _, last = name.rpartition(".")
    word = lacks["name"] if lacks else owner.rpartition(".")[2] if owner and last in _OF_EVERY_CLASS else last
    search = shell("grep -rnw --include='*.py' {:dotted} {}", word, ".")
    first = f"a call of {name}() does not fit its definition"
    if package:
        first = f"the installed {skew.distribution(package)} probably does not fit the code that uses it"
    elif lacks:
        first = f"an object of the class {lacks['owner']} has no attribute {lacks['name']}"
    commands = (
        f"cd $(python -c 'import site; print(site.getsitepackages()[0])') && {search}",
        *((shell("pip show {:package}", skew.distribution(shown)),) if shown else ()),
        "pip check",
    )
    other = "If the name is a package's, another release of it may have it: compare with the version that the calling "
    return _problem(
        one,
        first,
        (Fix(f"{_where_to_look(lacks, package)}{guess}", commands), Fix(f"{other}code was tested with.")),
        _by_whom(one, _possible_reasons(lacks, package)),
    )


def _possible_reasons(lacks: re.Match[str] | None, package: str | None) -> str:
    if lacks is None:
        return "Caller and definition are of different versions, or the arguments are wrong."
    owner, name = lacks["owner"], lacks["name"]
    if package:
        dist = skew.distribution(package)
        return (
            f"{owner} is the name of a class of {dist}: the code that reads {name} was probably written for an older "
            f"or newer {dist}."
        )
    return (
        f"Either the part of {owner}'s setup that sets {name} did not run (an option skips it, or it failed), or the "
        "code that reads it was written for another version of the class."
    )


def _where_to_look(lacks: re.Match[str] | None, package: str | None) -> str:
    if lacks and package:
        return (
            f"Search for the packages that use {lacks['name']}, and compare the {skew.distribution(package)} that they "
            "require with the installed one."
        )
    if lacks:
        return f"Search for the code that sets {lacks['name']}, and check whether it runs with the options of this run."
    return "Search for the definition and for the packages that call it, and compare the arguments."


def _problem(one: UncaughtException, title: str, fixes: tuple[Fix, ...], cause: str = "") -> Problem:
    return Problem(
        f"{title}: {short_name(one.type)}: {one.message}",
        cause,
        fix=fixes,
        evidence={
            "line": whole_message(one),
            "exception": one.type,
            "place": one.place,
            "rank": one.rank,
            "at": one.at,
        },
        subjects=tuple(f"rank {rank}" for rank in one.ranks),
        place=Place(one.file, one.line),
    )
