"""What the bandwidth rung measures, what is kept of it, and what it is compared with."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mgpu import errors
from mgpu.errors import MgpuError
from mgpu.launchers import stamp
from mgpu.planning import bandwidth
from mgpu.report.screen import Screen
from mgpu.smoke import baseline
from mgpu.smoke.ranks import bandwidth as rung
from mgpu.smoke.ranks import scaling
from mgpu.snapshot import Bandwidth, Baseline, Ranks, Scaling, Snapshot, Timed
from mgpu.wizard import run as wizard
from mgpu.wizard import scaling_table
from mgpu.wizard.answers import Answers
from tests.checks import facts as known
from tests.conftest import Run
from tests.rungs import Case, climb

RUNGS = ("start", "device", "group", "bandwidth", "shutdown")
SHORT = "tests.scripts.short_of_time"
PLENTY = f"{SHORT}:plenty"
KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture(scope="module")
def climbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ranks]:
    """The rung in several worlds, in one go."""
    cases = (
        Case("one", 1, RUNGS, PLENTY),
        Case("two", 2, RUNGS, PLENTY),
        Case("three, sharded", 3, RUNGS, PLENTY, orders={"strategy": "fsdp"}),
        Case("four", 4, RUNGS, PLENTY),
        Case("quick", 2, RUNGS, PLENTY, orders={"level": "quick"}),
        Case("no scaling", 2, RUNGS, PLENTY, orders={"scaling": False}),
        Case("no time on rank 0", 4, RUNGS, f"{SHORT}:first_rank"),
        Case("no time on rank 1", 2, RUNGS, f"{SHORT}:last_rank"),
    )
    return climb(tmp_path_factory.mktemp("bandwidth"), cases)


def rows(ranks: Ranks) -> dict[tuple[str, int], Bandwidth]:
    return {(row.collective, row.size_bytes): row for row in bandwidth.merge_ranks(ranks.ranks)}


def test_every_world_passes(climbed: dict[str, Ranks]) -> None:
    for name, ranks in climbed.items():
        assert ranks.ended == "finished", (name, [rank.error for rank in ranks.ranks], ranks.launcher_output)


def test_each_rank_times_the_same_collectives(climbed: dict[str, Ranks]) -> None:
    for ranks in climbed.values():
        told = [{(row.collective, row.size_bytes) for row in rank.bandwidth} for rank in ranks.ranks]
        assert all(one == told[0] for one in told)
        for rank in ranks.ranks:
            assert all(0 < row.seconds_p50 <= row.seconds_p99 for row in rank.bandwidth)
            assert {(row.backend, row.ranks) for row in rank.bandwidth} <= {("gloo", ranks.expected)}


def test_ddp_and_sharded_training_need_other_collectives(climbed: dict[str, Ranks]) -> None:
    assert {name for name, _ in rows(climbed["two"])} == {"all_reduce", "broadcast"}
    assert {name for name, _ in rows(climbed["three, sharded"])} == {"all_reduce", "all_gather", "reduce_scatter"}
    assert set(rows(climbed["quick"])) == {("all_reduce", 8 * KIB), ("all_reduce", MIB)}
    assert not climbed["one"].ranks[0].bandwidth


@pytest.mark.parametrize(
    ("strategy", "stage", "wanted"),
    [
        ("ddp", None, "all_reduce broadcast"),
        ("fsdp", None, "all_reduce all_gather reduce_scatter"),
        ("deepspeed", 0, "all_reduce broadcast"),
        ("deepspeed", 1, "all_reduce all_gather reduce_scatter"),
        ("deepspeed", 3, "all_reduce all_gather reduce_scatter"),
        ("deepspeed", None, "all_reduce all_gather reduce_scatter"),
    ],
)
def test_collectives_of_a_strategy(strategy: str, stage: int | None, wanted: str) -> None:
    assert rung.collectives_of(strategy, "standard", stage) == tuple(wanted.split())
    assert rung.collectives_of(strategy, "long", stage) == (*wanted.split(), "all_to_all")


def test_a_size_is_what_nccl_tests_counts(climbed: dict[str, Ranks]) -> None:
    """One rank's tensor for all-reduce; the whole array, in equal parts, for what the ranks share."""
    found = rows(climbed["three, sharded"])
    assert ("all_reduce", 4 * MIB) in found and ("all_gather", 4 * MIB - 4) in found  # 3 parts of 349,525 numbers
    for (name, size), row in found.items():
        assert row.algbw_gb_per_s == pytest.approx(size / row.seconds_p50 / 1e9)
        assert row.busbw_gb_per_s == pytest.approx(row.algbw_gb_per_s * (4 / 3 if name == "all_reduce" else 2 / 3))


