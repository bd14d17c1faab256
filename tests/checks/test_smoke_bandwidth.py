"""checks/smoke/bandwidth.py"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mgpu.planning.bandwidth import bandwidth_row
from mgpu.snapshot import Bandwidth, PairRun, Ranks, Scaling, Timed
from tests.checks.facts import Case, baseline, fails, gpu, links, nccl_log, problem, rank, ranks, skips, table, warns
from tests.checks.facts import gpus as cards
from tests.checks.facts import informs as notes
from tests.checks.facts import well as fine

MIB, GIB = 1 << 20, 1 << 30
# Seconds that give two H100 (18 NVLinks) so many GB/s of bus bandwidth at 256 MiB; the model expects 326.
GOOD, SLOW, BROKEN = (256 * MIB / 1e9 / rate for rate in (310.0, 180.0, 40.0))


def timed(seconds: float, **changes: Any) -> Timed:
    return replace(Timed("all_reduce", "nccl", 2, 256 * MIB, seconds, 1.2 * seconds), **changes)


def of(seconds: float, count: int = 2, **changes: Any) -> Ranks:
    """Ranks that took so long for an all-reduce."""
    return ranks(*(rank(n, bandwidth=(timed(seconds, ranks=count, **changes),)) for n in range(count)))


def pairs(*rates: float) -> Ranks:
    """Four ranks whose all-reduce is broken, and how fast each pair is: 0-1, 0-2, 0-3, 1-2, 1-3, 2-3."""
    broken = of(BROKEN, 4)
    found = dict(zip([(a, b) for a in range(4) for b in range(a + 1, 4)], rates, strict=False))
    return replace(broken, ranks=tuple(
        replace(one, pairs=tuple(PairRun(b, True, gb_per_s=rate) for (a, b), rate in found.items() if a == one.rank))
        for one in broken.ranks
    ))  # fmt: skip


def scaling(*steps: float, gradients: float = 64e6, **changes: Any) -> Ranks:
    """Seconds of a step on 1, 2 … ranks, of which 10 ms are computing."""
    runs = tuple(Scaling(n, n * 512 / seconds, seconds, 0.010) for n, seconds in enumerate(steps, 1))
    told = ranks(*(
        rank(n, bandwidth=(timed(GOOD),), scaling=tuple(run for run in runs if run.ranks > n),
             measured={"scaling_gradient_bytes": gradients}) for n in range(2)
    ))  # fmt: skip
    return replace(told, **changes)


def before(rate: float, **changes: Any) -> Bandwidth:
    seconds = 256 * MIB / 1e9 / rate
    return replace(bandwidth_row("all_reduce", "nccl", 2, 256 * MIB, seconds, seconds), **changes)


GLOO = of(1.0, backend="gloo")
SMALL = of(1e-5, size_bytes=8192)

CASES = (
    # bandwidth_below_model
    warns("bandwidth_below_model", "all-reduce 256 MiB on 2 GPUs: 180 GB/s bus bandwidth, expected about 326 GB/s",
        "grep -h ' via ' .mgpu/runs/nccl.*.txt", ranks=of(SLOW)),
    warns("bandwidth_below_model", "about 24", "mgpu doctor -v", ranks=of(256 * MIB / 1e9 / 8),
        gpus=cards(2, nvlinks=()), links=links(2, nvlinks=0, through_switch=False, topology="SYS")),
    fine("bandwidth_below_model", "310 GB/s, expected about 326 GB/s", ranks=of(GOOD)),
    skips("bandwidth_below_model", "no collective was timed"),
    skips("bandwidth_below_model", "over gloo: not judged", ranks=GLOO),
    skips("bandwidth_below_model", "8 KiB measures latency", ranks=SMALL),
    skips("bandwidth_below_model", "the GPUs that", ranks=replace(of(SLOW), nodes=2)),
    skips("bandwidth_below_model", "different models", ranks=of(SLOW),
        gpus=cards(2, gpu(1, compute_capability=(8, 0)))),
    # bandwidth_collapsed: two witnesses
    fails("bandwidth_collapsed", "bandwidth: ranks 1 and 3 reach 9 GB/s, other pairs 200 GB/s; all-reduce 256 MiB",
        "nvidia-smi nvlink --status", ranks=pairs(200, 210, 190, 205, 9, 195)),
    fine("bandwidth_collapsed", "no pair is slower than the others", ranks=pairs(20, 21, 19, 20, 22, 20)),
    fine("bandwidth_collapsed", "180 GB/s, failure limit 130 GB/s", ranks=of(SLOW)),
    skips("bandwidth_collapsed", "there are too few pairs to compare", ranks=of(BROKEN)),
    skips("bandwidth_collapsed", "over gloo", ranks=GLOO),
    # bandwidth_below_baseline
    warns("bandwidth_below_baseline", "180 GB/s bus bandwidth, 310 GB/s before", "mgpu doctor", ranks=of(SLOW),
        baseline=baseline(bandwidth=(before(310.0),))),
    fine("bandwidth_below_baseline", "310 GB/s, before 320 GB/s 2026-11-01", ranks=of(GOOD),
        baseline=baseline(bandwidth=(before(320.0), before(1.0, backend="gloo")))),
    fine("bandwidth_below_baseline", "before 320 GB/s", ranks=of(GOOD),
        baseline=baseline(taken=None, bandwidth=(before(320.0),))),
    skips("bandwidth_below_baseline", "is from other GPUs", ranks=of(SLOW), baseline=baseline(same_gpus=False)),
    skips("bandwidth_below_baseline", "or does not name them", ranks=of(SLOW), baseline=baseline(same_gpus=None)),
    skips("bandwidth_below_baseline", "no collective with this number of ranks and size", ranks=of(SLOW),
        baseline=baseline(bandwidth=(before(310.0, ranks=4), before(310.0, size_bytes=MIB)))),
    skips("bandwidth_below_baseline", "over gloo", ranks=GLOO),
    # scaling_below_prediction: 64 MB of gradients at 310 GB/s hide behind 10 ms of computing
    warns("scaling_below_prediction", "2 GPUs are 1.00 times as fast as one (50%), but their bandwidth allows 100%",
        "its own CPU cores", ranks=scaling(0.010, 0.020)),
    fine("scaling_below_prediction", "2 GPUs are 1.82 times as fast as one (91%; 100% predicted",
        ranks=scaling(0.010, 0.011)),
    fine("scaling_below_prediction", "(50%; 63% predicted", ranks=scaling(0.010, 0.020, gradients=3.9e9)),
    skips("scaling_below_prediction", "share cores", ranks=scaling(0.010, 0.020, cpu=True)),
    skips("scaling_below_prediction", "over gloo", ranks=GLOO),
    skips("scaling_below_prediction", "was not compared", ranks=of(GOOD)),
    # collective_jitters
    notes("collective_jitters", "all-reduce 8 KiB on 2 GPUs: p50 10 us, p99 120 us", "mgpu doctor --only kernel,limits",
        ranks=of(1e-5, size_bytes=8192, seconds_p99=12e-5)),
    fine("collective_jitters", "p50 10 us, p99 12 us", ranks=SMALL),
    skips("collective_jitters", "over gloo", ranks=GLOO),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_nvls_raises_what_is_expected_of_eight_gpus() -> None:
    """330 GB/s is good without reduction in the switch, and too little with it."""
    eight = of(1.75 * 8 * GIB / 1e9 / 330, 8, size_bytes=8 * GIB)
    asked: dict[str, Any] = {"ranks": eight, "gpus": cards(8), "links": links(8)}
    found = problem("bandwidth_below_model", nccl_log=nccl_log(nvls=True), **asked)
    assert "expected about 465 GB/s" in found.title and "NVLS" in found.cause
    fine("bandwidth_below_model", "330 GB/s", nccl_log=nccl_log(nvls=False), **asked).verify()
