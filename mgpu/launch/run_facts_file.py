"""The facts of a run, stored in its folder at its end, from which `mgpu launch --report` makes its page."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from mgpu import file_reading
from mgpu.errors import MgpuError
from mgpu.hangs.hang_evidence import RECORDED
from mgpu.launch import pace_watch
from mgpu.process.command import Command
from mgpu.secrets_masking import masked_argv
from mgpu.snapshot import (
    BadSnapshot,
    Hang,
    RankTimeline,
    Run,
    Snapshot,
    TimedStep,
    Timeline,
    fact_file,
    loads,
    to_json,
)

NAME = "facts.json"
_LARGEST = 16 << 20  # bytes; the facts of 64 ranks take 0.4 MiB
_MOST_STEPS = 41  # of a rank; of the first of them only the end is known
_MOST_RANKS = 64

Waits = Mapping[int, Mapping[int, float]]  # step -> rank -> seconds


def timeline_of(folder: Path, command: Command, run: Run, waits: Waits) -> Timeline:
    """Return the course of a run that has just ended, with the last steps that its ranks have recorded."""
    began = time.time() - run.seconds
    iso = datetime.fromtimestamp(began, timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
    places = [(one.rank, folder / RECORDED / f"{one.rank}.{one.pid}.beat") for one in run.ranks if one.pid]
    ranks = [RankTimeline(rank, timed_steps(path, rank, began, waits)) for rank, path in places[:_MOST_RANKS]]
    return Timeline(folder.name, iso, run.seconds, tuple(masked_argv(command.argv)), tuple(ranks))


def timed_steps(path: Path, rank: int, began: float, waits: Waits) -> tuple[TimedStep, ...]:
    """Return the last steps of a rank from its counters. `began`: the start of the run, in seconds since the epoch."""
    ends = pace_watch.steps_of(path)
    found: list[TimedStep] = []
    for number in sorted(ends)[-_MOST_STEPS:]:
        end = ends[number]
        before = ends.get(number - 1, pace_watch.Ended(began, 0.0) if number == 1 else end)
        wait = waits.get(number, {}).get(rank)
        times = (end.waited_s - before.waited_s, end.optimizer_s - before.optimizer_s, end.saving_s - before.saving_s)
        loader, optimizer, saving = (round(max(0.0, seconds), 6) for seconds in times)
        found.append(TimedStep(number, round(max(0.0, end.at - began), 4), loader, optimizer, saving, wait))
    return tuple(found)


def store(folder: Path, snapshot: Snapshot, run: Run, timeline: Timeline, hang: Hang | None) -> None:
    """Store the facts. Without secrets; names and paths are kept, because the folder is the user's own."""
    from mgpu.snapshot.redaction import mask_secrets

    facts = replace(snapshot, run=run, hang=hang, timeline=timeline)
    fact_file.write(folder / NAME, to_json(mask_secrets(facts)))


def load(folder: Path) -> Snapshot | None:
    """Return the facts of a run that has ended; None if there are none, or if they cannot be read."""
    try:
        return loads(file_reading.read_whole(folder / NAME, most=_LARGEST).decode("utf-8"))
    except (OSError, UnicodeDecodeError, BadSnapshot):
        return None


def last_lines(parts: Sequence[Path], most: int, most_bytes: int = 32 << 10) -> tuple[str, ...]:
    """Return the last lines that a run printed, without secrets, colors and control characters."""
    from mgpu.messages import clean

    try:
        printed = file_reading.read_part(parts[-1], most=most_bytes) if parts else b""
    except (OSError, MgpuError):
        return ()
    lines = clean(printed.decode("utf-8", "replace").replace("\r", "\n")).split("\n")
    return tuple(line[:400].rstrip() for line in lines if line.strip())[-most:]
