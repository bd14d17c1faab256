"""mgpu/hangs/hang_watch.py with a clock of its own: when the ranks are asked, and when the run is stopped."""

from __future__ import annotations

import errno
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mgpu.hangs import hang_evidence, hang_files, hang_watch
from mgpu.hangs.hang_evidence import Beat
from mgpu.hangs.hang_watch import HangWatch, OnHang
from mgpu.process import processes
from mgpu.snapshot import HangRank
from tests.checks.facts import frame, hang, hang_rank, waits

pytestmark = pytest.mark.quick

STEP_S = 0.5  # between two calls


@dataclass
class Clock:
    """Seconds, which only the test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Supervised:
    """A run with two ranks."""

    clock: Clock
    last_output: float = 1000.0
    timed_out: bool = False
    said: list[tuple[float, str, bool]] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)
    insisted: bool = False

    @property
    def ranks(self) -> dict[int, processes.Rank]:
        return {0: processes.Rank(11), 1: processes.Rank(12)}

    def say(self, text: str, *, at_once: bool = False, important: bool = False) -> None:
        self.said.append((self.clock.now - 1000, text, important))

    def is_insisted(self) -> bool:
        return self.insisted

    def stop(self, number: int = signal.SIGTERM, why: str = "") -> None:
        self.stopped.append(number)


class Answers:
    """The ranks' answers: rank 1 sleeps, and rank 0 waits for it."""

    asked = 0

    def __init__(self, folder: Path, ranks: Any) -> None:
        del folder, ranks

    def ask(self) -> None:
        Answers.asked += 1

    def is_waiting(self) -> bool:
        return False

    def settle(self) -> None:
        """Nothing to read."""

    def result(self) -> tuple[tuple[HangRank, ...], dict[str, Any]]:
        return RANKS, {}


SLEEPS = frame("time.sleep(1000)")
RANKS = (waits(0), hang_rank(1, SLEEPS))


@dataclass
class Run:
    """One watched run: `go` passes time, `step` is an optimizer step of both ranks."""

    watch: HangWatch
    supervised: Supervised
    clock: Clock
    beats: dict[int, Beat]

    def go(self, seconds: float) -> None:
        for _ in range(int(seconds / STEP_S)):
            self.clock.now += STEP_S
            self.watch.tick(self.supervised)

    def step(self) -> None:
        for rank in (0, 1):
            before = self.beats.get(rank)
            self.beats[rank] = Beat((before.steps if before else 0) + 1, self.clock.now, 0, 0.0, 0.0, 0.0, 0.0)

    def train(self, steps: int, seconds_each: float) -> None:
        for _ in range(steps):
            self.step()
            self.go(seconds_each)

    @property
    def findings(self) -> list[float]:
        """When something was said."""
        return [at for at, text, _ in self.supervised.said if text.startswith("no progress")]


def run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    after_s: float = 30.0,
    on_hang: OnHang = "report",
    world: int = 2,
) -> Run:
    clock = Clock()
    beats: dict[int, Beat] = {}
    Answers.asked = 0
    monkeypatch.setattr(hang_watch, "Inquiry", Answers)
    monkeypatch.setattr(hang_evidence, "beat_of", lambda folder, rank, pid: beats.get(rank))
    watch = HangWatch(tmp_path, 2, world, after_s=after_s, on_hang=on_hang, clock=clock)
    return Run(watch, Supervised(clock), clock, beats)


def test_a_run_that_hangs_is_reported_once_and_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = run(tmp_path, monkeypatch)
    one.train(20, 1.0)
    last = one.clock.now - 1000 - 1.0
    one.go(600)
    (found,) = one.findings
    assert 30 <= found - last <= 30 + 15, "verdict at most 15 s after the threshold"
    first, fix = one.supervised.said
    assert "rank 1 sleeps at train.py:31" in first[1] and first[1].endswith("[hang_rank_sleeps]") and first[2]
    assert fix[1] and not fix[2], "one line on a stderr that is no terminal"
    assert Answers.asked > 4, "it looks again"
    assert not one.supervised.stopped and hang_files.read(tmp_path) is not None


def test_the_patience_follows_the_rhythm_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = run(tmp_path, monkeypatch)
    one.train(20, 40.0)  # after the first ones, steps of 40 s: three times as long is a hang, 100 s is not
    Answers.asked, one.supervised.said = 0, []
    one.go(60)
    assert Answers.asked == 0
    one.go(60)
    assert len(one.findings) == 1


