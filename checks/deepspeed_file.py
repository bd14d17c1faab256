"""Can DeepSpeed, accelerate and Trainer use a DeepSpeed file (ds_config.json), and do its values fit each other?"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mgpu.check import DOCUMENTED, Answer, Evidence, Fix, Ok, Place, Problem, Severity, Skip, check
from mgpu.snapshot import DeepSpeedJson, Mark
from mgpu.text import listed

from .config import _deepspeed_keys as deepspeed_keys
from .config._deepspeed_values import autos, batch_sizes, is_parallel, precisions, unfilled
from .config._learning_rate import lost_learning_rate

_CONFIG = "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/config.py"
_USAGE = "https://huggingface.co/docs/accelerate/usage_guides/deepspeed"
_JSON = "https://www.deepspeed.ai/docs/config-json/"
_SCHEDULES = "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/lr_schedules.py"
_ZERO = "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py"
_UNREAD = "the DeepSpeed file could not be read"


def _problem(
    file: DeepSpeedJson,
    title: str,
    fix: str = "",
    *,
    at: Mark | None = None,
    key: str = "",
    evidence: Evidence | None = None,
) -> Problem:
    """A problem at a position or key of the file; without both, in its first line."""
    mark = at or _mark(file, key)
    known = {name: value for name, value in (evidence or {}).items() if value is not None}
    place = Place(file.path, mark.line, mark.column, key or None)
    return Problem(title, fix=Fix(fix) if fix else DOCUMENTED, evidence=known, place=place)


def _mark(file: DeepSpeedJson, key: str) -> Mark:
    """The position of a dotted key, or of the section that it is missing in."""
    while key and key not in file.marks:
        key = key.rpartition(".")[0]
    return file.marks.get(key, Mark(1, 1))


def _each(files: tuple[DeepSpeedJson, ...], judge: Callable[[DeepSpeedJson], Problem | None], good: str) -> Answer:
    """The problems of the files that could be read."""
    readable = [file for file in files if file.fault is None]
    if not readable:
        return Skip(_UNREAD)
    found = tuple(problem for file in readable if (problem := judge(file)) is not None)
    return found or Ok(good)


def _findings(
    files: tuple[DeepSpeedJson, ...],
    judge: Callable[[deepspeed_keys.ReadFile], list[deepspeed_keys.Finding]],
    good: str,
) -> Answer:
    """The findings in the files that could be read, each at its key."""
    readable = [file for file in files if file.fault is None]
    if not readable:
        return Skip(_UNREAD)
    found = tuple(_problem(file, one.title, one.fix, key=one.key) for file in readable for one in judge(file))
    return found or Ok(good)


def _filled_by_accelerate(file: DeepSpeedJson) -> bool:
    """Whether accelerate or Trainer must read the file: only they fill in "auto"."""
    return not file.by_deepspeed and any(autos(file.values))


@check(Severity.ERROR, source=_CONFIG)
def deepspeed_file_invalid(deepspeed_json: tuple[DeepSpeedJson, ...]) -> Answer:
    """A DeepSpeed file cannot be read by the program that uses it.

    Why: Every worker stops before it builds the model.
    More: DeepSpeed itself reads the file with hjson, which accepts comments and trailing commas. accelerate and Trainer
    read it as strict JSON, and require zero_optimization. Only they fill in "auto".

    Fix: Correct the file.
    """
    found = tuple(problem for file in deepspeed_json for problem in _unusable(file))
    names = listed(file.path.rpartition("/")[2] for file in deepspeed_json)
    return found or Ok(f"{names} can be read")


def _unusable(file: DeepSpeedJson) -> Iterator[Problem]:
    if file.fault:
        yield _problem(file, file.fault, at=file.fault_at)
    elif _filled_by_accelerate(file):
        if file.strict_fault:
            text = 'Write strict JSON: the file has "auto" values, so accelerate or Trainer reads it.'
            yield _problem(file, file.strict_fault, text, at=file.strict_at)
        if "zero_optimization" not in file.values:
            text = 'Add "zero_optimization": {"stage": 2}, or the stage you want.'
            yield _problem(file, 'no zero_optimization, but "auto" values, which accelerate fills in', text)


@check(Severity.WARNING, source=_CONFIG)
def deepspeed_file_not_strict(deepspeed_json: tuple[DeepSpeedJson, ...]) -> Answer:
    """A DeepSpeed file cannot be read by the program that uses it, or only by some programs.

    Why: DeepSpeed itself accepts comments and trailing commas (it reads the file with hjson), but not a key that is in
    the file twice. accelerate and Trainer stop at anything but strict JSON, and use the last of two equal keys.
    More: A comment or trailing comma is reported if a command shows that accelerate or Trainer reads the file. If not,
    it is only a hint: deepspeed_file_only_for_deepspeed.

    Fix: Write strict JSON, with each key once.
    """

    def judge(file: DeepSpeedJson) -> Problem | None:
        if file.strict_fault and file.by_others and not _filled_by_accelerate(file):
            return _problem(file, file.strict_fault, at=file.strict_at)
        if file.twice:
            return _problem(file, f"{file.twice[0]} is there twice", key=file.twice[0])
        return None

    return _each(deepspeed_json, judge, "strict JSON, or DeepSpeed itself reads it")


@check(Severity.INFO, source=_CONFIG)
def deepspeed_file_only_for_deepspeed(deepspeed_json: tuple[DeepSpeedJson, ...]) -> Answer:
    """Only DeepSpeed itself can read a DeepSpeed file.

    Why: It reads the file with hjson, which accepts comments and trailing commas. accelerate and Trainer stop at them.

    Fix: Write strict JSON if accelerate or Trainer is to read the file.
    More: Without "auto" values, a file can be for deepspeed.initialize alone.
    """

    def judge(file: DeepSpeedJson) -> Problem | None:
        if not file.strict_fault or file.by_deepspeed or file.by_others or _filled_by_accelerate(file):
            return None
        return _problem(file, f"only deepspeed.initialize can read this file: {file.strict_fault}", at=file.strict_at)

    return _each(deepspeed_json, judge, "strict JSON, or a command shows what reads it")


@check(Severity.ERROR, source=_JSON)
def deepspeed_batch_mismatch(deepspeed_json: tuple[DeepSpeedJson, ...]) -> Answer:
    """The batch sizes in a DeepSpeed file fit no number of ranks.

    Why: DeepSpeed asserts that train_batch_size is the product of the others, and every worker stops.
    More: train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x world size.

    Fix: Correct one of them, or leave train_batch_size out.
    More: DeepSpeed, accelerate and Trainer compute it then.
    """

    def judge(file: DeepSpeedJson) -> Problem | None:
        if is_parallel(file.values):
            return None
        text, evidence, consistent = batch_sizes(file.values, None)
        return None if consistent else _problem(file, text, key="train_batch_size", evidence=evidence)

    return _each(deepspeed_json, judge, "the batch sizes are consistent")


@check(Severity.ERROR, source=_JSON)
def deepspeed_precision_twice(deepspeed_json: tuple[DeepSpeedJson, ...]) -> Answer:
    """A DeepSpeed file enables both fp16 and bf16.

    Why: DeepSpeed allows only one of them, and every worker stops.
    More: "bfloat16 and fp16 modes cannot be simultaneously enabled".

    Fix: Write "enabled": false for one: keep bf16 on Ampere or newer GPUs, fp16 on older ones.
    """

    def judge(file: DeepSpeedJson) -> Problem | None:
        on = precisions(file.values)
        if "fp16" not in on or len(on) < 2:
            return None
        return _problem(file, "fp16 and bf16 are both enabled", key=f"{on[-1]}.enabled")

    return _each(deepspeed_json, judge, "at most one precision is enabled")


@check(Severity.ERROR, source=_USAGE)
def deepspeed_auto_unfilled(deepspeed_json: tuple[DeepSpeedJson, ...]) -> Answer:
    """A DeepSpeed file has an "auto" value that no program fills in.

    Why: Every worker stops when it prepares the model.
    More: accelerate and Trainer fill in only some entries: "not found in kwargs. Please specify it without `auto`".

    Fix: Write a value.
    """

    def judge(file: DeepSpeedJson) -> Problem | None:
        bad = unfilled(file.values)
        if not bad:
            return None
        return _problem(file, f'{", ".join(bad)}: "auto", which accelerate and Trainer do not fill in', key=bad[0])

    return _each(deepspeed_json, judge, "all auto values are filled in")


@check(Severity.ERROR, source=_ZERO)
def deepspeed_zero_key_unknown(deepspeed_json: tuple[DeepSpeedJson, ...]) -> Answer:
    """A DeepSpeed file has a key in zero_optimization that DeepSpeed does not know.

    Why: DeepSpeed rejects it, and every worker stops.
    More: "Extra inputs are not permitted". Elsewhere in the file, most unknown keys are ignored.

    Fix: Correct the name, or delete the key.
    """
    return _findings(deepspeed_json, deepspeed_keys.unknown_zero_keys, "all keys in zero_optimization are known")


@check(Severity.ERROR, source=_CONFIG)
def deepspeed_file_refused(deepspeed_json: tuple[DeepSpeedJson, ...]) -> Answer:
    """The installed DeepSpeed rejects a DeepSpeed file.

    Why: Every worker creates the same DeepSpeedConfig before it builds the model, and stops with this error.
    More: mgpu created it in a child process, for one rank and without the "auto" values. Newer releases reject more
    than older ones: all unknown keys in fp16 and bf16 (0.17.1), and the sections of removed features (0.19.7, 0.19.8).

    Fix: Delete the key, or correct its value.
    """
    if not any(file.loader for file in deepspeed_json):
        return Skip("DeepSpeed did not load the file")
    versions = listed(dict.fromkeys(file.loader.deepspeed for file in deepspeed_json if file.loader))
    return _findings(deepspeed_json, deepspeed_keys.refused, f"DeepSpeed {versions} accepts it")


@check(Severity.WARNING, source=_CONFIG)
def deepspeed_key_removed(deepspeed_json: tuple[DeepSpeedJson, ...]) -> Answer:
    """A DeepSpeed file has a key or value that newer releases of DeepSpeed reject.

    Why: With such a DeepSpeed, every worker stops before it builds the model. Older ones accept the file.
    More: mgpu reports it only if it did not load the file with the DeepSpeed of the run.

    Fix: Delete it, or train with an older DeepSpeed.
    """
    good = "no key that DeepSpeed has removed, or the installed one accepts it"
    return _findings(deepspeed_json, deepspeed_keys.removed_keys, good)


@check(Severity.WARNING, source=_CONFIG)
def deepspeed_key_misspelled(deepspeed_json: tuple[DeepSpeedJson, ...]) -> Answer:
    """A DeepSpeed file has a key that is probably another one: misspelled, or accelerate's.

    Why: DeepSpeed ignores a key at the top level of the file that it does not know, so the setting has no effect.

    Fix: Correct the name, or delete the key.
    """
    return _findings(deepspeed_json, deepspeed_keys.ignored_keys, "no key is similar to another one")


@check(Severity.WARNING, source=_JSON)
def deepspeed_key_outside_params(deepspeed_json: tuple[DeepSpeedJson, ...]) -> Answer:
    """A DeepSpeed file has a parameter of its optimizer or scheduler next to params, not in it.

    Why: DeepSpeed passes only params to the optimizer or scheduler, which then uses its default.

    Fix: Move it into params.
    """
    return _findings(deepspeed_json, deepspeed_keys.keys_outside_params, "all parameters are in params")


@check(Severity.WARNING, source=_SCHEDULES, because_of=("deepspeed_key_outside_params",))
def deepspeed_learning_rate_lost(deepspeed_json: tuple[DeepSpeedJson, ...]) -> Answer:
    """A DeepSpeed file creates an optimizer or scheduler without its learning rate, and DeepSpeed uses a default.

    Why: --learning_rate has no effect: accelerate and Trainer fill in only entries that are there as "auto".

    Fix: Write "lr": "auto" in optimizer.params, and "warmup_max_lr": "auto" in scheduler.params.
    More: Without "auto", write the number.
    """
    return _findings(deepspeed_json, lost_learning_rate, "the learning rate is set, or the run sets it")


@check(Severity.WARNING, source=_JSON)
def deepspeed_offload_without_zero3(deepspeed_json: tuple[DeepSpeedJson, ...]) -> Answer:
    """A DeepSpeed file offloads parameters, but its ZeRO stage is not 3.

    Why: Only stage 3 partitions the parameters. With a lower stage they stay on every GPU, and no memory is saved.

    Fix: Write "stage": 3, or delete the section.
    """
    return _findings(deepspeed_json, deepspeed_keys.idle_offload, "the ZeRO stage supports its offloading")
