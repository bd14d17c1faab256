"""How large is a step, how many are there, at which learning rate, on 1, 2, 4, 8 … GPUs? Pure arithmetic.

The steps match accelerate's `prepare` and torch's `DistributedSampler`; tests compare them with the real ones.
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

# Up to this change of the effective batch, up or down, the rate is kept: less than the usual precision of a rate.
SMALL_CHANGE: Final = 2.0
# Beyond this change, neither rule is reliable (an estimate); Goyal's linear rule stops near a batch of 8,192.
LARGE_CHANGE: Final = 8.0
# Typical figures from guides for the GPUs of one machine, including communication; never measured here.
TYPICAL_SPEED_UP: Final = {2: (1.8, 1.9), 4: (3.5, 3.8), 8: (6.5, 7.0)}


@dataclass(frozen=True)
class Steps:
    """One epoch, samples counted over all ranks. `last_partial`: its last optimizer step has fewer samples."""

    batches_per_rank: int
    optimizer_steps: int
    samples_seen: int
    samples_repeated: int
    samples_dropped: int
    last_partial: bool


@dataclass(frozen=True)
class Kept:
    """A micro-batch and accumulation that keep an effective batch."""

    per_gpu: int
    accumulate: int


@dataclass(frozen=True)
class Rate:
    """A learning rate from one rule."""

    rule: Rule
    value: float
    usually_for: str
    suggested: bool
    note: str


@dataclass(frozen=True)
class Scheduler:
    """How often a prepared scheduler is stepped, and how many steps to create it with."""

    per_update: int
    build_with: int
    note: str


@dataclass(frozen=True)
class SpeedUp:
    """Speed-up over one GPU. None: not measured, and no typical figure is known."""

    low: float | None
    high: float | None
    source: str
    measured: bool

    @property
    def text(self) -> str:
        """The speed-up for a table: "1.8-1.9x"."""
        if self.low is None or self.high is None:
            return "unknown"
        return f"{self.low:g}x" if self.low == self.high else f"{self.low:g}-{self.high:g}x"


@dataclass(frozen=True)
class Row:
    """Training on a number of ranks. None: an answer is missing, or impossible on that number."""

    ranks: int
    per_gpu: int | None
    accumulate: int | None
    effective: int | None
    steps: Steps | None
    kept: Kept | None  # sizes that keep the reference batch
    rates: tuple[Rate, ...]
    scheduler: Scheduler | None
    speed_up: SpeedUp

    @property
    def rate(self) -> Rate | None:
        """The suggested learning rate."""
        return next((rate for rate in self.rates if rate.suggested), None)


def effective_batch(per_gpu: int, ranks: int, accumulate: int = 1) -> int:
    """Return the samples per optimizer step, over all ranks."""
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
    """Return one epoch over `samples`.

    `drop_last` is the DataLoader's. "torch" is a script whose DataLoader has its own DistributedSampler, which drops
    nothing by default; the last few micro-batches make a step, as with accelerate. A dataset without a length (a
    stream) has no number of steps.
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
    """Count as accelerate does: whole batches per rank; first samples fill an incomplete round, or it is dropped."""
    if drop_last:
        batches = samples // per_gpu // ranks
        return batches, batches * per_gpu * ranks, 0, False
    batches = -(-samples // (per_gpu * ranks))
    if ranks == 1:  # nothing is distributed: the last batch is just smaller
        return batches, samples, 0, samples % per_gpu > 0
    seen = batches * per_gpu * ranks
    return batches, seen, seen - samples, False


def _torch(samples: int, per_gpu: int, ranks: int, drop_last: bool) -> tuple[int, int, int, bool]:
    """Count as DistributedSampler does: the first samples are repeated for equal shares, then each rank batches."""
    share = -(-samples // ranks)
    left = share % per_gpu
    if drop_last and left:  # repeated samples are last on each rank, so they are dropped too
        return share // per_gpu, (share - left) * ranks, 0, False
    return -(-share // per_gpu), share * ranks, share * ranks - samples, left > 0


def accumulation_for(effective: int, per_gpu: int, ranks: int) -> int | None:
    """Return the accumulation for an effective batch with this micro-batch; None if it does not divide evenly."""
    _positive(effective=effective, per_gpu=per_gpu, ranks=ranks)
    return effective // (per_gpu * ranks) if effective % (per_gpu * ranks) == 0 else None


def sizes_to_keep(effective: int, per_gpu: int, ranks: int) -> Kept | None:
    """Return the largest micro-batch up to `per_gpu` that keeps the effective batch; None if there is none."""
    _positive(effective=effective, per_gpu=per_gpu, ranks=ranks)
    if effective % ranks:
        return None
    share = effective // ranks
    size = next(size for size in range(min(per_gpu, share), 0, -1) if share % size == 0)
    return Kept(size, share // size)


def rates(lr: float, tuned_at: int, effective: int, optimizer: str = "adamw") -> tuple[Rate, ...]:
    """Return the rate for another effective batch with each rule; exactly one is suggested."""
    if not (math.isfinite(lr) and lr > 0):
        raise ValueError(f"a learning rate of {lr}: must be above 0")
    _positive(tuned_at=tuned_at, effective=effective)
    change = effective / tuned_at
    if 1 / SMALL_CHANGE <= change <= SMALL_CHANGE:
        best: Rule = "keep"
    else:
        best = "linear" if optimizer == "sgd" else "sqrt"
    beyond = f"; unreliable for {change:g} times the batch" if change > LARGE_CHANGE else ""
    small = f"if the batch changes by at most a factor of {SMALL_CHANGE:g}"
    rows: tuple[tuple[Rule, float, str, str], ...] = (
        ("keep", lr, "fine-tuning with warm-up; safest start", small),
        ("sqrt", lr * math.sqrt(change), "Adam, AdamW", "Malladi et al. 2022, arXiv 2205.10287" + beyond),
        ("linear", lr * change, "SGD with momentum, with warm-up", "Goyal et al. 2017, arXiv 1706.02677" + beyond),
    )
    return tuple(Rate(rule, value, whom, rule == best, note) for rule, value, whom, note in rows)


def warm_up(rule: Rule, change: float) -> str:
    """Return advice on warm-up at `change` times the effective batch; "" if it did not grow."""
    if change <= 1:
        return ""
    if rule == "linear":
        return (
            "Raise the rate gradually from the old to the new value over about the first 5 epochs (Goyal et al. 2017)."
        )
    return "Warm up over the first 3-10% of the steps: larger batches make early steps less stable (a rule of thumb)."


def scheduler_steps(optimizer_steps: int, ranks: int) -> Scheduler:
    """Return the effect of accelerator.prepare(scheduler): `scheduler.step()` makes one step per rank per update."""
    _positive(ranks=ranks)
    if ranks == 1:
        return Scheduler(1, optimizer_steps, "One rank: the scheduler is stepped once at each update.")
    whole = optimizer_steps * ranks
    return Scheduler(
        ranks,
        whole,
        f"accelerator.prepare(scheduler) steps it {ranks} times per update: create it with {optimizer_steps:,} x "
        f"{ranks} = {whole:,} steps (and warm-up steps x {ranks}), or do not prepare it. Not needed with Trainer, "
        "split_batches=True or step_scheduler_with_optimizer=False.",
    )


def speed_up(ranks: int, measured: float | None = None) -> SpeedUp:
    """Return the speed-up over one GPU: measured if available, else typical from guides, else unknown."""
    _positive(ranks=ranks)
    if ranks == 1:
        return SpeedUp(1.0, 1.0, "by definition", measured is not None)
    if measured is not None:
        times = round(measured, 2)
        return SpeedUp(times, times, "measured by the smoke test with its own small model", True)
    if ranks not in TYPICAL_SPEED_UP:
        return SpeedUp(None, None, f"not measured here, and no typical figure for {ranks} GPUs", False)
    low, high = TYPICAL_SPEED_UP[ranks]
    return SpeedUp(low, high, "typical figures from guides, not measured here", False)


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
    """Return a row for each number of ranks.

    `wanted`: an effective batch that every row should reach (sets accumulation); `reference`: the effective batch that
    `kept` keeps; `tuned_at`: the one that `lr` was tuned for.
    """
    rows = []
    for count in ranks:
        times = accumulation_for(wanted, per_gpu, count) if per_gpu and wanted else accumulate
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
                kept=sizes_to_keep(reference, per_gpu, count) if reference and per_gpu else None,
                rates=rates(lr, tuned_at, whole, optimizer) if lr is not None and tuned_at and whole else (),
                scheduler=scheduler_steps(epoch.optimizer_steps, count) if epoch else None,
                speed_up=speed_up(count, (measured or {}).get(count)),
            )
        )
    return tuple(rows)


def _positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"{name.replace('_', ' ')} {number}: must be at least 1")
