"""checks/smoke/training.py and checks/smoke/data.py"""

from __future__ import annotations

from typing import Any

import pytest

from mgpu.snapshot import Rank, Step
from tests.checks.facts import MIB, Case, fails, rank, ranks, skips, table, uuid, warns, well

TRAINED = (Step("start", True), Step("train", True))
EARLY = rank(0, steps=(Step("start", True), Step("train", None)), finished=False)


def failed(
    number: int, kind: str | None, error: str = "something is wrong", at: float = 100.0, **evidence: Any
) -> Rank:
    """A rank that failed in the training steps."""
    return rank(
        number, steps=(Step("start", True), Step("train", False, error)), error=error, kind=kind, evidence=evidence,
        failed_at=at, last_word="step 1 of 20",
    )  # fmt: skip


def dealt(shares: dict[int, dict[str, tuple[int, ...]]], **measured: float) -> tuple[Rank, ...]:
    """Ranks that tell which samples they got of a data set of nine."""
    return tuple(
        rank(number, samples=share, measured={"dataset_samples": 9.0, **measured}) for number, share in shares.items()
    )


DIFFERS = (
    "RuntimeError: DDP expects same model across all ranks, but Rank %d has %d params, while rank %d has "
    "inconsistent %d params."
)
EVEN, ODD = (0, 2, 4, 6, 8), (1, 3, 5, 7, 0)
LOST = failed(0, "gradients_differ", at=101.0, difference=5e-3, step=1, suspects=[])
FULL: dict[str, Any] = {"total_bytes": 64 * MIB, "free_bytes": MIB, "workers": 2, "batch_bytes": 5 * MIB}
CASES = (
    # rank_computes_wrong_gradients: the rank that knows it of itself, whoever failed first
    fails("rank_computes_wrong_gradients",
        "train: rank 1 (cuda:1, pid 5001) computes wrong gradients for its own samples, off by 1.0e-02", uuid(1),
        ranks=ranks(rank(0), failed(1, "own_gradients_wrong", difference=0.01, step=1, suspects=[1]))),
    fails("rank_computes_wrong_gradients", "train: rank 1", "mgpu doctor",
        ranks=ranks(LOST, failed(1, "own_gradients_wrong", at=102.0, difference=0.01))),
    fails("rank_computes_wrong_gradients", "(DDP with static_graph)", "alone",
        ranks=ranks(rank(0), failed(1, "own_gradients_wrong", difference=0.01, option="static_graph"))),
    well("rank_computes_wrong_gradients", "correct on 2 ranks"),
    skips("rank_computes_wrong_gradients", "no rank passed", ranks=ranks(EARLY)),
    # parameters_not_synchronised
    fails("parameters_not_synchronised",
        "rank 1 (cuda:1, pid 5001) has different parameters than the rest from the start",
        "mgpu doctor --only packages",
        ranks=ranks(rank(0), failed(1, "parameters_not_synchronised", difference=0.5, step=0))),
    fails("parameters_not_synchronised", "at step 7, off by 1.0e-01", "rank1.json",
        ranks=ranks(LOST, failed(1, "parameters_not_synchronised", difference=0.1, step=7))),
    well("parameters_not_synchronised", "equal parameters in every step on 2 ranks"),
    # gradients_not_averaged
    fails("gradients_not_averaged", "off by 5.0e-03", "CUDA_VISIBLE_DEVICES=0,1", ranks=ranks(LOST, rank(1))),
    fails("gradients_not_averaged", "the error is in the share of rank 1", "pairs of GPUs",
        ranks=ranks(failed(0, "gradients_differ", difference=5e-3, suspects=[1]), rank(1))),
    well("gradients_not_averaged", "match a single process on 2 ranks"),
    # model_differs_on_rank: each rank reports its difference from another one
    fails("model_differs_on_rank", "train: rank 2 has 15 trainable parameters, the rest have 16", "rank2.json",
        ranks=ranks(*(failed(own, None, DIFFERS % (own, 15 if own == 2 else 16, other, 15 if other == 2 else 16), at)
            for own, other, at in ((0, 2, 9.0), (1, 2, 8.0), (2, 0, 7.0), (3, 2, 6.0))))),
    fails("model_differs_on_rank", "train: rank 1 has 15 trainable parameters, rank 0 has 16", "--only packages",
        ranks=ranks(failed(0, None, DIFFERS % (0, 16, 1, 15)), rank(1, steps=TRAINED[:1]))),
    well("model_differs_on_rank", "equal numbers of trainable parameters on 2 ranks"),
    skips("model_differs_on_rank", "no rank passed", ranks=ranks(EARLY)),
    # parameters_not_sharded
    fails("parameters_not_sharded",
        "rank 1 (cuda:1, pid 5001) has 36000 parameters with FSDP instead of its shard of 18000",
        "mgpu doctor --only packages",
        ranks=ranks(rank(0), failed(1, "not_sharded", found=36000, wanted=18000), strategy="fsdp")),
    well("parameters_not_sharded", "sharded on 2 ranks",
        ranks=ranks(rank(0, measured={"shard_bytes": 1.0}), rank(1, measured={"shard_bytes": 1.0}), strategy="fsdp")),
    skips("parameters_not_sharded", "does not shard parameters"),
    skips("parameters_not_sharded", "FSDP was not tested", ranks=ranks(strategy="fsdp")),
    # loss_does_not_fall
    fails("loss_does_not_fall", "the loss does not decrease on rank 0 (cuda:0, pid 5000): 2.300 -> 2.400",
        "mgpu smoke-test --cpu 1", ranks=ranks(failed(0, "loss_did_not_fall", first=2.3, last=2.4), rank(1))),
    well("loss_does_not_fall", "the loss decreases on 2 ranks"),
    # gradient_accumulation_wrong, unused_parameters_not_reported, strategy_not_applied: beyond the quick level
    fails("gradient_accumulation_wrong", "on rank 1 (cuda:1, pid 5001): gradients were exchanged", "rank1.json",
        ranks=ranks(rank(0), failed(1, "accumulation_wrong", "gradients were exchanged", difference=0.5))),
    well("gradient_accumulation_wrong", "on 2 ranks"),
    skips("gradient_accumulation_wrong", "quick level", ranks=ranks(level="quick")),
    fails("unused_parameters_not_reported", "DDP on rank 1", "packages",
        ranks=ranks(rank(0), failed(1, "unused_not_reported"))),
    well("unused_parameters_not_reported", "are detected"),
    fails("strategy_not_applied",
        "the config requires FSDP, but accelerate trains rank 0 (cuda:0, pid 5000) with MULTI_GPU",
        "mgpu configure --validate",
        ranks=ranks(failed(0, "strategy_not_applied", wanted="FSDP", found="MULTI_GPU"), rank(1))),
    well("strategy_not_applied", "ddp as configured"),
    # GPUs that trained, and never with the strategy of the config: what passed proves another one
    *(
        fails("strategy_not_applied", f"rank 1 (cuda:1, pid 5001) ran no step with {strategy}", "rank1.json",
            ranks=ranks(rank(0, measured={proof: 1.0}), rank(1), strategy=strategy))
        for strategy, proof in (("deepspeed", "prepared_difference"), ("fsdp", "shard_bytes"))
    ),
    well("strategy_not_applied", "deepspeed as configured",
        ranks=ranks(*(rank(n, measured={"prepared_difference": 0.0}) for n in range(2)), strategy="deepspeed")),
    well("strategy_not_applied", "deepspeed as configured", ranks=ranks(strategy="deepspeed", cpu=True)),
    # batch_norm_not_synchronised
    fails("batch_norm_not_synchronised", "rank 1 has different statistics than rank 0", "broadcast_buffers",
        ranks=ranks(rank(0, digests={"buffers": "a"}), rank(1, digests={"buffers": "b"}))),
    fails("batch_norm_not_synchronised", "rank 2 has different statistics than rank 0", "broadcast_buffers",
        ranks=ranks(*(rank(n, digests={"buffers": "b" if n == 2 else "a"}) for n in range(4)))),
    fails("batch_norm_not_synchronised", "SyncBatchNorm differs", "packages",
        ranks=ranks(failed(0, "batch_norm_not_synchronised", "SyncBatchNorm differs by 1", difference=1.0), rank(1))),
    well("batch_norm_not_synchronised", "equal statistics on 2 ranks",
        ranks=ranks(rank(0, digests={"buffers": "a"}), rank(1, digests={"buffers": "a"}))),
    skips("batch_norm_not_synchronised", "fewer than two"),
    # accelerate_trains_otherwise
    fails("accelerate_trains_otherwise", "with accelerate the loss of step 2 is 1.9", "mgpu configure --validate",
        ranks=ranks(failed(0, "prepared_differs", "with accelerate the loss of step 2 is 1.9", step=2), rank(1))),
    well("accelerate_trains_otherwise", "on 1 rank", ranks=ranks(rank(0, measured={"prepared_difference": 0.0}))),
    skips("accelerate_trains_otherwise", "not tested"),
    # optimizer_differs_between_ranks
    fails("optimizer_differs_between_ranks", "train: rank 2 has a different optimizer state than the rest", "packages",
        ranks=ranks(*(rank(n, digests={"optimizer": "b" if n == 2 else "a"}) for n in range(3)))),
    fails("optimizer_differs_between_ranks", "train: ranks 0 and 1 have different optimizer states", "packages",
        ranks=ranks(*(rank(n, digests={"optimizer": f"{n}"}) for n in range(2)))),
    well("optimizer_differs_between_ranks", "bitwise equal on 2 ranks",
        ranks=ranks(*(rank(n, digests={"optimizer": "a"}) for n in range(2)))),
    skips("optimizer_differs_between_ranks", "fewer than two"),
    # samples_not_given_once
    fails("samples_not_given_once",
        "rank 1 gets duplicate or another rank's samples (DistributedSampler, in order); 4 samples unused",
        "DistributedSampler", ranks=ranks(*dealt({0: {"in order": EVEN}, 1: {"in order": EVEN}}))),
    fails("samples_not_given_once", "(DistributedSampler, epoch 0); 1 sample unused", "accelerate prepare",
        ranks=ranks(*dealt({0: {"epoch 0": (8, 1, 3, 5, 0)}, 1: {"epoch 0": (2, 4, 6, 0, 1)}}))),
    fails("samples_not_given_once",
        "ranks 0 and 1 get duplicate or another rank's samples (a loader that accelerate prepared)", "rank0.json",
        ranks=ranks(*dealt({0: {"prepared": (0, 1)}, 1: {"prepared": (1, 2)}}, prepared_samples=4.0))),
    fails("samples_not_given_once", "rank 1 gets duplicate", "rank1.json",  # the ranks of one of two machines
        ranks=ranks(*dealt({0: {"in order": (0, 4, 8)}, 1: {"in order": (0, 4, 8)}}), expected=4, nodes=2)),
    well("samples_not_given_once", "1 loader, each sample once",
        ranks=ranks(*dealt({0: {"in order": EVEN}, 1: {"in order": ODD}}))),
    well("samples_not_given_once", "2 loaders,",
        ranks=ranks(*dealt({0: {"in order": EVEN, "epoch 0": ODD}, 1: {"in order": ODD, "epoch 0": EVEN}}))),
    well("samples_not_given_once", "1 loader,",
        ranks=ranks(*dealt({0: {"in order": (0, 4, 8)}, 1: {"in order": (1, 5, 0)}}), expected=4, nodes=2)),
    skips("samples_not_given_once", "no rank reported"),
    # samples_not_reshuffled
    warns("samples_not_reshuffled", "rank 1 (cuda:1, pid 5001) gets the same samples in the same order", "packages",
        ranks=ranks(*dealt({0: {"epoch 0": EVEN, "epoch 1": ODD}, 1: {"epoch 0": ODD, "epoch 1": ODD}}))),
    well("samples_not_reshuffled", "different order in the next epoch on 1 rank",
        ranks=ranks(*dealt({0: {"epoch 0": EVEN, "epoch 1": ODD}}))),
    skips("samples_not_reshuffled", "no rank reported"),
    # loader_out_of_shared_memory, loader_worker_failed
    fails("loader_out_of_shared_memory",
        "/dev/shm is too small for a loader worker of rank 1 (cuda:1, pid 5001) (1 MiB of 64 MiB free)",
        "--shm-size=8g",
        ranks=ranks(rank(0), failed(1, "shm_too_small", **FULL))),
    well("loader_out_of_shared_memory", "loader workers of 2 ranks deliver batches"),
    skips("loader_out_of_shared_memory", "quick level", ranks=ranks(level="quick")),
    skips("loader_out_of_shared_memory", "not tested", ranks=ranks(EARLY)),
    fails("loader_worker_failed", "rank 1 (cuda:1, pid 5001): a loader worker failed: no such image", "num_workers=0",
        ranks=ranks(rank(0), failed(1, "loader_failed", "a loader worker failed: no such image"))),
    well("loader_worker_failed", "workers of 2 ranks"),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
