"""How are seed documents spoilt? Bytes, lines, words of a dictionary, and values in the tree of a JSON document."""

from __future__ import annotations

import copy
import json
import random
import string
from collections.abc import Callable, Sequence
from typing import Any

WORDS: tuple[bytes, ...] = tuple(
    text.encode("utf-8", "surrogatepass")
    for text in (
        "", "\0", "\x1b[2J", "\x7f", "\r\n", "\r", "\ufeff", "\u2028", "\u202e", "\ud800", "\U0010ffff", "²", "٣",
        "-1", "0", "1e999", "-0.0", "NaN", "Infinity", "9" * 19, "9" * 40, "9" * 400, "9" * 5000, "0x" + "f" * 400,
        "1:" * 200, "2024-13-45", "true", "null", "None", '""', "''", "'", '"', '"""', "\\", "\\u0000", "\\ud800",
        "[", "]", "{", "}", "[" * 200, "{" * 200, '{"a":' * 200, "(" * 200, "$(" * 100, "[]", "{}", "[[]]", "[{}]",
        "&a ", "*a", "<<: *a", "!!python/object:os.system x", "!!binary x", "- ", "? ", ": ", "# ", "---", "...",
        "%s%n", "{0.__class__}", "../" * 30, "/dev/zero", "/", "~", "$HOME", "`id`", "x" * 3000, " " * 3000, "\t" * 300,
        "\n" * 300, "a." * 300, "a,b" * 300, "n[0-99999999]", "GPU-" + "a" * 200, "::ffff:1.2.3.4", "1.2.3.4.5",
        "Traceback (most recent call last):\n", "[rank3]:", "ValueError: x", "exitcode: -9", "#SBATCH --nodes=x",
    )
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 10**30, -(10**30), 10**400, 1e308, 1.5, float("nan"), float("inf"), "", "x", "0", "-1",
    "9" * 5000, "\0", "\ud800", "\x1b[31m", "x" * 5000, "GPU-" + "0" * 80, "/dev/zero", "2026-01-01T00:00:00Z",
    "2026-99-99T99:99:99Z", [], {}, [[]], [{}], {"": {}}, [None], ["x"] * 300, {"a": {"a": {"a": 1}}}, [1, "2", None],
    {"schema": 1}, list(range(300)), "1.2.3.4", "n[1-3]",
)  # fmt: skip


def _flip(raw: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(raw) + 1)
    return raw[:at] + bytes([dice.randrange(256)]) + raw[at + dice.randint(0, 1) :]


def _cut(raw: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(raw) + 1)
    return raw[:at] + raw[at + dice.choice([1, 3, 40, len(raw)]) :]


def _double(raw: bytes, dice: random.Random) -> bytes:
    lines = raw.split(b"\n")
    at, times = dice.randrange(len(lines)), dice.choice([1, 1, 2, 50])
    return b"\n".join([*lines[:at], *[lines[at]] * times, *lines[at:]])


def _move(raw: bytes, dice: random.Random) -> bytes:
    lines = raw.split(b"\n")
    line = lines.pop(dice.randrange(len(lines)))
    lines.insert(dice.randrange(len(lines) + 1), line)
    return b"\n".join(lines)


def _insert(raw: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(raw) + 1)
    word = dice.choice(WORDS) if dice.random() < 0.8 else dice.choice(string.punctuation).encode()
    return raw[:at] + word + raw[at:]


def _replace(raw: bytes, dice: random.Random) -> bytes:
    """What stands after a colon, an equals sign or a blank, by a word."""
    lines = raw.split(b"\n")
    at = dice.randrange(len(lines))
    mark = dice.choice([b":", b"=", b" "])
    head, found, rest = lines[at].partition(mark)
    end = rest[len(rest.rstrip(b",]}\"' \r")) :] if dice.random() < 0.5 else b""
    lines[at] = head + found + b" " * (mark == b":") + dice.choice(WORDS) + end
    return b"\n".join(lines)


def _splice(raw: bytes, dice: random.Random) -> bytes:
    """A piece of itself, elsewhere."""
    start = dice.randrange(len(raw) + 1)
    piece = raw[start : start + dice.choice([10, 100, 1000])]
    at = dice.randrange(len(raw) + 1)
    return raw[:at] + piece + raw[at:]


def _coding(raw: bytes, dice: random.Random) -> bytes:
    """Another coding, or other line ends."""
    text = raw.decode("utf-8", "replace")
    if dice.random() < 0.5:
        return raw.replace(b"\n", dice.choice([b"\r\n", b"\r", b"\n\n"]))
    return text.encode(dice.choice(["utf-8-sig", "utf-16", "utf-16-le", "utf-32"]), "replace")


BYTES: tuple[Callable[[bytes, random.Random], bytes], ...] = (_flip, _cut, _double, _move, _insert, _replace, _splice)


def spoilt(seeds: Sequence[bytes], dice: random.Random) -> bytes:
    """A seed with one to four faults."""
    raw = dice.choice(seeds)
    tree = _tree(raw) if dice.random() < 0.7 else None
    if tree is not None:
        for _ in range(dice.randint(1, 3)):
            tree = _changed(tree, dice)
        raw = json.dumps(tree, indent=1).encode("utf-8", "surrogatepass")
        if dice.random() < 0.8:
            return raw
    for _ in range(dice.randint(1, 4)):
        raw = dice.choice(BYTES)(raw, dice)
    return _coding(raw, dice) if dice.random() < 0.05 else raw


def _tree(raw: bytes) -> Any:
    """The document, where it is one of JSON."""
    if raw[:1] not in (b"{", b"["):
        return None
    try:
        return json.loads(raw)
    except ValueError:
        return None


def _changed(tree: Any, dice: random.Random) -> Any:
    """The document with one value, key or item changed; deeper ones as often as others."""
    if dice.random() < 0.02:
        return copy.deepcopy(dice.choice(VALUES))
    node = tree
    path: list[tuple[Any, Any]] = []
    while isinstance(node, dict | list) and node and (not path or dice.random() < 0.85):
        key: Any = dice.choice(list(node)) if isinstance(node, dict) else dice.randrange(len(node))
        path.append((node, key))
        node = node[key]
    if not path:
        return copy.deepcopy(dice.choice(VALUES))
    holder, key = path[-1]
    way = dice.random()
    if way < 0.7:
        holder[key] = copy.deepcopy(dice.choice(VALUES))
    elif way < 0.8:
        del holder[key]
    elif isinstance(holder, dict):
        holder[dice.choice(["", "x", "\0", "schema", "n" * 3000, str(key) * 2])] = holder[key]
    else:
        holder.extend(holder[:1] * dice.choice([1, 2, 100]))
    return tree
