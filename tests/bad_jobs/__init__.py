"""Small job scripts for Slurm with one fault each, and their repaired twins; written as in tests/bad_scripts.

A section `=== name` of a text file is one pair, written as its difference: lines that begin with "-" stand in the bad
script only, with "+" in the repaired one only, with a space in both. The line that a finding must name ends with
`# <- id`.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

from mgpu.readers.job_script import read as job_script_read
from mgpu.snapshot import JobScript
from tests.bad_scripts import Pair, pair_of

HERE = Path(__file__).parent


@cache
def pairs() -> tuple[Pair, ...]:
    """All of them, by file and name."""
    found = []
    for path in sorted(HERE.glob("*.txt")):
        for section in re.split(r"(?m)^=== ", path.read_text("utf-8"))[1:]:
            name, _, text = section.partition("\n")
            found.append(pair_of(f"{path.stem}-{name.strip().replace(' ', '-')}", text.rstrip("\n").split("\n")))
    return tuple(found)


@cache
def bad(name: str) -> JobScript:
    """What the bad script of a pair is read as."""
    return read(next(pair for pair in pairs() if pair.name == name).bad)


@cache
def good(name: str) -> JobScript:
    """What its twin is read as."""
    return read(next(pair for pair in pairs() if pair.name == name).good)


@cache
def read(text: str) -> JobScript:
    """The fact that the text of a script becomes, as if it were job.sbatch."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.sbatch"
        path.write_text(text, "utf-8", newline="")
        return replace(job_script_read.read(path), path="job.sbatch")
