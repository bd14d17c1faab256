"""Report on a Slurm job before it is submitted and when it has ended."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgpu import engine, hostlist, quantities
from mgpu.command_line import from_words, shell
from mgpu.engine import root_cause, selections
from mgpu.launch import hang_report, node_ranks, result_document
from mgpu.launch import report as launch_report
from mgpu.process import scratch
from mgpu.report import failure
from mgpu.report.screen import Line, Screen, Style, unstyled, wrapped
from mgpu.slurm import job_case, job_outcome
from mgpu.slurm.follow import Followed
from mgpu.slurm.job_outcome import Found
from mgpu.text import counted

if TYPE_CHECKING:
    from mgpu.launch.run_json import JobDocument, JobEntry, PreflightOfJob
    from mgpu.report.json_types import Triage
    from mgpu.snapshot import Config, Log, Run

_STATES = {
    "TIMEOUT": "it reached its time limit: request more (--time), or save and requeue (#SBATCH --requeue, --signal)",
    "CANCELLED": "it was cancelled",
    "PREEMPTED": "it was preempted by a job of higher priority",
    "NODE_FAIL": "one of its nodes failed",
    "BOOT_FAIL": "a node failed to boot",
    "DEADLINE": "its deadline was reached",
    "OUT_OF_MEMORY": "it used more memory than requested (--mem)",
    "LAUNCH_FAILED": "Slurm could not start it on its nodes (the Prolog failed)",
    "REVOKED": "another cluster of the federation is running it",
}
_FILES_SHOWN = 6
_BAD_SHOWN = 4


def report_end(
    followed: Followed, folder: Path | None, *, triage: bool, json_result: str, config: Config | None
) -> int:
    """Report the end of a job on stderr, store it in the run's folder, write --json-result; return the exit code."""
    completed = followed.record is not None and followed.record.state == "COMPLETED"
    found = Found() if completed else job_outcome.read_outcome(followed)
    code = job_outcome.exit_status(followed, found)
    run = job_outcome.run_of(followed, found, code, folder)
    nothing_ran = bool(followed.never or followed.held) or (
        followed.record is not None and followed.record.reason == "JobLaunchFailure"
    )
    document, log = _document(followed, found, run, folder, triage=triage and not nothing_ran, config=config)
    recorded = node_ranks.with_records(run, followed.watched, wait_s=node_ranks.LAST_S)
    result_document.add_ranks(document, recorded)
    if folder is not None and not nothing_ran and not followed.left:
        job_case.store(folder, followed, recorded, config, log)
        document["run"] = str(followed.job) if job_case.is_listed(folder) else ""
    if folder is not None:
        result_document.store(folder / "result.json", document, 0o600)
    if json_result:
        result_document.store(Path(json_result), document)
    screen = Screen.of(sys.stderr)
    ran = followed.record is not None and (followed.record.nodes or followed.record.started)
    rule: list[Line] = [[(screen.rule("end of the job's output"), "")]] if ran else []
    show(screen, [*rule, *lines(document, screen)])
    return code


def show(screen: Screen, shown: Sequence[Line]) -> None:
    """Show lines; an error is ignored, because the job and its exit code do not depend on them."""
    try:
        screen.show(shown)
    except OSError:  # a closed terminal, a full disk; Python would exit with 120 if it cannot flush stderr
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def lines(document: JobDocument, screen: Screen) -> list[Line]:
    """Return the report of a job's end: one line, or the box."""
    slurm = document["slurm"]
    took = quantities.duration_text(document["duration_s"])
    where = f"job {slurm['job']}" + (f" on {slurm['nodes']}" if slurm["nodes"] else "")
    if document["exit_code"] == 0:
        shown = _headline("mgpu: finished", f", {where} {slurm['state']}, exit 0, {took}", "ok", screen)
        if (preflight := slurm["preflight"]) and preflight["bad"]:
            again = shell("sbatch --exclude={:nodes}", hostlist.fold(one["node"] for one in preflight["bad"]))
            shown += failure.row(screen, "Excluded", f"{_reasons(preflight)}.  {again}".rstrip())
        return [*shown, *launch_report.rank_lines(document, screen)]
    word, how = _word(document, slurm)
    shown = _headline(f"mgpu: {word}", f"{how}, exit {document['exit_code']}", "fail", screen)
    cause = document["probable_cause"]
    if slurm["why"] and "job_state" not in engine.tags(cause["id"] if cause else None, selections.ENDED):
        shown += failure.row(screen, "Slurm", slurm["why"])
    if slurm["preflight"] and not slurm["preflight"]["chosen"]:
        shown += failure.row(screen, "Pre-flight", stopped_it(slurm["preflight"]))
    elif slurm["task"] and not document["first_failure"] and not _ended_from_outside(document):
        task = slurm["task"]
        code = "" if task["exit"] is None else f", exit code {task['exit']}"
        shown += failure.row(screen, "First to fail", f"task {task['task']} on {task['node']}{code}")
    by_user = cause is not None and "user_stop" in engine.tags(cause["id"], selections.ENDED)
    stopped = by_user and document["signalled"] and not document["first_failure"]  # the headline says it
    if document["triage"] and (cause or document["first_failure"]) and not stopped:
        shown += failure.lines(document, screen, document["ranks"])
    elif first := document["first_failure"]:
        shown += failure.row(screen, "First to fail", failure.rank_text(first))
    shown += [*launch_report.rank_lines(document, screen), *_log_lines(document, screen)]
    if slurm["again"]:
        label = f"{'Next':<15}" if not screen.narrow else "Next  "
        shown.append([(label, "bold"), (slurm["again"], "")])
    elif document.get("run") and not screen.narrow:
        command = from_words(["mgpu", "launch", "--slurm", "--report", document["run"]])
        shown.append([(f"{'Report':<15}", "bold"), (command, "")])
    return shown


