"""How do checks of the kernel log word the age of a line and the period that the log covers?"""

from __future__ import annotations

from mgpu.check import Ok
from mgpu.snapshot import KernelEvent, KernelLog

HOUR_S = 3600.0
# An older line is shown but does not count as a problem: the log does not record what was fixed since. A day is the
# window in which Azure's node health checks count events (azurehpc-health-checks, azure_ib_link_flapping.nhc).
RECENT_S = 24 * HOUR_S


def is_recent(event: KernelEvent) -> bool:
    """Return whether the event is from the last day. An event of unknown age counts."""
    return event.seconds_ago is None or event.seconds_ago <= RECENT_S


def format_age(seconds: float | None) -> str:
    """Format an age: 120 -> "2 min ago"."""
    if seconds is None:
        return "at an unknown time"
    return f"{format_duration(seconds)} ago"


def format_duration(seconds: float) -> str:
    """Format a duration: 5 -> "5 s", 120 -> "2 min", 7300 -> "2 h", 300000 -> "3 days"."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < HOUR_S:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / HOUR_S:.0f} h" if seconds < 2 * RECENT_S else f"{seconds / RECENT_S:.0f} days"


def no_events(what: str, log: KernelLog, more: str = "") -> Ok:
    """Return the Ok for a log without such lines, with the period it covers."""
    reach = "" if log.since_s is None else f" (last {format_duration(min(log.since_s, RECENT_S))})"
    return Ok(f"no {what} in the kernel log{reach}{more}")
