"""Do all ranks compute at the same speed?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.snapshot import Rank, Ranks
from mgpu.text import counted

from ._rank_states import hardware_of, median, rank_name

_GPU_FRYER = "https://github.com/huggingface/gpu-fryer"

# A rank's own compute time, without waiting for others: alone on its device, and in a training step.
_OWN = ("compute_seconds", "step_compute_seconds")
_COPIES = {"h2d_gb_per_s": "host-to-device copy", "d2h_gb_per_s": "device-to-host copy"}
_OFTEN = 0.05  # share of the observations; one stop of a second in 20 s may be a debugger or a suspended terminal
_STRAGGLES = 3.0  # measured on 2 to 8 CPU ranks of a busy machine: equal ranks differ by a factor of up to 1.4
_LEAST_LOST_S = 0.3  # of own work in total: what a busy machine takes from one of two equal ranks (measured)
# Share of the time on a core from which a machine counts as idle enough to compare elapsed times.
_UNDISTURBED = 0.7
# Share of the median of the other GPUs. gpu-fryer fails a GPU that is 10% below the best; a spread of 5% is usual
# (stas00/ml-engineering, compute/accelerator/benchmarks).
_GEMM_SHARE = 0.9
# Operators set limits of 0.8 (PCIe 4) to 0.87 (PCIe 5) of the usual value: Azure/azurehpc-health-checks.
_COPY_SHARE = 0.8


@check(
    Severity.WARNING,
    source="https://man7.org/linux/man-pages/man7/signal.7.html",
    because_of=("rank_frozen", "ranks_hang"),
)
def rank_stopped_repeatedly(ranks: Ranks) -> Answer:
    """A rank was stopped again and again during the test.

    Why: SIGSTOP or a debugger stopped its process, and something continued it. All ranks wait for it in every step;
    no step fails. Some schedulers and CPU limiters (cpulimit) share a machine in this way.

    Fix: Find out what stops it: a CPU limiter, a scheduler that suspends jobs, or a debugger.
    """
    observed = [rank for rank in ranks.ranks if rank.stopped_share is not None]
    stopped = [rank for rank in observed if (rank.stopped_share or 0.0) >= _OFTEN]
    if not observed:
        return Skip("the ranks did not run long enough")
    if not stopped:
        return Ok(f"{counted(len(observed), 'rank')} not stopped")
    rank = max(stopped, key=lambda rank: rank.stopped_share or 0.0)
    return Problem(
        f"{rank_name(rank)} on {rank.host} was stopped for {100 * (rank.stopped_share or 0.0):.0f}% of its time",
        fix=commands("ps -eo pid,stat,cmd | grep -i -e cpulimit -e gdb -e ' T'", "mgpu doctor"),
        evidence={"rank": rank.rank, "share": round(rank.stopped_share or 0.0, 3), "host": rank.host},
        subjects=tuple(f"rank {r.rank}" for r in stopped),
    )


@check(
    Severity.WARNING,
    source="measured torch 2.13 CPU 2026-11",
    because_of=("ranks_share_a_gpu", "rank_stopped_repeatedly"),
)
def rank_is_a_straggler(ranks: Ranks) -> Answer:
    """A rank takes at least three times as long as the others for the same work.

    Why: every step ends when the slowest rank has sent its gradients, so it slows all ranks. Usual causes: clocks
    limited by heat or power, other processes on the same GPU or cores, or a slower GPU model among faster ones.

    Fix: Check whether heat, power or other processes slow it down.
    """
    if not any(len(_figures(ranks.ranks, name)) > 1 for name in _OWN):
        return Skip("fewer than two ranks measured their own compute time")
    if (interrupted := _interrupted(ranks)) is not None:
        return interrupted
    judged = [found for name in _OWN for found in _with_median_of_others(_figures(ranks.ranks, name))]
    slow = [found for found in judged if found[1] >= _STRAGGLES * found[2] and _is_conclusive(found[0], judged)]
    if not slow:
        return Ok("all ranks have similar compute times")
    rank, value, usual = max(slow, key=lambda found: found[1] / found[2])
    return Problem(
        f"{rank_name(rank)} on {rank.host} is the straggler: its own compute takes {value / usual:.1f} times as long",
        f"{value * 1e3:.3g} ms instead of {usual * 1e3:.3g} ms (median of the others), on {hardware_of(rank)}, without "
        "communication. All ranks wait for it in every step.",
        (commands("nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE", "mgpu doctor"),)
        if rank.gpu_uuid
        else (Fix("Check what else runs on its cores.", ("top", "mgpu doctor")),),
        {
            "rank": rank.rank,
            "factor": round(value / usual, 2),
            "seconds": value,
            "others_seconds": usual,
            "gpu": rank.gpu_uuid,
            "host": rank.host,
        },
        tuple(dict.fromkeys(f"rank {found[0].rank}" for found in slow)),
    )


def _interrupted(ranks: Ranks) -> Problem | None:
    """Return the problem of a rank whose own work took much longer in total, or None.

    The fastest of many short runs hides a process that is stopped again and again, the sum does not. Time in the queue
    for a core is not counted, and ranks that all wait for cores are not compared: another load on the machine differs
    from rank to rank.
    """
    own = _figures(ranks.ranks, "own_work_seconds")
    slow = []
    for rank, value, usual in _with_median_of_others(own):
        others = [other for other, _ in own.values() if other is not rank]
        if median(_busy_share(other) for other in others) < _UNDISTURBED:
            value, usual = _not_queued(rank), median(_not_queued(other) for other in others)
        if value >= _STRAGGLES * usual and value - usual >= _LEAST_LOST_S:
            slow.append((rank, value, usual))
    if not slow:
        return None
    rank, value, usual = max(slow, key=lambda found: found[1] / found[2])
    return Problem(
        f"{rank_name(rank)} on {rank.host} is the straggler: its own work takes {value / usual:.1f} times as long",
        f"{value:.1f} s instead of {usual:.1f} s (median of the others) in total, without waiting for other ranks; it "
        f"was on a core for {100 * _busy_share(rank):.0f}% of that time. All ranks wait for it in every step.",
        Fix(
            "Check what stops it or uses its cores: SIGSTOP, a CPU limit of its container, other processes.",
            ("top", "cat /sys/fs/cgroup/cpu.stat", "mgpu doctor"),
        ),
        {
            "rank": rank.rank,
            "factor": round(value / usual, 2),
            "seconds": value,
            "others_seconds": usual,
            "busy_share": round(_busy_share(rank), 3),
            "gpu": rank.gpu_uuid,
            "host": rank.host,
        },
        tuple(f"rank {found[0].rank}" for found in slow),
    )


def _busy_share(rank: Rank) -> float:
    """Return the share of its own work that the rank spent on a core; 1.0 or more with several threads."""
    return rank.measured.get("own_work_cpu_seconds", 0.0) / rank.measured["own_work_seconds"]


def _not_queued(rank: Rank) -> float:
    """Return the elapsed seconds of a rank's own work without the time in the queue for a core."""
    elapsed, queued = rank.measured["own_work_seconds"], rank.measured.get("own_work_queued_seconds", 0.0)
    return max(elapsed - queued, rank.measured.get("own_work_cpu_seconds", 0.0))


