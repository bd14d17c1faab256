"""Which program does a log show? The commands of fixes start its script."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mgpu.command_line import shell
from mgpu.engine.outcome import Outcome, with_commands
from mgpu.message_names import name_script
from mgpu.snapshot import Log

_STARTED = re.compile(r"(?P<name>[\w.-]+\.py) in <module>")  # an installed program's frame has its package's folder


def named(outcomes: Iterable[Outcome], log: Log) -> tuple[Outcome, ...]:
    """Return the outcomes with commands for the script that the log's first traceback begins in."""
    first = next((one for one in log.raised if one.frames and not one.of_launcher), None)
    found = _STARTED.fullmatch(first.frames[0]) if first else None
    target = shell("{:path}", found["name"]) if found else ""
    if not target:
        return tuple(outcomes)
    return tuple(with_commands(outcome, lambda command: name_script(command, target)) for outcome in outcomes)
