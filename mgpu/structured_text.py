"""How is untrusted JSON, TOML or YAML parsed?

Every fault is one exception, Malformed: broken syntax, deep nesting, a number with thousands of digits, aliases that
expand to billions of values. It is raised before memory or time is spent. The size of the file is limited when it is
read (mgpu/file_reading.py).
"""

from __future__ import annotations

import importlib
import itertools
import json
import re
import sys
from collections.abc import Callable
from typing import Any, Final

from mgpu.errors import reason

DEEPEST: Final = 64  # levels; mgpu's own documents have 12, and Python's json and repr fail at about 1,000
MOST_VALUES: Final = 1_000_000  # of a JSON text: at most 240 bytes of memory each
MOST_DIGITS: Final = 300  # every such number is also a float (at most 1.8e308)
MOST_NODES: Final = 20_000  # keys and values of a YAML text; PyYAML composes them in about half a second
MOST_EXPANDED: Final = 4 << 20  # characters of a YAML text with all aliases expanded
_MOST_BITS: Final = 997  # of a number with 300 digits
_QUOTED: Final = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'")
# a.b.c: tomllib needs minutes for one key of 50,000 names
_DOTTED: Final = re.compile(rf"(?<![\w-])(?:[\w-]+[ \t]*\.[ \t]*){{{DEEPEST}}}")


class Malformed(ValueError):
    """A text that cannot be used. The message is a clause without a place: "it is nested more than 64 levels deep"."""

    def __init__(self, why: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(why)
        self.line, self.column = line, column


def json_of(
    data: str | bytes, *, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None, most_values: int = MOST_VALUES
) -> Any:
    """Parse a JSON text. Infinity and NaN are allowed, as Python writes them. `pairs`: object_pairs_hook.

    Raises Malformed, whose __cause__ is the JSONDecodeError if the syntax is wrong.
    """
    if isinstance(data, bytes):
        try:
            data = data.decode(json.detect_encoding(data))
        except UnicodeDecodeError:
            raise Malformed("not JSON: it is not UTF-8 text") from None
    if data.count(",") + data.count("[") + data.count("{") > most_values:
        raise Malformed(f"it has more than {most_values:,} values")
    try:
        found = json.loads(data, parse_int=_whole, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        raise Malformed(f"not JSON: {error.msg}", error.lineno, error.colno) from error
    except RecursionError:
        raise _too_deep() from None
    refuse_extremes(found)
    return found


def toml_of(text: str) -> Any:
    """Parse a TOML text. Raises Malformed."""
    tomllib: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    if _DOTTED.search(_QUOTED.sub("q", text)):
        raise _too_deep()
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", str(error), re.DOTALL)
        line, column = (int(match[2]), int(match[3])) if match and match[2] else (None, None)
        raise Malformed(match[1] if match else str(error), line, column) from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:  # Python's limit on the digits of a number
        digits = max(map(len, re.findall(r"[\d_]+", text)), default=0)
        raise Malformed(f"it has a number with {digits:,} digits" if digits > MOST_DIGITS else reason(error)) from None
    refuse_extremes(found)
    return found


def refuse_extremes(data: Any) -> None:
    """Raise Malformed if a value is nested too deep, or a number has too many digits."""
    level: list[Any] = [data]
    for _ in range(DEEPEST + 1):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner += value.values()
            elif isinstance(value, list | tuple):
                inner += value
            elif isinstance(value, int) and value.bit_length() > _MOST_BITS:
                raise Malformed(f"it has a number with about {int(value.bit_length() * 0.30103):,} digits")
        if not inner:
            return
        level = inner
    raise _too_deep()


def _whole(text: str) -> int:
    digits = len(text.lstrip("-"))
    if digits > MOST_DIGITS:
        raise Malformed(f"it has a number with {digits:,} digits")
    return int(text)


def _too_deep() -> Malformed:
    return Malformed(f"it is nested more than {DEEPEST} levels deep")


# YAML


def yaml_loader(text: str, kind: Any = None) -> Any:
    """PyYAML's safe loader (or a subclass), which raises Malformed for too many or too deeply nested values."""
    import yaml

    loader = (kind or yaml.SafeLoader)(text)
    compose, composed = loader.compose_node, itertools.count(1)
    depth = 0

    def compose_node(parent: Any, index: Any) -> Any:
        nonlocal depth
        if next(composed) > MOST_NODES:
            raise Malformed(f"it has more than {MOST_NODES:,} values")
        if depth > DEEPEST:
            raise _too_deep()
        depth += 1
        node = compose(parent, index)
        depth -= 1
        return node

    loader.compose_node = compose_node
    return loader


def composed(loader: Any) -> Any:
    """Return the root node of a YAML text, None if it is empty. Raises Malformed, and PyYAML's own errors."""
    node = loader.get_single_node()
    if node is not None:
        _expanded(node, {}, set())
    return node


def yaml_of(text: str, kind: Any = None, look: Callable[[Any], None] | None = None) -> Any:
    """Parse a YAML text. `kind`: a loader class derived from SafeLoader; `look` is called with the root node.

    Raises Malformed.
    """
    import yaml

    try:
        loader = yaml_loader(text, kind)
        node = composed(loader)
        if node is None:
            return None
        if number := endless(node):
            at = number.start_mark
            raise Malformed(f"it has a number with {len(number.value):,} digits", at.line + 1, at.column + 1)
        if look:
            look(node)
        found = loader.construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        message = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise Malformed(message, *((mark.line + 1, mark.column + 1) if mark else ())) from error
    except RecursionError:
        raise _too_deep() from None
    except Malformed:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        # PyYAML raises bare Python errors for some broken values: 2024-13-45.
        raise Malformed(reason(error)) from None
    refuse_extremes(found)
    return found


def endless(node: Any) -> Any:
    """The first scalar node that is a number with too many digits, or None. PyYAML needs minutes for one in base 60."""
    waiting, known = [node], set()
    while waiting:
        one = waiting.pop()
        if id(one) in known:
            continue
        known.add(id(one))
        if not isinstance(one.value, str):
            waiting += reversed(_inner(one))
        elif len(one.value) > MOST_DIGITS and one.tag.endswith((":int", ":float")):
            return one
    return None


def _inner(node: Any) -> list[Any]:
    return [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))]


def _expanded(node: Any, known: dict[int, tuple[int, int, int]], above: set[int]) -> tuple[int, int, int]:
    """Count the values, characters and levels of a node with every alias expanded.

    A few lines of nested aliases can expand to billions of values. Raises Malformed before anything is expanded.
    """
    if isinstance(node.value, str):
        return 1, len(node.value), 1
    if id(node) in above:
        raise Malformed("a value contains itself")
    if id(node) not in known:
        above.add(id(node))
        values, characters, levels = 1, 0, 0
        for part in _inner(node):
            more = _expanded(part, known, above)
            values, characters, levels = values + more[0], characters + more[1], max(levels, more[2])
        if values > MOST_NODES:
            raise Malformed(f"its aliases expand to more than {MOST_NODES:,} values")
        if characters > MOST_EXPANDED:
            raise Malformed(f"its aliases expand to more than {MOST_EXPANDED >> 20} MiB of text")
        if levels > DEEPEST:
            raise _too_deep()
        above.discard(id(node))
        known[id(node)] = values, characters, levels + 1
    return known[id(node)]
