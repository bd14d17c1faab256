"""Are algbw and busbw those of nccl-tests, and does the model of a machine fit what such machines give?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mgpu.planning import bandwidth
from mgpu.planning.bandwidth import Expected, expected_bandwidth
from mgpu.snapshot import Gpu, Link, Rank, Scaling, Timed
from tests import machines
from tests.checks.facts import gpus, link, links, nvlinks, rank, ranks

MIB, GIB = 1 << 20, 1 << 30

_H100_PAIR = "https://github.com/NVIDIA/nccl-tests/issues/194"
_256_RANKS = "https://github.com/NVIDIA/nccl-tests/issues/78"
_SPARK = "https://github.com/NVIDIA/dgx-spark-playbooks/pull/103"
_PAIRS = "https://github.com/NVIDIA/nccl/issues/1435"
_SHARDS = "https://github.com/eunomia-bpf/nccl-eBPF (docs/tmp/p3-allgather-reducescatter-sweep.md)"
_BROADCAST = "https://github.com/eunomia-bpf/nccl-eBPF (docs/tmp/p3-broadcast-proto-sweep.md)"
_FORK = "https://github.com/ROCm/rccl/issues/1490"  # rccl-tests, a fork with the same arithmetic: 4 nodes of 8
_H20 = "https://github.com/NVIDIA/nccl-tests/issues/314"
_A100 = "https://github.com/li-plus/playground (cuda/nccl.md)"
_GTX = "https://github.com/NVIDIA/nccl-tests/issues/104"
# Its table with the columns redop and root: of all tests only reduce_perf prints both there (nccl-tests of 2020).
_TURING = "https://github.com/NVIDIA/nccl-tests/issues/44"

# What nccl-tests printed: collective, ranks, size (B), time (us) as printed, algbw, busbw (GB/s). Out of place.
PUBLISHED = (
    ("all_reduce", 2, 1073741824, "9306.7", 115.37, 115.37, _H100_PAIR),
    ("all_reduce", 2, 2147483648, "18535", 115.86, 115.86, _H100_PAIR),
    ("all_reduce", 2, 4294967296, "36943", 116.26, 116.26, _H100_PAIR),
    ("all_reduce", 2, 8192, "35.15", 0.23, 0.23, _SPARK),
    ("all_reduce", 2, 65536, "67.93", 0.96, 0.96, _SPARK),
    ("all_reduce", 256, 33554432, "1464.2", 22.92, 45.65, _256_RANKS),
    ("all_reduce", 256, 67108864, "2659.1", 25.24, 50.28, _256_RANKS),
    ("all_reduce", 256, 268435456, "7946.8", 33.78, 67.29, _256_RANKS),
    ("all_reduce", 256, 1073741824, "29896", 35.92, 71.55, _256_RANKS),
    ("all_gather", 2, 16777216, "108.8", 154.20, 77.10, _PAIRS),
    ("all_gather", 2, 33554432, "183.0", 183.33, 91.66, _PAIRS),
    ("all_gather", 2, 67108864, "292.3", 229.59, 114.79, _PAIRS),
    ("all_gather", 2, 117440512, "490.8", 239.27, 119.64, _PAIRS),
    ("all_gather", 2, 16777216, "280442", 0.06, 0.03, _SHARDS),
    ("all_gather", 32, 65536, "107.5", 0.61, 0.59, _FORK),
    ("all_gather", 32, 524288, "692.3", 0.76, 0.73, _FORK),
    ("all_gather", 32, 1048576, "1456.6", 0.72, 0.70, _FORK),
    ("reduce_scatter", 2, 1048576, "2678.52", 0.39, 0.20, _SHARDS),
    ("reduce_scatter", 2, 2097152, "2223.54", 0.94, 0.47, _SHARDS),
    ("reduce_scatter", 2, 4194304, "2227.18", 1.88, 0.94, _SHARDS),
    ("reduce_scatter", 2, 8388608, "2264.51", 3.70, 1.85, _SHARDS),
    ("broadcast", 2, 8388608, "2667.59", 3.14, 3.14, _BROADCAST),
    ("broadcast", 2, 67108864, "15127.6", 4.44, 4.44, _BROADCAST),
    ("broadcast", 2, 134217728, "29332.4", 4.58, 4.58, _BROADCAST),
    ("all_to_all", 8, 1048576, "58.14", 18.04, 15.78, _H20),
    ("all_to_all", 8, 2097152, "58.94", 35.58, 31.14, _H20),
    ("all_to_all", 8, 4194304, "59.35", 70.67, 61.84, _H20),
    ("send_recv", 8, 134217728, "1211.2", 110.81, 110.81, _A100),
    ("send_recv", 8, 268435456, "1423.3", 188.60, 188.60, _A100),
    ("send_recv", 8, 1073741824, "5503.4", 195.10, 195.10, _A100),
    ("send_recv", 2, 37748736, "6485.7", 5.82, 5.82, _GTX),
    ("reduce", 2, 131072, "23.17", 5.66, 5.66, _TURING),
    ("reduce", 2, 262144, "29.13", 9.00, 9.00, _TURING),
    ("reduce", 2, 524288, "40.93", 12.81, 12.81, _TURING),
)
PRINTED = 0.005  # bandwidths are printed with two decimals


@pytest.mark.parametrize(("collective", "count", "size", "time", "algbw", "busbw", "source"), PUBLISHED)
def test_published_outputs_of_nccl_tests(
    collective: str, count: int, size: int, time: str, algbw: float, busbw: float, source: str
) -> None:
    half = 0.5 * 10 ** -len(time.partition(".")[2])  # what the printed time may have been rounded by
    for ours, theirs in (
        (bandwidth.algbw, algbw),
        (lambda s, t: bandwidth.busbw(collective, count, s, t), busbw),
    ):
        slowest, fastest = (ours(size, (float(time) + rounded) * 1e-6) for rounded in (half, -half))
        assert slowest - PRINTED - 1e-9 <= theirs <= fastest + PRINTED + 1e-9, source


def test_every_collective_has_a_published_row() -> None:
    assert {row[0] for row in PUBLISHED} == set(bandwidth.COLLECTIVES)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 72, 1024])
def test_factors_for_any_number_of_ranks(count: int) -> None:
    """PERFORMANCE.md, "Summary"; the published rows of reduce_scatter have 2 ranks only."""
    assert bandwidth.bus_factor("all_reduce", count) == pytest.approx(2 * (count - 1) / count)
    for name in ("all_gather", "reduce_scatter", "all_to_all"):
        assert bandwidth.bus_factor(name, count) == pytest.approx((count - 1) / count)
    for name in ("broadcast", "reduce", "send_recv"):
        assert bandwidth.bus_factor(name, count) == 1


def test_one_rank_has_no_bus() -> None:
    """github.com/NVIDIA/nccl-tests/issues/249: "Avg bus bandwidth = 0" on a single GPU is right."""
    assert bandwidth.busbw("all_reduce", 1, 16 * MIB, 1e-3) == 0
    assert bandwidth.busbw("all_gather", 1, 16 * MIB, 1e-3) == 0
    assert bandwidth.algbw(16 * MIB, 1e-3) > 0


def test_what_is_no_collective_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown collective 'gather'"):
        bandwidth.bus_factor("gather", 2)
    with pytest.raises(ValueError, match="0 ranks"):
        bandwidth.bus_factor("all_reduce", 0)
    assert bandwidth.algbw(MIB, 0.0) == 0.0  # a clock that did not move measures nothing


def timed(**changes: Any) -> Timed:
    return replace(Timed("all_reduce", "nccl", 2, MIB, 1e-3, 2e-3), **changes)


def test_a_collective_is_as_slow_as_its_slowest_rank() -> None:
    (one,) = bandwidth.merge_ranks(
        (rank(0, bandwidth=(timed(seconds_p50=1e-3, seconds_p99=9e-3),)), rank(1, bandwidth=(timed(seconds_p50=2e-3),)))
    )
    assert (one.seconds_p50, one.seconds_p99) == (2e-3, 9e-3)
    assert one.algbw_gb_per_s == pytest.approx(MIB / 2e-3 / 1e9) == one.busbw_gb_per_s


def test_sizes_collectives_and_backends_stay_apart() -> None:
    rows = (timed(), timed(size_bytes=8), timed(collective="broadcast"), timed(backend="gloo"))
    found = bandwidth.merge_ranks((rank(0, bandwidth=rows), rank(1, bandwidth=rows)))
    assert len(found) == 4
    largest, smallest = bandwidth.largest(found), bandwidth.smallest(found)
    assert largest and smallest and (largest.size_bytes, smallest.size_bytes) == (MIB, 8)
    assert bandwidth.largest(found, "all_gather") is None


def run(count: int, seconds: float, compute: float = 0.01) -> Scaling:
    return Scaling(count, count * 32 / seconds, seconds, compute)


def test_efficiency_is_against_one_rank_alone() -> None:
    members: tuple[Rank, ...] = (
        rank(0, scaling=(run(1, 0.010), run(2, 0.012))),
        rank(1, scaling=(run(2, 0.0125, 0.011),)),
    )
    alone, both = bandwidth.merge_scaling(members)
    assert alone.efficiency == pytest.approx(1.0) and both.efficiency == pytest.approx(0.8)
    assert (both.seconds_per_step, both.compute_seconds) == (0.0125, 0.011)
    assert bandwidth.speed_up((alone, both)) == {1: pytest.approx(1.0), 2: pytest.approx(1.6)}


def test_without_a_run_of_one_rank_nothing_is_said_of_efficiency() -> None:
    (both,) = bandwidth.merge_scaling((rank(0, scaling=(run(2, 0.012),)),))
    assert both.efficiency is None and bandwidth.speed_up((both,)) == {}


# What such machines give: machine, how many of its GPUs, size, NVLS, busbw. The sources are those of the constants in
# mgpu/planning/bandwidth.py; "floor" rows are the limits below which operators take a node out (Azure's health checks).
RECORDED = (
    ("dgx1_v100_x8", 8, 8 * GIB, False, 130, "seen"),
    ("dgx1_v100_x8", 8, 8 * GIB, False, 110, "floor"),
    ("dgx_a100_x8", 8, 8 * GIB, False, 232, "seen"),
    ("dgx_a100_x8", 8, 8 * GIB, False, 228, "floor"),
    ("a100_pcie_x2_bridge", 2, 16 * GIB, False, 193, "floor"),
    ("a100_pcie_x2_bridge", 2, 16 * GIB, False, 208, "seen, averaged over all sizes"),
    ("h100_nvl_x2", 2, 16 * GIB, False, 208, "floor"),
    ("hgx_h100_x8", 8, 16 * GIB, True, 460, "floor"),
    ("hgx_h100_x8", 8, 16 * GIB, True, 480, "seen"),
    ("hgx_h100_x8", 8, 16 * GIB, False, 330, "seen, NVLS off"),
    ("hgx_h100_x8", 8, 16 * GIB, False, 390, "seen, NVLS off"),
    ("hgx_h200_x8", 8, 16 * GIB, True, 482, "seen"),
    ("hgx_h200_x8", 8, 16 * GIB, False, 367, "seen, NVLS off"),
    ("hgx_h200_x8", 4, 8 * GIB, True, 363, "seen: no NVLS on four of eight"),
    ("hgx_h200_x8", 5, 8 * GIB, True, 414, "seen"),
    ("hgx_h200_x8", 6, 8 * GIB, True, 436, "seen"),
    ("hgx_h200_x8", 7, 8 * GIB, True, 460, "seen"),
    ("hgx_b200_x8", 8, 16 * GIB, True, 846, "seen"),
    ("hgx_b200_x8", 8, 4 * GIB, True, 740, "seen"),
    ("hgx_b200_x8", 8, 256 * MIB, True, 646, "seen"),
    ("hgx_b200_x8", 8, 64 * MIB, True, 400, "seen"),
)


def of_machine(name: str, count: int) -> tuple[tuple[Gpu, ...], tuple[Link, ...]]:
    snapshot = machines.machine(name)
    assert snapshot.gpus is not None and snapshot.links is not None
    return snapshot.gpus[:count], snapshot.links


@pytest.mark.parametrize(("name", "count", "size", "nvls", "seen", "what"), RECORDED)
def test_what_machines_with_nvlink_give_is_within_the_narrow_band(
    name: str, count: int, size: int, nvls: bool, seen: float, what: str
) -> None:
    cards, ways = of_machine(name, count)
    model = expected_bandwidth(cards, ways, "all_reduce", size, nvls=nvls)
    assert isinstance(model, Expected), model
    assert model.warn_below <= seen <= 1.25 * model.gb_per_s, (what, model)
    assert model.fail_below < model.warn_below < model.gb_per_s


@pytest.mark.parametrize(("collective", "seen"), [("all_gather", 361.4), ("reduce_scatter", 362.9)])
def test_sharded_collectives_of_an_h200_board(collective: str, seen: float) -> None:
    """nccl-tests and torch at 16 GiB; NVLS does not count for them."""
    model = expected_bandwidth(*of_machine("hgx_h200_x8", 8), collective, 16 * GIB, nvls=True)
    assert isinstance(model, Expected) and model.warn_below <= seen <= 1.1 * model.gb_per_s


def test_a_pair_that_its_owner_thought_slow_is_a_warning_and_not_broken() -> None:
    """nccl-tests#194: 115 GB/s over the twelve bridged NVLinks of two H100 PCIe, where an A100 pair gives 208."""
    model = expected_bandwidth(*of_machine("h100_nvl_x2", 2), "all_reduce", GIB)
    assert isinstance(model, Expected) and model.fail_below < 115 < model.warn_below


