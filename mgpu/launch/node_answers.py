"""Ask the nodes of a run what its ranks do now: through a folder that they share, or that is filled over ssh.

A request is a number in the file REQUEST. A node that has answered has a file ANSWER with this number as its time.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from mgpu import errors, file_reading
from mgpu.errors import MgpuError
from mgpu.hangs import hang_files
from mgpu.snapshot import Hang

ANSWER = "answer.json"
HOSTS = "hosts"  # of a run over ssh: the folder in the run's with those of the hosts
REQUEST = "ask"  # it exists from the start: NFS caches that there is none
ANSWER_S = 20.0  # NFS shows a new file after up to some seconds, and the nodes look once a second
_POLL_S = 0.2
_MOST_DIGITS = 12


class Answers(NamedTuple):
    """What the nodes have answered, by their folders, and those that have not."""

    found: dict[Path, Hang]
    silent: list[Path]


def ask(folder: Path, nodes: Sequence[Path], is_over: Callable[[], bool] = lambda: False) -> Answers:
    """Ask the nodes, and wait for their answers for ANSWER_S at most. Raises MgpuError (3) if that is not possible.

    `is_over`: whether no further answer will come.
    """
    number = request(folder)
    end = time.monotonic() + ANSWER_S
    while time.monotonic() < end and not all(has_answered(node, number) for node in nodes) and not is_over():
        time.sleep(_POLL_S)
    read = {node: hang_files.read(node, ANSWER) if has_answered(node, number) else None for node in nodes}
    found = {node: hang for node, hang in read.items() if hang is not None}
    return Answers(found, [node for node in nodes if node not in found])


def request(folder: Path) -> int:
    """Write the number of a new request, and return it: the time, so that it grows. Raises MgpuError (3)."""
    number = max(int(time.time()), requested(folder) + 1)
    try:
        (folder / REQUEST).write_text(str(number), "ascii")
    except OSError as error:
        raise MgpuError(f"cannot ask the nodes through {folder}: {errors.reason(error)}", errors.UNKNOWN) from None
    return number


def requested(folder: Path) -> int:
    """Return the number of the last request; 0: there was none."""
    with contextlib.suppress(OSError, ValueError):
        return int(file_reading.read_part(folder / REQUEST, most=_MOST_DIGITS, start=0))
    return 0


def answer(node: Path, number: int, hang: Hang) -> None:
    """Store what a node answers."""
    hang_files.write(node, hang, ANSWER)
    with contextlib.suppress(OSError):
        os.utime(node / ANSWER, (number, number))


def has_answered(node: Path, number: int) -> bool:
    """Whether a node has answered this request."""
    with contextlib.suppress(OSError):
        return int((node / ANSWER).stat().st_mtime) == number
    return False
