"""Which value of a line is None, and who set or passed it? Texts for `_own_values.py`."""

from __future__ import annotations

import keyword
import re

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.snapshot import UncaughtException
from mgpu.text import listed

from .._followed_values import Origin, called, operands, origin, reads_attribute, subscript
from ._before_training import none_before_training
from ._messages import short_name, wrong_value
from ._own_arguments import path_that_is_none
from ._own_objects import NAME, PLAIN, Meaning, file_of

CONFIGS = re.compile(r"(?:^|\.|_)(?:cfg|conf|config|args|opts?|options|hparams|params|settings|hp|kwargs)\w*$")


def is_setting(expression: str) -> bool:
    """Whether an expression reads an item of an object that holds settings: args.lr, cfg.model.name, config['x']."""
    of = re.sub(r"\[[^\]]*\]$", ".x", expression).split(".")[:-1]
    return any(CONFIGS.search(part) for part in of)


_OPERANDS = re.compile(
    r"(?:unsupported operand type\(s\) for (?P<op>\S+): |'(?P<compares>[<>]=?)' not supported between instances of )"
    r"'(?P<left>\w+)' and '(?P<right>\w+)'"
)
_SIDE = rf"(?:{NAME}|[\d.]+|['\"(\[]\S*)"  # a literal is not None, but stands beside what is
_BUILT_IN = r"(?!(?:list|tuple|set|sorted|enumerate|zip|reversed|range)\()"
_ITERATED = (
    rf"\bin {_BUILT_IN}({NAME})|\*{_BUILT_IN}({NAME})|"
    rf"\b(?:list|tuple|set|sorted|enumerate|reversed)\({_BUILT_IN}({NAME})[,)]"
)
_LONGEST = 80  # characters of an expression in a title
_OF_SAMPLE = re.compile(
    r"(?:\w*_)?(?:sample|example|item|row|record|entry|turn|message|msg|conversation|conv|dialog|doc|line|data|batch|ex|"
    r"feature|features|x|instance|element)\w*\[(['\"])(?P<field>\w+)\1\]"
)
_READS_DATA = re.compile(
    r"dataset|data_?loader|collat|token|preprocess|template|data/| in (?:__getitem__|_worker_loop|map)", re.IGNORECASE
)
_OF_IMAGE = re.compile(r"(?i)(?:^|_|\b)(?:img|image|im|frame|mask|picture|bgr|rgb|gray)\d?(?:_\w+)?$")
_MOST = 6  # arguments that an answer lists


def value_is_none(one: UncaughtException) -> Meaning | None:
    """Explain a value that is None, by the operand or the object that the line names."""
    code, short = one.code or "", short_name(one.type)
    if short not in ("TypeError", "AttributeError") or "NoneType" not in one.message:
        return None
    name = name_of_none(one, code)
    if name is None:
        return None
    found = origin(one, name)
    if early := none_before_training(one, name, found):
        return early
    if found and found.passed:
        return _passed_in(one, name, found)
    if of_sample := _field_of_sample(one, name):
        return of_sample
    where = "The option was not set on the command line or in the config, or has another name there."
    if not is_setting(name):
        where = (
            "What made it returned nothing: a function without a return on that path, a lookup that found nothing, "
            "or an object that is created only in some modes or only on rank 0."
        )
        if _OF_IMAGE.search(name):
            where += " cv2.imread() returns None for a file that does not exist or that it cannot read as an image."
    made = f"{name}(" in code and "not callable" not in one.message
    returned = "() returned None" if made else " returned None" if name.endswith(")") else " is None"
    return Meaning(
        f"{name}{returned} ({one.place})",
        f"The line uses it as if it had a value. {_from_caller(one, name, where)}",
        (
            *_print_passed(one, name),
            *_where_set(one, name),
            Fix("Set it, or leave out the line if there is nothing to use."),
        ),
    )


