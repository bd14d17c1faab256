"""How large is a step, how many are there, at which learning rate, on 1, 2, 4, 8 … GPUs? Pure arithmetic.

The steps are those of accelerate's `prepare` and of torch's `DistributedSampler`; tests compare them with the real
ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from mgpu.quantities import count_text as count_text
from mgpu.quantities import params_text as params_text
from mgpu.quantities import parse_count as parse_count
from mgpu.quantities import parse_params as parse_params
from mgpu.quantities import parse_rate as parse_rate
from mgpu.quantities import rate_text as rate_text

Rule = Literal["keep", "sqrt", "linear"]

# Up to this change of the effective batch, either way, a rate is kept: less than what a rate is usually tuned to.
SMALL_CHANGE: Final = 2.0
# Beyond this change neither rule is trusted: a judgement; Goyal's linear rule itself ends near a batch of 8,192.
LARGE_CHANGE: Final = 8.0
# What guides print for the GPUs of one machine, losses to communication included: typical, never measured here.
TYPICAL_SPEED_UP: Final = {2: (1.8, 1.9), 4: (3.5, 3.8), 8: (6.5, 7.0)}


@dataclass(frozen=True)
class Steps:
    """One epoch, samples counted over all ranks. `last_partial`: its last optimizer step sees fewer than the others."""

    batches_per_rank: int
    optimizer_steps: int
    samples_seen: int
    samples_repeated: int
    samples_dropped: int
    last_partial: bool


@dataclass(frozen=True)
class Kept:
    """A micro-batch and accumulation that give a wanted effective batch."""

    per_gpu: int
    accumulate: int


@dataclass(frozen=True)
class Rate:
    """A learning rate by one rule."""

    rule: Rule
    value: float
    usually_for: str
    suggested: bool
    note: str


@dataclass(frozen=True)
class Scheduler:
    """How often a prepared scheduler is stepped, and how many steps it must be built with."""

    per_update: int
    build_with: int
    note: str


@dataclass(frozen=True)
class SpeedUp:
    """How many times faster than one GPU. None: nobody measured it, and no guide names a figure."""

    low: float | None
    high: float | None
    source: str
    measured: bool

    @property
    def text(self) -> str:
        """For a table: "1.8-1.9x"."""
        if self.low is None or self.high is None:
            return "unknown"
        return f"{self.low:g}x" if self.low == self.high else f"{self.low:g}-{self.high:g}x"


@dataclass(frozen=True)
class Row:
    """Training on so many ranks. None: an answer is missing, or it cannot be done on so many."""

    ranks: int
    per_gpu: int | None
    accumulate: int | None
    effective: int | None
    steps: Steps | None
    kept: Kept | None  # what keeps the reference batch
    rates: tuple[Rate, ...]
    scheduler: Scheduler | None
    speed_up: SpeedUp

    @property
    def rate(self) -> Rate | None:
        """The one that is suggested."""
        return next((rate for rate in self.rates if rate.suggested), None)


def effective_batch(per_gpu: int, ranks: int, accumulate: int = 1) -> int:
    """Samples behind one optimizer step, over all ranks."""
    return per_gpu * ranks * accumulate


def steps(
    samples: int,
    per_gpu: int,
    ranks: int,
    accumulate: int = 1,
    *,
    drop_last: bool = False,
    sampler: Literal["accelerate", "torch"] = "accelerate",
) -> Steps:
    """One epoch over `samples`.

    `drop_last` is the DataLoader's. "torch" is a script that gives its DataLoader a DistributedSampler of its own,
    which drops nothing unless told; the last few micro-batches are taken as a step, as accelerate does. A dataset
    without a length (a stream) has no steps that could be planned.
    """
    _positive(per_gpu=per_gpu, ranks=ranks, accumulate=accumulate)
    if samples < 0:
        raise ValueError(f"{samples:,} samples: a dataset has at least 0")
    count = _torch if sampler == "torch" and ranks > 1 else _accelerate
    batches, seen, repeated, short = count(samples, per_gpu, ranks, drop_last)
    return Steps(
        batches_per_rank=batches,
        optimizer_steps=-(-batches // accumulate),
        samples_seen=seen,
        samples_repeated=repeated,
        samples_dropped=samples - (seen - repeated),
        last_partial=short or batches % accumulate > 0,
    )


def _accelerate(samples: int, per_gpu: int, ranks: int, drop_last: bool) -> tuple[int, int, int, bool]:
    """accelerate deals whole batches to the ranks; short of a full round it repeats the first samples, or drops it."""
    if drop_last:
        batches = samples // per_gpu // ranks
        return batches, batches * per_gpu * ranks, 0, False
    batches = -(-samples // (per_gpu * ranks))
    if ranks == 1:  # nothing is shared out: the last batch is just smaller
        return batches, samples, 0, samples % per_gpu > 0
    seen = batches * per_gpu * ranks
    return batches, seen, seen - samples, False


def _torch(samples: int, per_gpu: int, ranks: int, drop_last: bool) -> tuple[int, int, int, bool]:
    """DistributedSampler repeats the first samples until every rank has as many; then each rank makes its batches."""
    share = -(-samples // ranks)
    left = share % per_gpu
    if drop_last and left:  # what was repeated stands last on each rank, so it is dropped as well
        return share // per_gpu, (share - left) * ranks, 0, False
    return -(-share // per_gpu), share * ranks, share * ranks - samples, left > 0


def accumulation_for(effective: int, per_gpu: int, ranks: int) -> int | None:
    """The accumulation that gives an effective batch with this micro-batch; None when it does not divide."""
    _positive(effective=effective, per_gpu=per_gpu, ranks=ranks)
    return effective // (per_gpu * ranks) if effective % (per_gpu * ranks) == 0 else None


def keeping(effective: int, per_gpu: int, ranks: int) -> Kept | None:
    """The same with the largest micro-batch up to `per_gpu`; None when the ranks do not divide the effective batch."""
    _positive(effective=effective, per_gpu=per_gpu, ranks=ranks)
    if effective % ranks:
        return None
    share = effective // ranks
    size = next(size for size in range(min(per_gpu, share), 0, -1) if share % size == 0)
    return Kept(size, share // size)


def rates(lr: float, tuned_at: int, effective: int, optimizer: str = "adamw") -> tuple[Rate, ...]:
    """The rate for another effective batch by each rule; exactly one is suggested, none is certain."""
    if not (math.isfinite(lr) and lr > 0):
        raise ValueError(f"a learning rate of {lr}: it is a number above 0")
    _positive(tuned_at=tuned_at, effective=effective)
    change = effective / tuned_at
    if 1 / SMALL_CHANGE <= change <= SMALL_CHANGE:
        best: Rule = "keep"
    else:
        best = "linear" if optimizer == "sgd" else "sqrt"
    beyond = f"; {change:g} times the batch is more than either rule is trusted for" if change > LARGE_CHANGE else ""
    small = f"while the batch changes at most {SMALL_CHANGE:g} times"
    rows: tuple[tuple[Rule, float, str, str], ...] = (
        ("keep", lr, "fine-tuning with warm-up; safest start", small),
        ("sqrt", lr * math.sqrt(change), "Adam, AdamW", "Malladi et al. 2022, arXiv 2205.10287" + beyond),
        ("linear", lr * change, "SGD with momentum, with warm-up", "Goyal et al. 2017, arXiv 1706.02677" + beyond),
    )
    return tuple(Rate(rule, value, whom, rule == best, note) for rule, value, whom, note in rows)


def warm_up(rule: Rule, change: float) -> str:
    """What to say about warming up at `change` times the effective batch; empty where nothing changed."""
    if change <= 1:
        return ""
    if rule == "linear":
        return (
            "Raise the rate slowly from the old one to the new one over the first 5 epochs or so (Goyal et al. 2017)."
        )
    return (
        "Warm up over the first 3-10 % of the steps: larger batches make the first ones the riskiest (a rule of thumb)."
    )


def scheduler_steps(optimizer_steps: int, ranks: int) -> Scheduler:
    """What accelerate.prepare(scheduler) makes of `scheduler.step()`: one step for every rank at each update."""
    _positive(ranks=ranks)
    if ranks == 1:
        return Scheduler(1, optimizer_steps, "One rank: the scheduler is stepped once at each update.")
    whole = optimizer_steps * ranks
    return Scheduler(
        ranks,
        whole,
        f"accelerate.prepare(scheduler) steps it {ranks} times at each update: build it with {optimizer_steps:,} x "
        f"{ranks} = {whole:,} steps (warm-up steps x {ranks} as well), or do not prepare it. Not so with "
        "split_batches=True or step_scheduler_with_optimizer=False. Trainer users: nothing to do.",
    )


def speed_up(ranks: int, measured: float | None = None) -> SpeedUp:
    """How much faster than one GPU: measured when that is known, else what guides say, else unknown."""
    _positive(ranks=ranks)
    if ranks == 1:
        return SpeedUp(1.0, 1.0, "by definition", measured is not None)
    if measured is not None:
        times = round(measured, 2)
        return SpeedUp(times, times, "measured by the smoke test on its own small model", True)
    if ranks not in TYPICAL_SPEED_UP:
        return SpeedUp(None, None, f"not measured here, and guides name no figure for {ranks} GPUs", False)
    low, high = TYPICAL_SPEED_UP[ranks]
    return SpeedUp(low, high, "typical, from guides, not measured here", False)


def table(
    ranks: Sequence[int],
    *,
    per_gpu: int | None = None,
    accumulate: int = 1,
    wanted: int | None = None,
    samples: int | None = None,
    drop_last: bool = False,
    reference: int | None = None,
    lr: float | None = None,
    tuned_at: int | None = None,
    optimizer: str = "adamw",
    measured: Mapping[int, float] | None = None,
) -> tuple[Row, ...]:
    """A row for each number of ranks.

    `wanted` is an effective batch that every row is to reach (accumulation follows); `reference` the one that `kept`
    keeps; `tuned_at` the one that `lr` was good at.
    """
    rows = []
    for count in ranks:
        times: int | None = accumulate
        if per_gpu and wanted:
            times = accumulation_for(wanted, per_gpu, count)
        whole = effective_batch(per_gpu, count, times) if per_gpu and times else None
        epoch = None
        if per_gpu and times and samples is not None:
            epoch = steps(samples, per_gpu, count, times, drop_last=drop_last)
        rows.append(
            Row(
                ranks=count,
                per_gpu=per_gpu,
                accumulate=times,
                effective=whole,
                steps=epoch,
                kept=keeping(reference, per_gpu, count) if reference and per_gpu else None,
                rates=rates(lr, tuned_at, whole, optimizer) if lr is not None and tuned_at and whole else (),
                scheduler=scheduler_steps(epoch.optimizer_steps, count) if epoch else None,
                speed_up=speed_up(count, (measured or {}).get(count)),
            )
        )
    return tuple(rows)


def _positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"{name.replace('_', ' ')} {number}: at least 1")
