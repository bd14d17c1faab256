"""Which boot of which kernel is this? Processes and locks of another one mean nothing here."""

from __future__ import annotations

from functools import cache


@cache
def boot_id() -> str:
    """Return the kernel's boot ID; "" if unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""
