"""Which values does the text of a config have, and at which positions?

Values are parsed with PyYAML, like in accelerate (an unquoted NO is false, 010 is 8, the last of two equal keys wins).
Positions come from the same node tree. Errors become faults, never exceptions, and no text takes more than about a
second, because aliases are counted before they are expanded.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from mgpu.config.loader_errors import not_json, not_yaml
from mgpu.errors import reason
from mgpu.snapshot import ConfigFault, Mark, Scalar
from mgpu.structured_text import Malformed, composed, endless, json_of, yaml_loader

_DEEPEST = 20  # maximum depth of nested sections


class Parsed(NamedTuple):
    """A text's values, the position and scalar text of each dotted key, and the text's faults."""

    values: dict[str, Any]
    marks: dict[str, Mark]
    scalars: dict[str, Scalar]
    faults: tuple[ConfigFault, ...]


def parse(text: str, *, json_only: bool = False) -> Parsed:
    """Parse a text as YAML 1.1 (or JSON), like PyYAML. Never raises: errors become faults."""
    import yaml

    plain: Any = None
    if json_only:
        try:
            plain = json_of(text)
        except Malformed as error:
            return unreadable(*not_json(text, error.__cause__ or error))
        text = text.replace("\t", " ")  # JSON allows tabs between tokens, YAML does not
    found = _Found({}, {}, [], [])
    values: Any = plain  # used if YAML rejects the JSON: a line separator in a name
    try:
        loader = yaml_loader(text)
        node = composed(loader)
        if node is not None:
            if number := endless(node):
                return unreadable(*_invalid_value(number), "value")
            _walk(loader, node, "", found, 0)
        values = plain if json_only else loader.construct_document(node) if node is not None else None
        plain = _plain(values)
    except yaml.YAMLError as error:
        if not json_only:
            return unreadable(*not_yaml(text, error))
    except (RecursionError, Malformed) as error:
        words = str(error) if isinstance(error, Malformed) else "it is nested too deeply"
        return unreadable(f"not a config: {words}", Mark(1, 1), "too_much")
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        # PyYAML raises bare Python errors for some broken values: 2024-13-45, a number of 5000 digits.
        return unreadable(*_find_invalid_value(found, error), "value")
    if values is None:
        return unreadable("the file is empty", Mark(1, 1), "empty")
    if not isinstance(values, dict):
        what = "a list" if isinstance(values, list | tuple) else "a single value"
        if what == "a single value" and re.search(r"^\s*[A-Za-z_]+:\S", text, re.MULTILINE):
            return unreadable("not YAML: no space after the colon, so the file is one string", Mark(1, 1), "colon")
        return unreadable(f"expected a mapping of keys, got {what}", Mark(1, 1), "shape")
    return Parsed(plain, found.marks, found.scalars, tuple(found.twice))


class _Found(NamedTuple):
    """The results of a walk over the node tree."""

    marks: dict[str, Mark]
    scalars: dict[str, Scalar]
    twice: list[ConfigFault]
    nodes: list[Any]  # all scalar nodes, to find one that cannot be converted


def unreadable(message: str, mark: Mark | None, kind: str) -> Parsed:
    """Return a result without values, with one fatal fault."""
    return Parsed({}, {}, {}, (ConfigFault(message, mark, fatal=True, kind=kind),))


def _find_invalid_value(found: _Found, error: Exception) -> tuple[str, Mark]:
    """Return a message about the value that PyYAML cannot convert, and its position."""
    maker = yaml_loader("")
    for node in found.nodes:
        if not _constructs(maker, node):
            return _invalid_value(node)
    return f"not YAML: {reason(error)}", Mark(1, 1)


def _invalid_value(node: Any) -> tuple[str, Mark]:
    what = {"timestamp": "a date", "int": "a whole number", "float": "a number"}
    kind = node.tag.rpartition(":")[2]
    mark = Mark(node.start_mark.line + 1, node.start_mark.column + 1)
    return f"not YAML: {_printable(node.value)[:30]!r} is not {what.get(kind, kind)}", mark


def _constructs(maker: Any, node: Any) -> bool:
    try:
        maker.construct_object(node)
    except Exception:
        return False
    return True


def _printable(text: str) -> str:
    """Replace lone surrogates, which a YAML escape can create, and which cannot be printed or hashed."""
    return text.encode("utf-8", "replace").decode()


def _plain(data: Any) -> Any:
    """Return a value as JSON: string keys (YAML 1.1 has others: `no:` is False), dates as text, all printable."""
    if isinstance(data, dict):
        return {str(_plain(key)): _plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple | set):
        return [_plain(value) for value in data]
    if data is None or isinstance(data, bool | int | float):
        return data
    return _printable(str(data))


def _walk(loader: Any, node: Any, prefix: str, found: _Found, depth: int) -> None:
    """Record the position and scalar text of every key, and duplicate keys."""
    if depth > _DEEPEST or not isinstance(node.value, list):
        return
    own: dict[str, Mark] = {}
    lines: dict[str, int | None] = {}  # line of a key, if nothing else is on it, so it can be removed
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
            words = f"duplicate key, also in line {own[name].line}. The last one wins"
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
    for base in merged:  # `<<: *base`: a key of the base applies unless the mapping has its own
        inner = _Found({}, {}, [], found.nodes)
        _walk(loader, base, prefix, inner, depth + 1)
        for name, mark in inner.marks.items():
            if name not in found.marks:
                found.marks[name] = mark
                found.scalars.update({name: inner.scalars[name]} if name in inner.scalars else {})


def _key_text(loader: Any, key: Any) -> str:
    """Return a key in the form used in `values`: always text."""
    if not isinstance(key.value, str):
        return "[...]"
    return _printable(key.value) if key.tag == "tag:yaml.org,2002:str" else str(_plain(loader.construct_object(key)))
