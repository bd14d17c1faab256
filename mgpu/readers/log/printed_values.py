"""Which values did the program print near an exception: sizes of tensors, or a tensor with a padding value?

A script that prints them was being searched for the same fault. They come before the traceback, or after it: what is
printed to a file is written when Python exits, the traceback at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mgpu.readers.log.learned_prefixes import HEAD
from mgpu.readers.log.line import parse_line, shown_text
from mgpu.readers.log.said_before import first_head

_LINES = 8  # that are not empty, with sizes, before the traceback
_AROUND = 60  # lines in which a tensor is printed, and of the output after the traceback
_MOST = 3  # lines with sizes that belong together
_LONGEST, _LONGEST_SEARCHED = 400, 4096  # characters of a line
_BAR = re.compile(r"\s*[━╸╺█▏▎▍▌▋▊▉]{2}.*")  # a progress bar that was drawn in the same line
_SIZES = re.compile(
    r"torch\.Size\(\[[\d, ]+\]\)|\bshape\b\W{0,12}[(\[]\d+(?:, ?\d*)*[)\]]|^\(\d+(?:, ?\d+)+,?\)(?: |$)", re.I
)
_OF_LIBRARY = re.compile(r"(?:site|dist)-packages|\b[A-Za-z]*Warning\b|^\s*File |^\s*(?:print|raise|return|assert)\b")
_TENSOR = re.compile(r"(?P<name>[^\n()\[\]]{0,60})\btensor\((?P<values>\[[\[\]\d\s,.-]*)")
_PADDING = re.compile(r"(?<![\d-])-1(?:00)?(?![\d.])")
_ID = re.compile(r"(?<![-\d])\d{2,}(?![\d.])")  # larger than 9: not a mask, a class or a token type
_FLOAT = re.compile(r"\d\.(?:\d|\s|,|\])")
_NOT_IDS = re.compile(r"(?:label|target|mask|tgt|loss|logit|pred|\by)s?\w*['\"]?\W*$", re.I)


def find(lines: Sequence[str], last: int, rank: int | None) -> tuple[str, ...]:
    """Return such lines of the same rank, in their order.

    `lines`: of the end of the log. `last`: the place of the exception among them.
    """
    head = first_head(lines, last)
    if head is None:
        return ()
    end = next((at for at in range(last + 1, len(lines)) if HEAD in lines[at]), len(lines))
    before = _texts(lines[max(0, head - _AROUND) : head], rank)
    after = _texts(lines[last + 1 : end][-_AROUND:], rank)
    sizes = _sizes([text for text in before if text.strip()][-_LINES:]) or _sizes(after)
    return (*sizes, *_tensors(before), *_tensors(after))


def _texts(lines: Sequence[str], rank: int | None) -> list[str]:
    said = map(parse_line, lines)
    return [_text(one.text) for one in said if one.rank is None or rank is None or one.rank == rank]


def _text(text: str) -> str:
    """Return a line to search; one of which a part can be shown has its secrets masked first."""
    text = text.rstrip()[:_LONGEST_SEARCHED]
    return shown_text(text) if "tensor(" in text or _SIZES.search(text) else text[:_LONGEST]


def _sizes(texts: Sequence[str]) -> list[str]:
    """Return the last lines with sizes that were printed one after the other."""
    found: list[str] = []
    for text in reversed(texts):
        if _SIZES.search(text) and not _OF_LIBRARY.search(text) and len(found) < _MOST:
            found.insert(0, _BAR.sub("", text).strip())
        elif found:
            break
    return found


def _tensors(texts: Sequence[str]) -> Iterator[str]:
    """Yield the rows with -1 or -100 of tensors of integers, one of each, without those that are labels or masks."""
    text = "\n".join(texts)
    if "tensor(" not in text:  # the pattern takes long to find that out
        return
    for tensor in _TENSOR.finditer(text):
        values = tensor["values"]
        if _NOT_IDS.search(tensor["name"]) or _FLOAT.search(values) or not _ID.search(values):
            continue
        row = next((one for one in values.split("\n") if _PADDING.search(one)), None)
        if row is not None:
            cut = "" if values.startswith(row) else "... "
            yield f"{tensor['name']}tensor({cut}{' '.join(row.split())}".strip()
