"""Do all ranks compute at one pace?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.snapshot import Rank, Ranks

from ._rank_states import median, where_is, who

_GPU_FRYER = "https://github.com/huggingface/gpu-fryer"

# A rank's own compute, without waiting for others: alone on its device, and of a training step.
_OWN = ("compute_seconds", "step_compute_seconds")
_COPIES = {"h2d_gb_per_s": "host-to-device copy", "d2h_gb_per_s": "device-to-host copy"}
_STRAGGLES = 3.0  # measured on 2 to 8 CPU ranks of a busy machine: equal ranks are within 1.4 of each other
# Of the median of its siblings. gpu-fryer fails a GPU that is 10 % below the best; a spread of 5 % is usual
# (stas00/ml-engineering, compute/accelerator/benchmarks).
_GEMM_SHARE = 0.9
# Floors that operators set are 0.8 (PCIe 4) to 0.87 (PCIe 5) of what is usual: Azure/azurehpc-health-checks.
_COPY_SHARE = 0.8


@check(Severity.WARNING, source="measured torch 2.13 CPU 2026-11", because_of=("ranks_share_a_gpu",))
def rank_is_a_straggler(ranks: Ranks) -> Answer:
    """A rank takes three times as long as the others for the same computation of its own.

    Why: every step ends when the slowest rank has sent its gradients, so all train at its pace. Usual reasons: clocks
    held down by heat or power, somebody else on the same GPU or cores, a slower model among faster ones.

    Fix: See whether heat, power or another user holds it down.
    """
    if not any(len(_figures(ranks.ranks, name)) > 1 for name in _OWN):
        return Skip("fewer than two ranks timed their own compute")
    judged = [found for name in _OWN for found in _beside_others(_figures(ranks.ranks, name))]
    slow = [found for found in judged if found[1] >= _STRAGGLES * found[2] and _agreed(found[0], judged)]
    if not slow:
        return Ok("no rank takes much longer for its own compute than the others")
    rank, value, usual = max(slow, key=lambda found: found[1] / found[2])
    return Problem(
        f"{who(rank)} on {rank.host} is the straggler: {value / usual:.1f} times the others' time for its own compute",
        f"{value * 1e3:.3g} ms against {usual * 1e3:.3g} ms (median of the others), on {where_is(rank)}, without any "
        "communication. All ranks wait for it in every step.",
        (commands("nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE", "mgpu doctor"),)
        if rank.gpu_uuid
        else (Fix("See what else runs on its cores.", ("top", "mgpu doctor")),),
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


def _agreed(rank: Rank, judged: list[tuple[Rank, float, float]]) -> bool:
    """On a GPU one figure is enough. CPU ranks share their cores with whatever runs there: a few milliseconds of a
    training step may all fall into somebody else's turn (seen: 4 times the other rank's), so there all figures must
    say so."""
    if rank.gpu_uuid is not None:
        return True
    return all(value >= _STRAGGLES * usual for other, value, usual in judged if other is rank)


def _figures(members: tuple[Rank, ...] | list[Rank], name: str) -> dict[int, tuple[Rank, float]]:
    return {rank.rank: (rank, rank.measured[name]) for rank in members if rank.measured.get(name, 0.0) > 0.0}


def _beside_others(figures: Mapping[int, tuple[Rank, float]]) -> Iterator[tuple[Rank, float, float]]:
    """Each rank with its figure, and the median of the others'."""
    for number, (rank, value) in figures.items():
        others = [other for who, (_, other) in figures.items() if who != number]
        if others:
            yield rank, value, median(others)


@check(Severity.WARNING, source=_GPU_FRYER, because_of=("rank_is_a_straggler", "ranks_share_a_gpu"))
def gpu_slower_than_siblings(ranks: Ranks) -> Answer:
    """A GPU multiplies matrices, or copies to and from the host, slower than the others of its model.

    Why: heat, a lower power limit or another user hold its clocks down; a PCIe slot with fewer lanes or of the other
    CPU slows its copies. The slowest GPU sets the pace of all.

    Fix: Compare its clocks, power limit and PCIe link with a sibling's.
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
            slow += [(name, *found) for found in _beside_others(figures) if found[1] < share * found[2]]
    if not compared:
        return Skip("no two GPUs of one model were timed")
    if not slow:
        return Ok(
            f"{compared} GPUs of one model within {100 - 100 * _GEMM_SHARE:.0f} % (copies "
            f"{100 - 100 * _COPY_SHARE:.0f} %) of each other"
        )
    name, rank, value, usual = min(slow, key=lambda found: found[2] / found[3])
    what, unit = _meaning(name)
    return Problem(
        f"{who(rank)} on {rank.host}: {what} at {value:.3g} {unit}, its siblings at {usual:.3g}",
        f"{100 - 100 * value / usual:.0f} % below the median of the others of its model. It is {where_is(rank)}.",
        commands("nvidia-smi -q -d CLOCK,POWER,PERFORMANCE", "mgpu doctor -v"),
        {"gpu": rank.gpu_uuid, "host": rank.host}
        | {f"rank_{other.rank}_{key}": round(figure, 3) for key, other, figure, _ in slow},
        tuple(dict.fromkeys(f"rank {found[1].rank}" for found in slow)),
    )


def _meaning(name: str) -> tuple[str, str]:
    """What a figure is of, and its unit."""
    if name in _COPIES:
        return _COPIES[name], "GB/s"
    return f"matrix products in {name.rpartition('_')[2]}", "TFLOP/s"
