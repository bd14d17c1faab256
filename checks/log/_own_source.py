"""What does the user's own source, where it is beside a log, say about the values of the line that failed?

A sentence is said only if no other run of the same source could contradict it. The lines themselves are shown as
evidence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mgpu.check import Fix, Problem
from mgpu.command_line import shell
from mgpu.snapshot import Definition, UncaughtException
from mgpu.text import listed

from ._messages import exception_of, short_name
from ._prepared_order import misnamed

_MOST = 4  # lines of a finding
_LONGEST = 140  # characters of a line
_MOST_KEYS = 8
_UNSET = re.compile(r"(?:local variable|free variable|variable) '(?P<name>\w+)'")
_PATH = re.compile(r"'(?P<path>[^'\n]*[^'\n/])/?'")
_SHORTEST_DEFAULT = 3  # characters of a path
_PARSED = re.compile(r"(?:self\.)?\w*(?:args|arguments|opts?|options|FLAGS)\.\w+$")  # what parse_args() returns
_ONE_STEPS_LOSS = Fix(
    "Call backward() on the loss of this step, and sum plain numbers for the log.",
    ("loss.backward()", "total_loss += loss.item()"),
)
_WITHOUT_GRADIENTS = Fix(
    "Evaluate without gradients.", ("with torch.no_grad():", "@torch.no_grad()  # above the function")
)


def with_source(problem: Problem, facts: Mapping[str, Any]) -> Problem:
    """Return the problem with what the source says of its exception, and the lines that its values come from."""
    one = exception_of(problem, facts)
    if one is not None and (other := misnamed(one)):
        problem = replace(problem, title=other.title, cause=other.cause, fix=other.fix)
    if one is None or not one.defined:
        return problem
    option = _default_path(one)
    says = _says(one, option)
    better = [_pass_path(option)] if option else []
    better += [_ONE_STEPS_LOSS] if says and _summed(one) else []
    better += [_WITHOUT_GRADIENTS] if _of_kind(one.defined, "keeps_gradients") else []
    cause = f"{says} {problem.cause}" if says else problem.cause
    raises = any(part.kind == "condition" and part.place == one.place for part in one.defined)
    # The values of a launch begin with the condition that led to the exception: it is not shown twice.
    held = {line.place for line in one.recorded if line.condition}
    asserted = (one.own_code or "").startswith("assert ") and _position(one.place or "") in held
    quoted = not one.own_code or one.own_code in cause or raises or asserted
    shown = [part for part in one.defined if part.kind != "condition" or _position(part.place) not in held]
    lines = ["" if quoted else f"{one.place}: {one.own_code}", *map(_line, _worth_showing(shown))]
    evidence = {**problem.evidence, "source": "\n".join(filter(None, lines))}
    return replace(problem, cause=cause, fix=(*better, *problem.fixes), evidence=evidence)


def _position(place: str) -> str:
    """Return "train.py:12" of "models/train.py:12 in main"."""
    return place.partition(" ")[0].rpartition("/")[2]


def _worth_showing(found: Sequence[Definition]) -> list[Definition]:
    """Return one definition for each line of the source, those near the failed line first."""
    lines: dict[str, Definition] = {}
    for one in sorted(found, key=lambda part: part.depth):
        lines.setdefault(one.place.partition(" ")[0], one)
    return list(lines.values())[:_MOST]


def _line(one: Definition) -> str:
    code = one.code if len(one.code) <= _LONGEST else f"{one.code[: _LONGEST - 4]} ..."
    return f"{one.place}: {code}"


def _says(one: UncaughtException, option: Definition | None) -> str:
    """Return what follows from the source for an exception, as sentences; empty if nothing does.

    `option`: the one whose default is the beginning of a path that does not exist.
    """
    short, found = short_name(one.type), one.defined
    if option is not None:
        return f"{option.flag or option.name} has the default {option.value} ({option.place}); the path begins with it."
    if kept := _of_kind(found, "keeps_gradients"):
        return (
            f"{kept.name}() evaluates with gradients ({kept.place}): nothing in the files of the traceback turns them "
            "off. Torch then keeps all activations for a backward pass that never comes."
        )
    if sum_of := _summed(one):
        return (
            f"{sum_of.place} adds to {sum_of.name} with +=, which keeps the graph of what was added before: unless "
            "each step begins with a new sum, backward() goes through the graphs of the earlier steps again."
        )
    if similar := _of_kind(found, "similar_name"):
        return f"There is a similar name: {similar.name} ({similar.place})."
    if "NoneType" in one.message:
        return _why_none(one)
    if unset := _UNSET.search(one.message):
        return _why_unset(unset["name"], one)
    if short == "KeyError":
        return _which_keys(one)
    if part := _of_kind(found, "set_elsewhere"):
        return f"Only one line in its class sets {part.name}: {part.place}."
    if part := _of_kind(found, "similar_attribute"):
        return f"The class has {part.name} ({part.place})."
    if similar := _of_kind(found, "similar_parameter"):
        return f"The definition ({similar.place}) has a parameter named {similar.name}."
    return ""


def _summed(one: UncaughtException) -> Definition | None:
    """Return the line that adds to the very sum whose second backward failed."""
    if "backward through the graph a second time" not in one.message:
        return None
    return next(
        (
            part
            for part in one.defined
            if part.kind == "set"
            and part.name.isidentifier()
            and part.code.startswith(f"{part.name} += ")
            and re.search(rf"\bbackward\({part.name}\)|\b{part.name}\.backward\(", one.own_code or "")
        ),
        None,
    )


def _of_kind(found: Sequence[Definition], kind: str) -> Definition | None:
    return next((part for part in found if part.kind == kind), None)


def _default_path(one: UncaughtException) -> Definition | None:
    """Return the option or field whose default is the beginning of a path that does not exist."""
    if short_name(one.type) not in ("FileNotFoundError", "NotADirectoryError") and "No such file" not in one.message:
        return None
    paths = [path["path"].removeprefix("./") for path in _PATH.finditer(one.message)]
    for part in one.defined:
        default = (part.value or "").strip("'\"").rstrip("/").removeprefix("./")
        if part.kind not in ("option", "field") or len(default) < _SHORTEST_DEFAULT or default not in part.code:
            continue
        if any(path == default or path.startswith(f"{default}/") for path in paths):
            return part
    return None


def _pass_path(option: Definition) -> Fix:
    flag = option.flag
    if not flag:
        return Fix(f"Set {option.name} to the right path for this machine ({option.place}).")
    return Fix("Pass the right path for this machine.", (shell("mgpu launch train.py {:option} /path/of/it", flag),))


def _why_none(one: UncaughtException) -> str:
    """Say what makes exactly the expression None that was."""
    from ._values_that_are_none import name_of_none  # it needs checks/_calls.py, which needs this folder

    name = name_of_none(one, one.code or "")
    own = next((part for part in one.defined if part.name == name), None)
    if own is None:
        return ""
    if (
        own.kind == "option"
        and _PARSED.match(own.name)
        and own.value in (None, "None")
        and not re.search(r"store_|required=True|nargs", own.code)
    ):
        return f"{own.flag} has no default ({own.place}): {own.name} is None unless the command line has this option."
    if own.kind == "passed" and own.value == "None":
        return f"The call at {own.place} passes None for {own.name}."
    made = re.search(r"=\s*(?:await )?(?P<function>\w+)\([^()]*\)$", own.code) if own.kind == "set" else None
    called = next((part for part in one.defined if made and part.name == made["function"]), None)
    if called is not None and called.ends_without_value:
        return f"{called.name}() can end without a return statement ({called.place}), and then returns None."
    return ""


def _why_unset(name: str, one: UncaughtException) -> str:
    part = next((part for part in one.defined if part.name == name and part.kind in ("set", "loop")), None)
    line, failed = (re.search(r":(\d+)", place) for place in (part.place if part else "", one.place or ""))
    if part and line and failed and int(line[1]) > int(failed[1]):
        return f"{name} gets its value after this line ({part.place})."
    return ""


def _which_keys(one: UncaughtException) -> str:
    part = next((part for part in one.defined if part.keys and not part.depth), None)
    code = one.own_code or ""
    if part is None or one.message.strip("'\"") in part.keys or not re.search(rf"\b{part.name}\[[^\]]*\](?!\[)", code):
        return ""
    if len(part.keys) > _MOST_KEYS:
        return f"{part.name} has {len(part.keys)} keys, among them {listed(part.keys[:_MOST_KEYS])} ({part.place})."
    return f"{part.name} has the keys {listed(part.keys)} ({part.place})."
