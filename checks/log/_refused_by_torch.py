"""What does torch refuse in a script of the user's own? The tables by layer, operation, training and module.

Texts for `exceptions.py`.
"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.snapshot import UncaughtException

from .._wording import at_place
from ._messages import short_name
from ._own_objects import Meaning
from ._refused_by_layers import OF_LAYERS
from ._refused_by_modules import OF_MODULES
from ._refused_by_operations import OF_OPERATIONS
from ._refused_by_training import OF_TRAINING

_ALL = (*OF_LAYERS, *OF_OPERATIONS, *OF_TRAINING, *OF_MODULES)
_NO_SUCH_DIMENSION = re.compile(
    r"Dimension out of range \(expected to be in range of \[(?P<low>-?\d+), (?P<high>-?\d+)\], but got (?P<dim>-?\d+)\)"
)

_PADS = re.compile(r"\bF\.pad\(|functional\.pad\(")
_OTHER_CALL = re.compile(r"\.(?!pad\(|tolist\()\w+\(")  # which can be what has no such dimension


def _dimension(one: UncaughtException) -> Meaning | None:
    """Explain a dimension that a tensor does not have, by the range that torch accepts."""
    found = _NO_SUCH_DIMENSION.search(one.message)
    if short_name(one.type) != "IndexError" or found is None:
        return None
    at = at_place(one)
    if _PADS.search(one.code or "") and not _OTHER_CALL.search(one.code or ""):
        return _padding(found["dim"], found["high"], at)
    dim = found["dim"]
    new = rf"\bunsqueeze_?\((?:[\w.]+, ?)?(?:dim=)?{dim}\)|\bstack\(.*(?:dim=|, ){dim}\)"
    adds = bool(re.search(new, one.code or ""))
    has = -int(found["low"]) - adds
    count = f"{has} dimension{'' if has == 1 else 's'}"
    if found["low"] == "-1" and not adds:
        count = "0 or 1 dimensions"  # a single number takes dimensions -1 and 0, too
    what = "a new dimension is put at" if adds else "an operation uses"
    return Meaning(
        f"{what} {'' if adds else 'dimension '}{dim} of a tensor that has {count}{at}",
        f"Counted from 0, {found['low']} to {found['high']} is possible. A batch or channel dimension "
        "is missing (one sample, squeeze(), an index, a mean), or the line was written for other data.",
        (
            Fix("Print the shape just before that line.", ("print(x.shape)",)),
            Fix(
                "Add the dimension, or count from the end.",
                ("x = x.unsqueeze(0)", "x.squeeze(-1)  # not squeeze()", "x.softmax(dim=-1)"),
            ),
        ),
    )


def _padding(dim: str, high: str, at: str) -> Meaning:
    """Explain padding for a dimension that the tensor does not have; `high`: its last one."""
    has = int(high) + 1
    return Meaning(
        f"F.pad() works on dimension {dim} of a tensor that has {has} dimension{'' if has == 1 else 's'}{at}",
        "The padding has two numbers for each dimension, and begins with the last one. It was made for a tensor with "
        f"more dimensions: this one takes at most {2 * has} numbers.",
        (
            Fix("Print both just before that line.", ("print(x.shape, padding)",)),
            Fix(
                "If the padding is too long, cut it. If a package makes it, compare the shape of your data with what "
                "it expects, and its release with that of the packages that use it.",
                ("F.pad(x, padding[: 2 * x.dim()])", "pip check"),
            ),
        ),
    )


def refused_by_torch(one: UncaughtException) -> Meaning | None:
    """Return what a message of torch says of the script's call; None if no entry has it."""
    if meant := _dimension(one):
        return meant
    text = "\n".join(filter(None, (one.message, one.more)))
    return next((meant for known in _ALL if (meant := known.read(one, text))), None)
