"""What does a config file say, and where in it?

Values are read by the parser accelerate uses, PyYAML (an unquoted NO is false, 010 is 8, the last of two equal keys
wins), positions by composing the same text a second time. A file that cannot be made sense of becomes faults, never an
exception.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mgpu.errors import USAGE, MgpuError, reason
from mgpu.snapshot import Config, ConfigFault, Mark

_LARGEST_BYTES = 1 << 20  # an accelerate config has a few dozen lines; a megabyte is some other file
WRITTEN_BY = "# Written by mgpu"


def seal(values: Mapping[str, Any]) -> str:
    """The comment by which mgpu knows later that nobody has changed the values it wrote."""
    return f"# sealed {digest(values)[:12]}"


def read(path: Path) -> Config:
    """The file as a Config without the loader's verdict. Raises MgpuError when there is nothing to read."""
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise MgpuError(f"{path} is no accelerate config: it is larger than 1 MiB", USAGE)
        raw = path.read_bytes()
    except OSError as error:
        raise MgpuError(f"cannot read the config {path}: {reason(error)}", USAGE) from None
    name = str(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return _bad(name, f"not UTF-8: byte 0x{raw[error.start]:02x}", Mark(line, 1))
    values, marks, faults = parse(text, json_only=path.suffix == ".json")
    found = re.search(r"^# batch per GPU (\d+) ", text, re.MULTILINE)
    return Config(
        path=name,
        sha256=digest(values) if values else None,
        values=values,
        marks=marks,
        faults=faults,
        written_by_mgpu=text.startswith(WRITTEN_BY) and bool(values) and seal(values) in text.splitlines(),
        batch_per_gpu=int(found.group(1)) if found else None,
    )


def digest(values: Mapping[str, Any]) -> str:
    """SHA-256 of the parsed values, so that comments, order and quoting do not count."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()


def parse(text: str, *, json_only: bool = False) -> tuple[dict[str, Any], dict[str, Mark], tuple[ConfigFault, ...]]:
    """Values, the place of every dotted key, and what is wrong with the text."""
    import yaml

    if json_only:
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            mark = Mark(getattr(error, "lineno", 1), getattr(error, "colno", 1))
            return {}, {}, (ConfigFault(f"not JSON: {getattr(error, 'msg', error)}", mark, fatal=True),)
    marks: dict[str, Mark] = {}
    twice: list[ConfigFault] = []
    try:
        _walk(yaml.compose(text, Loader=yaml.SafeLoader), "", marks, twice, 0)
        values = yaml.safe_load(text)
        plain = json.loads(json.dumps(_keys_as_text(values), default=str))
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        words = ": ".join(part for part in (error.context, error.problem) if part)
        return (
            {},
            {},
            (ConfigFault(f"not YAML: {words}", Mark(at.line + 1, at.column + 1) if at else None, fatal=True),),
        )
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        return {}, {}, (ConfigFault(f"not YAML: {error.reason}", Mark(line, 1), fatal=True),)
    except RecursionError:
        return {}, {}, (ConfigFault("not a config: it contains itself, or is nested too deep", Mark(1, 1), fatal=True),)
    except (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError) as error:
        # PyYAML raises bare Python errors for some broken texts (bad dates, unhashable keys).
        return {}, {}, (ConfigFault(f"not YAML: {reason(error)}", Mark(1, 1), fatal=True),)
    if values is None:
        return {}, {}, (ConfigFault("the file is empty", Mark(1, 1), fatal=True),)
    if not isinstance(values, dict):
        what = "a list" if isinstance(values, list) else "a single value"
        return {}, {}, (ConfigFault(f"a mapping of keys is expected, this is {what}", Mark(1, 1), fatal=True),)
    return plain, marks, tuple(twice)


def _keys_as_text(data: Any) -> Any:
    """JSON wants string keys; YAML 1.1 has others (`no:` is False)."""
    if isinstance(data, dict):
        return {str(key): _keys_as_text(value) for key, value in data.items()}
    if isinstance(data, list | tuple | set):
        return [_keys_as_text(value) for value in data]
    return data


def _walk(node: Any, prefix: str, marks: dict[str, Mark], twice: list[ConfigFault], depth: int) -> None:
    """Note where every key stands, and the keys that stand twice."""
    if depth > 20 or node is None or not isinstance(node.value, list) or not node.value:
        return
    if not isinstance(node.value[0], tuple):
        return
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        mark = Mark(key.start_mark.line + 1, key.start_mark.column + 1)
        if name in marks:
            twice.append(ConfigFault(f"the key is also in line {marks[name].line}; the last one wins", mark, name))
        marks[name] = mark
        _walk(value, f"{name}.", marks, twice, depth + 1)


def _bad(path: str, message: str, mark: Mark | None) -> Config:
    return Config(path, None, {}, {}, (ConfigFault(message, mark, fatal=True),))
