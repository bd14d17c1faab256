"""Does YAML read the values as intended: words that become false, octal numbers, text instead of booleans?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Edit, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.planning.requirements import GPU_TYPES
from mgpu.snapshot import Config

from ._config_file import (
    ARGS,
    BROKEN,
    NUMBERS,
    PREPARE,
    SWITCHES,
    as_integer,
    has_shell_variable,
    is_readable,
    place_of,
    skip_if_unreadable,
    source_text,
    started_by_torchrun,
    suggestion,
)
from ._schema import DYNAMO_BACKENDS
from ._value_kinds import truth

_YAML = "https://yaml.org/type/int.html"
_ENVIRONMENT = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/environment.py"


@check(Severity.INFO, source=ARGS, given=skip_if_unreadable, tags=("no_consequence",))
def config_type_is_false(config: Config) -> Answer:
    """distributed_type is an unquoted NO, which YAML reads as false.

    Why: accelerate continues with the boolean False instead of the type NO, and still starts one process.
    More: Other tools that read the type may fail. Without num_processes, accelerate rejects the file
    (config_options_missing).

    Fix: Write distributed_type: 'NO' with quotes.
    """
    if config.values.get("distributed_type") is not False:
        return Ok("the type is text")
    return Problem(
        f"distributed_type: {source_text(config, 'distributed_type')} without quotes means false in YAML",
        fix=Fix(edits=(Edit("set", "distributed_type", "NO"),)),
        place=place_of(config, "distributed_type"),
    )


@check(Severity.ERROR, source=PREPARE, given=skip_if_unreadable)
def config_backend_invalid(config: Config) -> Answer:
    """dynamo_backend is not a backend that accelerate supports.

    Why: The launcher stops before it starts anything.
    More: An unquoted `no` is false in YAML (AttributeError). Unknown names are rejected.

    Fix: Quote 'NO', or delete the key.
    """
    value = config.values.get("dynamo_backend")
    if config.distributed_type in ("DEEPSPEED", "XLA"):
        return Skip(f"{config.distributed_type} does not compile with it")
    if value is None or (isinstance(value, str) and value.upper() in DYNAMO_BACKENDS):
        return Ok(f"{value or 'none'}")
    edits = (Edit("set", "dynamo_backend", "NO"),) if value is False else ()
    hint = " without quotes means false in YAML" if value is False else suggestion(str(value).upper(), DYNAMO_BACKENDS)
    return Problem(
        f"dynamo_backend: {source_text(config, 'dynamo_backend')}{hint}",
        fix=Fix("Write 'NO' with quotes." if value is False else "Write 'NO', INDUCTOR or EAGER.", edits=edits),
        place=place_of(config, "dynamo_backend"),
    )


@check(Severity.WARNING, source=_YAML, given=skip_if_unreadable)
def config_number_misread(config: Config) -> Answer:
    """YAML reads a number differently from how it is written.

    Why: In YAML 1.1, a leading 0 means octal and a colon means base 60.
    More: 010 is 8, and 1:30 is 90.

    Fix: Write the number in plain decimal.
    """
    bad = [key for key in NUMBERS if _is_misread(config, key)]
    if not bad:
        return Ok("numbers are plain decimals")
    return tuple(
        Problem(
            f"{key}: {config.scalars[key].text} means {config.values[key]} in YAML",
            fix=Fix(f"Write {config.values[key]}, or the number you mean, without a leading 0."),
            place=place_of(config, key),
        )
        for key in bad
    )


def _is_misread(config: Config, key: str) -> bool:
    scalar, value = config.scalars.get(key), config.values.get(key)
    if scalar is None or scalar.quoted or type(value) is not int:
        return False
    octal = re.fullmatch(r"[-+]?0[0-7_]{1,20}", scalar.text) is not None and int(scalar.text.replace("_", "")) != value
    return octal or ":" in scalar.text


@check(Severity.INFO, source=PREPARE, given=skip_if_unreadable)
def config_number_in_quotes(config: Config) -> Answer:
    """A number is in quotes, which works only in some configs.

    Why: accelerate accepts it in this config, but not in every other.
    More: Here the launcher only passes it on as text. With a second node or another type, the same line stops it.

    Fix: Remove the quotes.
    """
    harmless = {"machine_rank": True, "num_processes": config.num_machines == 1 and started_by_torchrun(config)}
    bad = [
        key
        for key, works in harmless.items()
        if works and isinstance(config.values.get(key), str) and as_integer(config.values[key]) is not None
    ]
    if not bad:
        return Ok("numbers are not in quotes")
    return tuple(
        Problem(
            f"{key}: {source_text(config, key)} is text",
            fix=Fix(edits=(Edit("set", key, as_integer(config.values[key])),)),
            place=place_of(config, key),
        )
        for key in bad
    )


@check(Severity.WARNING, source=ARGS, given=skip_if_unreadable)
def config_boolean_is_text(config: Config) -> Answer:
    """A yes/no key is set to text.

    Why: Any text counts as yes.
    More: debug: "false" turns debug mode on.

    Fix: Write true or false, without quotes.
    """
    bad = [key for key in SWITCHES if isinstance(config.values.get(key), str) and not _stops_launcher(config, key)]
    bad = [key for key in bad if not has_shell_variable(config.values[key])]
    if not bad:
        return Ok("yes/no keys are true or false")
    return tuple(
        Problem(
            f"{key}: {source_text(config, key)} is text",
            fix=_boolean_fix(config, key),
            place=place_of(config, key),
        )
        for key in bad
    )


def _boolean_fix(config: Config, key: str) -> Fix:
    meant = truth(str(config.values[key]).strip().lower())
    if key == "use_cpu" and config.distributed_type in GPU_TYPES:
        meant_text = "" if meant is False else "Write false. The ranks of this type use the GPUs."
        return Fix(meant_text, edits=(Edit("set", key, False),) if meant is False else ())
    return Fix(edits=(Edit("set", key, meant),) if meant is not None else ())


def _stops_launcher(config: Config, key: str) -> bool:
    """Whether the value stops the launcher, which parses use_cpu as text only if it does not start torchrun."""
    value = config.values.get(key)
    if key != "use_cpu" or key not in config.values or started_by_torchrun(config):
        return False
    return truth(value) is None


@check(Severity.ERROR, source=_ENVIRONMENT)
def config_cpu_switch_invalid(config: Config) -> Answer:
    """use_cpu is neither true nor false.

    Why: accelerate stops with "invalid truth value".
    More: With the types NO and MULTI_CPU, the launcher parses it as text.

    Fix: Write true or false.
    """
    if not is_readable(config) or config.distributed_type is None:
        return Skip(BROKEN if not is_readable(config) else "the type is not known")
    if not _stops_launcher(config, "use_cpu"):
        return Ok("use_cpu is not set, or true or false")
    return Problem(
        f"use_cpu: {source_text(config, 'use_cpu')} is neither true nor false", place=place_of(config, "use_cpu")
    )


@check(Severity.ERROR, source=ARGS, given=skip_if_unreadable)
def config_variable_not_expanded(config: Config) -> Answer:
    """A value contains a shell variable, which is not expanded.

    Why: No shell reads this file, so the variable is not expanded.
    More: The ranks look up a host named $MASTER_ADDR, or stop at ${SLURM_PROCID}.

    Fix: Delete the line, and pass the value on the command line.
    """
    bad = [
        key for key in config.values if has_shell_variable(config.values[key]) and not _unused_key_problem(config, key)
    ]
    if not bad:
        return Ok("no value contains a shell variable")
    return tuple(
        Problem(
            f"{key}: {source_text(config, key)} is used literally",
            fix=commands(shell('accelerate launch --{:name} "{:expansion}" ...', key, str(config.values[key]))),
            place=place_of(config, key),
        )
        for key in bad
    )


def _unused_key_problem(config: Config, key: str) -> bool:
    """Whether the value is not used; another check then reports that it has no effect."""
    if has_shell_variable(config.values.get("num_machines")):
        return key == "rdzv_backend"
    if key == "machine_rank":
        return config.num_machines == 1 or not started_by_torchrun(config)
    return key == "rdzv_backend" or (key == "main_process_ip" and config.num_machines == 1)
