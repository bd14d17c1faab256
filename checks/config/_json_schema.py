"""The JSON Schema of accelerate's config, for editors: `mgpu configure --schema`.

It is made from the tables of the checks (`_schema.py`, `keys.py`), so that an editor completes and underlines what
`mgpu configure --validate` judges. Draft 7, which SchemaStore and YAML language servers read.
"""

from __future__ import annotations

import re
from typing import Any

from mgpu.planning.memory import PRECISIONS

from ._config_file import NUMBERS, SWITCHES, TYPES
from ._schema import DYNAMO_BACKENDS, SECTIONS
from ._value_kinds import Key, Section, allowed_values
from .keys import TOP_KEYS

_ID = "https://json.schemastore.org/accelerate-config.json"
_TRUTH = r"^([yY]|[yY][eE][sS]|[tT]|[tT][rR][uU][eE]|[oO][nN]|[nN]|[nN][oO]|[fF]|[fF][aA][lL][sS][eE]|[oO][fF][fF])$"
_FLAG: dict[str, Any] = {
    "anyOf": [{"type": "boolean"}, {"enum": [0, 1, "0", "1"]}, {"type": "string", "pattern": _TRUTH}]
}
_NULL = {"type": "null"}
_LEAST = {"num_processes": 1, "num_machines": 1, "machine_rank": 0, "main_process_port": 0}
_MOST = {"main_process_port": 65535}

# What each key at the top level sets.
_TOP: dict[str, str] = {
    "compute_environment": "Where the run takes place: LOCAL_MACHINE, also for clusters.",
    "distributed_type": "How the ranks train together. Quote 'NO'.",
    "mixed_precision": "Precision of the computation. Quote 'no'.",
    "use_cpu": "Train on the CPU, also if there are GPUs.",
    "debug": "Check the shapes of tensors in collectives; slow.",
    "num_processes": "Number of ranks on all nodes together: one for each GPU.",
    "num_machines": "Number of nodes.",
    "machine_rank": "Rank of this node; 0 is the one with main_process_ip.",
    "gpu_ids": "GPUs of this node: all, or a list such as '0,1'.",
    "main_process_ip": "Address of node 0, which all nodes connect to.",
    "main_process_port": "Port on node 0; null or 0: accelerate chooses.",
    "rdzv_backend": "Rendezvous of torchrun: static or c10d.",
    "same_network": "The nodes are in one network.",
    "main_training_function": "Function that notebook and TPU launches call.",
    "enable_cpu_affinity": "Pin each rank to the CPUs near its GPU.",
    "downcast_bf16": "On TPUs: whether to downcast float to bf16.",
    "tpu_name": "Name of the TPU pod.",
    "tpu_zone": "Zone of the TPU pod.",
    "tpu_use_cluster": "Use a TPU pod.",
    "tpu_use_sudo": "Run the commands on the TPU pod with sudo.",
    "command_file": "File with commands for each TPU worker.",
    "commands": "Commands for each TPU worker.",
    "tpu_vm": "Names of TPU machines.",
    "tpu_env": "Environment variables on TPU machines.",
    "fp16": "Of older versions: mixed_precision fp16.",
    "dynamo_backend": "Of older versions: dynamo_backend in dynamo_config.",
    "fp8_config": "Settings of fp8; need mixed_precision fp8.",
    "deepspeed_config": "Settings of DeepSpeed; need distributed_type DEEPSPEED.",
    "fsdp_config": "Settings of FSDP; need distributed_type FSDP.",
    "parallelism_config": "Sizes of data, tensor, context and sequence parallelism.",
    "megatron_lm_config": "Settings of Megatron-LM; need distributed_type MEGATRON_LM.",
    "mpirun_config": "Settings of mpirun for CPU runs.",
    "dynamo_config": "Settings of torch.compile.",
}


def document() -> dict[str, Any]:
    """Return the schema."""
    sections = {section.name: _section(section) for section in SECTIONS}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": _ID,
        "title": "Hugging Face Accelerate config",
        "description": "The file of `accelerate launch --config_file`, as accelerate 1.15 reads it.",
        "type": "object",
        "properties": {key: {"description": _TOP[key], **(sections.get(key) or _top(key))} for key in TOP_KEYS},
        "additionalProperties": False,
    }


