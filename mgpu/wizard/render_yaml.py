"""How is a config written so that accelerate takes it and a person understands it?

Only keys that have an effect; what mgpu knows besides goes into comments, because accelerate refuses keys it does not
know. Every value says where it comes from.
"""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Final

from mgpu.config.reading import CPU_JOB, LAUNCH_ADDS, WRITTEN_BY, for_engine, job_sets, seal
from mgpu.quantities import count_text, params_text
from mgpu.version import __version__
from mgpu.wizard.answers import BY_NAME, Answers, Origin, equivalent_flags, parse
from mgpu.wizard.manual_commands import first_and_last

if TYPE_CHECKING:
    from mgpu.wizard.proposal_types import Proposal

_WIDTH: Final = 118
_ANEW: Final = "Write it anew:  "
# fmt: off
_ORDER: Final = (
    "compute_environment", "distributed_type", "num_processes", "num_machines", "main_process_ip", "main_process_port",
    "gpu_ids", "mixed_precision", "fp8_config", "fsdp_config", "deepspeed_config", "dynamo_config",
)
# fmt: on
# Why a value stands there, where no row of the review says so: by key, or by key and value.
_WHY: Final[Mapping[str, str]] = {
    "gpu_ids": "accelerate puts it in place of CUDA_VISIBLE_DEVICES",
    "fp8_config.fp8_backend": "the fp8 library that is installed",
    "fsdp_config.fsdp_version": "1 is the old one",
    "fsdp_config.fsdp_reshard_after_forward": "split again after the forward pass: least memory",
    "fsdp_config.fsdp_auto_wrap_policy": "at the model's own list of layers (_no_split_modules)",
    "fsdp_config.fsdp_state_dict_type": "each rank saves its part; another number of GPUs can load it",
    "fsdp_config.fsdp_cpu_ram_efficient_loading": "only one rank reads the weights",
    "fsdp_config.fsdp_cpu_ram_efficient_loading=false": "fp8 by torchao does not go with it",
    "fsdp_config.fsdp_offload_params": "weights, gradients and optimizer wait in RAM",
    "deepspeed_config.zero_stage=1": "the optimizer is split",
    "deepspeed_config.zero_stage=2": "optimizer and gradients are split",
    "deepspeed_config.zero_stage=3": "optimizer, gradients and weights are split",
    "deepspeed_config.gradient_accumulation_steps": "counts before the script's own",
    "deepspeed_config.offload_optimizer_device": "the optimizer lives and works in RAM",
    "deepspeed_config.offload_param_device": "weights wait in RAM",
    "deepspeed_config.zero3_init_flag": "the model is built in parts",
    "deepspeed_config.zero3_save_16bit_model": "save_model gives whole 16-bit weights",
    "deepspeed_config.deepspeed_multinode_launcher": "each machine starts its own ranks, without pdsh",
    "dynamo_config.dynamo_backend": "torch.compile",
}


def render(proposal: Proposal, today: date, output: str = "accelerate.yaml", flags: Sequence[str] = ()) -> str:
    """The YAML text of a proposal. The same proposal on the same day gives the same bytes.

    `flags`: what else the command line had that made it (--target, --from), to be repeated.
    """
    values = ordered(proposal.values)
    lines = [_one_line(f"{WRITTEN_BY} {__version__} on {today.isoformat()} for {proposal.machine}.")]
    lines += [f"# {line}" for line in _again(proposal, output, flags)]
    lines += [f"# {_one_line(line)}" for line in _remarks(proposal)]
    lines += list(_by_engine(proposal) if proposal.engine else _by_hand(proposal, output))
    if proposal.launch_flags:
        flags = proposal.launch_flags
        lines.append(job_sets(flags) if proposal.engine else f"{LAUNCH_ADDS} {' '.join(flags)}")
    lines.append(seal(values, proposal.launch_flags))
    return "\n".join([*lines, *_body(values, _reasons(proposal))]) + "\n"


def ordered(values: Mapping[str, Any]) -> dict[str, Any]:
    """All the keys of the file, in its order."""
    whole = {"compute_environment": "LOCAL_MACHINE", **values}
    return {key: whole[key] for key in sorted(whole, key=lambda key: _ORDER.index(key) if key in _ORDER else 99)}


def _again(proposal: Proposal, output: str, flags: Sequence[str]) -> list[str]:
    """The command that writes this file again."""
    extra = [*flags, *(() if output == "accelerate.yaml" else ("-o", output))]
    first, *rest = equivalent_flags(proposal.answers, extra=extra, width=90).splitlines()
    return [_one_line(line) for line in (f"{_ANEW}{first}", *(f"  {line.strip()}" for line in rest))]


