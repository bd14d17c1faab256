"""How do two sizes in a message relate: one token more, padded, a multiple, the last batch?"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from mgpu.snapshot import Log

_SHAPE = re.compile(r"\d+")
OF_HEAD = re.compile(
    r"size mismatch for (?:\S*[._])?(?:classif\w*|(?:\w+_)?heads?|score|fc|out_proj|cls|logits|num_classes|"
    r"(?:cls|roi|bbox)_(?:score|pred))[._:]"
)
_ADDED_TOKENS = 2048  # most tokens that people add
_PADDINGS = (128, 64, 8)
_MOST_RANKS = 16  # that share a tensor
_MOST_PARTS = 256  # ranks, heads or samples


def sizes(pattern: str) -> Callable[[str, Log], str]:
    """Return a remark on the two sizes or shapes that the pattern's groups `a` and `b` have in a message."""
    searched = re.compile(pattern)

    def remark(text: str, log: Log) -> str:
        found = searched.search(text)
        return _relation(_numbers(found["a"]), _numbers(found["b"]), splits_tensors(log)) if found else ""

    return remark


def splits_tensors(log: Log) -> bool:
    """Whether the log shows that ranks share tensors: tensor, sequence or context parallelism over two or more."""
    return any(one.name in ("tensor_parallel", "sequence_parallel") for one in log.shows)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in _SHAPE.findall(text)]


def _relation(a: list[int], b: list[int], split: bool) -> str:
    """Return a sentence about the only dimension that differs; empty if the numbers say nothing."""
    if len(a) != len(b):
        return _elements(math.prod(a), math.prod(b), split) if 1 in (len(a), len(b)) else ""
    pairs = [(one, other) for one, other in zip(a, b, strict=True) if one != other]
    if len(pairs) != 1 or min(pairs[0]) < 2:
        return ""
    small, large = sorted(pairs[0])
    return _between(small, large, split)


def _between(small: int, large: int, split: bool) -> str:
    if large % small == 0 and large // small <= _MOST_PARTS:
        return _parts(large // small, split)
    if large - small == 1:
        return " The sizes differ by 1: something was shifted, or one special token was added, on one side only."
    return ""


def of_vocabularies(small: int, large: int) -> str:
    """Return what two sizes of a vocabulary mean; empty if neither is the other one with more tokens."""
    padding = next((one for one in _PADDINGS if large == -(-small // one) * one), None)
    if large - small == 1 or (padding is None and large - small <= _ADDED_TOKENS):
        return f" {large:,} is {large - small:,} more than {small:,}: tokens were added to one of them only."
    if padding:
        return f" {large:,} is {small:,} rounded up to a multiple of {padding}: one of them is padded."
    return ""


def _elements(a: int, b: int, split: bool) -> str:
    small, large = sorted((a, b))
    return _parts(large // small, split) if small and large % small == 0 and 1 < large // small <= _MOST_PARTS else ""


def _parts(times: int, split: bool) -> str:
    """Return what one size being a multiple of the other means. `split`: ranks share tensors in this run."""
    ranks = f", or a split over {times} ranks" if split and times <= _MOST_RANKS else ""
    return (
        f" One is exactly {times} times the other: {times} samples, parts or grouped heads that only one side counts"
        f"{ranks}."
    )