def pcie(count: int, topology: Any, reach: int, **changes: Any) -> tuple[tuple[Gpu, ...], tuple[Link, ...]]:
    """GPUs without NVLinks."""
    cards = gpus(count, nvlinks=(), **{"compute_capability": (8, 9), "pcie_generation_max": 4} | changes)
    ways = links(count, topology=topology, nvlinks=0, through_switch=False, p2p_read=reach, p2p_write=reach)
    return cards, ways


@pytest.mark.parametrize(
    ("machine", "size", "seen"),
    [
        (pcie(8, "PHB", 5, compute_capability=(12, 0), pcie_generation_max=5), GIB, 28),  # RTX 5090, nccl#1639
        (pcie(4, "PHB", 5, compute_capability=(12, 0), pcie_generation_max=5), GIB, 35),
        (pcie(8, "SYS", 5), GIB, 10),  # RTX 4090 across sockets, nccl-tests#307
        (pcie(8, "PIX", 0, compute_capability=(12, 0), pcie_generation_max=5), GIB, 38),  # RTX PRO 6000, rtx6kpro
        (pcie(8, "SYS", 0, compute_capability=(12, 0), pcie_generation_max=5), 32 * MIB, 22),
        (pcie(3, "NODE", 0, compute_capability=(8, 0)), GIB, 20),  # A100 PCIe, nccl-tests#178
    ],
)
def test_what_machines_without_nvlink_give_is_no_false_alarm(
    machine: tuple[tuple[Gpu, ...], tuple[Link, ...]], size: int, seen: float
) -> None:
    model = expected_bandwidth(machine[0], machine[1], "all_reduce", size)
    assert isinstance(model, Expected) and seen >= model.warn_below, model


