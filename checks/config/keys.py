"""Can the file be read, and does accelerate know its keys?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, Skip, check
from mgpu.snapshot import Config

from .._knowledge import counted
from ._file import ARGS, BROKEN, place_of, readable, suggestion

# Top-level keys of ClusterConfig (1.15), and those older versions wrote and the loader migrates.
_KEYS = (
    "compute_environment", "distributed_type", "mixed_precision", "use_cpu", "debug", "num_processes", "num_machines",
    "machine_rank", "gpu_ids", "main_process_ip", "main_process_port", "rdzv_backend", "same_network",
    "main_training_function", "enable_cpu_affinity", "downcast_bf16", "tpu_name", "tpu_zone", "tpu_use_cluster",
    "tpu_use_sudo", "command_file", "commands", "tpu_vm", "tpu_env", "fp8_config", "deepspeed_config", "fsdp_config",
    "parallelism_config", "megatron_lm_config", "mpirun_config", "dynamo_config", "fp16", "dynamo_backend",
)  # fmt: skip


@check(Severity.ERROR, source=ARGS)
def config_unreadable(config: Config) -> Answer:
    """The config file is not a YAML mapping.

    Why: accelerate stops with a Python error that names neither file nor line: tabs, merge-conflict markers, an empty
    file, a list, text that is not UTF-8.

    Fix: mend the line that is named.
    """
    bad = [fault for fault in config.faults if fault.fatal]
    if not bad:
        return Ok(f"{counted(len(config.values), 'key')} in {config.path}")
    return tuple(
        Problem(
            f"{config.path}: {fault.message}",
            "accelerate cannot load it.",
            Fix("Mend the file, or write a new one.", ("mgpu configure",)),
            place=Place(
                config.path, fault.mark.line if fault.mark else None, fault.mark.column if fault.mark else None
            ),
        )
        for fault in bad
    )


@check(Severity.WARNING, source="https://yaml.org/spec/1.2.2/#3213-node-comparison")
def config_key_twice(config: Config) -> Answer:
    """A key stands twice in the config.

    Why: the last one wins, in silence: half of the readers believe the other.

    Fix: delete one of them.
    """
    if not readable(config):
        return Skip(BROKEN)
    bad = [fault for fault in config.faults if fault.key]
    if not bad:
        return Ok("every key stands once")
    return tuple(
        Problem(
            f"{fault.key}: {fault.message}",
            "YAML keeps the last value and says nothing.",
            Fix("Delete the one you do not mean."),
            place=place_of(config, fault.key),
        )
        for fault in bad
    )


@check(Severity.ERROR, source=ARGS)
def config_key_unknown(config: Config) -> Answer:
    """The config has a key that accelerate does not know.

    Why: the loader refuses the whole file.

    Fix: correct the name, or delete the key.
    """
    if not readable(config):
        return Skip(BROKEN)
    if config.values.get("compute_environment", "LOCAL_MACHINE") != "LOCAL_MACHINE":
        return Skip("not a config for this machine")
    unknown = [key for key in config.values if key not in _KEYS]
    if not unknown:
        return Ok(f"{counted(len(config.values), 'key')}, all known")
    if config.loader is not None and config.loader.accepted:
        return Ok(f"accelerate {config.loader.accelerate} takes {', '.join(unknown)}")  # newer than this table
    return tuple(
        Problem(
            f"unknown key {key!r}{suggestion(key, _KEYS)}",
            "accelerate refuses a file with a key it does not know.",
            Fix("Correct the name or delete the line."),
            place=place_of(config, key),
        )
        for key in unknown
    )


@check(Severity.ERROR, source=ARGS)
def config_environment_unknown(config: Config) -> Answer:
    """compute_environment is not LOCAL_MACHINE.

    Why: accelerate takes anything else, SLURM and local_machine included, for a SageMaker config and complains about
    unknown keys that are perfectly good.

    Fix: write LOCAL_MACHINE, also on a Slurm cluster.
    """
    if not readable(config):
        return Skip(BROKEN)
    value = config.values.get("compute_environment", "LOCAL_MACHINE")
    if value == "LOCAL_MACHINE":
        return Ok("LOCAL_MACHINE")
    what = (
        "SageMaker configs are not mgpu's business"
        if value == "AMAZON_SAGEMAKER"
        else "accelerate reads it as SageMaker"
    )
    return Problem(
        f"compute_environment: {value!r}, not LOCAL_MACHINE",
        f"{what}.",
        Fix("Write LOCAL_MACHINE."),
        place=place_of(config, "compute_environment"),
    )
