"""How is an exception's message shown, and what does it advise itself?

The sentences that name a fix or a requirement are quoted as the fix.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mgpu.check import Fix, Problem
from mgpu.snapshot import Log, UncaughtException
from mgpu.text import with_article

from .. import _conditions as conditions
from .._followed_values import reads_attribute

_SENTENCES = re.compile(r"(?<=[.!?;])\s+(?=[A-Z`'\"(\[])|\n+")
_ADVISES = re.compile(
    r"\b(?:please|try|consider|did you mean|make sure|ensure|instead|you (?:can|must|should|may|need|have to)|"
    r"must (?:be|not|have|set|specify|provide|contain|use|match)|should (?:be|not|have|set|use|match)|needs? to be|"
    r"has to be|have to be|to (?:fix|solve|resolve|avoid|disable|enable|append|ignore|silence) |"
    r"(?:choose|pick|select|choices?|one) (?:from|of)\b|available (?:options|choices|values|keys|models)|"
    r"(?:valid|allowed|supported|possible|accepted) (?:\w+ ){0,2}(?:are|options|values|choices|types|names|models)|"
    r"only (?:\S+ ){0,6}(?:supports?|supported|allowed)|pip install|"
    r"is (?:required|mandatory)|not (?:divisible|a multiple)|divisible by)\b|"
    r"^\W{0,3}(?:set|use|pass|install|specify|provide|enable|disable|increase|decrease|reduce|upgrade|downgrade|"
    r"remove|add|"
    r"change|check|run|call|rename|update|rebuild|reinstall|choose|convert|verify)\b",
    re.I,
)
_NO_ADVICE = re.compile(
    r"report (?:a |this |an )?(?:bug|issue|error)|(?:file|open|submit|raise) (?:a |an )?(?:bug|issue)|"
    r"CUDA_LAUNCH_BLOCKING|TORCH_USE_CUDA_DSA|full stack trace|for further information visit|HYDRA_FULL_ERROR|"
    r"invalid combination of arguments|stacktrace|TORCHDYNAMO_VERBOSE|TORCH_LOGS|stop debugging|"
    r"indices must be integers|^(?:Call )?arguments received",
    re.I,
)
# Python's own guess, which it makes for any AttributeError or NameError, also for a message of a package.
GUESSED = re.compile(r"Did you mean: '(?P<name>\w+)'\?$")
_NAMED = re.compile(r"has no attribute|is not defined|cannot import name|unexpected keyword")
_ANNOUNCES = re.compile(r"Exception encountered when calling ")
_MOST, _LONGEST = 2, 260  # sentences, characters of one
_SHORT, _ROOM = 60, 90  # characters of a first line, and of the lines after it


def advice(message: str) -> tuple[str, ...]:
    """Return the sentences of an error message that name a fix or a requirement, shortened, in their order."""
    found = []
    for sentence in _SENTENCES.split(message):
        text = " ".join(sentence.split())
        if GUESSED.match(text) and not _NAMED.search(message):
            continue
        if len(text) > 8 and _ADVISES.search(text) and not _NO_ADVICE.search(text):
            found.append(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}...")
    return tuple(found[:_MOST])


def exception_of(problem: Problem, facts: Mapping[str, Any]) -> UncaughtException | None:
    """Return the log's exception that a problem is about: the one of its line."""
    log: Log | None = facts.get("log")
    place = problem.place
    if log is None or place is None:
        return None
    return next((one for one in log.raised if (one.file, one.line) == (place.file, place.line)), None)


def short_name(name: str) -> str:
    """Return a type's name without its module."""
    return name.rpartition(".")[2].rpartition("::")[2]


def whole_message(one: UncaughtException) -> str:
    """Return the type and all lines of the message that the log has."""
    message = "\n".join(filter(None, (one.message, one.more)))
    return f"{short_name(one.type)}: {message}" if message else short_name(one.type)


def in_one_line(one: UncaughtException) -> str:
    """Return the message; if its first line is short, with the lines that follow, up to a readable length."""
    if not one.more or len(one.message) > _SHORT:
        return one.message
    rest = " ".join(one.more.split())
    return f"{one.message} {rest if len(rest) <= _ROOM else rest[:_ROOM].rpartition(' ')[0] + ' ...'}"


def what_failed(one: UncaughtException) -> str:
    """Return the message without what only announces it: Keras says first in which layer it was raised."""
    lines = [line for line in (one.more or "").split("\n") if line.strip()]
    if not lines or not _ANNOUNCES.match(one.message):
        return one.message
    said = lines[0].strip()
    return f"{said if len(said) <= _LONGEST else said[:_LONGEST] + ' ...'} ({one.message.rstrip('.')})"


STACK_OF_COMPILED_CODE = Fix(
    "See which line of Python was running, and which library threw it.",
    ("PYTHONFAULTHANDLER=1 python train.py", "gdb -batch -ex run -ex bt --args python train.py"),
)
NO_TRACEBACK = "The log has only this message, without its traceback: it does not show which code failed."


