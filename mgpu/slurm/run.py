"""What does `mgpu launch --slurm` do: examine the job script, or write one, put the pre-flight into it, have Slurm say
whether it takes it, submit it and follow it; inside an allocation run it there; look after a job that was submitted?
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mgpu import engine, errors, messages
from mgpu.command_line import shell
from mgpu.engine import selections
from mgpu.errors import MgpuError
from mgpu.launch import result_document, start_errors
from mgpu.launch.request import Request
from mgpu.launchers.run_folder import LAUNCH, claim_folder, plan_folder
from mgpu.process import scratch
from mgpu.report import document
from mgpu.report import screen as report_screen
from mgpu.scheduler import client, sbatch_errors, submit
from mgpu.slurm import prepare
from mgpu.slurm import record as records
from mgpu.slurm import report as slurm_report
from mgpu.slurm.follow import Asked, follow, speaker
from mgpu.slurm.prepare import Prepared, nothing_was_run, show_text, title, written
from mgpu.snapshot import Snapshot
from mgpu.text import counted

# Of a job that is left: how long its first reasons are looked at. On 22.05 a time limit over the partition's is
# PartitionConfig for 0.9 s, then PartitionTimeLimit (measured).
_FIRST_LOOK_S, _LOOK_S, _STANDS_S = 5.0, 0.3, 2.0


def run(request: Request) -> int:
    """`mgpu launch --slurm`: 125 when mgpu or Slurm refuses, else the job's exit status."""
    if request.attach or request.status or request.stop:
        return _later(request)
    check(request)
    result_document.check(request)
    with start_errors.documented_attempt(request) as attempt:
        return _run(request, attempt)


# Options


def check(request: Request) -> None:
    """Raises MgpuError (2) for what means nothing on Slurm."""
    request.check()
    nothing: Sequence[tuple[object, str, str]] = (
        (request.node is not None, "--node-rank", "Slurm numbers the nodes"),
        (request.gpus, "--gpus", "say --gpus-per-node N"),
        (request.port, "--port", "the job takes one that follows from its number"),
        (request.exec_, "--exec", "the job runs elsewhere"),
        (request.watch, "--watch", "the GPUs are on other machines"),
        (
            request.smoke != "auto",
            f"--smoke {request.smoke}",
            "the pre-flight in the job is the test: --no-preflight leaves it out",
        ),
        (request.print_command, "--print-command", "--dry-run shows the script and the command"),
    )
    for given, flag, why in nothing:
        if given:
            raise MgpuError(f"{flag} means nothing with --slurm: {why}", errors.USAGE)
    if request.detach and (request.timeout_s or request.json_result):
        flag = "--timeout" if request.timeout_s else "--json-result"
        raise MgpuError(f"--detach leaves nobody for {flag}: leave one out", errors.USAGE)
    if request.spare and not request.preflight:
        words = "--spare asks for nodes that stand in for bad ones, --no-preflight looks for none: leave one out"
        raise MgpuError(words, errors.USAGE)
    if request.spare and os.environ.get("MGPU_PREFLIGHT") == "0":  # the job would inherit it
        words = "--spare asks for nodes that stand in for bad ones, MGPU_PREFLIGHT=0 looks for none: unset it"
        raise MgpuError(words, errors.USAGE)
    if request.nodes == 0:
        raise MgpuError("--nodes 0: give 1 or more", errors.USAGE)
    for flag, value in (
        ("--partition", request.partition),
        ("--account", request.account),
        ("--qos", request.qos),
        ("--time", request.time),
    ):
        if value.startswith("-") or any(character.isspace() or not character.isprintable() for character in value):
            raise MgpuError(f"{flag} {value!r}: one word, as Slurm has it", errors.USAGE)


def _run(request: Request, attempt: start_errors.Attempt) -> int:
    from mgpu.slurm import in_allocation, salloc

    target = list(request.target[1:] if request.target[:1] == ("--",) else request.target)
    if not target or not target[0]:
        words = "which script?  mgpu launch --slurm [OPTIONS] JOB.sbatch|SCRIPT.py [ARGS...]"
        raise MgpuError(words, errors.USAGE)
    here = salloc.allocation()
    if here is None and not client.is_there():
        words = "Slurm is not here (no sbatch): log in to a login node of the cluster, and start it there"
        raise MgpuError(words, errors.LAUNCH_REFUSED)
    folder = plan_folder(request.log_dir, LAUNCH)
    prepared = prepare.prepared(request, target, folder)
    if refused := _refused(request, prepared):
        return refused
    if here is not None:
        return in_allocation.start(request, prepared, here, folder)
    return _submitted(request, prepared, folder, attempt)


