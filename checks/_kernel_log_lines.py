"""How the families that read the kernel's log speak of it: how old a line is, and how far back the log reaches."""

from __future__ import annotations

from mgpu.check import Ok
from mgpu.snapshot import KernelEvent, KernelLog

HOUR_S = 3600.0
# A line older than this is told, not held against the run: the log does not say what was mended since. A day is the
# window in which Azure's node health checks count events (azurehpc-health-checks, azure_ib_link_flapping.nhc).
RECENT_S = 24 * HOUR_S


def recent(event: KernelEvent) -> bool:
    """Of the last day; a line whose age is not known counts."""
    return event.seconds_ago is None or event.seconds_ago <= RECENT_S


def ago(seconds: float | None) -> str:
    """120 -> "2 min ago"."""
    if seconds is None:
        return "at a time not known"
    return f"{span(seconds)} ago"


def span(seconds: float) -> str:
    """5 -> "5 s", 120 -> "2 min", 7300 -> "2 h", 300000 -> "3 days"."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < HOUR_S:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / HOUR_S:.0f} h" if seconds < 2 * RECENT_S else f"{seconds / RECENT_S:.0f} days"


def none_of(what: str, log: KernelLog, more: str = "") -> Ok:
    """Nothing found, and in how much log."""
    reach = "" if log.since_s is None else f" in {span(min(log.since_s, RECENT_S))} of it"
    return Ok(f"no {what} in the kernel's log{reach}{more}")
