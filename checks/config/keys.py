"""Are the keys at the top level ones that accelerate has, and in the right place?"""

from __future__ import annotations

import re
from typing import Any

from mgpu.check import Answer, Edit, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.known_launchers import TYPE_OPTIONS
from mgpu.planning.memory import PRECISIONS
from mgpu.snapshot import Config
from mgpu.text import counted

from ._config_file import ARGS, BROKEN, LAUNCH, NUMBERS, SWITCHES, is_mapping, place_of, skip_if_unreadable, suggestion
from ._renaming import move_fix
from ._schema import SECTIONS
from ._spelling import closest_name, intended_name
from ._value_kinds import allowed_values

# fmt: off
# Top-level keys of ClusterConfig (1.15), and keys of older versions that the loader migrates.
TOP_KEYS = (
    "compute_environment", "distributed_type", "mixed_precision", "use_cpu", "debug", "num_processes", "num_machines",
    "machine_rank", "gpu_ids", "main_process_ip", "main_process_port", "rdzv_backend", "same_network",
    "main_training_function", "enable_cpu_affinity", "downcast_bf16", "tpu_name", "tpu_zone", "tpu_use_cluster",
    "tpu_use_sudo", "command_file", "commands", "tpu_vm", "tpu_env", "fp8_config", "deepspeed_config", "fsdp_config",
    "parallelism_config", "megatron_lm_config", "mpirun_config", "dynamo_config", "fp16", "dynamo_backend",
)

# Keys of older versions that the loader now rejects: the first release without them, and their replacement (from the
# history of config_args.py). IPEX was for Intel hardware; tensor parallelism moved to another section.
_REMOVED = {
    "ipex_config": ("1.13.0", "IPEX was removed, torch includes its features"),
    "tp_config": ("1.7.0", "tensor parallelism is now parallelism_config_tp_size in parallelism_config"),
}

# Options of `accelerate launch` (1.15) that are not allowed in a config file.
_FLAGS = (
    "num_cpu_threads_per_process", "max_restarts", "monitor_interval", "log_dir", "tee", "role", "rdzv_conf", "module",
    "no_python", "quiet", "cpu", "multi_gpu", "tpu", "use_deepspeed", "use_fsdp", "use_megatron_lm",
    "use_parallelism_config", "vm", "env", "config_file", "training_script", "training_script_args",
)

# Names of the same settings in torchrun, Slurm scripts and other launchers.
_OTHER_NAMES = {
    "master_addr": "main_process_ip", "master_address": "main_process_ip", "master_ip": "main_process_ip",
    "main_process_address": "main_process_ip", "master_port": "main_process_port", "port": "main_process_port",
    "node_rank": "machine_rank", "nnodes": "num_machines", "num_nodes": "num_machines", "nodes": "num_machines",
    "precision": "mixed_precision", "amp": "mixed_precision", "cuda_visible_devices": "gpu_ids",
    "distributed_backend": "distributed_type", "rendezvous_backend": "rdzv_backend",
}
# Names without an equivalent accelerate key, and where they belong.
_ELSEWHERE = {
    "rdzv_endpoint": "accelerate builds it from main_process_ip and main_process_port",
    "rdzv_id": "torchrun reads it from PET_RDZV_ID",
    "kt_config": "it exists only in LLaMA-Factory's fork of accelerate",
    "learning_rate": "it belongs in the training script",
    "train_batch_size": "it belongs in the training script or in a DeepSpeed file",
    "zero_optimization": "it belongs in the DeepSpeed file that deepspeed_config_file names",
    "train_micro_batch_size_per_gpu": "it belongs in the DeepSpeed file that deepspeed_config_file names",
    "zero_allow_untested_optimizer": "it belongs in the DeepSpeed file that deepspeed_config_file names",
    "wall_clock_breakdown": "it belongs in the DeepSpeed file that deepspeed_config_file names",
    "seed": "it belongs in the training script",
    "gradient_accumulation_steps": "it belongs in the script or under deepspeed_config",
}
_MOST_PORTS = 65536
_DEVICE = r"use_(cuda|gpus?|tpu|npu|xpu|hpu|mlu|mps|mps_device|rocm)"  # distributed_type selects the hardware
# Written as switches, as fp16 was in older versions.
_SWITCHED_ON = ("bf16", "fp8")
# Names for the number of ranks per node; num_processes counts all nodes.
_PER_MACHINE = ("num_gpus", "n_gpus", "gpus", "nproc_per_node", "num_gpu", "world_size", "num_process", "ngpus")