def test_four_gpus_in_two_bridged_pairs_go_over_pcie() -> None:
    """A100 PCIe, Azure NC96ads: 25 GB/s is its limit, though each pair has twelve NVLinks."""
    cards = gpus(4, compute_capability=(8, 0), nvlinks=nvlinks(12, remote="gpu"), pcie_generation_max=4)
    bridged = {(0, 1), (2, 3)}
    ways = tuple(
        link(a, b, nvlinks=12 if (a, b) in bridged else 0, through_switch=False, topology="NODE")
        for a in range(4) for b in range(a + 1, 4)
    )  # fmt: skip
    model = expected_bandwidth(cards, ways, "all_reduce", 8 * GIB)
    assert isinstance(model, Expected) and "PCIe 4 x16" in model.why and model.warn_below <= 25
    pair = expected_bandwidth(cards[:2], ways, "all_reduce", 8 * GIB)
    assert isinstance(pair, Expected) and pair.why == "12 NVLinks x 20 GB/s"


def test_the_bridge_of_a_turing_pair() -> None:
    """nccl-tests#44: 20-22 GB/s over the two links of RTX 2080 Ti."""
    cards = gpus(2, compute_capability=(7, 5), nvlinks=nvlinks(2, remote="gpu"))
    model = expected_bandwidth(cards, links(2, nvlinks=2, through_switch=False), "all_reduce", 128 * MIB)
    assert isinstance(model, Expected) and model.warn_below <= 20 and 1.1 * model.gb_per_s >= 22