def test_the_first_steps_say_nothing_about_the_rhythm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may compile for minutes; afterwards 30 s without a step are many."""
    one = run(tmp_path, monkeypatch)
    one.train(2, 25.0)
    one.train(20, 1.0)
    one.go(45)
    assert len(one.findings) == 1


def test_no_patience_is_longer_than_torchs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = run(tmp_path, monkeypatch)
    one.train(5, 1.0)
    one.train(3, 500.0)
    one.supervised.said = []
    one.go(110)
    assert len(one.findings) == 1, "500 + 110 s after the last step; three times 500 s would be more"


def test_output_and_batches_are_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = run(tmp_path, monkeypatch)
    one.train(5, 1.0)
    for number in range(20):
        one.go(20)
        if number % 2:
            one.supervised.last_output = one.clock.now
        else:
            one.beats[1] = Beat(5, one.beats[1].step_at, number + 1, one.clock.now, 0.0, 0.0, 0.0)
    assert Answers.asked == 0 and one.supervised.said == []


def test_progress_takes_the_finding_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = run(tmp_path, monkeypatch)
    one.train(5, 1.0)
    one.go(60)
    assert one.watch.hang is not None
    one.step()
    one.go(1)
    assert one.supervised.said[-1][1:] == ("the run makes progress again", True)
    assert one.watch.hang is None and hang_files.read(tmp_path) is None
    one.go(300)  # its longest time without progress was 60 s: three times that
    assert len(one.findings) == 2


def test_stop_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = run(tmp_path, monkeypatch, on_hang="stop")
    one.train(5, 1.0)
    one.go(50)
    assert one.supervised.stopped == [signal.SIGTERM] and one.supervised.timed_out


def test_a_run_that_works_is_not_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = hang_rank(1, frame("tokenize()"), busy=True, moved=True)
    monkeypatch.setattr(Answers, "result", lambda _: ((waits(0), busy), {}))
    one = run(tmp_path, monkeypatch, on_hang="stop")
    one.train(5, 1.0)
    one.go(300)
    assert len(one.findings) == 1 and "[hang_rank_works]" in one.supervised.said[0][1]
    assert not one.supervised.stopped


def test_other_nodes_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rank that sleeps is on another node."""
    monkeypatch.setattr(Answers, "result", lambda _: ((waits(0), waits(1)), {}))
    here, there = tmp_path / "node0", tmp_path / "node1"
    here.mkdir()
    there.mkdir()
    one = run(here, monkeypatch, world=4)
    one.train(5, 1.0)
    while one.watch.hang is None:
        one.go(STEP_S)
    assert one.findings == []
    hang_files.write(there, hang(waits(2), hang_rank(3, SLEEPS), world=4))
    one.go(4)
    assert len(one.findings) == 1 and "rank 3 sleeps at train.py:31" in one.supervised.said[0][1]


def test_a_hang_that_another_node_has_concluded_is_this_nodes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ranks end with the run, before this node has concluded, and what they print looks like progress."""
    here, there = tmp_path / "node0", tmp_path / "node1"
    here.mkdir()
    there.mkdir()
    hang_files.write(there, hang(waits(0), hang_rank(1, SLEEPS), world=4), hang_files.STOPPED)
    os.utime(there / hang_files.STOPPED, (time.time() - 5, time.time() - 5))
    one = run(here, monkeypatch, world=4, on_hang="stop")
    assert not one.watch.is_stopped_elsewhere() and one.watch.hang is None, "of an earlier run"
    monkeypatch.setattr(Answers, "result", lambda _: ((waits(2), hang_rank(3, SLEEPS)), {}))
    other = run(there, monkeypatch, world=4, on_hang="stop")
    other.train(5, 1.0)
    other.go(60)
    assert other.supervised.timed_out
    assert one.watch.is_stopped_elsewhere()
    assert one.watch.hang is not None and [rank.rank for rank in one.watch.hang.ranks] == [2, 3]
    assert not run(here, monkeypatch, world=4).watch.is_stopped_elsewhere(), "--on-hang report"


def test_a_run_that_is_interrupted_is_asked_only_if_it_may_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = run(tmp_path, monkeypatch)
    one.train(5, 1.0)
    one.watch.before_signal(one.supervised)
    assert Answers.asked == 0 and one.supervised.said == []
    other = run(tmp_path, monkeypatch)
    other.train(5, 1.0)
    other.go(15)
    other.supervised.insisted = True  # the second Ctrl-C
    other.watch.before_signal(other.supervised)
    assert Answers.asked == 1 and other.watch.hang is None
    assert ["collecting" in text for _, text, _ in other.supervised.said] == [True]


def test_a_finding_that_cannot_be_stored_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = run(tmp_path, monkeypatch)
    one.watch.reports = tmp_path / "gone"
    one.train(20, 1.0)
    one.go(600)
    assert len(one.findings) == 1 and not (tmp_path / "gone").exists()


def test_a_watch_that_cannot_go_on_says_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = run(tmp_path, monkeypatch)
    one.train(20, 1.0)

    def fails(*_: object) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Answers, "ask", fails)
    one.go(600)
    assert [text for _, text, _ in one.supervised.said] == ["the run is no longer watched for hangs: Permission denied"]
