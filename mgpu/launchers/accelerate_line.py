"""Which config does `accelerate launch [OPTIONS]` use? Its options replace the values of its file.

As accelerate 1.15, commands/launch.py `_validate_launch_command` and `launch_command`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mgpu.config import facts
from mgpu.config.reading import digest
from mgpu.errors import LAUNCH_REFUSED, MgpuError
from mgpu.known_launchers import TYPE_OPTIONS
from mgpu.launchers.option_words import Given, whole_number
from mgpu.planning.requirements import GPU_TYPES
from mgpu.snapshot import Config

# fmt: off
_NUMBERS = frozenset({"num_processes", "num_machines"})
_TEXTS = frozenset({"gpu_ids", "mixed_precision"})
# Where a run meets and which node this is: nothing that was verified depends on it.
_NEUTRAL = frozenset({
    "config_file", "machine_rank", "main_process_ip", "main_process_port", "same_network", "quiet", "debug", "module",
    "no_python", "help", "role", "log_dir", "tee", "redirects", "monitor_interval",
})
_LAUNCHED = frozenset(TYPE_OPTIONS.values())  # the types with which it starts several processes
_DEEPSPEED = frozenset({
    "deepspeed_config_file", "zero_stage", "offload_optimizer_device", "offload_param_device",
    "offload_optimizer_nvme_path", "offload_param_nvme_path", "gradient_accumulation_steps", "gradient_clipping",
    "zero3_init_flag", "zero3_save_16bit_model", "deepspeed_hostfile", "deepspeed_exclusion_filter",
    "deepspeed_inclusion_filter", "deepspeed_multinode_launcher", "deepspeed_moe_layer_cls_names",
})
_SECTIONS: Final[Mapping[str, str]] = {
    "fsdp_": "fsdp_config", "dynamo_": "dynamo_config", "fp8_": "fp8_config", "megatron_lm_": "megatron_lm_config",
    "parallelism_config_": "parallelism_config",
}
# fmt: on


def config_file(given: Given, environ: Mapping[str, str] = os.environ) -> str:
    """Return the file that it reads: --config_file, else the user's default one if that exists; "" for none."""
    if named := given.values.get("config_file"):
        return named
    cache = environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = environ.get("HF_HOME") or os.path.join(cache, "huggingface")
    default = os.path.join(os.path.expanduser(home), "accelerate", "default_config.yaml")
    return default if "cpu" not in given.values and os.path.isfile(default) else ""


def config_of(path: str, given: Given) -> Config:
    """Return the config of the ranks: the file's values, replaced by the options. Raises MgpuError."""
    if path and not Path(path).exists():
        raise MgpuError(f"the command's config {path} not found", LAUNCH_REFUSED)
    file = facts(Path(path), ask_loader=False) if path else Config("", None, {}, {})
    values = dict(file.values)
    flags: list[str] = []
    types = [kind for option, kind in TYPE_OPTIONS.items() if option in given.values]
    if types:
        values["distributed_type"] = types[0]
    if "cpu" in given.values:
        values["use_cpu"] = True
    for name, text in given.values.items():
        if name in _NUMBERS and (number := whole_number(text)) is not None:
            values[name] = number
        elif name in _TEXTS:
            values[name] = text
        elif not (name in _NEUTRAL or name in TYPE_OPTIONS or name == "cpu"):
            flags += _nested(values, name, text)
    if values == file.values and not flags:
        return file
    whole = (*file.launch_flags, *flags)
    given_names = tuple(name for name in given.values if name not in _NEUTRAL)
    return replace(file, values=values, launch_flags=whole, sha256=digest(values, whole), given=given_names)


def _nested(values: dict[str, Any], name: str, text: str) -> Iterator[str]:
    """Set an option of a section in the values; return one that belongs to no section as the words of a flag."""
    if not section_of(name):
        return iter([f"--{name}", *([text] if text else [])])
    set_in_section(values, name, scalar(text))
    return iter(())


def section_of(name: str) -> str:
    """Return the section of the file that has an option's value; "" for an option that belongs to no section."""
    section = next((section for start, section in _SECTIONS.items() if name.startswith(start)), "")
    return "deepspeed_config" if name in _DEEPSPEED else section


def set_in_section(values: dict[str, Any], name: str, value: Any) -> None:
    """Set an option of a section in the values, under the name that the file uses."""
    section = section_of(name)
    before = values.get(section)
    found = dict(before) if isinstance(before, dict) else {}
    short = name.removeprefix("fsdp_")
    found[short if section == "fsdp_config" and short in found else name] = value
    values[section] = found


def scalar(text: str) -> Any:
    """Return an option's text as the file's value would be."""
    number = whole_number(text)
    return {"true": True, "false": False}.get(text.lower(), text if number is None else number)


def starts_several(config: Config, given: Given) -> bool:
    """Whether it starts one process per rank; else a single process, whatever num_processes is."""
    return "cpu" not in given.values and config.distributed_type in _LAUNCHED


def counts_gpus(path: str, given: Given) -> bool:
    """Whether it starts one rank per visible GPU: without a file and without --num_processes."""
    return not path and "num_processes" not in given.values and "cpu" not in given.values


def is_multi_gpu_by_itself(path: str, given: Given, ranks: int, gpus: int) -> bool:
    """Whether it starts several ranks without an option that requests them: it detects several GPUs."""
    chosen = {*TYPE_OPTIONS, "cpu", "tpu"} & given.values.keys()
    return not path and not chosen and ranks > 1 and gpus > 1


def takes_variable(config: Config) -> bool:
    """Whether ACCELERATE_USE_CPU=true is what mgpu itself sets for this config where there is no GPU."""
    return config.distributed_type in GPU_TYPES
