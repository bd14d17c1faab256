"""Do the GPUs communicate as fast as their links allow and as fast as before, and does training scale?

Only NCCL's timings are judged: gloo's timings of ranks that share CPU cores vary with the load.
"""

from __future__ import annotations

from mgpu.check import Answer, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.planning.bandwidth import (
    Expected,
    efficiency,
    expected_bandwidth,
    gpus_of_ranks,
    largest,
    merge_ranks,
    merge_scaling,
    rate_text,
    size_text,
    smallest,
)
from mgpu.snapshot import Bandwidth, Baseline, Gpu, Link, NcclLog, Ranks

_DATA_DIAGNOSIS = "https://microsoft.github.io/superbenchmark/docs/user-tutorial/data-diagnosis"
_MODEL = "https://github.com/NVIDIA/nccl/blob/master/src/graph/topo.h"
_PERFORMANCE = "https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md"
# A pair slower than half of the median is not normal variation: cards of one model in slots of one generation differ by
# a quarter at most (same NUMA node 53-56 GB/s, across nodes 39-51: PCIe generation 5, measured by
# github.com/voipmonitor/rtx6kpro).
_ODD_PAIR = 0.5
# SuperBench reports a regression at 5%, after many repetitions. The smoke test repeats less, and other processes may be
# running, so the margin is wider (a judgment call).
_AS_BEFORE = 0.8
# Share of the efficiency predicted from the measured bus bandwidth; DDP's overhead and a short run cost some (a
# judgment
# call).
_OF_PREDICTED = 0.7
# p99 / p50 of a small all-reduce; about 2 for 100 repetitions on an idle machine (a judgment call).
_JITTER = 10.0


def _nccl_timings(ranks: Ranks) -> tuple[Bandwidth, ...]:
    """Return NCCL's timings over all ranks of the run."""
    return tuple(one for one in merge_ranks(ranks.ranks) if one.backend == "nccl" and one.ranks == ranks.expected)


def _skip_reason(ranks: Ranks) -> Skip:
    if any(rank.bandwidth for rank in ranks.ranks):
        return Skip("measured over gloo: not judged, as it depends on the current load")
    return Skip("no collective was timed")


def _with_expected(
    ranks: Ranks, gpus: tuple[Gpu, ...], links: tuple[Link, ...], nccl_log: NcclLog
) -> list[tuple[Bandwidth, Expected]] | Skip:
    """Return the largest size of each collective, with the bandwidth expected of these GPUs."""
    rows = _nccl_timings(ranks)
    if not rows:
        return _skip_reason(ranks)
    members = gpus_of_ranks(ranks, gpus)
    if members is None:
        return Skip("the GPUs that the ranks used are unknown, or on several nodes")
    found, why = [], ""
    for name in dict.fromkeys(row.collective for row in rows):
        row = largest(rows, name)
        assert row is not None
        model = expected_bandwidth(members, links, name, row.size_bytes, nvls=nccl_log.nvls)
        if isinstance(model, Expected):
            found.append((row, model))
        else:
            why = why or model
    return found or Skip(f"nothing to compare with: {why}")


def _row_text(row: Bandwidth) -> str:
    return f"{row.collective.replace('_', '-')} {size_text(row.size_bytes)} on {row.ranks} GPUs"


@check(Severity.WARNING, source=_MODEL, because_of=("bandwidth_collapsed",))
def bandwidth_below_model(ranks: Ranks, gpus: tuple[Gpu, ...], links: tuple[Link, ...], nccl_log: NcclLog) -> Answer:
    """A collective is slower than the links between these GPUs allow.

    Why: the expected value is NCCL's own estimate for this number of NVLinks or PCIe lanes and this message size. A
    much lower value means that traffic takes a slower path (host memory, a slower slot), or that the GPUs are
    throttled.

    Fix: Check NCCL's path between the GPUs in its log, and the links in the doctor's matrix.
    """
    beside = _with_expected(ranks, gpus, links, nccl_log)
    if isinstance(beside, Skip):
        return beside
    slow = [(row, model) for row, model in beside if row.busbw_gb_per_s < model.warn_below]
    if slow:
        row, model = slow[0]
        return Problem(
            f"{_row_text(row)}: {rate_text(row.busbw_gb_per_s)} bus bandwidth, "
            f"expected about {model.gb_per_s:.0f} GB/s",
            f"Estimated from {model.why}. The smoke test measures only briefly; use nccl-tests for exact values.",
            commands(shell("grep -h ' via ' {:path}/nccl.*.txt", ranks.folder), "mgpu doctor -v"),
            {
                "collective": row.collective,
                "size_bytes": row.size_bytes,
                "busbw_gb_per_s": round(row.busbw_gb_per_s, 3),
                "algbw_gb_per_s": round(row.algbw_gb_per_s, 3),
                "expected_gb_per_s": round(model.gb_per_s, 1),
                "expected_from": model.why,
            },
        )
    row, model = beside[0]
    return Ok(f"{_row_text(row)}: {rate_text(row.busbw_gb_per_s)}, expected about {model.gb_per_s:.0f} GB/s")


