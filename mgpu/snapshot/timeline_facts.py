"""When did each rank of a run take its steps, what was its command, and what did it print last?"""

from __future__ import annotations

from mgpu.snapshot.fast_dataclass import dataclass
from mgpu.snapshot.field_types import Label, Text


@dataclass(frozen=True)
class TimedStep:
    """One optimizer step of a rank: its end, and what it spent its time on. The rest is forward and backward."""

    number: int  # from 1
    end_s: float  # since the start of the run
    loader_s: float = 0.0  # waiting for a batch
    optimizer_s: float = 0.0
    saving_s: float = 0.0
    wait_s: float | None = None  # waiting for the last rank in a collective; None: the ranks were not compared


@dataclass(frozen=True)
class RankTimeline:
    """The last steps of one rank."""

    rank: int
    steps: tuple[TimedStep, ...] = ()


@dataclass(frozen=True)
class Timeline:
    """The course of one run that mgpu started."""

    id: Label
    started: Label  # ISO time, UTC
    seconds: float | None = None  # until its end; None: it has not ended, or it is not known
    command: tuple[Text, ...] = ()  # of the launcher, secrets masked
    ranks: tuple[RankTimeline, ...] = ()
    tail: tuple[Text, ...] = ()  # the last lines of its output, secrets masked
