"""What is measured of a rehearsed script: phases, samples, memory, checkpoints. Real ranks over gloo."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest

from mgpu import engine
from mgpu.engine import selections
from mgpu.planning import measured
from mgpu.recorder.inject import _mgpu_recorder, _mgpu_rehearsed_times
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


class Event:
    """A CUDA event: when its place in the stream was reached."""

    clock = 0.0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self, stream: str) -> None:
        assert stream == "stream of cuda:1"
        Event.clock += 1.0
        self.at = Event.clock

    def elapsed_time(self, other: Event) -> float:
        return (other.at - self.at) * 1000


def test_on_a_gpu_times_are_events_and_memory_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no GPU in the tests: its calls are replaced. Each event is one second after the one before."""
    resets: list[str] = []
    cuda = SimpleNamespace(
        Event=Event, current_stream=lambda device: f"stream of {device}", synchronize=lambda device: None,
        reset_peak_memory_stats=resets.append, memory_allocated=lambda device: 700,
        max_memory_reserved=lambda device: 2000, max_memory_allocated=lambda device: 1500, is_initialized=lambda: False,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, get_num_threads=lambda: 4))
    monkeypatch.setitem(sys.modules, "_mgpu_recorder", _mgpu_recorder)
    gradient = SimpleNamespace(numel=lambda: 50, element_size=lambda: 4)
    parameter = SimpleNamespace(is_cuda=True, device="cuda:1", grad=gradient)
    optimizer = SimpleNamespace(param_groups=[{"params": [parameter]}])
    notes: dict[str, Any] = {}
    rehearsal = SimpleNamespace(
        measuring=False, wanted=8, world=1, peaks={}, step_seconds=[0.5, 0.5], times=None,
        note=lambda name, **values: notes.update({name: values}), agree=lambda what, text: [text, "0.5 1000.0"],
    )  # fmt: skip
    monkeypatch.setenv(_mgpu_rehearsed_times.UNTIL, str(time.monotonic() + 1000))
    times = _mgpu_rehearsed_times.Times(rehearsal)
    assert times.goes_on(optimizer) and times.wanted == 6 and resets == ["cuda:1"], notes
    for _ in range(6):
        times.phase("loader", len, ((),), {})
        times.before_step(optimizer)
        times.after_step(optimizer)
        assert times.goes_on(optimizer)
    assert not times.goes_on(optimizer) and not rehearsal.measuring
    found = notes["measured"]
    assert found["steps"][0] == [5.0, 1.0, 0.0, 1.0, 0.0, 0] and len(found["steps"]) == 6
    assert (found["static"], found["peak"], found["held"]) == (500, 1500, 2000), "gradients are not static"


def test_the_batch_is_that_of_the_loader_that_trains() -> None:
    """A loader for validation has larger batches; one more backward pass may follow one of its."""
    times = _mgpu_rehearsed_times.Times(SimpleNamespace(measuring=True))
    training, validation = SimpleNamespace(_mgpu=[3, 0, 0]), SimpleNamespace(_mgpu=[4, 0, 0])
    for loader, rows in ((training, 16), (training, 9), (validation, 64)):
        times.delivered(loader, [[0] * rows])
        times.backward(lambda: None, (), {})
    assert times.batch() == 16 and times.samples == 89
    assert _mgpu_rehearsed_times.Times(SimpleNamespace(measuring=True)).batch() is None
