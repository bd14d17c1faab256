"""Which list was empty, or which tensor had too few dimensions, on a line of a package or of the script itself?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.snapshot import UncaughtException

from .. import _version_skew as skew
from ._messages import short_name
from ._own_objects import PLAIN, Meaning

_FIRST = re.compile(rf"(?P<of>{PLAIN})\[(?:0|-1)\]")
_INDEX = re.compile(r"(?<=\w)\[(?!['\"])")
_DIMENSION = re.compile(rf"\b(?P<of>{PLAIN})\.(?:shape|size\(\))\[(?P<number>\d)\]")


def explain(one: UncaughtException) -> Meaning | None:
    """Return what the line of an IndexError shows; None if it shows several possible objects."""
    if short_name(one.type) != "IndexError" or not one.code:
        return None
    if "tuple index out of range" in one.message:
        return _flat(one, one.code)
    package = one.packages[-1] if one.packages else ""
    if not package or "index out of range" not in one.message:
        return None
    names = {found["of"] for found in _FIRST.finditer(one.code)}
    others = len(_INDEX.findall(one.code)) > len(_FIRST.findall(one.code))
    return None if len(names) != 1 or others else _empty(names.pop(), package, one)


def _empty(name: str, package: str, one: UncaughtException) -> Meaning:
    dist = skew.distribution(package)
    call = f' The script\'s own line is "{one.own_code}" ({one.place}).' if one.own_code and one.place else ""
    return Meaning(
        f"{name} is empty in {dist} ({one.library or one.raised_in})",
        f"{dist} reads the first item of a list that has none. Either the script passed something empty (a sample "
        "without an image, a text or a label), or a part of the package found nothing to work on, such as an option "
        f"that does not support this model.{call}",
        (
            Fix("Look for the argument of that call that can be empty, and leave it out or pass None then."),
            Fix(
                f"If nothing is empty there: turn off the optional part of {dist} that the traceback goes through, or "
                "compare the versions.",
                (shell("pip show {:package}", dist),),
            ),
        ),
        of_code=False,
    )


def _flat(one: UncaughtException, code: str) -> Meaning | None:
    found = {(match["of"], match["number"]) for match in _DIMENSION.finditer(code)}
    if len(found) != 1:
        return None
    name, number = found.pop()
    weight = name.rpartition(".")[2] in ("weight", "bias", "data")
    sharded = (
        " Under ZeRO-3 and FSDP a parameter is empty or flat outside of its layer's forward pass, so its shape says "
        "nothing there."
    )
    gather = Fix(
        "If the parameters are sharded: gather it first, or read the size from the model's config.",
        (
            "with deepspeed.zero.GatheredParameters(model.parameters()): ...",
            "with FSDP.summon_full_params(model): ...",
        ),
    )
    return Meaning(
        f"{name} has no dimension {number} ({one.place or one.raised_in})",
        f"It has fewer dimensions than the code expects.{sharded if weight else ''}",
        (
            *((gather,) if weight else ()),
            Fix(f"Print the shape of {name} before that line.", (python("print({:dotted}.shape)", name),)),
        ),
    )
