"""Does every setting do what it says, and does accelerate take the file?"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, Skip, check
from mgpu.snapshot import Config

from ._file import ARGS, BROKEN, LAUNCH, place_of, readable

# Keys the launcher takes from the command line only (launch.py: the parser's default is not None), with the value that
# asks for nothing.
_NEVER_APPLIED: dict[str, tuple[Any, ...]] = {
    "rdzv_backend": ("static",),
    "enable_cpu_affinity": (False,),
    "downcast_bf16": (False, "no", "NO"),
}
_BOOLEANS = ("debug", "use_cpu", "same_network", "enable_cpu_affinity", "tpu_use_cluster", "tpu_use_sudo")


@check(Severity.ERROR, source=ARGS)
def config_boolean_is_text(config: Config) -> Answer:
    """A yes/no key holds text.

    Why: any text counts as yes: debug: "false" switches debugging on.

    Fix: true or false without quotes.
    """
    if not readable(config):
        return Skip(BROKEN)
    bad = {key: config.values[key] for key in _BOOLEANS if isinstance(config.values.get(key), str)}
    if not bad:
        return Ok("yes/no keys hold yes or no")
    return tuple(
        Problem(
            f"{key}: {value!r} is text",
            "Text counts as yes, whatever it says.",
            Fix("Write true or false, without quotes."),
            place=place_of(config, key),
        )
        for key, value in bad.items()
    )


@check(Severity.WARNING, source=LAUNCH)
def config_key_never_applied(config: Config) -> Answer:
    """The config sets a key that accelerate never applies from a file.

    Why: the launcher takes these from the command line only, although its own wizard asks for them and writes the
    answers.

    Fix: give it on the command line.
    """
    if not readable(config):
        return Skip(BROKEN)
    values: Mapping[str, Any] = config.values
    bad = [key for key, nothing in _NEVER_APPLIED.items() if key in values and values[key] not in (*nothing, None)]
    if not bad:
        return Ok("every key that is set has an effect")
    return tuple(
        Problem(
            f"{key}: {values[key]!r} has no effect in a file",
            "accelerate launch reads it from the command line only.",
            Fix(
                "Give it there.",
                (f"accelerate launch --{key}{'' if values[key] is True else f' {shlex.quote(str(values[key]))}'} ...",),
            ),
            place=place_of(config, key),
        )
        for key in bad
    )


@check(Severity.WARNING, source=LAUNCH)
def config_section_ignored(config: Config) -> Answer:
    """The config has a section for another type than it names.

    Why: fsdp_config counts only with distributed_type FSDP, deepspeed_config with DEEPSPEED. With MULTI_GPU the file
    trains plain DDP, whatever the section says.

    Fix: change the type, or delete the section.
    """
    if not readable(config) or config.distributed_type is None:
        return Skip("the type is not known")
    sections = {"fsdp_config": "FSDP", "deepspeed_config": "DEEPSPEED", "megatron_lm_config": "MEGATRON_LM"}
    bad = [key for key, kind in sections.items() if config.values.get(key) and config.distributed_type != kind]
    if not bad:
        return Ok("every section belongs to the type")
    return tuple(
        Problem(
            f"{key} is ignored with distributed_type {config.distributed_type}",
            f"It counts only with {sections[key]}.",
            Fix(f"Write distributed_type: {sections[key]}, or delete the section."),
            place=place_of(config, key),
        )
        for key in bad
    )


@check(
    Severity.ERROR,
    source=LAUNCH,
    because_of=(
        "config_unreadable", "config_key_unknown", "config_environment_unknown", "config_type_invalid",
        "config_processes_invalid", "config_machines_invalid", "config_port_invalid", "config_gpu_ids_invalid",
        "config_precision_invalid", "config_ranks_uneven", "config_master_missing",
    ),
)  # fmt: skip
def config_refused_by_accelerate(config: Config) -> Answer:
    """The installed accelerate does not take the config.

    Why: its own loader and launch validation were asked, in a child process; the launch would end with this error.

    Fix: accelerate's words name the key.
    """
    if config.loader is None:
        return Skip("accelerate could not be asked" if readable(config) else BROKEN)
    if config.loader.accepted:
        return Ok(f"accelerate {config.loader.accelerate} takes it")
    return Problem(
        f"accelerate {config.loader.accelerate}: {config.loader.error}",
        "accelerate launch would end with this error.",
        Fix("Change what it names, or write a new config.", ("mgpu configure --yes",)),
        {"error": config.loader.error},
        place=Place(config.path),
    )
