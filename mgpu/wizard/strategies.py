"""How is the model distributed across the GPUs? Which strategies are possible, and which is best? Which keys?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mgpu import quantities
from mgpu.planning import memory
from mgpu.planning.memory import Need
from mgpu.text import counted
from mgpu.wizard.answers import Answers, Origin
from mgpu.wizard.panel_lines import OFFLOAD_NOTE
from mgpu.wizard.precision import fp8_backend
from mgpu.wizard.proposal_types import Option, Part, Setting, origin_of, refusal
from mgpu.wizard.software import is_missing
from mgpu.wizard.strategy_constraints import Situation, impossible, missing_software

NAMES: Final = {
    "ddp": "DDP: full copy on each {unit}",
    "zero1": "ZeRO-1: split optimizer",
    "zero2": "ZeRO-2: split optimizer and gradients",
    "zero3": "ZeRO-3: split everything",
    "fsdp2": "FSDP2: split everything",
}


@dataclass(frozen=True)
class Strategy:
    """The strategy of a proposal."""

    name: str
    offload: bool
    need: Need | None
    part: Part


def choose(here: Situation, answers: Answers, accumulate: int | None) -> Strategy:
    """Return the strategy of the answers, or the best one. Its problems say why an answer is impossible."""
    wanted, offload = answers.strategy, answers.offload
    disabled = {name: impossible(here, name, offload) for name in NAMES}
    best = _best_strategy(here, disabled, offload)
    best_first = sorted(NAMES, key=lambda name: (name != best, disabled[name] is not None))
    options = tuple(
        Option(name, _text(name, here), disabled[name], name == best, _detail(here, name, offload))
        for name in best_first
    )
    name = best if wanted == "auto" else wanted
    known = name if name in NAMES else best
    problems = refusal("strategy", options, name) if wanted != "auto" or disabled[known] else ()
    if wanted == "auto" and disabled[known] and here.params is not None:
        problems = (_does_not_fit(here),)
    offloads = _offload_options(here, known)
    off = offload == "cpu" if offload != "auto" else next(o.name for o in offloads if o.recommended) == "cpu"
    if offload != "auto" and not problems:
        problems = refusal("offload", offloads, offload)
    need = _need(here, known, off)
    origin: Origin = "rule" if wanted == "auto" else origin_of(answers, "strategy")
    keys, why = values(here, known, off, accumulate), _strategy_reason(here, known, off, wanted)
    row = Setting("strategy", _row_text(known, off, here), origin, why, "strategy", keys)
    chosen = {"strategy": name, "offload": "cpu" if off else "none"}
    menus, notes = {"strategy": options, "offload": offloads}, _notes(here, known, need, off, answers)
    part = Part((row, *_memory_row(here, need, off)), menus, chosen, problems, notes)
    return Strategy(known, off, need, part)


def _need(here: Situation, name: str, offload: bool) -> Need | None:
    try:
        return here.need(name, offload=offload)
    except ValueError:  # an impossible combination, which is one of the problems
        return None


def _best_strategy(here: Situation, disabled: Mapping[str, str | None], offload: str) -> str:
    """Return DDP if it leaves room, else split everything, else split and offload, else whatever is possible."""
    ddp, room = here.need("ddp"), here.room_bytes
    if disabled["ddp"] is None and (ddp is None or room is None or memory.roomy(ddp, room)):
        return "ddp"
    in_order = ("fsdp2", "ddp") if here.ranks > 1 or disabled["ddp"] else ("ddp", "fsdp2")
    return next((name for name in (*in_order, "zero2", "zero3", "zero1") if disabled[name] is None), "ddp")


def _offload_options(here: Situation, name: str) -> tuple[Option, ...]:
    if name == "ddp":
        return (Option("none", "No offload", None, True), Option("cpu", "CPU offload", "DDP cannot offload"))
    alone = "one GPU has nothing to split, needs CPU offload" if here.ranks == 1 else None
    none = alone or here.too_large(name)
    cpu = here.too_large(name, offload=True)
    what = "optimizer" if name in ("zero1", "zero2") else "weights, gradients and optimizer"
    need = here.need(name, offload=True)
    ram = f"{memory.gib(need.host_bytes / here.nodes)} of RAM, " if need else ""
    return (
        Option("none", "No offload", none, none is None, ""),
        Option("cpu", f"Offload {what} to RAM", cpu, none is not None, f"{ram}much slower"),
    )


def _text(name: str, here: Situation) -> str:
    return "one process" if name == "ddp" and here.ranks == 1 else NAMES[name].format(unit=here.unit)


def _row_text(name: str, offload: bool, here: Situation) -> str:
    if name == "ddp":
        return "one process" if here.ranks == 1 else "DDP"
    return memory.STRATEGY_NAMES[name] + (", CPU offload" if offload else "")


def _detail(here: Situation, name: str, offload: str) -> str:
    """Return the memory a strategy needs: "needs 34 GiB, leaves 45 GiB"; with offload if it only fits so."""
    if here.params is None or impossible(here, name, offload):
        return ""
    off = name != "ddp" and (offload == "cpu" or here.ranks == 1 or here.too_large(name) is not None)
    need, room = here.need(name, offload=off), here.room_bytes
    if need is None:
        return ""
    left = f", leaves {memory.gib(room - need.resident_bytes)}" if room is not None else ""
    in_ram = f"{memory.gib(need.host_bytes / here.nodes)} of RAM (CPU offload)"
    if off and need.resident_bytes < 2**20:
        return f"needs {in_ram}"
    with_offload = f", {in_ram}" if off else ""
    return f"needs {memory.gib(need.resident_bytes)}{left}{with_offload}"


def _strategy_reason(here: Situation, name: str, offload: bool, wanted: str) -> str:
    chosen = "chosen" if wanted != "auto" else ""
    if name == "ddp" and here.ranks == 1:
        return chosen or ("CPU rank" if here.used.cpu else "a single GPU")
    ddp, room, unit = here.need("ddp"), here.room_bytes, here.unit
    if ddp is None or room is None:
        known = f"a full copy of the model on each {unit}"
        return chosen or (known if ddp is not None else f"{known}; model size unknown")
    size = f"a full copy needs {memory.gib(ddp.resident_bytes)} per {unit}"
    if name == "ddp":
        why = f"{size} of {memory.gib(room)}"
    else:
        why = f"{size}, have {memory.gib(room)}" + ("; too large even when split" if offload and not chosen else "")
    return f"{chosen}; {why}" if chosen else why


def _does_not_fit(here: Situation) -> str:
    """Return the problem if no strategy fits."""
    assert here.params is not None
    size, room = quantities.params_text(here.params), here.room_bytes
    if here.used.cpu or room is None:
        return f"{size} parameters do not fit in the memory here: {here.too_large('ddp')}"
    if missing := _missing_for_split(here):
        return (
            f"{size} parameters fit if the model is split, but the software for that is missing. {'. '.join(missing)}. "
            "Update or install one of them (mgpu does not write FSDP1)"
        )
    enough = memory.gpus_needed(here.params, room, strategy="fsdp2", **here.kind)
    kind = here.used.gpus[0].name or "such GPUs"
    if enough is not None and enough > here.ranks:
        return f"{size} parameters do not fit, split or offloaded: with FSDP2 they need {enough} x {kind}"
    return f"{size} parameters do not fit on {here.ranks} x {kind}, split or offloaded"


def _missing_for_split(here: Situation) -> list[str]:
    """Return what is not installed, or is too old, for each way to split the model with which it would fit."""
    found = []
    for name in ("fsdp2", "zero3"):
        fits = any(here.too_large(name, offload=way) is None for way in (False, True))
        if fits and not here.used.mig and (why := missing_software(here, name)):
            found.append(f"{memory.STRATEGY_NAMES[name]}: {why}")
    return found


def _memory_row(here: Situation, need: Need | None, offload: bool) -> list[Setting]:
    if need is None:
        return []
    room = here.room_bytes
    of = f" of {memory.gib(room)}" if room is not None else ""
    ram = f"{memory.gib(need.host_bytes / here.nodes)} of RAM per node; " if offload else ""
    label = f"memory per {here.unit}"
    text = f"{memory.gib(need.resident_bytes)}{of}, before activations"
    if need.resident_bytes < 2**20:
        text = "activations only" + (f", {memory.gib(room)} available" if room is not None else "")
    if room is None:
        return [Setting(label, text, "rule", f"{ram}GPU memory unknown", "params")]
    roomy = memory.roomy(need, room)
    fits = memory.fits(need, room)
    why = need.formula if roomy else "little room for activations" if fits else "does not fit"
    return [Setting(label, text, "rule", ram + why, "params")]


def _notes(here: Situation, name: str, need: Need | None, offload: bool, answers: Answers) -> tuple[str, ...]:
    notes = []
    if name == "fsdp2":
        notes.append(
            "FSDP2 splits the model at the layers listed in _no_split_modules, which Transformers models have. For "
            "other models, add fsdp_transformer_layer_cls_to_wrap, or the model stays in one piece."
        )
        if here.optimizer == "adafactor":
            notes.append(
                "torch.optim.Adafactor does not work with FSDP2 (measured, torch 2.13). Use the one in Transformers."
            )
        if here.train == "qlora":
            notes.append("With FSDP2, load the 4-bit base with bnb_4bit_quant_storage equal to the compute dtype.")
    if name.startswith("zero"):
        if here.snapshot.packages is None:
            notes.append("ZeRO needs deepspeed on the machine that trains: pip install deepspeed.")
        if offload:
            notes.append("DeepSpeed compiles its CPU optimizer at the first start, which needs a C++ compiler.")
        if answers.reshard is not False:
            notes.append(
                "ZeRO's optimizer shards only fit the same number of GPUs. To resume on another number, convert the "
                "checkpoint first (DeepSpeed's ds_to_universal.py)."
            )
    if offload and (others := _instead_of_offload(here)):
        notes.append(f"{OFFLOAD_NOTE} Without it the model fits with {others}.")
    if need is not None and offload and here.ram_bytes is None:
        each = memory.gib(need.host_bytes / here.nodes)
        notes.append(f"Offloading needs {each} of RAM per node. The available RAM is unknown.")
    if here.params is not None and not here.used.cpu:
        notes.append("Activations are not counted. They grow with batch size and sequence length.")
    notes += _wanted_packages(here)
    return tuple(notes)


def _instead_of_offload(here: Situation) -> str:
    """Return what else would make the model fit: more GPUs, or training fewer parameters; "" if that is unknown."""
    room = here.room_bytes
    if here.params is None or room is None or here.used.cpu or here.too_large("fsdp2") is None:
        return ""
    ways = []
    enough = memory.gpus_needed(here.params, room, strategy="fsdp2", **here.kind)
    if enough is not None and enough > here.ranks:
        ways.append(f"FSDP2 on {enough} GPUs of this size")
    less = ("lora", "LoRA"), ("qlora", "QLoRA")
    for train, label in less if here.train == "full" else less[1:] if here.train == "lora" else ():
        kind = {**here.kind, "train": train, "trainable": None}
        if memory.fits(memory.need(here.params, strategy="fsdp2", ranks=here.ranks, **kind), room):
            ways.append(f"{label} on {counted(here.ranks, 'GPU')}")
            break
    return " or ".join(ways)


def _wanted_packages(here: Situation) -> list[str]:
    wanted = {"lora": ("peft",), "qlora": ("peft", "bitsandbytes")}.get(here.train, ())
    wanted += ("bitsandbytes",) if here.optimizer == "adam8bit" else ()
    lacking = [package for package in dict.fromkeys(wanted) if is_missing(here.snapshot, package)]
    verb = "is" if len(lacking) == 1 else "are"
    return [f"{' and '.join(lacking)} {verb} not installed: pip install {' '.join(lacking)}."] if lacking else []


# ---- keys in the file


def values(here: Situation, name: str, offload: bool, accumulate: int | None) -> dict[str, Any]:
    """Return the dotted keys of a strategy, only those that have an effect."""
    if name == "ddp":
        return {"distributed_type": "NO" if here.ranks == 1 else "MULTI_GPU"}
    if name == "fsdp2":
        # accelerate rejects torchao's fp8 together with efficient loading ("is not supported", accelerator.py).
        found: dict[str, Any] = {
            "distributed_type": "FSDP",
            "fsdp_config.fsdp_version": 2,
            "fsdp_config.fsdp_reshard_after_forward": True,
            "fsdp_config.fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_config.fsdp_state_dict_type": "SHARDED_STATE_DICT",
            "fsdp_config.fsdp_cpu_ram_efficient_loading": not (
                here.precision == "fp8" and fp8_backend(here.snapshot) == "AO"
            ),
        }
        if offload:
            found["fsdp_config.fsdp_offload_params"] = True
        return found
    stage = int(name[-1])
    found = {"distributed_type": "DEEPSPEED", "deepspeed_config.zero_stage": stage}
    if accumulate is not None:
        found["deepspeed_config.gradient_accumulation_steps"] = accumulate
    if offload:
        found["deepspeed_config.offload_optimizer_device"] = "cpu"
    if stage == 3:
        if offload:
            found["deepspeed_config.offload_param_device"] = "cpu"
        found["deepspeed_config.zero3_init_flag"] = True
        found["deepspeed_config.zero3_save_16bit_model"] = True
    if here.nodes > 1:
        found["deepspeed_config.deepspeed_multinode_launcher"] = "standard"
    return found
