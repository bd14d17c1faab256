"""Whom does the document name as the culprit? The one whom the first failing check names; decided nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mgpu.engine import Outcome
from mgpu.snapshot import Rank, Ranks

if TYPE_CHECKING:
    from mgpu.smoke.smoke_json import Culprit


def cause(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The first failure that is no consequence of another: what the verdict names."""
    return next((o for o in outcomes if o.status == "fail" and o.problem and not o.because_of), None)


def of(outcomes: Sequence[Outcome], ranks: Ranks) -> Culprit | None:
    """Rank, GPU, host, rung, collective and stack of the first failure that is no consequence of another.

    None when no check failed. `rank` is None where the failure is of all ranks, or of none that was started.
    """
    found = cause(outcomes)
    if found is None or found.problem is None:
        return None
    evidence = found.problem.evidence
    number = evidence.get("rank")
    rank = next((rank for rank in ranks.ranks if rank.rank == number), Rank(rank=-1))
    return {
        "rank": number if isinstance(number, int) else None,
        "gpu": rank.gpu_uuid,
        "host": rank.host,
        "rung": _text(evidence.get("rung")) or reached(ranks, [rank] if rank.steps else ranks.ranks),
        "collective": _text(evidence.get("collective")) or rank.collective or rank.last_word,
        "last_word": rank.last_word,
        "state": rank.process_state,
        "stack": rank.stack,
        "stack_from": rank.stack_from,
    }


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def reached(ranks: Ranks, members: Sequence[Rank]) -> str:
    """The lowest rung that not every one of these ranks has passed."""
    passed = [{step.rung for step in rank.steps if step.ok} for rank in members]
    return next((rung for rung in ranks.rungs if not all(rung in one for one in passed)), ranks.rungs[-1])