def none_in_package(one: UncaughtException) -> Meaning | None:
    """Explain a value that is None in a package's line, if the log shows which line of the script passes it."""
    package = one.packages[-1] if one.packages else ""
    if not package or short_name(one.type) not in ("TypeError", "AttributeError") or "NoneType" not in one.message:
        return None
    name = name_of_none(one, one.code or "")
    found = origin(one, name) if name else None
    if name is None or found is None:
        return None
    return _field_of_sample(one, name) or (_passed_in(one, name, found) if found.passed and found.own else None)


def _field_of_sample(one: UncaughtException, name: str) -> Meaning | None:
    """Explain a field of a sample that is None, in the code that reads the data."""
    item = _OF_SAMPLE.fullmatch(name)
    if item is None or not any(_READS_DATA.search(frame) for frame in one.frames):
        return None
    field = item["field"]
    return Meaning(
        f"{name} is None: a sample of the data has no value for {field} ({one.library or one.place})",
        f"The data has the field, but nothing in it: null in JSON, an empty cell of a table, or a message without text "
        f"(one that only calls tools has {field}: null in chat data). The code expects a value in every sample.",
        (
            Fix(
                "Find such samples.",
                (shell("grep -nE {} DATA.jsonl | head", rf'"{field}": *null'),),
            ),
            Fix(
                "Fill the field with an empty text, or drop the sample.",
                (python("dataset = dataset.filter(lambda x: x['{:id}'] is not None)", field),),
            ),
        ),
        of_code=False,
    )


def _passed_in(one: UncaughtException, name: str, found: Origin) -> Meaning:
    """Explain a None that a call passes in: the line that passes it is known."""
    where, value = found.call.place, found.expression
    inside = f"{name} is None in {one.library or one.place}, and the line uses it as if it had a value."
    file = where.partition(":")[0]
    if value == "None":
        return Meaning(
            f"{where} passes None for {name.partition('.')[0]}, which the code needs ({one.library or one.place})",
            inside,
            (Fix("Pass a value there, or leave out what needs it."),),
        )
    through = f" The value goes through {found.passed} calls." if found.passed > 1 else ""
    setting = is_setting(value)
    returned = f"{value} returned None" if value.endswith(")") else f"{value} is None"
    why = (
        "The option was not set on the command line or in the config, or has another name there."
        if setting
        else "What makes it returned nothing, or it is set only in some modes or only on rank 0."
    )
    return Meaning(
        f"{returned}, and {where} passes it on as {name.partition('.')[0]}",
        f"{inside}{through} {why}",
        (
            Fix("Print it before that line.", (python("print({:dotted})", value) or "print(repr(value))",)),
            Fix("Set that option.")
            if setting
            else Fix("Look where it is set.", (shell("grep -nE {} {:path}", rf"{re.escape(value)} *=", file),)),
        ),
    )


def _where_set(one: UncaughtException, name: str) -> tuple[Fix, ...]:
    if name.endswith(")"):
        return ()
    return (
        Fix(
            f"Look where {name} is set{_inside(one, name)}.",
            (shell("grep -nE {} {:path}", rf"{re.escape(name)} *=", file_of(one)),),
        ),
    )


def _underlined_none(one: UncaughtException) -> str | None:
    """Return the expression that is None, if Python underlines the part of the line that failed."""
    if found := _OPERANDS.search(one.message):
        sides = operands(one)
        if sides is None or (found["left"] == "NoneType") == (found["right"] == "NoneType"):
            return None
        return sides[0] if found["left"] == "NoneType" else sides[1]
    if "not subscriptable" in one.message:
        return (subscript(one) or (None,))[0]
    if "not callable" in one.message:
        return called(one)
    lacks = re.match(r"'NoneType' object has no attribute '(?P<name>\w+)'", one.message)
    return reads_attribute(one, lacks["name"]) if lacks else None


