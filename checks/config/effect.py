"""Does every setting have an effect, and does accelerate accept the file?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mgpu.check import Answer, Edit, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Config
from mgpu.text import listed

from ._config_file import BROKEN, LAUNCH, PREPARE, TYPES, is_readable, place_of, skip_if_unreadable, source_text

# Keys that the launcher reads from the command line only (launch.py: the parser's default is not None), with the values
# that change nothing. same_network has its own check.
_NEVER_APPLIED: dict[str, tuple[Any, ...]] = {
    "rdzv_backend": ("static", ""),
    "enable_cpu_affinity": (False,),
    "downcast_bf16": (False, "no", "NO", "false", "False", ""),
    "tpu_use_sudo": (False, "no", "NO", "false", "False", ""),
}
_BY_MGPU = ("rdzv_backend", "enable_cpu_affinity")  # mgpu launch passes these as flags
# torch.distributed.elastic.rendezvous.registry (2.13)
_RENDEZVOUS = ("static", "c10d", "etcd", "etcd-v2")
_OF_TPUS = ("tpu_name", "tpu_zone", "tpu_use_cluster", "tpu_vm", "tpu_env", "command_file", "commands")


@check(Severity.WARNING, source=LAUNCH, given=skip_if_unreadable)
def config_key_never_applied(config: Config) -> Answer:
    """The config sets a key that accelerate never applies from a file.

    Why: accelerate launch reads it from the command line only.
    More: accelerate config writes it to the file anyway.

    Fix: Pass it on the command line. mgpu launch does that for rdzv_backend and enable_cpu_affinity.
    """
    values: Mapping[str, Any] = config.values
    of_file = values.keys() - set(config.given)  # the others are those of the command line
    bad = [key for key, nothing in _NEVER_APPLIED.items() if key in of_file and values[key] not in (*nothing, None)]
    if not bad:
        return Ok("every key that is set has an effect")
    return tuple(
        Problem(
            f"{key}: {source_text(config, key)} has no effect in a file",
            fix=_command_line_fix(config, key),
            place=place_of(config, key),
        )
        for key in bad
    )


def _command_line_fix(config: Config, key: str) -> Fix:
    value = config.values[key]
    of_tpus = key not in _BY_MGPU and config.distributed_type in TYPES and config.distributed_type != "XLA"
    unknown = key == "rdzv_backend" and value not in _RENDEZVOUS
    if of_tpus or unknown:
        why = f"torch supports {', '.join(_RENDEZVOUS)}" if unknown else "it is for TPUs"
        return Fix(f"Delete the line: {why}.", edits=(Edit("delete", key),))
    note = (
        "mgpu launch passes it; for accelerate launch, pass it on the command line."
        if key in _BY_MGPU
        else "Pass it on the command line."
    )
    if key != "rdzv_backend":  # the others are switches
        return Fix(note, (shell("accelerate launch --{:name} ...", key),))
    return Fix(note, (shell("accelerate launch --{:name} {} ...", key, str(value)),))


@check(Severity.INFO, source=PREPARE, given=skip_if_unreadable, tags=("no_consequence",))
def config_same_network_unread(config: Config) -> Answer:
    """The config sets same_network: true, which accelerate does not read from a file.

    Why: The ranks rendezvous at main_process_ip:main_process_port either way.
    More: With it, torchrun gets the two as --master_addr and --master_port, without it as --rdzv_endpoint. For a static
    rendezvous these are the same.

    Fix: Leave it, or delete it.
    """
    if config.num_machines == 1 or config.values.get("same_network") is not True:
        return Ok("one node, or same_network is not set")
    return Problem("same_network: true is not read from a file (harmless)", place=place_of(config, "same_network"))


@check(Severity.INFO, source=LAUNCH, tags=("no_consequence",))
def config_tpu_keys_left(config: Config) -> Answer:
    """The config has TPU settings, but its type is not XLA.

    Why: Only distributed_type XLA reads them.

    Fix: Delete it.
    """
    if not is_readable(config) or config.distributed_type not in TYPES:
        return Skip(BROKEN if not is_readable(config) else "the type is not known")
    bad = [key for key in _OF_TPUS if config.values.get(key) not in (None, False, "", [], {}, "no", "false", "None")]
    if config.distributed_type == "XLA" or not bad:
        return Ok("no unused TPU settings")
    return tuple(
        Problem(
            f"{key} is for TPUs, and has no effect with {config.distributed_type}",
            fix=Fix(edits=(Edit("delete", key),)),
            place=place_of(config, key),
        )
        for key in bad
    )


@check(Severity.INFO, source="https://huggingface.co/docs/accelerate/usage_guides/debug", given=skip_if_unreadable)
def config_debug_left_on(config: Config) -> Answer:
    """Debug mode is on.

    Why: Before each of accelerate's own gather, reduce and broadcast, all ranks exchange their tensor shapes.
    More: That reports a shape mismatch instead of hanging, but slows them down. It does not affect what DDP, FSDP and
    DeepSpeed exchange.

    Fix: Write debug: false for production runs.
    """
    if config.values.get("debug") is not True:
        return Ok("debug is off")
    return Problem("debug: true slows accelerate's own collectives", place=place_of(config, "debug"))


# accelerate 1.15's error for a value that YAML did not read as text, and the key it is about (launch.py,
# utils/launch.py).
_WORDS_OF = {
    "'bool' object has no attribute 'lower'": "mixed_precision",
    "'bool' object has no attribute 'upper'": "dynamo_backend",
    "object has no attribute 'split'": "gpu_ids",
}
# fmt: off
# Checks that can explain why accelerate rejects a config.
_REFUSED_FOR = (
    "config_unreadable", "config_key_unknown", "config_environment_unknown", "config_type_invalid",
    "config_processes_invalid", "config_machines_invalid", "config_port_invalid", "config_gpu_ids_invalid",
    "config_precision_invalid", "config_ranks_uneven", "config_options_missing", "config_key_removed",
    "config_key_of_the_command_line", "config_key_outside_its_section", "config_gpu_ids_not_text",
    "config_gpu_ids_single", "config_backend_invalid", "config_cpu_switch_invalid", "config_master_invalid",
    "config_machine_rank_invalid", "config_variable_not_expanded",
    "config_section_unreadable", "config_section_value_invalid", "config_fsdp_loading_conflict",
    "config_fsdp_setting_unsupported", "config_deepspeed_file_conflict", "config_deepspeed_file_invalid",
    "config_parallel_kind_invalid", "config_fp8_library_missing", "config_deepspeed_not_installed",
)
# fmt: on


@check(Severity.ERROR, source=LAUNCH, because_of=_REFUSED_FOR)
def config_refused_by_accelerate(config: Config) -> Answer:
    """The installed accelerate rejects the config.

    Why: accelerate launch would stop with this error.
    More: mgpu ran accelerate's own loader and launch validation in a child process. The error message names the key.

    Fix: Change the key it names, or write a new config.
    """
    if config.loader is None:
        return Skip("accelerate could not be run" if is_readable(config) else BROKEN)
    if config.loader.accepted:
        given = f" with {listed(f'--{name}' for name in config.loader.options)}" if config.loader.options else ""
        return Ok(f"accelerate {config.loader.accelerate} accepts it{given}")
    return Problem(
        f"accelerate {config.loader.accelerate}: {config.loader.error}",
        fix=commands("mgpu configure --yes"),
        evidence={"error": config.loader.error},
        place=place_of(config, _failing_key(config)),
    )


def _failing_key(config: Config) -> str | None:
    """Return the key whose value made accelerate fail, if its message names an attribute instead."""
    error = (config.loader.error if config.loader else None) or ""
    return next((key for words, key in _WORDS_OF.items() if words in error and key in config.values), None)
