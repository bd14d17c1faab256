"""What do a run's GPUs do just now, for other processes to read?

FOLDER/gpus.json, which the mgpu that watches over the run replaces again and again.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from mgpu import durations, file_reading
from mgpu.launch import gpu_usage
from mgpu.snapshot import BadSnapshot, GpuWork, decode
from mgpu.structured_text import json_of
from mgpu.text import counted

NAME = "gpus.json"
OLD_S = 10.0  # mgpu: readings come each second or two; this old they tell nothing about now
_LARGEST = 1 << 20  # bytes; of 16 GPUs it has 8 KiB


@dataclass(frozen=True)
class Now:
    """One GPU of a run, at the moment."""

    index: int
    uuid: str
    rank: int | None = None  # that is to have it
    pids: tuple[int, ...] | None = None  # of the run, that are on it; None: NVML does not tell
    used_bytes: int | None = None
    total_bytes: int | None = None
    busy_percent: int | None = None
    power_w: float | None = None


@dataclass(frozen=True)
class Stored:
    """The latest of a run's GPUs, as it stands in its folder."""

    at: float  # seconds since the epoch
    gpus: tuple[GpuWork, ...]
    now: tuple[Now, ...]
    said: tuple[str, ...] = ()
    gap: str | None = None


def write(folder: Path, stored: Stored) -> None:
    """Replace the file in one step; nothing of it matters enough to disturb the run."""
    path = folder / NAME
    aside = path.with_name(f".{NAME}.{os.getpid()}")
    with contextlib.suppress(OSError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(aside, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(json.dumps(asdict(stored)))
        aside.replace(path)


def stored(folder: Path) -> Stored | None:
    """The latest that a run has stored; None where there is nothing, or nothing that can be read."""
    try:
        return decode(Stored, json_of(file_reading.read_whole(folder / NAME, most=_LARGEST)), "")
    except (OSError, ValueError, BadSnapshot):
        return None


def age_s(found: Stored) -> float:
    """How long ago it was read."""
    return max(0.0, time.time() - found.at)


def line(found: Stored | None) -> str:
    """ "4 GPUs, 61-63 of 79 GiB, 92-97 % busy (2 s ago)"; empty when nothing is stored."""
    if found is None or not found.now:
        return ""
    now = [
        GpuWork(g.index, g.uuid, peak_bytes=g.used_bytes, total_bytes=g.total_bytes, busy_percent=g.busy_percent)
        for g in found.now
    ]
    many = counted(len(now), "GPU")
    return f"{', '.join(filter(None, [many, gpu_usage.amounts(now)]))} ({durations.lasted(age_s(found))} ago)"