# Sections, the prefix of their keys, and their keys without that prefix.
_SECTIONS = {
    "fsdp_config": ("fsdp_", ()),
    "megatron_lm_config": ("megatron_lm_", ()),
    "parallelism_config": ("parallelism_config_", ()),
    "fp8_config": ("fp8_", ()),
    "dynamo_config": ("dynamo_", ()),
    "mpirun_config": ("mpirun_", ()),
    "deepspeed_config": (
        "deepspeed_",
        (
            "zero_stage", "gradient_accumulation_steps", "gradient_clipping", "offload_optimizer_device",
            "offload_param_device", "offload_optimizer_nvme_path", "offload_param_nvme_path", "zero3_init_flag",
            "zero3_save_16bit_model",
        ),
    ),
}
# fmt: on
_SECTION_OF_TYPE = {"FSDP": "fsdp_config", "DEEPSPEED": "deepspeed_config", "MEGATRON_LM": "megatron_lm_config"}


def unknown_keys(config: Config) -> list[str]:
    """Return the top-level keys that the loader rejects.

    None if the installed accelerate accepts the file: then it is newer than the table here.
    """
    if config.loader is not None and config.loader.accepted:
        return []
    return [key for key in config.values if key not in TOP_KEYS]


def section_of(key: str) -> str | None:
    """Return the section that a key belongs to."""
    if key in _SECTIONS:
        return None
    return next((name for name, (start, others) in _SECTIONS.items() if key.startswith(start) or key in others), None)


@check(Severity.ERROR, source=ARGS, given=skip_if_unreadable)
def config_key_unknown(config: Config) -> Answer:
    """The config has a key that accelerate does not recognize.

    Why: accelerate rejects a file with an unknown key.

    Fix: Correct the name, or delete the key.
    """
    unknown = [k for k in unknown_keys(config) if k not in (*_REMOVED, *_FLAGS) and section_of(k) is None]
    newer = [key for key in config.values if key not in TOP_KEYS]
    if newer and config.loader is not None and config.loader.accepted:
        return Ok(f"accelerate {config.loader.accelerate} accepts {', '.join(newer)}")
    if not unknown:
        return Ok(f"{counted(len(config.values), 'key')}, all known")
    return tuple(_unknown_key_problem(config, key) for key in unknown)


def _unknown_key_problem(config: Config, key: str) -> Problem:
    hint, fix = _advice(config, key)
    return Problem(f"unknown key {key!r}{hint}", fix=fix, place=place_of(config, key))


def _advice(config: Config, key: str) -> tuple[str, Fix]:
    """Return the end of the title and the fix."""
    value, plain = config.values[key], key.strip().casefold().replace("-", "_")
    if plain in _ELSEWHERE:
        return f": {_ELSEWHERE[plain]}", Fix("Delete the key.")
    if re.fullmatch(_DEVICE, plain):
        edits = (Edit("delete", key),) if not value else ()
        return ": distributed_type selects the hardware", Fix("Delete the line.", edits=edits)
    if plain in _SWITCHED_ON:
        return ": use mixed_precision for the precision", _switch_fix(config, key, plain)
    called = _other_name(config, key)
    # use_gpu is one letter away from use_cpu, but means the opposite.
    target = called or intended_name(key, [name for name in TOP_KEYS if name != "use_cpu"])
    hint = f". accelerate calls it {called}" if called else suggestion(key, TOP_KEYS)
    if target is None:
        return hint, Fix("Correct the name or delete the line.")
    if target in config.values:
        return hint, Fix(f"Delete it: the file also sets {target}.")
    if not _is_plausible(target, value):
        return hint, Fix(f"Delete it, and write {target} with a valid value.")
    return hint, Fix(f"Write {target}.", edits=(Edit("rename", key, to=target),))


