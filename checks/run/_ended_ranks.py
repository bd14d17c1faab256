"""Which ranks of a run fell by themselves, and how are they named?"""

from __future__ import annotations

from mgpu.check import Ok
from mgpu.snapshot import SIGNAL_NAMES, EndedRank, Run

# torchrun gives the ranks that it ends 30 s, then it kills them (torch/distributed/elastic/multiprocessing/api.py).
_KILLS_AFTER_S = 20.0
EXPLAINED = frozenset({-4, -6, -7, -8, -9, -11})  # exit codes of which another check tells, whatever else happened
STOP_SIGNALS = frozenset({-1, -2, -3, -15})  # run_rank_terminated


def fallen_ranks(run: Run) -> tuple[EndedRank, ...]:
    """The ranks that fell by themselves, the first failure first: not those that somebody ended afterwards."""
    if run.exit_code == 0:
        return ()
    stopped = run.signalled is not None or run.timed_out
    fell = [r for r in run.ranks if r.exit_code and (not stopped or r.gone_s is not None)]
    first = next((r for r in fell if r.first and r.gone_s is not None), None)
    if first is not None and first.gone_s is not None:
        until = first.gone_s + _KILLS_AFTER_S
        fell = [r for r in fell if r.first or (run.seconds if r.gone_s is None else r.gone_s) < until]
    own = [r for r in fell if r.exit_code != -15]
    return tuple(sorted(own or ([] if stopped else fell), key=lambda r: (not r.first, r.gone_s or 0.0, r.rank)))


def ranks_by_code(run: Run, *codes: int) -> tuple[EndedRank, ...]:
    """The fallen ranks of these exit codes, where the launcher's first failure is no other kind of end."""
    return tuple(rank for rank in fallen_ranks(run) if rank.exit_code in codes)


def rank_name(rank: EndedRank) -> str:
    """ "rank 2 (GPU 2)"."""
    return f"rank {rank.rank}" if rank.gpu is None else f"rank {rank.rank} (GPU {rank.gpu})"


def signal_name(code: int) -> str:
    """The name of the signal that ended a process with this exit code."""
    return SIGNAL_NAMES.get(-code, f"signal {-code}")


def rank_subjects(ranks: tuple[EndedRank, ...]) -> tuple[str, ...]:
    """The ranks as the subjects of a problem."""
    return tuple(f"rank {rank.rank}" for rank in ranks)


def nothing_found(run: Run, what: str) -> Ok:
    """`what` is not the case, and how many ranks were looked at."""
    return Ok(f"{what} (exit {run.exit_code}, {len(run.ranks)} rank{'s' * (len(run.ranks) != 1)})")
