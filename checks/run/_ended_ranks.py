"""Which ranks of a run failed on their own, and how are they named?"""

from __future__ import annotations

from mgpu.check import Ok
from mgpu.snapshot import SIGNAL_NAMES, EndedRank, Run

# torchrun stops ranks with SIGTERM and kills them after 30 s (torch/distributed/elastic/multiprocessing/api.py).
_KILLS_AFTER_S = 20.0
EXPLAINED = frozenset({-4, -6, -7, -8, -9, -11})  # exit codes that another check always reports
STOP_SIGNALS = frozenset({-1, -2, -3, -15})  # run_rank_terminated


def failed_ranks(run: Run) -> tuple[EndedRank, ...]:
    """Return the ranks that failed on their own, first failure first, without ranks that were stopped afterwards."""
    if run.exit_code == 0:
        return ()
    stopped = run.signalled is not None or run.timed_out
    failed = [r for r in run.ranks if r.exit_code and (not stopped or r.gone_s is not None)]
    first = next((r for r in failed if r.first and r.gone_s is not None), None)
    if first is not None and first.gone_s is not None:
        until = first.gone_s + _KILLS_AFTER_S
        failed = [r for r in failed if r.first or (run.seconds if r.gone_s is None else r.gone_s) < until]
    own = [r for r in failed if r.exit_code != -15]
    return tuple(sorted(own or ([] if stopped else failed), key=lambda r: (not r.first, r.gone_s or 0.0, r.rank)))


def ranks_by_code(run: Run, *codes: int) -> tuple[EndedRank, ...]:
    """Return the failed ranks with one of these exit codes."""
    return tuple(rank for rank in failed_ranks(run) if rank.exit_code in codes)


def rank_name(rank: EndedRank) -> str:
    """Return "rank 2 (GPU 2)", or "rank 2" if its GPU is unknown."""
    return f"rank {rank.rank}" if rank.gpu is None else f"rank {rank.rank} (GPU {rank.gpu})"


def signal_name(code: int) -> str:
    """Return the name of the signal for a negative exit code."""
    return SIGNAL_NAMES.get(-code, f"signal {-code}")


def rank_subjects(ranks: tuple[EndedRank, ...]) -> tuple[str, ...]:
    """Return the ranks as the subjects of a problem."""
    return tuple(f"rank {rank.rank}" for rank in ranks)


def ok_for_run(run: Run, what: str) -> Ok:
    """Return `what` as an Ok answer, with the exit code and the number of ranks checked."""
    return Ok(f"{what} (exit {run.exit_code}, {len(run.ranks)} rank{'s' * (len(run.ranks) != 1)})")
