"""How do checks format sizes, versions and lists, and parse numbers?"""

from __future__ import annotations

from collections.abc import Iterable

from mgpu.planning.requirements import version_numbers
from mgpu.quantities import gib as _gib
from mgpu.snapshot import UncaughtException
from mgpu.text import listed, plural

GIB = 1024**3
MIB = 1024**2


def format_driver_version(version: tuple[int, ...]) -> str:
    """Format a driver version as NVIDIA does: (580, 65, 6) -> "580.65.06"."""
    return ".".join(str(part) if place < 2 else f"{part:02d}" for place, part in enumerate(version))


def minor_of(version: str | None) -> str:
    """Return major and minor version, as CUDA toolkits are named: "13.0.88" -> "13.0"."""
    return format_driver_version(version_numbers(version)[:2])


def gib(size: int | float) -> str:
    """Format a number of bytes: "20 KiB", "64 MiB", "1.5 GiB", "503 GiB"; a 0 in MiB."""
    return _gib(size, tenths=not 0 < size < MIB)


def parse_digits(text: str) -> int | None:
    """Parse a string of up to 18 ASCII digits; None for anything else, such as "1.0"."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None


def gpu_list(indices: Iterable[object]) -> str:
    """Format GPU indices: [0] -> "GPU 0", [0, 2] -> "GPUs 0 and 2", [0, 1, 3] -> "GPUs 0, 1 and 3"."""
    indices = list(indices)
    return f"{plural(len(indices), 'GPU')} {listed(indices)}"


def at_place(raised: UncaughtException | None) -> str:
    """Return where the user's own code was, to append to a title: " (train.py:41 in main)"; "" if it is not known."""
    return f" ({raised.place})" if raised and raised.place else ""
