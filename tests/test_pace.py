"""mgpu/launch/pace_watch.py: which rank comes last, from what the recorders wrote."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from mgpu.launch.pace_watch import Compared, Ended, compare, pace_of, starts_of, steps_of
from mgpu.recorder.inject._mgpu_recorder import BEAT, STEP, STEPS


def test_the_last_steps_of_a_rank_are_read(tmp_path: Path) -> None:
    size = struct.calcsize(STEP)
    ring = bytearray(STEPS * size)
    for number in range(300, 300 + STEPS):
        struct.pack_into(STEP, ring, number % STEPS * size, number, 1000.0 + number, 2.0 * number, 0.1 * number, 3.0)
    file = tmp_path / "0.7.beat"
    file.write_bytes(struct.pack(BEAT, 555, 1.0, 0, 0.0, 0.0, 0.0, 0.0) + ring)
    found = steps_of(file)
    assert sorted(found) == list(range(300, 300 + STEPS)) and found[310] == Ended(1310.0, 620.0, 31.0, 3.0)


def test_what_is_no_counter_file_has_no_steps(tmp_path: Path) -> None:
    file = tmp_path / "0.7.beat"
    for content in (b"", b"x" * 20, b"\0" * 3000):
        file.write_bytes(content)
        assert steps_of(file) == {}
    assert steps_of(tmp_path / "none") == {}


def test_the_start_of_each_collective_is_read(tmp_path: Path) -> None:
    entries = [
        {"process_group": ["0", "default_pg"], "collective_seq_id": 7, "time_created_ns": 5_000_000_000},
        {"process_group": ["0", "default_pg"], "collective_seq_id": 8, "time_created_ns": 6, "is_p2p": True},
        {"process_group": "0", "collective_seq_id": 9, "time_created_ns": 6},
        None,
    ]
    file = tmp_path / "0.7.flight"
    file.write_text(json.dumps({"entries": entries}))
    assert starts_of(file) == {("0", 7): 5.0}
    file.write_text("[")
    assert starts_of(file) == {}


def _run(late: float, steps: int = 20) -> dict[int, Compared]:
    """Steps of one second on two ranks, with two collectives each; rank 1 comes `late` seconds after rank 0."""
    ends = {rank: {n: Ended(float(n), 0.1 * n * rank) for n in range(1, steps + 1)} for rank in (0, 1)}
    starts = {
        rank: {("0", 2 * n + part): n - 0.5 + 0.1 * part + late * rank for n in range(1, steps + 1) for part in (0, 1)}
        for rank in (0, 1)
    }
    return compare(ends, starts)


def test_the_rank_that_comes_last_is_named() -> None:
    found = pace_of(list(_run(0.25).values()))
    assert found is not None and found.steps == 17 and round(found.waited_share, 3) == 0.25
    assert [(rank.last_share, rank.wait_s) for rank in found.ranks] == [(0.0, 0.25), (1.0, 0.0)]
    assert round(found.ranks[1].loader_s, 6) == 0.1


def test_a_delay_counts_once_in_a_step() -> None:
    """All buckets of a late backward pass are late."""
    assert {step.waits_s[0] for step in _run(0.25).values()} <= {0.25, 0.25 - 1e-16, 0.2500000000000018}


def test_too_few_steps_say_nothing() -> None:
    assert pace_of(list(_run(0.25, 10).values())) is None
    assert pace_of([]) is None


def test_steps_without_a_common_collective_say_nothing() -> None:
    ends = {rank: {n: Ended(float(n), 0.0) for n in range(1, 40)} for rank in (0, 1)}
    assert pace_of(list(compare(ends, {0: {}, 1: {}}).values())) is None
