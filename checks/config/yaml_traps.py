"""Does YAML read what was written: words that become false, odd numbers, text where a switch is meant?"""

from __future__ import annotations

import re
from typing import Any

from mgpu.check import Answer, Edit, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Config

from ._file import (
    ARGS,
    BROKEN,
    PREPARE,
    as_whole,
    expands,
    place_of,
    readable,
    started_by_torchrun,
    suggestion,
    written,
)

_YAML = "https://yaml.org/type/int.html"
_ENVIRONMENT = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/environment.py"
_NUMBERS = ("num_processes", "num_machines", "machine_rank", "main_process_port")
_SWITCHES = ("debug", "use_cpu", "same_network", "enable_cpu_affinity", "tpu_use_cluster", "tpu_use_sudo")
# accelerate.utils.environment str_to_bool
_YES = ("y", "yes", "t", "true", "on", "1")
_NO = ("n", "no", "f", "false", "off", "0")

# fmt: off
# accelerate.utils.DynamoBackend (1.15)
_BACKENDS = (
    "NO", "EAGER", "AOT_EAGER", "INDUCTOR", "AOT_TS_NVFUSER", "NVPRIMS_NVFUSER", "CUDAGRAPHS", "OFI", "FX2TRT",
    "ONNXRT", "TENSORRT", "AOT_TORCHXLA_TRACE_ONCE", "TORCHXLA_TRACE_ONCE", "TVM", "HPU_BACKEND", "NEURON",
)
# fmt: on


@check(Severity.WARNING, source=ARGS)
def config_type_is_false(config: Config) -> Answer:
    """distributed_type is an unquoted NO, which YAML reads as false.

    Why: accelerate goes on with False instead of a type. It happens to start one process; without num_processes it
    refuses the file, and tools that read the type stumble.

    Fix: 'NO' in quotes.
    """
    if not readable(config):
        return Skip(BROKEN)
    if config.values.get("distributed_type") is not False:
        return Ok("the type is text")
    return Problem(
        f"distributed_type: {written(config, 'distributed_type')} without quotes is false",
        "YAML has read a truth value, and accelerate goes on with False.",
        Fix("Write distributed_type: 'NO' with quotes.", edits=(Edit("set", "distributed_type", "NO"),)),
        place=place_of(config, "distributed_type"),
    )


@check(Severity.ERROR, source=PREPARE)
def config_backend_invalid(config: Config) -> Answer:
    """dynamo_backend is not one that accelerate knows.

    Why: an unquoted `no` is false in YAML, and the launcher stops with AttributeError; other words are refused.

    Fix: quote 'NO', or delete the key.
    """
    if not readable(config):
        return Skip(BROKEN)
    value = config.values.get("dynamo_backend")
    if config.distributed_type in ("DEEPSPEED", "XLA"):
        return Skip(f"{config.distributed_type} does not compile with it")
    if value is None or (isinstance(value, str) and value.upper() in _BACKENDS):
        return Ok(f"{value or 'none'}")
    edits = (Edit("set", "dynamo_backend", "NO"),) if value is False else ()
    hint = " without quotes is false" if value is False else suggestion(str(value).upper(), _BACKENDS)
    return Problem(
        f"dynamo_backend: {written(config, 'dynamo_backend')}{hint}",
        "The launcher stops before it starts anything.",
        Fix("Write 'NO' with quotes." if value is False else "Write 'NO', INDUCTOR or EAGER.", edits=edits),
        place=place_of(config, "dynamo_backend"),
    )


