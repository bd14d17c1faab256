"""What changes from 1 to 2, 4, 8 … GPUs? Everything in `mgpu configure --plan`, as data; pure.

Nothing is guessed: values that need a missing answer are left out and listed, and so are assumptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from mgpu.errors import USAGE, MgpuError
from mgpu.planning import memory, plan
from mgpu.planning.memory import Need
from mgpu.report import describe
from mgpu.snapshot import Snapshot
from mgpu.wizard import devices, measured_plan
from mgpu.wizard.answers import Answers
from mgpu.wizard.precision import precision as precision_of
from mgpu.wizard.topics.learning_rate import RULE_NAMES

if TYPE_CHECKING:
    from mgpu.launchers.measurements import Known

LEAST_PLANNED: Final = 8  # the plan covers at least this many GPUs, even if there are none


@dataclass(frozen=True)
class Held:
    """The memory of one strategy on each of a number of GPUs."""

    strategy: str
    need: Need
    verdict: str  # "ok", "tight" (little left for activations), "no", or "" if the GPU memory is unknown


@dataclass(frozen=True)
class Sheet:
    """All data of the plan."""

    machine: str
    gpus_here: int | None  # None: unknown
    memory_bytes: int | None  # usable memory of the smallest GPU, with no other process on it
    rows: tuple[plan.Row, ...]
    held: dict[int, tuple[Held, ...]]  # by number of GPUs
    reference: int | None  # the effective batch that `kept` keeps
    optimizer: str
    missing: tuple[str, ...]
    assumed: tuple[str, ...]
    notes: tuple[str, ...]


def sheet(
    answers: Answers, snapshot: Snapshot, measured: Mapping[int, float] | None = None, script: Known | None = None
) -> Sheet:
    """Return the plan for these answers on this machine; pure.

    `measured`: speed-up by number of GPUs, of the smoke test's model. `script`: what was measured of the user's script.
    """
    used, unknown = _machine(answers, snapshot)
    here = len(used.gpus) if used else None
    assumed: list[str] = []
    kind = _memory_arguments(answers, snapshot, used, assumed)
    counts = _counts(answers, here)
    rows = measured_plan.with_speed_ups(_rows(answers, counts, kind["optimizer"], measured), script)
    size = used.memory_bytes if used and not used.cpu else None
    held = _held(answers, counts, kind, size)
    return Sheet(
        machine=describe.machine(snapshot),
        gpus_here=here,
        memory_bytes=size,
        rows=rows,
        held=held,
        reference=_reference(answers),
        optimizer=kind["optimizer"],
        missing=_missing(answers),
        assumed=tuple(assumed),
        notes=(
            *unknown,
            *measured_plan.notes(script, answers, size),
            *_batch_notes(answers, rows),
            *_rate_notes(rows),
            *_memory_notes(answers, held, size, kind),
        ),
    )


def _machine(answers: Answers, snapshot: Snapshot) -> tuple[devices.Devices | None, tuple[str, ...]]:
    """Return the devices of the machine; None and the reason if they are unknown."""
    try:
        return devices.devices(snapshot, replace(answers, gpus=None)), ()
    except MgpuError as error:
        return None, (f"Planned without this machine: {str(error).splitlines()[0]}.",)


def _memory_arguments(
    answers: Answers, snapshot: Snapshot, used: devices.Devices | None, assumed: list[str]
) -> dict[str, Any]:
    """Return what memory depends on besides size and strategy, as arguments of `memory.need`.

    Values that were not decided are added to `assumed`.
    """
    about_memory = answers.params is not None
    optimizer, train, precision = answers.optimizer, answers.train, answers.precision
    if optimizer == "auto":
        optimizer = "adamw"
        if about_memory or answers.lr is not None:
            assumed.append("AdamW (--optimizer)")
    if train == "auto":
        train = "full"
        if about_memory:
            assumed.append("all weights trained (--train)")
    if precision == "auto" and (used is None or used.cpu):
        precision = "bf16"
        if about_memory:
            assumed.append("bf16 (--precision)")
    elif precision == "auto" and used is not None:
        precision = precision_of(snapshot, answers, used)[0]
    return {"optimizer": optimizer, "train": train, "precision": precision, "trainable": answers.trainable}


def _rows(
    answers: Answers, counts: Sequence[int], optimizer: str, measured: Mapping[int, float] | None
) -> tuple[plan.Row, ...]:
    return plan.table(
        counts,
        per_gpu=answers.batch_per_gpu,
        accumulate=answers.accum or 1,
        wanted=answers.effective_batch,
        samples=answers.dataset_size,
        drop_last=bool(answers.drop_last),
        reference=_reference(answers),
        lr=answers.lr,
        tuned_at=answers.lr_ref_batch,
        optimizer=optimizer,
        measured=measured,
    )


def _counts(answers: Answers, here: int | None) -> tuple[int, ...]:
    """Return 1, 2, 4, 8 … up to the available or requested number of GPUs, and that number itself."""
    asked = len(answers.gpus) if isinstance(answers.gpus, tuple) else answers.gpus
    each = asked or here or 1
    actual = {count for count in (each, each * (answers.nodes or 1), here or 1) if count}
    most = max(LEAST_PLANNED, *actual)
    powers = {2**power for power in range(most.bit_length()) if 2**power <= most}
    return tuple(sorted(powers | actual))


def _reference(answers: Answers) -> int | None:
    """Return the effective batch to keep; by default what one GPU does."""
    alone = answers.batch_per_gpu * (answers.accum or 1) if answers.batch_per_gpu else None
    return answers.effective_batch or answers.lr_ref_batch or alone


def _held(
    answers: Answers, counts: Sequence[int], kind: Mapping[str, Any], size: int | None
) -> dict[int, tuple[Held, ...]]:
    """Return the memory by number of GPUs; empty if the size of the model is not known. Raises MgpuError."""
    if not answers.params:
        return {}
    try:
        return {count: _memory_by_strategy(answers, count, kind, size) for count in counts}
    except ValueError as error:
        raise MgpuError(str(error), USAGE) from None


def _memory_by_strategy(answers: Answers, ranks: int, kind: Mapping[str, Any], size: int | None) -> tuple[Held, ...]:
    """Return the memory of every strategy on `ranks` GPUs. `kind`: the other arguments of `memory.need`."""
    assert answers.params is not None
    offload = answers.offload == "cpu"
    found = []
    for strategy in memory.STRATEGIES:
        off = offload and strategy in memory.SPLITTING
        need = memory.need(answers.params, strategy=strategy, ranks=ranks, offload=off, **kind)
        verdict = ""
        if size is not None:
            verdict = "no" if not memory.fits(need, size) else "ok" if memory.roomy(need, size) else "tight"
        found.append(Held(strategy, need, verdict))
    return tuple(found)


def _missing(answers: Answers) -> tuple[str, ...]:
    missing = []
    if answers.batch_per_gpu is None:
        missing.append("effective batch: needs --batch-per-gpu")
    if answers.dataset_size is None:
        missing.append("steps per epoch: needs --dataset-size")
    wanted = [flag for flag, value in (("--lr", answers.lr), ("--lr-ref-batch", answers.lr_ref_batch)) if value is None]
    if wanted:
        missing.append(f"learning rate: needs {' and '.join(wanted)}")
    if answers.params is None:
        missing.append("memory per GPU: needs --params")
    return tuple(missing)


def _batch_notes(answers: Answers, rows: Sequence[plan.Row]) -> tuple[str, ...]:
    notes = []
    cannot = [row.ranks for row in rows if row.per_gpu and row.accumulate is None]
    if cannot:
        notes.append(
            f"Effective batch {answers.effective_batch}: no accumulation reaches it with {answers.batch_per_gpu} per "
            f"GPU on {_gpus(cannot)}."
        )
    if kept := next((row for row in reversed(rows) if row.kept), None):
        whole = plan.effective_batch(kept.kept.per_gpu, kept.ranks, kept.kept.accumulate) if kept.kept else 0
        notes.append(f"To keep {whole}: batch per GPU x accumulate for an effective batch of {whole}.")
    if any(row.steps for row in rows):
        notes += _step_notes(answers, rows)
    speeds = [row.speed_up for row in rows if row.ranks > 1]
    notes += [
        f"Speed-up: {source}." for source in dict.fromkeys(speed.source for speed in speeds if speed.low is not None)
    ]
    if (answers.nodes or 1) > 1 and any(speed.low is not None and not speed.measured for speed in speeds):
        notes.append("These figures are for a single node. With several nodes, the speed-up depends on the network.")
    if unknown := [row.ranks for row in rows if row.speed_up.low is None]:
        notes.append(f"Speed-up on {_gpus(unknown)}: not measured, and no typical figure is known.")
    return tuple(notes)


def _rate_notes(rows: Sequence[plan.Row]) -> list[str]:
    """Return what each rule is for, and what else changes with the rate; none of it is in a config."""
    if not any(row.rates for row in rows):
        return []
    rates = next(row.rates for row in reversed(rows) if row.rates)
    whom = "; ".join(f"{RULE_NAMES[rate.rule]}: {rate.usually_for} ({rate.note})" for rate in rates)
    notes = [f"Learning rate, {whom}. A starting point for your script; the config does not store a rate."]
    if warm := next((plan.warm_up(row.rate.rule, 2) for row in reversed(rows) if row.rate), ""):
        notes.append(warm)
    if any(row.scheduler and row.ranks > 1 for row in rows):
        notes.append(
            "Scheduler steps: accelerator.prepare(scheduler) steps it once per GPU at each update. Create it with the "
            "number of steps in the table, or do not prepare it. No change is needed with Trainer."
        )
    return notes


def _step_notes(answers: Answers, rows: Sequence[plan.Row]) -> list[str]:
    """Return what happens to samples that do not divide evenly, and the steps with another sampler."""
    notes = []
    dropped = bool(answers.drop_last)
    uneven = [(row.steps.samples_dropped or row.steps.samples_repeated, row.ranks) for row in rows if row.steps]
    counts = ", ".join(f"{count:,} on {ranks}" for count, ranks in uneven if count)
    if counts:
        fate = "dropped" if dropped else "repeated to fill the last round"
        notes.append(
            f"Samples {fate}, per epoch: {counts} GPUs (accelerator.prepare, drop_last {_format_switch(dropped)})."
        )
    partial = [row.ranks for row in rows if row.steps and row.steps.last_partial]
    if partial:
        notes.append(f"The last step of an epoch has fewer samples on {_gpus(partial)}.")
    others = []
    for row in rows:
        if row.steps and row.per_gpu and row.accumulate and answers.dataset_size:
            own = plan.steps(
                answers.dataset_size, row.per_gpu, row.ranks, row.accumulate, drop_last=dropped, sampler="torch"
            )
            if own.optimizer_steps != row.steps.optimizer_steps:
                others.append(f"{own.optimizer_steps:,} on {row.ranks}")
    if others:
        notes.append(f"A script with its own DistributedSampler takes other steps: {', '.join(others)} GPUs.")
    return notes


def _memory_notes(
    answers: Answers, held: dict[int, tuple[Held, ...]], size: int | None, kind: Mapping[str, Any]
) -> tuple[str, ...]:
    if not held or answers.params is None:
        return ()
    some = [one.need for row in held.values() for one in row]
    notes = [f"{', '.join(name)}: {formula}." for formula, name in _by_formula(held[min(held)]).items()]
    left_out = list(dict.fromkeys(part for need in some for part in need.not_counted))
    notes.append(f"Not counted: {', '.join(left_out)}. DDP on several GPUs includes its gradient buckets.")
    if size is not None:
        notes.append(
            f"ok, tight, no: of {memory.gib(size)} per GPU, {memory.gib(memory.RESERVE_BYTES)} are reserved for CUDA "
            f"and NCCL; tight leaves less than {1 - memory.STATE_SHARE:.0%} for activations."
        )
        notes += _how_many(answers, held, size, kind)
    else:
        notes.append("Whether it fits is unknown, as is the GPU memory. Set a GPU model with --target 4xA100-80GB.")
    if answers.offload == "cpu":
        most = max(held)
        sizes = ", ".join(
            f"{memory.STRATEGY_NAMES[one.strategy]} {memory.gib(one.need.host_bytes)}"
            for one in held[most]
            if one.need.host_bytes
        )
        notes.append(f"CPU offload needs host memory, for all ranks together: {sizes}.")
    return tuple(notes)


def _by_formula(held: Iterable[Held]) -> dict[str, list[str]]:
    """Return the strategies by memory formula."""
    found: dict[str, list[str]] = {}
    for one in held:
        found.setdefault(one.need.formula, []).append(memory.STRATEGY_NAMES[one.strategy])
    return found


def _how_many(answers: Answers, held: dict[int, tuple[Held, ...]], size: int, kind: Mapping[str, Any]) -> list[str]:
    """Return how many such GPUs a strategy needs, for strategies that do not fit anywhere in the table."""
    notes = []
    for place, strategy in enumerate(memory.STRATEGIES):
        if strategy == "ddp" or any(row[place].verdict != "no" for row in held.values()):
            continue
        assert answers.params is not None
        offload = answers.offload == "cpu"
        count = memory.gpus_needed(answers.params, size, strategy=strategy, offload=offload, **kind)
        name = memory.STRATEGY_NAMES[strategy]
        notes.append(
            f"{name} would need {count} such GPUs." if count else f"{name}: does not fit on any number of them."
        )
    return notes


def _format_list(numbers: Sequence[int]) -> str:
    *most, last = (str(number) for number in numbers)
    return f"{', '.join(most)} and {last}" if most else last


def _gpus(numbers: Sequence[int]) -> str:
    return f"{_format_list(numbers)} GPU{'' if list(numbers) == [1] else 's'}"


def _format_switch(value: bool) -> str:
    return "on" if value else "off"
