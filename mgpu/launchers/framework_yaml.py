"""What does the YAML of a training framework say about batch, precision and sharding? Read as the framework reads it.

Only a file that the framework's own loader would accept is a fact; for any other there is the reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mgpu import file_reading
from mgpu.config.parsing import parse
from mgpu.errors import reason
from mgpu.launchers.foreign_programs import Keys
from mgpu.launchers.option_words import whole_number
from mgpu.structured_text import Malformed, json_of

_LARGEST = 1 << 20
_YES = ("true", "yes", "1", "on", "full")


@dataclass(frozen=True)
class Settings:
    """The settings of one file, with those of the command line in place of its own."""

    path: str
    unread: str = ""  # why nothing else is known
    batch: int | None = None  # per rank
    accumulate: int | None = None
    precision: str = ""
    strategy: str = ""  # "DeepSpeed ZeRO-3 (ds.json)", "FSDP2"
    output: str = ""  # the folder
    missing: str = ""  # a file that it names and that is not here


def read(path: str, keys: Keys, overrides: Mapping[str, str], defaults: bool = True) -> Settings:
    """Return the settings. `overrides`: key -> value as text. `defaults`: for keys that are not there."""
    if not path.endswith(keys.suffixes):
        return Settings(path, f"not read: its name does not end in {' or '.join(keys.suffixes)}")
    try:
        text = file_reading.read(path, most=_LARGEST).decode("utf-8")
    except UnicodeDecodeError:
        return Settings(path, "not read: it is not UTF-8")
    except (OSError, ValueError) as error:
        why = error.strerror or reason(error) if isinstance(error, OSError) else str(error)
        return Settings(path, f"not read: {why}")
    parsed = parse(text)
    faults = [one for one in parsed.faults if one.fatal or (keys.refuses_duplicates and one.kind == "twice")]
    if faults:
        at = f" (line {faults[0].mark.line})" if faults[0].mark else ""
        why = faults[0].message if faults[0].fatal else "a key is there twice, which its loader rejects"
        return Settings(path, f"not read: {why}{at}")
    return _settings(path, _Values(parsed.values, overrides, keys.interpolates), keys, defaults)


@dataclass(frozen=True)
class _Values:
    """The file's values and the command line's. A value that only the framework can compute is unknown: None."""

    file: Mapping[str, Any]
    given: Mapping[str, str]
    interpolates: bool
    unknown: set[str] = field(default_factory=set)

    def of(self, key: str) -> Any:
        value = self.given.get(key, self.file.get(key))
        if self.interpolates and isinstance(value, str) and "${" in value:
            self.unknown.add(key)
            return None
        return None if isinstance(value, str) and value.lower() in ("null", "none", "~", "") else value

    def whole(self, key: str, default: int | None) -> int | None:
        value = self.of(key)
        if value is None:
            return None if key in self.unknown else default
        number = whole_number(value) if isinstance(value, str) else value
        return number if type(number) is int and number > 0 else None

    def text(self, key: str) -> str:
        value = self.of(key)
        return value if isinstance(value, str) else ""


def _settings(path: str, values: _Values, keys: Keys, defaults: bool) -> Settings:
    precision = next((text for key, name in keys.precision if (text := _precision(values.of(key), name))), "")
    strategy, missing = _strategy(values, keys)
    return Settings(
        path,
        "",
        values.whole(keys.batch, keys.batch_default if defaults else None),
        values.whole(keys.accumulate, 1 if defaults else None),
        precision,
        strategy,
        values.text(keys.output),
        missing,
    )


def _precision(value: Any, name: str) -> str:
    """Return what a switch means: "bf16", "bf16 if the GPU has it" for auto; "" if it is off."""
    if isinstance(value, str) and value.lower() == "auto":
        return f"{name} if the GPUs have it"
    on = value.lower() in _YES if isinstance(value, str) else value is True
    return name if on else ""


def _strategy(values: _Values, keys: Keys) -> tuple[str, str]:
    """Return how the model is divided, and a file that is named for it and does not exist."""
    named = values.of(keys.deepspeed)
    if isinstance(named, dict):
        return f"DeepSpeed{_stage(named)}", ""
    if isinstance(named, str):
        content, missing = _deepspeed_file(named)
        return f"DeepSpeed{_stage(content)} ({named})", missing
    if any(values.of(key) for key in keys.fsdp):
        section = values.of("fsdp_config")
        inner = section.get("fsdp_version", section.get("version")) if isinstance(section, dict) else None
        version = values.of("fsdp_version") or inner
        return f"FSDP{version}" if str(version) in ("1", "2") else "FSDP", ""
    return "", ""


def _deepspeed_file(name: str) -> tuple[Mapping[str, Any], str]:
    """Return the contents of a DeepSpeed file, empty if they cannot be read; and its name if it does not exist."""
    try:
        content = json_of(file_reading.read(Path(os.path.expanduser(name)), most=_LARGEST))
    except FileNotFoundError:
        return {}, name
    except (OSError, Malformed, ValueError):
        return {}, ""
    return (content if isinstance(content, dict) else {}), ""


def _stage(content: Mapping[str, Any]) -> str:
    section = content.get("zero_optimization")
    stage = section.get("stage") if isinstance(section, dict) else None
    return f" ZeRO-{stage}" if type(stage) is int and 0 <= stage <= 3 else ""


def key_values(words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the key=value words of OmegaConf.from_cli, dots and all."""
    for word in words:
        key, equals, value = word.partition("=")
        if equals and key and not key.startswith("-"):
            yield key, value


def option_values(words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield options of click as keys: --micro-batch-size 4, --micro-batch-size=4, --no-fp16."""
    for place, word in enumerate(words):
        if not word.startswith("--") or len(word) == 2:
            continue
        name, equals, value = word[2:].partition("=")
        key = name.replace("-", "_")
        following = words[place + 1] if place + 1 < len(words) else ""
        if equals:
            yield key, value
        elif following and not following.startswith("--"):
            yield key, following
        else:
            yield (key.removeprefix("no_"), "false") if key.startswith("no_") else (key, "true")