def _submitted(request: Request, prepared: Prepared, folder: Path, attempt: start_errors.Attempt) -> int:
    options = prepared.options
    if request.dry_run:
        return _shown(prepared, options, folder)
    more = [prepared.name] if prepared.changed else []
    with claim_folder(folder, LAUNCH, named=bool(request.log_dir), more=more) as made:
        return _submitted_from(request, prepared, options, made, attempt)


def _submitted_from(
    request: Request, prepared: Prepared, options: Sequence[str], folder: Path, attempt: start_errors.Attempt
) -> int:
    """Submit the script of this folder, and follow the job."""
    script = written(prepared, folder)
    if refusals := submit.test_only(script, options):
        nothing_was_run(prepared, folder)
        raise MgpuError(f"Slurm would not take the job: {refusals[0]}", errors.LAUNCH_REFUSED)
    screen = report_screen.Screen.of(sys.stderr)
    slurm_report.plan(_rows(prepared, options, script), screen)
    if not request.yes and report_screen.can_ask():
        from mgpu.launch import summary

        if not summary.agreed():
            nothing_was_run(prepared, folder)
            return result_document.declined(request)
    _output_folders(prepared)
    if not request.detach and not client.is_there("scontrol"):
        raise MgpuError("no scontrol here, without which no job can be followed: --detach", errors.LAUNCH_REFUSED)
    say = speaker(screen)
    with Asked() as signals:
        job = submit.submit(script, prepared.arguments, options)
        attempt.started = True
        if request.detach:
            return _left(job, _never(job))
        how = (
            "Ctrl-C cancels it, --detach would leave it"
            if report_screen.is_terminal(sys.stderr)
            else "a signal cancels it"
        )
        say(f"job {job} is submitted; {how}", "")
        followed = follow(job, signals, timeout_s=request.timeout_s, say=say)
        followed = replace(followed, target=request.target)
        return slurm_report.end(
            followed, folder, triage=request.triage, json_result=request.json_result, config=prepared.config
        )


def _never(job: int) -> str:
    """Why Slurm will never start a job that nobody will follow; "" where it may, or Slurm does not say so within
    seconds: a new job has no reason yet, or a rough one."""
    began = changed = time.monotonic()
    reason = ""
    if not client.is_there("scontrol"):
        return ""
    while time.monotonic() - began < _FIRST_LOOK_S:
        found = records.told(job, records.asking(job).wait())
        if found is not None:
            if found.state != "PENDING":
                return ""
            wait = sbatch_errors.waiting(found.reason)
            if wait.never:
                return f"{wait.words} ({found.reason})"
            if found.reason != reason:
                reason, changed = found.reason, time.monotonic()
            if reason not in ("", "None") and time.monotonic() - changed > _STANDS_S:
                return ""
        time.sleep(_LOOK_S)
    return ""


def _left(job: int, never: str) -> int:
    """The job's number on stdout, for scripts; what one does with it on stderr."""
    if never:  # as for one that is followed
        trouble = submit.cancel(job)
        end = f"it is not cancelled: {trouble}" if trouble else "it is cancelled"
        raise MgpuError(f"NOT STARTED: job {job} would have waited for ever: {never}; {end}", errors.LAUNCH_REFUSED)
    screen = report_screen.Screen.of(sys.stderr)
    lines: list[report_screen.Line] = [[("mgpu: submitted", "ok"), (f", job {job}", "")]]
    for label, option in (("Follow it", "--attach"), ("How it is", "--status"), ("End it", "--stop")):
        lines.append([(f"{label:<11}", "bold"), (shell("mgpu launch --slurm {:option} {:id}", option, job), "")])
    slurm_report.show(screen, lines)
    if sys.stdout is not None:
        print(job, flush=True)
    return errors.READY


# Before it is submitted


def _refused(request: Request, prepared: Prepared) -> int:
    """What a job script's examination says: errors refuse it, unless --unverified allow; warnings are told."""
    outcomes = engine.judge(Snapshot(job_script=prepared.job), selections.JOB_SCRIPT)
    found = [outcome for outcome in outcomes if outcome.status in ("fail", "warn", "crash")]
    if prepared.source is None:
        found = [outcome for outcome in found if outcome.status != "warn"]
    if not found:
        return 0
    screen = report_screen.Screen.of(sys.stderr)
    fails = [outcome for outcome in found if outcome.status == "fail"]
    command = shell("mgpu doctor --script {:path}", prepared.job.path)
    if fails and request.unverified != "allow":
        from mgpu.launch import gate

        again = result_document.again(request.target, "--unverified", "allow")
        return gate.refuse(request, fails, f"Mend that, or submit it all the same:\n  {again}")
    for outcome in found:
        slurm_report.show(
            screen, [[(f"{outcome.status:<6}", "fail" if outcome in fails else "warn"), (title(outcome), "")]]
        )
    if command:
        slurm_report.show(screen, [[(f"More:  {command}", "")]])
    return 0


