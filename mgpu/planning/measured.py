"""What do the measured steps of a script mean: its speed, what costs it, and which batch fits? Pure arithmetic.

Assumptions of the batch that fits: what a GPU holds between two steps (weights, optimizer) does not depend on it, and
what exists only within a step (activations, gradients) grows with it in proportion. Gradients do not grow, so that the
batch is rather too small than too large.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

from mgpu.planning import memory
from mgpu.snapshot import Measured, MeasuredStep, Measurement, Rehearsal, RehearsedRank
from mgpu.text import counted

# Share of the memory left by RESERVE_BYTES that the batch may fill; the rest is for fragmentation and longer samples.
FILL: Final = 0.90
_DIGITS: Final = 6


@dataclass(frozen=True)
class Room:
    """The largest batch per GPU, by the static + per-sample split."""

    batch: int  # 0: not even one sample fits
    need_bytes: int  # with that batch
    room_bytes: int  # of the GPU


def measurement(rehearsal: Rehearsal, arguments: Sequence[str]) -> Measurement | None:
    """Return the figures of the run; None if a rank has no measured steps, or the script's hash is not known."""
    ranks = [(rank, rank.measured) for rank in rehearsal.ranks if rank.measured is not None and rank.measured.steps]
    if rehearsal.script_sha256 is None or not ranks or len(ranks) < rehearsal.expected:
        return None
    rows = _rows([found.steps for _, found in ranks])
    usual = _middle_half(rows)
    step = median(row.step_s for row in rows)
    return Measurement(
        script=rehearsal.script,
        script_sha256=rehearsal.script_sha256,
        arguments_sha256=arguments_hash(arguments),
        ranks=len(ranks),
        cpu=rehearsal.cpu,
        steps=len(rows),
        step_s=round(step, _DIGITS),
        step_mad_s=round(median(abs(row.step_s - step) for row in rows), _DIGITS),
        loader_s=_mean(row.loader_s for row in usual) or 0.0,
        compute_s=_mean(row.compute_s for row in usual) or 0.0,
        optimizer_s=_mean(row.optimizer_s for row in usual) or 0.0,
        exchange_s=_mean(row.exchange_s for row in usual),
        waiting_s=_mean(row.waiting_s for row in usual),
        samples_per_s=_rate(rehearsal, [found for _, found in ranks], step),
        batch=_batch([found.batch for _, found in ranks]),
        queued=max(found.queued for _, found in ranks),
        checkpoint_s=_checkpoint([rank for rank, _ in ranks]),
        static_bytes=_most(found.static_bytes for _, found in ranks),
        peak_bytes=_most(found.peak_bytes for _, found in ranks),
        reserved_bytes=_most(found.reserved_bytes for _, found in ranks),
        host_bytes=_most(rank.host_bytes for rank, _ in ranks),
    )


def arguments_hash(arguments: Sequence[str]) -> str:
    """Return a hash of the script's arguments, which may contain secrets."""
    return hashlib.sha256(json.dumps(list(arguments)).encode()).hexdigest()


@dataclass(frozen=True)
class _Row:
    """One step: the mean of all ranks."""

    step_s: float
    loader_s: float
    compute_s: float
    optimizer_s: float
    exchange_s: float | None  # of the rank that comes last, which does not wait: the shortest
    waiting_s: float | None  # what the exchange takes longer


def _rows(ranks: Sequence[Sequence[MeasuredStep]]) -> list[_Row]:
    """Return the steps that all ranks have measured."""
    found = []
    for steps in zip(*ranks, strict=False):
        exchanges = [one.exchange_s for one in steps]
        known = [one for one in exchanges if one is not None]
        least = min(known) if len(known) == len(exchanges) else None
        found.append(
            _Row(
                fmean(one.step_s for one in steps),
                fmean(one.loader_s for one in steps),
                fmean(one.compute_s for one in steps),
                fmean(one.optimizer_s for one in steps),
                least,
                None if least is None else fmean(known) - least,
            )
        )
    return found


