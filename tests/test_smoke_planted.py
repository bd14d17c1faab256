"""Does the verdict name the rank and the stage of a planted fault, and not a rank that only suffers from it?

Real gloo ranks; the faults are in tests/scripts/plants_faults.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from mgpu.smoke import culprit
from mgpu.snapshot import Ranks, Snapshot
from tests.rungs import Case, climb
from tests.verdicts import judged

TRAIN = ("start", "device", "group", "train", "shutdown")
COMMUNICATE = ("start", "device", "group", "collectives", "shutdown")
HANGS_S = 7.0  # after this time, the ranks of a hang write their stacks
ACCELERATE = {"ACCELERATE_MIXED_PRECISION": "no", "ACCELERATE_USE_CPU": "true"}


@dataclass(frozen=True)
class Fault:
    """A planted fault: the check that names it, words of its title, and the rank and stage in its evidence."""

    patch: str
    check: str
    words: str
    stage: str = "train"
    rank: int | None = 1
    rungs: tuple[str, ...] = TRAIN
    world: int = 2
    limit_s: float = 40.0
    accelerate: bool = False
    orders: dict[str, Any] = field(default_factory=dict)


BF16: dict[str, Any] = {"precision": "bf16"}
FAULTS = (
    Fault("ends_with_0", "rank_exited", 'exited by itself in stage "train" at "step 3 of 20"'),
    Fault("ends_with_3", "rank_exited", 'exited with code 3 in stage "train"', world=3),
    Fault("calls_sys_exit", "rank_exited", 'exited with code 0 in stage "train"'),
    Fault("gives_up", "rank_exited", 'exited with code 1 in stage "device"', "device"),
    Fault("hangs_in_init", "ranks_hang", 'elsewhere than the others in "init_process_group"', "group",
          limit_s=HANGS_S),
    Fault("hangs_in_new_group", "ranks_hang", 'elsewhere than the others in "new_group of all ranks"', "collectives",
          rungs=COMMUNICATE, world=3, limit_s=HANGS_S, orders={"level": "standard"}),
    Fault("hangs_in_destroy", "ranks_hang", 'at "destroy the process group"', "shutdown", rungs=("start", "device",
          "group", "shutdown"), limit_s=HANGS_S),
    Fault("skips_a_collective", "ranks_hang", "did not take part in gloo all_reduce of 1000 x Float", "collectives",
          rungs=COMMUNICATE, limit_s=HANGS_S),
    Fault("calls_another_collective", "ranks_hang", 'elsewhere than the others in "step 4 of 20"', limit_s=HANGS_S),
    Fault("broadcasts_wrong", "collective_gives_wrong_numbers", "sends wrong numbers (collectives: broadcast)",
          "collectives", rungs=COMMUNICATE, world=4),
    Fault("loss_becomes_nan", "rank_computes_wrong_gradients", "its own samples, off by inf", world=4),
    Fault("receives_another_average", "gradients_not_averaged", "they are right on the others", world=3),
    Fault("drops_micro_batches", "gradients_not_averaged", "the error is in the share of rank 1",
          orders={"accumulate": 4}),
    Fault("steps_wrong_once", "parameters_not_synchronised", "at step 12", world=4, orders={"strategy": "fsdp"}),
    Fault("adam_steps_wrong_once", "accelerate_trains_otherwise", " with accelerate: ", world=4,
          accelerate=True, orders={"level": "standard"}),
    Fault("no_autocast", "precision_not_applied", "ranks 0 and 1 compute in float32", rank=None, orders=BF16),
    Fault("no_autocast_on_one", "precision_not_applied", "rank 1 computes in float32", world=3, orders=BF16),
    Fault("no_low_precision", "precision_not_applied", "ranks 0 and 1 compute in float32", rank=None,
          orders={"strategy": "fsdp", **BF16}),
    Fault("another_accumulation", "gradient_accumulation_wrong", "over 1 micro-batch instead of 4", accelerate=True,
          orders={"accumulate": 4}),
)  # fmt: skip


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ranks]:
    """What the ranks of every fault reported."""
    folder, found = tmp_path_factory.mktemp("planted"), dict[str, Ranks]()
    for accelerate in (False, True):
        cases = [
            Case(fault.patch, fault.world, fault.rungs, f"tests.scripts.plants_faults:{fault.patch}", fault.limit_s,
                 {"level": "quick", "stall_s": 20.0, **fault.orders})
            for fault in FAULTS if fault.accelerate == accelerate
        ]  # fmt: skip
        if not accelerate:
            cases.append(Case("sleeps", 2, TRAIN, "tests.scripts.plants_faults:sleeps_in_forward", 40.0,
                              {"level": "quick", "stall_s": 20.0}))  # fmt: skip
        found |= climb(folder, cases, **(ACCELERATE if accelerate else {}))
    other = Case(
        "precision", 2, TRAIN, "tests.scripts.plants_faults:another_precision", 40.0, {"level": "quick", **BF16}
    )
    return found | climb(folder, [other], **ACCELERATE | {"ACCELERATE_MIXED_PRECISION": "bf16"})


def named(ranks: Ranks) -> tuple[str, str, int | None, str]:
    """The cause in the verdict: check, title, rank and stage."""
    outcomes = judged(Snapshot(ranks=ranks))
    assert [outcome.check.id for outcome in outcomes if outcome.status == "crash"] == []
    found, guilty = culprit.find_cause(outcomes), culprit.find_culprit(outcomes, ranks)
    assert found is not None and found.problem is not None and guilty is not None, ranks.ranks
    json.dumps(found.problem.evidence, allow_nan=False)  # JSON has no NaN and infinity
    return found.check.id, found.problem.title, guilty["rank"], guilty["rung"]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.patch)
def test_the_planted_rank_is_named(fault: Fault, planted: dict[str, Ranks]) -> None:
    check, title, rank, stage = named(planted[fault.patch])
    assert (check, rank, stage) == (fault.check, fault.rank, fault.stage), title
    assert fault.words in title


def test_accelerate_with_another_precision_on_one_rank(planted: dict[str, Ranks]) -> None:
    check, title, rank, _ = named(planted["precision"])
    assert (check, rank) == ("precision_not_applied", 1)
    assert "computes in fp32 (accelerator.mixed_precision), but the config requires bf16" in title


def test_a_rank_that_is_slow_in_each_step_is_the_straggler(planted: dict[str, Ranks]) -> None:
    """Its steps pass; the report names the rank that all others wait for."""
    outcomes = {outcome.check.id: outcome for outcome in judged(Snapshot(ranks=planted["sleeps"]))}
    found = outcomes["rank_is_a_straggler"]
    assert found.status == "warn" and found.problem is not None and found.problem.evidence["rank"] == 1
    assert culprit.find_cause(tuple(outcomes.values())) is None
