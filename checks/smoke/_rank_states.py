"""What the checks on ranks say in common: who a rank is, where it stands, which ranks failed by themselves."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping

from mgpu.snapshot import SIGNAL_NAMES, Rank, Ranks

TORCH = "https://pytorch.org/docs/stable/distributed.html"
# A live rank beats every 0.2 s (mgpu/smoke/ranks/journal.py); one that is silent for longer than this does not run.
SILENT_S = 1.0
_ERROR = re.compile(r"[\w.]*(?:Error|Exception|Interrupt)\b")


def who(rank: Rank) -> str:
    where = rank.device or "not yet on a device"
    return f"rank {rank.rank} ({where}, pid {rank.pid})" if rank.pid else f"rank {rank.rank}"


def file(ranks: Ranks, name: str) -> str:
    """A file of the run, as a shell takes it."""
    return f"{shlex.quote(ranks.folder)}/{name}"


def last_line(ranks: Ranks) -> str:
    """The launcher's last words: its last error, but not torchrun's table of the ranks; else its last line."""
    lines = [line.strip() for line in (ranks.launcher_output or "").splitlines() if re.search(r"\w", line)]
    errors = [line for line in lines if _ERROR.match(line) and "ChildFailedError" not in line]
    return (errors or lines or ["nothing"])[-1]


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
    """Ranks that were not running when the run was ended: stopped ones first, then those without a heartbeat and
    without an answer, the longest silent first."""
    silent = ranks.ended in ("stalled", "timed_out")
    found = [
        rank
        for rank in ranks.ranks
        if not rank.finished
        and (
            _is_stopped(rank)
            or (silent and rank.silent_s is not None and rank.silent_s > SILENT_S and rank.stack_from != "asked")
        )
    ]
    return sorted(found, key=lambda rank: (not _is_stopped(rank), -(rank.silent_s or 0.0)))


def _is_stopped(rank: Rank) -> bool:
    return rank.process_state in ("stopped", "traced")


def own_failures(ranks: Ranks) -> list[Rank]:
    """Ranks on which a rung failed, the earliest first: the others failed because it was gone."""
    failed = [rank for rank in ranks.ranks if any(step.ok is False for step in rank.steps)]
    return sorted(failed, key=lambda rank: rank.failed_at or float("inf"))


def own_failure(ranks: Ranks, *kinds: str) -> Rank | None:
    """The first rank that failed, when its failure is of one of these kinds: what others say is a consequence."""
    failed = own_failures(ranks)
    return failed[0] if failed and failed[0].kind in kinds else None


def of_kind(ranks: Ranks, *kinds: str) -> list[Rank]:
    """All ranks whose own failure is of one of these kinds, the earliest first."""
    return [rank for rank in own_failures(ranks) if rank.kind in kinds]


def first_of_kind(ranks: Ranks, kind: str) -> Rank | None:
    """The first rank that failed in this way: of several that see something wrong, one may know that it is its own."""
    return next(iter(of_kind(ranks, kind)), None)


def median(numbers: Iterable[float]) -> float:
    """The middle one, or the mean of the two there; `statistics` brings ten other modules with it."""
    ordered = sorted(numbers)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def through(ranks: Ranks, rung: str) -> list[Rank]:
    """The ranks that passed this rung."""
    return [rank for rank in ranks.ranks if any(step.rung == rung and step.ok for step in rank.steps)]


def where_is(rank: Rank) -> str:
    """The hardware a rank computes on, for whoever has to find it."""
    if rank.gpu_uuid is None:
        return f"the CPU of {rank.host}"
    address = f", {rank.gpu_pci}" if rank.gpu_pci else ""
    return f"{rank.gpu_name or 'GPU'} {rank.gpu_uuid} ({rank.host}{address})"


def python_at(rank: Rank) -> str | None:
    """The line of Python that a rank was at when it was asked: the innermost of its main thread (the one that is not
    a thread of ours), "File …, line 7 in step"."""
    blocks = [block.splitlines() for block in (rank.stack or "").split("\n\n")]
    lines = next((b for b in reversed(blocks) if b and not any("journal.py" in line for line in b[:3])), [])
    return next((line.strip() for line in lines if line.strip().startswith("File ")), None)


def killed_ranks(ranks: Ranks) -> list[Rank]:
    """Ranks ended by a signal of their own. TERM is what the launcher sends to the siblings of one that failed."""
    return [r for r in ranks.ranks if not r.finished and (r.exit_code or 0) < 0 and r.exit_code != -15]


def signal_name(exit_code: int) -> str:
    """Of the signal that a negative exit code stands for."""
    return SIGNAL_NAMES.get(-exit_code, f"signal {-exit_code}")


def nobody_started(ranks: Ranks) -> bool:
    """Whether no rank of this machine was ever heard of."""
    return all(rank.pid is None for rank in ranks.ranks)