def _middle_half(rows: Sequence[_Row]) -> list[_Row]:
    """Return the steps around the median one, so that their parts add up to it and outliers do not count."""
    ordered = sorted(rows, key=lambda row: row.step_s)
    cut = len(ordered) // 4
    return ordered[cut : len(ordered) - cut]


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the mean; None if a value is not known."""
    found = list(values)
    known = [one for one in found if one is not None]
    return round(max(0.0, fmean(known)), _DIGITS) if len(known) == len(found) else None


def _batch(sizes: Sequence[int | None]) -> int | None:
    """Return the samples of a batch per rank; None if a rank draws none itself: another one sends it a part of its."""
    return _most(sizes) if all(sizes) else None


def _rate(rehearsal: Rehearsal, ranks: Sequence[Measured], step_s: float) -> float | None:
    """Return the samples per second of all ranks; None if not known: no DataLoader, or ranks that share samples."""
    world = rehearsal.expected
    if any(1 < size < world for rank in rehearsal.ranks for size in rank.subgroups) or step_s <= 0:
        return None
    samples = sum(median(step.samples for step in found.steps) for found in ranks)
    return round(samples / step_s, 3) if samples else None


def _checkpoint(ranks: Sequence[RehearsedRank]) -> float | None:
    """Return the seconds of a checkpoint on the slowest rank; None if none was saved within the steps."""
    found = []
    for rank in ranks:
        own = [one.write_s for one in rank.checkpoints if one.how and one.ok and one.write_s is not None]
        watched = [step.saving_s for one in rank.optimizers for step in one.steps if step.saving_s]
        timed = [step.saving_s for step in rank.measured.steps if step.saving_s] if rank.measured else []
        found += [median(values) for values in (own or [*watched, *timed],) if values]
    return round(max(found), _DIGITS) if found else None


def _most(sizes: Iterable[int | None]) -> int | None:
    return max((size for size in sizes if size is not None), default=None)


def batch_that_fits(found: Measurement, room_bytes: int) -> Room | None:
    """Return the largest batch per GPU for a GPU with `room_bytes`; None if the measurement has no GPU memory."""
    within = found.activation_bytes
    if found.cpu or found.static_bytes is None or not within or not found.batch:
        return None
    usable = (room_bytes - memory.RESERVE_BYTES) * FILL - found.static_bytes
    batch = max(0, int(usable / (within / found.batch)))
    return Room(batch, need_bytes(found, batch) or 0, room_bytes)


def need_bytes(found: Measurement, batch: int) -> int | None:
    """Return the memory of one GPU at the peak of a step with another batch; None if it was not measured on GPUs."""
    within = found.activation_bytes
    if found.cpu or found.static_bytes is None or within is None or not found.batch:
        return None
    return round(found.static_bytes + within / found.batch * batch)


def efficiency(found: Measurement, alone: Measurement) -> float | None:
    """Return the samples per second of a rank, relative to a run on fewer ranks; 1.0: nothing is lost."""
    if not found.samples_per_s or not alone.samples_per_s:
        return None
    return (found.samples_per_s / found.ranks) / (alone.samples_per_s / alone.ranks)


def costs(found: Measurement, alone: Measurement) -> dict[str, float]:
    """Return the seconds by which each part of a step is longer than in a run on fewer ranks, the largest first."""
    parts = {
        "exchanging gradients": ((found.exchange_s or 0.0) - (alone.exchange_s or 0.0)),
        "waiting for slower ranks": ((found.waiting_s or 0.0) - (alone.waiting_s or 0.0)),
        "the loader": found.loader_s - alone.loader_s,
        "the optimizer": found.optimizer_s - alone.optimizer_s,
        "forward and backward": found.compute_s - alone.compute_s,
    }
    return dict(sorted(parts.items(), key=lambda item: -item[1]))


def seconds_text(value: float) -> str:
    """Return a short time as text: "2.9 ms", "1.25 s"."""
    return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.2g} ms" if value < 0.1 else f"{value * 1000:.3g} ms"


def rate_text(found: Measurement) -> str:
    """Return the samples per second and the ranks; "" if not known."""
    if found.samples_per_s is None:
        return ""
    number = f"{found.samples_per_s:,.0f}" if found.samples_per_s >= 100 else f"{found.samples_per_s:.3g}"
    return f"{number} samples/s on {counted(found.ranks, 'CPU rank' if found.cpu else 'GPU')}"
