"""Which sizes did the program print near a check of sizes that failed, and what are they in its condition?"""

from __future__ import annotations

import re

from mgpu.snapshot import UncaughtException

_COMPARES_SIZES = re.compile(r"\.shape\b|\.size\(|\blen\(|\.ndim\b|\.dim\(\)|\.numel\(\)")
_ONE_SIZE = re.compile(r"(?P<of>[A-Za-z_][\w.]*)\.(?:shape\[(?P<shape>-?\d)\]|size\((?P<size>-?\d)\))")
_SHAPE = re.compile(r"[\[(](\d+(?:, ?\d+)*),?[\])]")


def printed_sizes(one: UncaughtException, condition: str) -> str:
    """Return a sentence with the sizes that the program printed near a check of sizes; empty if there are none."""
    sizes = [text for text in one.printed if "tensor(" not in text] if _COMPARES_SIZES.search(condition) else []
    if not sizes:
        return ""
    shown = ", ".join(f'"{text}"' for text in sizes)
    return f" Near it, the program printed {shown}.{_read_by(condition, _SHAPE.findall(' '.join(sizes)))}"


def _read_by(condition: str, shapes: list[str]) -> str:
    """Return what a condition about one tensor reads of the only shape that was printed: "x.shape[2] is 64"."""
    read = {match[0]: match for match in _ONE_SIZE.finditer(condition)}
    of = {match["of"] for match in read.values()}
    if len(of) != 1 or len(shapes) != 1:
        return ""
    shape = [number.strip() for number in shapes[0].split(",")]
    at = {text: int(match["shape"] or match["size"]) for text, match in read.items()}
    known = [f"{text} is {shape[index]}" for text, index in at.items() if -len(shape) <= index < len(shape)]
    return f" If that is {of.pop()}, {' and '.join(known)}." if known else ""
