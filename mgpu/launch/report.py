"""Report the end of a launched run.

A run that succeeded or was interrupted with Ctrl-C takes one line. A failed one takes a box: which rank failed first,
why, and what to do. The same content is stored in the run's folder and written to `--json-result`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mgpu import engine, errors, file_reading, quantities
from mgpu.command_line import from_words
from mgpu.engine import selections
from mgpu.errors import MgpuError, reason
from mgpu.launch import complete_commands, gpu_usage, hang_report, memory_text, pace_report, remarks, result_document
from mgpu.process import run_log
from mgpu.report import failure
from mgpu.report.document import check_json
from mgpu.report.screen import Line, Screen
from mgpu.secrets_masking import masked_argv, masked_env
from mgpu.structured_text import json_of
from mgpu.text import counted

if TYPE_CHECKING:
    from mgpu.engine import root_cause
    from mgpu.launch.request import Request
    from mgpu.launch.run_json import GpuOfRun, RunDocument
    from mgpu.process.command import Command
    from mgpu.report.json_types import CheckEntry, Triage
    from mgpu.snapshot import Hang, Log, Run, Snapshot

STORED = "result.json"
PROGRAM_ENDS = "end of your program"
_RUNNING_SHOWN = 5
_LARGEST = 4 << 20  # bytes; a result of 1,000 ranks takes less than 1 MiB


def report_end(
    request: Request,
    command: Command,
    folder: Path,
    run: Run,
    snapshot: Snapshot | None = None,
    hang: Hang | None = None,
    recorded: Run | None = None,
    amend: Callable[[RunDocument], None] | None = None,
) -> None:
    """Report the end of a run on stderr, store it in the folder, and write --json-result.

    `recorded`: of a job or on hosts, the run with what its nodes have recorded of its ranks. `amend` adds what the
    hosts say of its end.
    """
    document = _document(request, command, folder, run, snapshot, hang)
    if recorded is not None:
        result_document.add_ranks(document, recorded)
    if amend is not None:
        amend(document)
    result_document.store(folder / STORED, document, 0o600)
    if request.json_result:
        result_document.store(Path(request.json_result), document)
    screen = Screen.of(sys.stderr)
    try:
        # Without a line break at its end, the rule would follow the last output on the same line.
        line_break: list[Line] = [] if _ends_its_line(folder / run_log.NAME) else [[]]
        screen.show([*line_break, [(screen.rule(PROGRAM_ENDS), "")], *lines(document, screen)])
    except OSError:  # the terminal was closed; Python would exit with 120 if it cannot flush these streams
        sys.stdout = sys.stderr = None


def _ends_its_line(log: Path) -> bool:
    """Whether a run's output ended with a line break. An empty or unreadable log counts as such."""
    try:
        with log.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
    except OSError:  # an empty file has no last byte
        return True


def load_report(folder: Path, screen: Screen) -> list[Line] | None:
    """Return the stored report of a finished run; None if there is none."""
    try:
        document = _stored(folder)
        return lines({**document, "logs": str(folder.absolute())}, screen)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _stored(folder: Path) -> RunDocument:
    """Read the document of a finished run. Raises OSError and ValueError."""
    document: RunDocument = json_of(file_reading.read_whole(folder / STORED, most=_LARGEST))
    return document


