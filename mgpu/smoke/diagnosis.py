"""Which single change makes a failed stage work?

Runs the failed stage again in new processes through the same launcher: first unchanged, then with one change at a time.
The first change that works is the diagnosis. Every try and the whole search have time limits.
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
from mgpu.smoke.runner import Attempt, run_ranks
from mgpu.smoke.trials import COMMUNICATES, P2P_OFF, Try, tries
from mgpu.snapshot import Rank, Ranks, Trial

TRIAL_S = 15.0  # for one try, without the start of the launcher and the imports
SEARCH_S = 90.0  # for all tries together
INTERRUPTED = "interrupted"
_START_S = 30.0  # for the launcher and the imports: 3 s on two idle cores, 15 s if eight other processes share them
_STALL_S = 10.0
_LEAST_S = 5.0  # a launcher needs about 3 s to start two ranks: with less time left, no try is started
_REQUIRED = ("start", "device", "group")  # stages that every other stage depends on
_STAGES = (*COMMUNICATES, "checkpoint")
# fmt: off
# Failures that a change could fix; the cause of all other kinds is already certain (a full disk, no GPU).
_KINDS = (
    None, "wrong_numbers", "pair_wrong_numbers", "gradients_differ", "loss_did_not_fall",
    "cuda_error", "interface_missing",
)
# fmt: on
_STOPPED = ("stopped", "traced")

OnTrial = Callable[[Trial], None]


def search(attempt: Attempt, ranks: Ranks, on_trial: OnTrial | None = None) -> tuple[Trial, ...]:
    """Return the trials and their results; empty if the cause is certain or no change could fix it.

    `on_trial` is called with every trial as it ends. After Ctrl-C the last trial has the detail INTERRUPTED.
    """
    stage = stage_to_search(ranks)
    if stage is None:
        return ()
    trials: list[Trial] = []

    def add(trial: Trial) -> None:
        trials.append(trial)
        if on_trial:
            on_trial(trial)

    try:
        _Search(attempt, stage, add).run()
    except (KeyboardInterrupt, signals.Stopped):
        add(Trial("remaining changes", None, INTERRUPTED))
    return tuple(trials)


def was_interrupted(ranks: Ranks) -> bool:
    """Whether the search was interrupted."""
    return bool(ranks.trials) and ranks.trials[-1].detail == INTERRUPTED


def stage_to_search(ranks: Ranks) -> str | None:
    """Return the stage to run again; None if a search would not help.

    The cause is known if a rank or launcher was stopped or killed from outside, or if a rank reports it. With several
    nodes the search would have to run in lockstep on all of them.
    """
    if ranks.nodes > 1 or ranks.ended in ("timed_out", INTERRUPTED) or (ranks.launcher_exit or 0) < 0:
        return None
    if any(rank.process_state in _STOPPED or rank.exit_code == -signal.SIGKILL for rank in ranks.ranks):
        return None
    first = min((r for r in ranks.ranks if r.failed_at is not None), key=lambda r: r.failed_at or 0.0, default=None)
    if first is not None and first.kind not in _KINDS:
        return None
    stage = next((name for name in ranks.rungs if not _has_passed(ranks, name)), None)
    if first is not None:  # the other ranks may have been stopped at a much earlier stage
        stage = next((step.rung for step in first.steps if step.ok is False), stage)
    return stage if stage in _STAGES else None


def _has_passed(ranks: Ranks, stage: str) -> bool:
    """Whether every rank passed the stage, with equal parameters after training."""
    done = all(any(step.rung == stage and step.ok for step in rank.steps) for rank in ranks.ranks)
    digests = {rank.parameters for rank in ranks.ranks if rank.parameters}
    return done and (stage != "train" or len(digests) <= 1)


class _Search:
    """One search: its deadline and its results so far."""

    def __init__(self, attempt: Attempt, stage: str, on_trial: OnTrial) -> None:
        self.attempt, self.stage, self.on_trial = attempt, stage, on_trial
        self.deadline = time.monotonic() + SEARCH_S
        self.level = attempt.orders.level
        self.count = 0
        self.working: list[frozenset[int]] = []  # GPUs that work together

    def run(self) -> None:
        """Try the changes until one works or the time is up."""
        first, *others = tries(self.attempt.snapshot, self.attempt.orders, self.stage)
        if self._fails_again(first) is not False:
            return
        changes = [one for one in others if not one.gpus]
        found = next((one for one in changes if self._try(one).ok), None)
        if found is not None:
            _ = next((one for one in found.narrower if self._try(one).ok), None)
        if found is None or found.environment == P2P_OFF:
            self._subsets([one for one in others if one.gpus])

    def _fails_again(self, first: Try) -> bool | None:
        """Return the result of an unchanged run: False if it fails again, which the search needs.

        The quick level is tried first. If it works, the failure may need the data sizes of the original run.
        """
        wanted, self.level = self.level, "quick"
        trial = self._launch(first)
        if trial.ok and wanted != "quick":
            self.level = wanted
            trial = self._launch(first)
        self.on_trial(trial)
        return trial.ok

    def _subsets(self, parts: Sequence[Try]) -> None:
        """Find out which GPUs work together, skipping parts of groups that work."""
        for part in parts:
            members = frozenset(part.gpus)
            if not any(members <= others for others in self.working) and self._try(part).ok:
                self.working.append(members)

    def _try(self, one: Try) -> Trial:
        trial = self._launch(one)
        self.on_trial(trial)
        return trial

    def _launch(self, one: Try) -> Trial:
        """Launch the ranks once and judge only the failed stage."""
        begun = time.monotonic()
        left = self.deadline - begun
        trial = Trial(one.change, None, environment=dict(one.environment), gpus=one.gpus)
        if left < _LEAST_S:
            return replace(trial, detail=f"not tried, {SEARCH_S:g} s limit reached")
        ranks = run_ranks(self._attempt(one, min(TRIAL_S + _START_S, left)))
        if ranks.ended == INTERRUPTED:
            raise KeyboardInterrupt
        works = _has_passed(ranks, self.stage)
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
        # On GPUs the bandwidth lost by a change is measured too; on the CPU it does not matter.
        price = () if run.cpu else ("bandwidth",)
        changed = {
            "folder": str(folder),
            "rungs": tuple(dict.fromkeys((*_REQUIRED, self.stage, *price, "shutdown"))),
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
    """Return one line: the error of the first rank that failed, or the progress of the slowest rank."""
    failed = [rank for rank in ranks.ranks if rank.failed_at is not None]
    if failed:
        first = min(failed, key=lambda rank: rank.failed_at or 0.0)
        return f"rank {first.rank}: {(first.error or 'failed').splitlines()[0]}"
    waiting = [rank for rank in ranks.ranks if not rank.finished]
    if not waiting:
        return "parameters differ between ranks"
    behind: Rank = min(waiting, key=lambda rank: rank.last_word_order)
    texts = {"stalled": f"no progress for {ranks.stall_limit_s:g} s", "timed_out": "time limit reached"}
    return f"{texts.get(ranks.ended, 'ranks exited')}, rank {behind.rank}: {behind.last_word or 'no progress reported'}"


def _busbw(ranks: Ranks) -> float | None:
    """Return the bus bandwidth of the largest all-reduce, in GB/s."""
    best = bandwidth.largest(bandwidth.merge_ranks(ranks.ranks), "all_reduce")
    return best.busbw_gb_per_s if best is not None else None
