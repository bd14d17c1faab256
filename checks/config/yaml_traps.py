"""Does YAML read what was written: words that become false, odd numbers, text where a switch is meant?"""

from __future__ import annotations

import re
from typing import Any

from mgpu.check import Answer, Edit, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Config

from ._config_file import (
    ARGS,
    BROKEN,
    PREPARE,
    as_whole,
    expands,
    is_readable,
    place_of,
    readable,
    started_by_torchrun,
    suggestion,
    written,
)
from ._schema import DYNAMO_BACKENDS
from ._value_kinds import truth

_YAML = "https://yaml.org/type/int.html"
_ENVIRONMENT = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/environment.py"
_NUMBERS = ("num_processes", "num_machines", "machine_rank", "main_process_port")
_SWITCHES = ("debug", "use_cpu", "same_network", "enable_cpu_affinity", "tpu_use_cluster", "tpu_use_sudo")


@check(Severity.WARNING, source=ARGS, given=readable)
def config_type_is_false(config: Config) -> Answer:
    """distributed_type is an unquoted NO, which YAML reads as false.

    Why: YAML has read a truth value, and accelerate goes on with False.
    More: It happens to start one process; without num_processes it refuses the file, and tools that read the type
    stumble.

    Fix: Write distributed_type: 'NO' with quotes.
    """
    if config.values.get("distributed_type") is not False:
        return Ok("the type is text")
    return Problem(
        f"distributed_type: {written(config, 'distributed_type')} without quotes is false",
        fix=Fix(edits=(Edit("set", "distributed_type", "NO"),)),
        place=place_of(config, "distributed_type"),
    )


@check(Severity.ERROR, source=PREPARE, given=readable)
def config_backend_invalid(config: Config) -> Answer:
    """dynamo_backend is not one that accelerate knows.

    Why: The launcher stops before it starts anything.
    More: An unquoted `no` is false in YAML (AttributeError); other words are refused.

    Fix: quote 'NO', or delete the key.
    """
    value = config.values.get("dynamo_backend")
    if config.distributed_type in ("DEEPSPEED", "XLA"):
        return Skip(f"{config.distributed_type} does not compile with it")
    if value is None or (isinstance(value, str) and value.upper() in DYNAMO_BACKENDS):
        return Ok(f"{value or 'none'}")
    edits = (Edit("set", "dynamo_backend", "NO"),) if value is False else ()
    hint = " without quotes is false" if value is False else suggestion(str(value).upper(), DYNAMO_BACKENDS)
    return Problem(
        f"dynamo_backend: {written(config, 'dynamo_backend')}{hint}",
        fix=Fix("Write 'NO' with quotes." if value is False else "Write 'NO', INDUCTOR or EAGER.", edits=edits),
        place=place_of(config, "dynamo_backend"),
    )


@check(Severity.WARNING, source=_YAML, given=readable)
def config_number_misread(config: Config) -> Answer:
    """A number is written so that YAML reads another one.

    Why: A leading 0 means octal, a colon means base 60.
    More: 010 is 8 and 1:30 is 90: YAML 1.1.

    Fix: write the number plainly.
    """
    bad = [key for key in _NUMBERS if _misread(config, key)]
    if not bad:
        return Ok("numbers are written plainly")
    return tuple(
        Problem(
            f"{key}: {config.scalars[key].text} is {config.values[key]} for YAML",
            fix=Fix(f"Write {config.values[key]}, or the number you mean, without 0 in front."),
            place=place_of(config, key),
        )
        for key in bad
    )


def _misread(config: Config, key: str) -> bool:
    scalar, value = config.scalars.get(key), config.values.get(key)
    if scalar is None or scalar.quoted or type(value) is not int:
        return False
    octal = re.fullmatch(r"[-+]?0[0-7_]{1,20}", scalar.text) is not None and int(scalar.text.replace("_", "")) != value
    return octal or ":" in scalar.text


