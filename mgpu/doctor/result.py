"""The result of an examination: the machine, the outcomes of its checks, the verdict."""

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
    """A machine with the outcomes of its checks."""

    machine: Snapshot  # as read
    snapshot: Snapshot  # as reported: the same, or redacted
    outcomes: tuple[engine.Outcome, ...]
    verdict: Verdict
    code: int
    seconds: float
    changes: tuple[Change, ...] | None = None  # None: without --compare
    since: str = ""
    repairs: tuple[Result, ...] = ()
    foreseen: tuple[engine.Outcome, ...] = ()  # of a failed log: findings in its script that may be why
