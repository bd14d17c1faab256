"""Does the run still make progress; and if not, why?

Progress is output, an optimizer step or a batch of any rank. If there is none for much longer than this run has ever
taken, the ranks are asked what they do, twice. What the checks find is said once; the run goes on, or is stopped.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, Protocol

from mgpu import engine, quantities
from mgpu.engine import Outcome, selections
from mgpu.errors import reason
from mgpu.hangs import hang_evidence, hang_files
from mgpu.hangs.hang_evidence import Inquiry
from mgpu.process import processes
from mgpu.readers.sources import left_loops
from mgpu.snapshot import Hang, Snapshot

OnHang = Literal["report", "stop"]
AFTER_S = 30.0
_TIMES = 3.0  # … and this many times the longest time without progress so far
_LONGEST_S = 600.0  # torch's default for NCCL: after this time, any run without progress is looked at
_WARM_STEPS = 3  # optimizer steps that may include compilation, which says nothing about the rhythm
_SECOND_LOOK_S = 5.0  # between the two samples
_AGAIN_S = 60.0  # until the next look at a run that still makes no progress
_SOON_AGAIN_S = 5.0  # until the next look if no rank keeps the others waiting yet; doubled each time
_QUICK_S = 1.0  # between the samples if the user stops the run; at most 3 s in all
_NODES_S = 3.0  # until the other nodes have written what their ranks do
_ENDING = "ending the run: the launcher waits up to 30 s for ranks that hang"
_POLL_S = 0.02
_WORTH_S = 10.0  # without progress for this long, a run that the user stops may hang


class Supervised(Protocol):
    """The part of the run's supervisor used here."""

    last_output: float
    timed_out: bool

    @property
    def ranks(self) -> Mapping[int, processes.Rank]:
        """The processes, by rank."""

    def say(self, text: str, *, at_once: bool = False, important: bool = False) -> None:
        """Write to the user's terminal and mgpu's log."""

    def is_insisted(self) -> bool:
        """Whether the user has asked again to stop the run."""

    def stop(self, number: int = signal.SIGTERM, why: str = "") -> None:
        """Stop the run."""


