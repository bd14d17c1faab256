"""How is a config written so that accelerate accepts it and people understand it?

It contains only keys that have an effect. Everything else goes into comments, because accelerate rejects unknown keys.
Every value has its source in a comment.
"""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any, Final

from mgpu.command_line import from_words
from mgpu.config.reading import CPU_JOB, LAUNCH_ADDS, WRITTEN_BY, for_engine, job_sets, seal
from mgpu.quantities import count_text, params_text
from mgpu.version import __version__
from mgpu.wizard.answers import AGAIN, AGAIN_BEFORE, BY_NAME, Answers, Origin, equivalent_flags, parse
from mgpu.wizard.manual_commands import first_and_last
from mgpu.wizard.proposal_types import Proposal, source_of

_WIDTH: Final = 118
# fmt: off
_ORDER: Final = (
    "compute_environment", "distributed_type", "num_processes", "num_machines", "main_process_ip", "main_process_port",
    "gpu_ids", "mixed_precision", "fp8_config", "fsdp_config", "deepspeed_config", "dynamo_config",
)
# fmt: on
# The comment for a value without a review row of its own, by key, or by key and value.
_WHY: Final[Mapping[str, str]] = {
    "gpu_ids": "accelerate replaces CUDA_VISIBLE_DEVICES with it",
    "fp8_config.fp8_backend": "the installed fp8 library",
    "fsdp_config.fsdp_version": "1 would be the older FSDP",
    "fsdp_config.fsdp_reshard_after_forward": "free gathered weights after the forward pass: least memory",
    "fsdp_config.fsdp_auto_wrap_policy": "split at the layers in the model's _no_split_modules",
    "fsdp_config.fsdp_state_dict_type": "each rank saves its shard; any number of GPUs can load it",
    "fsdp_config.fsdp_cpu_ram_efficient_loading": "only one rank reads the weights",
    "fsdp_config.fsdp_cpu_ram_efficient_loading=false": "not supported with torchao's fp8",
    "fsdp_config.fsdp_offload_params": "weights, gradients and optimizer are kept in RAM",
    "deepspeed_config.zero_stage=1": "the optimizer is split",
    "deepspeed_config.zero_stage=2": "optimizer and gradients are split",
    "deepspeed_config.zero_stage=3": "optimizer, gradients and weights are split",
    "deepspeed_config.gradient_accumulation_steps": "overrides the script's own",
    "deepspeed_config.offload_optimizer_device": "the optimizer is kept in RAM and runs on the CPU",
    "deepspeed_config.offload_param_device": "weights are kept in RAM",
    "deepspeed_config.zero3_init_flag": "the model is sharded while it is built",
    "deepspeed_config.zero3_save_16bit_model": "save_model writes complete 16-bit weights",
    "deepspeed_config.deepspeed_multinode_launcher": "each node starts its own ranks, without pdsh",
    "dynamo_config.dynamo_backend": "torch.compile",
}


def render(proposal: Proposal, today: date, output: str = "accelerate.yaml", flags: Sequence[str] = ()) -> str:
    """Return the YAML text of a proposal. The same proposal on the same day gives the same bytes.

    `flags`: further options of the command line that made it (--target, --from), to be repeated.
    """
    values = in_file_order(proposal.values)
    lines = [_one_line(f"{WRITTEN_BY} {__version__} on {today.isoformat()} for {proposal.machine}.")]
    lines += [f"# {line}" for line in _regenerate_command(proposal, output, flags)]
    lines += [f"# {_one_line(line)}" for line in _remarks(proposal)]
    lines += [for_engine(proposal.engine)] if proposal.engine else list(_manual_commands(proposal, output))
    if proposal.launch_flags:
        flags = proposal.launch_flags
        lines.append(job_sets(flags) if proposal.engine else f"{LAUNCH_ADDS} {' '.join(flags)}")
    lines.append(seal(values, proposal.launch_flags))
    return "\n".join([*lines, *_body(values, _reasons(proposal))]) + "\n"