def _log_lines(document: JobDocument, screen: Screen) -> list[Line]:
    """Return where the output of the job is."""
    slurm, shown = document["slurm"], []
    if document.get("log_trouble"):
        shown += failure.row(screen, "Log", f"could not be read: {document['log_trouble']}")
    if slurm["output"] and Path(slurm["output"]).exists():
        shown += failure.row(screen, "Log", slurm["output"])
    for number, name in enumerate(slurm["files"][:_FILES_SHOWN]):
        shown += failure.row(screen, "" if number else "Node logs", name)
    if (more := len(slurm["files"]) - _FILES_SHOWN) > 0:
        shown += failure.row(screen, "", f"and {more} more")
    return shown


def _headline(word: str, rest: str, style: Style, screen: Screen) -> list[Line]:
    """Return the headline, wrapped, with `word` highlighted."""
    first, *more = wrapped(f"{word}{rest}", screen.width, "", "      ")
    return [[(word, style), (first.removeprefix(word), "")], *unstyled(more)]


def _ended_from_outside(document: JobDocument) -> bool:
    """Whether Slurm or a user ended the job, so that srun's messages about its tasks are only consequences."""
    return bool(document["signalled"] or document["timed_out"] or document["slurm"]["state"] in job_outcome.BY_SLURM)


def _reasons(preflight: PreflightOfJob) -> str:
    """Return the bad nodes with their reasons."""
    bad = [f"{one['node']}: {one['reason'].removeprefix(one['node'] + ': ')}" for one in preflight["bad"]]
    return "; ".join(bad[:_BAD_SHOWN]) + (f"; and {len(bad) - _BAD_SHOWN} more" if len(bad) > _BAD_SHOWN else "")


def stopped_it(preflight: PreflightOfJob, again: str = "sbatch") -> str:
    """Return why the pre-flight did not start the training. `again`: the command that accepts --exclude."""
    good, number = len(preflight["good"]), len(preflight["bad"])
    head = f"training not started: {counted(good, 'healthy node')}, {preflight['need']} needed"
    if not number:
        return head
    names = hostlist.fold(one["node"] for one in preflight["bad"])
    exclude = shell("--exclude={:nodes}", names)
    without = f"{again} {exclude}, or " if exclude else ""
    return f"{head}. {_reasons(preflight)}.  {without}--spare {number}"


def _word(document: JobDocument, slurm: JobEntry) -> tuple[str, str]:
    """Return how the job ended: a word, and the details."""
    job, took = f"job {slurm['job']}", quantities.duration_text(document["duration_s"])
    where = f" on {slurm['nodes']}" if slurm["nodes"] else ""
    if slurm["left"]:
        return "detached", f": {job} ({slurm['state']}) may still be running; it was cancelled with scancel"
    if slurm["never"]:
        return "NOT STARTED", f": {job} would never have started and was cancelled"
    if slurm["held"]:
        return "HELD", f": {job} does not start until it is released"
    if document["timed_out"]:
        return "timed out", f" after {took}: {job}{where} {slurm['state']}"
    if document["signalled"]:
        return "stopped", f" by {document['signalled']} after {took}: {job}{where} is {slurm['state']}"
    if slurm["state"] == "UNKNOWN":
        return "ended", f": {job}; Slurm no longer has a record of it, so its exit code is unknown"
    return slurm["state"], f": {job}{where} after {took}"


