"""Are the steps, rates and batches of the planner those of the real samplers, schedulers and rules?"""

from __future__ import annotations

import itertools
import json
import math
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpu.planning import plan

ROOT = Path(__file__).resolve().parents[1]
CASES = 4000


def _cases(seed: int) -> Iterator[tuple[int, int, int, int, bool]]:
    """Samples, batch, ranks, accumulate, drop_last: small numbers, where every edge is near."""
    dice = random.Random(seed)
    for _ in range(CASES):
        samples = dice.choice((dice.randint(0, 12), dice.randint(0, 80), dice.randint(0, 600)))
        yield samples, dice.randint(1, 9), dice.randint(1, 9), dice.randint(1, 6), dice.random() < 0.5


def _as_counted(seen: list[list[list[int]]], samples: int) -> tuple[int, int, int, int]:
    """Batches of a rank (all must have as many), and samples seen, repeated and dropped over all ranks."""
    batches = {len(rank) for rank in seen}
    assert len(batches) == 1, seen
    numbers = [number for rank in seen for batch in rank for number in batch]
    different = len(set(numbers))
    return batches.pop(), len(numbers), len(numbers) - different, samples - different


def _as_planned(steps: plan.Steps) -> tuple[int, int, int, int]:
    return steps.batches_per_rank, steps.samples_seen, steps.samples_repeated, steps.samples_dropped


def _chunks(rank: list[list[int]], accumulate: int) -> list[int]:
    """Samples in each optimizer step of one rank."""
    sizes = [len(batch) for batch in rank]
    return [sum(sizes[at : at + accumulate]) for at in range(0, len(sizes), accumulate)]


@pytest.mark.parametrize("kind", ["accelerate", "torch"])
def test_steps_are_those_of_the_real_samplers(kind: str) -> None:
    from accelerate.data_loader import BatchSamplerShard
    from torch.utils.data import BatchSampler, DistributedSampler, SequentialSampler

    for samples, batch, ranks, accumulate, drop_last in _cases(seed=len(kind)):
        data = range(samples)
        if kind == "torch" and samples:
            seen = [
                list(BatchSampler(DistributedSampler(data, ranks, rank, shuffle=False), batch, drop_last))
                for rank in range(ranks)
            ]
        else:
            whole = BatchSampler(SequentialSampler(data), batch, drop_last)
            # accelerate leaves the sampler of a single process as it is
            seen = (
                [list(BatchSamplerShard(whole, ranks, rank)) for rank in range(ranks)] if ranks > 1 else [list(whole)]
            )
        steps = plan.steps(samples, batch, ranks, accumulate, drop_last=drop_last, sampler=kind)  # type: ignore[arg-type]
        case = (kind, samples, batch, ranks, accumulate, drop_last)
        assert _as_planned(steps) == _as_counted(seen, samples), case
        sizes = _chunks(seen[0], accumulate)
        assert steps.optimizer_steps == len(sizes), case
        full = batch * accumulate
        assert steps.last_partial == bool(sizes and sizes[-1] < full), case


