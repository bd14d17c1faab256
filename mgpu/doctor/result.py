"""What an examination found: the machine, the outcomes of its checks, the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mgpu import engine
    from mgpu.doctor.repair import Result
    from mgpu.engine.verdict import Verdict
    from mgpu.snapshot import Snapshot
    from mgpu.snapshot.changes import Change


@dataclass(frozen=True)
class Examined:
    """A machine, judged."""

    machine: Snapshot  # as it was read
    snapshot: Snapshot  # as it is told: the same, or redacted
    outcomes: tuple[engine.Outcome, ...]
    verdict: Verdict
    code: int
    seconds: float
    changes: tuple[Change, ...] | None = None  # None: nothing to compare with was given
    since: str = ""
    repairs: tuple[Result, ...] = ()
