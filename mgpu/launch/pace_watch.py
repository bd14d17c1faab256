"""Do the ranks of a run keep each other waiting, step by step?

The recorder in each rank has the end of each optimizer step, and torch's flight recorder when each collective was
started. Both are wall-clock times of one machine, so the ranks can be compared. They are asked every half minute;
between that, nothing is read. If a run spans nodes, each asks its own ranks (node_pace.py).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Protocol

from mgpu import file_reading
from mgpu.engine import selections
from mgpu.errors import reason
from mgpu.hangs.hang_evidence import RECORDED, Inquiry, beat_of
from mgpu.launch import pace_report, remarks
from mgpu.process import processes
from mgpu.recorder.inject._mgpu_recorder import BEAT, STEP, STEPS
from mgpu.snapshot import Pace, RankPace, Run
from mgpu.structured_text import json_of

_FIRST_S, EVERY_S = 15.0, 30.0
_WARM = 3  # steps that may compile
_LEAST_STEPS = 10
REPORT_AFTER = 30  # steps compared until a rank that keeps the others waiting is reported while the run goes on
_MOST_STEPS = 2000  # kept
_MOST_BYTES = 8 << 20


class Supervised(Protocol):
    """The part of the run's supervisor used here."""

    started: float

    @property
    def ranks(self) -> Mapping[int, processes.Rank]:
        """The processes, by rank."""

    def say(self, text: str, *, important: bool = False) -> None:
        """Write to the user's terminal and mgpu's log."""


class Ended(NamedTuple):
    """The end of one optimizer step of a rank."""

    at: float  # wall clock
    waited_s: float  # for batches, since the start
    optimizer_s: float = 0.0  # likewise: in optimizers
    saving_s: float = 0.0  # likewise


class Compared(NamedTuple):
    """One step on all ranks."""

    step_s: float
    last: int | None  # the rank that came last; None: the step had no collective
    waits_s: Mapping[int, float]
    loader_s: Mapping[int, float]
    optimizer_s: Mapping[int, float] = {}
    saving_s: Mapping[int, float] = {}


class Times(NamedTuple):
    """The last steps of ranks, and when each of them started each collective, by process group and number."""

    ends: Mapping[int, Mapping[int, Ended]]
    starts: Mapping[int, Mapping[tuple[str, int], float]]


