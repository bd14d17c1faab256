"""What is measured of a rehearsed script: phases, samples, memory, checkpoints. Real ranks over gloo."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from mgpu import engine
from mgpu.engine import selections
from mgpu.planning import measured
from mgpu.snapshot import MeasuredStep, Measurement, Rehearsal, RehearsedRank, Snapshot
from tests.rehearsal_scripts import FOLDER, STEPS, Ranks


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    started = Ranks(tmp_path_factory.mktemp("ranks"))
    yield started
    started.end()


def steps_of(rank: RehearsedRank) -> tuple[MeasuredStep, ...]:
    assert rank.measured is not None, rank.unmeasured
    return rank.measured.steps


def figures(rehearsal: Rehearsal) -> Measurement:
    found = measured.measurement(Rehearsal(**{**vars(rehearsal), "script_sha256": "0"}), ["--batch", "2"])
    assert found is not None
    return found


def test_time_goes_to_its_phase(ranks: Ranks, tmp_path: Path) -> None:
    """The bounds are those of the script's own sleeps: a loaded machine only adds to them."""
    rehearsal = ranks.rehearse(FOLDER / "measured" / "slow_rank.py", tmp_path, 120.0, measured=120.0)
    assert rehearsal.ended == "stopped", rehearsal.ranks
    first, second = map(steps_of, rehearsal.ranks)
    assert len(first) == len(second) >= 5
    for step in (*first, *second):
        assert step.step_s >= step.loader_s >= 0.03
        assert step.optimizer_s > 0 and step.saving_s > 0 and step.samples == 2
        assert step.exchange_s is not None and step.compute_s > 0
    assert all(step.compute_s >= 0.06 for step in second)
    exchanges = [median(step.exchange_s or 0.0 for step in steps) for steps in (first, second)]
    assert exchanges[0] > 0.02 and exchanges[0] > exchanges[1], "rank 0 waits for rank 1"
    found = figures(rehearsal)
    parts = (found.loader_s, found.compute_s, found.optimizer_s, found.exchange_s or 0.0, found.waiting_s or 0.0)
    assert sum(parts) <= found.step_s * 1.5 and found.waiting_s and found.waiting_s > 0.01
    assert found.batch == 2 and found.queued == 0 and found.checkpoint_s
    assert found.samples_per_s == pytest.approx(4 / found.step_s, rel=0.01)
    assert found.host_bytes and found.static_bytes is None and found.activation_bytes is None
    assert [rank.steps for rank in rehearsal.ranks] == [STEPS, STEPS], "the watched steps stay apart"


@pytest.mark.parametrize(
    ("script", "how"),
    [
        ("with_accelerate", "accelerator.save_state"),
        ("fsdp2", "torch.distributed.checkpoint"),
        ("plain_ddp", "torch.save"),
    ],
)
def test_a_checkpoint_is_written_read_and_removed(ranks: Ranks, tmp_path: Path, script: str, how: str) -> None:
    """The script goes on after it: its steps are measured, with its own batches per step."""
    rehearsal = ranks.rehearse(FOLDER / "healthy" / f"{script}.py", tmp_path, 90.0, measured=60.0, checkpoint=True)
    assert rehearsal.ended in ("stopped", "finished") and rehearsal.steps == STEPS, rehearsal.ranks
    own = [one for rank in rehearsal.ranks for one in rank.checkpoints if one.how]
    assert [(one.how, one.ok, one.error) for one in own] == [(how, True, None)]
    assert own[0].size_bytes and own[0].write_s and own[0].read_s and not Path(own[0].path).exists()
    for rank in rehearsal.ranks:
        per_step = 8 if script == "with_accelerate" else 4  # it accumulates two batches, and reads one ahead
        assert median(step.samples for step in steps_of(rank)) == per_step
        assert all((step.exchange_s is None) == (script == "fsdp2") for step in steps_of(rank))
    outcomes = engine.judge(Snapshot(rehearsal=rehearsal), selections.SMOKE)
    assert not [o.check.id for o in outcomes if o.status in ("fail", "warn", "crash")]


def test_a_script_that_ends_too_early_is_not_measured(ranks: Ranks, tmp_path: Path) -> None:
    script = tmp_path / "short.py"
    script.write_text((FOLDER / "healthy" / "split_stream.py").read_text().replace("iter(data())", "iter(data(72))"))
    rehearsal = ranks.rehearse(script, tmp_path, 60.0, measured=60.0)
    assert rehearsal.ended == "finished" and rehearsal.steps == STEPS
    assert {rank.unmeasured for rank in rehearsal.ranks} == {"the script ended before enough steps were measured"}


def test_steps_that_do_not_fit_into_the_time_limit_are_not_measured(ranks: Ranks, tmp_path: Path) -> None:
    """All ranks decide alike, and stop at the last watched step."""
    rehearsal = ranks.rehearse(FOLDER / "healthy" / "plain_ddp.py", tmp_path, 60.0, measured=-1.0)
    assert rehearsal.ended == "stopped" and rehearsal.steps == STEPS
    assert all("too long for the time limit" in (rank.unmeasured or "") for rank in rehearsal.ranks)


def test_the_checkpoint_says_why_it_was_not_written(ranks: Ranks, tmp_path: Path) -> None:
    script = tmp_path / "no_model.py"
    script.write_text(
        "import torch\nimport torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "weight = torch.zeros(3, requires_grad=True)\noptimizer = torch.optim.SGD([weight], lr=0.1)\n"
        "for _ in range(40):\n    optimizer.zero_grad()\n    weight.square().sum().backward()\n"
        "    dist.all_reduce(weight.grad)\n    optimizer.step()\n"
    )
    rehearsal = ranks.rehearse(script, tmp_path, 60.0, measured=60.0, checkpoint=True)
    assert {rank.checkpoint_refused for rank in rehearsal.ranks} == {"no model has the parameters of the optimizer"}
    assert rehearsal.ended == "stopped" and all(step.exchange_s for step in steps_of(rehearsal.ranks[0]))
    assert figures(rehearsal).samples_per_s is None, "no loader: not known"
