"""Did the script wait for an answer of a process that it had started, and that no longer exists?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.snapshot import UncaughtException

from .._wording import at_place
from ._messages import short_name
from ._own_objects import Meaning

_READS = re.compile(r"\b\w*(?:remote|conn|connection|pipe|parent|child|sock)\w*\.recv(?:_bytes)?\(|\._recv\(")

_OF_FILE = re.compile(r"torch/serialization\.py in |torch/_weights_only_unpickler\.py in ")


def other_end_gone(one: UncaughtException) -> Meaning | None:
    """Explain the end of a pipe: multiprocessing raises EOFError without a message if the other process ended."""
    if short_name(one.type) != "EOFError" or one.message or _OF_FILE.search(" ".join(one.frames)):
        return None
    if (one.code or "").strip() != "raise EOFError" and not _READS.search(one.own_code or one.code or ""):
        return None
    where = at_place(one)
    return Meaning(
        f"the process at the other end of the pipe has ended{where}",
        "The script waited for the answer of a process that it had started (an environment, a worker, a manager). That "
        "process crashed, was killed or exited, and its own output has the reason.",
        (
            Fix(
                "Look for the first error of that process above, and whether the kernel killed it (host memory).",
                ("sudo dmesg -T | grep -i 'killed process' | tail", "free -g", "df -h /dev/shm"),
            ),
            Fix(
                "If it left no message, run what it does in the main process, with one environment or worker, and with "
                "Python's fault handler.",
                ("PYTHONFAULTHANDLER=1 python train.py",),
            ),
        ),
    )
