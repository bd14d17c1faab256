"""Which value is None because something gave no result: a gradient that was not computed, an unread image?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.snapshot import UncaughtException

from .._followed_values import origin
from ._messages import short_name
from ._own_objects import Meaning, file_of
from ._values_that_are_none import name_of_none

_GRADIENT = re.compile(r"(?P<of>.+)\.grad$")
_IMAGE = re.compile(r"(?i)(?:^|[._])(?:img|image|im|frame|pic|picture|bgr|rgb|gray|mask)\w{0,8}$")
_OF_ARRAYS = re.compile(r"no attribute '(?:shape|copy|astype|size|dtype|ndim|reshape|transpose)'|not subscriptable")


def absent_result(one: UncaughtException) -> Meaning | None:
    """Explain a gradient or an image that is None in the script's own line; None if it is another value."""
    if not one.raised_in_own_code or not one.place or short_name(one.type) not in ("AttributeError", "TypeError"):
        return None
    name = name_of_none(one, one.code or "") if "NoneType" in one.message else None
    found = origin(one, name) if name else None
    if name is None or (found and found.passed):
        return None
    if gradient := _GRADIENT.match(name):
        return _of_gradient(name, gradient["of"], one)
    if _IMAGE.search(name) and _OF_ARRAYS.search(one.message):
        return _of_image(name, one)
    return None


def _of_gradient(name: str, of: str, one: UncaughtException) -> Meaning:
    return Meaning(
        f"{name} is None: no gradient was computed for {of} ({one.place})",
        f"Either backward() was not called yet, {of} did not take part in the loss (an unused or frozen layer, "
        "detach(), no_grad()), it is the result of an operation and not a leaf, or zero_grad() removed it "
        "(set_to_none=True, the default since torch 2.0).",
        (
            Fix("Skip parameters without a gradient.", (python("if {:dotted} is not None: ...", name),)),
            Fix(
                "If there should be one, see what it is.",
                (
                    python("print({:dotted}.requires_grad, {:dotted}.is_leaf)", of, of),
                    python("{:dotted}.retain_grad()  # for a result, before backward()", of),
                ),
            ),
        ),
    )


def _of_image(name: str, one: UncaughtException) -> Meaning:
    return Meaning(
        f"{name} is None ({one.place}): probably an image or a frame that could not be read",
        "cv2.imread() and VideoCapture.read() return None for a file that does not exist or cannot be decoded, and "
        "raise no exception. If another function makes it, that one returned nothing.",
        (
            Fix(
                "Print the path, and stop or skip if nothing was read.",
                ("print(repr(path), os.path.exists(path))", python("if {:dotted} is None: raise OSError(path)", name)),
            ),
            Fix(
                f"Look where {name} is set.",
                (shell("grep -nE {} {:path}", rf"{re.escape(name)} *(,.*)?=", file_of(one)),),
            ),
        ),
        of_code=False,
    )