def in_file_order(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return all the keys of the file, in its order."""
    whole = {"compute_environment": "LOCAL_MACHINE", **values}
    return {key: whole[key] for key in sorted(whole, key=lambda key: _ORDER.index(key) if key in _ORDER else 99)}


def _regenerate_command(proposal: Proposal, output: str, flags: Sequence[str]) -> list[str]:
    """Return the command that regenerates this file, as lines."""
    extra = [*flags, *(() if output == "accelerate.yaml" else ("-o", output))]
    first, *rest = equivalent_flags(proposal.answers, extra=extra, width=90).splitlines()
    return [_one_line(line) for line in (f"{AGAIN}{first}", *(f"  {line.strip()}" for line in rest))]


def recorded_answers(text: str) -> Answers:
    """Return the decisions behind a file of mgpu, from the command in its first lines; empty without such a command."""
    lines = iter(text.splitlines())
    markers = (f"# {AGAIN}", f"# {AGAIN_BEFORE}")
    first = next((line for line in lines if line.startswith(markers)), "")
    command = first.removeprefix(markers[0]).removeprefix(markers[1])
    while command.endswith("\\"):
        command = command[:-1] + next(lines, "").removeprefix("#")
    values: dict[str, Any] = {}
    try:
        words = shlex.split(command)
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
            else "No NVIDIA GPU here: mgpu runs these ranks on the CPU by setting ACCELERATE_USE_CPU=true."
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
    """Return what is trained, so the file can be checked on another machine."""
    params, trainable, chosen = proposal.answers.params or 0, proposal.answers.trainable, proposal.chosen
    text = f"model {params_text(params)}: {params:,} parameters, {chosen['train']}, {chosen['optimizer']}"
    return text + (f", {trainable:,} trained" if trainable is not None else "")


def _manual_commands(proposal: Proposal, output: str) -> Iterator[str]:
    """Yield comments with the command for each node; none for a single node."""
    if proposal.nodes < 2 or proposal.problems:
        return
    if proposal.answers.hosts:
        yield "# Run it on all hosts, from one terminal:"
        yield _one_line(
            f"#   {from_words(['mgpu', 'launch', '-c', output, '--hosts', proposal.answers.hosts, 'train.py'])}"
        )
    else:
        yield "# Run one command per node:"
        for command in first_and_last(proposal, config=output, tool="mgpu"):
            yield _one_line(f"#   {command}")
    yield "# or, without mgpu:"
    for command in first_and_last(proposal, config=output):
        yield _one_line(f"#   {command}")
    if proposal.values["distributed_type"] != "MULTI_GPU":  # torchrun would need a dozen environment variables
        return
    yield "# or, without accelerate's launcher:"
    for command in first_and_last(proposal, tool="torchrun"):
        yield _one_line(f"#   {command}")


def _reasons(proposal: Proposal) -> dict[str, str]:
    """Return a comment for each dotted key: that of its review row, or its own."""
    found: dict[str, str] = {}
    for setting in proposal.settings:
        for place, (key, value) in enumerate(setting.keys.items()):
            why = _WHY.get(f"{key}={str(value).lower()}") or _WHY.get(key)
            if place == 0 and setting.reason:
                why = f"{source_of(setting)}: {setting.reason}"
            if why:
                found[key] = why
    if proposal.nodes > 1 and "num_processes" in found:
        found["num_processes"] = f"TOTAL on all nodes; {found['num_processes']}"
    return found


def _body(values: Mapping[str, Any], reasons: Mapping[str, str]) -> list[str]:
    """Return the lines of the mapping, comments in one column."""
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
    """Return a YAML scalar that YAML 1.1 reads back unchanged: NO and no need quotes, as do strings like numbers."""
    if not isinstance(value, str):
        return json.dumps(value)
    plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9_./-]*", value)
    if plain and value.lower() not in ("y", "n", "no", "yes", "on", "off", "true", "false", "null"):
        return value
    return "'" + _one_line(value).replace("'", "''") + "'"


def _one_line(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f\x85\u2028\u2029]+", " ", text)
