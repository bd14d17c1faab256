"""Can the file be read, where is a key in it, and which launcher starts its ranks?"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

from mgpu.check import Place, Skip
from mgpu.known_launchers import TYPE_OPTIONS
from mgpu.snapshot import Config, Mark

LAUNCH = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/commands/launch.py"
PREPARE = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/launch.py"
PLUGINS = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/dataclasses.py"
ARGS = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/commands/config/config_args.py"

AWAY = "the config is for the nodes of a job, and this machine is not one of them"
BROKEN = "the file cannot be read, or is for SageMaker"

# fmt: off
# accelerate.utils.DistributedType (1.15)
ACCELERATORS = (
    "MULTI_GPU", "MULTI_NPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_XPU", "MULTI_HPU", "MULTI_NEURON",
)
# fmt: on
TYPES = ("NO", "MULTI_CPU", *ACCELERATORS, "DEEPSPEED", "FSDP", "XLA", "MEGATRON_LM")
_LONGEST_NAME = 100  # characters to compare: difflib is slow on long names

# Top-level keys whose values are whole numbers, and those whose values are booleans.
NUMBERS = ("num_processes", "num_machines", "machine_rank", "main_process_port")
SWITCHES = ("debug", "use_cpu", "same_network", "enable_cpu_affinity", "tpu_use_cluster", "tpu_use_sudo")
ASK_THE_USER = -1  # the loader's value for a missing number; the launcher rejects it
# A text that an option of the command line is to replace, and what only an address is replaced by (0 is another one).
_PLACEHOLDER = r"\s*|[A-Z][A-Z0-9]*_[A-Z0-9_]+|<[^<>]+>|\{\{.+\}\}"
_PLACEHOLDER_ADDRESS = r"(?i:[x*]+(?:\.[x*]+){3}|x+|0|todo|tbd|changeme|your[-_.]\w[\w.-]*|\.{3}|none|null)"
SIMPLE_TYPES = ("NO", "MULTI_CPU")  # started by accelerate's simple launcher: one process, or mpirun


def place_of(config: Config, key: str | None = None) -> Place:
    """Return the position of a key in the file.

    For a missing key: the position of its section, or line 1, because editors and GitHub ignore findings without a
    line.
    """
    name = key or ""
    while name and name not in config.marks:
        name = name.rpartition(".")[0]
    mark = config.marks.get(name, Mark(1, 1))
    return Place(config.path, mark.line, mark.column, key)


def is_in_file(config: Config, key: str) -> bool:
    """Whether the file itself has a key; not if only the command line of a job has it."""
    return key in config.marks or key.rpartition(".")[2] not in config.given


def type_name(config: Config) -> str:
    """Return what decides the type of the run: "distributed_type FSDP", or an option of the command line."""
    option = next((one for one in config.given if one in TYPE_OPTIONS), None)
    return f"--{option}" if option else f"distributed_type {config.distributed_type}"


def source_text(config: Config, key: str) -> str:
    """Return a value as spelled in the file (010, no, "2"); the parsed value if it is a list or mapping."""
    scalar = config.scalars.get(key)
    if scalar is None:
        return repr(config.values.get(key))
    return f'"{scalar.text}"' if scalar.quoted else scalar.text


def suggestion(name: str, names: Iterable[str]) -> str:
    """Return the "Did you mean" part of a title; empty if no name is similar."""
    near = difflib.get_close_matches(name[:_LONGEST_NAME], tuple(names), n=1, cutoff=0.6)
    return f". Did you mean {near[0]}?" if near else ""


def as_integer(value: Any) -> int | None:
    """Return the integer that was written in quotes or with a decimal point ("2", 2.0); None if it is not one."""
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,9}\s*", value):
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e9 else None


def has_shell_variable(value: Any) -> bool:
    """Whether a value contains a shell expansion: $MASTER_ADDR, ${SLURM_PROCID}, $(hostname)."""
    return isinstance(value, str) and re.search(r"\$(\w|\{|\()", value) is not None


def is_left_open(config: Config, key: str) -> bool:
    """Whether the file leaves a value to the command line: missing, empty, -1, or a placeholder (NUM_NODES, <ip>)."""
    value = config.values.get(key)
    of_address = key == "main_process_ip"
    if isinstance(value, str):
        placeholder = f"{_PLACEHOLDER}|{_PLACEHOLDER_ADDRESS}" if of_address else _PLACEHOLDER
        return re.fullmatch(placeholder, value) is not None
    number = ASK_THE_USER if key == "num_processes" else 0
    return value is None or (key in ("num_processes", "main_process_ip") and type(value) is int and value == number)


def is_mapping(config: Config) -> bool:
    """Whether the file is YAML and a mapping."""
    return not any(fault.fatal for fault in config.faults)


def is_readable(config: Config) -> bool:
    """Whether the file can be checked: it is a mapping, and not a SageMaker config, which has different keys."""
    return is_mapping(config) and config.values.get("compute_environment") != "AMAZON_SAGEMAKER"


def skip_if_unreadable(config: Config) -> Skip | None:
    """Skip a file that cannot be read or is for SageMaker."""
    return None if is_readable(config) else Skip(BROKEN)


def skip_if_away(config: Config) -> Skip | None:
    """Skip a config that is for other machines."""
    return Skip(AWAY) if config.away else None


def started_by_torchrun(config: Config) -> bool:
    """Whether torchrun starts the ranks: it uses num_machines, machine_rank and the rendezvous endpoint."""
    if config.distributed_type == "DEEPSPEED" and config.num_machines > 1:
        section = config.values.get("deepspeed_config")
        return isinstance(section, dict) and section.get("deepspeed_multinode_launcher") == "standard"
    return config.distributed_type is not None and config.distributed_type not in (*SIMPLE_TYPES, "XLA")


def uses_main_process_ip(config: Config) -> bool:
    """Whether the launcher uses main_process_ip.

    torchrun does, and the simple launcher asserts that it is set. Of DeepSpeed's multi-node launchers, only `standard`
    does.
    """
    return started_by_torchrun(config) or config.distributed_type in SIMPLE_TYPES


def is_loopback(address: str) -> bool:
    """Whether an address is this machine, on every machine."""
    return address in ("localhost", "::1", "[::1]") or address.startswith("127.")