def first_to_fail(folder: Path) -> int | None:
    """Return the rank that failed first according to the stored report; None if there is none."""
    try:
        first = _stored(folder)["first_failure"]
        return int(first["rank"]) if first else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def lines(document: RunDocument, screen: Screen) -> list[Line]:
    """Return the report of a run's end: one line, or the box."""
    took = quantities.duration_text(document["duration_s"])
    if _is_interruption(document):
        return [
            [("Interrupted", "warn"), (f" after {took} (exit {document['exit_code']}).", "")],
            *failure.source_rows(document.get("foreseen", []), "Before the run", screen),
            *remarks.lines(document.get("remarks", []), screen, well=False),
            *_leftover_line(document, screen),
        ]
    if document["exit_code"] == 0:
        peak = document.get("peak_memory")
        report: list[Line] = [[("mgpu: finished", "ok"), (f", exit 0, {took}{f', {peak}' if peak else ''}", "")]]
    else:
        word, why = _how_it_ended(document)
        report = [[(f"mgpu: {word}", "fail"), (f"{why} after {took}, exit {document['exit_code']}", "")]]
        if document["triage"]:
            report += failure.lines(document, screen, document.get("ranks") or ())
        elif first := document["first_failure"]:
            report += failure.row(screen, "First to fail", failure.rank_text(first))
        report += failure.source_rows(document.get("foreseen", []), "Before the run", screen)
        if document.get("log_trouble"):
            report += failure.row(screen, "Log", f"could not be read: {document['log_trouble']}")
        report += failure.row(screen, "Log", f"{document['logs']}/run.log")
        if document["exit_code"] and not document["signalled"]:
            report += _command_line("Rerun", document["again"], screen)
        if document.get("run") and not screen.narrow:
            report += _command_line("Report", from_words(["mgpu", "launch", "--report", document["run"]]), screen)
    return [*report, *rank_lines(document, screen), *_leftover_line(document, screen)]


def _how_it_ended(document: RunDocument) -> tuple[str, str]:
    """Return a word for the end of a run that did not succeed, and its reason: "stopped", " by SIGTERM"."""
    hang = document.get("hang")
    if hang and hang.get("stopped"):
        return "stopped", f": no progress for {quantities.duration_text(hang['quiet_s'])},"
    if document["timed_out"]:
        return "timed out", ""
    return ("stopped", f" by {document['signalled']}") if document["signalled"] else ("FAILED", "")


def _is_hang_stop(request: Request, run: Run) -> bool:
    """Whether --on-hang stop ended the run, and not --timeout."""
    late = bool(request.timeout_s) and run.seconds >= request.timeout_s
    return request.on_hang == "stop" and run.timed_out and not late


def rank_lines(document: RunDocument, screen: Screen) -> list[Line]:
    """Return the lines on the work of the GPUs and ranks: what was found, their pace if it is uneven, their memory."""
    found = document.get("remarks", [])
    shown = remarks.lines(found, screen, well=not document["exit_code"])
    pace = document.get("pace")
    if pace and any("uneven_ranks" in engine.tags(one["id"], selections.REMARKS) for one in found):
        shown += pace_report.table(pace, screen)
    if memory := memory_text.memory_text(document.get("ranks") or ()):
        shown += failure.row(screen, "Memory", memory)
    return shown


def _is_interruption(document: RunDocument) -> bool:
    """Whether the user stopped a run with Ctrl-C in which nothing had gone wrong: there is nothing to diagnose."""
    if document["exit_code"] != errors.INTERRUPTED or document["signalled"] != "SIGINT" or document["timed_out"]:
        return False
    if document["first_failure"] or document.get("log_trouble") or not document["triage"]:
        return False
    cause = document["probable_cause"]
    if cause and "user_stop" not in engine.tags(cause["id"], selections.ENDED):
        return False
    others = document["secondary"]
    return not any("ranks_done" in engine.tags(one["id"], selections.ENDED) for one in others)  # a rank left early


def _leftover_line(document: RunDocument, screen: Screen) -> list[Line]:
    """Return the lines on processes that outlived the launcher."""
    number, running = document["left_over"], document.get("still_running", [])
    text = f"mgpu stopped {counted(number, 'leftover process', 'leftover processes')}"
    still = f"still running in the background: {', '.join(running[:_RUNNING_SHOWN])}"
    more = f" and {len(running) - _RUNNING_SHOWN} more" if len(running) > _RUNNING_SHOWN else ""
    return [*(screen.paragraph(text) if number else []), *(screen.paragraph(still + more) if running else [])]


def _command_line(label: str, command: str, screen: Screen) -> list[Line]:
    """Return a command, never wrapped so that it can be pasted."""
    if screen.narrow:
        return [[(label, "bold")], [(f"  {command}", "")]]
    return [[(f"{label:<15}", "bold"), (command, "")]]


