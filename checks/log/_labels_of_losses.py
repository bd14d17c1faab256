"""How do labels whose shape the cross-entropy loss does not expect relate to the output?

torch reports the shape of the labels that the output needs: that of the output without dimension 1, which has the
classes.
"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.snapshot import UncaughtException

from .._wording import at_place
from ._own_objects import Meaning

_SHAPES = re.compile(
    r"Expected target size [(\[](?P<wanted>\d+(?:, \d+)+)[)\]], got (?:torch\.Size\(\[|\[)(?P<got>\d+(?:, \d+)*)\]"
)
_LOOK = "print(out.shape, y.shape)"
_RULE = "cross_entropy expects the classes in dimension 1 of the output, and one label for each position of the rest."


def other_shape(one: UncaughtException) -> Meaning | None:
    """Explain an output with a dimension too many, or whose classes are its last dimension; None: neither shows."""
    found = _SHAPES.search(one.message)
    if found is None:
        return None
    wanted, got = (tuple(map(int, found[name].split(", "))) for name in ("wanted", "got"))
    at = at_place(one)
    if len(wanted) == len(got) + 1 and wanted[: len(got)] == got:
        return _one_too_many(wanted, got, at)
    if len(wanted) == len(got) == 2 and wanted[0] == got[0]:
        return _classes_last(wanted, got, at)
    return None


def _one_too_many(wanted: tuple[int, ...], got: tuple[int, ...], at: str) -> Meaning:
    shape = ", ".join(map(str, (wanted[0], "?", *wanted[1:])))
    return Meaning(
        f"the output that the loss gets has a dimension too many, ({shape}), for labels of the shape "
        f"({', '.join(map(str, got))}){at}",
        f"{_RULE} The labels are one per sample. If {wanted[-1]} is the number of classes, the dimension before it "
        "should not be there: the output of all tokens or positions where that of one is meant, an index that keeps "
        "its dimension, or unsqueeze().",
        (
            Fix(
                "Print both shapes, and take one output per sample.",
                (_LOOK, "out = out[:, 0]  # of the first token", "x[torch.arange(len(x)), positions]  # one for each"),
            ),
        ),
    )


def _classes_last(wanted: tuple[int, ...], got: tuple[int, ...], at: str) -> Meaning:
    return Meaning(
        f"the output and the labels of the loss do not fit: the output needs labels of the shape "
        f"({wanted[0]}, {wanted[1]}), and they are ({got[0]}, {got[1]}){at}",
        f"{_RULE} If {wanted[1]} is the number of classes (or the vocabulary), the output is (batch, length, classes): "
        "the classes must be moved to dimension 1. If it is a length, output and labels have different lengths: "
        "tokens were added, cut or shifted on one side only.",
        (
            Fix(
                "Print both shapes. If the classes come last, move them, or give the loss all positions as one list.",
                (
                    _LOOK,
                    "F.cross_entropy(out.transpose(1, 2), y)  # (batch, classes, length)",
                    "F.cross_entropy(out.flatten(0, 1), y.flatten())",
                ),
            ),
        ),
    )
