"""What does the user's own source, where it is beside a log, say about the values of the line that failed?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mgpu.check import Fix, Problem
from mgpu.command_line import shell
from mgpu.snapshot import Definition, Log, UncaughtException
from mgpu.text import listed

from ._messages import short_name

_MOST = 4  # lines of a finding
_LONGEST = 140  # characters of a line
_MOST_KEYS = 8
_UNSET = re.compile(r"(?:local variable|free variable|variable) '(?P<name>\w+)'")
_PATH = re.compile(r"'(?P<path>[^'\n]*[^'\n/])/?'")
_OF_SIZES = re.compile(
    r"mat1 and mat2|size mismatch|Given (?:groups|normalized_shape)|normalized_shape|The size of tensor|expected input"
    r"|must match|same (?:size|number)|shape '\[|running_mean should|out of range in self|index out of range"
)
_LAYER = re.compile(r"\b(?:nn|torch|F|layers|tf)\.\w+\(|(?:Linear|Conv\d?d?|Norm\w*|Embedding|LSTM|GRU|Attention)\w*\(")
_SHORTEST_DEFAULT = 3  # characters of a path

_WITHOUT_GRADIENTS = Fix(
    "Evaluate without gradients.", ("with torch.no_grad():", "@torch.no_grad()  # above the function")
)


def with_source(problem: Problem, facts: Mapping[str, Any]) -> Problem:
    """Return the problem with what the source says of its exception, and the lines that its values come from."""
    log: Log | None = facts.get("log")
    one = _exception_of(problem, log) if log is not None else None
    if one is None or not one.defined:
        return problem
    meant = _meaning(problem, one)
    quoted = not one.own_code or one.own_code in meant.cause
    lines = ["" if quoted else f"{one.place}: {one.own_code}", *map(_line, _worth_showing(one.defined))]
    return replace(meant, evidence={**problem.evidence, "source": "\n".join(filter(None, lines))})


def _meaning(problem: Problem, one: UncaughtException) -> Problem:
    """Return the problem with the sentence that follows from the source, and the fix if there is a better one."""
    if unset := _of_kind(one.defined, "set_elsewhere"):
        return _not_set(problem, one, unset)
    says, option = _says(one), _default_path(one)
    better = [_pass_path(option)] if option else []
    better += [_WITHOUT_GRADIENTS] if _of_kind(one.defined, "keeps_gradients") else []
    return replace(problem, cause=f"{says} {problem.cause}" if says else problem.cause, fix=(*better, *problem.fixes))


def _not_set(problem: Problem, one: UncaughtException, unset: Definition) -> Problem:
    """Explain an attribute that an object of the user's own lacks, and that another method sets."""
    where, _, method = unset.place.partition(" in ")
    setter = f"{unset.name.partition('.')[0]}.{method}()" if method else where
    return replace(
        problem,
        title=f"{one.place} reads {unset.name}, which only {setter} sets, and that had not run before",
        cause=f"{where} is the line that sets it. It ran later, for another object, or in a branch that was not taken.",
        fix=Fix(f"Set it in __init__, or make sure that {setter} runs before."),
    )


def _exception_of(problem: Problem, log: Log) -> UncaughtException | None:
    place = problem.place
    if place is None:
        return None
    return next((one for one in log.raised if (one.file, one.line) == (place.file, place.line)), None)


def _worth_showing(found: Sequence[Definition]) -> list[Definition]:
    """Return one definition for each line of the source, those near the failed line first."""
    lines: dict[str, Definition] = {}
    for one in sorted(found, key=lambda part: part.depth):
        lines.setdefault(one.place.partition(" ")[0], one)
    return list(lines.values())[:_MOST]


def _line(one: Definition) -> str:
    code = one.code if len(one.code) <= _LONGEST else f"{one.code[: _LONGEST - 4]} ..."
    branch = f"  (only in: {one.only_in})" if one.only_in else ""
    return f"{one.place}: {code}{branch}"