DICE = random.Random(1)
TRAINED = [
    (DICE.randint(1, 70), DICE.randint(1, 6), DICE.randint(1, 4), DICE.random() < 0.5) for _ in range(20)
] + [(samples, 4, 2, drop) for samples in (1, 3, 4, 16, 33) for drop in (False, True)]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what real trainings counted: all of them from one process that imports accelerate once."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "cases").write_text(json.dumps(TRAINED))
    command = [sys.executable, "-m", "tests.scripts.counts_steps", str(folder / "cases"), str(folder / "out")]
    done = subprocess.run([*command, "1", "2", "4"], cwd=ROOT, timeout=240, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_steps_are_those_of_accelerate_prepare(ranks: int, trained: Path) -> None:
    counted = [json.loads((trained / f"out.{ranks}.{rank}").read_text()) for rank in range(ranks)]
    for at, (samples, batch, accumulate, drop_last) in enumerate(TRAINED):
        here = [rank[at] for rank in counted]
        steps = plan.steps(samples, batch, ranks, accumulate, drop_last=drop_last)
        case = (samples, batch, ranks, accumulate, drop_last)
        assert {rank["batches"] for rank in here} == {steps.batches_per_rank}, case
        assert {rank["updates"] for rank in here} == {steps.optimizer_steps}, case
        numbers = [number for rank in here for number in rank["seen"]]
        assert len(numbers) == steps.samples_seen, case
        assert len(numbers) - len(set(numbers)) == steps.samples_repeated, case
        scheduler = plan.scheduler_steps(steps.optimizer_steps, ranks)
        assert {rank["stepped"] for rank in here} == {scheduler.build_with}, case
        assert scheduler.build_with == scheduler.per_update * steps.optimizer_steps


def test_full_steps_of_a_known_dataset() -> None:
    rows = plan.table((1, 2, 4, 8), per_gpu=4, samples=29_500, drop_last=True)
    assert [row.steps.optimizer_steps for row in rows if row.steps] == [7375, 3687, 1843, 921]
    assert [row.effective for row in rows] == [4, 8, 16, 32]
    last = rows[-1].steps
    assert last is not None and (last.samples_dropped, last.samples_repeated) == (28, 0)


def test_a_table_that_keeps_the_effective_batch() -> None:
    rows = plan.table((1, 2, 3, 4), per_gpu=8, wanted=64, samples=52_002)
    assert [(row.accumulate, row.effective) for row in rows] == [(8, 64), (4, 64), (None, None), (2, 64)]
    assert rows[2].steps is None
    assert [row.kept for row in plan.table((2, 4, 8, 3), per_gpu=8, reference=8)] == [
        plan.Kept(4, 1), plan.Kept(2, 1), plan.Kept(1, 1), None,
    ]  # fmt: skip


def test_keeping_an_effective_batch_takes_the_largest_micro_batch() -> None:
    for effective, per_gpu, ranks in itertools.product(range(1, 65), range(1, 10), range(1, 9)):
        kept = plan.sizes_to_keep(effective, per_gpu, ranks)
        accumulate = plan.accumulation_for(effective, per_gpu, ranks)
        if accumulate is not None:
            assert plan.effective_batch(per_gpu, ranks, accumulate) == effective
            assert kept == plan.Kept(per_gpu, accumulate)
        if effective % ranks:
            assert kept is None
        else:
            assert kept is not None and kept.per_gpu <= per_gpu
            assert plan.effective_batch(kept.per_gpu, ranks, kept.accumulate) == effective


@pytest.mark.parametrize(
    ("optimizer", "tuned_at", "effective", "suggested"),
    [
        ("adamw", 8, 32, "sqrt"),
        ("adam8bit", 8, 32, "sqrt"),
        ("adafactor", 8, 64, "sqrt"),
        ("sgd", 256, 2048, "linear"),
        ("adamw", 8, 16, "keep"),
        ("sgd", 16, 8, "keep"),
        ("sgd", 32, 8, "linear"),
        ("adamw", 8, 8, "keep"),
    ],
)
def test_the_suggested_rate(optimizer: str, tuned_at: int, effective: int, suggested: str) -> None:
    rows = plan.rates(2e-5, tuned_at, effective, optimizer)
    change = effective / tuned_at
    assert [row.rule for row in rows] == ["keep", "sqrt", "linear"]
    assert [row.value for row in rows] == [2e-5, 2e-5 * math.sqrt(change), 2e-5 * change]
    assert [row.rule for row in rows if row.suggested] == [suggested]


def test_the_rates_people_write_down() -> None:
    assert [plan.rate_text(rate.value) for rate in plan.rates(2e-5, 8, 32)] == ["2e-05", "4e-05", "8e-05"]
    # Goyal et al.: 0.1 at 256 becomes 3.2 at 8,192
    linear = plan.rates(0.1, 256, 8192, "sgd")[2]
    assert plan.rate_text(linear.value) == "3.2" and "unreliable for" in linear.note
    assert "5 epochs" in plan.warm_up("linear", 32) and "3-10%" in plan.warm_up("sqrt", 4)
    assert plan.warm_up("keep", 1) == "" == plan.warm_up("sqrt", 0.5)


@pytest.mark.parametrize("lr", [0.0, -1e-5, math.nan, math.inf])
def test_no_rate_from_nonsense(lr: float) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        plan.rates(lr, 8, 32, "adamw")


def test_no_steps_from_nonsense() -> None:
    for wrong in ((-1, 1, 1, 1), (1, 0, 1, 1), (1, 1, 0, 1), (1, 1, 1, 0)):
        with pytest.raises(ValueError, match="at least"):
            plan.steps(*wrong)
    with pytest.raises(ValueError, match="tuned at 0: must be at least 1"):
        plan.rates(1e-5, 0, 8, "adamw")


def test_a_speed_up_says_where_it_comes_from() -> None:
    assert [plan.speed_up(n).text for n in (1, 2, 4, 8)] == ["1x", "1.8-1.9x", "3.5-3.8x", "6.5-7x"]
    assert plan.speed_up(4).source == "typical figures from guides, not measured here" and not plan.speed_up(4).measured
    nobody = plan.speed_up(3)
    assert (nobody.low, nobody.high, nobody.text) == (
        None,
        None,
        "unknown",
    ) and "no typical figure for 3" in nobody.source
    known = "measured by the smoke test with its own small model"
    assert plan.speed_up(4, measured=3.6149) == plan.SpeedUp(3.61, 3.61, known, True)
    assert [row.speed_up.measured for row in plan.table((2, 4), measured={4: 3.6})] == [False, True]


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("8.03B", 8_030_000_000), ("8b", 8_000_000_000), ("350m", 350_000_000), ("8.03e9", 8_030_000_000),
        ("7000000000", 7_000_000_000), ("7,000,000,000", 7_000_000_000), ("7_000_000", 7_000_000), ("1.5 T", 1.5e12),
        (" 70B ", 70_000_000_000), ("10k", 10_000), ("1", 1), (".5B", 500_000_000), ("1E+3", 1000),
    ],
)  # fmt: skip
def test_parameters_as_people_write_them(text: str, params: int) -> None:
    assert plan.parse_params(text) == params


