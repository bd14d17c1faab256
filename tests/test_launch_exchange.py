"""Does a launch notice that its ranks never sent each other anything, and nothing else?

Real ranks over gloo on the CPU: the kernel's connections between them are what is read.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from mgpu.launch.exchange_watch import ExchangeWatch
from mgpu.process import connections
from mgpu.process.connections import ESTABLISHED, LISTEN, TIME_WAIT, Connection
from tests.conftest import need
from tests.scripts import SCRIPTS, kill_all, start, write_config

ID = "run_ranks_exchanged_nothing"
# How exchanges.py trains, and what is reported.
RUNS = {"alone": True, "group": True, "ddp": False}
# Samples are seconds apart on a busy machine, and a group's connections must be seen before they close.
_LOOPBACK = 'ip link set lo up; exec "$@"'
SECONDS = {"alone": "6", "group": "8", "ddp": "0"}


@dataclass(frozen=True)
class End:
    """What one launch printed and wrote."""

    code: int
    said: str
    document: dict[str, Any]

    @property
    def remarks(self) -> list[str]:
        """The ids."""
        return [one["id"] for one in self.document["remarks"]]


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, End]]:
    """Every launch of RUNS, at the same time, in a network of its own: connections of other tests leave gaps."""
    alone = (need("unshare"), *(() if os.geteuid() == 0 else ("-r",)), "-n", "sh", "-ec", _LOOPBACK, "sh")
    need("ip")
    base = tmp_path_factory.mktemp("exchange")
    runners: dict[str, subprocess.Popen[str]] = {}
    try:
        for how in RUNS:
            (base / how).mkdir()
            shutil.copy(SCRIPTS / "exchanges.py", base / how / "train.py")
            write_config(base / how)
            given = ("--unverified", "allow", "--launcher", "torchrun", "--json-result", "result.json")
            runners[how] = start("launch", *given, "train.py", how, SECONDS[how], folder=base / how, under=alone)
        found = {}
        for how, runner in runners.items():
            _, said = runner.communicate(timeout=120)
            found[how] = End(runner.returncode, said, json.loads((base / how / "result.json").read_text()))
        yield found
    finally:
        for how in RUNS:
            kill_all(base / how)


@pytest.mark.parametrize("how", RUNS)
def test_ranks_that_work_alone_are_reported(ends: Mapping[str, End], how: str) -> None:
    end = ends[how]
    assert end.code == 0, end.said
    assert end.remarks == ([ID] if RUNS[how] else []), end.said
    text = " ".join(end.said.split())
    assert ("Ranks the 2 ranks exchanged no data" in text and "accelerator.prepare" in text) is RUNS[how], end.said


class Ranks:
    """A supervisor with two ranks, whose processes and connections are invented."""

    started = 0.0
    ranks: Mapping[int, Any] = {}

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


A, B = (b"\x7f\0\0\1", 5001), (b"\x7f\0\0\1", 5002)


def watched(monkeypatch: pytest.MonkeyPatch, *samples: list[Connection]) -> Any:
    """What is concluded of these samples of the kernel's table."""
    left = list(samples)
    monkeypatch.setattr(connections, "tcp_connections", lambda: left.pop(0) if len(left) > 1 else left[0])
    watch = ExchangeWatch(2, 1, clock=iter(float(second) for second in range(100)).__next__)
    watch._with_torch = {0, 1}
    for _ in samples:
        watch._due = 0.0
        watch.tick(Ranks())
    return watch.result()


def test_a_connection_that_closed_between_two_samples_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = [Connection(TIME_WAIT, A, B, 0)]
    assert watched(monkeypatch, [], closed).gap
    assert watched(monkeypatch, closed, closed).gap is None  # from before the run
    to_a_service = [Connection(LISTEN, (b"\0" * 4, 5002), (b"\0" * 4, 0), 9)]
    assert watched(monkeypatch, to_a_service, closed).gap is None  # of a store, whose process is not a rank
    assert watched(monkeypatch, [], []).gap is None
    open_elsewhere = [Connection(ESTABLISHED, A, B, 7), Connection(ESTABLISHED, B, A, 8)]
    assert watched(monkeypatch, open_elsewhere, closed).gap is None
    not_yet_accepted = [Connection(ESTABLISHED, A, B, 7), Connection(ESTABLISHED, B, A, 0)]
    assert watched(monkeypatch, not_yet_accepted, closed).gap


def test_the_connections_of_others_are_not_those_of_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [Connection(ESTABLISHED, A, B, 7, 10**6, 0), Connection(ESTABLISHED, B, A, 8, 0, 10**6)]
    found = watched(monkeypatch, both, both)
    assert (found.connections, found.carried_bytes, found.gap) == (0, 0, None)


def test_random_states_are_no_gradients() -> None:
    """Samples go on until the bytes are compared with the parameters, which are known after a step."""
    known = {"bytes": 0}
    watch = ExchangeWatch(2, 1, trained=lambda: known["bytes"])
    assert not watch._is_enough(100_000) and watch._is_enough(16 << 20) and watch._is_enough(None)
    assert ExchangeWatch(2, 1)._is_enough(100_000)  # without a recorder
    watch._trained_bytes = 3 << 20
    assert not watch._is_enough(2 << 20) and watch._is_enough(4 << 20)
    watch._trained_bytes = 400
    assert watch._is_enough(100_000) and not watch._is_enough(60_000)


def test_the_parameters_are_those_of_before_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped: list[int] = []

    def sampled() -> list[Connection]:
        stepped.append(4096)
        return []

    monkeypatch.setattr(connections, "tcp_connections", sampled)
    watch = ExchangeWatch(2, 1, lambda: 99.0, lambda: sum(stepped[:1]))
    found = []
    for _ in range(2):
        watch._due = 0.0
        watch.tick(Ranks())
        found.append(watch._trained_bytes)
    assert found == [0, 4096]


def test_what_the_kernel_does_not_answer_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> list[Connection]:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(connections, "tcp_connections", refused)
    watch = ExchangeWatch(2, 1)
    watch.tick(Ranks())
    found = watch.result()
    assert found is not None and "Operation not permitted" in (found.gap or "")
    assert ExchangeWatch(1, 1).result() is None
    several = ExchangeWatch(2, 4).result()
    assert several is not None and several.gap == "the run spans several nodes"
