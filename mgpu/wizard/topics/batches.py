"""How many samples are in an optimizer step, and how many in the dataset?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mgpu.wizard.decision import Decision
from mgpu.wizard.panel_lines import NARROW
from mgpu.wizard.value_readers import MOST, MOST_SAMPLES, count_of, whole_number, yes_no

if TYPE_CHECKING:
    from mgpu.wizard.answer_fields import Answers
    from mgpu.wizard.proposal_types import Proposal

_SAMPLES: Final = 1_000  # steps are shown for this many until the size of the dataset is known


def _panel(name: str, answers: Answers, proposal: Proposal, width: int) -> list[str]:
    """Return lines with the effective batch and the steps per epoch."""
    from mgpu.planning import plan

    ranks, unit, size, times = proposal.ranks, proposal.unit, proposal.batch_per_gpu, proposal.accumulate
    if size is None:
        many = f"{ranks} {unit}{'s' if ranks > 1 else ''}"
        return [f"Effective batch = this x {many} x accumulation, in samples per optimizer step."]
    whole = plan.effective_batch(size, ranks, times)
    samples = answers.dataset_size
    epoch = samples if samples is not None else _SAMPLES
    drop = bool(answers.drop_last)
    mine = plan.steps(epoch, size, ranks, times, drop_last=drop)
    alone = plan.steps(epoch, size, 1, drop_last=drop)
    dataset = f"dataset of {samples:,} samples" if samples is not None else f"every {_SAMPLES:,} samples"
    per = " per epoch" if samples is not None else ""
    facts = [
        (f"{ranks} {unit}{'s' if ranks > 1 else ''} x {size} x accumulate {times}", f"effective batch {whole:,}"),
        (dataset, f"{mine.optimizer_steps:,} optimizer step{'' if mine.optimizer_steps == 1 else 's'}{per}"),
    ]
    if ranks > 1:
        facts.append((f"a single {unit}", f"{alone.optimizer_steps:,} steps of {size}"))
    if answers.epochs and samples is not None:
        facts.append((f"{answers.epochs} epochs", f"{mine.optimizer_steps * answers.epochs:,} optimizer steps"))
    pad = max(len(left) for left, _ in facts) if width >= NARROW else 0
    lines = [f"{left:<{pad}}  =  {right}" if pad else f"{left} = {right}" for left, right in facts]
    if samples is not None and (mine.samples_repeated or mine.samples_dropped):
        what = "repeated" if mine.samples_repeated else "left out"
        count = mine.samples_repeated or mine.samples_dropped
        lines.append(f"{count:,} sample{'' if count == 1 else 's'} {what} so all {unit}s run the same number of steps")
    return [*lines, *(_accumulations(proposal, epoch, drop, width, known=samples is not None) if width else [])]


def _accumulations(proposal: Proposal, samples: int, drop: bool, width: int, *, known: bool) -> list[str]:
    """Return table rows for the same micro-batch with more accumulation."""
    from mgpu.planning import plan

    now, size = proposal.accumulate, proposal.batch_per_gpu or 1
    shown = sorted({1, 2, 4, 8, now} - ({8} if now < 8 else {1, 2}))
    per = "epoch" if known else f"{_SAMPLES:,}"
    if width < NARROW:
        head, form = ["", "accum.  effective  steps"], "{:>6}  {:>9,}  {:>5,}"
    else:
        head = ["", f"accumulate   effective batch   steps/{per}   note"]
        form = f"{{:>10}}   {{:>15,}}   {{:>{len('steps/' + per)},}}"
    rows = []
    for times in shown:
        epoch = plan.steps(samples, size, proposal.ranks, times, drop_last=drop)
        whole = plan.effective_batch(size, proposal.ranks, times)
        row = form.format(times, whole, epoch.optimizer_steps)
        note = "< now" if times == now else "last step is smaller" if epoch.last_partial and width >= NARROW else ""
        rows.append(f"{row}   {note}".rstrip())
    return [*head, *rows]


# fmt: off
DECISIONS: Final = (
    Decision("batch_per_gpu", "batch", "N", "Samples per GPU per step.", whole_number(1, MOST),
        key="per_gpu", walk="quick", skips=True, needed=True, in_config=True, together=("accum",), panel=_panel,
        text="Samples per {unit} per step (micro-batch)?",
        info="The batch_size of your DataLoader. Each {unit} processes this many samples per step, so one\n"
             "optimizer step sees ranks x micro-batch x accumulation samples: the effective batch.\n"
             "Use the largest that fits, or what one GPU used so far. accelerate does not store it: mgpu\n"
             "records it in a comment of the config and compares it with your script."),
    Decision("dataset_size", "batch", "N", "Samples in the dataset: 52002, 52k.", count_of,
        walk="quick", skips=True, in_config=True, panel=_panel,
        text="How many samples are in the dataset?",
        info="With it, mgpu computes the optimizer steps per epoch the way accelerate's sampler distributes batches.\n"
             "Type 52002, 52k or 1.2M. Enter = unknown or streaming: steps are then shown per 1,000 samples.\n"
             "Schedulers and warm-up depend on the number of steps, which changes with the number of GPUs.",
        hint="For example 52002, 52k or 1.2M. Skip it if unknown or streaming."),
    Decision("drop_last", "batch", "", "The DataLoader drops the last partial batch.", yes_no,
        walk="guided", panel=_panel, applies=lambda case: case.answers.dataset_size is not None,
        text="Does the DataLoader drop the last partial batch?",
        info="With drop_last=True, samples that do not fill a batch on every rank are left out of the epoch.\n"
             "Without it, accelerate repeats a few samples from the start, so all ranks run the same number of steps.\n"
             "Choose what your script does. The answer only changes the numbers shown here.",
        choices=(
            ("no", "no    samples are repeated instead (the DataLoader's default)"),
            ("yes", "yes   drop_last=True"),
        )),
    Decision("accum", "batch", "N", "Gradient accumulation steps.", whole_number(1, MOST),
        walk="quick", in_config=True, settles=("effective_batch",), panel=_panel,
        excludes=("effective_batch", "accumulation follows from the effective batch"),
        applies=lambda case: case.answers.batch_per_gpu is not None,
        text="Accumulate gradients over how many batches?",
        info="The optimizer steps once per this many batches, as if the batch were that much larger.\n"
             "The default is 1. Use more to match the effective batch of a run on more GPUs, or to reach one that\n"
             "does not fit in memory. Your script must do it: Accelerator(gradient_accumulation_steps=...)."),
    Decision("effective_batch", "batch", "N", "Samples per optimizer step; sets accumulation.",
        whole_number(1, MOST_SAMPLES),
        in_config=True, settles=("accum",)),
    Decision("epochs", "batch", "N", "Passes over the dataset.", whole_number(1, MOST),
        skips=True, panel=_panel,
        text="How many epochs?",
        info="Only used for the total number of optimizer steps, which schedulers need.\n"
             "Press Enter to skip."),
    Decision("seq_len", "model", "N", "Tokens per sample, to show token counts.", whole_number(1, 10_000_000),
        skips=True, panel=_panel,
        text="Tokens per sample?",
        info="Used to show the tokens per optimizer step. The memory for activations grows with batch x sequence\n"
             "length; mgpu does not estimate it. Press Enter to skip."),
)
# fmt: on
