"""Had a killed program just printed the shape of an array that takes gigabytes?"""

from __future__ import annotations

import math
import re

from mgpu.check import Fix
from mgpu.signature import Case
from mgpu.snapshot import Log, UncaughtException

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
    if shown is None or killed is None or shown.file != killed.file or not 0 <= killed.line - shown.last <= _LINES:
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