def _document(
    followed: Followed, found: Found, run: Run, folder: Path | None, *, triage: bool, config: Config | None
) -> tuple[JobDocument, Log | None]:
    """Return the `--json-result` document, mgpu.run/1.0 with Slurm's record of the job, and what its log shows."""
    triage_found, trouble, log = result_document.empty_triage(), None, None
    if run.exit_code and (triage or found.ranks) and not followed.left:
        with _logs(followed, found, folder) as paths:
            log, trouble = launch_report.read_logs(paths) if triage else (None, None)
            chosen = root_cause.find_cause(log, run, config, hang=followed.hang)
            triage_found = launch_report.make_triage(chosen, log, run, wanted=triage)
        if followed.signalled is not None or followed.timed_out:
            triage_found = _without_own_cancel(triage_found, chosen)
    document: JobDocument = result_document.new_document(run, triage=triage)
    result_document.add_failure(document, run, triage_found)
    fields: Any = {
        "log_trouble": trouble,
        "logs": str(folder) if folder else None,
        "hang": hang_report.entry(followed.hang) if followed.hang is not None else None,
        "slurm": _job(followed, found),
    }
    document.update(fields)
    return document, log


def _job(followed: Followed, found: Found) -> JobEntry:
    """Return Slurm's record of the job for JSON."""
    record, task = followed.record, found.task
    output = Path(followed.output) if followed.output else None
    return {
        "job": followed.job,
        "state": followed.state,
        "reason": record.reason if record else None,
        "nodes": record.nodes if record else None,
        "restarts": record.restarts if record else None,
        "output": followed.output or None,
        "files": [str(path) for path in job_outcome.node_files(record, output)] if record and output else [],
        "task": {"node": task.node, "task": task.task, "exit": task.code} if task else None,
        "why": _explain_state(followed),
        "preflight": job_outcome.preflight(followed),
        "never": bool(followed.never),
        "held": bool(followed.held),
        "left": followed.left,
        "again": _next_command(followed),
    }


def _without_own_cancel(triage_found: Triage, chosen: root_cause.Verdict) -> Triage:
    """Drop Slurm's messages on the end of a job that this mgpu cancelled."""
    causes = [*([chosen.first] if chosen.first else []), *chosen.others]
    own = {one.id for one in causes if one.outcome.check.effect_of in ("job_cancel", "task_exit")}
    cause = triage_found["probable_cause"]
    others = [one for one in triage_found["secondary"] if one["id"] not in own]
    return {**triage_found, "probable_cause": None if cause and cause["id"] in own else cause, "secondary": others}


def _explain_state(followed: Followed) -> str:
    """Return the meaning of the job's state, if it is more than a failed program."""
    record = followed.record
    if followed.never or followed.held:
        return followed.never or followed.held
    if record is None or followed.signalled is not None or followed.timed_out:
        return ""
    if record.reason == "JobLaunchFailure":
        return (
            f"it could not be started: its output file {record.output} is not writable on the nodes (does the folder "
            "exist there?), or its working directory (--chdir) is missing. None of it ran"
        )
    return _STATES.get(record.state, "")


def _next_command(followed: Followed) -> str:
    """Return the command to run next; empty if there is none."""
    job = followed.job
    if followed.held:
        return shell("scontrol release {:id}   # or cancel it:  scancel {:id}", job, job)
    if followed.left:
        return shell("mgpu launch --slurm --status {:id}", job)
    if followed.record is not None and followed.record.state == "TIMEOUT":
        return result_document.rerun_command(followed.target, "--time", "...") if "launch" in sys.argv else ""
    return ""


@contextlib.contextmanager
def _logs(followed: Followed, found: Found, folder: Path | None) -> Iterator[list[Path]]:
    """Provide the logs to analyze: one file per node if the output labels its lines, else the output itself."""
    output = Path(followed.output) if followed.output else None
    record = followed.record
    more = job_outcome.node_files(record, output) if record is not None and output is not None else []
    if not found.parts:
        yield [*([output] if output is not None and output.is_file() else []), *more]
        return
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(scratch.folder())
        paths = []
        for node, text in found.parts.items():
            path = folder / (f"{node}.log" if node else "job.log")
            with contextlib.suppress(OSError):
                path.write_bytes(text)
                paths.append(path)
        yield [*paths, *more]


# Before it is submitted


def show_plan(rows: Sequence[tuple[str, str]], screen: Screen) -> None:
    """Show what will be submitted."""
    for label, text in rows:
        if text:
            show(screen, [line for part in text.splitlines() for line in failure.row(screen, label, part)])


def command_of(script: Path, options: Sequence[str], arguments: Sequence[str]) -> str:
    """Return the sbatch command that submits the job without mgpu."""
    return from_words(["sbatch", *options, str(script), *arguments])