class HangWatch:
    """Watches the progress of one run."""

    def __init__(
        self,
        folder: Path,
        expected: int,
        world: int,
        *,
        after_s: float = AFTER_S,
        on_hang: OnHang = "report",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`expected`: ranks on this machine."""
        self.folder, self.expected, self.world = folder, expected, world
        self.after_s, self.on_hang, self._clock = after_s, on_hang, clock
        self.hang: Hang | None = None  # the last one found, while there is no progress
        self.reports = folder  # where hang.json goes; of a Slurm job, not where the ranks record
        self.verdict: Hang | None = None  # what was said last, with the other nodes; None: the run makes progress
        self._since = time.time()
        self._steps = self._joined = 0  # steps of the fastest rank; ranks with a process group
        self._progress: float | None = None
        self._longest = 0.0
        self._warm = self._over = False
        self._inquiry: Inquiry | None = None
        self._looks = 0
        self._in_vain = 0  # looks that found nothing, since the last progress
        self._next = 0.0
        self._told: tuple[str, ...] = ()

    def tick(self, supervisor: Supervised) -> None:
        """Look at the progress, and ask the ranks if there is none. Cheap; called often."""
        if self._over or not supervisor.ranks:
            return
        now = self._clock()
        try:
            if self._has_progress(now, supervisor):
                self._forget(now, supervisor)
            elif self._inquiry is not None:
                self._continue(now, supervisor)
            elif now - (self._progress or now) >= self._patience() and now >= self._next:
                self._inquiry = Inquiry(self.folder, dict(supervisor.ranks))
                self._inquiry.ask()
                self._looks = 1
        except OSError as error:
            self._over = True
            supervisor.say(f"the run is no longer watched for hangs: {reason(error)}")

    def before_signal(self, supervisor: Supervised) -> None:
        """Ask the ranks what they do before they are stopped, if the run may hang. Takes 2 s at most."""
        if self._over:
            return
        self._over, now = True, self._clock()
        if self._progress is None or now - self._progress < min(_WORTH_S, self.after_s):
            return
        if self.hang is None:
            supervisor.say("collecting what the ranks do (2 s); Ctrl-C again to stop at once", at_once=True)
            try:
                self._collect(supervisor, now)
            except OSError as error:
                supervisor.say(f"what the ranks do cannot be collected: {reason(error)}", at_once=True)
        if not supervisor.is_insisted():
            supervisor.say(f"{_ENDING}, Ctrl-C again ends them at once", at_once=True)

    def is_stopped_elsewhere(self) -> bool:
        """Whether another node has stopped the run because of a hang; its finding is then this node's too.

        The ranks here fail as soon as those of the other node end: often before this node has concluded.
        """
        if self.on_hang != "stop" or self.world <= self.expected:
            return False
        hang = hang_files.stopped_by_other_node(self.reports, self._since)
        self.hang = self.verdict = hang or self.hang
        return hang is not None

    def _collect(self, supervisor: Supervised, now: float) -> None:
        inquiry = Inquiry(self.folder, dict(supervisor.ranks))
        for look in range(2):
            inquiry.ask()
            while inquiry.is_waiting():
                if supervisor.is_insisted():
                    return
                time.sleep(_POLL_S)
            if look:
                break
            inquiry.settle()
            until = self._clock() + _QUICK_S
            while self._clock() < until:
                if supervisor.is_insisted():
                    return
                time.sleep(_POLL_S)
        self.hang = self._fact(inquiry, now)
        hang_files.write(self.reports, self.hang)

    # Progress

    def _patience(self) -> float:
        """Return how long this run may be without progress."""
        return max(self.after_s, min(_TIMES * self._longest, max(_LONGEST_S, self.after_s)))

    def _has_progress(self, now: float, supervisor: Supervised) -> bool:
        """Whether there was output, a step or a batch since the last call, or a rank has joined its process group."""
        latest, joined = supervisor.last_output, 0
        for rank, process in supervisor.ranks.items():
            beat = hang_evidence.beat_of(self.folder, rank, process.pid)
            if beat is not None:
                joined += 1
                latest = max(latest, beat.step_at, beat.batch_at)
                self._steps = max(self._steps, beat.steps)
        has_joined = joined > self._joined
        if has_joined:
            self._joined, latest = joined, max(latest, now)
        before = self._progress
        if before is None:  # the ranks have just been started; how long the launcher took says nothing
            self._progress = max(latest, now)
            return False
        if latest <= before:
            return False
        if self._steps > _WARM_STEPS and not self._warm:
            self._warm, self._longest = True, 0.0  # imports and compilation say nothing about the rhythm
        elif has_joined:
            self._longest = 0.0
        else:
            self._longest = max(self._longest, latest - before)
        self._progress = latest
        return True

    def _forget(self, now: float, supervisor: Supervised) -> None:
        """The run goes on: what was found is no longer true."""
        if self._told:
            supervisor.say("the run makes progress again", important=True)
        if self.hang is not None:
            hang_files.remove(self.reports)
        self._inquiry, self.hang, self.verdict, self._told, self._next, self._in_vain = None, None, None, (), 0.0, 0

    # The inquiry

    def _continue(self, now: float, supervisor: Supervised) -> None:
        inquiry = self._inquiry
        assert inquiry is not None
        if self._looks > 3:
            if now >= self._next:
                self._conclude(now, supervisor)
            return
        if inquiry.is_waiting():
            return
        if self._looks == 1:
            inquiry.settle()
            self._looks, self._next = 2, now + min(_SECOND_LOOK_S, self.after_s / 2)
            return
        if self._looks == 2:
            if now >= self._next:
                inquiry.ask()
                self._looks = 3
            return
        self.hang = self._fact(inquiry, now)
        hang_files.write(self.reports, self.hang)
        self._looks, self._next = 4, now + (_NODES_S if self.world > self.expected else 0.0)

    def _conclude(self, now: float, supervisor: Supervised) -> None:
        """Join what the nodes have found, and say it. They notice a hang at the same time."""
        assert self.hang is not None
        self._inquiry = None
        hang = hang_files.merged([self.hang, *hang_files.of_other_nodes(self.reports)])
        self.hang = self.verdict = replace(hang, left_loop=left_loops.find(hang.ranks))
        self._tell(supervisor, self.hang)
        certain = any(one.status == "fail" for one in findings(self.hang))
        self._in_vain = 0 if certain else self._in_vain + 1
        soon = _SOON_AGAIN_S * 2 ** (self._in_vain - 1) if self._in_vain else _AGAIN_S
        self._next = now + min(soon, max(_AGAIN_S, self.after_s))

    def _fact(self, inquiry: Inquiry, now: float) -> Hang:
        ranks, about = inquiry.result()
        quiet = now - (self._progress or now)
        # A command of unknown kind may have started more ranks than were expected.
        expected, world = max(self.expected, len(ranks)), max(self.world, len(ranks))
        return Hang(round(quiet, 1), round(self._longest, 1), ranks, expected, world, **about)

    def _tell(self, supervisor: Supervised, hang: Hang) -> None:
        """Say what the checks find, each finding once."""
        found = findings(hang)
        fresh = [one for one in found if one.check.id not in self._told]
        for outcome in fresh:
            for number, text in enumerate(texts(outcome, hang)):
                supervisor.say(text, important=not number)
        self._told = (*self._told, *(one.check.id for one in fresh))
        if self.on_hang == "stop" and any(one.status == "fail" for one in found):
            if self.world > self.expected:
                hang_files.write(self.reports, hang, hang_files.STOPPED)
            supervisor.timed_out = True
            supervisor.stop(signal.SIGTERM, "--on-hang stop")


def findings(hang: Hang) -> list[Outcome]:
    """Return what the checks find in a run without progress."""
    return [one for one in engine.judge(Snapshot(hang=hang), selections.HANG) if one.problem and not one.because_of]


def texts(outcome: Outcome, hang: Hang) -> list[str]:
    """Return the messages about one finding: what, why, and the fix."""
    problem = outcome.problem
    assert problem is not None
    quiet = quantities.duration_text(hang.quiet_s)
    first = f"no progress for {quiet}: {problem.title}. {problem.cause} [{outcome.check.id}]"
    fix = problem.fixes[0]
    return [first, f"{fix.text}{f'  {fix.commands[0]}' if fix.commands else ''}"]
