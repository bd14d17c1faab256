"""Monitor whether the GPUs of a run really work, and report it while the run is going on.

A child process (`mgpu/probes/gpu_monitor.py`) reads NVML; nothing here waits for it. A minute after the start, one line
reports whether all GPUs train, once that can be determined. Later only problems are reported, each once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from mgpu import engine, quantities
from mgpu.engine import Outcome, selections
from mgpu.engine.selections import Selection
from mgpu.errors import reason
from mgpu.launch import gpu_readings_file, gpu_usage
from mgpu.launch.gpu_readings_file import Now, Stored
from mgpu.launchers import argv as launching
from mgpu.probes.gpu_monitor import Gauges, Reading
from mgpu.process import command as process_command
from mgpu.process.command import Command
from mgpu.snapshot import EndedRank, Gpu, GpuWork, Run, Snapshot
from mgpu.snapshot.gpu_in_use import gpus_of

AFTER_S = 60.0  # until the first message; MGPU_WATCH_AFTER changes it and scales all other times
_START_S = 1.0  # a program that ends at once is not monitored
_INTERVAL_S, _LATER_S, _LATER_INTERVAL_S = 1.0, 120.0, 2.0
_WINDOW_S = 30.0  # the time judged, so that a long start is not called idle
_GIVEN_UP_S = 60.0  # NVML without an answer for this long is given up
_LOOKS = 10  # one a minute: until then the start may just be slow
_SETTLING = 3  # looks with a low load before it is reported: the first steps may be compiling
_SHORT_S = 10.0  # for a shorter run, no readings are expected


class Supervised(Protocol):
    """The part of the run's supervisor (`process.supervisor.Supervisor`) used here."""

    started: float
    last_output: float

    @property
    def ranks(self) -> Mapping[int, Any]:
        """The processes, by rank."""

    def say(self, text: str) -> None:
        """Write to the user's terminal and mgpu's log."""

    def note(self, text: str) -> None:
        """Write to mgpu's log only."""


@dataclass(frozen=True)
class Watched:
    """What was observed of a run's GPUs. All None: it had none."""

    gpus: tuple[GpuWork, ...] | None = None
    after_s: float | None = None  # time of the first sample
    gap: str | None = None  # why GPUs were not monitored, or not to the end
    quiet_s: float | None = None  # time since the last output


