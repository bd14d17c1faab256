"""How do checks of logs word a duration?"""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Format a duration: 41 -> "41 s", 123 -> "2 min 3 s", 1800 -> "30 min", 23820 -> "6 h 37 min"."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    large, small, units = (whole // 60, whole % 60, ("min", "s"))
    if large >= 60:
        large, small, units = (large // 60, large % 60, ("h", "min"))
    return f"{large} {units[0]}" + (f" {small} {units[1]}" if small else "")
