"""Follow a job from the queue to its end.

Its output is copied to stdout as it is written; its state is reported on stderr. Ctrl-C cancels a job that was
submitted by this command. A job survives an unavailable controller, and it may be requeued.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from mgpu import quantities
from mgpu.errors import MgpuError
from mgpu.launch.hang_follower import JobHangs
from mgpu.process import signals
from mgpu.process.exit_code import Tables
from mgpu.process.tail import Tail
from mgpu.report import screen as report_screen
from mgpu.scheduler import sbatch_errors
from mgpu.scheduler.client import LOOK_S, Answer, Question, is_unreachable
from mgpu.slurm import record as records
from mgpu.slurm.record import Record
from mgpu.snapshot import Hang

_TICK_S = 0.1
# The pause between two queries is a share of the time since the job's state changed: hours in the queue cost the
# controller little, and the end of a short job is reported at once.
_LOOK_SHARE, _LOOK_LEAST_S, _LOOK_MOST_S = 0.05, 0.2, 10.0
_AWAY_S = 10.0  # a controller that does not answer for this long is reported
_RETRY_S = 5.0  # until scancel is repeated, if it did not reach the controller
_CLEANING_S = 10.0  # a cleanup that takes longer is reported
_SETTLED_S = 0.5  # a shorter-lived reason is not reported: the scheduler's first one is preliminary
# Output written on another machine appears here later: NFS caches a file's size for 3 s (acregmin).
_LAST_OUTPUT_S, _MISSING_S = 0.3, 3.0
_AT_ONCE = 16  # chunks of a file to read before signals and the clock are checked again
Say = Callable[[str, report_screen.Style], None]
# The same signal again this soon is the same request: timeout(1) signals the process and then its group.
_SAME_S = 0.2


@dataclass(frozen=True)
class Followed:
    """A job that was followed to its end or until mgpu stopped following it."""

    job: int
    record: Record | None  # Slurm's last record; None: it has none (any more)
    seconds: float  # that it ran
    signalled: int | None = None  # the signal that asked mgpu to stop
    timed_out: bool = False  # by --timeout
    left: bool = False  # it may still be running: mgpu did not wait for its end
    never: str = ""  # why Slurm will never start it
    held: str = ""  # why Slurm holds it
    printed: Tables | None = None
    output: str = ""  # the file that was followed
    target: tuple[str, ...] = ()  # of the command line that followed it
    hang: Hang | None = None  # the last verdict on a run without progress
    watched: Path | None = None  # where its nodes report what its ranks do; None: the ranks have no recorder

    @property
    def state(self) -> str:
        """The job's state, in Slurm's terms."""
        return self.record.state if self.record else "UNKNOWN"


class ReceivedSignals:
    """The stop signals received, including the terminal's hangup."""

    def __init__(self) -> None:
        self.came: list[int] = []
        self._last = (0, 0.0)
        self._handling = signals.installed_handlers(dict.fromkeys((signal.SIGINT, *signals.STOPPING), self._note))

    def __enter__(self) -> ReceivedSignals:
        self._handling.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._handling.__exit__(*exception)

    def _note(self, number: int, _: FrameType | None) -> None:
        before, self._last = self._last, (number, time.monotonic())
        if before[0] != number or self._last[1] - before[1] > _SAME_S:
            self.came.append(number)


def follow(
    job: int,
    received: ReceivedSignals,
    *,
    timeout_s: float = 0.0,
    attached: bool = False,
    quiet: bool = False,
    say: Say,
    hangs: JobHangs | None = None,
) -> Followed:
    """Follow a job to its end.

    `received`: collected since before the job was submitted. `say(text, style)` shows a line. `attached`: the job was
    submitted earlier, and a signal does not cancel it. `quiet`: do not copy its output. `hangs`: what its nodes find.
    """
    follower = _Follower(job, received, timeout_s, attached, say)
    follower.hangs = hangs or follower.hangs
    follower.readers = not quiet
    try:
        return follower.run()
    finally:
        follower.close()


