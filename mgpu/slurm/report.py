"""What is said of a job on Slurm: before it is submitted, and when it has ended?"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgpu import durations, engine, hostlist
from mgpu.command_line import from_words, shell
from mgpu.engine import root_cause, selections
from mgpu.launch import report as launch_report
from mgpu.launch import result_document
from mgpu.process import scratch
from mgpu.report import failure
from mgpu.report.screen import Line, Screen, Style, unstyled, wrapped
from mgpu.slurm import job_outcome
from mgpu.slurm.follow import Followed
from mgpu.slurm.job_outcome import Found
from mgpu.text import counted

if TYPE_CHECKING:
    from mgpu.launch.run_json import JobDocument, JobEntry, PreflightOfJob
    from mgpu.report.json_types import Triage
    from mgpu.snapshot import Config, Run

_STATES = {
    "TIMEOUT": "its time limit was reached: ask for more (--time), or save and go on (#SBATCH --requeue, --signal)",
    "CANCELLED": "somebody cancelled it",
    "PREEMPTED": "a job of higher priority took its place",
    "NODE_FAIL": "a node failed under it",
    "BOOT_FAIL": "a node did not start",
    "DEADLINE": "its deadline was reached",
    "OUT_OF_MEMORY": "it used more memory than it had asked for (--mem)",
    "LAUNCH_FAILED": "Slurm could not start it on its nodes (the Prolog failed)",
    "REVOKED": "another cluster of the federation runs it",
}
_FILES_SHOWN = 6
_BAD_SHOWN = 4


def end(followed: Followed, folder: Path | None, *, triage: bool, json_result: str, config: Config | None) -> int:
    """Tell how a job ended, on stderr; keep it in the run's folder, and write --json-result. The exit status."""
    found = job_outcome.found(followed) if followed.record is None or followed.record.state != "COMPLETED" else Found()
    code = job_outcome.exit_status(followed, found)
    run = job_outcome.run_of(followed, found, code, folder)
    nothing_ran = bool(followed.never or followed.held) or (
        followed.record is not None and followed.record.reason == "JobLaunchFailure"
    )
    document = _document(followed, found, run, folder, triage=triage and not nothing_ran, config=config)
    if folder is not None:
        result_document.written(folder / "result.json", document, 0o600)
    if json_result:
        result_document.written(Path(json_result), document)
    screen = Screen.of(sys.stderr)
    ran = followed.record is not None and (followed.record.nodes or followed.record.started)
    rule: list[Line] = [[(screen.rule("end of the job's output"), "")]] if ran else []
    show(screen, [*rule, *lines(document, screen)])
    return code


def show(screen: Screen, said: Sequence[Line]) -> None:
    """Tell lines, where anybody hears them: the job and its exit status do not depend on it."""
    try:
        screen.show(said)
    except OSError:  # a terminal that was closed, a full disk; Python would end with 120 for what it cannot write
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def lines(document: JobDocument, screen: Screen) -> list[Line]:
    """The end of a job: one line, or the box."""
    slurm = document["slurm"]
    took = durations.lasted(document["duration_s"])
    where = f"job {slurm['job']}" + (f" on {slurm['nodes']}" if slurm["nodes"] else "")
    if document["exit_code"] == 0:
        said = _headline("mgpu: finished", f", {where} {slurm['state']}, exit 0, {took}", "ok", screen)
        if (preflight := slurm["preflight"]) and preflight["bad"]:
            again = shell("sbatch --exclude={:nodes}", hostlist.fold(one["node"] for one in preflight["bad"]))
            said += failure.row(screen, "Left out", f"{_reasons(preflight)}.  {again}".rstrip())
        return said
    word, how = _word(document, slurm)
    said = _headline(f"mgpu: {word}", f"{how}, exit {document['exit_code']}", "fail", screen)
    cause = document["probable_cause"]
    if slurm["why"] and "job_state" not in engine.tags(cause["id"] if cause else None, selections.ENDED):
        said += failure.row(screen, "Slurm", slurm["why"])
    if slurm["preflight"] and not slurm["preflight"]["chosen"]:
        said += failure.row(screen, "Pre-flight", stopped_it(slurm["preflight"]))
    elif slurm["task"] and not document["first_failure"] and not _ended_from_outside(document):
        task = slurm["task"]
        code = "" if task["exit"] is None else f", exit code {task['exit']}"
        said += failure.row(screen, "First to fail", f"task {task['task']} on {task['node']}{code}")
    if document["triage"] and (document["probable_cause"] or document["first_failure"]):
        said += failure.lines(document, screen, document["ranks"])
    elif first := document["first_failure"]:
        said += failure.row(screen, "First to fail", failure.who(first))
    if document.get("log_trouble"):
        said += failure.row(screen, "Log", f"could not be read: {document['log_trouble']}")
    if slurm["output"] and Path(slurm["output"]).exists():
        said += failure.row(screen, "Log", slurm["output"])
    for number, name in enumerate(slurm["files"][:_FILES_SHOWN]):
        said += failure.row(screen, "" if number else "Of nodes", name)
    if (more := len(slurm["files"]) - _FILES_SHOWN) > 0:
        said += failure.row(screen, "", f"and {more} more")
    if slurm["again"]:
        label = f"{'Next':<15}" if not screen.narrow else "Next  "
        said.append([(label, "bold"), (slurm["again"], "")])
    return said


def _headline(word: str, rest: str, style: Style, screen: Screen) -> list[Line]:
    """How it ended, wrapped; the first words stand out."""
    first, *more = wrapped(f"{word}{rest}", screen.width, "", "      ")
    return [[(word, style), (first.removeprefix(word), "")], *unstyled(more)]


