"""Which earlier result is this one compared with?"""

from __future__ import annotations

from mgpu.snapshot import Baseline, Snapshot


def of(path: str, snapshot: Snapshot) -> Baseline | None:
    """The result at `path` (--baseline); without one, the last pass of this config on these GPUs, from its stamp.

    Raises MgpuError (2) for a file that is no result of a smoke test.
    """
    return None
