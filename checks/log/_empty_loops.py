"""Which loop did not run, and why had it nothing to go over: a loader without a batch, a range without a number?

Only of a launch: the recorder has seen what the names of the failed line, and of the loop that fills them, stood for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from mgpu.check import Fix, Problem
from mgpu.command_line import python
from mgpu.snapshot import LineValues, UncaughtException

from ._messages import exception_of, short_name

_NO_BATCH = re.compile(
    r"DataLoader(?: of (?P<samples>\d+) samples?)?, batch_size (?P<size>\d+)(?P<drop>, drop_last)?"
    r"(?:, (?P<share>\d+) for this rank)?: no batch$"
)
_NO_SAMPLES = re.compile(r"\w+ of 0 samples$|an empty \w+$")
_OF_NOTHING = re.compile(r"got 0\b|=0\b|\bempty\b|by zero|at least one|must be positive|positive integer")
_DIFFERENCE = re.compile(r"\blen\((?P<of>[\w.]+)\) ?- ?(?P<less>[\w.]+)")
_OF_RANGE = re.compile(r"random_ expects 'from' to be less|low >= high|high <= 0|empty range|non-empty TensorList")
_LENGTH = re.compile(
    r"(?:\w+ )?(?:\w*int\d*|b?float\d*|bool) \[(\d+)|(?:list|tuple|str|bytes) of (\d+)|str, length (\d+)"
)
_MAKE_SAMPLES = Fix(
    "See how the dataset is made: its files, its split, its filter, or blocks that are longer than the text.",
    ("print(len(dataset))",),
)


def with_empty_loop(problem: Problem, facts: Mapping[str, Any]) -> Problem:
    """Return the problem with why a loop of its exception's line did not run."""
    one = exception_of(problem, facts)
    return next(_explained(problem, one), problem) if one is not None else problem


def _explained(problem: Problem, one: UncaughtException) -> Iterator[Problem]:
    short = short_name(one.type)
    said = f"{short}: {one.message}." if one.message else f"{short}."
    for line in one.recorded:
        if loop := line.empty_loop:
            state = "has no value" if short in ("UnboundLocalError", "NameError") else f"is {_state(line, loop.fills)}"
            title = f"the loop over {loop.over} did not run once ({_file(line)}:{loop.line}): {loop.fills} {state}"
            why, fixes = _why(line.values, loop.over)
            yield replace(problem, title=title, cause=f"{why} {said}".strip(), fix=fixes or problem.fix)
    own = (one.place or "").partition(" ")[0]
    for line in one.recorded:
        for name, text in line.values.items() if line.place == own else ():
            if "num_samples=0" in one.message and _NO_SAMPLES.match(text):
                yield replace(
                    problem, title=f"{name} has no samples ({one.place})", fix=(_MAKE_SAMPLES, *problem.fixes)
                )
            if not _NO_BATCH.match(text):
                continue
            why, fixes = _why({name: text}, name)
            divides = short == "ZeroDivisionError" and f"len({name})" in (one.own_code or "")
            if divides or short == "StopIteration":
                title = f"{name} gives no batch ({one.place or line.place})"
                yield replace(problem, title=title, cause=f"{why} {said}", fix=fixes or problem.fix)
            if _OF_NOTHING.search(one.message):
                yield replace(problem, cause=f"{why} {problem.cause}", fix=(*fixes, *problem.fixes))
    yield from _shorter(problem, one)


def _state(line: LineValues, name: str) -> str:
    text = line.values.get(name, "empty")
    return text if text in ("0", "0.0") else "empty"


def _file(line: LineValues) -> str:
    return line.file.rpartition("/")[2]


def _why(values: Mapping[str, str], over: str) -> tuple[str, tuple[Fix, ...]]:
    """Return why there was nothing to go over, and what to change."""
    for name, text in values.items():
        if found := _NO_BATCH.match(text):
            share = int(found["share"] or found["samples"] or 0)
            if not share and found["samples"]:
                return f"The dataset of {name} has no samples.", (_MAKE_SAMPLES,)
            if not share or not found["drop"]:
                return f"{name} gives no batch.", ()
            who = "has" if not found["share"] else f"has {found['samples']} samples, and gives this rank"
            return (
                f"{name} {who} {share} sample{'s' if share > 1 else ''}, fewer than its batch_size of {found['size']}, "
                "and drop_last drops a batch that is not full.",
                (
                    Fix(
                        f"Use a batch_size of at most {share}, keep the last batch, or use more data.",
                        (python("DataLoader(..., batch_size={:number})", share), "DataLoader(..., drop_last=False)"),
                    ),
                ),
            )
    if over.startswith("range("):
        listed = "; ".join(f"{name} is {text}" for name, text in values.items() if re.search(rf"\b{name}\b", over))
        return (
            f"The range has no number{f': {listed}' if listed else ''}.",
            (Fix("Check its ends. A run that resumes after its last epoch needs a larger number of epochs."),),
        )
    empty = next((name for name, text in values.items() if _NO_SAMPLES.match(text) and name in over), None)
    return (f"{empty} is empty.", (_MAKE_SAMPLES,)) if empty else ("", ())


def _shorter(problem: Problem, one: UncaughtException) -> Iterator[Problem]:
    """Explain a random start, or a range of starts, in what is shorter than the part that is cut out of it."""
    found = _DIFFERENCE.search(one.own_code or "")
    if not found or not _OF_RANGE.search(one.message):
        return
    for line in one.recorded:
        length = _LENGTH.match(line.values.get(found["of"], ""))
        less = found["less"] if found["less"].isdigit() else line.values.get(found["less"], "")
        if length and less.isdigit() and (size := int(next(filter(None, length.groups())))) <= int(less):
            named = less if less == found["less"] else f"{found['less']}, {less}"
            yield replace(
                problem,
                title=f"{found['of']} is not longer than {found['less']}: {size:,} and {int(less):,} ({one.place})",
                cause=f"{found['of']} has {size:,} items, and the line takes parts of {named} from it. {problem.cause}",
                fix=(Fix(f"Use more data, or a {found['less']} below {size:,}."), *problem.fixes),
            )
