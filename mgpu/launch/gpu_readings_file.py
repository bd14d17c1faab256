"""Store the latest GPU readings of a run for other processes to read.

The run's supervisor keeps replacing FOLDER/gpus.json.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from mgpu import quantities
from mgpu.launch import gpu_usage
from mgpu.snapshot import GpuWork, fact_file
from mgpu.text import counted

NAME = "gpus.json"
OLD_S = 10.0  # mgpu: readings come every second or two; older ones do not describe the present
_LARGEST = 1 << 20  # bytes; with 16 GPUs the file has 8 KiB


@dataclass(frozen=True)
class Now:
    """The current reading of one GPU of a run."""

    index: int
    uuid: str
    rank: int | None = None  # the rank assigned to it
    pids: tuple[int, ...] | None = None  # the run's processes on it; None: not reported by NVML
    used_bytes: int | None = None
    total_bytes: int | None = None
    busy_percent: int | None = None
    power_w: float | None = None


@dataclass(frozen=True)
class Stored:
    """The latest readings of a run's GPUs, as stored in its folder."""

    at: float  # seconds since the epoch
    gpus: tuple[GpuWork, ...]
    now: tuple[Now, ...]
    said: tuple[str, ...] = ()
    gap: str | None = None


def write(folder: Path, stored: Stored) -> None:
    """Replace the file atomically; errors are ignored, because the run matters more."""
    path = folder / NAME
    aside = path.with_name(f".{NAME}.{os.getpid()}")
    with contextlib.suppress(OSError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(aside, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(json.dumps(asdict(stored)))
        aside.replace(path)


def load_readings(folder: Path) -> Stored | None:
    """Return the latest stored readings of a run; None if there are none or they cannot be read."""
    return fact_file.read(folder / NAME, Stored, most=_LARGEST)


def age_s(found: Stored) -> float:
    """Return the age of the readings in seconds."""
    return max(0.0, time.time() - found.at)


def line(found: Stored | None) -> str:
    """Return "4 GPUs, 61-63 of 79 GiB, 92-97 % busy (2 s ago)"; empty if nothing is stored."""
    if found is None or not found.now:
        return ""
    now = [
        GpuWork(g.index, g.uuid, peak_bytes=g.used_bytes, total_bytes=g.total_bytes, busy_percent=g.busy_percent)
        for g in found.now
    ]
    many = counted(len(now), "GPU")
    return f"{', '.join(filter(None, [many, gpu_usage.amounts(now)]))} ({quantities.duration_text(age_s(found))} ago)"
