"""Do the GPUs talk as fast as these links allow, as fast as before, and does training gain by more of them?

Only what NCCL timed is judged: ranks that share CPU cores over gloo give other figures with every load.
"""

from __future__ import annotations

from mgpu.check import Answer, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.planning.bandwidth import (
    Expected,
    efficiency,
    expected,
    largest,
    merged,
    rate_text,
    scaled,
    size_text,
    smallest,
    used,
)
from mgpu.snapshot import Bandwidth, Baseline, Gpu, Link, NcclLog, Ranks

_DATA_DIAGNOSIS = "https://microsoft.github.io/superbenchmark/docs/user-tutorial/data-diagnosis"
_MODEL = "https://github.com/NVIDIA/nccl/blob/master/src/graph/topo.h"
_PERFORMANCE = "https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md"
# A pair that is slower than half of the middle one is not the spread of one board: cards of one model in slots of one
# generation differ by a quarter at most (same NUMA node 53-56 GB/s, across 39-51: PCIe generation 5, measured by
# github.com/voipmonitor/rtx6kpro).
_ODD_PAIR = 0.5
# What a machine gives again: SuperBench calls 5 % a regression, after many repetitions. A smoke test repeats little and
# beside whatever else runs, so the band is wider (a judgement).
_AS_BEFORE = 0.8
# Of the efficiency that its own bus bandwidth explains; DDP's bookkeeping and a short run cost some (a judgement).
_OF_PREDICTED = 0.7
# p99 over p50 of a small all-reduce; 100 repetitions on an idle machine stay near 2 (a judgement).
_JITTER = 10.0


def _timed(ranks: Ranks) -> tuple[Bandwidth, ...]:
    """What NCCL timed on all ranks of the run."""
    return tuple(one for one in merged(ranks.ranks) if one.backend == "nccl" and one.ranks == ranks.expected)


def _not_judged(ranks: Ranks) -> Skip:
    if any(rank.bandwidth for rank in ranks.ranks):
        return Skip("over gloo: shown, not judged, since it depends on the load of the moment")
    return Skip("no collective was timed between ranks")


def _beside_model(
    ranks: Ranks, gpus: tuple[Gpu, ...], links: tuple[Link, ...], nccl_log: NcclLog
) -> list[tuple[Bandwidth, Expected]] | Skip:
    """The largest size of each collective, with what these GPUs should give."""
    rows = _timed(ranks)
    if not rows:
        return _not_judged(ranks)
    members = used(ranks, gpus)
    if members is None:
        return Skip("which GPUs of this machine the ranks used is not known, or they are on several machines")
    found, why = [], ""
    for name in dict.fromkeys(row.collective for row in rows):
        row = largest(rows, name)
        assert row is not None
        model = expected(members, links, name, row.size_bytes, nvls=nccl_log.nvls)
        if isinstance(model, Expected):
            found.append((row, model))
        else:
            why = why or model
    return found or Skip(f"nothing to compare with: {why}")


def _said(row: Bandwidth) -> str:
    return f"{row.collective.replace('_', '-')} {size_text(row.size_bytes)} on {row.ranks} GPUs"


