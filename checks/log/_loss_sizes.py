"""Do the prediction and the target that a loss compares have different sizes, and how do these relate?"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

from .._followed_values import parsed
from .._wording import at_place

# These expand the prediction and the target with torch.broadcast_tensors(input, target): a is the prediction's size.
_LOSS = re.compile(r"^torch/nn/functional\.py in (?P<name>mse_loss|l1_loss|smooth_l1_loss|huber_loss)$")
_DIMENSION = re.compile(r"size of tensor a .* at non-singleton dimension (?P<number>\d+)")
_LAST = 3  # frames: of the loss, of broadcast_tensors, of torch.functional
_LONGEST = 70  # characters of an argument in a sentence
_TWO = 2


def prediction_and_target(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a loss whose prediction and target cannot be expanded to one shape."""
    found = _DIMENSION.search(raised.message) if raised else None
    losses = [match for frame in raised.frames[-_LAST:] if (match := _LOSS.search(frame))] if raised else []
    if raised is None or found is None or not losses or {*raised.packages} - {"", "torch"}:
        return None
    predicted, target, dim = int(groups["a"]), int(groups["b"]), int(found["number"])
    if dim > 1 and abs(predicted - target) <= 1:
        return None  # feature maps whose size was rounded, which a case explains
    at = at_place(raised)
    code = f' The line is "{raised.own_code}".' if raised.own_code else ""
    return Meaning(
        f"the prediction and the target of {losses[-1]['name']} have different sizes: {predicted} and {target} in "
        f"dimension {dim}{at}",
        f'{_names(raised)}{_relation(predicted, target, dim)} A warning of torch before the error ("Using a target '
        f'size ... that is different to the input size") has the whole shapes.{code}',
        (
            Fix("Print both shapes just before that line.", ("print(prediction.shape, target.shape)",)),
            _fix(predicted, target, dim),
        ),
        complete=True,
    )


def _relation(predicted: int, target: int, dim: int) -> str:
    small, large = sorted((predicted, target))
    times = large // small if large % small == 0 else 0
    which = "prediction" if predicted > target else "target"
    more = f"The {which} has exactly {times} times as many values in that dimension. " if times else ""
    if dim > 1:
        return f"{more}The model's output has another height, width or length than the target."
    if dim:
        return f"{more}The model gives another number of values per sample, or another length, than the target has."
    if times:
        return (
            f"{more}Either it has several values per sample where the other has one, or it holds the samples of "
            f"{times} batches: a list or a folder that grows from batch to batch and is not emptied."
        )
    return (
        "They are of different samples: a batch that is smaller than the others (the last one) compared with something "
        "of a fixed batch size, or one of the two was filtered or cut."
    )


def _fix(predicted: int, target: int, dim: int) -> Fix:
    if dim:
        return Fix("Change the model's output, or the target, so that both have the same shape.")
    if max(predicted, target) % min(predicted, target) == 0:
        return Fix("Take the values of this batch only, with the target's shape, before the loss.")
    return Fix(
        "Take the batch size from the batch itself, or leave out the last batch.",
        ("n = target.shape[0]", "DataLoader(..., drop_last=True)"),
    )


def _names(raised: UncaughtException) -> str:
    """Return which expressions of the script's line are the prediction and the target; "" if that is not clear."""
    tree = parsed(raised.own_code or "")
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)] if tree else []
    outer = calls[:1]  # ast.walk begins outside
    if not outer or len(outer[0].args) != _TWO or outer[0].keywords:
        return ""
    first, second = (ast.unparse(one) for one in outer[0].args)
    if max(len(first), len(second)) > _LONGEST:
        return ""
    return f"{first} is the prediction, and {second} the target. "
