"""Which packages does the interpreter that trains have, as far as known?"""

from __future__ import annotations

from mgpu.snapshot import Snapshot


def installed_version(snapshot: Snapshot, package: str) -> str | None:
    """Return the version of a package; None if it is not installed or unknown."""
    return (snapshot.packages or {}).get(package)


def is_missing(snapshot: Snapshot, package: str) -> bool:
    """Return whether a package is known not to be installed."""
    return snapshot.packages is not None and package not in snapshot.packages