def remembered(text: str) -> Answers:
    """The decisions that a file of ours was made with, from the command in its first lines; none where it has none."""
    lines = iter(text.splitlines())
    told = next((line for line in lines if line.startswith(f"# {_ANEW}")), "").removeprefix(f"# {_ANEW}")
    while told.endswith("\\"):
        told = told[:-1] + next(lines, "").removeprefix("#")
    values: dict[str, Any] = {}
    try:
        words = shlex.split(told)
        for place, word in enumerate(words):
            name = word.removeprefix("--no-").removeprefix("--").replace("-", "_")
            if not word.startswith("--") or name not in BY_NAME:
                continue
            switch = BY_NAME[name].switch
            values[name] = parse(name, not word.startswith("--no-") if switch else words[place + 1])
    except (ValueError, IndexError):
        return Answers()
    origins: dict[str, Origin] = dict.fromkeys(values, "file")
    return Answers(**values, origins=origins)


def _remarks(proposal: Proposal) -> Iterator[str]:
    unit, ranks = proposal.unit, proposal.ranks
    if proposal.cpu:
        yield (
            CPU_JOB.removeprefix("# ")
            if proposal.engine
            else "No NVIDIA GPU here: mgpu runs these ranks on the CPU by adding ACCELERATE_USE_CPU=true."
        )
    if proposal.answers.params is not None:
        yield _model(proposal)
    if proposal.batch_per_gpu is not None:
        whole = proposal.batch_per_gpu * ranks * proposal.accumulate
        times = f" x accumulate {proposal.accumulate}" if proposal.accumulate > 1 else ""
        yield (
            f"batch per {unit} {proposal.batch_per_gpu} x {ranks} {unit}{'s' if ranks > 1 else ''}{times} = "
            f"effective batch {whole}"
        )
    if proposal.dataset_size is not None and proposal.steps is not None:
        yield f"dataset {count_text(proposal.dataset_size)} samples: {proposal.steps:,} optimizer steps per epoch"
    yield from (note for note in proposal.notes if "OMP_NUM_THREADS" in note)
    if rate := proposal.setting("learning rate note"):
        yield f"learning rate note: {rate.text} ({rate.reason})"


def _model(proposal: Proposal) -> str:
    """What is trained, so that the file can be judged on another machine."""
    params, trainable, chosen = proposal.answers.params or 0, proposal.answers.trainable, proposal.chosen
    text = f"model {params_text(params)}: {params:,} parameters, {chosen['train']}, {chosen['optimizer']}"
    return text + (f", {trainable:,} trained" if trainable is not None else "")


def _by_engine(proposal: Proposal) -> Iterator[str]:
    """That something else than this file tells the machines address, port and rank."""
    yield for_engine(proposal.engine)


def _by_hand(proposal: Proposal, output: str) -> Iterator[str]:
    """How each machine is started, where there are several."""
    if proposal.nodes < 2 or proposal.problems:
        return
    yield "# On each machine its own command (mgpu launch runs on one machine so far):"
    for command in first_and_last(proposal, config=output):
        yield _one_line(f"#   {command}")
    if proposal.values["distributed_type"] != "MULTI_GPU":  # torchrun would need a dozen variables in front of it
        return
    yield "# or, the same without accelerate's launcher:"
    for command in first_and_last(proposal, tool="torchrun"):
        yield _one_line(f"#   {command}")


def _reasons(proposal: Proposal) -> dict[str, str]:
    """A comment for each dotted key: of the row it belongs to, or of the key itself."""
    found: dict[str, str] = {}
    for setting in proposal.settings:
        for place, (key, value) in enumerate(setting.keys.items()):
            why = _WHY.get(f"{key}={str(value).lower()}") or _WHY.get(key)
            if place == 0 and setting.reason:
                why = f"{setting.origin}: {setting.reason}"
            if why:
                found[key] = why
    if proposal.nodes > 1 and "num_processes" in found:
        found["num_processes"] = f"TOTAL over all machines; {found['num_processes']}"
    return found


def _body(values: Mapping[str, Any], reasons: Mapping[str, str]) -> list[str]:
    """The lines of the mapping, comments in one column."""
    pairs: list[tuple[str, str]] = []
    for key, value in values.items():
        if not isinstance(value, dict):
            pairs.append((f"{key}: {scalar(value)}", reasons.get(key, "")))
            continue
        pairs.append((f"{key}:", ""))
        pairs += [(f"  {name}: {scalar(inner)}", reasons.get(f"{key}.{name}", "")) for name, inner in value.items()]
    column = max([34, *(len(text) + 2 for text, reason in pairs if reason)])
    lines: list[str] = []
    for text, reason in pairs:
        first, *more = textwrap.wrap(_one_line(reason), _WIDTH - column - 2) or [""]
        lines.append(f"{text:<{column}}# {first}" if first else text)
        lines += [f"{'':<{column}}# {line}" for line in more]
    return lines


def scalar(value: Any) -> str:
    """A YAML scalar that YAML 1.1 reads back as itself: NO and no need quotes, and so does all that looks like a
    number."""
    if not isinstance(value, str):
        return json.dumps(value)
    plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9_./-]*", value)
    if plain and value.lower() not in ("y", "n", "no", "yes", "on", "off", "true", "false", "null"):
        return value
    return "'" + _one_line(value).replace("'", "''") + "'"


def _one_line(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f\x85\u2028\u2029]+", " ", text)
