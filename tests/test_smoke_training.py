"""Does rung "train" pass where the ranks train one model, and name the rank and the cause where they do not?

Real gloo ranks; faults come from tests/scripts/spoils_training.py.
"""

from __future__ import annotations

import subprocess
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mgpu.engine import Outcome
from mgpu.smoke import culprit
from mgpu.snapshot import Ranks, Snapshot
from tests.conftest import missing, need
from tests.rungs import Case, climb
from tests.verdicts import judged

RUNGS = ("start", "device", "group", "train", "shutdown")
TOLERANCE = 1e-5  # of what was measured: 3e-7
SPOILED = "tests.scripts.spoils_training:"
# The ranks as accelerate's launcher starts them on the CPU.
ACCELERATE = {"ACCELERATE_MIXED_PRECISION": "no", "ACCELERATE_USE_CPU": "true"}


def case(name: str, world: int = 2, patch: str | None = None, **orders: Any) -> Case:
    return Case(name, world, RUNGS, patch and SPOILED + patch, 60, {"level": "quick", "stall_s": 20.0, **orders})


def trained(ranks: Ranks) -> None:
    """Every rank came through, with the reference's gradients and the others' parameters."""
    assert [rank.error for rank in ranks.ranks] == [None] * ranks.expected, ranks.ranks
    assert all(rank.finished for rank in ranks.ranks)
    assert max(rank.measured["gradient_difference"] for rank in ranks.ranks) < TOLERANCE
    assert len({rank.parameters for rank in ranks.ranks}) == 1
    assert all(rank.measured["loss_last"] < rank.measured["loss_first"] * 0.6 for rank in ranks.ranks)
    assert cause(ranks) is None


def cause(ranks: Ranks) -> Outcome | None:
    """What the verdict would name."""
    outcomes = judged(Snapshot(ranks=ranks))
    assert [o.check.id for o in outcomes if o.status == "crash"] == []
    return culprit.find_cause(outcomes)


# What passes


def test_strategies_precisions_accumulation_and_world_sizes(tmp_path: Path) -> None:
    """Every two of a strategy, a precision, a number of accumulated steps and a world size meet; fp16, with its scaled
    loss, for two ranks."""
    ways = [
        ("ddp", "no", 1, 1), ("ddp", "bf16", 4, 1), ("fsdp", "no", 4, 1), ("fsdp", "bf16", 1, 1),
        ("ddp", "no", 4, 2), ("ddp", "bf16", 1, 2), ("fsdp", "no", 1, 2), ("fsdp", "bf16", 4, 2),
        ("ddp", "no", 4, 3), ("fsdp", "bf16", 1, 3),
        ("ddp", "bf16", 1, 4), ("fsdp", "no", 4, 4),
        ("ddp", "fp16", 1, 2), ("fsdp", "fp16", 1, 2),
    ]  # fmt: skip
    cases = [
        case(f"{strategy}-{precision}-{accumulate}-{world}", world, strategy=strategy, precision=precision,
             accumulate=accumulate)
        for strategy, precision, accumulate, world in ways
    ]  # fmt: skip
    for name, ranks in climb(tmp_path, cases).items():
        trained(ranks)
        assert ranks.strategy != "fsdp" or ranks.expected == 1 or _sharded(ranks), name


def _sharded(ranks: Ranks) -> bool:
    """All parts together are the model, and no rank holds more than its part and a row of each parameter."""
    held = [rank.measured["shard_bytes"] for rank in ranks.ranks]
    (model,) = {rank.measured["model_bytes"] for rank in ranks.ranks}
    return sum(held) == model and max(held) < 0.6 * model


def test_all_that_is_tried_beyond_the_quick_level(tmp_path: Path) -> None:
    """DDP's options, batch norm, accelerate's own steps, loader workers; what cannot be tried is said."""
    cases = [case(strategy, level="standard", strategy=strategy) for strategy in ("ddp", "fsdp", "deepspeed")]
    found = climb(tmp_path, cases, **ACCELERATE)
    for ranks in found.values():
        trained(ranks)
        for rank in ranks.ranks:
            assert {"buffers", "optimizer"} <= set(rank.digests) or ranks.strategy == "fsdp"
            assert set(rank.samples) == {"in order", "epoch 0", "epoch 1", "prepared"}
            assert rank.measured["prepared_difference"] < TOLERANCE
            assert rank.measured["step_compute_seconds"] > 0
            assert any(text.startswith("SyncBatchNorm:") for text in rank.skipped)
        outcomes = {o.check.id: o.status for o in judged(Snapshot(ranks=ranks))}
        for check in ("samples_not_given_once", "batch_norm_not_synchronised", "loader_out_of_shared_memory",
                      "gradient_accumulation_wrong", "unused_parameters_not_reported"):  # fmt: skip
            assert outcomes[check] == "ok"
    said = {name: " ".join(ranks.ranks[0].skipped) for name, ranks in found.items()}
    assert "FSDP through accelerate: GPUs only" in said["fsdp"]
    assert "DEEPSPEED through accelerate: GPUs only" in said["deepspeed"]


# What is caught


@dataclass(frozen=True)
class Fault:
    """A spoiled training: the check that names it, words of its title, and the rank it names (None: any)."""

    patch: str
    check: str
    words: str
    rank: int | None = 1
    level: str = "quick"
    strategy: str = "ddp"
    world: int = 2
    accelerate: bool = False