class Watch:
    """Monitors the GPUs of one run. A context manager, so that the child process never outlives it."""

    def __init__(
        self,
        snapshot: Snapshot,
        command: Command,
        folder: Path,
        clock: Callable[[], float] = time.monotonic,
        gauges: Callable[..., Gauges] = Gauges,
    ) -> None:
        self.command, self.folder, self.clock, self._gauges = command, folder, clock, gauges
        self.scale = _first_message_s() / AFTER_S
        found = _gpus(snapshot, command.ranks)
        self.tally = gpu_usage.Tally(found, command.ranks, _WINDOW_S * self.scale) if found else None
        self.gauges: Gauges | None = None
        self.number = 0
        self.due = 0.0
        self.after_s: float | None = None
        self.seconds = 0.0
        self.quiet_s: float | None = None
        self.gap: str | None = None
        self.said: list[str] = []
        self.ranks: tuple[EndedRank, ...] = ()
        self._pending = self._messages()
        self._look_at = _first_message_s()

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def tick(self, supervisor: Supervised) -> None:
        """Process new readings and report what they show. Cheap; called often."""
        now = self.clock()
        if now < self.due:
            return
        self.due = now + self.scale * _INTERVAL_S / 2
        self.seconds, self.quiet_s = now - supervisor.started, now - supervisor.last_output
        if self.tally is None or self.gap is not None or self.seconds < _START_S * self.scale:
            return
        try:
            self._look(now, supervisor)
        except Exception as error:
            if os.environ.get("MGPU_DEBUG"):
                raise
            self._give_up(f"a bug in mgpu: {reason(error)}", supervisor)  # the run matters more

    def _look(self, now: float, supervisor: Supervised) -> None:
        if self.gauges is None:
            self._begin(supervisor)
            return
        if not self._take(now, supervisor):
            return
        if self.seconds >= self._look_at:
            self._look_at = self.seconds + _first_message_s()
            for text in next(self._pending, ()):
                self.said.append(text)
                supervisor.say(text)
        self._store()

    def result(self) -> Watched:
        """Return what was observed, including that nothing was."""
        if self.tally is None:
            return Watched(quiet_s=self.quiet_s)
        seen = self.tally.last_at is not None
        gap = self.gap
        if not seen and gap is None and self.seconds > _SHORT_S * self.scale:
            gap = "no reading from NVML"
        return Watched(self.tally.all_time() if seen else None, self.after_s, gap, self.quiet_s)

    def _begin(self, supervisor: Supervised) -> None:
        mark = f"{process_command.MARK}={self.command.run_id}"
        scale = self.scale
        try:
            self.gauges = self._gauges(
                _INTERVAL_S * scale, mark, later_s=_LATER_S * scale, later_interval_s=_LATER_INTERVAL_S * scale
            )
        except OSError as error:
            self._give_up(f"cannot start the process that reads NVML: {error.strerror}", supervisor)

    def _take(self, now: float, supervisor: Supervised) -> bool:
        """Take a new reading if there is one; return whether there was."""
        assert self.gauges is not None and self.tally is not None
        latest = self.gauges.read()
        if self.gauges.number > self.number and latest:
            self.number = self.gauges.number
            self.after_s = self.after_s or self.seconds
            self._update_ranks(supervisor.ranks)
            self.tally.take(now, latest)
            return True
        if trouble := self.gauges.trouble:
            self._give_up(trouble, supervisor)
        elif self.gauges.silent_s > _GIVEN_UP_S * self.scale:
            self._give_up(f"NVML has not answered for {self.gauges.silent_s:.0f} s", supervisor)
        return False

    def _update_ranks(self, ranks: Mapping[int, Any]) -> None:
        assert self.tally is not None
        self.ranks = tuple(EndedRank(rank, pid=known.pid) for rank, known in sorted(ranks.items()))
        self.tally.first_rank = min(ranks, default=0)

    def _give_up(self, why: str, supervisor: Supervised) -> None:
        """Stop monitoring and record why; the run continues."""
        self.gap = f"{why} ({quantities.duration_text(self.seconds)} after the start)"
        supervisor.note(f"GPU monitoring stopped: {self.gap}")
        self._store()

    def _end(self) -> None:
        if self.gauges is not None:
            self.gauges.end()

    # Messages

    def _messages(self) -> Iterator[tuple[str, ...]]:
        """Yield the messages of each look, one look a minute."""
        assert self.tally is not None
        yield from self._first_messages()
        reported: set[str] = set()
        while True:
            fresh = [o for o in self._problems(selections.WATCH_LATER) if o.check.id not in reported]
            reported |= {o.check.id for o in fresh}
            yield tuple(text for outcome in fresh for text in self._problem_texts(outcome))

    def _first_messages(self) -> Iterator[tuple[str, ...]]:
        """Yield whether all GPUs train, as soon as that can be determined. A slow start is reported once."""
        tally, waiting_reported = self.tally, False
        assert tally is not None
        slow = 0
        for look in range(1, _LOOKS + 1):
            lately = tally.lately()
            problems = self._problems(selections.WATCH_START)
            grave = any("passed_run" not in outcome.check.tags for outcome in problems)
            if grave and (self._is_window_full() or look == _LOOKS):
                break
            at_work = [gpu for gpu in lately if gpu.busy_share or gpu.busy_share is None]
            if self._is_window_full() and len(at_work) == len(lately):
                slow += bool(problems)
                if not problems or slow >= _SETTLING:
                    break
            if not at_work and not waiting_reported:
                waiting_reported = True
                yield (f"after {self._age} no GPU is busy yet (loading, tokenizing, compiling?); still monitoring",)
            elif look < _LOOKS:
                yield ()
        if problems:
            yield tuple(text for outcome in problems for text in self._problem_texts(outcome))
        else:
            yield (self._summary(lately),)

    def _is_window_full(self) -> bool:
        """Whether GPUs have been busy for at least the time judged."""
        tally = self.tally
        return (
            tally is not None
            and tally.first_busy is not None
            and tally.last_at is not None
            and tally.last_at - tally.first_busy >= tally.window_s
        )

    def _summary(self, gpus: tuple[GpuWork, ...]) -> str:
        idle = [gpu.index for gpu in gpus if gpu.busy_share == 0]
        who = "the GPU trains" if len(gpus) == 1 else f"all {len(gpus)} GPUs train"
        if len(idle) == len(gpus):
            who = "no GPU is busy"
        elif idle:
            who = f"{len(gpus) - len(idle)} of {len(gpus)} GPUs busy, idle: GPU {', '.join(map(str, idle))}"
        elif any(gpu.busy_share is None for gpu in gpus):
            who = f"{len(gpus)} GPUs; NVML does not report utilization"
        amounts = gpu_usage.amounts(gpus)
        return f"after {self._age} {who}{f': {amounts}' if amounts else ''}"

    def _problem_texts(self, outcome: Outcome) -> tuple[str, ...]:
        problem = outcome.problem
        assert problem is not None
        fix = problem.fixes[0]
        command = f"  {fix.commands[0]}" if fix.commands else ""
        return f"after {self._age} {problem.title}", f"{fix.text}{command}"

    @property
    def _age(self) -> str:
        return quantities.duration_text(self.seconds)

    def _problems(self, selection: Selection) -> list[Outcome]:
        """Return the problems that the checks find in the last half minute."""
        tally = self.tally
        assert tally is not None
        now = Run(
            0,
            0,
            self.seconds,
            ranks=self.ranks,
            expected=self.command.ranks,
            gpus=tally.lately(),
            going=True,
            quiet_s=self.quiet_s,
        )
        return [o for o in engine.judge(Snapshot(run=now), selection) if o.problem and not o.because_of]

    # Storage for other processes

    def _store(self) -> None:
        assert self.tally is not None
        about = {gpu.uuid: gpu for gpu in self.tally.all_time()}
        latest = self.gauges.read() if self.gauges is not None else {}
        now = tuple(_now(about[uuid], reading) for uuid, reading in latest.items() if uuid in about)
        found = Stored(time.time(), tuple(about.values()), now, tuple(self.said), self.gap)
        gpu_readings_file.write(self.folder, found)


def _now(gpu: GpuWork, reading: Reading) -> Now:
    pids = None if gpu.processes is None or reading.processes is None else gpu_usage.pids(reading)
    return Now(
        gpu.index,
        gpu.uuid,
        gpu.rank,
        pids,
        reading.used_bytes,
        reading.total_bytes,
        reading.busy_percent,
        reading.power_w,
    )


def _gpus(snapshot: Snapshot, ranks: int) -> list[Gpu]:
    """Return the GPUs of the run that can be monitored; none on the CPU or without NVML."""
    config, driver = snapshot.config, snapshot.driver
    if config is None or driver is None or not snapshot.gpus or config.on_cpu or launching.on_cpu(config, driver):
        return []
    return [gpu for gpu in gpus_of(snapshot, ranks) if gpu.uuid and not gpu.lost]


def _first_message_s() -> float:
    """Return MGPU_WATCH_AFTER, the seconds until the first message."""
    try:
        return max(0.5, float(os.environ.get("MGPU_WATCH_AFTER", AFTER_S)))
    except ValueError:
        return AFTER_S
