"""Can accelerate read the DeepSpeed JSON file that the config names, and use it together with the config?"""

from __future__ import annotations

import re
from typing import Any

from mgpu.check import Answer, Edit, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Config, DeepSpeedFile

from ._config_file import PLUGINS, has_shell_variable, is_in_file, place_of
from ._deepspeed_values import IN_FILE, setting
from ._schema import (
    DEEPSPEED,
    NO_FILE,
    deepspeed_settings,
    entries,
    precision,
    readable_deepspeed_file,
    skip_without_deepspeed,
)
from ._spelling import yaml_text
from ._value_kinds import truth

_USAGE = "https://huggingface.co/docs/accelerate/usage_guides/deepspeed"
_FILE = "deepspeed_config_file"


def conflicts_with_file(config: Config) -> bool:
    """Whether the config has settings that accelerate rejects next to a DeepSpeed file."""
    return bool(_of_section(config)) or _top_level_precision(config) is not None


def _of_section(config: Config) -> dict[str, tuple[str, Any]]:
    """Return the settings of deepspeed_config that belong in the DeepSpeed file: their place in it, and the value."""
    values, dotted = deepspeed_settings(config), entries(config, DEEPSPEED)
    there = {key: where for key, where in IN_FILE.items() if key in values and is_in_file(config, dotted[key])}
    return {dotted[key]: (where, values[key]) for key, where in there.items()}


def _top_level_precision(config: Config) -> Any:
    """Return mixed_precision of the file; None if the command line of a job replaces it.

    accelerate counts it only without --mixed_precision (measured 1.15).
    """
    return None if "mixed_precision" in config.given else config.values.get("mixed_precision")


def precision_beside_file(config: Config) -> Fix | None:
    """Return how to remove the top-level mixed_precision, if the config also names a DeepSpeed file; else None.

    accelerate rejects it next to the file, even if it is 'no', unless the command line has --mixed_precision.
    """
    if deepspeed_settings(config).get(_FILE) in (None, "", "none") or config.values.get("mixed_precision") is None:
        return None
    same = _has_same_setting(config, "mixed_precision", config.values["mixed_precision"])
    text = "Or set mixed_precision in the DeepSpeed file (bf16 or fp16), and delete it here."
    return Fix(text, edits=(Edit("delete", "mixed_precision"),) if same else ())


@check(Severity.ERROR, source=_USAGE)
def config_deepspeed_file_conflict(config: Config) -> Answer:
    """The config names a DeepSpeed file and also has a setting that belongs in that file.

    Why: Every worker stops with ValueError; accelerate reads these settings only from the DeepSpeed file.
    More: "When using `deepspeed_config_file`, the following accelerate config variables will be ignored". The top-level
    mixed_precision is one of them, but --mixed_precision replaces it. If the command line is not known,
    config_options_missing reports it.

    Fix: Keep the setting in the file, and delete it here.
    """
    values = deepspeed_settings(config)
    if not values.get(_FILE) or values[_FILE] == "none":
        return Skip(NO_FILE)
    bad = _of_section(config)
    if config.given and (top_level := _top_level_precision(config)) is not None:  # the whole command line is known
        bad["mixed_precision"] = ("bf16 or fp16", top_level)
    if "mixed_precision" in values:
        bad[entries(config, DEEPSPEED)["mixed_precision"]] = ("bf16 or fp16", values["mixed_precision"])
    if not bad:
        return Ok(f"no setting next to {values[_FILE]}")
    return tuple(
        Problem(
            f"{at}: {yaml_text(value)} is not allowed together with deepspeed_config_file",
            fix=Fix(
                f"Set it in the DeepSpeed file ({where}), and delete it here.",
                edits=(Edit("delete", at),) if _has_same_setting(config, at, value) else (),
            ),
            evidence={"key": at, "in_the_file": where},
            place=place_of(config, at),
        )
        for at, (where, value) in bad.items()
    )


def _has_same_setting(config: Config, at: str, value: Any) -> bool:
    """Whether the file exists and has the same setting, so deleting the key loses nothing."""
    file = readable_deepspeed_file(config)
    if file is None:
        return False
    if at.endswith("mixed_precision"):
        on = {kind: truth(setting(file.values, f"{kind}.enabled")) for kind in ("bf16", "fp16")}
        wanted = precision(config)
        return on["bf16"] is (True if wanted == "bf16" else None) and on["fp16"] is (True if wanted == "fp16" else None)
    return value is not None and str(setting(file.values, IN_FILE[at.rpartition(".")[2]])).lower() == str(value).lower()


def _missing(config: Config) -> DeepSpeedFile | Skip | Ok:
    """The DeepSpeed file that does not exist here, or the answer without one."""
    file = config.deepspeed_file
    if file is None or _FILE not in deepspeed_settings(config):
        return Skip(NO_FILE)
    if file.exists or file.path.lstrip().startswith("{"):  # the text may be the JSON itself
        return Ok(f"{file.path} exists")
    return file