def shows_traceback(one: UncaughtException) -> bool:
    """Whether the log has a frame of the exception's traceback."""
    return bool(one.place or one.frames)


def of_own_line(one: UncaughtException) -> bool:
    """Whether a line of the user's own raised it, and the log has its place."""
    return one.raised_in_own_code and bool(one.place)


def of_compiled_code(one: UncaughtException) -> bool:
    """Whether it is an exception of C++, which has no traceback of Python."""
    return "::" in one.type


def where_raised(one: UncaughtException) -> str:
    """Return what the log shows of the place where it was raised."""
    if shows_traceback(one):
        return "The traceback in the log shows where."
    if of_compiled_code(one):
        return "Compiled code (C++) threw it and nothing caught it, which ends the process without a Python traceback."
    if one.code:
        return "The log has the line that failed, without the traceback above it."
    return f"{NO_TRACEBACK}{_of_dict(one)}"


def _of_dict(one: UncaughtException) -> str:
    lacks = _LACKS.match(one.message)
    if lacks is None or lacks["type"] != "dict" or lacks["name"] in _EXPECTED:
        return ""
    return (
        f" It got a dict where it expects an object with the attribute {lacks['name']}: a config that was not "
        "converted, or that another release of the package expects as an object."
    )


_OF_NONE = re.compile(r"'NoneType'|\bNone(?:Type)?\b")
_ACCEPTED = re.compile(
    r"\b\w+=NoneType|, but expected one of:.*|ellipsis \(`\.{3}`\), .*? are valid ind.*", re.S
)  # options, and what torch takes instead


def line_of_code(one: UncaughtException, *, explained: bool = False) -> str:
    """Return the line that raised it, unless it only repeats the message, and which value in it was wrong.

    `explained`: if a value in it is None, that is already said.
    """
    if one.code and short_name(one.type) == "AssertionError" and (failed := conditions.explain(one.code)):
        return f" In words: {failed.text}."
    if not one.code or one.code.startswith(("raise", "assert")) or "ag__." in one.code:  # written by TensorFlow
        return ""
    return f' The line is "{one.code}".{"" if explained else _missing(one)}'


_OBJECT = r"[A-Za-z_][\w.]*(?:\(\))?"
_FIRST_ITEM = re.compile(rf"(?P<of>{_OBJECT})\[(?:0|-1)\]")
_ITEM = re.compile(rf"(?P<of>{_OBJECT})\[(?P<key>[^\[\]]+)\]")
# samples['train'][i]['text']
_LITERAL_KEY = re.compile(
    rf"(?P<of>{_OBJECT}(?:\[[^\[\]]{{1,60}}\]){{0,4}})\[(?P<quote>['\"])(?P<key>[^'\"\[\]]+)(?P=quote)\]"
)
_INDEX = re.compile(r"(?<=[\w)\]])\[(?!['\"])")
_DIMENSION = re.compile(r"\b(?P<of>[A-Za-z_][\w.]*)\.(?:shape|size\(\))\[(?P<number>\d)\]")
_LENGTH = re.compile(rf"/ {{0,2}}(?:float\()?len\((?P<of>{_OBJECT})\)")
_DIVISOR = re.compile(rf"/{{1,2}} {{0,2}}(?P<of>{_OBJECT})")
_NEXT = re.compile(r"\bnext\((?:iter\()?(?P<of>[^()]+)\)")
_SMALLEST = re.compile(rf"\b(?:max|min)\((?P<of>{_OBJECT})\)")


def first_of_empty(code: str) -> str | None:
    """Return what has no items if this line raised an IndexError; None if it reads other items too."""
    found = _only(_FIRST_ITEM, code)
    return found["of"] if found and len(_INDEX.findall(code)) == 1 else None


_LACKS = re.compile(r"'(?P<type>\w+)' object has no attribute '(?P<name>\w+)'")
_BUILT_IN = frozenset({"NoneType", "bool", "int", "float", "str", "bytes", "list", "tuple", "dict", "set", "function"})
# What has these methods: what the code expected.
_EXPECTED = {
    **dict.fromkeys(("append", "extend", "insert"), "a list"),
    **dict.fromkeys(("keys", "items", "values", "get", "update", "setdefault"), "a dict"),
    **dict.fromkeys(("item", "backward", "detach", "cpu", "cuda", "to"), "a tensor"),
    **dict.fromkeys(("split", "strip", "lower", "startswith", "endswith", "format"), "a string"),
}


def wrong_value(one: UncaughtException) -> str:
    """Return which value of the line that raised it has another type: "state.losses is a float, not a list"; or ""."""
    lacks = _LACKS.match(one.message)
    if lacks is None or lacks["type"] not in _BUILT_IN or not one.code or one.code.startswith("raise"):
        return ""
    found = _only(re.compile(rf"(?P<of>{_OBJECT})\.{lacks['name']}\b"), one.code)
    name = reads_attribute(one, lacks["name"]) or (found["of"] if found else None)
    if name is None:
        return ""
    got = "None" if lacks["type"] == "NoneType" else with_article(lacks["type"])
    expected = _EXPECTED.get(lacks["name"])
    return f"{name} is {got}{f', not {expected}' if expected and got != 'None' else ''}"


