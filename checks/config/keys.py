"""Does accelerate know the keys at the top level, and do they stand where they belong?"""

from __future__ import annotations

import re
from typing import Any

from mgpu.check import Answer, Edit, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Config
from mgpu.text import counted

from ._config_file import ARGS, BROKEN, LAUNCH, parsed, place_of, readable, suggestion
from ._spelling import meant

# fmt: off
# Top-level keys of ClusterConfig (1.15), and those older versions wrote and the loader migrates.
_KEYS = (
    "compute_environment", "distributed_type", "mixed_precision", "use_cpu", "debug", "num_processes", "num_machines",
    "machine_rank", "gpu_ids", "main_process_ip", "main_process_port", "rdzv_backend", "same_network",
    "main_training_function", "enable_cpu_affinity", "downcast_bf16", "tpu_name", "tpu_zone", "tpu_use_cluster",
    "tpu_use_sudo", "command_file", "commands", "tpu_vm", "tpu_env", "fp8_config", "deepspeed_config", "fsdp_config",
    "parallelism_config", "megatron_lm_config", "mpirun_config", "dynamo_config", "fp16", "dynamo_backend",
)

# Keys of older versions that the loader now refuses: the first release without them, and what became of them (the
# history of config_args.py). IPEX was for Intel hardware; tensor parallelism moved to another section.
_REMOVED = {
    "ipex_config": ("1.13.0", "IPEX is gone; torch has what it did"),
    "tp_config": ("1.7.0", "tensor parallelism is parallelism_config with parallelism_config_tp_size now"),
}

# Options of `accelerate launch` (1.15) that no config file may hold.
_FLAGS = (
    "num_cpu_threads_per_process", "max_restarts", "monitor_interval", "log_dir", "tee", "role", "rdzv_conf", "module",
    "no_python", "quiet", "cpu", "multi_gpu", "tpu", "use_deepspeed", "use_fsdp", "use_megatron_lm",
    "use_parallelism_config", "vm", "env", "config_file", "training_script", "training_script_args",
)

# What torchrun, Slurm scripts and other launchers call the same thing.
_OTHER_NAMES = {
    "master_addr": "main_process_ip", "master_address": "main_process_ip", "master_ip": "main_process_ip",
    "main_process_address": "main_process_ip", "master_port": "main_process_port", "port": "main_process_port",
    "node_rank": "machine_rank", "nnodes": "num_machines", "num_nodes": "num_machines", "nodes": "num_machines",
    "precision": "mixed_precision", "amp": "mixed_precision", "cuda_visible_devices": "gpu_ids",
    "distributed_backend": "distributed_type", "rendezvous_backend": "rdzv_backend",
}
# Names that mean no single key of accelerate, and what to say of them.
_ELSEWHERE = {
    "rdzv_endpoint": "accelerate makes it of main_process_ip and main_process_port",
    "rdzv_id": "torchrun takes it from PET_RDZV_ID",
    "kt_config": "LLaMA-Factory's own accelerate has it, the released one has not",
    "learning_rate": "it belongs to the training script",
    "train_batch_size": "it belongs to the training script, or into a DeepSpeed file",
    "zero_optimization": "it belongs into a DeepSpeed file, which deepspeed_config_file names",
    "train_micro_batch_size_per_gpu": "it belongs into a DeepSpeed file, which deepspeed_config_file names",
    "zero_allow_untested_optimizer": "it belongs into a DeepSpeed file, which deepspeed_config_file names",
    "wall_clock_breakdown": "it belongs into a DeepSpeed file, which deepspeed_config_file names",
    "seed": "it belongs to the training script",
    "gradient_accumulation_steps": "it belongs to the script, or under deepspeed_config",
}
_DEVICE = r"use_(cuda|gpus?|tpu|npu|xpu|hpu|mlu|mps|mps_device|rocm)"  # the type names the hardware
_SWITCHED_ON = ("bf16", "fp8")  # as fp16 once was
# The same for the number of ranks; these count one machine, num_processes counts all.
_PER_MACHINE = ("num_gpus", "n_gpus", "gpus", "nproc_per_node", "num_gpu", "world_size", "num_process", "ngpus")

