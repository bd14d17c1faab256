"""Which learning rate for the new effective batch?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mgpu.wizard.decision import Decision
from mgpu.wizard.panel_lines import NARROW
from mgpu.wizard.value_readers import MOST_SAMPLES, decimal, one_of, rate_of, whole_number

if TYPE_CHECKING:
    from mgpu.wizard.answer_fields import Answers
    from mgpu.wizard.proposal_types import Proposal

RULE_NAMES: Final = {"keep": "keep", "sqrt": "square root", "linear": "linear"}


def _panel(name: str, answers: Answers, proposal: Proposal, width: int) -> list[str]:
    """Return lines with the learning rates that common rules suggest for the new effective batch."""
    from mgpu.planning import plan

    if answers.lr is None:
        return ["accelerate does not store a learning rate: the result is a note for your script."]
    size = proposal.batch_per_gpu
    if size is None:
        return ["The rules need the effective batch: answer the question about the micro-batch first."]
    whole = plan.effective_batch(size, proposal.ranks, proposal.accumulate)
    if answers.lr_ref_batch is None:
        return [f"Your effective batch is now {whole:,}. The rules scale the rate from the batch it was tuned for."]
    try:
        rates = plan.rates(answers.lr, answers.lr_ref_batch, whole, proposal.chosen.get("optimizer", "adamw"))
    except ValueError as error:
        return [str(error)]
    change = whole / answers.lr_ref_batch
    lines = [f"Your effective batch is now {whole:,}, {change:g} times the reference. Common rules:"]
    taken = proposal.chosen.get("lr_rule") or next(rate.rule for rate in rates if rate.suggested)
    if width >= NARROW:
        lines += ["", "rule          rate      usually for"]
    for rate in rates:
        mark = (
            "< chosen" if rate.rule == taken and answers.lr_rule != "auto" else "< suggested" if rate.suggested else ""
        )
        name, value = RULE_NAMES[rate.rule], plan.rate_text(rate.value)
        if width >= NARROW:
            lines.append(f"{name:<12}  {value:<8}  {rate.usually_for}   {mark}".rstrip())
        elif width:
            lines.append(f"{name}: {value} {mark}".rstrip())
        else:
            lines.append(f"{name}: {value}, for {rate.usually_for}{', ' + mark[2:] if mark else ''}.")
    best = next(rate for rate in rates if rate.rule == taken)
    warm = plan.warm_up(best.rule, change)
    several = proposal.steps is not None and proposal.ranks > 1
    scheduler = [plan.scheduler_steps(proposal.steps or 0, proposal.ranks).note] if several else []
    note = f"accelerate does not store a rate: set it in your script (--learning_rate {plan.rate_text(best.value)})."
    return [*lines, *([""] if width else []), note, *([warm] if warm else []), *scheduler]


# fmt: off
DECISIONS: Final = (
    Decision("lr", "batch", "X", "Known-good learning rate: 2e-5.", rate_of,
        show=decimal, walk="quick", skips=True, together=("lr_ref_batch", "lr_rule"), panel=_panel,
        text="Known-good learning rate (optional)?",
        info="A rate that worked before, at some effective batch. A larger batch may need a larger rate.\n"
             "accelerate does not store a rate: mgpu shows what the common rules suggest and records it in a comment.\n"
             "Press Enter to skip.",
        hint="For example 3e-4: a rate that worked at a batch size you know."),
    Decision("lr_ref_batch", "batch", "N", "Effective batch the rate was tuned for.", whole_number(1, MOST_SAMPLES),
        walk="quick", skips=True, panel=_panel, applies=lambda case: case.answers.lr is not None,
        text="Effective batch it was tuned for?",
        info="Samples per optimizer step of the run in which the rate worked: batch x GPUs x accumulation.\n"
             "For a script on one GPU, that is its batch_size (times its accumulation steps).\n"
             "The rules scale by the ratio of the new effective batch to this one.",
        hint="Of the run in which the rate worked: batch x GPUs x accumulation."),
    Decision("lr_rule", "batch", "RULE", "keep, sqrt or linear.", one_of("keep", "sqrt", "linear"),
        walk="guided", menu=True, panel=_panel, applies=lambda case: case.answers.lr is not None,
        text="How should the learning rate scale?",
        info="keep: the same rate, the safest start for fine-tuning. Square root: usual for Adam and AdamW.\n"
             "Linear: usual for SGD with momentum, with warm-up. Each is only a starting point: compare the loss\n"
             "over the first few hundred steps. mgpu records the rate as a note for your script."),
)
# fmt: on
