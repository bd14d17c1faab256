"""How do checks write sizes, versions and lists, and how do they read a number?"""

from __future__ import annotations

from collections.abc import Iterable

from mgpu.planning.requirements import numbers
from mgpu.quantities import gib as _gib
from mgpu.text import listed

GIB = 1024**3
MIB = 1024**2


def dotted(version: tuple[int, ...]) -> str:
    """(580, 65, 6) -> "580.65.06", as NVIDIA writes driver versions."""
    return ".".join(str(part) if place < 2 else f"{part:02d}" for place, part in enumerate(version))


def minor_of(version: str | None) -> str:
    """ "13.0.88" -> "13.0", as CUDA toolkits are named."""
    return dotted(numbers(version)[:2])


def gib(size: int | float) -> str:
    """Bytes for people: "64 MiB", "1.5 GiB", "503 GiB"."""
    return _gib(size, tenths=True)


def whole(text: str) -> int | None:
    """The number that a text of plain digits is: not "²", not "1.0", and not a line of a thousand digits."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None


def gpu_list(indices: Iterable[object]) -> str:
    """[0] -> "GPU 0", [0, 2] -> "GPU 0 and 2", [0, 1, 3] -> "GPU 0, 1 and 3"."""
    return f"GPU {listed(indices)}"
