"""Is a value None because transformers' Trainer creates it only when the training begins?"""

from __future__ import annotations

import ast
import re

from mgpu.check import Fix
from mgpu.snapshot import UncaughtException

from .._followed_values import Origin, call_of
from ._own_objects import Meaning

_CREATED = re.compile(r"(?P<value>(?:\w+\.)*\w*trainer\.(?P<kind>optimizer|lr_scheduler))\b", re.IGNORECASE)
_PARAMETER = {"optimizer": re.compile(r"opt"), "lr_scheduler": re.compile(r"sched")}


def none_before_training(one: UncaughtException, name: str, found: Origin | None) -> Meaning | None:
    """Explain trainer.optimizer that is None, which the line reads itself or a caller passes to it."""
    place, value = one.place or "the script", name
    if found is not None:
        place, value = found.call.place, found.expression
    read = _CREATED.fullmatch(value)
    if read is None and (passed := _passed(one, name)):
        place, value = passed
        read = _CREATED.fullmatch(value)
    if read is None:
        return None
    as_parameter = f", and {place} passes it on as {name}" if place != one.place else f" ({place})"
    return Meaning(
        f"{read['value']} is None{as_parameter}",
        "If this is a Trainer of transformers: it has no optimizer and no scheduler before train(), which creates them "
        "(or create_optimizer_and_scheduler()), unless it was given them. "
        + (f"{one.place} uses {name} as if it had a value." if place != one.place else "This line comes too early."),
        _class_instead(name, read["kind"]) if "not callable" in one.message else _OTHERWISE,
    )


_OTHERWISE = (
    Fix(
        "If an object is needed, create it before that line.",
        ("trainer.create_optimizer_and_scheduler(num_training_steps=STEPS)",),
    ),
    Fix("Make the optimizer yourself, and give it to the Trainer.", ("Trainer(..., optimizers=(optimizer, None))",)),
)


def _class_instead(name: str, kind: str) -> tuple[Fix, ...]:
    if kind.lower() == "lr_scheduler":
        return (Fix(f"The line calls {name}: pass a class or a function that makes a scheduler, not a scheduler."),)
    return (Fix(f"The line calls {name}: pass a class, such as torch.optim.AdamW, not an optimizer."),)


def _passed(one: UncaughtException, name: str) -> tuple[str, str] | None:
    """Return where the caller passes such a value to a parameter of this name, and the value."""
    if len(one.calls) < 2 or not name.isidentifier():
        return None
    caller = one.calls[-2]
    call = call_of(caller.code or "", one.calls[-1].function)
    values = [ast.unparse(arg) for arg in call.args] if call else []
    created = [(value, match["kind"]) for value in values if (match := _CREATED.fullmatch(value))]
    if len(created) != 1 or not _PARAMETER[created[0][1]].search(name):
        return None
    return caller.place, created[0][0]