def _is_conclusive(rank: Rank, judged: list[tuple[Rank, float, float]]) -> bool:
    """Whether the measurements of a rank are sufficient to call it slow.

    On a GPU one measurement is enough. CPU ranks share their cores with other processes, which may take all of a few
    milliseconds of a training step (observed: 4 times the other rank's time), so there all measurements must agree.
    """
    if rank.gpu_uuid is not None:
        return True
    return all(value >= _STRAGGLES * usual for other, value, usual in judged if other is rank)


def _figures(members: tuple[Rank, ...] | list[Rank], name: str) -> dict[int, tuple[Rank, float]]:
    return {rank.rank: (rank, rank.measured[name]) for rank in members if rank.measured.get(name, 0.0) > 0.0}


def _with_median_of_others(figures: Mapping[int, tuple[Rank, float]]) -> Iterator[tuple[Rank, float, float]]:
    """Yield each rank with its value and the median of the others."""
    for number, (rank, value) in figures.items():
        others = [other for other_number, (_, other) in figures.items() if other_number != number]
        if others:
            yield rank, value, median(others)


@check(Severity.WARNING, source=_GPU_FRYER, because_of=("rank_is_a_straggler", "ranks_share_a_gpu"))
def gpu_slower_than_siblings(ranks: Ranks) -> Answer:
    """A GPU is slower in matrix products or host copies than others of its model.

    Why: heat, a lower power limit or other processes reduce its clocks; a PCIe slot with fewer lanes or on the
    other CPU slows its copies. The slowest GPU slows all of them.

    Fix: Compare its clocks, power limit and PCIe link with another GPU's.
    """
    models: dict[str, list[Rank]] = {}
    for rank in ranks.ranks:
        if rank.gpu_name:
            models.setdefault(rank.gpu_name, []).append(rank)
    compared = 0
    slow: list[tuple[str, Rank, float, float]] = []
    for members in models.values():
        for name in dict.fromkeys(name for rank in members for name in rank.measured):
            share = _GEMM_SHARE if name.startswith("gemm_tflops_") else _COPY_SHARE if name in _COPIES else None
            figures = _figures(members, name)
            if share is None or len(figures) < 2:
                continue
            compared = max(compared, len(figures))
            slow += [(name, *found) for found in _with_median_of_others(figures) if found[1] < share * found[2]]
    if not compared:
        return Skip("no two GPUs of the same model were measured")
    if not slow:
        return Ok(
            f"{compared} GPUs of the same model within {100 - 100 * _GEMM_SHARE:.0f}% (copies "
            f"{100 - 100 * _COPY_SHARE:.0f}%) of each other"
        )
    name, rank, value, usual = min(slow, key=lambda found: found[2] / found[3])
    what, unit = _meaning(name)
    return Problem(
        f"{rank_name(rank)} on {rank.host}: {what} at {value:.3g} {unit}, the others at {usual:.3g}",
        f"{100 - 100 * value / usual:.0f}% below the median of the others of its model. It is {hardware_of(rank)}.",
        commands("nvidia-smi -q -d CLOCK,POWER,PERFORMANCE", "mgpu doctor -v"),
        {"gpu": rank.gpu_uuid, "host": rank.host}
        | {f"rank_{other.rank}_{key}": round(figure, 3) for key, other, figure, _ in slow},
        tuple(dict.fromkeys(f"rank {found[1].rank}" for found in slow)),
    )


def _meaning(name: str) -> tuple[str, str]:
    """Return what a measurement is, and its unit."""
    if name in _COPIES:
        return _COPIES[name], "GB/s"
    return f"matrix products in {name.rpartition('_')[2]}", "TFLOP/s"
