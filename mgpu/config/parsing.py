"""What does the text of a config say, and where in it?

Values are read as PyYAML reads them, because accelerate does (an unquoted NO is false, 010 is 8, the last of two equal
keys wins); positions come from the same composed text. What cannot be made sense of becomes faults, never an exception,
and no text takes more than about a second: aliases are counted before they are written out.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from mgpu.config.loader_errors import not_json, not_yaml
from mgpu.errors import reason
from mgpu.snapshot import ConfigFault, Mark, Scalar
from mgpu.structured_text import Malformed, composed, endless, json_of, yaml_loader

_DEEPEST = 20  # sections in sections that are looked into


class Parsed(NamedTuple):
    """What a text says, where each dotted key stands, what its value looks like, and what is wrong with the text."""

    values: dict[str, Any]
    marks: dict[str, Mark]
    scalars: dict[str, Scalar]
    faults: tuple[ConfigFault, ...]


def parse(text: str, *, json_only: bool = False) -> Parsed:
    """The text as YAML (or JSON) 1.1, read as PyYAML reads it. Never raises: what cannot be read is a fault."""
    import yaml

    plain: Any = None
    if json_only:
        try:
            plain = json_of(text)
        except Malformed as error:
            return unreadable(*not_json(text, error.__cause__ or error))
        text = text.replace("\t", " ")  # JSON takes tabs between its words, YAML does not
    found = _Found({}, {}, [], [])
    values: Any = plain  # of JSON that YAML does not take: a line separator in a name
    try:
        loader = yaml_loader(text)
        node = composed(loader)
        if node is not None:
            if number := endless(node):
                return unreadable(*_cannot_be_read(number), "value")
            _walk(loader, node, "", found, 0)
        values = plain if json_only else loader.construct_document(node) if node is not None else None
        plain = _plain(values)
    except yaml.YAMLError as error:
        if not json_only:
            return unreadable(*not_yaml(text, error))
    except (RecursionError, Malformed) as error:
        words = str(error) if isinstance(error, Malformed) else "it is nested too deep"
        return unreadable(f"not a config: {words}", Mark(1, 1), "too_much")
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        # PyYAML raises bare Python errors for some broken values: 2024-13-45, a number of 5000 digits.
        return unreadable(*_culprit(found, error), "value")
    if values is None:
        return unreadable("the file is empty", Mark(1, 1), "empty")
    if not isinstance(values, dict):
        what = "a list" if isinstance(values, list | tuple) else "a single value"
        if what == "a single value" and re.search(r"^\s*[A-Za-z_]+:\S", text, re.MULTILINE):
            return unreadable("not YAML: no blank after the colon, so that all of it is one text", Mark(1, 1), "colon")
        return unreadable(f"a mapping of keys is expected, this is {what}", Mark(1, 1), "shape")
    return Parsed(plain, found.marks, found.scalars, tuple(found.twice))


class _Found(NamedTuple):
    """What a walk over the composed text gathers."""

    marks: dict[str, Mark]
    scalars: dict[str, Scalar]
    twice: list[ConfigFault]
    nodes: list[Any]  # the scalar nodes, to find the one that cannot be constructed


def unreadable(message: str, mark: Mark | None, kind: str) -> Parsed:
    return Parsed({}, {}, {}, (ConfigFault(message, mark, fatal=True, kind=kind),))


def _culprit(found: _Found, error: Exception) -> tuple[str, Mark]:
    """The value that PyYAML cannot make anything of, and where it stands."""
    maker = yaml_loader("")
    for node in found.nodes:
        if not _constructs(maker, node):
            return _cannot_be_read(node)
    return f"not YAML: {reason(error)}", Mark(1, 1)


def _cannot_be_read(node: Any) -> tuple[str, Mark]:
    what = {"timestamp": "a date", "int": "a whole number", "float": "a number"}
    kind = node.tag.rpartition(":")[2]
    mark = Mark(node.start_mark.line + 1, node.start_mark.column + 1)
    return f"not YAML: {_printable(node.value)[:30]!r} cannot be read as {what.get(kind, kind)}", mark


def _constructs(maker: Any, node: Any) -> bool:
    try:
        maker.construct_object(node)
    except Exception:
        return False
    return True


def _printable(text: str) -> str:
    """Half a surrogate pair, which a YAML escape can make, cannot be printed or hashed."""
    return text.encode("utf-8", "replace").decode()


def _plain(data: Any) -> Any:
    """As JSON has it: string keys (YAML 1.1 has others: `no:` is False), dates as text, all of it printable."""
    if isinstance(data, dict):
        return {str(_plain(key)): _plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple | set):
        return [_plain(value) for value in data]
    if data is None or isinstance(data, bool | int | float):
        return data
    return _printable(str(data))


def _walk(loader: Any, node: Any, prefix: str, found: _Found, depth: int) -> None:
    """Note where every key stands, what its value looks like, and the keys that stand twice."""
    if depth > _DEEPEST or not isinstance(node.value, list):
        return
    own: dict[str, Mark] = {}
    lines: dict[str, int | None] = {}  # where a key stands alone on its line, so that the line can be taken away
    merged: list[Any] = []
    for item in node.value:
        if not isinstance(item, tuple):
            found.nodes.extend([item] if isinstance(item.value, str) else ())
            continue
        key, value = item
        if key.tag == "tag:yaml.org,2002:merge":
            merged.extend(value.value if value.id == "sequence" else [value])
            continue
        name = f"{prefix}{_key_text(loader, key)}"
        mark = Mark(key.start_mark.line + 1, key.start_mark.column + 1)
        if name in own:
            words = f"the key is also in line {own[name].line}; the last one wins"
            stale = lines[name] if lines[name] != mark.line else None
            found.twice.append(ConfigFault(words, mark, name, kind="twice", stale_line=stale))
            for inner_name in [n for n in found.marks if n.startswith(f"{name}.")]:
                found.marks.pop(inner_name)
                found.scalars.pop(inner_name, None)
        own[name] = found.marks[name] = mark
        alone = isinstance(value.value, str) and not node.flow_style and value.end_mark.line == key.start_mark.line
        lines[name] = mark.line if alone else None
        found.scalars.pop(name, None)
        if isinstance(value.value, str):
            at = value.start_mark
            found.scalars[name] = Scalar(_printable(value.value), value.style in ("'", '"'), at.line + 1, at.column + 1)
            found.nodes.append(value)
        _walk(loader, value, f"{name}.", found, depth + 1)
    for base in merged:  # `<<: *base`: a key of the base counts unless the mapping has its own, and stands there
        inner = _Found({}, {}, [], found.nodes)
        _walk(loader, base, prefix, inner, depth + 1)
        for name, mark in inner.marks.items():
            if name not in found.marks:
                found.marks[name] = mark
                found.scalars.update({name: inner.scalars[name]} if name in inner.scalars else {})


def _key_text(loader: Any, key: Any) -> str:
    """A key as `values` has it: text, whatever YAML makes of it."""
    if not isinstance(key.value, str):
        return "[...]"
    return _printable(key.value) if key.tag == "tag:yaml.org,2002:str" else str(_plain(loader.construct_object(key)))
