"""How are large numbers parsed and formatted? 8.03B parameters, 52k samples, 2e-5."""

from __future__ import annotations

import math
import re
from typing import Final

_UNITS: Final = {"": 0, "k": 3, "m": 6, "b": 9, "g": 9, "t": 12}
_LARGEST: Final = 10**16
_NUMBER = re.compile(r"([0-9]+(?:[,_][0-9]{3})+|[0-9]+)?(\.[0-9]+)?(?:e\+?([0-9]{1,3}))?([kmbgt]?)", re.IGNORECASE)


def parse_params(text: str) -> int:
    """Parse a number of parameters: 8.03B, 350m, 8.03e9, 7,000,000,000. Raises ValueError with one sentence."""
    return _parse_integer(text, "parameters", "8.03B, 350M, 8.03e9")


def parse_count(text: str) -> int:
    """Parse a number of samples: 52k, 52,002, 52_002. Raises ValueError with one sentence."""
    return _parse_integer(text, "samples", "52002, 52,002, 52k")


def parse_rate(text: str) -> float:
    """Parse a learning rate: 2e-5, 0.001. Raises ValueError with one sentence."""
    try:
        value = float(text.strip().replace("_", "x"))
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{text.strip()[:40]!r} is not a learning rate: write a number above 0, such as 2e-5")
    return value


def _parse_integer(text: str, what: str, examples: str) -> int:
    shown = repr(text.strip()[:40])
    match = _NUMBER.fullmatch(text.replace(" ", ""))
    if not match or not (match[1] or match[2]):
        raise ValueError(f"{shown} is not a number of {what}: write it like {examples}")
    whole, fraction, power, unit = match.groups()
    if len(text) > 40 or int(power or 0) > 30:
        raise ValueError(f"{shown}: too many {what}")
    fraction = (fraction or ".")[1:]
    digits = int((whole or "0").replace(",", "").replace("_", "") + fraction)
    scale = int(power or 0) + _UNITS[unit.lower()] - len(fraction)
    times: int = 10 ** abs(scale)
    value, rest = (digits * times, 0) if scale >= 0 else divmod(digits, times)
    if value < 1:
        raise ValueError(f"{shown}: too few {what}, at least 1 is needed")
    if rest:
        raise ValueError(f"{shown} is not a whole number of {what}: write it like {examples}")
    if value > _LARGEST:
        raise ValueError(f"{shown}: too many {what}")
    return value


def params_text(params: int) -> str:
    """8030000000 -> "8.03B", as in names of models."""
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if params >= size * 0.9995:  # 999.96M is shown as 1B
            return f"{params / size:.3g}{unit}" if params < size * 999.5 else f"{params / size:,.0f}{unit}"
    return str(params)


def count_text(number: int) -> str:
    """52002 -> "52,002"."""
    return f"{number:,}"


def rate_text(rate: float) -> str:
    """4e-05, as Python and training scripts write it."""
    return f"{rate:.3g}"


def duration_text(seconds: float) -> str:
    """Format a duration in seconds: "41 s", "3 min 20 s", "30 min", "2 h 14 min"."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    large, small, names = (*divmod(whole, 60), ("min", "s"))
    if large >= 60:
        large, small, names = (*divmod(large, 60), ("h", "min"))
    return f"{large} {names[0]}" + (f" {small} {names[1]}" if small else "")


def gib(size: float, *, tenths: bool = False, grouped: bool = False) -> str:
    """Format bytes: "64 MiB", "503 GiB", KiB below one MiB.

    `tenths`: "1.5 GiB", and never KiB. `grouped`: "1,511 GiB".
    """
    if size < 1024**2 and not tenths:
        return f"{size / 1024:.0f} KiB"
    if size < 1024**3:
        return f"{size / 1024**2:.0f} MiB"
    size /= 1024**3
    if tenths and size < 10:
        return f"{size:.1f} GiB"
    return f"{size:,.0f} GiB" if grouped else f"{size:.0f} GiB"
