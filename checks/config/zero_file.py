"""Is the DeepSpeed JSON file consistent with the config that names it, and with itself?"""

from __future__ import annotations

import re
from typing import Any

from mgpu.check import Answer, Edit, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Config, DeepSpeedFile
from mgpu.text import counted

from ._config_file import PLUGINS, is_in_file, place_of
from ._deepspeed_values import IN_FILE, autos, batch_sizes, is_parallel, misspelled, precisions, setting, unfilled
from ._schema import DEEPSPEED, PARALLELISM, deepspeed_settings, entries, precision, settings, skip_without_deepspeed
from ._spelling import yaml_text
from ._value_kinds import truth

_USAGE = "https://huggingface.co/docs/accelerate/usage_guides/deepspeed"
_JSON = "https://www.deepspeed.ai/docs/config-json/"
_NO_FILE = "the config names no DeepSpeed file"
_UNREAD = "the DeepSpeed file could not be read"
_FILE = "deepspeed_config_file"


def _file(config: Config) -> DeepSpeedFile | None:
    """Return the file, if the config uses it and it could be parsed; not one that a job's command line names."""
    found = config.deepspeed_file if _FILE in deepspeed_settings(config) else None
    return found if found is not None and found.exists and found.fault is None else None


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


@check(Severity.ERROR, source=_USAGE)
def config_deepspeed_file_conflict(config: Config) -> Answer:
    """The config names a DeepSpeed file and also has a setting that belongs in that file.

    Why: Every worker stops with ValueError; accelerate reads these settings only from the DeepSpeed file.
    More: "When using `deepspeed_config_file`, the following accelerate config variables will be ignored". The top-level
    mixed_precision is one of them, even with the value 'no'. Options of the command line are not, such as
    --mixed_precision bf16.

    Fix: Keep the setting in the file, and delete it here.
    """
    values = deepspeed_settings(config)
    if not values.get(_FILE) or values[_FILE] == "none":
        return Skip(_NO_FILE)
    bad = _of_section(config)
    if (top_level := _top_level_precision(config)) is not None:
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
    file = _file(config)
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
        return Skip(_NO_FILE)
    if file.exists or "{" in file.path:  # the text may be the JSON itself
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
    if file.elsewhere:
        return Skip(f"{file.path} is a path of another machine")
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


def _instead(file: DeepSpeedFile) -> str:
    return f": there is {file.similar}" if file.similar else ""


@check(Severity.INFO, source=PLUGINS, given=skip_without_deepspeed)
def config_deepspeed_file_elsewhere(config: Config) -> Answer:
    """The DeepSpeed file that the config names is a path of another machine.

    Why: It was not examined. If the file does not exist where the launch runs, every worker stops.

    Fix: Check it there, or write a path relative to the folder where the launch is started.
    """
    file = _missing(config)
    if not isinstance(file, DeepSpeedFile):
        return file
    if not file.elsewhere:
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
        return Skip(_NO_FILE)
    if _FILE in config.given:
        return Skip("the command line names the file")
    at = entries(config, DEEPSPEED)[_FILE]
    file = config.deepspeed_file
    if file is None:
        what, fix = "names no file", "Name the DeepSpeed JSON file, or delete the key."
    elif file.fault:
        what, fix = f"{file.path} cannot be read: {file.fault}", "Correct the file."
    elif file.exists and "zero_optimization" not in file.values:
        what = f"{file.path} has no zero_optimization"
        fix = 'Add "zero_optimization": {"stage": 2}, or the stage you want.'
    else:
        return Ok(f"{file.path} can be read") if file.exists else Skip("the file does not exist")
    return Problem(
        f"{_FILE}: {yaml_text(values[_FILE])} {what}" if file is None else what,
        fix=Fix(fix),
        place=place_of(config, at),
    )


@check(Severity.ERROR, source=_JSON)
def config_deepspeed_batch_mismatch(config: Config) -> Answer:
    """The batch sizes in the DeepSpeed file are inconsistent.

    Why: DeepSpeed asserts that train_batch_size is the product of the others, and every worker stops.
    More: train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x world size.

    Fix: Write "train_batch_size": "auto" to let accelerate compute it.
    More: Or correct one of them.
    """
    file = _file(config)
    if file is None or config.num_processes is None:
        return Skip(_NO_FILE if config.deepspeed_file is None else _UNREAD)
    if settings(config, PARALLELISM) or is_parallel(file.values):
        return Skip("not every rank has its own data")
    text, evidence, consistent = batch_sizes(file.values, config.num_processes)
    if consistent:
        return Ok(text)
    return Problem(
        f"{text}, in {file.path}", evidence=evidence, place=place_of(config, entries(config, DEEPSPEED)[_FILE])
    )


@check(Severity.ERROR, source=_JSON)
def config_deepspeed_precision_twice(config: Config) -> Answer:
    """The DeepSpeed file enables both fp16 and bf16.

    Why: DeepSpeed allows only one of them, and every worker stops.
    More: "bfloat16 and fp16 modes cannot be simultaneously enabled".

    Fix: Write "enabled": false for one: keep bf16 on Ampere or newer GPUs, fp16 on older ones.
    """
    file = _file(config)
    if file is None:
        return Skip(_NO_FILE if config.deepspeed_file is None else _UNREAD)
    on = precisions(file.values)
    if "fp16" not in on or len(on) < 2:
        return Ok(f"{', '.join(on) or 'neither'} is enabled")
    return Problem(
        f"fp16 and bf16 are both enabled in {file.path}", place=place_of(config, entries(config, DEEPSPEED)[_FILE])
    )


@check(Severity.WARNING, source=_JSON)
def config_deepspeed_key_misspelled(config: Config) -> Answer:
    """The DeepSpeed file has a key that is probably another one, misspelled.

    Why: DeepSpeed ignores a key of the file that it does not know, so the setting has no effect. In zero_optimization
    it stops: "Extra inputs are not permitted".

    Fix: Correct the name.
    """
    file = _file(config)
    if file is None:
        return Skip(_NO_FILE if config.deepspeed_file is None else _UNREAD)
    found = misspelled(file.values)
    if found is None:
        return Ok("no key is similar to another one")
    return Problem(f"{found[1]}, in {file.path}", place=place_of(config, entries(config, DEEPSPEED)[_FILE]))


@check(Severity.ERROR, source=_USAGE)
def config_deepspeed_auto_unfilled(config: Config) -> Answer:
    """The DeepSpeed file has an "auto" value that accelerate does not fill in.

    Why: Every worker stops when it prepares the model.
    More: accelerate and Trainer fill in only some entries: "not found in kwargs. Please specify it without `auto`".

    Fix: Write a value.
    """
    file = _file(config)
    if file is None:
        return Skip(_NO_FILE if config.deepspeed_file is None else _UNREAD)
    bad = unfilled(file.values)
    if not bad:
        return Ok(f"{counted(len(list(autos(file.values))), 'auto value')}, all filled in")
    return Problem(
        f'{", ".join(bad)}: "auto" in {file.path}, which accelerate does not fill in',
        place=place_of(config, entries(config, DEEPSPEED)[_FILE]),
    )
