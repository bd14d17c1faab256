"""Which config does a job script use, completed with the options on its command line?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from mgpu.known_launchers import KNOWN, TYPE_OPTIONS
from mgpu.launchers.accelerate_line import scalar, section_of, set_in_section
from mgpu.readers.job_script.config_options import config_of
from mgpu.snapshot import Config, JobCommand, JobScript

# Options of accelerate launch that replace a value of the file, and the sections whose options do.
_NUMBERS = ("num_processes", "num_machines", "machine_rank", "main_process_port")
_TEXTS = ("main_process_ip", "gpu_ids", "mixed_precision")
_OF_NODES = ("deepspeed_multinode_launcher", "deepspeed_hostfile")
_SECTIONS = ("deepspeed_config", "fsdp_config", "megatron_lm_config")
_DEEPSPEED_FILE = "deepspeed_config_file"


def completed(config: Config, job: JobScript) -> Config:
    """Return the config as the job's accelerate launch uses it; unchanged if no launch in the script uses a file.

    A value that is known only on the node (`--num_machines $SLURM_NNODES`) replaces that of the file by nothing: the
    option is in `given`.
    """
    command = next((one for one in job.commands if one.launcher == "accelerate" and config_of(one) is not None), None)
    if command is None:
        return config
    values: dict[str, Any] = dict(config.values)
    given = ["config_file"]
    unknown: list[str] = []
    for name, text in _options(command):
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
        known = "$" not in text and (name not in _NUMBERS or number is not None)
        given.append(name)
        unknown += [] if known else [name]
        if name in TYPE_OPTIONS:
            values["distributed_type"] = _type(config, name)
        elif section_of(name):
            set_in_section(values, name, scalar(text) if known else None)
        elif known:
            values[name] = number if name in _NUMBERS else text
        elif name != "num_machines":  # how many is not known, but several if the file has several
            values.pop(name, None)
    if "num_machines" in unknown:
        values.pop("num_processes", None)  # the number of ranks on a node is not known
        given.append("num_processes")
    # A DeepSpeed file of the command line is examined by itself.
    file = None if _DEEPSPEED_FILE in given else config.deepspeed_file
    return replace(config, values=values, given=tuple(dict.fromkeys(given)), deepspeed_file=file)


def _type(config: Config, option: str) -> str:
    """Return the type that an option requests, whatever the file says; --multi_gpu keeps another accelerator's."""
    own = config.distributed_type or ""
    kept = option == "multi_gpu" and own.startswith("MULTI_") and own != "MULTI_CPU"
    return own if kept else TYPE_OPTIONS[option]


def _options(command: JobCommand) -> Iterator[tuple[str, str]]:
    """Yield the options that replace values of the file; those of the nodes if a variable may hold options."""
    words = command.arguments
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        name = name.lstrip("-").replace("-", "_")
        if word.startswith("--") and name in TYPE_OPTIONS:
            yield name, ""
        elif word.startswith("--") and (name in (*_NUMBERS, *_TEXTS) or section_of(name) in _SECTIONS):
            yield name, value if equals else "".join(words[place + 1 : place + 2])
        elif word.startswith("$") and not (place and _is_value(words[place - 1])):
            yield from ((name, "$") for name in (*_NUMBERS, "main_process_ip", *_OF_NODES))


def _is_value(before: str) -> bool:
    """Whether the word after this one is the value of an option."""
    name = before.partition("=")[0].lstrip("-").replace("-", "_")
    return before.startswith("--") and "=" not in before and name not in KNOWN["accelerate"].switches