@check(Severity.WARNING, source=PLUGINS, given=skip_without_deepspeed)
def config_deepspeed_file_missing(config: Config) -> Answer:
    """The DeepSpeed file that the config names does not exist.

    Why: The path is relative to the folder where the launch is started; without the file, every worker stops.
    More: The path is not relative to the config: "Expected a string path to an existing deepspeed config".

    Fix: Start the launch from the right folder, or correct the path.
    More: Or write an absolute path.
    """
    file = _missing(config)
    if not isinstance(file, DeepSpeedFile):
        return file
    if has_shell_variable(file.path):
        return _variable_in_path(config, file)
    if file.elsewhere or file.start:
        return Skip(f"{file.path} is a path of another machine" if file.elsewhere else f"it is in {file.start}")
    at = entries(config, DEEPSPEED)[_FILE]
    if home := re.match(r"(~[\w.-]*)/(.+)", file.path, re.DOTALL):
        return Problem(
            f"{file.path} does not exist: accelerate looks for a folder named {home[1]}",
            "No shell reads this file, so ~ is not expanded to the home folder, and every worker stops.",
            Fix("Write the absolute path.", (shell("realpath {:tilde}/{:path}", home[1], home[2]),)),
            {_FILE: file.path},
            place=place_of(config, at),
        )
    if file.path.startswith("/"):
        cause, fix = "Without the file, every worker stops.", Fix(f"Correct the path{_instead(file)}.")
        return Problem(f"{file.path} does not exist", cause, fix, {_FILE: file.path}, place=place_of(config, at))
    return Problem(
        f"{file.path} does not exist in the current folder", evidence={_FILE: file.path}, place=place_of(config, at)
    )


def _variable_in_path(config: Config, file: DeepSpeedFile) -> Problem:
    """Return the finding for a path with a shell variable; --deepspeed_config_file replaces it."""
    return Problem(
        f"{_FILE}: {file.path} is used literally",
        "No shell reads this file, so the variable is not expanded, and every worker stops.",
        Fix(
            "Pass it on the command line, or write the path itself.",
            (shell('accelerate launch --deepspeed_config_file "{:expansion}" ...', file.path),),
        ),
        {_FILE: file.path},
        place=place_of(config, entries(config, DEEPSPEED)[_FILE]),
    )


def _instead(file: DeepSpeedFile) -> str:
    return f": there is {file.similar}" if file.similar else ""


@check(Severity.INFO, source=PLUGINS, given=skip_without_deepspeed)
def config_deepspeed_file_of_other_folder(config: Config) -> Answer:
    """The path of the DeepSpeed file in the config is relative to a folder other than the current one.

    Why: accelerate looks for the file in the folder where the launch is started, not in that of the config. If it is
    started here, every worker stops.

    Fix: Start the launch in that folder.
    """
    file = _missing(config)
    if not isinstance(file, DeepSpeedFile):
        return file
    if file.start is None:
        return Skip("no folder above the config has it either")
    return Problem(
        f"{file.path} is not here, but in {file.start}: start the launch there",
        fix=Fix(commands=(shell("cd {:path}", file.start),)),
        evidence={_FILE: file.path, "folder": file.start},
        place=place_of(config, entries(config, DEEPSPEED)[_FILE]),
    )


@check(Severity.INFO, source=PLUGINS, given=skip_without_deepspeed)
def config_deepspeed_file_elsewhere(config: Config) -> Answer:
    """The DeepSpeed file that the config names is a path of another machine.

    Why: It was not examined. If the file does not exist where the launch runs, every worker stops.

    Fix: Check it there, or write a path relative to the folder where the launch is started.
    """
    file = _missing(config)
    if not isinstance(file, DeepSpeedFile):
        return file
    if not file.elsewhere or has_shell_variable(file.path):
        return Skip("it is not a path of another machine")
    at = entries(config, DEEPSPEED)[_FILE]
    similar = f", but {file.similar} is" if file.similar else ""
    return Problem(
        f"{file.path} is not on this machine{similar}", evidence={_FILE: file.path}, place=place_of(config, at)
    )


@check(Severity.ERROR, source=PLUGINS)
def config_deepspeed_file_invalid(config: Config) -> Answer:
    """The DeepSpeed file that the config names is not valid.

    Why: Every worker stops before it builds the model.
    More: accelerate reads it as JSON and requires zero_optimization in it. It also tries to open an empty
    deepspeed_config_file.

    Fix: Correct the file.
    """
    values = deepspeed_settings(config)
    if _FILE not in values or values[_FILE] in (None, "none"):
        return Skip(NO_FILE)
    if _FILE in config.given:
        return Skip("the command line names the file")
    at = entries(config, DEEPSPEED)[_FILE]
    file = config.deepspeed_file
    if file is None:
        what, fix = "names no file", "Name the DeepSpeed JSON file, or delete the key."
    elif file.fault:
        what, fix = f"{file.path} cannot be read: {file.fault}", "Correct the file."
    elif (file.exists or file.start) and "zero_optimization" not in file.values:
        what = f"{file.path} has no zero_optimization"
        fix = 'Add "zero_optimization": {"stage": 2}, or the stage you want.'
    else:
        return Ok(f"{file.path} can be read") if file.exists or file.start else Skip("the file does not exist")
    return Problem(
        f"{_FILE}: {yaml_text(values[_FILE])} {what}" if file is None else what,
        fix=Fix(fix),
        place=place_of(config, at),
    )
