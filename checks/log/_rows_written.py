"""Does the code write the number of rows of a batch itself, and does this batch have another number?

The values of a launch show how many rows there are: the last batch is smaller, or each rank gets a part of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from mgpu.snapshot import Definition, LineValues, UncaughtException

_SHAPE = re.compile(r"shape '\[(?P<shape>[-\d, ]+)\]' is invalid for input of size (?P<size>\d+)")
_MATRICES = re.compile(r"mat1 and mat2 shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x\d+\)")
_TENSOR = re.compile(r"(?:\w+ )?[a-z]+\d* \[(?P<shape>\d+(?:, \d+)*)\] on ")
_RESHAPED = re.compile(r"\.(?:view|reshape)\(\s*\(?(?P<rows>[A-Za-z_][\w.]*|\d+),\s*-1\)?\s*\)")


def rows_written(one: UncaughtException) -> Iterator[str]:
    """Yield what the batch has, and what the code writes in its place; nothing if that is not certain."""
    if found := _SHAPE.search(one.message):
        yield from _of_reshape([int(part) for part in found["shape"].split(",")], int(found["size"]), one.recorded)
    elif found := _MATRICES.search(one.message):
        rows, features, expected = map(int, found.groups())
        yield from _of_layer(rows, features, expected, one)


def _of_reshape(shape: list[int], count: int, lines: tuple[LineValues, ...]) -> Iterator[str]:
    written, rest = shape[0], math.prod(shape[1:])
    if written < 1 or len(shape) < 2 or not count or not rest:
        return
    here = [(name, sizes) for name, sizes in _tensors(lines[:1]) if math.prod(sizes) == count]
    if len(here) == 1:
        name, sizes = here[0]
        rows = sizes[0]
        fits = count == rows * rest if rest > 0 else not (count // rows) % -rest
    elif here or rest < 1:
        return
    else:  # the tensor has no name on the line: the batch that the caller gave has as many rows as would fit
        rows = count // rest
        names = [name for name, sizes in _tensors(lines) if sizes[0] == rows]
        fits, name = bool(names) and not count % rest, names[0] if names else ""
    if fits and rows != written:
        yield (
            f"{name} has {rows:,} rows, and this line writes {written:,}{_name_of(written, lines)} for the first "
            "dimension: the number of rows must come from the tensor."
        )


def _of_layer(rows: int, features: int, expected: int, one: UncaughtException) -> Iterator[str]:
    right, odd = divmod(rows * features, expected) if expected else (rows, 0)  # 0: a weight is empty
    if odd or right == rows:
        return
    batch = next((name for name, sizes in _tensors(one.recorded[1:]) if sizes[0] == right), None)
    made = next((part for part in one.defined if _reshapes(part)), None)
    if batch is not None and made is not None:
        yield (
            f"{batch} has {right:,} rows, and {made.place.partition(' ')[0]} makes {rows:,} rows of them: {made.code}. "
            f"So each row has {features:,} values instead of {expected:,}. The number of rows must come from the "
            "tensor: x.view(x.shape[0], -1)."
        )


def _reshapes(part: Definition) -> bool:
    return part.kind == "set" and _RESHAPED.search(part.code) is not None


def _tensors(lines: tuple[LineValues, ...]) -> Iterator[tuple[str, list[int]]]:
    for line in lines:
        for name, text in line.values.items():
            if found := _TENSOR.match(text):
                yield name, [int(part) for part in found["shape"].split(",")]


def _name_of(number: int, lines: tuple[LineValues, ...]) -> str:
    """Return " (self.batch_size)" if one name of the line has this value."""
    values: Mapping[str, str] = lines[0].values if lines else {}
    names = [name for name, text in values.items() if text == str(number)]
    return f" ({names[0]})" if len(names) == 1 else ""
