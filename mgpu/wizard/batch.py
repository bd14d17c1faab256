"""How large is an optimizer step, how many steps has an epoch, and what does that mean for the learning rate?

accelerate stores none of this, except accumulation for DeepSpeed. The rest becomes comments and notes for the script.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from mgpu import quantities
from mgpu.planning import plan
from mgpu.wizard.answers import Answers, Origin
from mgpu.wizard.proposal_types import Option, Part, Setting, origin_of

_SIZES: Final = {
    "accumulation": "accum",
    "effective batch": "effective_batch",
    "samples": "dataset_size",
    "epochs": "epochs",
    "reference batch": "lr_ref_batch",
}
_RULES: Final = {"keep": "unchanged", "sqrt": "square root rule", "linear": "linear rule"}


@dataclass(frozen=True)
class Batch:
    """The sizes, as far as they are decided."""

    per_gpu: int | None
    accumulate: int
    decided: bool  # accumulation was decided
    effective: int | None
    steps: plan.Steps | None
    part: Part = field(default_factory=Part)


def batch(answers: Answers, ranks: int, unit: str) -> Batch:
    """Return effective batch, accumulation, steps per epoch and learning rate."""
    sizes = {f"batch per {unit}": "batch_per_gpu", **_SIZES}
    given = {words: answers[name] for words, name in sizes.items()}
    problems = [f"{words} {size}: must be at least 1" for words, size in given.items() if size is not None and size < 1]
    if problems:
        row = Setting("effective batch", "not possible", "-", problems[0], "batch_per_gpu")
        return Batch(None, 1, False, None, None, Part((row,), problems=tuple(problems)))
    per, accumulate, wrong = answers.batch_per_gpu, answers.accum or 1, []
    if answers.effective_batch is not None and per is not None:
        exact = plan.accumulation_for(answers.effective_batch, per, ranks)
        wrong = [] if exact else [_uneven(answers.effective_batch, per, ranks, unit)]
        accumulate = exact or accumulate
    effective = None if per is None else plan.effective_batch(per, ranks, accumulate)
    decided = answers.accum is not None or (answers.effective_batch is not None and per is not None)
    rows, notes = [_whole(answers, ranks, unit, accumulate, effective)], []
    if accumulate > 1:
        notes.append(
            f"accelerate has no key for accumulation outside deepspeed_config. Use "
            f"Accelerator(gradient_accumulation_steps={accumulate}) in your script."
        )
    steps = None
    if per is not None and answers.dataset_size is not None:
        steps = plan.steps(answers.dataset_size, per, ranks, accumulate, drop_last=bool(answers.drop_last))
        rows.append(_epoch(answers, steps))
    rate = _rate(answers, effective, steps, ranks)
    rows, problems, notes = [*rows, *rate.settings], [*wrong, *rate.problems], [*notes, *rate.notes]
    part = replace(rate, settings=tuple(rows), problems=tuple(problems), notes=tuple(notes))
    return Batch(per, accumulate, decided, effective, steps, part)


def _uneven(effective: int, per: int, ranks: int, unit: str) -> str:
    problem = f"effective batch {effective} is not divisible by {per} per {unit} x {ranks}"
    kept = plan.sizes_to_keep(effective, per, ranks)
    if kept is None:
        return f"{problem}, nor by any batch on {ranks} ranks"
    return f"{problem}; use {kept.per_gpu} per {unit} with accumulation {kept.accumulate}"


def _whole(answers: Answers, ranks: int, unit: str, accumulate: int, effective: int | None) -> Setting:
    if effective is None:
        wanted = f"{answers.effective_batch} wanted: " if answers.effective_batch is not None else ""
        return Setting("effective batch", f"{wanted}needs batch per {unit}", "-", "set in your script", "batch_per_gpu")
    times = f" x {accumulate}" if accumulate > 1 else ""
    text = f"{answers.batch_per_gpu} x {ranks}{times} = {effective}"
    origin = origin_of(answers, "batch_per_gpu")
    why = "samples per step" if accumulate == 1 else f"samples per optimizer step, {accumulate} batches accumulated"
    why += f"; {effective * answers.seq_len:,} tokens" if answers.seq_len else ""
    return Setting("effective batch", text, origin, why, "batch_per_gpu")


def _epoch(answers: Answers, steps: plan.Steps) -> Setting:
    samples = quantities.count_text(answers.dataset_size or 0)
    why = f"{samples} samples"
    if steps.samples_repeated:
        why += f", {steps.samples_repeated} repeated"
    if steps.samples_dropped:
        why += f", {steps.samples_dropped} left out"
    if steps.last_partial:
        why += ", last step is smaller"
    text = f"{steps.optimizer_steps:,}" + (f" x {answers.epochs} epochs" if answers.epochs else "")
    return Setting("steps per epoch", text, origin_of(answers, "dataset_size"), why, "dataset_size")


def _rate(answers: Answers, effective: int | None, steps: plan.Steps | None, ranks: int) -> Part:
    """Return the learning rate note: its row, the rules as options, and the rule in effect."""
    if answers.lr is None:
        return Part()
    label, origin, given = "learning rate note", origin_of(answers, "lr"), quantities.rate_text(answers.lr)
    if effective is None or answers.lr_ref_batch is None:
        lacks = "the batch it was tuned for" if effective is not None else "the effective batch"
        return Part((Setting(label, given, origin, f"{lacks} is unknown", "lr"),))
    optimizer = "adamw" if answers.optimizer == "auto" else answers.optimizer
    try:
        rates = plan.rates(answers.lr, answers.lr_ref_batch, effective, optimizer)
    except ValueError as error:
        return Part((Setting(label, str(answers.lr), origin, "", "lr"),), problems=(str(error),))
    texts = {rate.rule: quantities.rate_text(rate.value) for rate in rates}
    options = tuple(
        Option(r.rule, f"{_RULES[r.rule]}: {texts[r.rule]}", None, r.suggested, f"{r.usually_for} ({r.note})")
        for r in rates
    )
    wanted = next((rate for rate in rates if rate.rule == answers.lr_rule), None)
    if answers.lr_rule != "auto" and wanted is None:
        return Part((), {"lr_rule": options}, problems=(f"rule {answers.lr_rule}: choose keep, sqrt or linear",))
    rate = wanted or next(rate for rate in rates if rate.suggested)
    by: Origin = "rule" if wanted is None else origin_of(answers, "lr_rule")
    why = f"{_RULES[rate.rule]} from {given} at batch {answers.lr_ref_batch}"
    notes = [f"Set the learning rate in your script: {texts[rate.rule]} is a starting point."]
    if warm := plan.warm_up(rate.rule, effective / answers.lr_ref_batch):
        notes.append(warm)
    if steps is not None and ranks > 1:
        notes.append(plan.scheduler_steps(steps.optimizer_steps, ranks).note)
    row = Setting(label, texts[rate.rule], by, why, "lr")
    return Part((row,), {"lr_rule": options}, {"lr_rule": rate.rule}, notes=tuple(notes))