def name_of_none(one: UncaughtException, code: str) -> str | None:
    """Return which name in a line is None, by what the message says of it; None if it can be several."""
    if marked := _underlined_none(one):
        return marked if len(marked) <= _LONGEST else None
    if found := _OPERANDS.search(one.message):
        op = re.escape((found["op"] or found["compares"]).rstrip(","))
        sides = re.search(rf"(?<![\w.])(?P<left>{_SIDE}) {op}=? (?P<right>{_SIDE})", code)
        if sides and (found["left"] == "NoneType") != (found["right"] == "NoneType"):
            side = sides["left"] if found["left"] == "NoneType" else sides["right"]
            return side if re.fullmatch(NAME, side) else None
        if found["left"] != "NoneType" and not sides:  # a call or a number on the left, and None on the right
            right = re.findall(rf"[\w)\]] {op}=? ({NAME})(?![\w(\[.])", code)
            return f"{right[0]}" if len(right) == 1 else None
        return None
    if value := wrong_value(one):
        return value.removesuffix(" is None") if value.endswith(" is None") else None
    for message, pattern in (
        ("object is not subscriptable", rf"({PLAIN})\["),
        ("object is not callable", rf"({PLAIN})\("),
        ("object is not iterable", _ITERATED),
        ("is not iterable", rf"\bin ({NAME})"),
        ("has no len()", rf"\blen\(({NAME})\)"),
    ):
        if message in one.message:
            names = {
                name
                for groups in re.findall(pattern, code)
                for name in (groups if isinstance(groups, tuple) else (groups,))
                if name
            }
            return names.pop() if len(names) == 1 else None
    return path_that_is_none(one)


def _names_read(one: UncaughtException) -> set[str]:
    """Return the plain names that the failed line reads: all can be arguments of its function."""
    code = re.sub(r"'[^']*'|\"[^\"]*\"", "''", (one.own_code or "").rpartition(" = ")[2])
    names = set(re.findall(r"(?<![\w.])([A-Za-z_]\w*)\b(?!\s*(?:\(|=[^=]))", code))
    return {name for name in names if not keyword.iskeyword(name) and name not in ("self", "cls", "torch", "np", "F")}


def _passed(one: UncaughtException, name: str) -> tuple[str, ...]:
    """Return the names that the caller's line passes to the function that failed, if the right one is not known."""
    _, _, function = (one.place or "").rpartition(" in ")
    caller = one.own_lines[-2] if len(one.own_lines) > 1 else ""
    call = re.search(rf"(?<!def )\b{re.escape(function)}\((?P<arguments>[^()]*)", caller) if function else None
    if call is None or not name.isidentifier():
        return ()
    parts = [part.strip() for part in call["arguments"].split(",")]
    if len(_names_read(one) | {name}) > len(parts):  # some are not arguments, and this can be one of them
        return ()
    return tuple(part for part in parts if re.fullmatch(PLAIN, part) and part not in ("True", "False"))


def _from_caller(one: UncaughtException, name: str, where: str) -> str:
    """Return where a None comes from, with what the caller passes if the log has its line."""
    passed = _passed(one, name)
    if not passed:
        return where
    function = (one.place or "").rpartition(" in ")[2]
    options = [part for part in passed if CONFIGS.search(part.rpartition(".")[0])]
    unset = f" {listed(options)} can be an option that was not set." if options else ""
    return f"If {name} is an argument of {function}(), its caller passed None: it passes {listed(passed)}.{unset}"


def _inside(one: UncaughtException, name: str) -> str:
    return ", if that function sets it itself" if _passed(one, name) else ""


def _print_passed(one: UncaughtException, name: str) -> tuple[Fix, ...]:
    passed = _passed(one, name)
    if not passed or len(passed) > _MOST:
        return ()
    lines = tuple(python("print({:dotted})", value) for value in passed)
    return (Fix("Print what the caller passes, before its call, and set what is None.", lines),)