class _Follower:
    def __init__(self, job: int, received: ReceivedSignals, timeout_s: float, attached: bool, say: Say) -> None:
        self.job, self.received, self.timeout_s, self.attached, self.say = job, received, timeout_s, attached, say
        self.record: Record | None = None
        self.reported: tuple[object, ...] = ()  # the state and reason last reported
        self.began = self.changed = self.heard = time.monotonic()
        self.looked = float("-inf")
        self.running_since: float | None = None
        self.ran_s = 0.0
        self.printed = Tables()
        self.tails = (Tail(), Tail())
        self.looking: Question | None = None
        self.cancelling: Question | None = None
        self.cancelled_at: float | None = None
        self.signalled: int | None = None
        self.timed_out = self.dropped = self.away = self.cleaning = False
        self.restarts = 0
        self.never = ""
        self.readers = True
        self.hangs = JobHangs(None)

    def run(self) -> Followed:
        """Follow the job until it has ended or there is nothing to wait for."""
        while True:
            more = self._copy_output()
            self._look()
            if self.dropped or (self.record and self.record.ended):
                break
            if held := self._held():
                return self._end(held=held)
            self._look_for_hang()
            if self._stop():
                return self._end(left=True)
            time.sleep(0 if more else _TICK_S)
        self._read_last_output()
        self._look_for_hang(at_once=True)
        return self._end()

    def close(self) -> None:
        """Stop the Slurm clients and close the files."""
        for question in (self.looking, self.cancelling):
            if question is not None:
                question.drop()
        for tail in self.tails:
            tail.close()

    def _end(self, *, left: bool = False, held: str = "") -> Followed:
        seconds = self._ran()
        if self.record is not None and self.record.ran_s is not None:  # it may have started before the first query
            seconds = max(seconds, self.record.ran_s)
        return Followed(
            self.job,
            self.record,
            seconds,
            self.signalled,
            self.timed_out,
            left,
            self.never,
            held,
            self.printed,
            self.tails[0].path or (self.record.output if self.record else ""),
            hang=self.hangs.hang,
            watched=self.hangs.folder,
        )

    def _ran(self) -> float:
        return self.ran_s + (time.monotonic() - self.running_since if self.running_since is not None else 0.0)

    # Queries to Slurm

    def _look(self) -> None:
        now = time.monotonic()
        if self.looking is None:
            pause = min(_LOOK_MOST_S, max(_LOOK_LEAST_S, (now - self.changed) * _LOOK_SHARE))
            if now - self.looked >= pause:
                try:
                    self.looking = records.query(self.job)
                except (MgpuError, OSError) as error:  # cannot start a process right now; the job continues
                    self.looked = now
                    self._heard(Answer(1, "", str(error)), now)
            return
        answer = self.looking.poll()
        if answer is not None:
            self.looking, self.looked = None, now
            self._heard(answer, now)

    def _heard(self, answer: Answer, now: float) -> None:
        found = records.parse_answer(self.job, answer)
        if found is not None:
            self._back(now)
            self._take(found, now)
        elif records.is_dropped(answer):
            self._back(now)
            self.dropped = True
            self.record = records.read_accounting(self.job) or (self.record if self._had_ended() else None)
        elif now - self.heard > _AWAY_S and not self.away:
            self.away = True
            why = "does not answer" if is_unreachable(answer) else f"reports: {sbatch_errors.explain(answer.err)}"
            self.say(f"Slurm's controller {why}; job {self.job} continues, mgpu keeps trying", "warn")

    def _had_ended(self) -> bool:
        """Whether the last record of a dropped job was its end."""
        return self.record is not None and (self.record.ended or self.record.state == "COMPLETING")

    def _back(self, now: float) -> None:
        self.heard = now
        if self.away:
            self.away = False
            self.say("Slurm's controller answers again", "")

    def _take(self, found: Record, now: float) -> None:
        before, self.record = self.record, found
        if before is None or (before.state, before.reason) != (found.state, found.reason):
            self.changed = now
        if found.restarts > self.restarts and before is not None:
            self.say(f"job {self.job} was requeued (restart {found.restarts})", "warn")
            self.restarts = found.restarts
        self.restarts = max(self.restarts, found.restarts)
        if found.started and self.running_since is None:
            self.running_since = now
            if found.state != "COMPLETING":
                self.say(f"job {self.job} is running on {found.nodes or 'its nodes'}{self._wait_text(now)}", "")
        elif not found.started and self.running_since is not None:
            self.ran_s, self.running_since = self._ran(), None
        if found.state == "COMPLETING" and now - self.changed > _CLEANING_S and not self.cleaning:
            self.cleaning = True
            self.say(f"job {self.job} has ended; Slurm is still cleaning up on {found.nodes or 'its nodes'}", "")
        if found.state in ("PENDING", "CONFIGURING", "SUSPENDED", *records.HELD):
            self._report_waiting(found)

    def _wait_text(self, now: float) -> str:
        waited = now - self.began
        return f", after {quantities.duration_text(waited)}" if waited >= 1 and not self.attached else ""

    def _report_waiting(self, found: Record) -> None:
        """Report why the job waits, once for each reason."""
        wait = sbatch_errors.explain_waiting(found.reason)
        if found.state == "PENDING" and wait.never and not self.attached and self.cancelled_at is None:
            self.never = f"{wait.words} ({found.reason})"
            self.say(f"job {self.job} would never start ({found.reason}), cancelling it", "fail")
            self._cancel()
        unsettled = found.reason in ("", "None") or time.monotonic() - self.changed < _SETTLED_S
        if (found.state, found.reason) == self.reported or self.cancelled_at is not None:
            return
        if found.state == "PENDING" and unsettled:
            return
        self.reported = (found.state, found.reason)
        if found.state != "PENDING":
            self.say(f"job {self.job}: {_STATES.get(found.state, found.state)}", "")
            return
        expected = f"; expected to start {found.start.replace('T', ' ')}" if found.start else ""
        self.say(f"job {self.job} is pending: {wait.words} ({found.reason}){expected}", "warn" if wait.never else "")

    def _held(self) -> str:
        """Return why Slurm holds the job after a failed start, so that it will not run by itself; else ""."""
        found = self.record
        if found is None or self.cancelled_at is not None:
            return ""
        wait = sbatch_errors.explain_waiting(found.reason)
        if found.state in records.HELD:
            return wait.words if wait.held else "it was requeued and is held"
        if found.state == "PENDING" and wait.held and (found.restarts or found.reason not in _HELD_ON_PURPOSE):
            return wait.words
        return ""

    # Signals and the time limit

    def _stop(self) -> bool:
        """Handle signals and --timeout; return whether to stop following the job."""
        now = time.monotonic()
        if self.timeout_s and not self.timed_out and self._ran() >= self.timeout_s:
            self.timed_out = True
            self.say(f"--timeout {self.timeout_s:g}: cancelling job {self.job}", "warn")
            self._cancel()
        if self.received.came and self.signalled is None:
            self.signalled = self.received.came[0]
            if self.attached:
                return True
            name = signal.Signals(self.signalled).name
            self.say(f"{name}: cancelling job {self.job} and waiting for its end (repeat to stop waiting)", "warn")
            self._cancel()
        if self.cancelling is not None and (answer := self.cancelling.poll()) is not None:
            self.cancelling = None
            if is_unreachable(answer):
                self.cancelled_at = now
        if self.cancelled_at is not None and self.cancelling is None and now - self.cancelled_at > _RETRY_S:
            self._cancel()
        return self.signalled is not None and len(self.received.came) > 1 and self.cancelling is None

    def _look_for_hang(self, *, at_once: bool = False) -> None:
        """Say what the nodes have found, and cancel the job if a hang ends it."""
        if self.record is None or not (self.record.started or at_once):
            return
        self.hangs.look(lambda text: self.say(text, "warn"), at_once=at_once)
        if self.hangs.is_to_stop and self.cancelled_at is None and not at_once:
            self.timed_out = True
            self.say(f"--on-hang stop: cancelling job {self.job}", "warn")
            self._cancel()

    def _cancel(self) -> None:
        self.cancelled_at = time.monotonic()
        if self.cancelling is None:
            with contextlib.suppress(MgpuError, OSError):  # retried after _RETRY_S
                self.cancelling = Question("scancel", str(self.job), limit_s=LOOK_S)

    # Its output

    def _copy_output(self) -> bool:
        """Copy a limited amount of new output; return whether there was any."""
        if self.record is None:
            return False
        any_new = False
        names = (self.record.output, "" if self.record.errors == self.record.output else self.record.errors)
        for number, (tail, name) in enumerate(zip(self.tails, names, strict=True), 1):
            for _ in range(_AT_ONCE):
                if not name or not (data := tail.read(records.files(name, self.record))):
                    break
                any_new = True
                self.printed.feed(data)
                self._write(number, data)
        return any_new

    def _write(self, number: int, data: bytes) -> None:
        stream = sys.stdout if number == 1 else sys.stderr
        if stream is None or not self.readers:
            return
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(number, view) :]
        except OSError:  # the reader exited; the job continues
            self.readers = False

    def _read_last_output(self) -> None:
        """Copy the end of the output, which may appear here later than the job's end."""
        quiet = time.monotonic()
        limit = quiet + (_LAST_OUTPUT_S if self.tails[0].path else _MISSING_S)
        record = self.record
        if record is None or not record.output or not record.nodes or record.reason == "JobLaunchFailure":
            limit = quiet
        while True:
            for tail in self.tails:
                tail.again()
            while self._copy_output():
                limit = time.monotonic() + _LAST_OUTPUT_S
            if time.monotonic() >= limit:
                return
            time.sleep(_TICK_S)


_HELD_ON_PURPOSE: Sequence[str] = ("JobHeldUser", "JobHeldAdmin")  # since its submission: sbatch --hold
_STATES = {
    "CONFIGURING": "its nodes are being prepared",
    "SUSPENDED": "suspended, Slurm will resume it",
}


def speaker(screen: report_screen.Screen) -> Say:
    """Return a function that shows mgpu's own lines and ignores write errors."""

    def say(text: str, style: report_screen.Style) -> None:
        with contextlib.suppress(OSError):
            for line in report_screen.wrapped(f"mgpu: {text}", screen.width, "", "      "):
                screen.show([[(line, style)]])

    return say
