"""Shared by the checks on ranks: descriptions of ranks, the stage they reached, and the ranks that failed first."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from mgpu.check import Answer, Ok, Skip
from mgpu.command_line import shell
from mgpu.snapshot import SIGNAL_NAMES, Rank, Ranks
from mgpu.text import counted, listed, plural

TORCH = "https://pytorch.org/docs/stable/distributed.html"
# A live rank sends a heartbeat every 0.2 s (mgpu/smoke/ranks/journal.py); after this long without one it is not
# running.
SILENT_S = 1.0
_ERROR = re.compile(r"[\w.]*(?:Error|Exception|Interrupt)\b")


def rank_name(rank: Rank) -> str:
    """Describe a rank: "rank 1 (cuda:1, pid 4711)"."""
    where = rank.device or "not yet on a device"
    return f"rank {rank.rank} ({where}, pid {rank.pid})" if rank.pid else f"rank {rank.rank}"


def rank_names(numbers: Collection[int]) -> str:
    """Name several ranks: "ranks 0 and 2"."""
    return f"{plural(len(numbers), 'rank')} {listed(numbers)}"


def last_progress(rank: Rank) -> str:
    """Return a clause with the last progress that a rank reported."""
    return f'Last progress: "{rank.last_word}"' if rank.last_word else "No progress reported"


def file(ranks: Ranks, name: str) -> str:
    """Return the path of a file in the run folder, quoted for a shell."""
    return f"{shlex.quote(ranks.folder)}/{name}"


def last_line(ranks: Ranks) -> str:
    """Return the launcher's last error, ignoring torchrun's table of ranks; without an error, its last line."""
    lines = [line.strip() for line in (ranks.launcher_output or "").splitlines() if re.search(r"\w", line)]
    errors = [line for line in lines if _ERROR.match(line) and "ChildFailedError" not in line]
    return (errors or lines or ["nothing"])[-1]


def find_outliers(held: Mapping[int, str]) -> list[int]:
    """Return the ranks whose value differs from the most common one; none if two values are equally common."""
    common = Counter(held.values()).most_common(2)
    if len(common) > 1 and common[0][1] == common[1][1]:
        return []
    return [number for number, value in held.items() if value != common[0][0]]


def stage_of(rank: Rank, ranks: Ranks) -> str:
    """Return the stage a rank is in: the first that it has not passed, or the last one."""
    passed = {step.rung for step in rank.steps if step.ok}
    return next((stage for stage in ranks.rungs if stage not in passed), ranks.rungs[-1])


def frozen_ranks(ranks: Ranks) -> list[Rank]:
    """Return the ranks that were not running when the run was stopped.

    Stopped processes come first, then those without a heartbeat and without an answer, the longest silent first.
    """
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
    """Return the ranks on which a stage failed, earliest first: the others fail because the first one is missing."""
    failed = [rank for rank in ranks.ranks if any(step.ok is False for step in rank.steps)]
    return sorted(failed, key=lambda rank: rank.failed_at or float("inf"))


def own_failure(ranks: Ranks, *kinds: str) -> Rank | None:
    """Return the first rank that failed if its failure is of one of these kinds; later failures are consequences."""
    failed = own_failures(ranks)
    return failed[0] if failed and failed[0].kind in kinds else None


def failures_of_kind(ranks: Ranks, *kinds: str) -> list[Rank]:
    """Return all ranks whose failure is of one of these kinds, earliest first."""
    return [rank for rank in own_failures(ranks) if rank.kind in kinds]


def first_failure_of_kind(ranks: Ranks, kind: str) -> Rank | None:
    """Return the first rank with a failure of this kind, even if other ranks failed before it."""
    return next(iter(failures_of_kind(ranks, kind)), None)


def median(numbers: Iterable[float]) -> float:
    """Return the median. `statistics` is avoided because it imports ten other modules."""
    ordered = sorted(numbers)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def ranks_that_passed(ranks: Ranks, stage: str) -> list[Rank]:
    """Return the ranks that passed this stage."""
    return [rank for rank in ranks.ranks if any(step.rung == stage and step.ok for step in rank.steps)]


def hardware_of(rank: Rank) -> str:
    """Describe the hardware a rank computes on, with UUID, host and PCI address."""
    if rank.gpu_uuid is None:
        return f"the CPU of {rank.host}"
    address = f", {rank.gpu_pci}" if rank.gpu_pci else ""
    return f"{rank.gpu_name or 'GPU'} {rank.gpu_uuid} ({rank.host}{address})"


def killed_ranks(ranks: Ranks) -> list[Rank]:
    """Return the ranks killed by a signal other than SIGTERM, which the launcher sends when another rank failed."""
    return [r for r in ranks.ranks if not r.finished and (r.exit_code or 0) < 0 and r.exit_code != -15]


def exited_ranks(ranks: Ranks) -> list[Rank]:
    """Return the ranks that exited by themselves before they passed all stages, in the order of their progress.

    Either the rank reported it (sys.exit), or its process disappeared without a signal: the launcher's SIGTERM leaves a
    mark, and other signals are in its exit code. None if a rank failed with an error of its own before it.
    """
    failed = own_failures(ranks)
    if failed and failed[0].kind == "exited":
        return [failed[0]]
    if ranks.ended != "died" or (ranks.launcher_exit or 0) < 0:  # the kernel kills the ranks of a killed launcher
        return []
    if failed and not _may_follow(failed[0]):
        return []
    gone = [rank for rank in ranks.ranks if not rank.finished and rank.last_word and _disappeared(rank)]
    return sorted(gone, key=lambda rank: rank.last_word_order)


def _may_follow(rank: Rank) -> bool:
    """Whether a rank may have failed because another one disappeared: its kind of failure is unknown."""
    return rank.kind in (None, "ranks_missing")


def _disappeared(rank: Rank) -> bool:
    return rank.process_state == "gone" and not rank.terminated and (rank.exit_code or 0) >= 0


def signal_name(exit_code: int) -> str:
    """Return the name of the signal that a negative exit code stands for."""
    return SIGNAL_NAMES.get(-exit_code, f"signal {-exit_code}")


def no_rank_started(ranks: Ranks) -> bool:
    """Whether no rank on this node has reported anything."""
    return all(rank.pid is None for rank in ranks.ranks)


def ok_if_trained(ranks: Ranks, evidence: str) -> Answer:
    """Return Ok if ranks passed the training steps, else Skip."""
    trained = ranks_that_passed(ranks, "train")
    return (
        Ok(f"{evidence} on {counted(len(trained), 'rank')}") if trained else Skip("no rank passed the training steps")
    )


def ok_beyond_quick(ranks: Ranks, evidence: str) -> Answer:
    """Return the same above the quick level, else Skip."""
    return Skip("not tested at the quick level") if ranks.level == "quick" else ok_if_trained(ranks, evidence)


def report_of(rank: Rank, ranks: Ranks) -> str:
    """Return the command that shows the complete report of a rank."""
    return shell("cat {:path}/rank{:number}.json", ranks.folder, rank.rank)