def _says(one: UncaughtException) -> str:
    """Return what follows from the source for an exception, as sentences; empty if nothing does."""
    short, found = short_name(one.type), one.defined
    if option := _default_path(one):
        return (
            f"The path begins with the default of {option.flag or option.name}, {option.value} ({option.place}): "
            "the run was probably started without that option."
        )
    if kept := _of_kind(one.defined, "keeps_gradients"):
        return (
            f"{kept.name}() evaluates with gradients ({kept.place}): nothing in the calls of the traceback is under "
            "torch.no_grad(). All activations then stay for a backward pass that does not come."
        )
    if similar := _of_kind(one.defined, "similar_name"):
        return f"{similar.name} has nearly this name ({similar.place})."
    if "NoneType" in one.message:
        return _why_none(found)
    if unset := _UNSET.search(one.message):
        return _why_unset(unset["name"], one)
    if short == "KeyError":
        return _which_keys(found)
    if short == "AttributeError":
        return _which_attribute(found)
    if similar := _of_kind(found, "similar_parameter"):
        return f"The definition ({similar.place}) has {similar.name}: probably that is meant."
    if short in ("RuntimeError", "ValueError", "IndexError") and _OF_SIZES.search(one.message):
        return _how_made(found)
    return ""


def _of_kind(found: Sequence[Definition], kind: str) -> Definition | None:
    return next((part for part in found if part.kind == kind), None)


def _default_path(one: UncaughtException) -> Definition | None:
    """Return the option or field whose default is the beginning of a path that does not exist."""
    if short_name(one.type) not in ("FileNotFoundError", "NotADirectoryError") and "No such file" not in one.message:
        return None
    paths = [path["path"] for path in _PATH.finditer(one.message)]
    for part in one.defined:
        default = (part.value or "").strip("'\"").rstrip("/") if part.kind in ("option", "field", "parameter") else ""
        if len(default.removeprefix("./")) >= _SHORTEST_DEFAULT and any(
            path.removeprefix("./").startswith(default.removeprefix("./")) for path in paths
        ):
            return part if part.kind != "parameter" else None
    return None


def _pass_path(option: Definition) -> Fix:
    flag = option.flag
    if not flag:
        return Fix(f"Give {option.name} the path that the data has on this machine ({option.place}).")
    return Fix(
        "Pass the path that it has on this machine.", (shell("mgpu launch train.py {:option} /path/of/it", flag),)
    )


def _why_none(found: Sequence[Definition]) -> str:
    for part in found:
        if part.kind == "function" and part.ends_without_value:
            return f"{part.name}() can end without returning a value ({part.place}): it then returns None."
        if part.value == "None" and part.kind == "parameter":
            return f"{part.name} is None unless a call passes another value ({part.place})."
        if part.value == "None" and part.kind == "passed":
            return f"The call at {part.place} passes None for {part.name}."
        if part.kind == "option" and part.value in (None, "None") and "store_true" not in part.code:
            return (
                f"{part.flag} has no default ({part.place}): {part.name} is None if the run does not get this option."
            )
        if part.kind == "field" and part.value == "None":
            return f"{part.name} is None by default ({part.place})."
        if part.kind == "set" and re.search(r"(?<![=!<>])= ?None$", part.code):
            return f"{part.name} is set to None in {part.place}."
    return ""


def _why_unset(name: str, one: UncaughtException) -> str:
    part = next((part for part in one.defined if part.name == name and part.kind in ("set", "loop")), None)
    if part is None:
        return ""
    if part.only_in:
        return f"{name} is only set in a branch that did not run ({part.place}): {part.only_in}."
    line, failed = (re.search(r":(\d+)", place) for place in (part.place, one.place or ""))
    if line and failed and int(line[1]) > int(failed[1]):
        return f"{name} gets its value after this line ({part.place})."
    return ""


def _which_keys(found: Sequence[Definition]) -> str:
    part = next((part for part in found if part.keys), None)
    if part is None:
        return ""
    more = f" and {len(part.keys) - _MOST_KEYS} more" if len(part.keys) > _MOST_KEYS else ""
    keys = listed(part.keys[:_MOST_KEYS]) if not more else ", ".join(part.keys[:_MOST_KEYS])
    return f"{part.name} has the keys {keys}{more} ({part.place})."


def _which_attribute(found: Sequence[Definition]) -> str:
    if part := _of_kind(found, "similar_attribute"):
        return f"The class has {part.name} ({part.place})."
    return ""


def _how_made(found: Sequence[Definition]) -> str:
    """Name the layers of the failed line with the sizes that they were made for."""
    layers = [
        part for part in found if part.kind == "set" and part.name.startswith("self.") and _LAYER.search(part.code)
    ]
    texts = [f"{part.name} is made in {part.place}: {part.code.partition('=')[2].strip()}." for part in layers[:1]]
    sizes = [
        f"{part.name} is {part.value} there ({'the default' if part.kind != 'passed' else 'passed'} in {part.place})."
        for part in found
        if texts and part.depth and part.value and re.search(rf"\b{re.escape(part.name)}\b", texts[0])
    ]
    return " ".join([*texts, *sizes[:2]])