def test_training_on_one_two_and_all(climbed: dict[str, Ranks]) -> None:
    for name, counts in (("one", [1]), ("two", [1, 2]), ("three, sharded", [1, 2, 3]), ("four", [1, 2, 4])):
        runs = bandwidth.merge_scaling(climbed[name].ranks)
        assert [run.ranks for run in runs] == counts
        assert runs[0].efficiency == pytest.approx(1.0)
        for run in runs:
            assert run.samples_per_s == pytest.approx(run.ranks * scaling._ON_CPU[2] / run.seconds_per_step)
            assert run.compute_seconds > 0 and run.efficiency is not None
        for rank in climbed[name].ranks:
            assert [run.ranks for run in rank.scaling] == [count for count in counts if count > rank.rank]
            assert 0 < rank.measured["step_compute_seconds"] <= rank.scaling[-1].compute_seconds
    assert not climbed["no scaling"].ranks[0].scaling and not climbed["quick"].ranks[0].scaling


@pytest.mark.parametrize(
    ("world", "counts"), [(1, (1,)), (2, (1, 2)), (3, (1, 2, 3)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8))]
)
def test_groups(world: int, counts: tuple[int, ...]) -> None:
    assert scaling.group_sizes(world) == counts


def test_rank_0s_clock_decides_for_all_what_is_left_out(climbed: dict[str, Ranks]) -> None:
    ranks = climbed["no time on rank 0"]
    assert {size for _, size in rows(ranks)} == {8 * KIB}
    for rank in ranks.ranks:
        told = [text for text in rank.skipped if "bandwidth" in text or "scaling" in text]
        assert "bandwidth of all-reduce 256 KiB, broadcast 256 KiB, all-reduce 4 MiB" in told[0]
        assert told[1:] == [f"scaling to {count} ranks: 0 s limit reached" for count in (1, 2)] or rank.rank
    (all_four,) = bandwidth.merge_scaling(ranks.ranks)
    assert all_four.ranks == 4 and all_four.efficiency is None
    assert set(rows(climbed["no time on rank 1"])) == set(rows(climbed["two"]))


def test_a_size_that_would_take_too_long_is_seen_before_it_is_tried() -> None:
    slow = {"size_bytes": 64 * MIB, "seconds_p50": 0.64}  # 0.1 GB/s
    assert rung._ahead(256 * MIB, slow, True) == pytest.approx(0.64 * 4 * 25)
    assert rung._ahead(1024 * MIB, slow, True) == pytest.approx(0.64 * 16 * 7)
    assert rung._ahead(MIB, {"size_bytes": 8 * KIB, "seconds_p50": 1.0}, True) == 0.0  # latency tells nothing of it
    assert rung._ahead(8 * KIB, None, False) == 0.0


class _Event:
    """A CUDA event on a GPU whose clock goes one millisecond further with every mark."""

    clock = 0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        _Event.clock += 1
        self.at = _Event.clock

    def elapsed_time(self, other: _Event) -> float:
        return other.at - self.at


class _Gpu:
    """As much of `Here` as the timing on a GPU asks of it."""

    on_gpu = True
    device = None
    waited = 0

    def __init__(self, free: int = 0) -> None:
        memory = SimpleNamespace(Event=_Event, mem_get_info=lambda device: (free, 80 << 30))
        self.torch = SimpleNamespace(cuda=memory)

    def wait(self) -> None:
        self.waited += 1

    def least(self, number: int) -> int:
        return number


def test_a_gpu_is_timed_by_its_own_clock() -> None:
    """Asked for all at once, waited for once: what the host does between two collectives does not count."""
    gpu, calls = _Gpu(), list[int]()
    times = rung._measure_times(gpu, lambda: calls.append(gpu.waited), 5, 20)  # type: ignore[arg-type]
    assert times == [0.001] * 20 and calls == [0] * 5 + [1] * 20 and gpu.waited == 2


@pytest.mark.parametrize(
    ("free", "largest"), [(64 << 30, 4096 * MIB), (15 << 30, 1024 * MIB), (MIB, 64 * KIB), (0, 8 * KIB)]
)
def test_half_of_the_free_memory_is_left_alone(free: int, largest: int) -> None:
    gpu: Any = _Gpu(free)
    assert max(rung._that_fit(gpu, gpu, rung._ON_GPU["long"].sizes)) == largest


def test_a_rank_that_fails_while_others_wait_is_named(tmp_path: Path) -> None:
    case = Case("dies", 2, RUNGS, f"{SHORT}:dies_while_others_wait", limit_s=6)
    ranks = climb(tmp_path, (case,))["dies"]
    first, other = ranks.ranks
    assert (
        first.error == "RuntimeError: made to fail" and first.last_word == "scaling: 8 steps on 1 of 2 ranks, no_sync"
    )
    assert other.last_word == "wait for rank 0"  # it is ended, or loses the store that rank 0 held
    assert not other.finished or (first.failed_at or 0) < (other.failed_at or 0)