def _document(
    request: Request, command: Command, folder: Path, run: Run, snapshot: Snapshot | None, hang: Hang | None
) -> RunDocument:
    """Return the `--json-result` document, mgpu.run/1.0."""
    from mgpu.engine import root_cause
    from mgpu.launch import full_disk
    from mgpu.process import run_log

    triage, trouble = result_document.empty_triage(), None
    if run.exit_code:
        log, trouble = read_logs(run_log.parts(folder)) if request.triage else (None, None)
        storage = full_disk.read_storage(log, run, request.target[1:]) if request.triage else None
        config = snapshot.config if snapshot else None
        chosen = root_cause.find_cause(log, run, config, hang=hang, storage=storage)
        triage = _with_commands(make_triage(chosen, log, run, wanted=request.triage), request)
    document: RunDocument = result_document.new_document(run, triage=request.triage)
    document.update({"command": masked_argv(command.argv), "env_added": masked_env(command.env_added)})
    result_document.add_failure(document, run, triage)
    result_document.add_ranks(document, run)
    document.update(
        {
            "gpus": _gpus(run),
            "peak_memory": gpu_usage.peak(run.gpus),
            "busy": gpu_usage.busy(run.gpus),
            "gpus_gap": run.gpus_gap,
            "foreseen": _foreseen(snapshot, triage, run),
            "hang": hang_report.entry(hang, stopped=_is_hang_stop(request, run)) if hang is not None else None,
            "oom_kills": run.oom_kills,
            "memory_lowest": run.memory_lowest_bytes,
            "left_over": run.left_over,
            "still_running": list(run.still_running),
            "log_trouble": trouble,
            "logs": str(folder),
            "again": result_document.rerun_command(request.target),
        }
    )
    return document


def _gpus(run: Run) -> list[GpuOfRun]:
    return [
        {
            "index": g.index,
            "uuid": g.uuid,
            "rank": g.rank,
            "busy_percent": g.busy_percent,
            "peak": g.peak_bytes,
            "mem_total": g.total_bytes,
        }
        for g in run.gpus or ()
    ]


def _with_commands(triage: Triage, request: Request) -> Triage:
    """Complete the commands of the fixes with the script and options of this launch."""
    for cause in filter(None, (triage["probable_cause"], *triage["secondary"])):
        for fix in cause["fix"]:
            whole = (complete_commands.complete(command, request) for command in fix["commands"])
            fix["commands"] = [command for command in whole if command]
    return triage


def _foreseen(snapshot: Snapshot | None, triage: Triage, run: Run) -> list[CheckEntry]:
    """Return the findings in the script that were reported before the start and may be why the run failed."""
    if not run.exit_code or snapshot is None:
        return []
    from mgpu.engine import foreseen

    cause = triage["probable_cause"]
    stopped = bool(run.signalled or run.timed_out)
    kind = cause["kind"] if cause else None
    found = foreseen.foreseen(foreseen.script_findings(snapshot), kind, run.exit_code, stopped=stopped)
    return list(map(check_json, found))


def make_triage(chosen: root_cause.Verdict, log: Log | None, run: Run, *, wanted: bool) -> Triage:
    """Return which rank failed first and why; without `wanted` only which."""
    found = failure.triage_document(chosen, log, run)
    return found if wanted else {**found, "probable_cause": None, "secondary": []}


def read_logs(paths: Sequence[Path]) -> tuple[Log | None, str | None]:
    """Read the logs of a run; return the facts, or the reason why they cannot be read."""
    from mgpu.readers.log import read
    from mgpu.readers.sources.value_origins import with_sources

    if not paths:
        return None, None
    try:
        return with_sources(read.read_logs(list(paths), one_stream=True, failed=True)), None
    except MgpuError as error:
        return None, error.message
    except Exception as error:  # the end of a run is reported whatever its log contains
        return None, f"a bug in mgpu: {reason(error)}"
