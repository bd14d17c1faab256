"""What does a failed `assert` say that has no message? Only its line of code is in the log.

The condition is put into words: "hidden_size must be a multiple of num_attention_heads".
"""

from __future__ import annotations

import re
from typing import NamedTuple

# Objects that hold the settings of a run: their attributes are options, not the package's own state.
_HOLDER = r"\b(?:\w*args|\w*config|\w*cfg|conf|hparams|options|FLAGS|hyperparameters|\w+_arguments)"
_SETTING = re.compile(rf"{_HOLDER}(?:\.\w+)*?(?:\.(?P<attribute>\w+)|\[['\"](?P<key>\w+)['\"]\])(?![\w(]|\.\w|\[['\"])")
_NAME = r"[A-Za-z_][\w.]*(?:\[[^\[\]]*\])?"
_OWN = re.compile(r"\bself\.\w*config\.[\w.]+ is (?:not )?None")  # often set by the package itself
_OPERATORS = (" is not ", " is ", " not in ", " in ", " == ", " != ", " <= ", " >= ", " < ", " > ")
_WORDS = {
    " == ": "must equal",
    " != ": "must not equal",
    " < ": "must be less than",
    " <= ": "must be at most",
    " > ": "must be greater than",
    " >= ": "must be at least",
    " in ": "must be one of",
    " not in ": "must not be one of",
}
# What libraries are asked, and what it means that they say no.
_ASKED = (
    (re.compile(r"torch\.cuda\.is_available\(\)"), "torch sees no GPU"),
    (
        re.compile(r"(?:torch\.distributed|dist)\.is_initialized\(\)"),
        "torch.distributed is not initialized: the ranks are not connected",
    ),
    (
        re.compile(r"(?:os\.path|osp|path)\.(?:exists|isfile|isdir)\((?P<of>[^()]+)\)"),
        "{of} does not exist on this node",
    ),
    (re.compile(r"(?P<of>[\w.]+)\.(?:exists|is_file|is_dir)\(\)"), "{of} does not exist on this node"),
    (re.compile(r"(?:math|np|torch)\.isfinite\((?P<of>[^()]+)\)(?:\.all\(\))?"), "{of} is NaN or infinite"),
    (re.compile(r"isinstance\((?P<of>[^(),]+), (?P<type>.+)\)"), "{of} is not of the type {type}"),
)
_IS_NAN = re.compile(r"(?:torch|math|np|numpy)\.isnan\((?P<of>[^()]+)\)(?:\.any\(\))?")


class Condition(NamedTuple):
    """A failed condition in words."""

    text: str  # "args.save_interval is not set (None)"
    settings: tuple[str, ...]  # names of the settings in it, without the object that holds them: "save_interval"


def explain(code: str) -> Condition | None:
    """Return what it means that this line's assertion failed; None if the line is incomplete, or says nothing."""
    condition = _condition(code)
    text = _failed(condition) if condition else None
    return Condition(text, _settings(condition)) if condition and text else None


def of_settings(code: str) -> bool:
    """Whether an assertion is about settings of the run, such as `args.save_interval`."""
    condition = _condition(code)
    return condition is not None and bool(_settings(condition)) and not _OWN.search(condition)


def _condition(code: str) -> str | None:
    """Return the condition of an `assert`; None if the line is not all of it."""
    if not code.startswith(("assert ", "assert(")):
        return None
    text = _unwrapped(_before_message(code[6:].strip()))
    return text if text and _depths(text) is not None else None


def _before_message(text: str) -> str:
    """Return what is before the first comma outside of brackets."""
    depth, quote = 0, ""
    for index, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "," and depth == 0:
            return text[:index].strip()
        else:
            depth += (char in "([{") - (char in ")]}")
    return text


def _unwrapped(text: str) -> str:
    """Return a text without the parentheses around all of it."""
    while text.startswith("(") and text.endswith(")") and (depths := _depths(text)) and min(depths[:-1]) > 0:
        text = text[1:-1].strip()
    return text


def _depths(text: str) -> list[int] | None:
    """Return how many brackets are open after each character; None if they do not match."""
    depth, depths, quote = 0, [], ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        else:
            depth += (char in "([{") - (char in ")]}")
        depths.append(depth)
        if depth < 0:
            return None
    return depths if depth == 0 and not quote else None


def _split(text: str, separator: str) -> list[str]:
    """Return the parts of a condition between separators outside of brackets."""
    depths, parts, begin = _depths(text) or [], [], 0
    for found in re.finditer(re.escape(separator), text):
        if depths and depths[found.start()] == 0:
            parts.append(text[begin : found.start()])
            begin = found.end()
    return [*parts, text[begin:]]


def _settings(condition: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(found["attribute"] or found["key"] for found in _SETTING.finditer(condition)))


def _failed(condition: str) -> str | None:
    """Return what is the case if the condition is false; None if it cannot be said in a few words."""
    for word, how in ((" or ", "none"), (" and ", "not all")):
        if len(parts := _split(condition, word)) > 1:
            return f"{how} of this is true: {'; '.join(map(_unwrapped, parts))}"
    if condition.startswith("not "):
        return _holds(_unwrapped(condition[4:]))
    for operator in _OPERATORS:
        if len(parts := _split(condition, operator)) == 2:
            return _compared(parts[0], operator, parts[1])
    for pattern, text in _ASKED:
        if found := pattern.fullmatch(condition):
            return text.format(**found.groupdict())
    return f"{condition} is not set, off or empty" if re.fullmatch(_NAME, condition) else None


def _holds(condition: str) -> str | None:
    """Return what is the case if this is true, though the assertion requires that it is not."""
    if found := _IS_NAN.fullmatch(condition):
        return f"{found['of']} is NaN"
    if re.fullmatch(_NAME, condition):
        return f"{condition} is set, which is not allowed here"
    return f"{condition} is true, which is not allowed here"


def _compared(left: str, operator: str, right: str) -> str | None:
    if right == "None":
        return f"{left} is not set (None)" if operator == " is not " else f"{left} is set, which is not allowed here"
    if operator == " == " and right == "0" and len(parts := _split(_unwrapped(left), " % ")) == 2:
        return f"{_unwrapped(parts[0])} must be a multiple of {_unwrapped(parts[1])}, and is not"
    words = _WORDS.get(operator)
    return f"{left} {words} {right}" if words else None
