"""What do the sizes in a message say of a tensor that a script reshapes, splits, gives to a layer or compares?

Explanations for rows of `tensors.py`, in scripts of the user's own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

from .._wording import at_place

_FIRST_OF_IMAGE = 2  # batch and channels come first
_WHOLE_SHAPE = re.compile(r"\.(?:reshape|view)\(\s*(?:[\w.]+\.shape|[\w.]+\.size\(\)|\*[\w.]+\.shape)\s*\)")
_PRINT = Fix("Print the shape just before that line.", ("print(x.shape)",))
_FROM_INPUT = Fix(
    "Take what is left from the tensor, and make the next layer for that size.",
    ("x = x.flatten(1)  # (batch, features)", "nn.LazyLinear(10)  # takes its size from the first input"),
)
_OF_BATCH = Fix(
    "Take the batch size from the tensor, or leave out a smaller last batch in training.",
    ("x.reshape(x.shape[0], -1)", "DataLoader(..., drop_last=True)"),
)


def _sizes(text: str) -> list[int]:
    return [int(one) for one in re.findall(r"-?\d+", text)]


def _plain(raised: UncaughtException | None) -> bool:
    """Whether only the script and torch are among the frames."""
    return raised is not None and bool(raised.frames) and not {*raised.packages} - {"", "torch"}


def reshaped(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a shape, written in the script's own line, that does not fit the number of elements."""
    own = raised is not None and _plain(raised) and raised.raised_in_own_code
    sizes, count = _sizes(groups["shape"]), int(groups["size"])
    if raised is None or not own or _WHOLE_SHAPE.search(raised.code or "") or not sizes or 0 in sizes:
        return None
    why, fixes = _with_free_size(sizes, count) if -1 in sizes else _all_written(sizes, count)
    line = f' The line is "{raised.code}".' if raised.code else ""
    return Meaning(
        f"a tensor of {count} elements cannot be reshaped to [{groups['shape']}]{at_place(raised)}",
        why + line,
        (_PRINT, *fixes),
        complete=True,
    )


def _with_free_size(sizes: list[int], count: int) -> tuple[str, tuple[Fix, ...]]:
    rest = -math.prod(sizes)
    first = sizes[0] == -1
    free = ", the number of rows, is free, so the batch size is not at fault" if first else " is free"
    why = (
        f"The size -1{free}. The others have the product {rest:,}, and {count:,} is not a multiple of it: the input "
        "has another size than the code was written for (image size, length, channels, or a layer that was changed)"
    )
    if first:
        return f"{why}.", (_FROM_INPUT,)
    return f"{why}, or a size of the batch is written as a number and the last batch is smaller.", (_OF_BATCH,)


def _all_written(sizes: list[int], count: int) -> tuple[str, tuple[Fix, ...]]:
    product, rest = math.prod(sizes), math.prod(sizes[1:])
    why = f"The shape has {product:,} elements, and the tensor {count:,}."
    if len(sizes) > 1 and count and count % rest == 0:
        return (
            f"{why} With the other sizes it would have {count // rest:,} in place of {sizes[0]:,} in the first "
            "dimension. If that is the batch: it is written as a number, and this batch has another size (the last "
            "one), or samples were dropped or repeated.",
            (_OF_BATCH,),
        )
    return (
        f"{why} The sizes were written, or computed, for another input: another image size, length, number of channels "
        "or heads, or another layer before it.",
        (_FROM_INPUT,),
    )