@check(Severity.WARNING, source=_MODEL, because_of=("bandwidth_collapsed",))
def bandwidth_below_model(ranks: Ranks, gpus: tuple[Gpu, ...], links: tuple[Link, ...], nccl_log: NcclLog) -> Answer:
    """A collective is slower than the links between these GPUs allow.

    Why: expected is what NCCL itself reckons with for so many NVLinks, or PCIe lanes, and this size of message. Well
    below it, the traffic takes another way than it could (host memory, a slower slot), or the GPUs are held back.

    Fix: See NCCL's way between the GPUs in its log, and the links in the doctor's matrix.
    """
    beside = _beside_model(ranks, gpus, links, nccl_log)
    if isinstance(beside, Skip):
        return beside
    slow = [(row, model) for row, model in beside if row.busbw_gb_per_s < model.warn_below]
    if slow:
        row, model = slow[0]
        return Problem(
            f"{_said(row)}: {rate_text(row.busbw_gb_per_s)} bus bandwidth, about {model.gb_per_s:.0f} GB/s expected",
            f"Expected from {model.why}. The smoke test measures for a moment: nccl-tests tells it exactly.",
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
    return Ok(f"{_said(row)}: {rate_text(row.busbw_gb_per_s)}, about {model.gb_per_s:.0f} GB/s expected")


@check(Severity.ERROR, source=_MODEL)
def bandwidth_collapsed(ranks: Ranks, gpus: tuple[Gpu, ...], links: tuple[Link, ...], nccl_log: NcclLog) -> Answer:
    """Collectives run at a fraction of what the links allow, and one pair of GPUs is far slower than the others.

    Why: a collective is as fast as its slowest link. Two witnesses agree: the model of these GPUs, and the pair beside
    its siblings. Training works, at a fraction of the speed.

    Fix: Look at the link between these two GPUs: NVLinks, riser, slot.
    """
    beside = _beside_model(ranks, gpus, links, nccl_log)
    if isinstance(beside, Skip):
        return beside
    row, model = min(beside, key=lambda one: one[0].busbw_gb_per_s / one[1].gb_per_s)
    if row.busbw_gb_per_s >= model.fail_below:
        return Ok(f"{_said(row)}: {rate_text(row.busbw_gb_per_s)}, {rate_text(model.fail_below)} would be alarming")
    pairs = {
        (min(rank.rank, run.other), max(rank.rank, run.other)): run.gb_per_s
        for rank in ranks.ranks
        for run in rank.pairs
        if run.gb_per_s
    }
    if len(pairs) < 3:
        return Skip(f"{_said(row)} is far below what is expected, and there are no pairs to compare")
    (a, b), slowest = min(pairs.items(), key=lambda one: one[1])
    middle = sorted(pairs.values())[len(pairs) // 2]
    if slowest >= _ODD_PAIR * middle:
        return Ok(f"far below what is expected, but no pair is slower than its siblings ({rate_text(slowest)})")
    return Problem(
        f"rung bandwidth: ranks {a} and {b} reach {rate_text(slowest)}, other pairs {rate_text(middle)}; "
        f"{_said(row)} falls to {rate_text(row.busbw_gb_per_s)}",
        f"About {model.gb_per_s:.0f} GB/s is expected from {model.why}.",
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
    """A collective is slower than on the same GPUs before.

    Why: nothing but a change explains it: a driver, a cable, a slot, a setting, heat, or somebody else on the machine.

    Fix: See what has changed since: driver, NCCL, settings, links, heat, other users.
    More: When it is meant, let a new pass become the baseline.
    """
    rows = _timed(ranks)
    if not rows:
        return _not_judged(ranks)
    if baseline.same_gpus is not True:
        return Skip(f"{baseline.path} is of other GPUs, or does not say of which")
    before = {(one.collective, one.backend, one.ranks, one.size_bytes): one for one in baseline.bandwidth}
    both = [
        (row, old)
        for name in dict.fromkeys(row.collective for row in rows)
        if (row := largest(rows, name)) is not None
        and (old := before.get((row.collective, row.backend, row.ranks, row.size_bytes))) is not None
    ]
    if not both:
        return Skip(f"{baseline.path} has no collective of these ranks and sizes")
    row, old = min(both, key=lambda two: two[0].busbw_gb_per_s / (two[1].busbw_gb_per_s or float("inf")))
    when = f" {baseline.taken}" if baseline.taken else ""
    if row.busbw_gb_per_s >= _AS_BEFORE * old.busbw_gb_per_s:
        return Ok(f"{_said(row)}: {rate_text(row.busbw_gb_per_s)}, then {rate_text(old.busbw_gb_per_s)}{when}")
    return Problem(
        f"{_said(row)}: {rate_text(row.busbw_gb_per_s)} bus bandwidth, {rate_text(old.busbw_gb_per_s)} before",
        f"The same GPUs gave more in {baseline.path}{when}.",
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
    """More GPUs gain less than their computing and their bus bandwidth explain.

    Why: what the averaging of gradients costs follows from the measured bandwidth; what is lost beyond it goes to
    something that the ranks share: CPU cores, power, heat, or one rank that holds up the others. Measured on the smoke
    test's own small model.

    Fix: Give every rank CPU cores of its own, and see whether the GPUs lower their clocks when all work.
    """
    runs = scaled(ranks.ranks)
    rows = _timed(ranks)
    if ranks.cpu:
        return Skip("ranks on the CPU share its cores: what more of them bring is not judged")
    if not rows:
        return _not_judged(ranks)
    whole = next((run for run in runs if run.ranks == ranks.expected and run.efficiency is not None), None)
    measured = (rank.measured.get("scaling_gradient_bytes") for rank in ranks.ranks)
    gradients = next((size for size in measured if size is not None), None)
    near = [row for row in rows if row.collective == "all_reduce" and row.busbw_gb_per_s]
    if whole is None or whole.efficiency is None or gradients is None or not near or runs[0].ranks != 1:
        return Skip("training on 1 GPU and on all was not compared")
    row = min(near, key=lambda one: abs(one.size_bytes - gradients))
    wanted = efficiency(runs[0].compute_seconds, gradients, row.busbw_gb_per_s, whole.ranks)
    times = f"{whole.ranks} GPUs train {whole.efficiency * whole.ranks:.2f} times the samples of one"
    if whole.efficiency >= _OF_PREDICTED * wanted:
        return Ok(f"{times} ({whole.efficiency:.0%}; {wanted:.0%} follows from the bandwidth)")
    return Problem(
        f"{times} ({whole.efficiency:.0%}), where their bandwidth would allow {wanted:.0%}",
        f"A step takes {whole.seconds_per_step * 1000:.1f} ms, of which {whole.compute_seconds * 1000:.1f} ms are a "
        "rank's own computing. Measured on the smoke test's own small model.",
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
    """A small collective takes many times longer now and then.

    Why: One in a hundred takes more than ten times as long.
    More: Latency is what small messages cost, and every step waits for the slowest. Outliers come from the host: CPU
    frequency, interrupts, another job, a container's CPU quota.

    Fix: See what else runs on the CPUs, and their governor.
    """
    row = smallest(_timed(ranks))
    if row is None:
        return _not_judged(ranks)
    p50, p99 = row.seconds_p50 * 1e6, row.seconds_p99 * 1e6
    if p99 <= _JITTER * p50:
        return Ok(f"{_said(row)}: p50 {p50:.0f} us, p99 {p99:.0f} us")
    return Problem(
        f"{_said(row)}: p50 {p50:.0f} us, p99 {p99:.0f} us",
        fix=commands("mgpu doctor --only kernel,limits -v"),
        evidence={"p50_us": round(p50, 1), "p99_us": round(p99, 1), "size_bytes": row.size_bytes},
    )
