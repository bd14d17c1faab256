"""What stands above, below and after the questions? Lines made of a proposal; pure.

A width of 0 asks for sentences without columns, for those who listen to the screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mgpu.planning import memory, plan
from mgpu.report.screen import Line, Screen, unstyled, wrapped
from mgpu.wizard.answers import Answers
from mgpu.wizard.proposal_types import Proposal, Setting

if TYPE_CHECKING:
    from mgpu.wizard.flow import State

_NARROW = 60  # below this there are no columns
_BATCH = ("batch_per_gpu", "dataset_size", "accum", "drop_last", "epochs", "seq_len")
_RATE = ("lr", "lr_ref_batch", "lr_rule")
_MEMORY = ("params", "train", "optimizer", "strategy", "offload", "trainable")
_SAMPLES = 1_000  # what steps are told for while the size of the dataset is not known
_RULE_NAMES = {"keep": "keep", "sqrt": "square root", "linear": "linear"}


# ---- screen A


def found(
    proposal: Proposal, screen: Screen, *, path: str, exists: bool, present: Proposal | None, stops: Sequence[str],
    looked: str, granted: str = "", columns: bool = True,
) -> list[Line]:  # fmt: skip
    """What this machine is, what stands in the way of a launch, and what would be written."""
    lines = unstyled(wrapped(f"{looked}: {proposal.machine}", screen.width))
    if granted:
        lines += unstyled(wrapped(granted, screen.width))
    if stops:
        number = "1 problem" if len(stops) == 1 else f"{len(stops)} problems"
        told = f"{number} will stop a launch ({', '.join(stops)}); you can configure anyway. mgpu doctor says more."
        lines += [[(line, "warn")] for line in wrapped(told, screen.width)]
    lines.append([])
    if present is not None:
        return [*lines, *_compared(proposal, present, screen, path, columns)]
    first, second = _widths([(s.label, s.text) for s in proposal.settings], screen)
    rows = [(s.label, s.text, _why(s, screen.width - first - second - 2)) for s in proposal.settings]
    rows.append(("file", path if exists else f"{path} (new)", "is replaced; a backup is kept" if exists else "rule"))
    head = ("Proposed config", "value", "from")
    return [*lines, *_columns(head, rows, screen, columns), *_failing(proposal, screen)]


def _compared(proposal: Proposal, present: Proposal, screen: Screen, path: str, columns: bool) -> list[Line]:
    """The file that is there beside what would be proposed for this machine."""
    there = {s.label: s.text for s in present.settings if s.origin == "file" or s.label == "machines"}
    rows = [(s.label, there.get(s.label, "-"), s.text) for s in proposal.settings]
    rows.append(("file", path, "the same, a backup is kept"))
    lines = _columns(("Config", "now", "proposed"), rows, screen, columns)
    for text in present.problems:
        lines += [[(line, "warn")] for line in wrapped(f"{path} does not fit here: {text}", screen.width, "  ", "    ")]
    return lines


def _columns(
    head: tuple[str, str, str], rows: Sequence[tuple[str, str, str]], screen: Screen, columns: bool
) -> list[Line]:
    if screen.width < _NARROW or not columns:
        lines: list[Line] = [[(head[0], "bold")]]
        for label, one, other in rows:
            text = f"{label}: {one}" if head[1] == "value" else f"{label}: {head[1]} {one}; {head[2]} {other}"
            if head[1] == "value" and not columns and not other.startswith("-"):
                text += f", from {other}"
            lines += unstyled(wrapped(text, screen.width, "  ", "    "))
        return lines
    first, second = _widths([(label, one) for label, one, _ in rows], screen)
    lines = [[(f"{head[0]:<{first + 2}}{head[1]:<{second}}{head[2]}", "bold")]]
    for label, one, other in rows:
        lines += _row(f"  {label:<{first}}", one, second, other, screen.width)
    return lines


def _widths(rows: Sequence[tuple[str, str]], screen: Screen) -> tuple[int, int]:
    """How wide the label and the value are; long values wrap, so that the third column has room."""
    first = max(len(label) for label, _ in rows) + 2
    return first, min(max(len(one) for _, one in rows) + 2, max(20, (screen.width - first - 2) // 2))


def _why(setting: Setting, room: int) -> str:
    """Where a value comes from, and the reason where it fits on the line; the review has it whole."""
    for reason in (setting.reason, setting.reason.partition(";")[0]):
        told = f"{setting.origin} ({reason})" if reason else setting.origin
        if len(told) <= room or room < 20:
            return told
    return setting.origin


def _row(label: str, one: str, width: int, other: str, whole: int) -> list[Line]:
    """Three columns, the second and the third each wrapped under itself."""
    left = wrapped(one, width - 2) or [""]
    right = wrapped(other, max(10, whole - len(label) - width)) or [""]
    lines = []
    for number in range(max(len(left), len(right))):
        cells = [label if not number else " " * len(label), left[number] if number < len(left) else ""]
        third = right[number] if number < len(right) else ""
        lines.append(f"{cells[0]}{cells[1]:<{width}}{third}".rstrip())
    return unstyled(lines)


def _failing(proposal: Proposal, screen: Screen) -> list[Line]:
    """What fails, but for an address that is still to be asked: its row says so."""
    told = [text for text in proposal.problems if "--address" not in text]
    return [[(line, "fail")] for text in told for line in wrapped(f"FAIL {text}", screen.width, "  ", "    ")]


def left_off(draft: State) -> str:
    """How far a draft came."""
    number = len(draft.asked)
    return f"{number} answer{'' if number == 1 else 's'} given"


# ---- the panels below a question


def panel(name: str, answers: Answers, proposal: Proposal, width: int) -> list[str]:
    """What follows from the answers so far, for the question `name`."""
    if name in _BATCH:
        return _batch(proposal, answers, width)
    if name in _RATE:
        return _rate(proposal, answers, width)
    if name in _MEMORY:
        return _memory(name, proposal, answers)
    if name == "gpus":
        return _gpus(proposal)
    return _reasons(name, proposal)


def _gpus(proposal: Proposal) -> list[str]:
    number = len(proposal.gpus)
    lines = [f"{number} marked: {number} process{'' if number == 1 else 'es'}, one for each GPU."]
    if number & (number - 1):
        lines.append(
            f"Effective batches will be multiples of {number}; powers of two are common, so "
            f"{1 << number.bit_length() - 1} or {1 << number.bit_length()} GPUs are easier to compare."
        )
    return lines + [text for text in proposal.problems if "GPU" in text]


def _reasons(name: str, proposal: Proposal) -> list[str]:
    """The rows of the review that this question decides, and why."""
    return [_told(setting) for setting in proposal.settings if _asks(setting, name)] + _problems(name, proposal)


def _asks(setting: Setting, name: str) -> bool:
    group = {"workers": "threads", "address": "nodes"}.get(name, name)
    return setting.question in (name, group)


def _told(setting: Setting) -> str:
    return f"{setting.label}: {setting.text}" + (f" ({setting.reason})" if setting.reason else "")


def _memory(name: str, proposal: Proposal, answers: Answers) -> list[str]:
    if answers.params is None:
        return [
            f"Not known: the config is then for DDP, a full copy of the model on each {proposal.unit}.",
            "To let mgpu count:  mgpu configure --params-from train.py",
        ]
    chosen = proposal.chosen
    whole = memory.need(
        answers.params, strategy="ddp", ranks=1, optimizer=chosen.get("optimizer", "adamw"),
        precision=chosen.get("precision", "bf16"), train=chosen.get("train", "full"), trainable=answers.trainable,
    )  # fmt: skip
    lines = []
    if name not in ("strategy", "offload"):
        lines += [
            f"{plan.params_text(answers.params)} parameters, one whole copy: {_parts(whole)}, plus activations.",
            f"{whole.formula}.",
        ]
    if proposal.free_bytes is not None:
        lines.append(f"The smallest of these GPUs has {memory.gib(proposal.free_bytes)} free.")
    if proposal.need is not None:
        setting = proposal.setting("strategy")
        spread = f"{setting.text}: " if setting else ""
        per = proposal.need
        each = " per machine" if proposal.nodes > 1 else ""
        host = f"{memory.gib(per.host_bytes / proposal.nodes)} of RAM{each}"
        ram = f", {host}" if per.host_bytes else ""
        held = f"{memory.gib(per.resident_bytes)} per {proposal.unit}{ram}"
        if not per.resident_bytes:  # all of it is in RAM
            held = f"{host}; a {proposal.unit} holds only the layers it works on"
        lines.append(f"{spread}{held}.")
        if name in ("strategy", "offload"):
            lines += [f"That is {_parts(per)}."] if per.resident_bytes else []
            lines += [f"Not counted: {', '.join(per.not_counted)}."]
    return lines + _problems(name, proposal)


def _problems(name: str, proposal: Proposal) -> list[str]:
    """What makes the answers impossible; an address is asked for in its turn, that it is missing is no news."""
    return [f"Not possible: {text}" for text in proposal.problems if name == "nodes" or "--address" not in text]


def _parts(need: memory.Need) -> str:
    """The sum, and what it is made of."""
    parts = [("weights", need.weights_bytes), ("gradients", need.gradients_bytes), ("optimizer", need.optimizer_bytes)]
    if need.buckets_bytes:
        parts.append(("DDP's gradient buckets", need.buckets_bytes))
    told = " + ".join(f"{name} {memory.gib(size)}" for name, size in parts if size)
    return f"{told} = {memory.gib(need.resident_bytes)}"


def _batch(proposal: Proposal, answers: Answers, width: int) -> list[str]:
    ranks, unit, size, times = proposal.ranks, proposal.unit, proposal.batch_per_gpu, proposal.accumulate
    if size is None:
        many = f"{ranks} {unit}{'s' if ranks > 1 else ''}"
        return [f"Effective batch = this x {many} x accumulation: the samples behind one optimizer step."]
    whole = plan.effective_batch(size, ranks, times)
    samples = answers.dataset_size
    epoch = samples if samples is not None else _SAMPLES
    drop = bool(answers.drop_last)
    mine = plan.steps(epoch, size, ranks, times, drop_last=drop)
    alone = plan.steps(epoch, size, 1, drop_last=drop)
    dataset = f"dataset {samples:,} samples" if samples is not None else f"each {_SAMPLES:,} samples"
    per = " per epoch" if samples is not None else ""
    facts = [
        (f"{ranks} {unit}{'s' if ranks > 1 else ''} x {size} x accumulate {times}", f"effective batch {whole:,}"),
        (dataset, f"{mine.optimizer_steps:,} optimizer step{'' if mine.optimizer_steps == 1 else 's'}{per}"),
    ]
    if ranks > 1:
        facts.append((f"one {unit} alone", f"{alone.optimizer_steps:,} steps of {size}"))
    if answers.epochs and samples is not None:
        facts.append((f"{answers.epochs} epochs", f"{mine.optimizer_steps * answers.epochs:,} optimizer steps"))
    pad = max(len(left) for left, _ in facts) if width >= _NARROW else 0
    lines = [f"{left:<{pad}}  =  {right}" if pad else f"{left} = {right}" for left, right in facts]
    if samples is not None and (mine.samples_repeated or mine.samples_dropped):
        what = "repeated" if mine.samples_repeated else "left out"
        count = mine.samples_repeated or mine.samples_dropped
        lines.append(f"{count:,} sample{'' if count == 1 else 's'} {what} so that all {unit}s take equally many steps")
    return [*lines, *(_accumulations(proposal, epoch, drop, width, known=samples is not None) if width else [])]


def _accumulations(proposal: Proposal, samples: int, drop: bool, width: int, *, known: bool) -> list[str]:
    """The same micro-batch with more accumulation."""
    now, size = proposal.accumulate, proposal.batch_per_gpu or 1
    shown = sorted({1, 2, 4, 8, now} - ({8} if now < 8 else {1, 2}))
    per = "epoch" if known else f"{_SAMPLES:,}"
    if width < _NARROW:
        head, form = ["", "accum.  effective  steps"], "{:>6}  {:>9,}  {:>5,}"
    else:
        head = ["", f"accumulate   effective batch   steps/{per}   note"]
        form = f"{{:>10}}   {{:>15,}}   {{:>{len('steps/' + per)},}}"
    rows = []
    for times in shown:
        epoch = plan.steps(samples, size, proposal.ranks, times, drop_last=drop)
        whole = plan.effective_batch(size, proposal.ranks, times)
        row = form.format(times, whole, epoch.optimizer_steps)
        note = "< now" if times == now else "last step is smaller" if epoch.last_partial and width >= _NARROW else ""
        rows.append(f"{row}   {note}".rstrip())
    return [*head, *rows]


def _rate(proposal: Proposal, answers: Answers, width: int) -> list[str]:
    if answers.lr is None:
        return ["accelerate stores no learning rate: what comes out here is a note for your script."]
    size = proposal.batch_per_gpu
    if size is None:
        return ["The rules need the effective batch, and with it the micro-batch: answer that first."]
    whole = plan.effective_batch(size, proposal.ranks, proposal.accumulate)
    if answers.lr_ref_batch is None:
        return [f"Your effective batch is now {whole:,}. The rules start from the batch the rate was tuned for."]
    try:
        rates = plan.rates(answers.lr, answers.lr_ref_batch, whole, proposal.chosen.get("optimizer", "adamw"))
    except ValueError as error:
        return [str(error)]
    change = whole / answers.lr_ref_batch
    lines = [f"Your effective batch is now {whole:,}, {change:g} times that. Common rules:"]
    taken = proposal.chosen.get("lr_rule") or next(rate.rule for rate in rates if rate.suggested)
    if width >= _NARROW:
        lines += ["", "rule          rate      usually for"]
    for rate in rates:
        mark = (
            "< chosen" if rate.rule == taken and answers.lr_rule != "auto" else "< suggested" if rate.suggested else ""
        )
        name, value = _RULE_NAMES[rate.rule], plan.rate_text(rate.value)
        if width >= _NARROW:
            lines.append(f"{name:<12}  {value:<8}  {rate.usually_for}   {mark}".rstrip())
        elif width:
            lines.append(f"{name}: {value} {mark}".rstrip())
        else:
            lines.append(f"{name}: {value}, for {rate.usually_for}{', ' + mark[2:] if mark else ''}.")
    best = next(rate for rate in rates if rate.rule == taken)
    warm = plan.warm_up(best.rule, change)
    note = f"accelerate stores no rate: it is a note for your script (--learning_rate {plan.rate_text(best.value)})."
    return [*lines, *([""] if width else []), note, *([warm] if warm else []), *_scheduler(proposal, answers)]


def _scheduler(proposal: Proposal, answers: Answers) -> list[str]:
    if answers.dataset_size is None or proposal.batch_per_gpu is None or proposal.ranks == 1:
        return []
    epoch = plan.steps(
        answers.dataset_size, proposal.batch_per_gpu, proposal.ranks, proposal.accumulate,
        drop_last=bool(answers.drop_last),
    )  # fmt: skip
    return [plan.scheduler_steps(epoch.optimizer_steps, proposal.ranks).note]


def beside_review(row: str, proposal: Proposal) -> list[str]:
    """Below the review: why the row under the pointer is as it is, and what the whole comes to."""
    if row in ("quit", "file"):
        return []
    if row != "write":
        return [_told(setting) for setting in proposal.settings if setting.question == row]
    asked = [setting.question for setting in proposal.settings]
    # What has no row of its own in the review: nothing to ask, or asked by another row.
    lines = [_told(s) for n, s in enumerate(proposal.settings) if s.question is None or s.question in asked[:n]]
    if number := len(proposal.notes):
        lines.append(f"{number} note{'' if number == 1 else 's'} for your script will be told with the file.")
    return [*lines, "accelerate's own loader is asked before anything is written."]