@check(Severity.WARNING, source=_YAML)
def config_number_misread(config: Config) -> Answer:
    """A number is written so that YAML reads another one.

    Why: YAML 1.1 takes a leading 0 for octal (010 is 8) and a colon for base 60 (1:30 is 90).

    Fix: write the number plainly.
    """
    if not readable(config):
        return Skip(BROKEN)
    bad = [key for key in _NUMBERS if _misread(config, key)]
    if not bad:
        return Ok("numbers are written plainly")
    return tuple(
        Problem(
            f"{key}: {config.scalars[key].text} is {config.values[key]} for YAML",
            "A leading 0 means octal, a colon means base 60.",
            Fix(f"Write {config.values[key]}, or the number you mean, without 0 in front."),
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


@check(Severity.INFO, source=PREPARE)
def config_number_in_quotes(config: Config) -> Answer:
    """A number stands in quotes, and accelerate takes it all the same.

    Why: here the launcher makes text of it anyway. With a second machine, or another type, the same line stops it.

    Fix: take the quotes away.
    """
    if not readable(config):
        return Skip(BROKEN)
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
            "accelerate takes it here; elsewhere it would not.",
            Fix("Take the quotes away.", edits=(Edit("set", key, as_whole(config.values[key])),)),
            place=place_of(config, key),
        )
        for key in bad
    )


@check(Severity.WARNING, source=ARGS)
def config_boolean_is_text(config: Config) -> Answer:
    """A yes/no key holds text.

    Why: any text counts as yes: debug: "false" switches debugging on.

    Fix: true or false without quotes.
    """
    if not readable(config):
        return Skip(BROKEN)
    bad = [key for key in _SWITCHES if isinstance(config.values.get(key), str) and not _stops(config, key)]
    bad = [key for key in bad if not expands(config.values[key])]
    if not bad:
        return Ok("yes/no keys hold yes or no")
    return tuple(
        Problem(
            f"{key}: {written(config, key)} is text",
            "Text counts as yes, whatever it says.",
            Fix("Write true or false, without quotes.", edits=_switch(key, config.values[key])),
            place=place_of(config, key),
        )
        for key in bad
    )


def _switch(key: str, value: Any) -> tuple[Edit, ...]:
    word = value.strip().lower() if isinstance(value, str) else ""
    return (Edit("set", key, word in _YES),) if word in (*_YES, *_NO) else ()


def _stops(config: Config, key: str) -> bool:
    """Whether the value stops the launcher: only for one process on this machine does it look at use_cpu as a word."""
    value = config.values.get(key)
    if key != "use_cpu" or key not in config.values or started_by_torchrun(config):
        return False
    return str(value).lower() not in (*_YES, *_NO)


@check(Severity.ERROR, source=_ENVIRONMENT)
def config_cpu_switch_invalid(config: Config) -> Answer:
    """use_cpu holds something that is neither yes nor no.

    Why: with the types NO and MULTI_CPU the launcher makes a word of it and stops with "invalid truth value".

    Fix: true or false.
    """
    if not readable(config) or config.distributed_type is None:
        return Skip(BROKEN if not readable(config) else "the type is not known")
    if not _stops(config, "use_cpu"):
        return Ok("use_cpu is not given, or yes or no")
    return Problem(
        f"use_cpu: {written(config, 'use_cpu')} is neither true nor false",
        "accelerate stops: invalid truth value.",
        Fix("Write true or false."),
        place=place_of(config, "use_cpu"),
    )


@check(Severity.ERROR, source=ARGS)
def config_variable_not_expanded(config: Config) -> Answer:
    """A value waits for a shell that never sees the file.

    Why: neither YAML nor accelerate puts the value of a variable in place of $MASTER_ADDR or ${SLURM_PROCID}: the ranks
    look for a host of that very name.

    Fix: leave the key out of the file and give the value on the command line, where the shell expands it.
    """
    if not readable(config):
        return Skip(BROKEN)
    bad = [key for key in config.values if expands(config.values[key]) and not _unused(config, key)]
    if not bad:
        return Ok("no value waits for a shell")
    return tuple(
        Problem(
            f"{key}: {written(config, key)} is taken as it stands",
            "No shell reads this file, so nobody expands the variable.",
            Fix(
                "Delete the line; give the value when launching.",
                (shell('accelerate launch --{:name} "{:expansion}" ...', key, str(config.values[key])),),
            ),
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
