"""What do the checks say of the ranks?"""

from __future__ import annotations

from mgpu import engine
from mgpu.snapshot import Snapshot


def judged(snapshot: Snapshot) -> tuple[engine.Outcome, ...]:
    """The outcomes of the smoke test's checks."""
    return engine.run([c for c in engine.load() if c.area == "smoke"], snapshot)
