"""Did the results of accelerator.prepare get each other's names, so that a loop over the loader gets the optimizer?"""

from __future__ import annotations

import re
from typing import NamedTuple

from mgpu.check import Fix
from mgpu.snapshot import Definition, UncaughtException
from mgpu.text import listed

from .._wording import at_place

_PREPARED = re.compile(r"(?P<targets>\w+(?:, \w+)+) = (?P<on>[\w.]+)\.prepare\((?P<given>\w+(?:, \w+)+)\)")
# accelerate's own classes, which only prepare() makes, and what is done with them that only another object can do. Its
# loaders pass a missing attribute on to torch's.
_OF_OTHERS = r"'(?:dataset|sampler|batch_sampler|batch_size|set_epoch|parameters|train|eval|module)'"
_OF_STEPS = r"'(?:step|zero_grad|param_groups|get_last_lr|parameters|train|eval|module)'"
_STEPPER = r"'Accelerated(?:Optimizer|Scheduler)'"
_MISUSED = (
    (
        re.compile(
            rf"{_STEPPER} object is not (?:iterable|callable|an iterator|subscriptable)|"
            rf"object of type {_STEPPER} has no len\(\)|{_STEPPER} object has no attribute {_OF_OTHERS}"
        ),
        "",
    ),
    (re.compile(rf"'DataLoader' object has no attribute {_OF_STEPS}"), "accelerate/data_loader.py"),
    (re.compile(r"'DataLoader(?:Shard|Dispatcher)' object is not callable"), ""),
)


class Misnamed(NamedTuple):
    """What is said of such an exception."""

    title: str
    cause: str
    fix: Fix


def misnamed(one: UncaughtException) -> Misnamed | None:
    """Explain an exception of an object that prepare() returned for another one than its name says; None: it is not.

    Without the line that calls prepare, it is a probable reason.
    """
    found = next((part for part in one.defined if _exchanges(part, one)), None)
    match = _PREPARED.fullmatch(found.code) if found is not None else None
    if found is not None and match is not None and re.search(rf"\b{re.escape(found.name)}\b", one.own_code or ""):
        targets, given = match["targets"].split(", "), match["given"].split(", ")
        pairs = [f"{name} is the prepared {other}" for name, other in zip(targets, given, strict=True) if name != other]
        return Misnamed(
            f"the results of prepare() get each other's names: {listed(pairs)} ({found.place})",
            f"prepare() returns its results in the order of its arguments ({', '.join(given)}), and the line takes "
            f'them in another order: {found.code}. So this line fails: "{one.own_code}".',
            Fix(f"Take the results in the order of the arguments: {', '.join(given)} = ..."),
        )
    if not any(said.search(one.message) and place in (one.raised_in or "") for said, place in _MISUSED):
        return None
    kind = (
        one.message.partition("' object")[0].partition("type '")[2] or one.message.partition("'")[2].partition("'")[0]
    )
    what = {"AcceleratedOptimizer": "an optimizer", "AcceleratedScheduler": "a schedule"}.get(kind, "a data loader")
    return Misnamed(
        f"{what} that accelerator.prepare returned is used as another object{at_place(one)}",
        f"{one.message.rstrip('.')}. prepare() returns its results in the order of its arguments: they are taken in "
        "another order, or passed on in another order to the function that fails.",
        Fix(
            "Compare the order of the arguments and results of prepare(), and of the calls that pass them on.",
            ("model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",),
        ),
    )


def _exchanges(part: Definition, one: UncaughtException) -> bool:
    """Whether a line gives the results the very names that it passes, in another order, the named one among them."""
    match = _PREPARED.fullmatch(part.code) if part.kind == "set" else None
    if match is None or not _is_accelerator(match["on"], one):
        return False
    targets, given = match["targets"].split(", "), match["given"].split(", ")
    exchanged = [name for name, other in zip(targets, given, strict=False) if name != other]
    return sorted(targets) == sorted(given) and len(set(given)) == len(given) and part.name in exchanged


def _is_accelerator(name: str, one: UncaughtException) -> bool:
    made = any(part.name == name and re.search(r"\bAccelerator\(", part.code) for part in one.defined)
    return made or "accelerator" in name.lower()
