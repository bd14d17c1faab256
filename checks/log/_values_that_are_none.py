"""Which value of a line is None, and who set or passed it? Texts for `_own_values.py`."""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.snapshot import UncaughtException
from mgpu.text import listed

from ._messages import short_name, wrong_value
from ._own_arguments import path_that_is_none
from ._own_objects import NAME, PLAIN, Meaning, file_of

CONFIGS = re.compile(r"(?:^|\.|_)(?:cfg|conf|config|args|opts?|options|hparams|params|settings|hp|kwargs)\w*$")
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
_MOST = 6  # arguments that an answer lists


def value_is_none(one: UncaughtException) -> Meaning | None:
    """Explain a value that is None, by the operand or the object that the line names."""
    code, short = one.code or "", short_name(one.type)
    if short not in ("TypeError", "AttributeError") or "NoneType" not in one.message:
        return None
    name = name_of_none(one, code)
    if name is None:
        return None
    where = "The option was not set on the command line or in the config, or has another name there."
    if not CONFIGS.search(name.rpartition(".")[0]):
        where = (
            "What made it returned nothing: a function without a return on that path, a lookup that found nothing, "
            "or an object that is created only in some modes or only on rank 0."
        )
    called = f"{name}(" in code and "not callable" not in one.message
    return Meaning(
        f"{name}{'() returned None' if called else ' is None'} ({one.place})",
        f"The line uses it as if it had a value. {_from_caller(one, name, where)}",
        (
            *_print_passed(one, name),
            Fix(
                f"Look where {name} is set{_inside(one, name)}.",
                (shell("grep -nE {} {:path}", rf"{re.escape(name)} *=", file_of(one)),),
            ),
            Fix("Set it, or leave out the line if there is nothing to use."),
        ),
    )


def name_of_none(one: UncaughtException, code: str) -> str | None:
    """Return which name in a line is None, by what the message says of it; None if it can be several."""
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


def _passed(one: UncaughtException, name: str) -> tuple[str, ...]:
    """Return the names that the caller's line passes to the function that failed; one, if it passes `name=...`."""
    _, _, function = (one.place or "").rpartition(" in ")
    caller = one.own_lines[-2] if len(one.own_lines) > 1 else ""
    call = re.search(rf"(?<!def )\b{re.escape(function)}\((?P<arguments>[^()]*)", caller) if function else None
    if call is None or not name.isidentifier():
        return ()
    parts = [part.strip() for part in call["arguments"].split(",")]
    by_name = [value for part in parts for key, _, value in [part.partition("=")] if key.strip() == name]
    return tuple(part for part in by_name or parts if re.fullmatch(PLAIN, part) and part not in ("True", "False"))


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