@check(Severity.ERROR, source=_MODEL)
def bandwidth_collapsed(ranks: Ranks, gpus: tuple[Gpu, ...], links: tuple[Link, ...], nccl_log: NcclLog) -> Answer:
    """Collectives run at a fraction of what the links allow, and one pair of GPUs is far slower than the others.

    Why: a collective is as fast as its slowest link. Both the value expected of these GPUs and the comparison with
    other pairs show the problem. Training works, at a fraction of the speed.

    Fix: Check the link between these two GPUs: NVLinks, riser, slot.
    """
    beside = _with_expected(ranks, gpus, links, nccl_log)
    if isinstance(beside, Skip):
        return beside
    row, model = min(beside, key=lambda one: one[0].busbw_gb_per_s / one[1].gb_per_s)
    if row.busbw_gb_per_s >= model.fail_below:
        return Ok(f"{_row_text(row)}: {rate_text(row.busbw_gb_per_s)}, failure limit {rate_text(model.fail_below)}")
    pairs = {
        (min(rank.rank, run.other), max(rank.rank, run.other)): run.gb_per_s
        for rank in ranks.ranks
        for run in rank.pairs
        if run.gb_per_s
    }
    if len(pairs) < 3:
        return Skip(f"{_row_text(row)} is far below the expected value, but there are too few pairs to compare")
    (a, b), slowest = min(pairs.items(), key=lambda one: one[1])
    middle = sorted(pairs.values())[len(pairs) // 2]
    if slowest >= _ODD_PAIR * middle:
        return Ok(f"far below the expected value, but no pair is slower than the others ({rate_text(slowest)})")
    return Problem(
        f"bandwidth: ranks {a} and {b} reach {rate_text(slowest)}, other pairs {rate_text(middle)}; "
        f"{_row_text(row)} drops to {rate_text(row.busbw_gb_per_s)}",
        f"About {model.gb_per_s:.0f} GB/s expected, estimated from {model.why}.",
        commands("nvidia-smi topo -m", "nvidia-smi nvlink --status", "mgpu doctor -v", who="hardware"),
        {
            "ranks": f"{a},{b}",
            "pair_gb_per_s": slowest,
            "other_pairs_gb_per_s": middle,
            "busbw_gb_per_s": round(row.busbw_gb_per_s, 3),
            "expected_gb_per_s": round(model.gb_per_s, 1),
        },
        (f"rank {a}", f"rank {b}"),
    )


@check(Severity.WARNING, source=_DATA_DIAGNOSIS, because_of=("bandwidth_below_model", "bandwidth_collapsed"))
def bandwidth_below_baseline(ranks: Ranks, baseline: Baseline) -> Answer:
    """A collective is slower than in an earlier run on the same GPUs.

    Why: something has changed: the driver, a cable, a slot, a setting, temperature, or other processes on the machine.

    Fix: Check what changed since then: driver, NCCL, settings, links, temperature, other users.
    More: If the change is intended, use a new successful run as the baseline.
    """
    rows = _nccl_timings(ranks)
    if not rows:
        return _skip_reason(ranks)
    if baseline.same_gpus is not True:
        return Skip(f"{baseline.path} is from other GPUs, or does not name them")
    before = {(one.collective, one.backend, one.ranks, one.size_bytes): one for one in baseline.bandwidth}
    both = [
        (row, old)
        for name in dict.fromkeys(row.collective for row in rows)
        if (row := largest(rows, name)) is not None
        and (old := before.get((row.collective, row.backend, row.ranks, row.size_bytes))) is not None
    ]
    if not both:
        return Skip(f"{baseline.path} has no collective with this number of ranks and size")
    row, old = min(both, key=lambda two: two[0].busbw_gb_per_s / (two[1].busbw_gb_per_s or float("inf")))
    when = f" {baseline.taken}" if baseline.taken else ""
    if row.busbw_gb_per_s >= _AS_BEFORE * old.busbw_gb_per_s:
        return Ok(f"{_row_text(row)}: {rate_text(row.busbw_gb_per_s)}, before {rate_text(old.busbw_gb_per_s)}{when}")
    return Problem(
        f"{_row_text(row)}: {rate_text(row.busbw_gb_per_s)} bus bandwidth, {rate_text(old.busbw_gb_per_s)} before",
        f"The same GPUs were faster in {baseline.path}{when}.",
        commands("mgpu doctor", "nvidia-smi --query-gpu=index,temperature.gpu,clocks.sm,utilization.gpu --format=csv"),
        {
            "collective": row.collective,
            "size_bytes": row.size_bytes,
            "busbw_gb_per_s": round(row.busbw_gb_per_s, 3),
            "baseline_gb_per_s": round(old.busbw_gb_per_s, 3),
            "baseline": baseline.path,
        },
    )


@check(Severity.WARNING, source="https://pytorch.org/docs/stable/notes/ddp.html", because_of=("rank_is_a_straggler",))
def scaling_below_prediction(ranks: Ranks) -> Answer:
    """Training scales worse than compute time and bus bandwidth predict.

    Why: the cost of averaging gradients follows from the measured bandwidth. Any further loss comes from something
    the ranks share: CPU cores, power, cooling, or one slow rank. Measured with the smoke test's own small model.

    Fix: Give every rank its own CPU cores, and check whether the GPUs lower their clocks when all of them work.
    """
    runs = merge_scaling(ranks.ranks)
    rows = _nccl_timings(ranks)
    if ranks.cpu:
        return Skip("CPU ranks share cores: scaling is not judged")
    if not rows:
        return _skip_reason(ranks)
    whole = next((run for run in runs if run.ranks == ranks.expected and run.efficiency is not None), None)
    measured = (rank.measured.get("scaling_gradient_bytes") for rank in ranks.ranks)
    gradients = next((size for size in measured if size is not None), None)
    near = [row for row in rows if row.collective == "all_reduce" and row.busbw_gb_per_s]
    if whole is None or whole.efficiency is None or gradients is None or not near or runs[0].ranks != 1:
        return Skip("training on 1 GPU and on all GPUs was not compared")
    row = min(near, key=lambda one: abs(one.size_bytes - gradients))
    wanted = efficiency(runs[0].compute_seconds, gradients, row.busbw_gb_per_s, whole.ranks)
    times = f"{whole.ranks} GPUs are {whole.efficiency * whole.ranks:.2f} times as fast as one"
    if whole.efficiency >= _OF_PREDICTED * wanted:
        return Ok(f"{times} ({whole.efficiency:.0%}; {wanted:.0%} predicted from the bandwidth)")
    return Problem(
        f"{times} ({whole.efficiency:.0%}), but their bandwidth allows {wanted:.0%}",
        f"A step takes {whole.seconds_per_step * 1000:.1f} ms, of which a rank computes for "
        f"{whole.compute_seconds * 1000:.1f} ms. Measured with the smoke test's own small model.",
        commands("nproc", "mgpu doctor --only clocks,limits -v"),
        {
            "ranks": whole.ranks,
            "efficiency": round(whole.efficiency, 3),
            "predicted": round(wanted, 3),
            "seconds_per_step": whole.seconds_per_step,
            "compute_seconds": whole.compute_seconds,
        },
    )


@check(Severity.INFO, source=_PERFORMANCE)
def collective_jitters(ranks: Ranks) -> Answer:
    """A small collective occasionally takes many times longer.

    Why: One in a hundred takes more than ten times as long as the median.
    More: Small messages are limited by latency, and every step waits for the slowest. Outliers come from the host:
    CPU frequency, interrupts, another job, or a container's CPU quota.

    Fix: Check what else runs on the CPUs, and their frequency governor.
    """
    row = smallest(_nccl_timings(ranks))
    if row is None:
        return _skip_reason(ranks)
    p50, p99 = row.seconds_p50 * 1e6, row.seconds_p99 * 1e6
    if p99 <= _JITTER * p50:
        return Ok(f"{_row_text(row)}: p50 {p50:.0f} us, p99 {p99:.0f} us")
    return Problem(
        f"{_row_text(row)}: p50 {p50:.0f} us, p99 {p99:.0f} us",
        fix=commands("mgpu doctor --only kernel,limits -v"),
        evidence={"p50_us": round(p50, 1), "p99_us": round(p99, 1), "size_bytes": row.size_bytes},
    )
