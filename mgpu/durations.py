"""How are times stored, and their ages written for people? "3 h ago"."""

from __future__ import annotations

from datetime import datetime, timezone


def now(*, fine: bool = False) -> str:
    """The current time as it is stored in files: ISO, UTC, in seconds, or with `fine` in milliseconds."""
    iso = datetime.now(timezone.utc).isoformat(timespec="milliseconds" if fine else "seconds")
    return iso.replace("+00:00", "Z")


def seconds_between(start: str, end: str) -> float | None:
    """The seconds between two stored times; None if either is not a time."""
    try:
        then, later = (datetime.fromisoformat(iso.replace("Z", "+00:00")) for iso in (start, end))
        return (later - then).total_seconds()
    except (ValueError, TypeError):
        return None


def precise_age_text(iso: str) -> str:
    """Format the age of a time in a live run: as `age_text`, in seconds in the first minute ("58 s ago")."""
    passed = seconds_between(iso, now())
    return f"{int(passed)} s ago" if passed is not None and 1 <= passed < 60 else age_text(iso)


def age_text(iso: str) -> str:
    """Format the age of a stored time: "just now", "12 min ago", "3 h ago", "5 days ago"."""
    passed = seconds_between(iso, now())
    if passed is None:
        return "at an unknown time"
    for size, word in ((86400, "day"), (3600, "h"), (60, "min")):
        if passed >= size:
            number = int(passed // size)
            return f"{number} {word}{'s' if word == 'day' and number > 1 else ''} ago"
    return "just now"