# Sections, how their keys begin, and those of their keys that begin otherwise.
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
    """Top-level keys that the loader refuses. Where the installed accelerate has taken the file, none: it is newer than
    the table here."""
    if config.loader is not None and config.loader.accepted:
        return []
    return [key for key in config.values if key not in _KEYS]


def section_of(key: str) -> str | None:
    """The section a key would belong to."""
    if key in _SECTIONS:
        return None
    return next((name for name, (start, others) in _SECTIONS.items() if key.startswith(start) or key in others), None)


@check(Severity.ERROR, source=ARGS, given=readable)
def config_key_unknown(config: Config) -> Answer:
    """The config has a key that accelerate does not know.

    Why: accelerate refuses a file with a key it does not know.

    Fix: correct the name, or delete the key.
    """
    unknown = [k for k in unknown_keys(config) if k not in (*_REMOVED, *_FLAGS) and section_of(k) is None]
    newer = [key for key in config.values if key not in _KEYS]
    if newer and config.loader is not None and config.loader.accepted:
        return Ok(f"accelerate {config.loader.accelerate} takes {', '.join(newer)}")
    if not unknown:
        return Ok(f"{counted(len(config.values), 'key')}, all known")
    return tuple(_unknown(config, key) for key in unknown)


def _unknown(config: Config, key: str) -> Problem:
    hint, fix = _advice(config, key)
    return Problem(f"unknown key {key!r}{hint}", fix=fix, place=place_of(config, key))


def _advice(config: Config, key: str) -> tuple[str, Fix]:
    """What the title adds, and what to do."""
    value, plain = config.values[key], key.strip().casefold().replace("-", "_")
    if plain in _ELSEWHERE:
        return f": {_ELSEWHERE[plain]}", Fix("Delete the key.")
    if re.fullmatch(_DEVICE, plain):
        edits = (Edit("delete", key),) if not value else ()
        return ": distributed_type names the hardware", Fix("Delete the line.", edits=edits)
    if plain in _SWITCHED_ON:
        free = value is True and "mixed_precision" not in config.values
        moved = (Edit("set", "mixed_precision", plain), Edit("delete", key)) if free else ()
        fix = Fix(f"Write mixed_precision: {plain}.", edits=moved if value else (Edit("delete", key),))
        return ": the precision is mixed_precision", fix
    called = _other_name(config, key)
    # One letter makes use_cpu of use_gpu, which is another wish and not a slip.
    target = called or meant(key, [name for name in _KEYS if name != "use_cpu"])
    edits = (Edit("rename", key, to=target),) if target and target not in config.values else ()
    hint = f". accelerate calls it {called}" if called else suggestion(key, _KEYS)
    return hint, Fix(f"Write {target}." if target else "Correct the name or delete the line.", edits=edits)


def _other_name(config: Config, key: str) -> str | None:
    """accelerate's name for a key of another launcher, where it means the same here."""
    plain = key.strip().casefold().replace("-", "_")
    if plain in _PER_MACHINE and config.num_machines == 1 and type(config.values[key]) is int:
        return "num_processes"
    return _OTHER_NAMES.get(plain)


@check(Severity.ERROR, source=ARGS, given=readable)
def config_key_removed(config: Config) -> Answer:
    """The config has a key that accelerate has given up.

    Why: an older accelerate wrote it. The loader refuses the file and says "please try upgrading", although upgrading
    is what broke it.

    Fix: delete the key.
    """
    gone = [key for key in unknown_keys(config) if key in _REMOVED]
    if not gone:
        return Ok("no key of an older accelerate")
    return tuple(
        Problem(
            f"{key} is no longer a key: gone since accelerate {_REMOVED[key][0]}",
            f"The loader refuses the file; {_REMOVED[key][1]}.",
            Fix("Delete it.", edits=(Edit("delete", key),) if key == "ipex_config" else ()),
            place=place_of(config, key),
        )
        for key in gone
    )


