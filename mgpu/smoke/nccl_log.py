"""What does NCCL's own log of the run say: version, interfaces, transport of every pair, channels?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mgpu.smoke.ranks.orders import Orders
from mgpu.snapshot import NcclLog


def environment(orders: Orders, environ: Mapping[str, str]) -> dict[str, str]:
    """What makes NCCL write its log into the run folder; empty where no NCCL takes part. Shown to the user."""
    return {}


def read(folder: Path) -> NcclLog | None:
    """The facts of the run's log; None when NCCL wrote none."""
    return None
