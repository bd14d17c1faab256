"""What was 0 when the script's own line divided by it: a length, a size, or what an average meter has counted?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.snapshot import TracedCall, UncaughtException

from .._followed_values import operands
from ._messages import short_name
from ._own_objects import NAME, Meaning
from ._values_that_are_none import is_setting

_LENGTH = re.compile(rf"/ {{0,2}}(?:float\(|max\()?len\((?P<of>{NAME})\)")
_DIVISOR = re.compile(rf"[/%]{{1,2}} {{0,2}}({NAME})(?![\w(])")
_SUM = (
    r"self\._?(?:sums?|vals?|values?|total|acc\w*|correct\w*|loss\w*|scores?|hits|elapsed|time|"
    r"(?:sum|total|running|cum\w*)_\w+|\w+_(?:sum|total|val|loss|acc\w*|correct|score|time))"
)
_COUNT = re.compile(
    r"self\._?(?:n|num|cnt|counts?|counter|total|samples|steps|updates|weights?|denom\w*|(?:num|n|total|sum)_\w+|"
    r"\w+_(?:num|cnt|counts?|counter|total|samples|steps))"
)
# Settings that are divided by the number of ranks, and numbers of ranks: not numbers of batches, which the data has.
_BATCH = re.compile(
    r"(?i)(?:\w+_)?(?:batch_?size|bsz|(?:micro|mini)_?(?:batch|bsz?)|accum(?:ulat\w+)?_(?:steps?|iters?)|"
    r"grad_?accum\w*|accumulation)(?:_per_\w+|_size)?"
)
_RANKS = re.compile(r"(?i)(?:\w+_)?(?:world_?size|n(?:um)?_?(?:gpus?|devices|process(?:es)?|ranks|replicas)|dp_?size)")
_GPUS = re.compile(r"(?i)gpus?|devices")
_PERIOD = re.compile(
    r"(?i)(?:\w+_)?(?:freq\w*|every\w*|interval|period|steps|iters|epochs)$|(?:save|log|eval|print|vis|val|test)\w*$"
)
_DURATION = re.compile(r"(?i)(?:\w+_)?(?:elapsed|duration|time|seconds|secs?|dt|delta|toc)(?:_\w+)?$")
_OF_VERL = re.compile(r"(?:ppo_micro|log_prob_micro|micro)_batch_size$")
_ADDS = re.compile(r"(?:__init__|__call__|__iadd__|(?:update|add|append|accumulate|record|log|step|put|push)\w*)")


def zero_share(one: UncaughtException) -> Meaning | None:
    """Explain a division by a batch, by accumulation steps or by a number of ranks that is 0, also in a package."""
    divisor = _divisor(one)
    option = re.findall(r"\w+", divisor or "")[-1:]
    found = (_BATCH.fullmatch(option[0]) or _RANKS.fullmatch(option[0])) if option else None
    if divisor is None or found is None:
        return None
    title = f"{divisor} is 0, and {one.place or one.library} divides by it"
    shown = Fix(f"Print {divisor}, and what it is computed from.", (python("print({:dotted})", divisor),))
    if found.re is _RANKS:
        return _of_ranks(title, found[0], shown)
    of_verl = "verl" in one.packages and _OF_VERL.match(found[0])
    per_gpu = (shell("{:name}_per_gpu=1  # verl", found[0]),) if of_verl else ()
    return Meaning(
        title,
        "Unless it is set to 0, it was divided and rounded down: by the number of ranks or GPUs, because the setting "
        "is for all of them together and is less than their number, or by a larger batch.",
        (
            Fix("Set it to at least 1, and with several ranks to a multiple of their number, or start fewer ranks."),
            *(
                ()
                if re.search(r"(?:^|_)per_", found[0])
                else (Fix("Or set the option for one GPU, if the program has it: that one is not divided.", per_gpu),)
            ),
            shown,
        ),
    )


def _of_ranks(title: str, name: str, shown: Fix) -> Meaning:
    """Explain a number of ranks or GPUs that is 0."""
    if _GPUS.search(name):
        return Meaning(
            title,
            "If it is torch.cuda.device_count(), this process sees no GPU: there is none, CUDA_VISIBLE_DEVICES hides "
            "it, or torch was installed without CUDA. If it is a setting, it is 0, or became 0 when it was divided.",
            (
                Fix(
                    "Check which GPUs this process sees.",
                    ("python -c 'import torch; print(torch.version.cuda, torch.cuda.device_count())'", "mgpu doctor"),
                ),
                shown,
            ),
        )
    return Meaning(
        title,
        "It is a number of ranks. Unless it is set to 0, it was divided by a tensor, pipeline, sequence or context "
        "parallel size that is larger, and rounded down to 0.",
        (Fix("Start at least as many ranks as the parallel sizes multiply to, or make these smaller."), shown),
    )


def _divisor(one: UncaughtException) -> str | None:
    """Return the only name that the line divides by, of an exception that a division by 0 raised."""
    if short_name(one.type) != "ZeroDivisionError" or emptied_length(one):
        return None
    names = set(_DIVISOR.findall(one.code or ""))  # the same in both branches of a choice
    if (sides := operands(one)) and re.fullmatch(NAME, sides[1]):
        names = {sides[1]}
    return names.pop() if len(names) == 1 else None


def zero_divisor(one: UncaughtException) -> Meaning | None:
    """Explain a division by a name that was 0; None if the line does not show which one, or it is a length."""
    divisor = _divisor(one)
    if divisor is None:
        return None
    title = f"{divisor} is 0, and {one.place} divides by it"
    shown = Fix(f"Print {divisor}, and what it is computed from.", (python("print({:dotted})", divisor),))
    name = re.findall(r"\w+", divisor)[-1]
    if counted := _uncounted(one, divisor):
        return counted
    if re.search(rf"%\s*{re.escape(divisor)}", one.code or "") and (is_setting(divisor) or _PERIOD.search(name)):
        return Meaning(
            title,
            "The line does something every so many steps. Either the setting is 0, such as to turn it off, which this "
            "code does not expect, or it was computed from a length and rounded down to 0.",
            (
                Fix(
                    "Set it to at least 1. To turn it off, set it to more than all steps, or test for 0 first.",
                    (python("if {:dotted} and step % {:dotted} == 0:", divisor, divisor),),
                ),
                shown,
            ),
        )
    if _DURATION.search(name):
        return Meaning(
            title,
            "It is probably a time that passed between two moments: none was measured, because both are the same, or "
            "closer than the clock measures (time.time() on Windows).",
            (Fix("Measure with a finer clock, and divide only if time has passed.", ("time.perf_counter()",)), shown),
        )
    return Meaning(
        title,
        "Either it counts something of which there was nothing (no sample, no batch, no hit, no valid entry of a "
        "mask), or it was computed from a length or a size and rounded down to 0.",
        (shown,),
    )


def emptied_length(one: UncaughtException) -> str | None:
    """Return the name whose length the line divides by."""
    found = _LENGTH.search(one.code or "") if short_name(one.type) == "ZeroDivisionError" else None
    return found["of"] if found else None


def _uncounted(one: UncaughtException, divisor: str) -> Meaning | None:
    """Explain the average of a meter that has counted nothing; None for any other division."""
    sums = set(re.findall(rf"(?<![\w.])({_SUM}) ?/ ?{re.escape(divisor)}\b", one.code or ""))
    if len(sums) != 1 or not _COUNT.fullmatch(divisor) or not one.place:
        return None
    average = f"{(total := sums.pop())} / {divisor}"
    reader = _caller(one)
    guarded = python("value = {:dotted} / {:dotted} if {:dotted} else 0.0", total, divisor, divisor)
    if _ADDS.fullmatch(one.place.rpartition(" in ")[2]):
        return Meaning(
            f"an average meter was given nothing to count: {divisor} is still 0 at {one.place}",
            f"It computes {average} when it gets a value, and the number of items that it was given so far is 0: an "
            f"empty batch, or a mask or a filter that left no sample.{f' {reader.place} calls it.' if reader else ''}",
            (
                Fix("Skip batches without items, and print how many items each one has."),
                Fix(f"Divide only if {divisor} is not 0.", (guarded,)),
            ),
            of_code=False,
        )
    by = f"{reader.place} reads" if reader else "It is read"
    return Meaning(
        f"the average {average} is read while nothing was counted: {divisor} is 0 ({one.place})",
        f"{by} the average of a meter that has no value yet: its update() comes later in the loop, is under a "
        "condition (every N steps, only on rank 0, only for one of several meters), the meter was just reset, or the "
        "loop had no batch.",
        (
            Fix("Update the meter before its average is read.", ("meter.update(value, n=batch_size)",)),
            Fix("Return a number while nothing was counted.", (guarded,)),
        ),
    )


def _caller(one: UncaughtException) -> TracedCall | None:
    """Return the script's call that asked for the average, which is not the meter's own code."""
    file = (one.place or "").partition(":")[0]
    own = [call for call in one.calls[:-1] if not call.package]
    return next((call for call in reversed(own) if call.place.partition(":")[0] != file), own[-1] if own else None)