@pytest.mark.parametrize(
    "text",
    ["", " ", "B", "8,03B", "8.03.1", "-7B", "nan", "inf", "0", "0.2", "1.5", "7BB", "7 billions", "1e999999999",
     "9" * 90, "0x10", "1__000", ",000", "٨", "meta-llama/Llama-3.1-8B"],
)  # fmt: skip
def test_what_is_no_number_of_parameters(text: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]{10,120}$"):
        plan.parse_params(text)


def test_samples_and_rates_as_people_write_them() -> None:
    assert [plan.parse_count(text) for text in ("52k", "52,002", "52_002", "5.2e4")] == [52_000, 52_002, 52_002, 52_000]
    assert [plan.parse_rate(text) for text in ("2e-5", "0.001", " 1 ")] == [2e-5, 0.001, 1.0]
    for text in ("0", "-1", "nan", "inf", "2e-5x", "", "1_0"):
        with pytest.raises(ValueError, match="is not a learning rate"):
            plan.parse_rate(text)


def test_what_is_written_can_be_read_again() -> None:
    for params in (8_030_000_000, 350_000_000, 1_500_000_000_000, 12_000, 7, 124_000_000):
        assert plan.parse_params(plan.params_text(params)) == params
    assert [plan.params_text(params) for params in (999_600_000, 999_400_000, 10**16)] == ["1B", "999M", "10,000T"]
    assert plan.parse_count(plan.count_text(52_002)) == 52_002
