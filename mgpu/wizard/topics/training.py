"""What is trained: how large a model, how much of it, with which optimizer?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mgpu.planning import memory
from mgpu.quantities import params_text
from mgpu.wizard.decision import Decision
from mgpu.wizard.panel_lines import OFFLOAD_NOTE, problems
from mgpu.wizard.value_readers import name_of, one_of, params_of, short_count

if TYPE_CHECKING:
    from mgpu.wizard.answer_fields import Answers
    from mgpu.wizard.proposal_types import Proposal

_KIND: Final = ("optimizer", "precision", "train")  # what memory depends on, besides size and strategy


def memory_panel(name: str, answers: Answers, proposal: Proposal, width: int) -> list[str]:
    """Return lines with the memory that the model needs on each GPU."""
    if answers.params is None:
        return [
            f"Unknown: the config then uses DDP, with a full copy of the model on each {proposal.unit}.",
            "Let mgpu count:  mgpu configure --params-from train.py",
        ]
    kind: dict[str, Any] = {name: proposal.chosen[name] for name in _KIND if name in proposal.chosen}
    try:
        whole = memory.need(answers.params, strategy="ddp", ranks=1, trainable=answers.trainable, **kind)
    except ValueError:  # more trained parameters than the model has: one of the proposal's problems
        return problems(name, proposal)
    lines = []
    if name not in ("strategy", "offload"):
        lines += [
            f"{params_text(answers.params)} parameters, one full copy: {_parts(whole)}, plus activations.",
            f"{whole.formula}.",
        ]
    if proposal.free_bytes is not None:
        lines.append(f"The smallest of these GPUs has {memory.gib(proposal.free_bytes)} available.")
    if proposal.need is not None:
        setting = proposal.setting("strategy")
        spread = f"{setting.text}: " if setting else ""
        per = proposal.need
        each = " per node" if proposal.nodes > 1 else ""
        host = f"{memory.gib(per.host_bytes / proposal.nodes)} of RAM{each}"
        ram = f", {host}" if per.host_bytes else ""
        held = f"{memory.gib(per.resident_bytes)} per {proposal.unit}{ram}"
        if not per.resident_bytes:  # everything is in RAM
            held = f"{host}; each {proposal.unit} holds only the layers it is computing"
        lines.append(f"{spread}{held}.")
        if name in ("strategy", "offload"):
            lines += [f"That is {_parts(per)}."] if per.resident_bytes else []
            lines += [f"Not counted: {', '.join(per.not_counted)}."]
            lines += [note for note in proposal.notes if note.startswith(OFFLOAD_NOTE)]
    return lines + problems(name, proposal)


def _parts(need: memory.Need) -> str:
    """Return the parts and their sum: "weights 15 GiB + gradients 15 GiB = 30 GiB"."""
    parts = [("weights", need.weights_bytes), ("gradients", need.gradients_bytes), ("optimizer", need.optimizer_bytes)]
    if need.buckets_bytes:
        parts.append(("DDP's gradient buckets", need.buckets_bytes))
    parts_text = " + ".join(f"{name} {memory.gib(size)}" for name, size in parts if size)
    return f"{parts_text} = {memory.gib(sum(_as_shown(size) for _, size in parts))}"


def _as_shown(size: float) -> float:
    """Return a size in bytes as rounded as `memory.gib` shows it, so that the parts add up to the sum shown."""
    number, unit = memory.gib(size).split()
    return float(number.replace(",", "")) * {"MiB": 1 << 20, "GiB": 1 << 30}[unit]


# fmt: off
DECISIONS: Final = (
    Decision("params", "model", "N", "Model parameters: 8.03B, 350M, 8.03e9.", params_of,
        show=short_count, walk="quick", skips=True, needed=True, together=("train",), settles=("model", "trainable"),
        panel=memory_panel, excludes=("model", "the number of parameters is read from the model"),
        text="How big is the model?",
        info="The number of parameters decides whether each GPU can hold the whole model (DDP) or it must be split.\n"
             "Type 7B, 350M or 8.03e9, a Hugging Face model ID, or a folder with its files.\n"
             "Not sure? Press Enter to skip: the config then uses DDP. Or have mgpu count them as your script starts:\n"
             "  mgpu configure --params-from train.py",
        hint="For example 7B, 350M or 8.03e9, or a Hugging Face model ID."),
    Decision("model", "model", "ID", "Read the size from a Hugging Face model: ID or folder.", name_of,
        key="name", settles=("params", "trainable")),
    Decision("train", "model", "HOW", "full, lora or qlora.", one_of(*memory.TRAIN),
        walk="quick", menu=True, panel=memory_panel, applies=lambda case: case.size_known,
        text="What will be trained?",
        info="Only trained parameters need gradients and optimizer states, which take most of the memory.\n"
             "LoRA trains small added matrices, often about 1% of the model, on top of frozen weights.\n"
             "QLoRA keeps the frozen weights in 4 bits: the least memory, somewhat slower steps."),
    Decision("trainable", "model", "N", "Trained parameters, if not all.", params_of,
        show=short_count, skips=True, panel=memory_panel,
        text="How many parameters are trained?",
        info="With LoRA, only the adapters; peft's print_trainable_parameters() prints the number.\n"
             "Press Enter to assume about 1% of the model."),
    Decision("optimizer", "model", "NAME", "adamw, adam8bit, sgd or adafactor.", one_of(*memory.OPTIMIZERS),
        walk="guided", menu=True, panel=memory_panel,
        text="Which optimizer?",
        info="AdamW keeps two fp32 values per trained parameter, 8 bytes: more than the weights.\n"
             "8-bit Adam (bitsandbytes) keeps them in 2 bytes, SGD with momentum one value, Adafactor almost nothing.\n"
             "Choose the one your script uses: mgpu does not change it, only estimates memory and learning rate."),
)
# fmt: on
