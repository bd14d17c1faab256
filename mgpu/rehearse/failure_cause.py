"""Why did the user's script fail in the rehearsal, according to its output?"""

from __future__ import annotations

from pathlib import Path

from mgpu.engine import root_cause
from mgpu.errors import MgpuError
from mgpu.readers.log import read
from mgpu.readers.sources.value_origins import with_sources
from mgpu.snapshot import EndedRank, Rehearsal, Run, ScriptCause


def find(log: Path, facts: Rehearsal) -> ScriptCause | None:
    """Return the first cause that the log's reader finds; None if it finds none."""
    try:
        if not log.stat().st_size:
            return None
        content = with_sources(read.read_logs([log], one_stream=True, failed=True))
    except (OSError, MgpuError):
        return None
    code = facts.exit_code if facts.exit_code is not None else 1
    run = Run(code, code, facts.took_s, ranks=tuple(EndedRank(one.rank, None, False) for one in facts.ranks))
    chosen = root_cause.find_cause(content, run)
    problem = chosen.first.outcome.problem if chosen.first else None
    if chosen.first is None or problem is None:
        return None
    fix = problem.fixes[0].text if problem.fixes else ""
    return ScriptCause(chosen.first.id, problem.title, problem.cause, fix)