@check(Severity.INFO, source=PREPARE, given=readable)
def config_number_in_quotes(config: Config) -> Answer:
    """A number stands in quotes, and accelerate takes it all the same.

    Why: accelerate takes it here; elsewhere it would not.
    More: The launcher makes text of it anyway. With a second machine, or another type, the same line stops it.

    Fix: Take the quotes away.
    """
    harmless = {"machine_rank": True, "num_processes": config.num_machines == 1 and started_by_torchrun(config)}
    bad = [
        key
        for key, works in harmless.items()
        if works and isinstance(config.values.get(key), str) and as_whole(config.values[key]) is not None
    ]
    if not bad:
        return Ok("numbers stand without quotes")
    return tuple(
        Problem(
            f"{key}: {written(config, key)} is text",
            fix=Fix(edits=(Edit("set", key, as_whole(config.values[key])),)),
            place=place_of(config, key),
        )
        for key in bad
    )


@check(Severity.WARNING, source=ARGS, given=readable)
def config_boolean_is_text(config: Config) -> Answer:
    """A yes/no key holds text.

    Why: Text counts as yes, whatever it says.
    More: debug: "false" switches debugging on.

    Fix: Write true or false, without quotes.
    """
    bad = [key for key in _SWITCHES if isinstance(config.values.get(key), str) and not _stops(config, key)]
    bad = [key for key in bad if not expands(config.values[key])]
    if not bad:
        return Ok("yes/no keys hold yes or no")
    return tuple(
        Problem(
            f"{key}: {written(config, key)} is text",
            fix=Fix(edits=_switch(key, config.values[key])),
            place=place_of(config, key),
        )
        for key in bad
    )


def _switch(key: str, value: Any) -> tuple[Edit, ...]:
    word = value.strip().lower() if isinstance(value, str) else ""
    return (Edit("set", key, truth(word)),) if truth(word) is not None else ()


def _stops(config: Config, key: str) -> bool:
    """Whether the value stops the launcher: only for one process on this machine does it look at use_cpu as a word."""
    value = config.values.get(key)
    if key != "use_cpu" or key not in config.values or started_by_torchrun(config):
        return False
    return truth(value) is None


@check(Severity.ERROR, source=_ENVIRONMENT)
def config_cpu_switch_invalid(config: Config) -> Answer:
    """use_cpu holds something that is neither yes nor no.

    Why: accelerate stops: invalid truth value.
    More: With the types NO and MULTI_CPU the launcher makes a word of it.

    Fix: Write true or false.
    """
    if not is_readable(config) or config.distributed_type is None:
        return Skip(BROKEN if not is_readable(config) else "the type is not known")
    if not _stops(config, "use_cpu"):
        return Ok("use_cpu is not given, or yes or no")
    return Problem(
        f"use_cpu: {written(config, 'use_cpu')} is neither true nor false", place=place_of(config, "use_cpu")
    )


@check(Severity.ERROR, source=ARGS, given=readable)
def config_variable_not_expanded(config: Config) -> Answer:
    """A value waits for a shell that never sees the file.

    Why: No shell reads this file, so nobody expands the variable.
    More: The ranks look for a host called $MASTER_ADDR, or stop at ${SLURM_PROCID}.

    Fix: Delete the line; give the value when launching.
    """
    bad = [key for key in config.values if expands(config.values[key]) and not _unused(config, key)]
    if not bad:
        return Ok("no value waits for a shell")
    return tuple(
        Problem(
            f"{key}: {written(config, key)} is taken as it stands",
            fix=commands(shell('accelerate launch --{:name} "{:expansion}" ...', key, str(config.values[key]))),
            place=place_of(config, key),
        )
        for key in bad
    )


def _unused(config: Config, key: str) -> bool:
    """Where nobody reads the value, another check says that it has no effect."""
    if expands(config.values.get("num_machines")):
        return key == "rdzv_backend"
    if key == "machine_rank":
        return config.num_machines == 1 or not started_by_torchrun(config)
    return key == "rdzv_backend" or (key == "main_process_ip" and config.num_machines == 1)
