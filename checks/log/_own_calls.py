"""Did a call of the script's pass an argument twice, or take a dict out of a file that has none?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.snapshot import UncaughtException

from .._calls import asked_by_script
from ._messages import short_name
from ._own_objects import Meaning

_LOADED = re.compile(r"\bload\(.*\.item\(\)")
_TWICE = re.compile(r"(?P<call>[\w.]+)\(\) got multiple values for (?:keyword )?argument '(?P<name>\w+)'")


def given_twice(one: UncaughtException) -> Meaning | None:
    """Explain an argument that a call of the script's passes twice."""
    found = _TWICE.search(one.message)
    if short_name(one.type) != "TypeError" or not found or not one.place:
        return None
    if not one.raised_in_own_code and not asked_by_script(one):
        return None
    call, name = found["call"].removesuffix(".__init__"), found["name"]
    last = call.rpartition(".")[2]
    return Meaning(
        f"your call at {one.place} passes {name} twice to {call}(): by its position and by its name",
        f"The values without a name fill the arguments in the order of the definition, and one of them lands on "
        f"{name}, which the call also names. The definition has fewer or other arguments before {name} than the call "
        f"assumes (one was removed or moved), self is missing in it, or {name} is also in the dict behind **.",
        (
            Fix(
                "Pass every argument by its name, as the definition has them.",
                (shell("grep -rnE --include='*.py' -A6 {} .", rf"def {last}\(|class {last}\b"),),
            ),
            Fix(f"If {name} is in a dict, take it out.", (python("kwargs.pop('{:id}', None)", name),)),
        ),
    )


def not_pickled(one: UncaughtException) -> Meaning | None:
    """Explain np.load(...).item() of a file that has an array in it, and not one pickled object."""
    code = one.own_code or one.code or ""
    if "convert an array of size 1 to a Python scalar" not in one.message or not _LOADED.search(code):
        return None
    return Meaning(
        f"a file of numpy holds a plain array, and the code expects a pickled dict in it ({one.place})",
        "np.save writes a dict as an array of one object, which .item() returns. This file is an array of numbers or "
        "of several items: another file, or one that other code or another release of the data wrote.",
        (
            Fix(
                "Look at what the file holds, and read it that way, or create it again with the code that belongs to "
                "it.",
                (
                    "python -c \"import numpy as n; x = n.load('FILE.npy', allow_pickle=True); print(x.dtype, "
                    'x.shape)"',
                ),
            ),
        ),
        of_code=False,
    )
