"""Which program does a log show? The commands of fixes start its script."""

from __future__ import annotations

from collections.abc import Iterable

from mgpu.command_line import shell
from mgpu.engine.outcome import Outcome, with_commands
from mgpu.message_names import name_script
from mgpu.snapshot import Log


def named(outcomes: Iterable[Outcome], log: Log) -> tuple[Outcome, ...]:
    """Return the outcomes with commands for the script that the log's first traceback begins in."""
    target = shell("{:path}", log.script) if log.script else ""
    if not target:
        return tuple(outcomes)
    return tuple(with_commands(outcome, lambda command: name_script(command, target)) for outcome in outcomes)