class PaceWatch:
    """Compares the steps of the ranks of one run."""

    fewest = 2  # ranks that are worth asking

    def __init__(self, folder: Path, expected: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder, self.expected, self._clock = folder, expected, clock
        self.reports = folder  # where pace.json goes; of a Slurm job, not where the ranks record
        self._over = False
        self._due = self.pause(_FIRST_S)
        self._inquiry: Inquiry | None = None
        self._compared: dict[int, Compared] = {}
        self._reported = False

    def tick(self, supervisor: Supervised) -> None:
        """Ask the ranks, or read what they wrote, if it is time to. Cheap; called often."""
        seconds = self._clock() - supervisor.started
        if self.expected < self.fewest or self._over or seconds < self._due:
            return
        try:
            if self._inquiry is None:
                self._begin(supervisor, seconds)
            elif not self._inquiry.is_waiting():
                self._inquiry, self._due = None, seconds + self.pause(EVERY_S)
                times = _times_of(self.folder, supervisor.ranks)
                if len(times.ends) == self.expected:
                    self.take(times, supervisor)
        except OSError as error:
            self._over = True
            supervisor.say(f"the steps of the ranks are no longer compared: {reason(error)}")

    def result(self) -> Pace | None:
        """Return the pace of all compared steps; None if there were too few."""
        return pace_of(list(self._compared.values()))

    def waits(self) -> Mapping[int, Mapping[int, float]]:
        """Return how long each rank waited for the last one, in seconds, by step and rank."""
        return {number: step.waits_s for number, step in self._compared.items()}

    def pause(self, seconds: float) -> float:
        """Return how long to wait until the ranks are asked."""
        return seconds

    def take(self, times: Times, supervisor: Supervised) -> None:
        """Compare the steps of all ranks, store their pace, and report a rank that keeps the others waiting."""
        self._compared |= compare(*times)
        for number in sorted(self._compared)[:-_MOST_STEPS]:
            del self._compared[number]
        if (pace := self.result()) is not None:
            pace_report.write(self.reports, pace)  # for --status and --watch
            self._report(pace, supervisor)

    def _begin(self, supervisor: Supervised, seconds: float) -> None:
        beats = [beat_of(self.folder, rank, process.pid) for rank, process in supervisor.ranks.items()]
        if len(beats) < self.expected or any(beat is None or beat.steps <= _WARM for beat in beats):
            self._due = seconds + self.pause(_FIRST_S)
            return
        self._inquiry = Inquiry(self.folder, dict(supervisor.ranks))
        self._inquiry.ask_for_collectives()

    def _report(self, pace: Pace, supervisor: Supervised) -> None:
        if self._reported or pace.steps < REPORT_AFTER:
            return
        run = Run(0, 0, self._clock() - supervisor.started, expected=len(pace.ranks), going=True, pace=pace)
        if text := remarks.while_running(run, selections.RANKS_UNEVEN):
            self._reported = True
            supervisor.say(text, important=True)


def _times_of(folder: Path, ranks: Mapping[int, processes.Rank]) -> Times:
    """Return what the ranks have written after they were asked."""
    places = {rank: folder / RECORDED / f"{rank}.{process.pid}" for rank, process in ranks.items()}
    ends = {rank: steps_of(base.with_name(f"{base.name}.beat")) for rank, base in places.items()}
    return Times(ends, {rank: starts_of(base.with_name(f"{base.name}.flight")) for rank, base in places.items()})


def steps_of(path: Path) -> dict[int, Ended]:
    """Return the last steps of a rank, by their number from 1; none if it has no counters."""
    size, head = struct.calcsize(STEP), struct.calcsize(BEAT)
    try:
        content = file_reading.read_part(path, most=head + STEPS * size, start=0)
    except OSError:
        return {}
    whole = content[head : head + (len(content) - head) // size * size] if len(content) > head else b""
    return {number: Ended(*rest) for number, *rest in struct.iter_unpack(STEP, whole) if number}


def starts_of(path: Path) -> dict[tuple[str, int], float]:
    """Return when a rank started each collective, by process group and number."""
    try:
        content = json_of(file_reading.read_whole(path, most=_MOST_BYTES))
    except (OSError, ValueError):
        return {}
    entries = content.get("entries") if isinstance(content, dict) else None
    return dict(found for entry in (entries if isinstance(entries, list) else []) if (found := _start(entry)))


def _start(entry: Any) -> tuple[tuple[str, int], float] | None:
    if not isinstance(entry, dict) or entry.get("is_p2p"):
        return None
    group, number, at = entry.get("process_group"), entry.get("collective_seq_id"), entry.get("time_created_ns")
    if not isinstance(group, list) or not group or not isinstance(number, int) or not isinstance(at, int):
        return None
    return (str(group[0]), number), at / 1e9


def compare(
    ends: Mapping[int, Mapping[int, Ended]], starts: Mapping[int, Mapping[tuple[str, int], float]]
) -> dict[int, Compared]:
    """Return each step that all ranks have, and in it the collective in which the first rank waited longest."""
    common = set.intersection(*(set(known) for known in ends.values()))
    shared = set.intersection(*(set(known) for known in starts.values()))
    first = next(iter(ends))
    found = {}
    for number in sorted(common):
        if number <= _WARM or number - 1 not in common:
            continue
        begin, end = ends[first][number - 1].at, ends[first][number].at
        inside = [key for key in shared if begin < starts[first][key] <= end]
        spreads = {key: [starts[rank][key] for rank in ends] for key in inside}
        worst = max(spreads, key=lambda key: max(spreads[key]) - min(spreads[key]), default=None)
        phases = _phases(ends, number)
        if worst is None:
            found[number] = Compared(end - begin, None, {}, *phases)
            continue
        at = {rank: starts[rank][worst] for rank in ends}
        last = max(at, key=lambda rank: at[rank])
        found[number] = Compared(end - begin, last, {rank: at[last] - when for rank, when in at.items()}, *phases)
    return found


def _phases(ends: Mapping[int, Mapping[int, Ended]], number: int) -> list[dict[int, float]]:
    """Return what each rank spent one step on: waiting for batches, in the optimizer, saving."""
    pairs = {rank: (known[number - 1], known[number]) for rank, known in ends.items()}
    return [{rank: after[field] - before[field] for rank, (before, after) in pairs.items()} for field in (1, 2, 3)]


def pace_of(steps: list[Compared]) -> Pace | None:
    """Return the medians of these steps; None if too few of them have a collective."""
    known = [step for step in steps if step.last is not None]
    if len(known) < _LEAST_STEPS:
        return None
    ranks = sorted(known[0].waits_s)
    total = sum(step.step_s for step in known)
    waited = sum(sum(step.waits_s.values()) / (len(ranks) - 1) for step in known)
    return Pace(
        len(known),
        median(step.step_s for step in known),
        round(waited / total, 4) if total > 0 else 0.0,
        tuple(
            RankPace(
                rank,
                round(median(step.loader_s[rank] for step in known), 6),
                round(median(step.waits_s[rank] for step in known), 6),
                round(sum(step.last == rank for step in known) / len(known), 3),
                round(median(step.optimizer_s.get(rank, 0.0) for step in known), 6),
                round(sum(step.saving_s.get(rank, 0.0) for step in known), 3),
            )
            for rank in ranks
        ),
    )
