"""What is said when a launched training has ended? One line when it went well, one box when not: who failed first, why,
and what to do. The same is kept in the run's folder and written for `--json-result`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mgpu import durations, file_reading
from mgpu.errors import MgpuError, reason
from mgpu.launch import gpu_findings, gpu_usage, result_document
from mgpu.report import failure
from mgpu.report.screen import Line, Screen
from mgpu.secrets_masking import masked_argv, masked_env
from mgpu.structured_text import json_of
from mgpu.text import counted

if TYPE_CHECKING:
    from mgpu.engine import root_cause
    from mgpu.launch.request import Request
    from mgpu.launch.run_json import RunDocument
    from mgpu.process.command import Command
    from mgpu.report.json_types import Triage
    from mgpu.snapshot import Log, Run, Snapshot

STORED = "result.json"
_LARGEST = 4 << 20  # bytes; a result of 1,000 ranks has less than 1 MiB


def end(request: Request, command: Command, folder: Path, run: Run, snapshot: Snapshot | None = None) -> None:
    """Tell how a run ended, on stderr; keep it in the folder, and write --json-result."""
    document = _document(request, command, folder, run, snapshot)
    result_document.written(folder / STORED, document, 0o600)
    if request.json_result:
        result_document.written(Path(request.json_result), document)
    screen = Screen.of(sys.stderr)
    try:
        screen.show([[(screen.rule("end of your program"), "")], *lines(document, screen)])
    except OSError:  # the terminal was closed; Python would end with 120 where it cannot write what is left
        sys.stdout = sys.stderr = None


def stored(folder: Path, screen: Screen) -> list[Line] | None:
    """The end of a run that is over, as it was told; None where nothing is kept of it."""
    try:
        document: RunDocument = json_of(file_reading.read_whole(folder / STORED, most=_LARGEST))
        return lines({**document, "logs": str(folder.absolute())}, screen)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def lines(document: RunDocument, screen: Screen) -> list[Line]:
    """The end of a run: one line, or the box."""
    took = durations.lasted(document["duration_s"])
    if document["exit_code"] == 0:
        peak = document.get("peak_memory")
        said: list[Line] = [[("mgpu: finished", "ok"), (f", exit 0, {took}{f', {peak}' if peak else ''}", "")]]
    else:
        word = "timed out" if document["timed_out"] else "stopped" if document["signalled"] else "FAILED"
        by = f" by {document['signalled']}" if document["signalled"] and not document["timed_out"] else ""
        said = [[(f"mgpu: {word}", "fail"), (f"{by} after {took}, exit {document['exit_code']}", "")]]
        if document["triage"]:
            said += failure.lines(document, screen, document.get("ranks") or ())
        elif first := document["first_failure"]:
            said += failure.row(screen, "First to fail", failure.who(first))
        if document.get("log_trouble"):
            said += failure.row(screen, "Log", f"could not be read: {document['log_trouble']}")
        said += failure.row(screen, "Log", f"{document['logs']}/run.log")
        if document["exit_code"] and not document["signalled"]:
            said += _again(document["again"], screen)
    said += gpu_findings.lines(document.get("remarks", []), screen, well=not document["exit_code"])
    if document["left_over"]:
        number = document["left_over"]
        text = f"mgpu ended {counted(number, 'process', 'processes')} that were left behind"
        said += screen.paragraph(text)
    return said


def _again(command: str, screen: Screen) -> list[Line]:
    """Pastes: never wrapped."""
    if screen.narrow:
        return [[("Same again", "bold")], [(f"  {command}", "")]]
    return [[(f"{'Same again':<15}", "bold"), (command, "")]]


def _document(request: Request, command: Command, folder: Path, run: Run, snapshot: Snapshot | None) -> RunDocument:
    """What `--json-result` holds: mgpu.run/1.0."""
    from mgpu.engine import root_cause
    from mgpu.process import run_log

    triage, trouble = result_document.no_triage(), None
    if run.exit_code:
        log, trouble = read_logs(run_log.parts(folder)) if request.triage else (None, None)
        triage = triaged(
            root_cause.of(log, run, snapshot.config if snapshot else None), log, run, wanted=request.triage
        )
    document: RunDocument = result_document.begun(run, triage=request.triage)
    document.update({"command": masked_argv(command.argv), "env_added": masked_env(command.env_added)})
    result_document.add_failure(document, run, triage)
    document.update(
        {
            "gpus": [
                {
                    "index": g.index,
                    "uuid": g.uuid,
                    "rank": g.rank,
                    "busy_percent": g.busy_percent,
                    "peak": g.peak_bytes,
                    "mem_total": g.total_bytes,
                }
                for g in run.gpus or ()
            ],
            "peak_memory": gpu_usage.peak(run.gpus),
            "busy": gpu_usage.busy(run.gpus),
            "gpus_gap": run.gpus_gap,
            "remarks": gpu_findings.of(run),
            "oom_kills": run.oom_kills,
            "memory_lowest": run.memory_lowest_bytes,
            "left_over": run.left_over,
            "log_trouble": trouble,
            "logs": str(folder),
            "again": result_document.again(request.target),
        }
    )
    return document


def triaged(chosen: root_cause.Verdict, log: Log | None, run: Run, *, wanted: bool) -> Triage:
    """Who failed first and why; without `wanted` only who."""
    found = failure.found(chosen, log, run)
    return found if wanted else {**found, "probable_cause": None, "secondary": []}


def read_logs(paths: Sequence[Path]) -> tuple[Log | None, str | None]:
    """What the logs of a run tell, or why they cannot be read."""
    from mgpu.readers.log import read

    if not paths:
        return None, None
    try:
        return read.logs(list(paths), one_stream=True), None
    except MgpuError as error:
        return None, error.message
    except Exception as error:  # the end of a training is told whatever its log holds
        return None, f"a bug in mgpu: {reason(error)}"