def split(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain parts whose sum is not the size of the dimension."""
    if raised is None or not _plain(raised):
        return None
    return Meaning(
        f"a dimension of {groups['size']} was split into [{groups['parts']}], which have the sum "
        f"{sum(_sizes(groups['parts']))}{at_place(raised)}",
        "The parts must add up to the dimension. What made the tensor has another number of outputs than the split "
        "expects (a mean and a variance need twice as many), the parts are of another configuration, or dim= names "
        "another dimension.",
        (_PRINT, Fix("Compute the parts from the tensor.", ("mean, log_var = x.chunk(2, dim=-1)",))),
        complete=True,
    )


def layer_dimensions(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain input of a layer with too many or too few dimensions, by their number."""
    has, few, many = len(_sizes(groups["size"])), int(groups["few"]), int(groups["many"])
    at = at_place(raised) if raised else ""
    takes = (
        f"It takes {few} dimensions, (channels, ...), of a sample, or {many}, (batch, channels, ...), and gets {has}. "
    )
    title = f"{groups['layer']} got input of the size {groups['size']}, which has too"
    if has < few:
        return Meaning(
            f"{title} few dimensions{at}",
            f"{takes}The channels are missing (gray images, one series of values), or the input was flattened to "
            "(batch, features) before.",
            (
                _PRINT,
                Fix("Add the channels, or bring it back to its form.", ("x = x.unsqueeze(1)", "x.view(n, 1, 28, 28)")),
            ),
        )
    if has > many:
        return Meaning(
            f"{title} many dimensions{at}",
            f"{takes}A collate function or unsqueeze() added a batch dimension that was there already, a sample has "
            "several images, frames or crops, or the layer is for other data (1d, 2d, 3d).",
            (_PRINT, Fix("Join or remove the dimension.", ("x.flatten(0, 1)", "x.squeeze(0)"))),
        )
    return None


def compared(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain labels and predictions of different shapes, by where they differ."""
    found = _relation(_sizes(groups["a"]), _sizes(groups["b"])) if raised else None
    if raised is None or found is None:
        return None
    at = at_place(raised)
    why, fix = found
    return Meaning(
        f"labels have the shape {groups['a']}, but predictions {groups['b']}{at}",
        f"This loss compares element by element, so both need one shape. {why}",
        (Fix("Print both shapes just before that line.", ("print(out.shape, y.shape)",)), fix),
    )


def _relation(labels: list[int], output: list[int]) -> tuple[str, Fix] | None:
    """Return the reason and the fix; None if the shapes show none."""
    if math.prod(labels) == math.prod(output):
        return "A dimension of size 1 is there on one side only, or the dimensions are in another order.", Fix(
            "Give both the same shape.", ("loss_fn(out.squeeze(-1), y.float())", "y = y.unsqueeze(1)")
        )
    if len(labels) == len(output) - 1 and labels == [output[0], *output[2:]]:
        return "The labels are probably class numbers, where one value per class is expected.", Fix(
            "Use the loss for class numbers, or one value per class.",
            ("F.cross_entropy(out, y)", "F.one_hot(y, num_classes).float()"),
        )
    return _differing(labels, output) if len(labels) == len(output) else None


def _differing(labels: list[int], output: list[int]) -> tuple[str, Fix] | None:
    differ = [place for place in range(len(labels)) if labels[place] != output[place]]
    if differ == [0]:
        return (
            f"They are of different numbers of samples, {labels[0]} and {output[0]}: labels of a fixed batch size with "
            "a smaller last batch, or one of the two was filtered, repeated or flattened.",
            Fix(
                "Make the labels from the output, or take both from one batch.",
                ("y = torch.ones_like(out)", "DataLoader(..., drop_last=True)"),
            ),
        )
    if min(differ) >= _FIRST_OF_IMAGE:
        return (
            "The model's output has another height, width or length than the labels: convolutions without padding, "
            "strides, or images that were resized on one side only.",
            Fix(
                "Bring both to one size.",
                ("out = F.interpolate(out, size=y.shape[-2:])", "nn.Conv2d(c, c, 3, padding=1)"),
            ),
        )
    return (
        (
            "The model has another number of outputs per sample than there are labels: its last layer is for another "
            "number of classes, or the labels are class numbers.",
            Fix(
                "Make the last layer for the labels, or the labels for the classes.",
                ("nn.Linear(features, y.shape[1])", "F.one_hot(y, num_classes).float()"),
            ),
        )
        if differ == [1]
        else None
    )


def rows_of_loss(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain different numbers of predictions and labels in a script of torch's alone."""
    if raised is None or not _plain(raised):
        return None
    output, labels = int(groups["a"]), int(groups["b"])
    small, large = sorted((output, labels))
    times = large // small if small and large % small == 0 else 0
    why = "They are of different numbers of samples: one of the two was filtered, cut, repeated or is of another batch."
    fix = Fix("Take both from the same batch.", ("for x, y in loader: loss = criterion(model(x), y)",))
    if times and output > labels:
        why = (
            f"There are exactly {times} rows of the output for each label. Probably view(-1, n) or reshape() makes "
            "several rows of one sample, because n is smaller than its features, or the output has a row for each "
            "step, pixel or image where one per sample is meant."
        )
        fix = Fix("Keep the batch dimension when you flatten.", ("x = x.flatten(1)", "x = x.view(x.shape[0], -1)"))
    elif times:
        why = (
            f"There are exactly {times} labels for each row of the output. Probably the labels are one per step, pixel "
            "or class and were flattened, or view(-1, n) joins several samples in one row, because n is larger than "
            "their features."
        )
        fix = Fix("Keep the batch dimension when you flatten.", ("x = x.flatten(1)", "labels = labels.argmax(1)"))
    return Meaning(
        f"the loss got {output} predictions and {labels} labels{at_place(raised)}",
        why,
        (Fix("Print both shapes just before that line, and after each layer.", ("print(out.shape, y.shape)",)), fix),
        complete=True,
    )
