"""Are the settings of deepspeed_config consistent with each other and the launch?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mgpu.check import Answer, Edit, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Config

from ._config_file import LAUNCH, is_readable, place_of
from ._schema import DEEPSPEED, LAUNCHERS, deepspeed_settings, entries, skip_without_deepspeed
from ._spelling import closest_name, intended_name, yaml_text
from ._value_kinds import integer, truth

_JSON = "https://www.deepspeed.ai/docs/config-json/"
_RUNNER = "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/launcher/runner.py"
_FILE = "deepspeed_config_file"


@check(Severity.WARNING, source="measured accelerate 1.15 torch 2.13 2026-11")
def config_deepspeed_auto_inline(config: Config) -> Answer:
    """gradient_accumulation_steps is auto in the config, not in a DeepSpeed file.

    Why: A script that creates its own Accelerator() stops with ValueError; auto belongs in a DeepSpeed file.
    More: Accelerator() calls int('auto'), unless the script passes the number of accumulation steps, as Trainer does.

    Fix: Write the number, or delete the key and pass it to Accelerator().
    """
    values = deepspeed_settings(config)
    if str(values.get("gradient_accumulation_steps")).lower() != "auto":
        return Skip("no auto") if not values else Ok("a number, or left out")
    at = entries(config, DEEPSPEED)["gradient_accumulation_steps"]
    return Problem(f"{at}: 'auto' works with Trainer only", place=place_of(config, at))


@check(Severity.WARNING, source=_JSON, given=skip_without_deepspeed)
def config_deepspeed_key_of_other_stage(config: Config) -> Answer:
    """deepspeed_config has a setting that its ZeRO stage ignores.

    Why: Offloading parameters, gathering 16-bit weights on save and zero.Init need ZeRO-3. Offloading the optimizer
    needs stage 1 or higher. Lower stages ignore the key.

    Fix: Set the stage it needs, or delete the key.
    """
    values = deepspeed_settings(config)
    stage = integer(values.get("zero_stage")) if values.get("zero_stage") is not None else 2
    if stage is None or values.get(_FILE):
        return Skip("the stage is set elsewhere, or cannot be read")
    requested = {
        "offload_param_device": str(values.get("offload_param_device")).lower() in ("cpu", "nvme") and stage < 3,
        "offload_optimizer_device": str(values.get("offload_optimizer_device")).lower() in ("cpu", "nvme")
        and stage < 1,
        "zero3_init_flag": truth(values.get("zero3_init_flag")) is True and stage < 3,
        "zero3_save_16bit_model": truth(values.get("zero3_save_16bit_model")) is True and stage < 3,
    }
    dotted = entries(config, DEEPSPEED)
    bad = [dotted[key] for key, idle in requested.items() if idle]
    if not bad:
        return Ok(f"ZeRO-{stage} supports all settings")
    return tuple(
        Problem(
            f"{at}: {yaml_text(config.values['deepspeed_config'][at.rpartition('.')[2]])}"
            f" has no effect with ZeRO-{stage}",
            f"It needs ZeRO stage {'1 or higher' if 'optimizer' in at else '3'}.",
            Fix(
                f"Write zero_stage: {1 if 'optimizer' in at else 3} if you want it, or turn it off.",
                edits=(Edit("set", at, "none" if at.endswith("device") else False),),
            ),
            {"key": at, "zero_stage": stage},
            place=place_of(config, at),
        )
        for at in bad
    )


@check(Severity.WARNING, source="measured accelerate 1.15 torch 2.13 2026-11", given=skip_without_deepspeed)
def config_deepspeed_nvme_lost(config: Config) -> Answer:
    """deepspeed_config offloads to NVMe, but the path does not reach the workers.

    Why: The launcher exports the device, but not offload_*_nvme_path. The plugin then uses "none" as the path, and
    DeepSpeed swaps to a folder with that name in the working directory.

    Fix: Set the variable that the plugin reads, or use a DeepSpeed file.
    """
    values = deepspeed_settings(config)
    if values.get(_FILE):
        return Skip("the path is in the DeepSpeed file")
    dotted = entries(config, DEEPSPEED)
    bad = [part for part in ("optimizer", "param") if str(values.get(f"offload_{part}_device")).lower() == "nvme"]
    if not bad:
        return Ok("nothing is offloaded to NVMe")
    return tuple(_nvme_problem(config, values, dotted, part) for part in bad)


def _nvme_problem(config: Config, values: Mapping[str, Any], dotted: Mapping[str, str], part: str) -> Problem:
    path = values.get(f"offload_{part}_nvme_path")
    at = dotted[f"offload_{part}_{'nvme_path' if path else 'device'}"]
    variable = f"ACCELERATE_DEEPSPEED_OFFLOAD_{part.upper()}_NVME_PATH"
    export = shell("export {:name}={}", variable, " ".join(str(path).split()))
    return Problem(
        f"{at}: {yaml_text(path)} does not reach the workers: DeepSpeed swaps to ./none"
        if path
        else f"{at}: nvme without a path: DeepSpeed swaps to ./none",
        "accelerate launch does not export the path.",
        Fix(f"Set {variable} to the path before the launch, or use a DeepSpeed file.", (export,) if path else ()),
        {"key": at, "variable": variable},
        place=place_of(config, at),
    )


@check(Severity.ERROR, source=_RUNNER)
def config_deepspeed_launcher_unknown(config: Config) -> Answer:
    """deepspeed_multinode_launcher is not one of DeepSpeed's launchers.

    Why: DeepSpeed stops at a launcher that it does not have.
    More: The names are case-sensitive.

    Fix: Write standard, which is torchrun started on every node.
    """
    values = deepspeed_settings(config)
    if config.distributed_type != "DEEPSPEED" or not is_readable(config) or config.num_machines < 2:
        return Skip("not DeepSpeed on several nodes")
    launcher = values.get("deepspeed_multinode_launcher") or "pdsh"
    if launcher in LAUNCHERS:
        return Ok(f"launcher {launcher}")
    at = entries(config, DEEPSPEED)["deepspeed_multinode_launcher"]
    right = intended_name(str(launcher), LAUNCHERS)
    likely = right or closest_name(str(launcher), LAUNCHERS)
    return Problem(
        f"{at}: {yaml_text(launcher)} is not a launcher" + (f". Did you mean {likely}?" if likely else ""),
        f"DeepSpeed supports {', '.join(LAUNCHERS)}, spelled exactly like this.",
        Fix(edits=(Edit("set", at, right),) if right else ()),
        place=place_of(config, at),
    )


@check(Severity.WARNING, source=LAUNCH, given=skip_without_deepspeed)
def config_deepspeed_filter_ignored(config: Config) -> Answer:
    """deepspeed_config has an inclusion filter that is not applied.

    Why: The launcher passes on the exclusion filter and drops the inclusion filter.

    Fix: Keep only one of them.
    """
    values = deepspeed_settings(config)
    if not (values.get("deepspeed_exclusion_filter") and values.get("deepspeed_inclusion_filter")):
        return Ok("at most one filter")
    at = entries(config, DEEPSPEED)["deepspeed_inclusion_filter"]
    return Problem(f"{at} is not applied because deepspeed_exclusion_filter is set", place=place_of(config, at))
