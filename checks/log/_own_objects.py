"""Which object of the script's own line has another type, lacks an attribute, or has too few items?"""

from __future__ import annotations

import re
from typing import NamedTuple

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.snapshot import UncaughtException

from .. import _version_skew as skew
from .._calls import asked_by_script
from .._followed_values import subscript
from ._messages import short_name, wrong_value
from ._similar_names import similar_in_lines

PLAIN = r"[A-Za-z_][\w.]*"
NAME = r"[A-Za-z_][\w.]*(?:\[['\"]?\w+['\"]?\])?"
# Classes of Python's library: nothing sets an attribute of theirs later, and no file of the project defines them.
_OF_PYTHON = frozenset(
    {
        "OrderedDict",
        "Counter",
        "PosixPath",
        "WindowsPath",
        "TextIOWrapper",
        "BytesIO",
        "StringIO",
        "BufferedReader",
        "Thread",
        "Queue",
        "Process",
        "ArgumentParser",
        "ConfigParser",
        "SectionProxy",
        "Logger",
        "ElementTree",
        "Element",
    }
)
_LACKS = re.compile(r"'(?P<owner>\w+)' object has no attribute '(?P<name>\w+)'(?:\. Did you mean: '(?P<like>\w+)')?")


class Meaning(NamedTuple):
    """What was wrong, why, and what to do."""

    title: str
    why: str
    fixes: tuple[Fix, ...]
    of_code: bool = True  # about the code or the settings, which all ranks share; else about one rank's data


def file_of(one: UncaughtException) -> str:
    """Return the name of the script's file that raised the exception; "" if it is not known."""
    return (one.place or "").partition(":")[0]


def _other_sampler(owner: str, one: UncaughtException) -> Meaning:
    """Explain set_epoch() of a sampler that is not one for several ranks."""
    return Meaning(
        f"the sampler is a {owner}, and only a DistributedSampler has set_epoch() ({one.place})",
        "The DataLoader was made without a DistributedSampler: in a run without a launcher, or because a library "
        "(accelerate, Lightning) shards the data by itself and replaces the sampler.",
        (
            Fix(
                "Call it only if it exists.",
                ("if hasattr(loader.sampler, 'set_epoch'): loader.sampler.set_epoch(epoch)",),
            ),
            Fix(
                "With several ranks, give the DataLoader a DistributedSampler.",
                ("DistributedSampler(dataset, shuffle=True)",),
            ),
        ),
    )


def _misspelled(owner: str, name: str, typed: str, one: UncaughtException) -> Meaning:
    """Explain an attribute whose name is nearly that of another one, which Python suggests or a line has."""
    return Meaning(
        f"{owner} has no attribute {name}, which {one.place} reads: probably {typed} is meant",
        f"The two names differ by little. Either {name} is misspelled there, or {typed} is where it is set. It can "
        "also have another name in another release.",
        (Fix("Compare the two in the code.", (shell("grep -rnwE --include='*.py' {} .", f"{name}|{typed}"),)),),
    )


def lacks(one: UncaughtException) -> Meaning | None:
    """Explain an attribute that an object of a class does not have, which the script's own line reads."""
    found = _LACKS.match(one.message)
    own = one.raised_in_own_code or asked_by_script(one)
    if not found or not own or not one.place or wrong_value(one):
        return None
    owner, name = found["owner"], found["name"]
    if owner == owner.lower() or owner == "NoneType":  # Python's own types are in small letters
        return None
    if name == "set_epoch":
        return _other_sampler(owner, one)
    if typed := found["like"] or similar_in_lines(one, name):
        return _misspelled(owner, name, typed, one)
    package = skew.package_of(owner)
    if owner in _OF_PYTHON:
        return _of_python(owner, name, one)
    method = re.search(rf"\bself\.{name}\(", one.own_code or "")
    outside = " Or its definition is not inside of the class: it is indented wrongly." if method else ""
    whose = (
        f"{owner} is probably a class of {skew.distribution(package)}: another release of it may have {name}."
        if package
        else f"Either {name} is misspelled, {owner} sets it later or only in some cases (before super().__init__(), "
        "after this line, in another mode), or the object is not the one that the code was written for, such as "
        f"another model or a wrapper.{outside}"
    )
    return Meaning(
        f"{owner} has no attribute {name}, which {one.place} reads",
        whose,
        (
            Fix(
                f"Search where {name} is defined.",
                (shell("grep -rnE --include='*.py' {} .", rf"class {owner}\b|def {name}\b|self\.{name} *="),),
            ),
            *(
                (Fix("Compare the release.", (shell("pip show {:package}", skew.distribution(package)),)),)
                if package
                else ()
            ),
        ),
    )


def _of_python(owner: str, name: str, one: UncaughtException) -> Meaning:
    return Meaning(
        f"an object of Python's class {owner} has no {name}, which {one.place} reads",
        f"Either {name} is misspelled, or the object is not the one that the code was written for: it was loaded, "
        "returned or passed in another form.",
        (Fix("Print what it is, and look where it comes from.", ("print(type(value), value)",)),),
    )