def _output_folders(prepared: Prepared) -> None:
    """Slurm makes no folder for a job's output: the job would fail, and nothing would tell why."""
    for folder in prepared.job.folders:
        path = Path(folder.path)
        if folder.exists is not False or path.exists():
            continue
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            words = f"the job's output goes to {path}, which is not there and cannot be made: {errors.reason(error)}"
            raise MgpuError(words, errors.LAUNCH_REFUSED) from None
        messages.notice(f"made the folder {path} for the job's output")


def _rows(prepared: Prepared, options: Sequence[str], script: Path) -> list[tuple[str, str]]:
    nodes = counted(prepared.nodes, "node") if prepared.nodes else ""
    return [
        ("Job", f"{prepared.source or script}" + (f"   {nodes}" if nodes else "")),
        ("Config", prepared.config.path if prepared.config else ""),
        ("Pre-flight", prepared.preflight),
        ("Command", slurm_report.command_of(script, options, prepared.arguments)),
    ]


def _shown(prepared: Prepared, options: Sequence[str], folder: Path) -> int:
    """--dry-run: the script on stdout, the rest on stderr; whether Slurm would take it."""
    screen = report_screen.Screen.of(sys.stderr)
    to = folder / prepared.name if prepared.changed else prepared.source or folder
    slurm_report.plan(_rows(prepared, options, to), screen)
    show_text(prepared)
    with scratch.folder() as place:
        script = written(replace(prepared, changed=True), place)
        refusals = submit.test_only(script, options)
    missing = [folder.path for folder in prepared.job.folders if folder.exists is False]
    for path in missing:
        screen.show([[(f"mgpu: the folder {path} would be made for the job's output", "")]])
    if refusals:
        screen.show([[("NOT STARTED", "fail"), (f"  Slurm would not take it: {refusals[0]}", "")]])
        return errors.LAUNCH_REFUSED
    screen.show([[("mgpu: Slurm would take it", "ok"), ("; nothing was submitted (--dry-run)", "")]])
    return errors.READY


# Of a job that was submitted before


def _later(request: Request) -> int:
    from mgpu.launch import follow as runs

    runs.check(replace(request, slurm=False))
    option = "--attach" if request.attach else "--status" if request.status else "--stop"
    name = request.target[0] if request.target else ""
    if not name.isdecimal():
        words = f"{option} with --slurm takes the number of a job:  mgpu launch --slurm {option} JOB   (squeue --me)"
        raise MgpuError(words, errors.USAGE)
    job = int(name)
    found = records.of(job)
    if found is None:
        words = f"Slurm knows no job {job} (it forgets one that is over after MinJobAge, 5 minutes by default)"
        raise MgpuError(words, errors.UNKNOWN)
    screen = report_screen.Screen.of(sys.stderr)
    say = speaker(screen)
    if request.status:
        return _status(found, request)
    with Asked() as signals:
        if request.stop and not found.ended:
            if trouble := submit.cancel(job):
                raise MgpuError(f"job {job} is not cancelled: {trouble}", errors.NOT_READY)
            say(f"job {job}: Slurm is asked to end it", "")
        followed = follow(job, signals, attached=True, quiet=request.stop, say=say)
    if request.stop:
        word = f"is gone ({followed.state})" if not followed.left else "may go on"
        say(f"job {job} {word}", "ok" if not followed.left else "warn")
        return errors.READY if not followed.left else errors.NOT_READY
    if followed.left:
        say(f"left; job {job} goes on.  {shell('mgpu launch --slurm --attach {:id}', job)}", "")
        return errors.INTERRUPTED
    followed = replace(followed, target=request.target)
    return slurm_report.end(followed, None, triage=True, json_result="", config=None)


def _status(found: records.Record, request: Request) -> int:
    if request.json_result:
        return _status_json(found, request.json_result)
    screen = report_screen.Screen.of(sys.stdout)
    rows = [("Job", f"{found.job}   {found.name}"), ("State", found.state)]
    if found.state == "PENDING":
        rows.append(("Waits", f"{sbatch_errors.waiting(found.reason).words} ({found.reason})"))
        rows.append(("Expected", found.start.replace("T", " ")))
    elif found.ended:
        rows.append(("Exit", f"{found.exit_code}" + (f", signal {found.signal}" if found.signal else "")))
    rows += [("Nodes", found.nodes), ("Log", found.output)]
    slurm_report.plan(rows, screen)
    return errors.READY


def _status_json(found: records.Record, name: str) -> int:
    whole = result_document.document({"slurm": dataclasses.asdict(found)})
    if name == "-":
        print(document.text(whole), end="")
    else:
        result_document.written(Path(name), whole)
    return errors.READY
