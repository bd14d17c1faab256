"""Has a predicted mask another resolution than the target that it is compared with?"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

from .._followed_values import parsed

_PREDICTED = re.compile(r"pred|output|logits|(?:^|_)outs?(?:_|$)", re.IGNORECASE)
_TARGET = re.compile(r"target|label|(?:^|_)(?:gt|mask|masks|true|truth)(?:_|$)", re.IGNORECASE)
_OF_MASKS = re.compile(r"i_?o_?u|dice|jaccard|segment|mask", re.IGNORECASE)
_OF_METRIC = re.compile(r"metric|i_?o_?u|jaccard|evaluat|validat", re.IGNORECASE)
_DIMENSION = re.compile(r"at non-singleton dimension (\d+)")
_MOST = 32  # times that the features of a network are smaller than its input


def _named(node: ast.expr) -> str | None:
    """Return the only name in one side of an operator."""
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return names.pop() if len(names) == 1 else None


def _sides(code: str) -> tuple[str, str] | None:
    """Return the names on the two sides of the only operator of a line: torch calls their sizes a and b."""
    if not (_PREDICTED.search(code) and _TARGET.search(code)):
        return None
    tree = parsed(code)
    found = [node for node in ast.walk(tree) if isinstance(node, ast.BinOp)] if tree else []
    names = (_named(found[0].left), _named(found[0].right)) if len(found) == 1 else (None, None)
    return (names[0], names[1]) if names[0] and names[1] else None


def smaller_prediction(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a prediction whose height or width is a power of two times smaller than the target's."""
    code = raised.code or "" if raised else ""
    dim, sides = _DIMENSION.search(raised.message) if raised else None, _sides(code)
    if raised is None or dim is None or sides is None or int(dim[1]) < 2 or "size of tensor a" not in raised.message:
        return None
    of_a = bool(_PREDICTED.search(sides[0])) and bool(_TARGET.search(sides[1])) and not _PREDICTED.search(sides[1])
    of_b = bool(_PREDICTED.search(sides[1])) and bool(_TARGET.search(sides[0])) and not _PREDICTED.search(sides[0])
    a, b = int(groups["a"]), int(groups["b"])
    predicted, target = (a, b) if of_a else (b, a)
    times = target // max(1, predicted)
    of_images = _OF_MASKS.search(f"{code} {raised.place}")
    if of_a == of_b or not of_images or predicted * times != target or times not in (2, 4, 8, 16, _MOST):
        return None
    names = sides if of_a else (sides[1], sides[0])
    metric = (
        " The line computes a metric: if the steps of the training worked, the loss resizes the prediction, and the "
        "metric does not."
        if _OF_METRIC.search(raised.place or "")
        else ""
    )
    return Meaning(
        f"the prediction is {times} times smaller than the target: {names[0]} has the size {predicted} and {names[1]} "
        f"{target} in dimension {dim[1]} ({raised.place})",
        f"The output of a segmentation model often has a fraction of the input's resolution, and the target has all of "
        f'it.{metric} The line is "{code}".',
        (
            Fix(
                "Resize the prediction to the target before that line, while it still holds logits.",
                (
                    python(
                        "logits = F.interpolate(logits, size={:name}.shape[-2:], mode='bilinear', align_corners=False)",
                        names[1],
                    ),
                ),
            ),
            Fix("Let the model's head give its output in the resolution of the input."),
        ),
        complete=True,
    )