def _missing(one: UncaughtException) -> str:
    """Return what was empty, missing or None in the line that raised it, if the line shows that."""
    code, short = one.code or "", short_name(one.type)
    if value := wrong_value(one):
        return f" {value}. Look where it is set: where it is created, and where a checkpoint restores it."
    if _OF_NONE.search(_ACCEPTED.sub("", one.message)):
        return " A value in it is None: an option that was not set, or a result that was not found."
    if short == "IndexError" and "too many" not in one.message and (empty := first_of_empty(code)):
        return f" {empty} is empty there: its first or last item is read, and it has none. {_WHERE_EMPTY}"
    if short == "IndexError" and one.message == "tuple index out of range" and (found := _DIMENSION.search(code)):
        return _of_dimensions(found["of"], [int(dim["number"]) for dim in _DIMENSION.finditer(code)])
    if short == "KeyError" and (of := _of_literal_key(code, one.message.strip("'\""))):
        return f" {of} has no key {one.message}."
    if short == "KeyError" and (found := _only(_ITEM, code)) and _can_be(found["key"], one.message):
        return f" {found['of']} has no key {one.message or found['key']}."
    if short == "ValueError" and (variable := _VARIABLE.search(code)) and _NOT_A_NUMBER.search(one.message):
        return _of_variable(variable["name"], one.message)
    if short == "ZeroDivisionError" and (found := _LENGTH.search(code)):
        return f" {found['of']} is empty: its length is 0. {_WHERE_EMPTY}"
    if short == "ZeroDivisionError" and (found := _only(_DIVISOR, code)):
        return f" {found['of']} is 0."
    said = one.raised_in_own_code and "next(iter(" not in code  # what the script's own line ran out of
    if short == "StopIteration" and not said and (found := _NEXT.search(code)):
        return f" {found['of']} has no items, or none left. {_WHERE_EMPTY}"
    if short == "ValueError" and "empty sequence" in one.message and (found := _only(_SMALLEST, code)):
        return f" {found['of']} is empty. {_WHERE_EMPTY}"
    return ""


def _of_literal_key(code: str, key: str) -> str | None:
    """Return what a line reads this key of, which it has as a literal; None if it reads it of several objects."""
    found = {match["of"] for match in _LITERAL_KEY.finditer(code) if match["key"] == key}
    return found.pop() if len(found) == 1 else None


def _can_be(index: str, key: str) -> bool:
    """Whether an index in the line can be the missing key: it is not another literal."""
    index = index.strip()
    return not re.match(r"-?\d+$|['\"]", index) or index.strip("'\"") == key.strip("'\"")


def _of_dimensions(name: str, read: list[int]) -> str:
    """Return what it means that a tensor has fewer dimensions than the line reads."""
    text = f" {name} has fewer than {max(read) + 1} dimensions."
    if re.search(r"param|weight", name):
        text += " A parameter that ZeRO-3 or FSDP has partitioned is flat or empty until it is gathered."
    return text


_VARIABLE = re.compile(r"(?:environ(?:\.get)?|getenv)[\[(]['\"](?P<name>\w+)['\"]")
_NOT_A_NUMBER = re.compile(r"invalid literal for int\(\)|could not convert string to float")
_SLURM_COUNTS = re.compile(r"'\d+\(x\d+\)")


def _of_variable(name: str, message: str) -> str:
    """Return what an environment variable contains instead of a number."""
    text = f" The value is from the environment variable {name}, which is not a plain number in this run."
    if _SLURM_COUNTS.search(message):
        return f"{text} Slurm writes counts of several nodes in a short form: 2(x3) means 2 on each of 3 nodes."
    return text


_WHERE_EMPTY = "Check what was passed in: a data split, an evaluation set or a rank's share without samples."


def _only(pattern: re.Pattern[str], code: str) -> re.Match[str] | None:
    """Return the match in a line of code that has only one."""
    found = list(pattern.finditer(code))
    return found[0] if len(found) == 1 else None


_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")


def alike(one: UncaughtException) -> tuple[str, str]:
    """Return type and message, without the numbers, which name ranks, devices and sizes."""
    return short_name(one.type), _NUMBERS.sub("0", one.message)


def chain_text(one: UncaughtException) -> str:
    """Return what came before the exception, and where it was raised."""
    frame = f" It was raised in {one.library}." if one.library and one.place not in (None, one.library) else ""
    first = "" if not one.cause or one.direct else f" The first exception was {one.cause}."
    return f"{frame}{first}"


def followers(one: UncaughtException, log: Log) -> str:
    """Return which ranks raised other exceptions after this one."""
    later = {
        rank: other
        for other in reversed(log.raised)
        for rank in other.ranks
        if alike(other) != alike(one) and not other.caught and not {*other.ranks} & {*one.ranks}
    }
    if not later or not one.ranks:
        return ""
    rank, other = min(later.items())
    return f" It came first: rank {rank} raised {short_name(other.type)} after it."
