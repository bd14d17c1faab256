"""What do the samples of one batch have that torch's default_collate cannot join? And what file ended too early?

Texts for `exceptions.py`: the script has no frame in these tracebacks that shows it.
"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.snapshot import UncaughtException

from .._wording import at_place
from ._messages import short_name
from ._own_objects import Meaning

_COLLATES = "torch/utils/data/_utils/collate.py in "
_OF_NONE = re.compile(r"object of type '(?P<got>\w+)' has no len\(\)|'(?P<other>\w+)' object is not iterable")
_LACKS = re.compile(r"'(?P<got>\w+)' object has no attribute '(?:numel|size|shape|storage|_typed_storage)'")
_READS = re.compile(r"torch/(?:serialization|_weights_only_unpickler)\.py in ")
_CHECK = Fix(
    "Look at the samples without a batch, and find the one that differs.",
    ("for index in range(len(dataset)): print(index, type(dataset[index]))",),
)


def _of_forms(one: UncaughtException) -> tuple[str, str] | None:
    short = short_name(one.type)
    if short == "KeyError":
        return (
            f"the samples of a batch have different keys: one has no {one.message}",
            "It takes the keys of the first sample, and reads them from all others.",
        )
    if found := (_OF_NONE.search(one.message) or _LACKS.search(one.message)):
        got = found["got"] or found["other"]
        what = "None" if got == "NoneType" else f"an {got}" if got == "int" else f"a {got}"
        return (
            f"one sample of a batch is {what}, or has {what} in a field, and the first sample has something else there",
            "__getitem__ returns it on some of its paths: a file that could not be read, a branch without return, or a "
            "column whose values have different types.",
        )
    return None


def uncollated(one: UncaughtException) -> Meaning | None:
    """Explain samples of different forms, which the DataLoader's default_collate joins."""
    if not one.frames or not one.frames[-1].startswith(_COLLATES) or not (forms := _of_forms(one)):
        return None
    title, why = forms
    return Meaning(
        title,
        f"default_collate joins samples of one form. {why}",
        (
            _CHECK,
            Fix(
                "Return the same form from each path. Leave out samples only if that is meant, and count them: with "
                "several ranks, each still needs the same number of batches.",
                ("samples = [sample for sample in samples if sample is not None]",),
            ),
        ),
        of_code=False,
    )


def ended_file(one: UncaughtException) -> Meaning | None:
    """Explain a file of torch.save or pickle that is empty or cut: EOFError without a reason, or "Ran out of input"."""
    if short_name(one.type) != "EOFError" or not any(map(_READS.search, one.frames)):
        return None
    return Meaning(
        f"torch.load finds no data, or the data ends too early{at_place(one)}",
        "The run that wrote it was stopped while it saved, the disk was full, or the copy or download is not complete. "
        "A buffer (io.BytesIO) that was just written must go back to its begin, and another rank may still be writing "
        "the file.",
        (
            Fix(
                "Look at its size, and load an earlier checkpoint if it is too small.", ("ls -l CHECKPOINT", "df -h .")
            ),
            Fix("Read a buffer from its begin.", ("buffer.seek(0)",)),
            Fix(
                "Write under another name first, so that no half file has the final one.",
                ("torch.save(state, 'last.tmp'); os.replace('last.tmp', 'last.pt')",),
            ),
        ),
    )
