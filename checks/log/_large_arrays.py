"""Which array was too large for the memory: one that was refused, or one whose shape a killed program had printed?"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Case, Meaning
from mgpu.snapshot import Log, UncaughtException

_ARRAY = re.compile(
    r"Unable to allocate (?P<size>\d+(?:\.\d*)?) (?P<unit>[MGTP]iB) for an array with shape \((?P<shape>[\d, ]+)\)"
)
_GIB = {"MiB": 1 / 1024, "GiB": 1.0, "TiB": 1024.0, "PiB": 1024.0**2}
_LARGE_GIB = 48  # above that, the array alone is the reason; below, what else is in memory, too
_NAMED_GIB = 1
_SHAPE = re.compile(r"[\[(](?P<sizes>\d{1,9}(?:, ?\d{1,9}){1,5}),?[\])]")
_LARGE = 2**30  # elements: 4 GiB in fp32
_LINES = 10  # between the shape and the report of the kill
_KILLS = frozenset(
    {
        "log_shell_reports_kill",
        "log_rank_killed",
        "log_killed_for_memory",
        "log_slurm_out_of_memory",
        "log_ray_memory_full",
        "log_host_memory_refused",
    }
)


def _just_printed(log: Log, raised: UncaughtException | None) -> bool:
    """Whether a large shape is among the last lines before the first report of a kill."""
    shown = next((one for one in log.shows if one.name == "array_shape_printed"), None)
    killed = next((one for one in log.seen if one.signature in _KILLS and not one.survived), None)
    if shown is None or killed is None or shown.file != killed.file or not 0 < killed.line - shown.last <= _LINES:
        return False
    found = _SHAPE.search(shown.latest or shown.text)
    return found is not None and math.prod(map(int, re.split(", ?", found["sizes"]))) >= _LARGE


# fmt: off
LARGE_ARRAY = Case(
    _just_printed,
    ", just after it printed the shape of an array of more than 4 GiB: host memory probably ran out",
    "The product of the sizes in the last lines, times 4 bytes (fp32) or 8 (fp64), is the memory of that array alone. "
    "What is computed of it (a difference, a square, a copy, another type) takes as much each time. Usually all "
    "predictions and targets of a test set were collected.",
    (Fix("Compute the metrics batch by batch, and keep their sums instead of the arrays.",
         ("total += ((pred - true) ** 2).sum(); count += pred.size",)),
     Fix("If the arrays are needed, write them to a file that is mapped into memory, or use a smaller type.",
         ("np.lib.format.open_memmap('pred.npy', mode='w+', dtype='float16', shape=shape)",)),
     Fix("Check whether memory ran out.", ("sudo dmesg -T | grep -iE 'out of memory|oom-kill' | tail", "free -g"))),
    "preds shape: (90000, 96, 512)",
    "https://numpy.org/doc/stable/reference/generated/numpy.lib.format.open_memmap.html")
# fmt: on


def size_of_array(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain one array of numpy by its size; None for a small one, and for those of pandas, which has a case."""
    found = _ARRAY.search(raised.message) if raised else None
    size = float(found["size"]) * _GIB[found["unit"]] if found else 0.0
    if found is None or raised is None or size < _NAMED_GIB or (size < _LARGE_GIB and "pandas" in raised.packages):
        return None
    what = f"{found['size'].rstrip('.')} {found['unit']}: shape ({found['shape']})"
    title = f"numpy could not allocate one array of {what}"
    if size < _LARGE_GIB:
        return _not_free(title)
    return Meaning(
        title,
        "Its size is the product of all dimensions. Two of them that grow with the input (all pairs of nodes or "
        "tokens, one-hot classes, padding to the longest sample) make it too large for a long one.",
        (
            Fix(
                "Use a smaller type, a sparse array or a file.",
                (
                    "np.zeros(shape, dtype=np.float32)",
                    "scipy.sparse.coo_matrix(...)",
                    "np.lib.format.open_memmap('a.npy', mode='w+', shape=shape)",
                ),
            ),
            Fix("Skip or cut samples that are far larger than the others, or compute it in parts."),
        ),
    )


def _not_free(title: str) -> Meaning:
    return Meaning(
        title,
        "So much memory was not free. Its size is the product of all dimensions, times the bytes of its type. What "
        "the program holds already counts, too: other arrays, the same data in another type, loader workers.",
        (
            Fix(
                "Use a smaller type, or compute it in parts.",
                (
                    "np.zeros(shape, dtype=np.float32)  # half of the default, float64",
                    "for part in np.array_split(x, 10): ...",
                ),
            ),
            Fix(
                "Keep it in a file, and delete what is no longer needed before.",
                ("np.lib.format.open_memmap('a.npy', mode='w+', shape=shape)", "del x; gc.collect()"),
            ),
        ),
    )