def _any(*choices: dict[str, Any]) -> dict[str, Any]:
    return choices[0] if len(choices) == 1 else {"anyOf": list(choices)}


def _top(key: str) -> dict[str, Any]:
    """The values of a key at the top level."""
    if key in NUMBERS:
        limits = {"minimum": _LEAST[key]} | ({"maximum": _MOST[key]} if key in _MOST else {})
        whole = {"type": "integer", **limits}
        return _any(whole, _NULL) if key in _MOST else whole
    if key == "gpu_ids":
        return {"type": ["string", "null"]}
    if key in SWITCHES or key == "fp16":
        return {"type": "boolean"}
    words = {
        "compute_environment": ("LOCAL_MACHINE", "AMAZON_SAGEMAKER"),
        "distributed_type": TYPES,
        "mixed_precision": PRECISIONS,
        "dynamo_backend": DYNAMO_BACKENDS,
    }
    if key in words:
        return _words(tuple(words[key]))
    return {}


def _words(choices: tuple[str, ...]) -> dict[str, Any]:
    """One of these words; editors complete them, and upper and lower case are the same."""
    patterns = "|".join("".join(map(_either_case, word)) for word in choices)
    return _any({"enum": list(choices)}, {"type": "string", "pattern": f"^({patterns})$"})


def _either_case(letter: str) -> str:
    return f"[{letter.lower()}{letter.upper()}]" if letter.isalpha() else re.escape(letter)


def _section(section: Section) -> dict[str, Any]:
    """A section: its keys under the launcher's names, and without the prefix where accelerate adds it."""
    properties: dict[str, Any] = {}
    for name, key in section.keys.items():
        properties[name] = {"description": _description(key), **_value(key)}
        short = name.removeprefix(section.prefix)
        if section.root and not short.startswith(section.root):
            properties[short] = {"description": f"Short for {name}.", **_value(key)}
    return {"type": ["object", "null"], "properties": properties, "additionalProperties": False}


def _description(key: Key) -> str:
    """What a key accepts."""
    kinds = {"text": "Text.", "count": "A whole number, without quotes.", "truth": "true or false."}
    text = kinds.get(key.kind) or f"{allowed_values(key)}."
    return text[0].upper() + text[1:] if key.kind != "choice" else text


def _value(key: Key) -> dict[str, Any]:
    """The values of a key in a section."""
    choices: list[dict[str, Any]] = []
    limits = {name: limit for name, limit in (("minimum", key.least), ("maximum", key.most)) if limit is not None}
    match key.kind:
        case "flag":
            choices = list(_FLAG["anyOf"])
        case "truth":
            choices = [{"type": "boolean"}, {"type": "string", "pattern": r"^([tT][rR][uU][eE]|[fF][aA][lL][sS][eE])$"}]
        case "count":
            choices = [{"type": "integer", **limits}]
        case "integer":
            choices = [{"type": "integer", **limits}, {"type": "string", "pattern": r"^\s*[+-]?\d+(_\d+)*\s*$"}]
        case "number":
            choices = [{"type": "number"}, {"type": "string", "pattern": r"^[+-]?[\d.]+([eE][+-]?\d+)?$"}]
        case "choice":
            return _choice(key)
        case "triple":
            choices = [{"type": "array", "minItems": 3, "items": _FLAG}]
        case "text":
            return {}
    if key.choices:
        choices.append(_words(key.choices))
    return _any(*choices, *([_NULL] if key.null else ()))


def _choice(key: Key) -> dict[str, Any]:
    words = tuple(choice for choice in key.choices if not choice.isdecimal())
    numbers = [int(choice) for choice in key.choices if choice.isdecimal()]
    found = [{"enum": list(key.choices)}] if key.exact else [_words(words)]
    found += [{"enum": [*numbers, *map(str, numbers)]}] if numbers else []
    found += [{"type": "string"}] if key.also else []
    return _any(*found, *([_NULL] if key.null else ()))
