"""Which communicators have a problem, according to the text that NCCL's RAS answers to `VERBOSE STATUS`?

The format: src/ras/client_support.cc of NCCL, and troubleshooting/ras.rst of its user guide. NCCL 2.24 and 2.25 count
the collectives of all types together; later releases count each type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from mgpu.snapshot import RasCommunicator, RasCount
from mgpu.text import clean

_MOST_COMMUNICATORS = 32
_MOST_RANKS = 4096  # of one list
_HEAD = re.compile(r"#\d+-\d+ \(([0-9a-f]{1,16})\) (INCOMPLETE|ERROR|MISMATCH|ABORT|[A-Z]+)")
_MISSING = re.compile(r"\s+The missing ranks?: (.+)")
_COUNTS = re.compile(r"\s+Communicator ranks have different (\w+) operation counts")
_GROUP = re.compile(r"\s+(\d{1,7}) ranks have (?:launched up to operation (\d{1,18})|not launched any operations)")
_LONE = re.compile(r"\s+Rank (\d{1,7}) has (?:launched up to operation (\d{1,18})|not launched any operations) -- ")
_DEAD = re.compile(r"\s+(Process \d+ on node \S+)")
JOB = "job"  # in place of a communicator: what RAS reports about processes
_RANK = re.compile(r"\s+Rank (\d{1,7}) -- ")
_REPORTED = re.compile(r"\s+(Rank \d+|\d+ ranks) reported (.+?)(?: -- .*)?$")


@dataclass
class _Found:
    """What the text says about one communicator."""

    missing: list[int] = field(default_factory=list)
    counts: list[tuple[str, int, int, list[int]]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def communicators(text: str) -> tuple[RasCommunicator, ...]:
    """Return the communicators with a problem; empty if there are none."""
    found: dict[str, _Found] = {}
    here: _Found | None = None
    section, operation = "", ""
    for line in text.splitlines():
        if head := _HEAD.match(line):
            section, operation = head[2], ""
            here = found.setdefault(head[1], _Found()) if len(found) < _MOST_COMMUNICATORS else found.get(head[1])
        elif not line.startswith(" "):
            section = line.strip() if line.strip() == "DEAD" else "" if line.strip() else section
        elif section == "DEAD" and (process := _DEAD.match(line)):
            found.setdefault(JOB, _Found()).errors.append(clean(f"{process[1]} is dead")[:120])
        elif here is not None and section == "INCOMPLETE":
            _missing(line, here)
        elif here is not None and section in ("MISMATCH", "ERROR"):
            operation = _mismatch(line, here, operation)
    return tuple(
        RasCommunicator(
            name,
            tuple(one.missing[:_MOST_RANKS]),
            tuple(RasCount(what, launched, number, tuple(ranks)) for what, launched, number, ranks in one.counts),
            tuple(one.errors[:8]),
        )
        for name, one in found.items()
        if one.missing or one.counts or one.errors
    )


def _missing(line: str, here: _Found) -> None:
    if len(here.missing) < _MOST_RANKS and (listed := _MISSING.match(line) or _RANK.match(line)):
        here.missing += _numbers(listed[1])


def _numbers(text: str) -> list[int]:
    """Return the numbers of "21" or "3,5,8-10"."""
    found: list[int] = []
    for span in re.finditer(r"\b(\d{1,7})(?:-(\d{1,7}))?\b", text):
        if len(found) >= _MOST_RANKS:
            break
        first = int(span[1])
        found += range(first, min(int(span[2] or first), first + _MOST_RANKS) + 1)
    return found[:_MOST_RANKS]


def _mismatch(line: str, here: _Found, operation: str) -> str:
    """Add what one line says; return the type of the collectives that the next lines count."""
    if counts := _COUNTS.match(line):
        return clean(counts[1])[:40]
    if reported := _REPORTED.match(line):
        here.errors.append(clean(f"{reported[1]} reported {reported[2]}")[:120])
    elif not operation:
        return ""
    elif group := _GROUP.match(line):
        here.counts.append((operation, int(group[2] or 0), int(group[1]), []))
    elif lone := _LONE.match(line):
        here.counts.append((operation, int(lone[2] or 0), 1, [int(lone[1])]))
    elif (rank := _RANK.match(line)) and here.counts and len(here.counts[-1][3]) < _MOST_RANKS:
        here.counts[-1][3].append(int(rank[1]))
    elif "different status" in line:
        return ""
    return operation
