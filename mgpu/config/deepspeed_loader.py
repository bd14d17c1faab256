"""Does DeepSpeed itself accept the values of a DeepSpeed file?

Runs in a child process in the training run's interpreter. The values go to DeepSpeed's own `DeepSpeedConfig`, which
every worker creates before it builds the model. The batch sizes, which depend on the number of ranks, and the "auto"
values, which accelerate or Trainer fills in, are replaced first. No GPU, process group or file is used.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import itertools
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

_MOST_REFUSALS = 8  # searched for in a file; each costs one load for every key
_MOST_KEYS = 250  # tried in a file, and in a section of it; a load takes 1 ms and more
_BATCH = ("train_batch_size", "gradient_accumulation_steps")
_MICRO = "train_micro_batch_size_per_gpu"
_STAGE_OF_ACCELERATE = 2  # if zero_optimization.stage is "auto"

# Errors that say nothing about the file: a missing library or device, or a limit of this process.
_NOT_OF_THE_FILE = (ImportError, OSError, MemoryError, RecursionError)

Load = Callable[[dict[str, Any]], None]


def probe(path: str) -> Iterator[dict[str, Any]]:
    """Yield the fact deepspeed_loader: for each file, DeepSpeed's version and what it rejects; None if it is not clear.

    It is yielded after each file, so one that takes too long costs no other file its verdict. `path`: a JSON file with
    the list of the files' values.
    """
    yield {"asking": "loading the DeepSpeed file with DeepSpeed"}
    gc.disable()  # nothing that is imported is garbage
    with open(path, encoding="utf-8") as file:
        files = json.load(file)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # DeepSpeed looks for an accelerator when it is imported
    with _quiet():
        loaded = _loader()
    if loaded is None:
        return  # DeepSpeed is missing or broken
    version, load = loaded
    found: list[dict[str, Any] | None] = []
    for values in files:
        with _quiet():
            refusals = _refusals(values, load)
        found.append(None if refusals is None else {"deepspeed": version, "refusals": refusals})
        yield {"deepspeed_loader": found}


def _loader() -> tuple[str, Load] | None:
    """Return DeepSpeed's version and a function that loads values; None if DeepSpeed cannot be imported or used."""
    try:
        import deepspeed
        from deepspeed.runtime.config import DeepSpeedConfig
    except BaseException:
        return None

    def load(values: dict[str, Any]) -> None:
        DeepSpeedConfig(copy.deepcopy(values))

    try:
        load({_MICRO: 1})
    except BaseException:
        return None
    return str(deepspeed.__version__), load


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress output and warnings of DeepSpeed."""
    logging.disable(logging.CRITICAL)
    null = io.StringIO()
    try:
        with contextlib.redirect_stdout(null), contextlib.redirect_stderr(null), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _refusals(values: dict[str, Any], load: Load) -> list[dict[str, Any]] | None:
    """Return everything in the values that DeepSpeed rejects: each message, with the dotted key that causes it.

    None if DeepSpeed stops for another reason before it has read them.
    """
    filled = _filled(values)
    found: list[dict[str, Any]] = []
    while len(found) < _MOST_REFUSALS and (error := _refused(filled, load)) is not None:
        if isinstance(error, _NOT_OF_THE_FILE):
            return found or None
        top, rest = _without_cause(filled, error, load)
        found += _described(error, top, filled)
        if rest is None:
            break
        filled = rest
    return found


def _filled(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values without "auto", as DeepSpeed gets them on one rank."""
    filled = {key: value for key, value in _without_autos(values).items() if key not in _BATCH}
    zero = values.get("zero_optimization")
    if isinstance(zero, dict) and zero.get("stage") == "auto":
        filled["zero_optimization"]["stage"] = _STAGE_OF_ACCELERATE
    return {**filled, _MICRO: 1}


def _without_autos(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_autos(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if value != "auto"
    }


def _refused(values: dict[str, Any], load: Load) -> BaseException | None:
    try:
        load(values)
    except BaseException as error:
        return error
    return None


def _without_cause(
    values: dict[str, Any], error: BaseException, load: Load
) -> tuple[str | None, dict[str, Any] | None]:
    """Return the dotted key without which the error is different or gone, and the values without it.

    A key of a section is preferred to the whole section. None for both if no single key is the cause.
    """
    for key in itertools.islice(values, _MOST_KEYS):
        if key == _MICRO or _same(error, _refused(_dropped(values, key), load)):
            continue
        section = values[key] if isinstance(values[key], dict) else {}
        names = [str(one["loc"][0]) for one in _fields(error) if one.get("loc")]
        if names and set(names) <= set(section):
            rest = {name: value for name, value in section.items() if name not in names}
            return key, {**values, key: rest}
        for name in itertools.islice(section, _MOST_KEYS):
            rest = {**values, key: _dropped(section, name)}
            if not _same(error, _refused(rest, load)):
                return f"{key}.{name}", rest
        return key, _dropped(values, key)
    return None, None


def _dropped(values: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != key}


def _same(one: BaseException, other: BaseException | None) -> bool:
    return type(one) is type(other) and str(one) == str(other)


def _fields(error: BaseException) -> list[dict[str, Any]]:
    """Return the faults of single fields of a section, if pydantic found them."""
    errors = getattr(error, "errors", None)
    try:
        found = errors() if callable(errors) else []
        return [one for one in found if isinstance(one, dict)]
    except Exception:
        return []


def _described(error: BaseException, key: str | None, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return message and key of each fault of a rejection."""
    fields = _fields(error)
    if not fields:
        words = " ".join(str(error).split())[:2000]
        return [{"message": f"{type(error).__name__}: {words}" if words else type(error).__name__, "key": key}]
    return [{"message": str(one.get("msg", ""))[:2000], "key": _dotted(one, key, values)} for one in fields]


def _dotted(fault: dict[str, Any], key: str | None, values: dict[str, Any]) -> str | None:
    """Return the dotted key of a field, as far as the file has it."""
    node: Any = values.get(key.partition(".")[0]) if key else None
    parts = [key.partition(".")[0]] if key else []
    for part in fault.get("loc", ()):
        if not isinstance(node, dict) or part not in node:
            break
        node = node[part]
        parts.append(str(part))
    return ".".join(parts) or None