def _switch_fix(config: Config, key: str, precision: str) -> Fix:
    """Return the fix for `bf16: true`, in which the value of mixed_precision is a key."""
    if not config.values[key]:
        return Fix("Delete it.", edits=(Edit("delete", key),))
    if "mixed_precision" in config.values:
        return Fix("Delete it: mixed_precision sets the precision.")
    edits = (Edit("set", "mixed_precision", precision), Edit("delete", key)) if config.values[key] is True else ()
    return Fix(f"Write mixed_precision: {precision} and delete {key}.", edits=edits)


def _is_plausible(key: str, value: Any) -> bool:
    """Whether a value could be one of this top-level key. Other checks judge it exactly under its right name."""
    if key in NUMBERS:
        least = 0 if key == "machine_rank" else 1
        return type(value) is int and least <= value < _MOST_PORTS
    if key == "mixed_precision":
        return isinstance(value, str) and value.lower() in PRECISIONS
    if key == "gpu_ids":
        return isinstance(value, str) and re.fullmatch(r"all|\d+(,\d+)*", value) is not None
    if key in ("main_process_ip", "rdzv_backend", "distributed_type", "compute_environment"):
        return isinstance(value, str) and re.fullmatch(r"[\w.:-]+", value) is not None
    if key in SWITCHES:
        return isinstance(value, bool)
    return not key.endswith("_config") or isinstance(value, dict)


def _other_name(config: Config, key: str) -> str | None:
    """Return accelerate's name for a key of another launcher, if it means the same in this config."""
    plain = key.strip().casefold().replace("-", "_")
    if plain in _PER_MACHINE and config.num_machines == 1 and type(config.values[key]) is int:
        return "num_processes"
    return _OTHER_NAMES.get(plain)


@check(Severity.ERROR, source=ARGS, given=skip_if_unreadable)
def config_key_removed(config: Config) -> Answer:
    """The config has a key that accelerate has removed.

    Why: An older accelerate wrote it. The loader rejects the file with "please try upgrading", although upgrading
    caused the error.

    Fix: Delete the key.
    """
    gone = [key for key in unknown_keys(config) if key in _REMOVED]
    if not gone:
        return Ok("no keys of older accelerate versions")
    return tuple(
        Problem(
            f"{key} was removed in accelerate {_REMOVED[key][0]}",
            f"The loader rejects the file: {_REMOVED[key][1]}.",
            Fix("Delete it.", edits=(Edit("delete", key),) if key == "ipex_config" else ()),
            place=place_of(config, key),
        )
        for key in gone
    )


@check(Severity.ERROR, source=LAUNCH, given=skip_if_unreadable)
def config_key_of_the_command_line(config: Config) -> Answer:
    """The config has an option of `accelerate launch` that is not a config key.

    Why: accelerate rejects a file with an unknown key.
    More: The launcher accepts this option only on the command line.

    Fix: Delete the key, and pass the option on the command line.
    """
    bad = [key for key in unknown_keys(config) if key in _FLAGS]
    if not bad:
        return Ok("no command-line options")
    return tuple(_flag_problem(config, key) for key in bad)


