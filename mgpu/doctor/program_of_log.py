"""Which program does a log show? The commands of fixes start its script, whose source may show why the run failed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from mgpu.command_line import shell
from mgpu.engine import foreseen, root_cause
from mgpu.engine.outcome import Outcome, with_commands
from mgpu.errors import MgpuError
from mgpu.message_names import name_script
from mgpu.snapshot import Log, Snapshot


def named(outcomes: Iterable[Outcome], log: Log) -> tuple[Outcome, ...]:
    """Return the outcomes with commands for the script that the log's first traceback begins in."""
    target = shell("{:path}", log.script) if log.script else ""
    if not target:
        return tuple(outcomes)
    return tuple(with_commands(outcome, lambda command: name_script(command, target)) for outcome in outcomes)


def findings_in_source(outcomes: Sequence[Outcome], log: Log) -> list[Outcome]:
    """Return the findings in the source of the log's script, if it is there, that may be why the run failed."""
    from mgpu.readers.training_script import read

    first = root_cause.choose(outcomes, log, None).first
    failed = first is not None or log.failed is not None
    code = next((rank.exit_code for rank in log.fallen if rank.exit_code), 1)
    kind = first.kind if first else None
    if log.source is None or log.finished is not None or not failed or not foreseen.tags_of(kind, code, stopped=False):
        return []
    try:
        script = read.read(Path(log.source))
    except MgpuError:  # it was deleted meanwhile
        return []
    if script.error:
        return []
    found = foreseen.script_findings(Snapshot(script=script))
    return foreseen.foreseen(found, kind, code, stopped=False)