@check(Severity.ERROR, source=LAUNCH, given=readable)
def config_key_of_the_command_line(config: Config) -> Answer:
    """The config has an option of `accelerate launch` that is no key of the file.

    Why: accelerate refuses a file with a key it does not know.
    More: The launcher takes this one from its command line only.

    Fix: delete the key, and give the option when launching.
    """
    bad = [key for key in unknown_keys(config) if key in _FLAGS]
    if not bad:
        return Ok("no option of the command line")
    return tuple(_flag(config, key) for key in bad)


def _flag(config: Config, key: str) -> Problem:
    value: Any = config.values[key]
    kind = {
        "multi_gpu": "MULTI_GPU",
        "use_fsdp": "FSDP",
        "use_deepspeed": "DEEPSPEED",
        "use_megatron_lm": "MEGATRON_LM",
    }
    chosen = kind.get(key)
    if chosen and (value is False or (value is True and config.distributed_type == chosen)):
        fix = Fix("Delete it: distributed_type says the same.", edits=(Edit("delete", key),))
    elif chosen:
        fix = Fix(f"Write distributed_type: {chosen} instead.")
    elif value in (None, False, "", 0):
        fix = Fix("Delete it: it asks for nothing.", edits=(Edit("delete", key),))
    else:
        switch = shell("accelerate launch --{:name} ...", key)
        given = shell("accelerate launch --{:name} {} ...", key, " ".join(str(value).split()))
        fix = Fix("Delete it, and give it when launching.", (switch if value is True else given,))
    return Problem(
        f"{key} is an option of accelerate launch, not a key of its file", fix=fix, place=place_of(config, key)
    )


@check(Severity.ERROR, source=ARGS, given=readable)
def config_key_outside_its_section(config: Config) -> Answer:
    """A key of a section stands at the top level.

    Why: At the top level accelerate refuses it, and the file with it.
    More: fsdp_sharding_strategy belongs under fsdp_config, zero_stage under deepspeed_config.

    Fix: indent it under its section.
    """
    bad = {key: section_of(key) for key in unknown_keys(config) if key not in (*_REMOVED, *_FLAGS)}
    found = [(key, section) for key, section in bad.items() if section]
    if not found:
        return Ok("every key stands where it belongs")
    return tuple(
        Problem(
            f"{key} belongs under {section}",
            fix=Fix(f"Move it under {section}:", edits=_move(config, key, section)),
            place=place_of(config, key),
        )
        for key, section in found
    )


def _move(config: Config, key: str, section: str) -> tuple[Edit, ...]:
    """Into the section the type asks for, where the key is not there yet."""
    inside = config.values.get(section)
    free = inside is None or (isinstance(inside, dict) and key not in inside)
    fits = _SECTION_OF_TYPE.get(config.distributed_type or "") == section or section in config.values
    return (Edit("rename", key, to=f"{section}.{key}"),) if free and fits else ()


@check(Severity.ERROR, source=ARGS)
def config_environment_unknown(config: Config) -> Answer:
    """compute_environment is not LOCAL_MACHINE.

    Why: accelerate takes anything else, SLURM and local_machine included, for a SageMaker config and complains about
    unknown keys that are perfectly good.

    Fix: write LOCAL_MACHINE, also on a Slurm cluster.
    """
    if not parsed(config):
        return Skip(BROKEN)
    value = config.values.get("compute_environment", "LOCAL_MACHINE")
    if value == "LOCAL_MACHINE":
        return Ok("LOCAL_MACHINE")
    cloud = value == "AMAZON_SAGEMAKER" or "ec2_instance_type" in config.values
    what = (
        "accelerate 1.15 cannot launch SageMaker configs, and mgpu does not judge them."
        if cloud
        else "accelerate takes the file for one of SageMaker, and refuses num_processes and the like."
    )
    return Problem(
        f"compute_environment: {value!r}, not LOCAL_MACHINE",
        what,
        Fix(
            "Write LOCAL_MACHINE for machines of your own." if cloud else "Write LOCAL_MACHINE, on a cluster as well.",
            edits=() if cloud else (Edit("set", "compute_environment", "LOCAL_MACHINE"),),
        ),
        place=place_of(config, "compute_environment"),
    )
