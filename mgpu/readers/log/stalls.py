"""Which collective timed out in a rank? Its watchdog prints it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from mgpu.durations import seconds_between
from mgpu.readers.log.line import Line
from mgpu.snapshot import StalledCollective

_WATCHDOG = re.compile(
    r"(?:\[Rank (?P<rank>\d{1,9})\] )?(?:Watchdog c|C)aught collective operation timeout: "
    r"WorkNCCL\((?:SeqNum=(?P<seq>\d{1,15}), )?OpType=(?P<op>\w+)"
    r"(?:, NumelIn=(?P<elements>\d{1,15})|, TensorShape=\[(?P<one>1)\])?(?:.*?Timeout\(ms\)=(?P<ms>\d{1,15})\b"
    r"(?:\) ran for (?P<ran>\d{1,15}) )?)?"
)
_COMPLETED = re.compile(r"last completed (?:NCCL )?work: (-?\d{1,15})\b")
_STUCK = re.compile(r"watchdog got stuck for (\d{1,9}) seconds")
_GROUP = re.compile(r"\[PG (?:ID \d{1,9} PG GUID )?(?P<name>\d{1,9}(?: ?\([\w.-]{1,60}\))?) Rank \d")


def read_stall(line: Line) -> StalledCollective | None:
    """Return the collective that this line of a watchdog reports, if it is one."""
    found = _WATCHDOG.search(line.text) if "aught collective" in line.text else None
    if found is None:
        return None
    done, group = _COMPLETED.search(line.text), _GROUP.search(line.text)
    return StalledCollective(
        int(found["rank"]) if line.rank is None and found["rank"] else line.rank,
        int(found["seq"]) if found["seq"] else None,
        found["op"],
        int(found["ms"]) / 1000 if found["ms"] else None,
        int(done[1]) if done else None,
        line.at,
        int(found["elements"] or found["one"]) if found["elements"] or found["one"] else None,
        int(found["ran"]) / 1000 if found["ran"] else None,
        group["name"] if group else None,
    )


def read_silence(line: Line) -> tuple[str, float] | None:
    """Return when this line reports that a watchdog got stuck, and for how many seconds it had been."""
    found = _STUCK.search(line.text) if line.at and "got stuck" in line.text else None
    return (line.at, float(found[1])) if found and line.at else None


def silent_after(stalled: Iterable[StalledCollective], silences: Iterable[tuple[str, float]]) -> float | None:
    """Return the seconds from the first timeout until the first watchdog got stuck; None if a time is not known."""
    timeout = min((one.at for one in stalled if one.at), default=None)
    if timeout is None:
        return None
    passed = [(seconds_between(timeout, then), lasted) for then, lasted in silences]
    return min((seconds - lasted for seconds, lasted in passed if seconds is not None), default=None)


def add_stall(stalled: dict[int | None, StalledCollective], new: StalledCollective) -> None:
    """Add a report. Of each rank the first is kept, and whether it reports other collectives without their groups."""
    old = stalled.setdefault(new.rank, new)
    if old.group is None and new.group is not None and new.sequence == old.sequence:
        old = stalled[new.rank] = replace(old, group=new.group)
    if new.rank is not None and new.sequence != old.sequence and new.group is None and old.group is None:
        stalled[new.rank] = replace(old, several=True)
