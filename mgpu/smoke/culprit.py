"""Which rank does the JSON document report as the culprit? The rank that the first failing check names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mgpu.engine import Outcome
from mgpu.snapshot import Rank, Ranks

if TYPE_CHECKING:
    from mgpu.smoke.smoke_json import Culprit


def find_cause(outcomes: Sequence[Outcome]) -> Outcome | None:
    """Return the first failure that is not a consequence of another one: the one in the verdict."""
    return next((o for o in outcomes if o.status == "fail" and o.problem and not o.because_of), None)


def find_culprit(outcomes: Sequence[Outcome], ranks: Ranks) -> Culprit | None:
    """Return rank, GPU, host, stage, collective and stack of the first failure that is not a consequence.

    None if no check failed. `rank` is None if the failure concerns all ranks, or none that was started.
    """
    found = find_cause(outcomes)
    if found is None or found.problem is None:
        return None
    evidence = found.problem.evidence
    number = evidence.get("rank")
    rank = next((rank for rank in ranks.ranks if rank.rank == number), Rank(rank=-1))
    return {
        "rank": number if isinstance(number, int) else None,
        "gpu": rank.gpu_uuid,
        "host": rank.host,
        "rung": _text(evidence.get("rung")) or first_unpassed_stage(ranks, [rank] if rank.steps else ranks.ranks),
        "collective": _text(evidence.get("collective")) or rank.collective or rank.last_word,
        "last_word": rank.last_word,
        "state": rank.process_state,
        "stack": rank.stack,
        "stack_from": rank.stack_from,
    }


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def first_unpassed_stage(ranks: Ranks, members: Sequence[Rank]) -> str:
    """Return the first stage that not all of these ranks have passed."""
    passed = [{step.rung for step in rank.steps if step.ok} for rank in members]
    return next((stage for stage in ranks.rungs if not all(stage in one for one in passed)), ranks.rungs[-1])
