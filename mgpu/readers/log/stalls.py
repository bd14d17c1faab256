"""Which collective timed out in a rank? Its watchdog prints it."""

from __future__ import annotations

import re

from mgpu.readers.log.line import Line
from mgpu.snapshot import StalledCollective

_WATCHDOG = re.compile(
    r"(?:\[Rank (?P<rank>\d{1,9})\] )?(?:Watchdog c|C)aught collective operation timeout: "
    r"WorkNCCL\((?:SeqNum=(?P<seq>\d{1,15}), )?OpType=(?P<op>\w+)"
    r"(?:, NumelIn=(?P<elements>\d{1,15})|, TensorShape=\[(?P<one>1)\])?(?:.*?Timeout\(ms\)=(?P<ms>\d{1,15})\b)?"
)
_COMPLETED = re.compile(r"last completed (?:NCCL )?work: (-?\d{1,15})\b")


def read_stall(line: Line) -> StalledCollective | None:
    """Return the collective that this line of a watchdog reports, if it is one."""
    found = _WATCHDOG.search(line.text) if "aught collective" in line.text else None
    if found is None:
        return None
    done = _COMPLETED.search(line.text)
    return StalledCollective(
        int(found["rank"]) if line.rank is None and found["rank"] else line.rank,
        int(found["seq"]) if found["seq"] else None,
        found["op"],
        int(found["ms"]) / 1000 if found["ms"] else None,
        int(done[1]) if done else None,
        line.at,
        int(found["elements"] or found["one"]) if found["elements"] or found["one"] else None,
    )