def _flag_problem(config: Config, key: str) -> Problem:
    value: Any = config.values[key]
    chosen = TYPE_OPTIONS.get(key)
    if key == "use_parallelism_config":
        fix = Fix("Delete it: parallelism_config applies by itself.", edits=(Edit("delete", key),))
    elif chosen and (value is False or (value is True and config.distributed_type == chosen)):
        fix = Fix("Delete it: distributed_type already sets this.", edits=(Edit("delete", key),))
    elif chosen:
        fix = Fix(f"Write distributed_type: {chosen} and delete {key}.")
    elif value in (None, False, "", 0):
        fix = Fix("Delete it: it has no effect.", edits=(Edit("delete", key),))
    else:
        switch = shell("accelerate launch --{:name} ...", key)
        given = shell("accelerate launch --{:name} {} ...", key, " ".join(str(value).split()))
        fix = Fix("Delete it, and pass it on the command line.", (switch if value is True else given,))
    return Problem(f"{key} is an option of accelerate launch, not a config key", fix=fix, place=place_of(config, key))


@check(Severity.ERROR, source=ARGS, given=skip_if_unreadable)
def config_key_outside_its_section(config: Config) -> Answer:
    """A key of a section is at the top level.

    Why: accelerate rejects a file with such a key at the top level.
    More: fsdp_sharding_strategy belongs under fsdp_config, zero_stage under deepspeed_config.

    Fix: Indent it under its section.
    """
    bad = {key: section_of(key) for key in unknown_keys(config) if key not in (*_REMOVED, *_FLAGS)}
    found = [(key, section) for key, section in bad.items() if section]
    if not found:
        return Ok("every key is in the right section")
    return tuple(_outside_problem(config, key, section) for key, section in found)


def _outside_problem(config: Config, key: str, name: str) -> Problem:
    section = next(one for one in SECTIONS if one.name == name)
    long = section.canonical(key)
    right = section.renamed.get(long, long)
    if right not in section.keys:
        right = closest_name(right, section.keys, section.prefix) or ""
    inside = config.values.get(name)
    own = _SECTION_OF_TYPE.get(config.distributed_type or "") == name or name in config.values
    used = config.distributed_type in section.types and own
    taken = isinstance(inside, dict) and right in map(section.canonical, inside)
    if not right or not used or taken or not isinstance(inside, dict | None):
        why = "it has no such key" if not right else "it has this key" if taken else "the type does not use it"
        in_script = " The script sets it: Accelerator(gradient_accumulation_steps=N)."
        fix = Fix(f"Delete it: {why}.{in_script if key == 'gradient_accumulation_steps' and not used else ''}")
    else:
        accepted = allowed_values(section.keys[right])
        fix = move_fix(config, section, key, right) or Fix(
            f"Delete it, and write {right} under {name} with a value that fits: {accepted}."
        )
    return Problem(f"{key} belongs under {name}", fix=fix, place=place_of(config, key))


@check(Severity.ERROR, source=ARGS)
def config_environment_unknown(config: Config) -> Answer:
    """compute_environment is not LOCAL_MACHINE.

    Why: accelerate treats any other value, including SLURM and local_machine, as a SageMaker config and rejects valid
    keys as unknown.

    Fix: Write LOCAL_MACHINE, even on a Slurm cluster.
    """
    if not is_mapping(config):
        return Skip(BROKEN)
    value = config.values.get("compute_environment", "LOCAL_MACHINE")
    if value == "LOCAL_MACHINE":
        return Ok("LOCAL_MACHINE")
    cloud = value == "AMAZON_SAGEMAKER" or "ec2_instance_type" in config.values
    what = (
        "accelerate 1.15 cannot launch SageMaker configs, and mgpu does not check them."
        if cloud
        else "accelerate treats the file as a SageMaker config, and rejects num_processes and other valid keys."
    )
    return Problem(
        f"compute_environment: {value!r}, not LOCAL_MACHINE",
        what,
        Fix(
            "Write LOCAL_MACHINE, even on a cluster.",
            edits=(Edit("set", "compute_environment", "LOCAL_MACHINE"),),
        )
        if not cloud
        else Fix("For your own machines, write a new config. This one has keys of SageMaker.", ("mgpu configure",)),
        place=place_of(config, "compute_environment"),
    )