# What is kept, and read back


def measured_snapshot(folder: Path, **changes: Any) -> Snapshot:
    """A machine on which a smoke test has passed."""
    row = Timed("all_reduce", "nccl", 4, 256 * MIB, 1e-3, 2e-3)
    runs = tuple(Scaling(n, n * 512 / 0.01 * (1.0 if n == 1 else 0.95), 0.01, 0.009) for n in (1, 2, 4))
    members = tuple(
        known.rank(
            n, bandwidth=(row,), scaling=tuple(run for run in runs if run.ranks > n), measured={"gemm": 700.0 + n}
        )
        for n in range(4)
    )
    config = known.config(path=str(folder / "accelerate.yaml"), sha256="c" * 64)
    return Snapshot(**known.facts(config=config, ranks=known.ranks(*members), rehearsal=None, **changes))


def test_a_stamp_keeps_what_was_measured(tmp_path: Path) -> None:
    passed = measured_snapshot(tmp_path)
    path = stamp.write(passed, ("start",), {"0": {"gemm": 700.0}})
    kept = stamp.last_measurements(replace(passed, ranks=None), tmp_path)
    assert kept is not None and kept.same_gpus and kept.path == str(path)
    assert passed.ranks is not None and kept.bandwidth == bandwidth.merge_ranks(passed.ranks.ranks)
    assert kept.measured == {"0": {"gemm": 700.0}} and [run.ranks for run in kept.scaling] == [1, 2, 4]
    now = stamp.current_stamp(passed)
    assert now is not None and now.scaling == kept.scaling
    assert baseline.load("", passed) == kept


def test_a_quick_pass_keeps_what_a_longer_one_measured(tmp_path: Path) -> None:
    passed = measured_snapshot(tmp_path)
    path = stamp.write(passed, ("start", "bandwidth"), {})
    whole = json.loads(path.read_text())
    (entry,) = whole["entries"].values()
    entry["time"] = "2026-01-02T03:04:05Z"
    path.write_text(json.dumps(whole))
    before = stamp.last_measurements(passed, tmp_path)
    for _ in range(2):
        stamp.write(replace(passed, ranks=known.ranks(level="quick")), ("start",), {})
    kept = stamp.last_measurements(passed, tmp_path)
    assert before is not None and kept is not None and kept.taken == "2026-01-02T03:04:05Z"
    assert (kept.bandwidth, kept.scaling) == (before.bandwidth, before.scaling)
    now = stamp.current_stamp(passed)
    assert now is not None and (now.level, now.rungs) == ("quick", ("start",)) and now.verified_at != kept.taken


def test_other_gpus_have_no_baseline(tmp_path: Path) -> None:
    passed = measured_snapshot(tmp_path)
    stamp.write(passed, ("start",), {})
    assert stamp.last_measurements(replace(passed, gpus=known.gpus(2), visible=known.seen(0, 1)), tmp_path) is None
    assert stamp.last_measurements(replace(passed, gpus=(), visible=known.seen()), tmp_path) is None
    assert stamp.last_measurements(replace(passed, gpus=None), tmp_path) is None
    assert baseline.load("", replace(passed, config=None)) is None


@pytest.mark.parametrize("old", [{}, {"bandwidth": [{"collective": 7}], "scaling": 3, "measured": ["x"]}])
def test_a_stamp_of_an_older_mgpu_is_still_read(tmp_path: Path, old: dict[str, Any]) -> None:
    passed = measured_snapshot(tmp_path)
    path = stamp.write(passed, ("start",), {})
    whole = json.loads(path.read_text())
    (entry,) = whole["entries"].values()
    for key in ("bandwidth", "scaling", "measured"):
        del entry[key]
    entry |= old
    path.write_text(json.dumps(whole))
    kept = stamp.last_measurements(passed, tmp_path)
    assert kept is not None and (kept.bandwidth, kept.scaling, kept.measured) == ((), (), {})
    assert (again := stamp.current_stamp(passed)) is not None and again.verified is not None


def result(folder: Path, **changes: Any) -> Path:
    """The smoke.json of an earlier run on the same machine."""
    passed = measured_snapshot(folder)
    assert passed.ranks is not None
    members = passed.ranks.ranks
    document = {
        "schema": "mgpu.smoke/1.0",
        "bandwidth": [asdict(row) for row in bandwidth.merge_ranks(members)],
        "scaling": [asdict(run) for run in bandwidth.merge_scaling(members)],
        "ranks": [{"rank": one.rank, "gpu": one.gpu_uuid, "measured": dict(one.measured)} for one in members],
    } | changes
    path = folder / "smoke.json"
    path.write_text(json.dumps(document))
    return path


