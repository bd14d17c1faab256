"""checks/smoke: settings, pace and aftermath; the checks of training that compare ranks"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mgpu.snapshot import Rank, Step
from tests.checks.facts import Case, fails, problem, rank, ranks, skips, table, warns, well

LOW, FULL = {"own pass": "bfloat16", "steps": "bfloat16"}, {"own pass": "float32", "steps": "float32"}


def computed(*types: dict[str, str], **changes: Any) -> dict[str, Any]:
    """Ranks whose layers returned these types, in a run of a config with bf16."""
    members = [rank(number, dtypes=found) for number, found in enumerate(types)]
    return {"ranks": ranks(*members, **{"precision": "bf16", **changes})}


def accumulated(*counts: int | None, **changes: Any) -> dict[str, Any]:
    members = [rank(number, accelerate_accumulation=count) for number, count in enumerate(counts)]
    return {"ranks": ranks(*members, **changes)}


def worked(*seconds: tuple[float, float, float], **changes: Any) -> dict[str, Any]:
    """Ranks on the CPU with their own work: elapsed, on a core, waiting for a core."""
    return {"ranks": ranks(*(
        rank(number, device="cpu", gpu_uuid=None, measured={
            "compute_seconds": 1e-3, "own_work_seconds": elapsed, "own_work_cpu_seconds": busy,
            "own_work_queued_seconds": queued})
        for number, (elapsed, busy, queued) in enumerate(seconds)
    ), **changes)}  # fmt: skip


def failed(number: int, kind: str, **evidence: Any) -> Rank:
    return rank(number, steps=(Step("start", True), Step("train", False, "off")), error="off", kind=kind,
                evidence=evidence, failed_at=100.0 + number)  # fmt: skip


OF_RANK_1 = {"/dev/shm/torch_5001_1_0": 1, "/dev/shm/torch_5002_1_0": 1}
LEFT = {"/dev/shm/torch_5001_1_0": "rank 1", "/dev/shm/torch_5002_1_0": "a DataLoader worker of rank 1"}
CASES = (
    # precision_not_applied: what the layers return, and what accelerate says
    fails("precision_not_applied", "train: ranks 0 and 1 compute in float32 (own pass), but the config requires bf16",
        "env | grep", **computed(FULL, FULL)),
    fails("precision_not_applied", "train: rank 1 computes in float32 (steps), but the config requires bf16",
        "rank1.json", **computed(LOW, {**LOW, "steps": "float32"})),
    fails("precision_not_applied", "train: rank 1 computes in bfloat16 and float32 (steps)", "env | grep",
        **computed(LOW, {"steps": "bfloat16 and float32"})),
    fails("precision_not_applied", "train: rank 0 computes in bfloat16 (own pass), but the config requires fp32",
        "env | grep", **computed(LOW, FULL, precision="no")),
    fails("precision_not_applied", "rank 1 computes in fp32 (accelerator.mixed_precision), but", "env | grep",
        ranks=ranks(rank(0, accelerate_precision="bf16"), rank(1, accelerate_precision="no"), precision="bf16")),
    well("precision_not_applied", "bf16 on 2 ranks", **computed(LOW, LOW)),
    well("precision_not_applied", "bf16 on 1 rank", **computed(LOW, {})),  # the other one: not observed
    skips("precision_not_applied", "only the setting was read",
        ranks=ranks(rank(0, accelerate_precision="bf16"), rank(1, accelerate_precision="bf16"), precision="bf16")),
    well("precision_not_applied", "fp32 on 2 ranks", **computed(FULL, FULL, precision="no")),
    # the test's own steps are in bf16 for fp8; accelerate's are its own
    well("precision_not_applied", "fp8 on 2 ranks", **computed(LOW, {**LOW, "accelerate": "float32"}, precision="fp8")),
    # DeepSpeed's file sets the precision
    well("precision_not_applied", "fp32 on 1 rank",
        ranks=ranks(rank(0, accelerate_precision="bf16", dtypes={"accelerate": "bfloat16"}), strategy="deepspeed")),
    skips("precision_not_applied", "no rank computed"),
    # gradient_accumulation_wrong: accelerate's setting on each rank
    fails("gradient_accumulation_wrong", "train: rank 1 accumulates gradients over 1 micro-batch instead of 4",
        "env | grep ACCUMULATION", **accumulated(4, 1, accumulate=8, micro_steps=4)),
    fails("gradient_accumulation_wrong", "train: rank 2 accumulates gradients over 2 micro-batches instead of 1",
        "env | grep ACCUMULATION", **accumulated(1, 1, 2)),
    fails("gradient_accumulation_wrong", "train: ranks 0 and 1 accumulate gradients over 1 micro-batch instead of 2",
        "env | grep ACCUMULATION", **accumulated(1, 1, accumulate=2, micro_steps=2)),
    well("gradient_accumulation_wrong", "", **accumulated(4, 4, accumulate=16, micro_steps=4)),
    well("gradient_accumulation_wrong", "", **accumulated(4, 4, accumulate=1, strategy="deepspeed")),
    # rank_is_a_straggler: the sum of its own work, without what a busy machine took
    warns("rank_is_a_straggler",
        "rank 1 (cpu, pid 5001) on node7 is the straggler: its own work takes 8.0 times as long",
        "cpu.stat", **worked((0.5, 0.5, 0.0), (4.0, 0.5, 0.0))),
    warns("rank_is_a_straggler", "its own work takes 8.0 times", "top", **worked((1.5, 0.5, 1.0), (5.0, 0.5, 1.0))),
    warns("rank_is_a_straggler", "takes 6.0 times", "top", **worked((0.5, 0.5, 0.0), (3.0, 0.5, 2.5))),
    well("rank_is_a_straggler", "similar compute times", **worked((1.5, 0.3, 1.2), (3.0, 0.3, 2.7))),
    well("rank_is_a_straggler", "similar compute times", **worked((0.05, 0.05, 0.0), (0.3, 0.05, 0.0))),
    well("rank_is_a_straggler", "similar compute times", **worked((0.5, 0.5, 0.0), (1.4, 0.5, 0.0))),
    # rank_stopped_repeatedly
    warns("rank_stopped_repeatedly", "rank 1 (cuda:1, pid 5001) on node7 was stopped for 88% of its time", "cpulimit",
        ranks=ranks(rank(0, stopped_share=0.0), rank(1, stopped_share=0.875))),
    well("rank_stopped_repeatedly", "2 ranks not stopped",
        ranks=ranks(rank(0, stopped_share=0.0), rank(1, stopped_share=0.04))),
    skips("rank_stopped_repeatedly", "did not run long enough"),
    # run_leaves_files: what mgpu removed is told, with the process that left it
    warns("run_leaves_files",
        "2 files left by rank 1 and a DataLoader worker of rank 1: /dev/shm/torch_5001_1_0 … (removed by mgpu)",
        "ls -l /dev/shm", ranks=ranks(removed_files=LEFT, removed_by=OF_RANK_1)),
    well("run_leaves_files", "2 files left by rank 1 and a DataLoader worker of rank 1, which did not run to its end",
        ranks=ranks(removed_files=LEFT, ended="died")),
    # gradients_not_averaged: wrong on some ranks, or on all of them
    fails("gradients_not_averaged",
        "train: averaged gradients on rank 1 (cuda:1, pid 5001) are off by 1.0e-02; they are right on the others",
        "smoke-test", ranks=ranks(rank(0),
            failed(1, "gradients_differ", difference=0.01, suspects=[], wrong_on=[1], right_on=[0]))),
    fails("gradients_not_averaged", "off by 1.0e-02; they are right on rank 0", "smoke-test",  # rank 2: not known
        ranks=ranks(rank(0), failed(1, "gradients_differ", difference=0.01, suspects=[], wrong_on=[1], right_on=[0]),
            rank(2, steps=rank(2).steps[:3]))),
    fails("gradients_not_averaged", "off by 1.0e-02; which rank sent a wrong share cannot be determined", "smoke-test",
        ranks=ranks(rank(0), failed(1, "gradients_differ", difference=0.01, suspects=[], wrong_on=[1]))),
    fails("gradients_not_averaged", "on ranks 0 and 1 are off by 1.0e-02; which rank sent a wrong share cannot be",
        "smoke-test",
        ranks=ranks(rank(1), failed(0, "gradients_differ", difference=0.01, suspects=[], wrong_on=[0, 1]))),
    fails("gradients_not_averaged", "off by 1.0e-02; rank 2 trains on other samples than the rest", "smoke-test",
        ranks=ranks(rank(0, digests={"batches": "a"}), rank(1, digests={"batches": "a"}),
            replace(failed(2, "gradients_differ", difference=0.01, suspects=[], wrong_on=[0, 1, 2]),
                digests={"batches": "b"}))),
    # accelerate_trains_otherwise: the rank whose loss was wrong first, by the reports they exchanged
    fails("accelerate_trains_otherwise", "train: off (rank 1 (cuda:1, pid 5001))", "--validate",
        ranks=ranks(failed(0, "prepared_differs", step=4, first_wrong={"0": "4", "1": "3"}),
            failed(1, "prepared_differs", step=3, first_wrong={"0": "4", "1": "3"}))),
    fails("accelerate_trains_otherwise", "train: off (ranks 0 and 1)", "--validate",
        ranks=ranks(failed(0, "prepared_differs", step=2), failed(1, "prepared_differs", step=2))),
    # samples_not_given_once: shuffled, the rank without which all is well; of two ranks neither
    fails("samples_not_given_once", "train: rank 2 gets duplicate or another rank's samples", "rank2.json",
        ranks=ranks(*(rank(number, samples={"epoch 0": share}, measured={"dataset_samples": 8.0})
            for number, share in enumerate(((0, 1), (2, 3), (1, 2), (6, 7)))))),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_of_two_ranks_with_the_same_samples_neither_is_named() -> None:
    shares = [rank(n, samples={"epoch 0": share}, measured={"dataset_samples": 4.0})
              for n, share in enumerate(((0, 1), (1, 2)))]  # fmt: skip
    assert problem("samples_not_given_once", ranks=ranks(*shares)).evidence["rank"] is None


def test_all_ranks_in_another_precision_are_not_one_culprit() -> None:
    assert problem("precision_not_applied", **computed(FULL, FULL)).evidence["rank"] is None
    assert problem("precision_not_applied", **computed(LOW, FULL)).evidence["rank"] == 1
