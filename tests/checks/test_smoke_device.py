"""checks/smoke/device.py, pace.py and collectives.py"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from mgpu.smoke.ranks import STAGES
from mgpu.snapshot import PairRun, Rank, Ranks, Step
from tests.checks.facts import (
    Case,
    fails,
    informs,
    link,
    problem,
    rank,
    ranks,
    skips,
    table,
    uuid,
    warns,
    well,
)

NEVER = rank(1, pid=None, device=None, steps=(), last_word=None, finished=False, computed={}, measured={})


def failed(number: int, rung: str, kind: str, error: str, **changes: Any) -> Rank:
    """A rank that failed on that rung, with what it knows of it."""
    evidence = changes.pop("evidence", {})
    below = (Step("start", True), Step("device", True), Step("group", True))
    steps = (*below[: {"device": 1}.get(rung, 3)], Step(rung, False, error))
    return rank(number, steps=steps, kind=kind, evidence=evidence, error=error, failed_at=100.0 + number, **changes)


def on_cpu(number: int, **changes: Any) -> Rank:
    """A rank of a rehearsal."""
    return rank(number, device="cpu", gpu_uuid=None, gpu_name=None, gpu_pci=None, numa_node=None, **changes)


def timed(*seconds: float, name: str = "compute_seconds") -> Ranks:
    """Ranks that took so long for something."""
    return ranks(*(rank(number, measured={name: value}) for number, value in enumerate(seconds)))


def wrong(number: int, suspects: list[int], **changes: Any) -> Rank:
    """A rank that received wrong numbers, and from whom."""
    one = {"collective": "all-gather", "dtype": "float32", "size": 500, "count": 1, "first": 499, "expected": "19.0",
           "got": "20.0", "sender": suspects[0] if suspects else None}  # fmt: skip
    evidence = {"wrong": [one], "count": 1, "suspects": suspects, "collectives": ["all-gather", "all-reduce"]}
    error = "all-gather of 500 x float32: 1 of 500 numbers are wrong, the first at 499: 20 instead of 19"
    return failed(number, "collectives", "wrong_numbers", error, evidence=evidence, **changes)


def paired(rates: Mapping[tuple[int, int], float | None], bad: tuple[tuple[int, int], ...] = ()) -> Ranks:
    """Ranks that met in pairs, how fast they were, and which pairs altered numbers."""
    members = sorted({number for pair in rates for number in pair})
    met: dict[int, list[PairRun]] = {number: [] for number in members}
    for pair, rate in rates.items():
        ok = rate is not None and pair not in bad
        for number, other in (pair, pair[::-1]):
            met[number].append(PairRun(other, ok, None if ok else f"wrong between {pair[0]} and {pair[1]}", rate, 1e-5))
    return ranks(*(rank(number, pairs=tuple(met[number])) for number in members))


ALL = {(0, 1): 190.0, (0, 2): 188.0, (0, 3): 192.0, (1, 2): 190.0, (1, 3): 189.0, (2, 3): 191.0}
THROUGH = ranks(*(rank(number, steps=tuple(Step(rung, True) for rung in STAGES)) for number in range(2)))
MEMORY = {"wrong": 3, "of": 1000, "block": 0, "first": 7, "expected": "00ff", "got": "10ff"}

CASES = (
    # rank_without_gpu
    fails("rank_without_gpu", "device: rank 1 (cuda:1, pid 5001) has no GPU: torch sees no GPU", "nvidia-smi -L",
        ranks=ranks(rank(0), failed(1, "device", "no_gpu", "torch sees no GPU in this process"))),
    fails("rank_without_gpu", "local rank 1 has no GPU: torch sees 1", "num_processes",
        ranks=ranks(rank(0), failed(1, "device", "no_gpu_for_rank", "local rank 1 has no GPU: torch sees 1",
            evidence={"visible": 1}))),
    fails("rank_without_gpu", "device: rank 1 (cpu, pid 5001) computes on the CPU in a GPU run",
        "unset ACCELERATE_USE_CPU",
        ranks=ranks(rank(0), on_cpu(1))),
    well("rank_without_gpu", "2 ranks found a device", ranks=ranks(on_cpu(0), on_cpu(1), cpu=True)),
    well("rank_without_gpu", "2 ranks found a device"),
    skips("rank_without_gpu", "no rank reached its device", ranks=ranks(NEVER)),
    # gpu_error_in_rank
    fails("gpu_error_in_rank", "train: CUDA error on rank 1 (cuda:1, pid 5001): RuntimeError: CUDA error", "xid",
        ranks=ranks(rank(0), failed(1, "train", "cuda_error", "RuntimeError: CUDA error: misaligned address"))),
    well("gpu_error_in_rank", "no rank had a CUDA error", ranks=THROUGH),
    skips("gpu_error_in_rank", 'no rank passed stage "device"', ranks=ranks(NEVER)),
    # rank_computes_not_finite
    fails("rank_computes_not_finite", "device: rank 1 (cuda:1, pid 5001) computes NaN or infinity: ", "dcgmi diag",
        ranks=ranks(rank(0), failed(1, "device", "not_finite", "matrix products in bf16 came out infinite or NaN"))),
    well("rank_computes_not_finite", "every matrix product was finite", ranks=THROUGH),
    skips("rank_computes_not_finite", 'no rank passed stage "device"', ranks=ranks(NEVER)),
    # rank_computes_unsteadily
    fails("rank_computes_unsteadily", "gets two results for one computation:", "mgpu doctor --deep",
        ranks=ranks(rank(0), failed(1, "device", "unsteady_bits", "gave other bits the second time"))),
    well("rank_computes_unsteadily", "every rank got the same result twice", ranks=THROUGH),
    skips("rank_computes_unsteadily", 'no rank passed stage "device"', ranks=ranks(NEVER)),
    # gpu_memory_altered
    fails("gpu_memory_altered", "3 of 1000 numbers in memory are altered", "dcgmi diag",
        ranks=ranks(rank(0), failed(1, "device", "memory_altered", "3 of 1000 …", evidence=MEMORY))),
    fails("gpu_memory_altered", "numbers in memory are altered", "mgpu doctor",
        ranks=ranks(rank(0), replace(failed(1, "shutdown", "memory_altered", "…", evidence=MEMORY), gpu_uuid=None))),
    well("gpu_memory_altered", "1024 MiB written and read back on 2 ranks",
        ranks=ranks(*(rank(n, measured={"memory_checked_mib": 1024.0}) for n in range(2)))),
    skips("gpu_memory_altered", "level quick"),
    # ranks_compute_differently: GPUs of one model, the CPU of one host
    fails("ranks_compute_differently", "device: ranks 0 and 1 compute different results in fp32", "mgpu doctor --deep",
        ranks=ranks(rank(0, computed={"fp32": "bad"}), rank(1))),
    fails("ranks_compute_differently", "device: rank 0 computes different results in bf16 than 2 equal ranks", "dcgmi",
        ranks=ranks(rank(0, computed={"fp32": "c0ffee", "bf16": "bad"}), rank(1), rank(2))),
    fails("ranks_compute_differently", "ranks 0 and 1 compute different results in fp32 than 3 equal ranks", "dcgmi",
        ranks=ranks(rank(0, computed={"fp32": "a"}), rank(1, computed={"fp32": "b"}), *(rank(n) for n in (2, 3, 4)))),
    fails("ranks_compute_differently", "ranks 0 and 1 compute different results", "memory of this machine",
        ranks=ranks(on_cpu(0), on_cpu(1, computed={"fp32": "bad"}))),
    well("ranks_compute_differently", "bitwise equal on 2 ranks in fp32 and bf16"),
    skips("ranks_compute_differently", "no two ranks", ranks=ranks(rank(0))),
    skips("ranks_compute_differently", "no two ranks",
        ranks=ranks(rank(0), rank(1, gpu_name="NVIDIA A100", computed={"fp32": "x"}))),
    skips("ranks_compute_differently", "no two ranks",
        ranks=ranks(on_cpu(0), on_cpu(1, host="node8", computed={"fp32": "x"}))),
    # cards of one name, of which one has more multiprocessors
    skips("ranks_compute_differently", "no two ranks",
        ranks=ranks(rank(0, kernels="NVIDIA GeForce RTX 3080, 68 SM"),
                    rank(1, kernels="NVIDIA GeForce RTX 3080, 70 SM", computed={"fp32": "x"}))),
    # rank_is_a_straggler: three times the median of the others
    warns("rank_is_a_straggler",
        "rank 1 (cuda:1, pid 5001) on node7 is the straggler: its own compute takes 3.0 times as long",
        "nvidia-smi -q", ranks=timed(0.01, 0.03)),
    warns("rank_is_a_straggler",
        "rank 2 (cuda:2, pid 5002) on node7 is the straggler: its own compute takes 4.0 times", "mgpu doctor",
        ranks=timed(0.01, 0.011, 0.04, 0.009, name="step_compute_seconds")),
    warns("rank_is_a_straggler", "rank 1 (cpu, pid 5001) on node7 is the straggler: its own compute takes 5.0 times",
        "what else runs",
        ranks=ranks(on_cpu(0, measured={"compute_seconds": 1.0}), on_cpu(1, measured={"compute_seconds": 5.0}))),
    well("rank_is_a_straggler", "all ranks have similar compute times", ranks=timed(0.01, 0.0299)),
    warns("rank_is_a_straggler",
        "rank 1 (cuda:1, pid 5001) on node7 is the straggler: its own compute takes 4.0 times", "mgpu doctor",
        ranks=ranks(*(rank(n, measured={"compute_seconds": 1.0, "step_compute_seconds": s})
                      for n, s in enumerate((1.0, 4.0))))),
    well("rank_is_a_straggler", "all ranks have similar compute times",
        ranks=ranks(*(on_cpu(n, measured={"compute_seconds": 1.0, "step_compute_seconds": s})
                      for n, s in enumerate((1.0, 4.0))))),
    skips("rank_is_a_straggler", "fewer than two ranks measured"),
    skips("rank_is_a_straggler", "fewer than two ranks measured", ranks=timed(0.01, 0.0)),
    # gpu_slower_than_siblings: 10 % of matrix products, 20 % of copies
    warns("gpu_slower_than_siblings",
        "rank 1 (cuda:1, pid 5001) on node7: matrix products in bf16 at 620 TFLOP/s, the others at 700",
        "nvidia-smi -q -d CLOCK", ranks=timed(700.0, 620.0, 701.0, 699.0, name="gemm_tflops_bf16")),
    warns("gpu_slower_than_siblings", "rank 0 (cuda:0, pid 5000) on node7: host-to-device copy at 12 GB/s", "PCIe",
        ranks=timed(12.0, 25.0, name="h2d_gb_per_s")),
    well("gpu_slower_than_siblings", "2 GPUs of the same model within 10% (copies 20%)",
        ranks=timed(631.0, 700.0, name="gemm_tflops_bf16")),
    well("gpu_slower_than_siblings", "2 GPUs", ranks=timed(20.1, 25.0, name="d2h_gb_per_s")),
    skips("gpu_slower_than_siblings", "no two GPUs of the same model were measured"),
    skips("gpu_slower_than_siblings", "no two GPUs", ranks=ranks(
        rank(0, measured={"gemm_tflops_fp32": 50.0}),
        rank(1, gpu_name="NVIDIA A100", measured={"gemm_tflops_fp32": 19.0}))),
    # collective_gives_wrong_numbers
    fails("collective_gives_wrong_numbers",
        "rank 1 (cuda:1, pid 5001) sends wrong numbers (collectives: all-gather and all-reduce)", "mgpu doctor --deep",
        ranks=ranks(wrong(0, [1]), rank(1), wrong(2, [1]))),
    fails("collective_gives_wrong_numbers", "rank 1 (cuda:1, pid 5001) sends wrong numbers", "dcgmi diag",
        ranks=ranks(wrong(0, [1]), wrong(1, []))),
    fails("collective_gives_wrong_numbers", "rank 1 (cuda:1, pid 5001) sends wrong numbers", "dcgmi diag",
        ranks=ranks(wrong(0, [1]), wrong(1, [1]), wrong(2, []))),
    fails("collective_gives_wrong_numbers",
        "rank 3 (cuda:3, pid 5003) receives wrong numbers from 2 ranks, and no other rank does", "dcgmi diag",
        ranks=ranks(rank(0), rank(1), rank(2), wrong(3, [0, 2]))),
    fails("collective_gives_wrong_numbers",
        "wrong numbers on ranks 0 and 1 (collectives: all-gather and all-reduce); only sums are wrong", "mgpu doctor",
        ranks=ranks(wrong(0, []), wrong(1, []))),
    fails("collective_gives_wrong_numbers", "no single rank explains it (wrong data from 0 and 3)", "mgpu doctor",
        ranks=ranks(rank(0), rank(1), wrong(2, [0, 3]), wrong(3, [0]))),
    fails("collective_gives_wrong_numbers", "no single rank explains it (wrong data from 0 and 1)", "mgpu doctor",
        ranks=ranks(wrong(0, [1]), wrong(1, [0]))),
    fails("collective_gives_wrong_numbers", "rank 4 (cuda:4, pid 5004) sends wrong numbers according to 3 of 4 ranks",
        "dcgmi", ranks=ranks(wrong(0, [4]), wrong(1, [4]), wrong(2, [4]), wrong(3, [0]), rank(4))),
    fails("collective_gives_wrong_numbers", "rank 9 sends wrong numbers", "mgpu doctor",
        ranks=ranks(wrong(0, [9]), wrong(1, [9]))),
    fails("collective_gives_wrong_numbers", "rank 1 (cpu, pid 5001) sends wrong numbers", "memory and the network",
        ranks=ranks(wrong(0, [1]), on_cpu(1))),
    well("collective_gives_wrong_numbers", "exact on 2 ranks", ranks=THROUGH),
    skips("collective_gives_wrong_numbers", "no rank passed the collectives", ranks=ranks(NEVER, NEVER)),
    skips("collective_gives_wrong_numbers", "one rank does not communicate", ranks=ranks(rank(0))),
    # pair_gives_wrong_numbers
    fails("pair_gives_wrong_numbers", "pairs: wrong numbers between ranks 1-3", "mgpu doctor --deep",
        ranks=paired(ALL, ((1, 3),))),
    fails("pair_gives_wrong_numbers", "pairs: wrong numbers between ranks 0-2, 1-2 and 2-3; all include rank 2",
        "dcgmi",
        ranks=paired(ALL, ((0, 2), (1, 2), (2, 3)))),
    fails("pair_gives_wrong_numbers", "pairs: wrong numbers between ranks 0-1 and 2-3", "dcgmi",
        ranks=paired(ALL, ((0, 1), (2, 3)))),
    well("pair_gives_wrong_numbers", "6 pairs exact", ranks=paired(ALL)),
    skips("pair_gives_wrong_numbers", "no pair was tested"),
    # pair_much_slower: 0.7 of the median of its kind
    warns("pair_much_slower", "pair 0-3 (NV18): 131 GB/s, other pairs of this kind 190", "nvidia-smi topo -m",
        ranks=paired(ALL | {(0, 3): 131.0})),
    warns("pair_much_slower", "pair 0-3 (NV18): 20 GB/s, other pairs of this kind 188 (and 1 pair more)", "mgpu doctor",
        ranks=paired(ALL | {(0, 3): 20.0, (1, 2): 100.0})),
    well("pair_much_slower", "6 pairs, none below 0.7", ranks=paired(ALL | {(0, 3): 134.0})),
    well("pair_much_slower", "3 pairs", ranks=paired(ALL | {(0, 1): 20.0, (2, 3): 21.0, (0, 3): 22.0}),
        links=(link(0, 1, nvlinks=0), link(0, 2), link(0, 3, nvlinks=0), link(1, 2), link(1, 3),
            link(2, 3, nvlinks=None))),
    skips("pair_much_slower", "fewer than 3 GPU pairs with one kind of link",
        ranks=paired({(0, 1): 20.0, (1, 2): 190.0})),
    skips("pair_much_slower", "fewer than 3 GPU pairs", ranks=ranks(*(
        on_cpu(n, pairs=tuple(PairRun(m, True, None, 1.0 + n, 1e-5) for m in range(4) if m != n)) for n in range(4)))),
    # gloo_fails_beside_nccl
    informs("gloo_fails_beside_nccl", "collectives: gloo does not work on rank 0 (cuda:0, pid 5000)", "GLOO_SOCKET",
        ranks=ranks(rank(0, gloo_works=False, skipped=("gloo beside NCCL: timed out",)), rank(1, gloo_works=False))),
    well("gloo_fails_beside_nccl", "gloo works in addition to NCCL on 2 ranks",
        ranks=ranks(rank(0, gloo_works=True), rank(1, gloo_works=True))),
    skips("gloo_fails_beside_nccl", "gloo was not tested"),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_of_two_ranks_none_is_odd_by_chance() -> None:
    pairs = [
        (rank(0, computed={"fp32": f"a{number}"}), rank(1, computed={"fp32": f"b{number}"})) for number in range(24)
    ]
    assert len({problem("ranks_compute_differently", ranks=ranks(*pair)).title for pair in pairs}) == 1


def test_the_gpu_and_the_host_of_the_rank_at_fault_are_in_the_evidence() -> None:
    found = problem("collective_gives_wrong_numbers", ranks=ranks(wrong(0, [1]), rank(1)))
    assert found.evidence["gpu"] == uuid(1) and found.evidence["host"] == "node7"
    assert f"It computes on NVIDIA H100 80GB HBM3 {uuid(1)} (node7, 0000:1b:00.0)." in found.cause
    assert (found.evidence["expected"], found.evidence["got"]) == ("19.0", "20.0")


@pytest.mark.parametrize(
    ("works", "words"), [(True, "NCCL or the path between GPUs"), (False, "NCCL is not the cause")]
)
def test_gloo_beside_nccl_tells_whose_fault_it_is(works: bool, words: str) -> None:
    found = problem("collective_gives_wrong_numbers", ranks=ranks(wrong(0, [1], gloo_works=works), rank(1)))
    assert words in found.cause