def test_an_earlier_result_is_read(tmp_path: Path) -> None:
    snapshot = measured_snapshot(tmp_path)
    path = result(tmp_path)
    for asked in (path, tmp_path):  # the file, or the run's folder
        read = baseline.load(str(asked), snapshot)
        assert read is not None and read.same_gpus is True and read.path == str(path)
        assert [row.size_bytes for row in read.bandwidth] == [256 * MIB]
        assert read.measured["3"] == {"gemm": 703.0} and len(read.scaling) == 3


@pytest.mark.parametrize(
    ("gpus", "same"),
    [(known.gpus(4), True), (known.gpus(2), False), ((), None), (None, None)],
)
def test_whether_it_is_of_the_same_gpus(tmp_path: Path, gpus: Any, same: bool | None) -> None:
    snapshot = replace(measured_snapshot(tmp_path), gpus=gpus)
    read = baseline.load(str(result(tmp_path)), snapshot)
    assert read is not None and read.same_gpus is same


def test_a_result_without_figures_is_read_as_one_without(tmp_path: Path) -> None:
    path = result(tmp_path, bandwidth=None, scaling=[], ranks=[])
    assert baseline.load(str(path), measured_snapshot(tmp_path)) == Baseline(str(path), None, None)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"schema": "mgpu.doctor/1.0"}, "not a smoke test result"),
        ({"ranks": 7}, "ranks: expected a list"),
        ({"ranks": ["x"]}, "ranks: expected a list of objects"),
        ({"ranks": [{"measured": {"gemm": "fast"}}]}, "ranks[0].measured: expected an object of numbers"),
        ({"bandwidth": 7}, "bandwidth: expected a list"),
        ({"bandwidth": [{"collective": 7}]}, "bandwidth[0].collective: expected str"),
        ({"scaling": [{"ranks": 1}]}, "scaling[0]: missing"),
    ],
)
def test_what_is_no_result_is_refused(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    path = result(tmp_path, **changes)
    with pytest.raises(MgpuError) as refused:
        baseline.load(str(path), measured_snapshot(tmp_path))
    assert refused.value.exit_code == errors.USAGE
    assert f"--baseline {path}: {why}" in refused.value.message


@pytest.mark.parametrize("text", ["", "[]", "{", "7", "[" * 100_000, "\udcff"])
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "smoke.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(MgpuError) as refused:
        baseline.load(str(path), measured_snapshot(tmp_path))
    assert refused.value.exit_code == errors.USAGE


def test_a_file_that_is_not_there_is_a_mistake_of_the_command(mgpu: Run) -> None:
    done = mgpu("smoke-test", "--cpu", "2", "--baseline", "nowhere.json")
    assert done.returncode == errors.USAGE and "--baseline nowhere.json: cannot read the file" in done.stderr


# What the planner makes of it


def test_the_plan_shows_the_measured_speed_up(tmp_path: Path) -> None:
    passed = measured_snapshot(tmp_path)
    stamp.write(passed, ("start",), {})
    kept = stamp.last_measurements(passed, tmp_path)
    assert kept is not None
    document = scaling_table.document(Answers(), passed, bandwidth.speed_up(kept.scaling))
    told = {row["gpus"]: row["speed_up"] for row in document["plan"]["rows"]}
    assert told[4] == {
        "low": 3.8, "high": 3.8, "source": "measured by the smoke test with its own small model", "measured": True,
    }  # fmt: skip
    assert not told[8]["measured"]  # not measured on more than there are
    stream = io.StringIO()
    screen = Screen(80, glyphs=False, colour=False, stream=stream)
    scaling_table.show(Answers(), passed, screen, measured=bandwidth.speed_up(kept.scaling))
    text = stream.getvalue()
    assert "3.8x" in text and "Speed-up: measured by the smoke test with its own small model." in text


@pytest.mark.parametrize(("target", "measured"), [("", True), ("4xH100", False)])
def test_a_machine_that_is_only_named_has_measured_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str, measured: bool
) -> None:
    passed = measured_snapshot(tmp_path)
    stamp.write(passed, ("start",), {})
    request = wizard.Request(output=str(tmp_path / "accelerate.yaml"), format="json", target=target)
    assert wizard._plan(request, Answers(), passed) == errors.READY
    told = json.loads(capsys.readouterr().out)["plan"]["rows"]
    assert next(row for row in told if row["gpus"] == 2)["speed_up"]["measured"] is measured


def test_ranks_wait_as_long_as_the_runner_does(tmp_path: Path) -> None:
    """The store by which they met gives up sooner; a rank that measures is not to be taken for one that is lost."""
    case = Case("slow", 2, RUNGS, f"{SHORT}:slow_while_others_wait", orders={"stall_s": 1.0})
    ranks = climb(tmp_path, [case])["slow"]
    assert [rank.error for rank in ranks.ranks] == [None, None]
    assert ranks.ended == "finished"
