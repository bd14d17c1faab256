"""Small training scripts with one fault each, and their repaired twins.

A section `=== name` of a text file is one pair, written as its difference: lines that begin with "-" stand in the bad
script only, with "+" in the repaired one only, with a space in both. The line that a finding must name ends with
`# <- id`.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from mgpu.readers.training_script import read as training_script_read
from mgpu.snapshot import Script

HERE = Path(__file__).parent
_MARK = re.compile(r"  # <- (\w+)$")


@dataclass(frozen=True)
class Pair:
    """A script with a fault, the same without it, and what is to be found in the first: check and line."""

    name: str
    bad: str
    good: str
    expected: frozenset[tuple[str, int]]


@cache
def pairs() -> tuple[Pair, ...]:
    """All of them, by file and name."""
    found = []
    for path in sorted(HERE.glob("*.txt")):
        for section in re.split(r"(?m)^=== ", path.read_text("utf-8"))[1:]:
            name, _, text = section.partition("\n")
            found.append(pair_of(f"{path.stem}-{name.strip().replace(' ', '-')}", text.rstrip("\n").split("\n")))
    return tuple(found)


def bad(name: str) -> Script:
    """What the bad script of a pair is read as."""
    return read(next(pair for pair in pairs() if pair.name == name).bad)


def good(name: str) -> Script:
    """What its twin is read as."""
    return read(next(pair for pair in pairs() if pair.name == name).good)


def read(text: str) -> Script:
    """The fact that the text of a script becomes, as if it were train.py."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.py"
        path.write_text(text, "utf-8")
        return replace(training_script_read.read(path), path="train.py")


def pair_of(name: str, lines: list[str]) -> Pair:
    """A pair, of the lines of its difference."""
    for line in lines:
        assert line[:1] in ("", " ", "-", "+"), f"{name}: a line begins with neither of ' -+': {line!r}"
    bad = [line[1:] for line in lines if line[:1] != "+"]
    good = [line[1:] for line in lines if line[:1] != "-"]
    marks = {(found[1], number) for number, line in enumerate(bad, 1) if (found := _MARK.search(line))}
    return Pair(name, _text(bad), _text(good), frozenset(marks))


def _text(lines: list[str]) -> str:
    return "\n".join(_MARK.sub("", line) for line in lines) + "\n"