def other_type(one: UncaughtException) -> Meaning | None:
    """Explain a dict, list or number that is used as something else, and a text that is no number."""
    code = one.code or ""
    value = wrong_value(one)
    lacks = re.match(r"'(?P<type>\w+)' object has no attribute '(?P<name>\w+)'", one.message)
    if value and lacks:
        name = value.partition(" is ")[0]
        of_dict = python("{:dotted}['{:name}']", name, lacks["name"])
        how = of_dict if lacks["type"] == "dict" else python("print(type({:dotted}), {:dotted})", name, name)
        return Meaning(
            f"{value}, and {one.place} reads its attribute {lacks['name']}",
            f"The code was written for an object with that attribute. {name} was loaded or passed in another form: a "
            "plain dict instead of a config object, a list instead of one item, a path or name instead of the thing "
            "itself, or a value that a checkpoint restored.",
            (
                Fix("Read it in the form that it has, or convert it where it is made.", (how,)),
                Fix(
                    f"Look where {name} is set.",
                    (shell("grep -nE {} {:path}", rf"{re.escape(name)} *=", file_of(one)),),
                ),
            ),
        )
    text = re.search(
        r"(?:invalid literal for int\(\) with base \d+|could not convert string to float): (?P<text>'.*')", one.message
    )
    if text and re.search(r"\b(?:int|float)\(", code) and "environ" not in code and "getenv" not in code:
        source = re.search(rf"\b(?:int|float)\((?P<of>{NAME})(?![\w.(])", code)
        what = source["of"] if source else "a text"
        shown = python("print(repr({:dotted}))", what) if source else "print(repr(value))"
        return Meaning(
            f"{what} is the text {text['text']}, which is no number ({one.place})",
            "It was read from a file name, a file, an option or a variable that has another form than the code "
            "expects: "
            "a unit, a comma, a range, a name, or nothing at all.",
            (Fix("Print it, and cut out the number, or correct where it comes from.", (shown,)),),
        )
    return None


_PARTS = re.compile(r"\.r?split\([^()]*\)\[(?P<index>-?\d+)\]")
_FILES = re.compile(r"(?P<call>\b(?:glob\.)?i?glob\([^()]*\)|\b(?:os\.)?listdir\([^()]*\))\)*\[(?:0|-1)\]")
_SUBSCRIPT = re.compile(r"(?<=[\w)\]])\[")


def _short_result(code: str, one: UncaughtException) -> Meaning | None:
    """Explain the parts of a text, or the files of a pattern, of which the only item that the line reads is missing."""
    if len(_SUBSCRIPT.findall(code)) != 1:
        return None
    if (parts := _PARTS.search(code)) and not parts["index"].startswith("-"):
        return Meaning(
            f"a text was split into fewer than {int(parts['index']) + 1} parts ({one.place})",
            "A line, a file name or an option has another form than the code expects: another separator, an empty or "
            "last line, or a shorter name.",
            (Fix("Print the text, and skip or correct what has another form.", ("print(repr(text))",)),),
            of_code=False,
        )
    if files := _FILES.search(code):
        return Meaning(
            f"{files['call']} found nothing ({one.place})",
            "The folder is empty, another one is meant (a relative path starts at the current folder), the pattern "
            "does not match the names, or the step that writes the files has not run.",
            (Fix("Print what it looks for, and what is there.", ("print(os.getcwd(), pattern)", "ls FOLDER | head")),),
            of_code=False,
        )
    return None


def too_short(one: UncaughtException) -> Meaning | None:
    """Explain a list that has fewer items than the line reads."""
    in_list = short_name(one.type) == "IndexError" and "list index out of range" in one.message
    if in_list and (meant := _short_result(one.code or "", one)):
        return meant
    marked = subscript(one)
    found = [marked] if marked else re.findall(rf"({PLAIN})\[(-?\d+|[a-z_]\w*)\](?!\[)", one.code or "")
    if short_name(one.type) != "IndexError" or "index out of range" not in one.message or len(found) != 1:
        return None
    name, index = found[0]
    if name == "sys.argv" and index.isdigit():
        return _without_argument(int(index), one)
    by_name = not index.lstrip("-").isdigit()
    fewer = f"has fewer than {int(index) + 1} items" if index.isdigit() else f"has no item number {index}"
    what = f"{name} is shorter than the index {index} needs" if by_name else f"{name} {fewer}"
    printed = (
        python("print(len({:dotted}), {:dotted})", name, index)
        if by_name
        else python("print(len({:dotted}), {:dotted})", name, name)
    )
    return Meaning(
        f"{what} ({one.place})",
        "It is shorter than the code expects: a text that was split into fewer parts, a model with fewer layers, fewer "
        "arguments or files, or an index that was computed for another list.",
        (Fix("Print its length, and where it comes from.", (printed,)),),
    )


def _without_argument(number: int, one: UncaughtException) -> Meaning:
    return Meaning(
        f"the script was started without its argument number {number} ({one.place})",
        f"sys.argv[{number}] is the text number {number} after the script's name on the command line. Without a "
        "launcher's or a job script's help, nothing else fills it; a notebook has other arguments.",
        (
            Fix(
                "Pass it, or see in the script which arguments it reads.",
                (shell("grep -n sys.argv {:path}", file_of(one)), shell("python {:path} ARGUMENT", file_of(one))),
            ),
        ),
    )
