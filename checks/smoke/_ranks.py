"""What the checks on ranks say in common: who a rank is, where it stands, which ranks failed by themselves."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping

from mgpu.snapshot import Rank, Ranks

TORCH = "https://pytorch.org/docs/stable/distributed.html"
# A live rank beats every 0.2 s (mgpu/smoke/ranks/journal.py); one that is silent for longer than this does not run.
_SILENT_S = 1.0


def who(rank: Rank) -> str:
    where = f"{rank.device}" if rank.device else "not yet on a device"
    return f"rank {rank.rank} ({where}, pid {rank.pid})" if rank.pid else f"rank {rank.rank}"


def file(ranks: Ranks, name: str) -> str:
    """A file of the run, as a shell takes it."""
    return f"{shlex.quote(ranks.folder)}/{name}"


def last_line(ranks: Ranks) -> str:
    return ((ranks.launcher_output or "").strip() or "nothing").splitlines()[-1]


def odd_ones(held: Mapping[int, str]) -> list[int]:
    """The ranks that hold something else than most; none when no value is the commonest."""
    common = Counter(held.values()).most_common(2)
    if len(common) > 1 and common[0][1] == common[1][1]:
        return []
    return [number for number, value in held.items() if value != common[0][0]]


def rung(rank: Rank, ranks: Ranks) -> str:
    passed = {step.rung for step in rank.steps if step.ok}
    return next((rung for rung in ranks.rungs if rung not in passed), ranks.rungs[-1])


def frozen_ranks(ranks: Ranks) -> list[Rank]:
    """Ranks that were not running when the run was ended: stopped, or without a heartbeat."""
    return [
        rank
        for rank in ranks.ranks
        if not rank.finished
        and (
            rank.process_state in ("stopped", "traced")
            or (ranks.ended in ("stalled", "timed_out") and rank.silent_s is not None and rank.silent_s > _SILENT_S)
        )
    ]


def own_failures(ranks: Ranks) -> list[Rank]:
    """Ranks on which a rung failed, the earliest first: the others failed because it was gone."""
    failed = [rank for rank in ranks.ranks if any(step.ok is False for step in rank.steps)]
    return sorted(failed, key=lambda rank: rank.failed_at or float("inf"))


def killed_ranks(ranks: Ranks) -> list[Rank]:
    """Ranks ended by a signal of their own. TERM is what the launcher sends to the siblings of one that failed."""
    return [r for r in ranks.ranks if not r.finished and (r.exit_code or 0) < 0 and r.exit_code != -15]
