"""Does the script take the results of accelerator.prepare in the order in which it passes the objects?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Severity, check
from mgpu.snapshot import Script, ScriptCall
from mgpu.text import counted, listed

from ._calls import ACCELERATOR, calls, finding, unpacks
from ._rank_paths import with_accelerate

_PREPARING = "https://huggingface.co/docs/accelerate/en/package_reference/accelerator#accelerate.Accelerator.prepare"


@check(Severity.WARNING, source=_PREPARING, given=with_accelerate)
def script_prepared_in_other_order(script: Script) -> Answer:
    """The results of accelerator.prepare get each other's names.

    Why: prepare returns its results in the order of its arguments. A name then has another object than it had before:
    a loop over the loader gets the optimizer.

    Fix: Take the results in the order of the arguments.
    """
    preparing = calls(script, rf"(?:{ACCELERATOR}|(?:.*\.)?accelerator)\.prepare")
    wrong = [call for call in preparing if call.reached and _exchanges_names(call)]
    if not wrong:
        return Ok(f"{counted(len(preparing), 'call')} of prepare, none whose results get each other's names")
    first = wrong[0]
    taken = [
        f"{target} is the prepared {given}"
        for target, given in zip(first.targets, first.written, strict=True)
        if target != given
    ]
    return finding(
        script,
        first,
        f"prepare returns its results in the order of its arguments: {listed(taken)}",
        Fix(f"Write the names in the order of the arguments: {', '.join(first.written)} = ..."),
        wrong[1:],
    )


def _exchanges_names(call: ScriptCall) -> bool:
    """Whether the results are assigned to the very names that are passed, in another order."""
    targets, given = call.targets, call.written
    named = not call.keywords and not unpacks(call) and all(one.isidentifier() for one in given)
    return named and targets != given and len(set(given)) == len(given) and sorted(targets) == sorted(given)