FAULTS = (
    Fault("gradients_scaled", "rank_computes_wrong_gradients", "off by 1.0e-02"),
    Fault("other_samples", "rank_computes_wrong_gradients", "wrong gradients for its own samples"),
    Fault("share_scaled_on_the_way", "gradients_not_averaged", "the error is in the share of rank 1", world=3),
    Fault("share_scaled_under_fsdp", "gradients_not_averaged", "the error is in the share of rank 1", strategy="fsdp",
          world=3),
    Fault("not_broadcast", "parameters_not_synchronised", "from the start"),
    Fault("parameter_changed", "parameters_not_synchronised", "has different parameters than the rest from the start"),
    Fault("parameter_frozen", "model_differs_on_rank", "rank 1 has 15 trainable parameters, rank 0 has 16"),
    Fault("parameter_frozen_on_rank_2", "model_differs_on_rank", "rank 2 has 15 trainable parameters, the rest", rank=2,
          world=4),
    Fault("steps_too_far", "parameters_not_synchronised", "at step 1", world=3),
    Fault("learns_nothing", "loss_does_not_fall", "the loss does not decrease", rank=None),
    Fault("not_sharded", "parameters_not_sharded", "with FSDP", rank=None, strategy="fsdp"),
    Fault("sampler_repeats", "samples_not_given_once", "rank 1 gets duplicate or another rank's samples"),
    Fault("exchanged_under_no_sync", "gradient_accumulation_wrong", "no_sync forbids it", rank=None),
    Fault("buffers_kept", "batch_norm_not_synchronised", "rank 1 has different statistics", level="standard"),
    Fault("unused_not_seen", "unused_parameters_not_reported", "gets no gradient", rank=None, level="standard"),
    Fault("worker_fails", "loader_worker_failed", "no such image", level="standard"),
    Fault("worker_alters", "loader_worker_failed", "batch 1 was altered in shared memory", level="standard"),
    Fault("each_alone", "accelerate_trains_otherwise", "on a single process", rank=None, level="standard",
          accelerate=True),
)  # fmt: skip


SEVERAL_MODELS = case("several_models", patch="another_model", precision="bf16")
SMALL_SHM = case("small_shm", patch="small_shm", level="standard")


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ranks]:
    """What the ranks of every fault reported."""
    folder = tmp_path_factory.mktemp("faults")
    found: dict[str, Ranks] = {}
    for accelerate in (False, True):
        cases = [
            case(fault.patch, fault.world, fault.patch, level=fault.level, strategy=fault.strategy, workers=1)
            for fault in FAULTS
            if fault.accelerate == accelerate
        ]
        cases += [] if accelerate else [case("epochs_alike", patch="epochs_alike"), SMALL_SHM, SEVERAL_MODELS]
        found |= climb(folder, cases, **(ACCELERATE if accelerate else {}))
    return found


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.patch)
def test_a_broken_training_is_caught(fault: Fault, spoiled: dict[str, Ranks]) -> None:
    ranks = spoiled[fault.patch]
    found = cause(ranks)
    assert found is not None and found.problem is not None, ranks.ranks
    assert found.check.id == fault.check, found.problem.title
    assert fault.words in found.problem.title
    assert found.problem.title.startswith("train: ")
    assert found.problem.evidence["rung"] == "train"
    assert fault.rank in (None, found.problem.evidence["rank"])
    assert any(f"rank {number}" in found.problem.title for number in range(fault.world)) or fault.rank is None
    assert "rank" in found.problem.title


def test_half_precision_of_several_models_of_gpu_is_not_compared(spoiled: dict[str, Ranks]) -> None:
    """They round otherwise than the reference does; what was compared instead is said."""
    found = spoiled["several_models"]
    trained(found)
    assert all("bf16" not in (rank.steps[3].detail or "") for rank in found.ranks)
    assert all("bf16 against the reference: GPU models differ" in " ".join(rank.skipped) for rank in found.ranks)


def test_epochs_that_repeat_are_a_warning(spoiled: dict[str, Ranks]) -> None:
    statuses = {o.check.id: o.status for o in judged(Snapshot(ranks=spoiled["epochs_alike"]))}
    assert statuses["samples_not_reshuffled"] == "warn" and statuses["samples_not_given_once"] == "ok"


def test_shared_memory_too_small_for_the_loader(spoiled: dict[str, Ranks]) -> None:
    probe = subprocess.run([need("unshare"), "-m", "true"], capture_output=True, check=False)
    if probe.returncode:
        missing("mount namespaces are not allowed here")
    found = cause(spoiled["small_shm"])
    assert found is not None and found.problem is not None, spoiled["small_shm"].ranks
    assert found.check.id == "loader_out_of_shared_memory"
    assert "a loader worker of rank 1 (cpu" in found.problem.title
    assert "train: /dev/shm is too small" in found.problem.title and "of 4 MiB free" in found.problem.title
    assert found.problem.evidence["rank"] == 1


@pytest.mark.parametrize("hangs", [1, 2])
def test_a_loader_worker_that_hangs_once_is_started_again(hangs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice is a failure: what is wrong with a machine shows again."""
    from mgpu.smoke.ranks import data
    from mgpu.smoke.ranks.journal import Failure

    calls: list[int] = []

    def hand_over(here: Any, processes: int) -> None:
        calls.append(processes)
        if len(calls) <= hangs:
            raise data._Silent("DataLoader timed out after 30.0 seconds")

    monkeypatch.setattr(data, "_all_batches", hand_over)
    told: dict[str, float] = {}
    here: Any = types.SimpleNamespace(orders=types.SimpleNamespace(workers=2), rank=1)
    here.measured = lambda **figures: told.update(figures)
    if hangs == 2:
        with pytest.raises(Failure, match="a DataLoader worker failed: DataLoader timed out"):
            data.workers(here)
    else:
        data.workers(here)
    assert calls == [2, 2] and told == {"loader_restarts": 1}
