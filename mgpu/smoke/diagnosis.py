"""Which one change makes a failed rung work?

The rung that failed is climbed again, alone, in fresh processes through the same launcher: first as it was, then with
one thing changed at a time. The first change that works is the diagnosis. Everything is limited in time.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import environ
from pathlib import Path

from mgpu.launchers import run_folder
from mgpu.planning import bandwidth
from mgpu.process import signals
from mgpu.smoke import nccl_log
from mgpu.smoke.runner import Attempt, climb
from mgpu.smoke.trials import COMMUNICATES, P2P_OFF, Try, tries
from mgpu.snapshot import Rank, Ranks, Trial

TRIAL_S = 15.0  # for one try, without the start of the launcher and the imports
SEARCH_S = 90.0  # for all of them
INTERRUPTED = "interrupted"
_START_S = 30.0  # for the launcher and the imports: 3 s on two idle cores, 15 s where eight others share them
_STALL_S = 10.0
_LEAST_S = 5.0  # a launcher needs about 3 s to start two ranks: nothing is begun that could not end
_ALONE = ("start", "device", "group")  # what every other rung stands on
_RUNGS = (*COMMUNICATES, "checkpoint")
# fmt: off
# Failures that a change could cure; every other kind is certain in itself (a full disk, no GPU, a wrong config).
_KINDS = (
    None, "wrong_numbers", "pair_wrong_numbers", "gradients_differ", "loss_did_not_fall",
    "cuda_error", "interface_missing",
)
# fmt: on
_STOPPED = ("stopped", "traced")

Tell = Callable[[Trial], None]


def search(attempt: Attempt, ranks: Ranks, tell: Tell | None = None) -> tuple[Trial, ...]:
    """What was tried and how it ended; empty where the cause is certain, or no change could cure it.

    `tell` is called with every trial as it ends. Ctrl-C ends the search: the last trial says so.
    """
    rung = worth_searching(ranks)
    if rung is None:
        return ()
    trials: list[Trial] = []

    def ended(trial: Trial) -> None:
        trials.append(trial)
        if tell:
            tell(trial)

    try:
        _Search(attempt, rung, ended).run()
    except (KeyboardInterrupt, signals.Stopped):
        ended(Trial("the rest", None, INTERRUPTED))
    return tuple(trials)


def interrupted(ranks: Ranks) -> bool:
    """Whether somebody ended the search."""
    return bool(ranks.trials) and ranks.trials[-1].detail == INTERRUPTED


def worth_searching(ranks: Ranks) -> str | None:
    """The rung to climb again; None where that could tell nothing.

    A rank or a launcher that was stopped or killed from outside, or a rank that says itself what is wrong, leaves
    nothing to search for; several machines would have to search in step.
    """
    if ranks.nodes > 1 or ranks.ended in ("timed_out", INTERRUPTED) or (ranks.launcher_exit or 0) < 0:
        return None
    if any(rank.process_state in _STOPPED or rank.exit_code == -signal.SIGKILL for rank in ranks.ranks):
        return None
    first = min((r for r in ranks.ranks if r.failed_at is not None), key=lambda r: r.failed_at or 0.0, default=None)
    if first is not None and first.kind not in _KINDS:
        return None
    rung = next((rung for rung in ranks.rungs if not _passed(ranks, rung)), None)
    if first is not None:  # the others may have been ended far below it
        rung = next((step.rung for step in first.steps if step.ok is False), rung)
    return rung if rung in _RUNGS else None


def _passed(ranks: Ranks, rung: str) -> bool:
    """Whether every rank did, and with the same model at the end of it."""
    done = all(any(step.rung == rung and step.ok for step in rank.steps) for rank in ranks.ranks)
    held = {rank.parameters for rank in ranks.ranks if rank.parameters}
    return done and (rung != "train" or len(held) <= 1)


class _Search:
    """One search: its clock, and what it has found out."""

    def __init__(self, attempt: Attempt, rung: str, ended: Tell) -> None:
        self.attempt, self.rung, self.ended = attempt, rung, ended
        self.deadline = time.monotonic() + SEARCH_S
        self.level = attempt.orders.level
        self.count = 0
        self.working: list[frozenset[int]] = []  # GPUs that work together

    def run(self) -> None:
        """All that is worth trying, until one works or the time is up."""
        first, *others = tries(self.attempt.snapshot, self.attempt.orders, self.rung)
        if self._fails_again(first) is not False:
            return
        changes = [one for one in others if not one.gpus]
        found = next((one for one in changes if self._try(one).ok), None)
        if found is not None:
            _ = next((one for one in found.narrower if self._try(one).ok), None)
        if found is None or found.environment == P2P_OFF:
            self._subsets([one for one in others if one.gpus])

    def _fails_again(self, first: Try) -> bool | None:
        """Whether it works now; False where it fails again, which is what a search needs.

        One size is tried first. Where that works, the failure may need the sizes that the run had.
        """
        wanted, self.level = self.level, "quick"
        trial = self._climb(first)
        if trial.ok and wanted != "quick":
            self.level = wanted
            trial = self._climb(first)
        self.ended(trial)
        return trial.ok

    def _subsets(self, parts: Sequence[Try]) -> None:
        """Which GPUs work with each other; nothing new is learnt from a part of those that do."""
        for part in parts:
            members = frozenset(part.gpus)
            if not any(members <= others for others in self.working) and self._try(part).ok:
                self.working.append(members)

    def _try(self, one: Try) -> Trial:
        trial = self._climb(one)
        self.ended(trial)
        return trial

    def _climb(self, one: Try) -> Trial:
        """One launch; what its ranks did is judged by the rung alone."""
        begun = time.monotonic()
        left = self.deadline - begun
        trial = Trial(one.change, None, environment=dict(one.environment), gpus=one.gpus)
        if left < _LEAST_S:
            return replace(trial, detail=f"not tried: the {SEARCH_S:g} s were over")
        ranks = climb(self._attempt(one, min(TRIAL_S + _START_S, left)))
        if ranks.ended == INTERRUPTED:
            raise KeyboardInterrupt
        works = _passed(ranks, self.rung)
        return replace(
            trial,
            ok=True if works else None if ranks.ended == "timed_out" else False,
            detail=None if works else _how_it_ended(ranks),
            seconds=round(time.monotonic() - begun, 1),
            busbw_gb_per_s=_busbw(ranks) if works else None,
        )

    def _attempt(self, one: Try, limit_s: float) -> Attempt:
        self.count += 1
        run = self.attempt.orders
        folder = run_folder.make_below(Path(run.folder) / f"try-{self.count}", run_folder.TRIAL)
        # On GPUs the price of a change is measured with it; on the CPU there is none that matters.
        price = () if run.cpu else ("bandwidth",)
        changed = {
            "folder": str(folder),
            "rungs": tuple(dict.fromkeys((*_ALONE, self.rung, *price, "shutdown"))),
            "level": self.level,
            "stall_s": min(run.stall_s, _STALL_S),
            "scaling": False,
            "fill_percent": 0,
        }
        orders = replace(run, **{**changed, **one.orders})
        environment = {**self.attempt.environment, **nccl_log.environment(orders, environ), **one.environment}
        return replace(
            self.attempt, orders=orders, timeout_s=limit_s, environment=environment, ranks=len(one.gpus) or None
        )


def _how_it_ended(ranks: Ranks) -> str:
    """In a line: the error of the first rank that failed, or where the ranks stood."""
    failed = [rank for rank in ranks.ranks if rank.failed_at is not None]
    if failed:
        first = min(failed, key=lambda rank: rank.failed_at or 0.0)
        return f"rank {first.rank}: {(first.error or 'failed').splitlines()[0]}"
    waiting = [rank for rank in ranks.ranks if not rank.finished]
    if not waiting:
        return "the ranks hold different parameters"
    behind: Rank = min(waiting, key=lambda rank: rank.last_word_order)
    words = {"stalled": f"no progress for {ranks.stall_limit_s:g} s", "timed_out": "out of time"}
    return f'{words.get(ranks.ended, "died")}, rank {behind.rank} at "{behind.last_word or "not heard of"}"'


def _busbw(ranks: Ranks) -> float | None:
    """All-reduce of the largest size that was timed."""
    best = bandwidth.largest(bandwidth.merged(ranks.ranks), "all_reduce")
    return best.busbw_gb_per_s if best is not None else None
