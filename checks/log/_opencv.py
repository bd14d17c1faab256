"""Which array did OpenCV refuse? Its message has the check that failed, and the line of code the call."""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.snapshot import UncaughtException

from ._own_objects import PLAIN, Meaning

_ERROR = re.compile(r"error: \(-\d{1,4}:?(?P<kind>[^()]*)\)(?P<check>.*)")
_WHERE = re.compile(r"\s*\bin function '.*")
_CALL = re.compile(rf"\bcv2?\.(?P<call>[\w.]+)\((?P<of>{PLAIN})?")
# What OpenCV reports about an image that imread() could not read: it returns None for it, or an empty array.
_EMPTY = re.compile(r"empty\(\)|ssize\.(?:width|area)|can't open/read|imread|src is not a numpy array|img is not")
_LONGEST = 160


def is_unread_image(text: str) -> bool:
    """Whether OpenCV's message is about an image that was not read; other messages are about an array's form."""
    return bool(_EMPTY.search(text)) or not _ERROR.search(text)


def refused_array(one: UncaughtException) -> Meaning | None:
    """Explain an array of the wrong form."""
    found = _ERROR.search(one.message)
    if (
        one.type != "cv2.error"
        or not found
        or "not implemented" in one.message
        or is_unread_image(f"{one.message} {one.more or ''}")
    ):
        return None
    detail = " ".join(line.lstrip("> ").strip() for line in (one.more or "").split("\n"))
    parts = (found["kind"].strip(), _WHERE.sub("", found["check"]).strip(), " ".join(detail.split())[:_LONGEST])
    said = ": ".join(part for part in parts if part)
    called = _CALL.search(one.own_code or one.code or "")
    call = f"cv2.{called['call']}()" if called else "OpenCV"
    name = called["of"] if called and called["of"] else "image"
    gray = "channels" in said.lower()
    return Meaning(
        f"{call} does not accept the array that {one.place or 'the script'} gives it: {said}",
        "OpenCV checks the channels, the dtype and the size before it computes. Usual reasons: an image with 1 channel "
        "that is converted from RGB, channels first (C, H, W) instead of last, a float64, int64 or boolean array, or a "
        "tensor instead of an array.",
        (
            Fix(
                "Print what it gets, before that line.",
                (python("print(type({:dotted}), {:dotted}.shape, {:dotted}.dtype)", name, name, name),),
            ),
            Fix(
                "Leave out the conversion if the image has one channel already."
                if gray
                else "Convert it to the form that the function expects (uint8 or float32, H x W x channels)."
            ),
        ),
        of_code=False,
    )
