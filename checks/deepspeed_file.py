"""Can DeepSpeed, accelerate and Trainer use a DeepSpeed file (ds_config.json), and do its values fit each other?"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mgpu.check import DOCUMENTED, Answer, Evidence, Fix, Ok, Place, Problem, Severity, Skip, check
from mgpu.snapshot import DeepSpeedJson, Mark
from mgpu.text import listed

from .config._deepspeed_values import autos, batch_sizes, is_parallel, misspelled, outside_params, precisions, unfilled

_CONFIG = "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/config.py"
_USAGE = "https://huggingface.co/docs/accelerate/usage_guides/deepspeed"
_JSON = "https://www.deepspeed.ai/docs/config-json/"
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
    mark = at or file.marks.get(key) or Mark(1, 1)
    known = {name: value for name, value in (evidence or {}).items() if value is not None}
    place = Place(file.path, mark.line, mark.column, key or None)
    return Problem(title, fix=Fix(fix) if fix else DOCUMENTED, evidence=known, place=place)


def _each(files: tuple[DeepSpeedJson, ...], judge: Callable[[DeepSpeedJson], Problem | None], good: str) -> Answer:
    """The problems of the files that could be read."""
    readable = [file for file in files if file.fault is None]
    if not readable:
        return Skip(_UNREAD)
    found = tuple(problem for file in readable if (problem := judge(file)) is not None)
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
    """A DeepSpeed file can be read by some programs only.

    Why: DeepSpeed itself accepts comments and trailing commas (it reads the file with hjson), but not a key that is in
    the file twice. accelerate and Trainer stop at anything but strict JSON, and use the last of two equal keys.

    Fix: Write strict JSON, with each key once. Ignore this if only deepspeed.initialize reads the file.
    """

    def judge(file: DeepSpeedJson) -> Problem | None:
        if file.strict_fault and not file.by_deepspeed and not _filled_by_accelerate(file):
            return _problem(file, file.strict_fault, at=file.strict_at)
        if file.twice:
            return _problem(file, f"{file.twice[0]} is there twice", key=file.twice[0])
        return None

    return _each(deepspeed_json, judge, "strict JSON, or only DeepSpeed itself reads it")


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


@check(Severity.WARNING, source=_CONFIG)
def deepspeed_key_misspelled(deepspeed_json: tuple[DeepSpeedJson, ...]) -> Answer:
    """A DeepSpeed file has a key that is probably another one, misspelled.

    Why: DeepSpeed ignores a key of the file that it does not know, so the setting has no effect. In zero_optimization
    it stops: "Extra inputs are not permitted".

    Fix: Correct the name.
    """

    def judge(file: DeepSpeedJson) -> Problem | None:
        found = misspelled(file.values)
        return _problem(file, found[1], key=found[0]) if found else None

    return _each(deepspeed_json, judge, "no key is similar to another one")


@check(Severity.WARNING, source=_CONFIG)
def deepspeed_key_outside_params(deepspeed_json: tuple[DeepSpeedJson, ...]) -> Answer:
    """A parameter of the optimizer or scheduler is beside "params" in a DeepSpeed file, not in it.

    Why: DeepSpeed passes on only what is in "params". The parameter has no effect, so training uses its default.

    Fix: Move it into "params".
    """

    def judge(file: DeepSpeedJson) -> Problem | None:
        found = outside_params(file.values)
        if found is None:
            return None
        section, keys = found
        they = "it" if len(keys) == 1 else "them"
        title = f"{section}: {', '.join(keys[:4])} beside params, where DeepSpeed does not read {they}"
        return _problem(file, title, key=f"{section}.{keys[0]}")

    return _each(deepspeed_json, judge, "no parameter is beside params")
