"""Are the values of the DeepSpeed JSON file that the config names consistent, and does DeepSpeed accept them?

`checks/deepspeed_file.py` has the same checks for a DeepSpeed file that is examined itself.
"""

from __future__ import annotations

from collections.abc import Callable

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Config
from mgpu.text import counted

from . import _deepspeed_keys as deepspeed_keys
from ._config_file import place_of
from ._deepspeed_values import autos, batch_sizes, is_parallel, precisions, unfilled
from ._learning_rate import lost_learning_rate
from ._schema import DEEPSPEED, NO_FILE, PARALLELISM, entries, readable_deepspeed_file, settings

_USAGE = "https://huggingface.co/docs/accelerate/usage_guides/deepspeed"
_JSON = "https://www.deepspeed.ai/docs/config-json/"
_CONFIG = "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/config.py"
_SCHEDULES = "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/lr_schedules.py"
_ZERO = "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py"
_UNREAD = "the DeepSpeed file could not be read"
_FILE = "deepspeed_config_file"


def _findings(
    config: Config, judge: Callable[[deepspeed_keys.ReadFile], list[deepspeed_keys.Finding]], good: str
) -> Answer:
    """The findings in the file, at the key that names it."""
    file = readable_deepspeed_file(config)
    if file is None:
        return Skip(NO_FILE if config.deepspeed_file is None else _UNREAD)
    place = place_of(config, entries(config, DEEPSPEED)[_FILE])
    found = tuple(
        Problem(
            f"{one.title}, in {file.path}", fix=Fix(one.fix), evidence={"key": one.key} if one.key else {}, place=place
        )
        for one in judge(file)
    )
    return found or Ok(good)


@check(Severity.ERROR, source=_JSON)
def config_deepspeed_batch_mismatch(config: Config) -> Answer:
    """The batch sizes in the DeepSpeed file are inconsistent.

    Why: DeepSpeed asserts that train_batch_size is the product of the others, and every worker stops.
    More: train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x world size.

    Fix: Write "train_batch_size": "auto" to let accelerate compute it.
    More: Or correct one of them.
    """
    file = readable_deepspeed_file(config)
    if file is None or config.num_processes is None:
        return Skip(NO_FILE if config.deepspeed_file is None else _UNREAD)
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
    file = readable_deepspeed_file(config)
    if file is None:
        return Skip(NO_FILE if config.deepspeed_file is None else _UNREAD)
    on = precisions(file.values)
    if "fp16" not in on or len(on) < 2:
        return Ok(f"{', '.join(on) or 'neither'} is enabled")
    return Problem(
        f"fp16 and bf16 are both enabled in {file.path}", place=place_of(config, entries(config, DEEPSPEED)[_FILE])
    )


@check(Severity.ERROR, source=_USAGE)
def config_deepspeed_auto_unfilled(config: Config) -> Answer:
    """The DeepSpeed file has an "auto" value that accelerate does not fill in.

    Why: Every worker stops when it prepares the model.
    More: accelerate and Trainer fill in only some entries: "not found in kwargs. Please specify it without `auto`".

    Fix: Write a value.
    """
    file = readable_deepspeed_file(config)
    if file is None:
        return Skip(NO_FILE if config.deepspeed_file is None else _UNREAD)
    bad = unfilled(file.values)
    if not bad:
        return Ok(f"{counted(len(list(autos(file.values))), 'auto value')}, all filled in")
    return Problem(
        f'{", ".join(bad)}: "auto" in {file.path}, which accelerate does not fill in',
        place=place_of(config, entries(config, DEEPSPEED)[_FILE]),
    )


@check(Severity.ERROR, source=_ZERO)
def config_deepspeed_zero_key_unknown(config: Config) -> Answer:
    """The DeepSpeed file has a key in zero_optimization that DeepSpeed does not know.

    Why: DeepSpeed rejects it, and every worker stops.
    More: "Extra inputs are not permitted". Elsewhere in the file, most unknown keys are ignored.

    Fix: Correct the name, or delete the key.
    """
    return _findings(config, deepspeed_keys.unknown_zero_keys, "all keys in zero_optimization are known")


@check(Severity.ERROR, source=_CONFIG)
def config_deepspeed_file_refused(config: Config) -> Answer:
    """The installed DeepSpeed rejects the DeepSpeed file.

    Why: Every worker creates the same DeepSpeedConfig before it builds the model, and stops with this error.
    More: mgpu created it in a child process, for one rank and without the "auto" values.

    Fix: Delete the key, or correct its value.
    """
    file = readable_deepspeed_file(config)
    if file is None or file.loader is None:
        return Skip(NO_FILE if config.deepspeed_file is None else "DeepSpeed did not load the file")
    return _findings(config, deepspeed_keys.refused, f"DeepSpeed {file.loader.deepspeed} accepts it")


@check(Severity.WARNING, source=_CONFIG)
def config_deepspeed_key_removed(config: Config) -> Answer:
    """The DeepSpeed file has a key or value that newer releases of DeepSpeed reject.

    Why: With such a DeepSpeed, every worker stops before it builds the model. Older ones accept the file.
    More: mgpu reports it only if it did not load the file with the DeepSpeed of the run.

    Fix: Delete it, or train with an older DeepSpeed.
    """
    return _findings(
        config, deepspeed_keys.removed_keys, "no key that DeepSpeed has removed, or the installed one accepts it"
    )


@check(Severity.WARNING, source=_JSON)
def config_deepspeed_key_misspelled(config: Config) -> Answer:
    """The DeepSpeed file has a key that is probably another one: misspelled, or accelerate's.

    Why: DeepSpeed ignores a key at the top level of the file that it does not know, so the setting has no effect.

    Fix: Correct the name, or delete the key.
    """
    return _findings(config, deepspeed_keys.ignored_keys, "no key is similar to another one")


@check(Severity.WARNING, source=_JSON)
def config_deepspeed_key_outside_params(config: Config) -> Answer:
    """The DeepSpeed file has a parameter of its optimizer or scheduler next to params, not in it.

    Why: DeepSpeed passes only params to the optimizer or scheduler, which then uses its default.

    Fix: Move it into params.
    """
    return _findings(config, deepspeed_keys.keys_outside_params, "all parameters are in params")


@check(Severity.WARNING, source=_SCHEDULES, because_of=("config_deepspeed_key_outside_params",))
def config_deepspeed_learning_rate_lost(config: Config) -> Answer:
    """The DeepSpeed file creates an optimizer or scheduler without its learning rate, and DeepSpeed uses a default.

    Why: --learning_rate has no effect: accelerate and Trainer fill in only entries that are there as "auto".

    Fix: Write "lr": "auto" in optimizer.params, and "warmup_max_lr": "auto" in scheduler.params.
    More: Without "auto", write the number.
    """
    return _findings(config, lost_learning_rate, "the learning rate is set, or the run sets it")


@check(Severity.WARNING, source=_JSON)
def config_deepspeed_offload_without_zero3(config: Config) -> Answer:
    """The DeepSpeed file offloads parameters, but its ZeRO stage is not 3.

    Why: Only stage 3 partitions the parameters. With a lower stage they stay on every GPU, and no memory is saved.

    Fix: Write "stage": 3, or delete the section.
    """
    return _findings(config, deepspeed_keys.idle_offload, "the ZeRO stage supports its offloading")