@pytest.mark.parametrize(
    ("cards", "ways", "collective", "size", "why"),
    [
        (gpus(1), (), "all_reduce", GIB, "a single GPU"),
        (gpus(2), links(2), "broadcast", GIB, "no model for broadcast"),
        (gpus(2, mig_mode=True), links(2), "all_reduce", GIB, "MIG"),
        ((*gpus(1), *gpus(2, compute_capability=(8, 0))[1:]), links(2), "all_reduce", GIB, "different models"),
        (gpus(2, compute_capability=None), links(2), "all_reduce", GIB, "different models"),
        (gpus(2), (), "all_reduce", GIB, "links between the GPUs are unknown"),
        (gpus(2), links(2, nvlinks=None), "all_reduce", GIB, "links between the GPUs are unknown"),
        (
            gpus(2, compute_capability=(9, 9)),
            links(2),
            "all_reduce",
            GIB,
            "the NVLink bandwidth of this GPU is unknown",
        ),
        (gpus(2, nvlinks=None), links(2), "all_reduce", GIB, "not every GPU reports its NVLinks"),
        (*pcie(2, "PHB", 0, pcie_generation_max=None), "all_reduce", GIB, "not every GPU reports its PCIe"),
        (gpus(2), links(2), "all_reduce", 8192, "8 KiB measures latency"),
    ],
)
def test_what_the_model_does_not_know_it_says(
    cards: tuple[Gpu, ...], ways: tuple[Link, ...], collective: str, size: int, why: str
) -> None:
    model = expected_bandwidth(cards, ways, collective, size)
    assert isinstance(model, str) and why in model