def _ended_from_outside(document: JobDocument) -> bool:
    """Whether what srun tells of its tasks is a consequence: somebody, or Slurm, ended the job."""
    return bool(document["signalled"] or document["timed_out"] or document["slurm"]["state"] in job_outcome.BY_SLURM)


def _reasons(preflight: PreflightOfJob) -> str:
    """Each bad node with its reason, one after the other."""
    bad = [f"{one['node']}: {one['reason'].removeprefix(one['node'] + ': ')}" for one in preflight["bad"]]
    return "; ".join(bad[:_BAD_SHOWN]) + (f"; and {len(bad) - _BAD_SHOWN} more" if len(bad) > _BAD_SHOWN else "")


def stopped_it(preflight: PreflightOfJob, again: str = "sbatch") -> str:
    """Why the pre-flight let no training start. `again`: the command that takes --exclude."""
    good, number = len(preflight["good"]), len(preflight["bad"])
    head = f"no training was started: {counted(good, 'good node')}, {preflight['need']} needed"
    if not number:
        return head
    names = hostlist.fold(one["node"] for one in preflight["bad"])
    exclude = shell("--exclude={:nodes}", names)
    without = f"{again} {exclude}, or " if exclude else ""
    return f"{head}. {_reasons(preflight)}.  {without}--spare {number}"


def _word(document: JobDocument, slurm: JobEntry) -> tuple[str, str]:
    """How it ended, in a word and a half."""
    job, took = f"job {slurm['job']}", durations.lasted(document["duration_s"])
    where = f" on {slurm['nodes']}" if slurm["nodes"] else ""
    if slurm["left"]:
        return "left", f": {job} ({slurm['state']}) may go on; Slurm was asked to end it"
    if slurm["never"]:
        return "NOT STARTED", f": {job} would have waited for ever, and is cancelled"
    if slurm["held"]:
        return "HELD", f": {job} does not start by itself"
    if document["timed_out"]:
        return "timed out", f" after {took}: {job}{where} {slurm['state']}"
    if document["signalled"]:
        return "stopped", f" by {document['signalled']} after {took}: {job}{where} is {slurm['state']}"
    if slurm["state"] == "UNKNOWN":
        return "ended", f": {job}; Slurm has forgotten it, and nobody knows its exit status"
    return slurm["state"], f": {job}{where} after {took}"


def _document(
    followed: Followed, found: Found, run: Run, folder: Path | None, *, triage: bool, config: Config | None
) -> JobDocument:
    """What `--json-result` holds: mgpu.run/1.0, with what Slurm says."""
    told, trouble = result_document.no_triage(), None
    if run.exit_code and (triage or found.ranks) and not followed.left:
        with _logs(followed, found, folder) as paths:
            log, trouble = launch_report.read_logs(paths) if triage else (None, None)
            chosen = root_cause.of(log, run, config)
            told = launch_report.triaged(chosen, log, run, wanted=triage)
        if followed.signalled is not None or followed.timed_out:
            told = _without_our_own(told, chosen)
    document: JobDocument = result_document.begun(run, triage=triage)
    result_document.add_failure(document, run, told)
    end: Any = {"log_trouble": trouble, "logs": str(folder) if folder else None, "slurm": _job(followed, found)}
    document.update(end)
    return document


def _job(followed: Followed, found: Found) -> JobEntry:
    """What Slurm says of it."""
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
        "why": _why(followed),
        "preflight": job_outcome.preflight(followed),
        "never": bool(followed.never),
        "held": bool(followed.held),
        "left": followed.left,
        "again": _next(followed),
    }


def _without_our_own(told: Triage, chosen: root_cause.Verdict) -> Triage:
    """What Slurm writes when it ends a job is no finding where this mgpu has asked for it."""
    causes = [*([chosen.first] if chosen.first else []), *chosen.others]
    own = {one.id for one in causes if one.outcome.check.effect_of in ("job_cancel", "task_exit")}
    cause = told["probable_cause"]
    others = [one for one in told["secondary"] if one["id"] not in own]
    return {**told, "probable_cause": None if cause and cause["id"] in own else cause, "secondary": others}


def _why(followed: Followed) -> str:
    """What the state means, where it is more than a failed program."""
    record = followed.record
    if followed.never or followed.held:
        return followed.never or followed.held
    if record is None or followed.signalled is not None or followed.timed_out:
        return ""
    if record.reason == "JobLaunchFailure":
        return (
            f"it could not be started: its output file {record.output} cannot be written there (does the folder "
            "exist on the nodes?), or its folder (--chdir) is missing; nothing of it has run"
        )
    return _STATES.get(record.state, "")


def _next(followed: Followed) -> str:
    """A command that helps."""
    job = followed.job
    if followed.held:
        return shell("scontrol release {:id}   # or end it:  scancel {:id}", job, job)
    if followed.left:
        return shell("mgpu launch --slurm --status {:id}", job)
    if followed.record is not None and followed.record.state == "TIMEOUT":
        return result_document.again(followed.target, "--time", "...") if "launch" in sys.argv else ""
    return ""


@contextlib.contextmanager
def _logs(followed: Followed, found: Found, folder: Path | None) -> Iterator[list[Path]]:
    """The files to look for the cause in: what each node printed by itself, where the output tells them apart."""
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


def plan(rows: Sequence[tuple[str, str]], screen: Screen) -> None:
    """What will be submitted."""
    for label, text in rows:
        if text:
            show(screen, [line for part in text.splitlines() for line in failure.row(screen, label, part)])


def command_of(script: Path, options: Sequence[str], arguments: Sequence[str]) -> str:
    """The line that submits it without mgpu."""
    return from_words(["sbatch", *options, str(script), *arguments])
