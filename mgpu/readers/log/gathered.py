"""What has been found in the files of a log so far."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mgpu.readers.log import lone_work, stalls
from mgpu.readers.log.survival import Latest
from mgpu.snapshot import (
    Circumstance,
    CutTraceback,
    FailedRank,
    LastStep,
    Log,
    PrintedStack,
    SignatureMatch,
    StalledCollective,
    UncaughtException,
)


@dataclass
class Shown:
    """A circumstance, and what is counted of it: many are in the line of each step, and a copy for each is slow."""

    first: Circumstance
    last: int
    times: int = 1
    latest: str | None = None

    def as_fact(self) -> Circumstance:
        """Return the circumstance with the counts so far."""
        return replace(self.first, last=self.last, times=self.times, latest=self.latest)


@dataclass
class Gathered:
    """The results so far, of all files."""

    seen: dict[str, SignatureMatch] = field(default_factory=dict)
    script: str | None = None  # the first one that a launcher's table reports as failed
    raised: dict[tuple[str, str, str | None], UncaughtException] = field(default_factory=dict)
    stalled: dict[int | None, StalledCollective] = field(default_factory=dict)
    silences: list[tuple[str, float]] = field(default_factory=list)  # of watchdogs: when reported, and its seconds
    ranks: set[int] = field(default_factory=set)
    nccl: dict[bool, str] = field(default_factory=dict)  # NCCL's first error: True: after "Last error:", False: WARN
    work: list[lone_work.Candidate] = field(default_factory=list)
    last_step: LastStep | None = None  # before the first of these timeouts
    stopped_at: LastStep | None = None  # before a user stopped the run
    stopped: bool = False
    waited_s: float | None = None  # timeout of the first rank that waited without success
    shows: dict[str, Shown] = field(default_factory=dict)
    stacks: list[PrintedStack] = field(default_factory=list)
    cut: list[CutTraceback] = field(default_factory=list)
    fallen: dict[int, FailedRank] = field(default_factory=dict)
    again: dict[str, SignatureMatch] = field(default_factory=dict)  # of `seen`: the first since the run last went on
    raised_again: dict[tuple[str, str, str | None], UncaughtException] = field(default_factory=dict)  # of `raised`
    latest: dict[object, Latest] = field(default_factory=dict)  # by key of `seen` or `raised`

    def as_log(self) -> Log:
        """Return what was found, without what is known of the files themselves."""
        return Log(
            (),
            0,
            0,
            tuple(self.seen.values()),
            tuple(self.raised.values()),
            tuple(self.fallen.values()),
            tuple(self.stalled.values()),
            tuple(sorted(self.ranks)),
            nccl_error=self.nccl.get(True, self.nccl.get(False)),
            lone_work=lone_work.choose(self.work, self.stalled, self.waited_s),
            last_step=self.last_step,
            stopped_at=self.stopped_at,
            shows=tuple(one.as_fact() for one in self.shows.values()),
            stacks=tuple(self.stacks),
            silent_after_s=stalls.silent_after(self.stalled.values(), self.silences),
            failed_script=self.script,
        )