def test_which_gpus_the_ranks_used() -> None:
    both = bandwidth.gpus_of_ranks(ranks(), gpus(4))
    assert both is not None and [gpu.index for gpu in both] == [0, 1]
    assert bandwidth.gpus_of_ranks(ranks(rank(0), rank(1, gpu_uuid=None)), gpus(4)) is None
    assert bandwidth.gpus_of_ranks(ranks(rank(0), rank(1, gpu_uuid=gpus(1)[0].uuid)), gpus(4)) is None  # shared
    assert bandwidth.gpus_of_ranks(ranks(nodes=2), gpus(4)) is None


def test_efficiency_that_the_bandwidth_explains() -> None:
    hidden = bandwidth.efficiency(0.010, 100e6, 100.0, 8)  # 1.75 ms behind 6.7 ms of backward
    shown = bandwidth.efficiency(0.010, 1e9, 100.0, 8)  # 17.5 ms
    assert hidden == 1.0 and shown == pytest.approx(0.010 / (0.010 + 0.0175 - 0.00667), rel=1e-2)


def test_sizes_and_rates_in_words() -> None:
    assert [bandwidth.size_text(size) for size in (8, 1024, 64 * MIB, GIB)] == ["8 bytes", "1 KiB", "64 MiB", "1 GiB"]
    assert [bandwidth.rate_text(rate) for rate in (214.4, 12.34, 0.826)] == ["214 GB/s", "12.3 GB/s", "0.826 GB/s"]
