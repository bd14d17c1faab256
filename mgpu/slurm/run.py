"""Run `mgpu launch --slurm`.

It checks the job script or writes one, inserts the pre-flight, lets Slurm validate it (sbatch --test-only), submits it
and follows the job. Inside an allocation it runs the script there. It also handles jobs submitted earlier.
"""

from __future__ import annotations

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
from mgpu.job_files.watch_block import FOLDER
from mgpu.launch import result_document, start_errors
from mgpu.launch.hang_follower import JobHangs
from mgpu.launch.request import Request
from mgpu.launchers.run_folder import LAUNCH, claim_folder, plan_folder
from mgpu.process import scratch
from mgpu.report import screen as report_screen
from mgpu.scheduler import client, sbatch_errors, submit
from mgpu.slurm import ask_nodes, job_case, prepare, status
from mgpu.slurm import record as records
from mgpu.slurm import report as slurm_report
from mgpu.slurm.follow import ReceivedSignals, follow, speaker
from mgpu.slurm.prepare import Prepared, remove_script, show_text, title, write_script
from mgpu.snapshot import Snapshot
from mgpu.text import counted

# With --detach: how long the job's first pending reasons are read. On 22.05, for a time limit above the partition's,
# the reason is PartitionConfig for 0.9 s, then PartitionTimeLimit (measured).
_FIRST_LOOK_S, _LOOK_S, _STANDS_S = 5.0, 0.3, 2.0


def run(request: Request) -> int:
    """Run `mgpu launch --slurm`; return 125 if mgpu or Slurm refuses, else the job's exit code."""
    if request.attach or request.status or request.stop or request.why or request.report:
        return _manage_job(request)
    check(request)
    result_document.check(request)
    with start_errors.documented_attempt(request) as attempt:
        return _run(request, attempt)


# Options


def check(request: Request) -> None:
    """Raise MgpuError (2) for options that do not apply to Slurm."""
    request.check()
    nothing: Sequence[tuple[object, str, str]] = (
        (request.node is not None, "--node-rank", "Slurm numbers the nodes"),
        (request.gpus, "--gpus", "use --gpus-per-node N"),
        (request.port, "--port", "the job derives one from its number"),
        (request.exec_, "--exec", "the job runs on other machines"),
        (request.watch, "--watch", "the GPUs are on other machines"),
        (
            request.smoke != "auto",
            f"--smoke {request.smoke}",
            "the job's pre-flight is the test; --no-preflight omits it",
        ),
        (request.print_command, "--print-command", "--dry-run shows the script and the command"),
    )
    for given, flag, why in nothing:
        if given:
            raise MgpuError(f"{flag} does not apply with --slurm: {why}", errors.USAGE)
    if request.detach and (request.timeout_s or request.json_result):
        flag = "--timeout" if request.timeout_s else "--json-result"
        raise MgpuError(f"with --detach, mgpu exits at once and cannot handle {flag}: omit one of them", errors.USAGE)
    if request.spare and not request.preflight:
        text = "--spare requests replacements for bad nodes, which --no-preflight does not detect: omit one of them"
        raise MgpuError(text, errors.USAGE)
    if request.spare and os.environ.get("MGPU_PREFLIGHT") == "0":  # the job would inherit it
        text = "--spare requests replacements for bad nodes, which MGPU_PREFLIGHT=0 does not detect: unset it"
        raise MgpuError(text, errors.USAGE)
    if request.nodes == 0:
        raise MgpuError("--nodes 0: expected 1 or more", errors.USAGE)
    for flag, value in (
        ("--partition", request.partition),
        ("--account", request.account),
        ("--qos", request.qos),
        ("--time", request.time),
    ):
        if value.startswith("-") or any(character.isspace() or not character.isprintable() for character in value):
            raise MgpuError(f"{flag} {value!r}: expected one word in Slurm's format", errors.USAGE)


def _run(request: Request, attempt: start_errors.Attempt) -> int:
    from mgpu.slurm import in_allocation, salloc

    target = list(request.target[1:] if request.target[:1] == ("--",) else request.target)
    if not target or not target[0]:
        text = "script missing:  mgpu launch --slurm [OPTIONS] JOB.sbatch|SCRIPT.py [ARGS...]"
        raise MgpuError(text, errors.USAGE)
    here = salloc.allocation()
    if here is None and not client.is_there():
        text = "Slurm not found (no sbatch): run this on a login node of the cluster"
        raise MgpuError(text, errors.LAUNCH_REFUSED)
    folder = plan_folder(request.log_dir, LAUNCH)
    prepared = prepare.prepare_script(request, target, folder)
    if refused := _check_script(request, prepared):
        return refused
    if here is not None:
        return in_allocation.start(request, prepared, here, folder)
    return _submit(request, prepared, folder, attempt)


def _submit(request: Request, prepared: Prepared, folder: Path, attempt: start_errors.Attempt) -> int:
    options = prepared.options
    if request.dry_run:
        return _dry_run(prepared, options, folder)
    more = [prepared.name] if prepared.changed else []
    with claim_folder(folder, LAUNCH, named=bool(request.log_dir), more=more) as made:
        return _submit_from(request, prepared, options, made, attempt)


def _submit_from(
    request: Request, prepared: Prepared, options: Sequence[str], folder: Path, attempt: start_errors.Attempt
) -> int:
    """Submit the script in this folder and follow the job."""
    script = write_script(prepared, folder)
    if refusals := submit.test_only(script, options):
        remove_script(prepared, folder)
        raise MgpuError(f"Slurm rejects the job: {refusals[0]}", errors.LAUNCH_REFUSED)
    screen = report_screen.Screen.of(sys.stderr)
    slurm_report.show_plan(_rows(prepared, options, script), screen)
    if not request.yes and report_screen.can_ask():
        from mgpu.launch import summary

        if not summary.confirm_start():
            remove_script(prepared, folder)
            return result_document.record_declined(request)
    _make_output_folders(prepared)
    if not request.detach and not client.is_there("scontrol"):
        text = "scontrol not found, which is needed to follow a job: use --detach"
        raise MgpuError(text, errors.LAUNCH_REFUSED)
    say = speaker(screen)
    with ReceivedSignals() as signals:
        job = submit.submit(script, prepared.arguments, options)
        attempt.started = True
        if request.detach:
            return _detach(job, _why_never(job))
        how = (
            "Ctrl-C cancels it (--detach would leave it running)"
            if report_screen.is_terminal(sys.stderr)
            else "a signal cancels it"
        )
        say(f"submitted job {job}; {how}", "")
        watched = prepared.watched / f"{FOLDER}{job}" if prepared.watched else None
        hangs = JobHangs(watched, stops=request.on_hang == "stop")
        followed = follow(job, signals, timeout_s=request.timeout_s, say=say, hangs=hangs)
        followed = replace(followed, target=request.target)
        return slurm_report.report_end(
            followed, folder, triage=request.triage, json_result=request.json_result, config=prepared.config
        )


def _why_never(job: int) -> str:
    """Return why Slurm will never start a detached job; "" if it may, or if Slurm gives no such reason within seconds.

    A new job has no reason yet, or a preliminary one.
    """
    began = changed = time.monotonic()
    reason = ""
    if not client.is_there("scontrol"):
        return ""
    while time.monotonic() - began < _FIRST_LOOK_S:
        found = records.parse_answer(job, records.query(job).wait())
        if found is not None:
            if found.state != "PENDING":
                return ""
            wait = sbatch_errors.explain_waiting(found.reason)
            if wait.never:
                return f"{wait.words} ({found.reason})"
            if found.reason != reason:
                reason, changed = found.reason, time.monotonic()
            if reason not in ("", "None") and time.monotonic() - changed > _STANDS_S:
                return ""
        time.sleep(_LOOK_S)
    return ""


def _detach(job: int, never: str) -> int:
    """Print the job's number on stdout, for scripts, and the commands for it on stderr."""
    if never:  # as for a job that is followed
        trouble = submit.cancel(job)
        end = f"could not cancel it: {trouble}" if trouble else "cancelled it"
        raise MgpuError(f"NOT STARTED: job {job} would never start: {never}; {end}", errors.LAUNCH_REFUSED)
    screen = report_screen.Screen.of(sys.stderr)
    lines: list[report_screen.Line] = [[("mgpu: submitted", "ok"), (f" job {job}", "")]]
    for label, option in (("Follow", "--attach"), ("Status", "--status"), ("Stop", "--stop")):
        lines.append([(f"{label:<11}", "bold"), (shell("mgpu launch --slurm {:option} {:id}", option, job), "")])
    slurm_report.show(screen, lines)
    if sys.stdout is not None:
        print(job, flush=True)
    return errors.READY


# Before it is submitted


def _check_script(request: Request, prepared: Prepared) -> int:
    """Check the job script. Errors refuse it unless --unverified allow; warnings are shown. Return the exit code."""
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

        again = result_document.rerun_command(request.target, "--unverified", "allow")
        return gate.refuse(request, fails, "Fix this, or submit anyway:", again)
    for outcome in found:
        slurm_report.show(
            screen, [[(f"{outcome.status:<6}", "fail" if outcome in fails else "warn"), (title(outcome), "")]]
        )
    if command:
        slurm_report.show(screen, [[(f"Details:  {command}", "")]])
    return 0


def _make_output_folders(prepared: Prepared) -> None:
    """Create the folders for the job's output. Slurm does not create them, and the job would fail without a message."""
    for folder in prepared.job.folders:
        path = Path(folder.path)
        if folder.exists is not False or path.exists():
            continue
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            text = f"cannot create {path} for the job's output: {errors.reason(error)}"
            raise MgpuError(text, errors.LAUNCH_REFUSED) from None
        messages.notice(f"created {path} for the job's output")


def _rows(prepared: Prepared, options: Sequence[str], script: Path) -> list[tuple[str, str]]:
    nodes = counted(prepared.nodes, "node") if prepared.nodes else ""
    return [
        ("Job", f"{prepared.source or script}" + (f"   {nodes}" if nodes else "")),
        ("Config", prepared.config.path if prepared.config else ""),
        ("Pre-flight", prepared.preflight),
        ("Recorder", prepared.recorder),
        ("Command", slurm_report.command_of(script, options, prepared.arguments)),
    ]


def _dry_run(prepared: Prepared, options: Sequence[str], folder: Path) -> int:
    """Handle --dry-run: print the script on stdout, the rest on stderr, and whether Slurm would accept it."""
    screen = report_screen.Screen.of(sys.stderr)
    to = folder / prepared.name if prepared.changed else prepared.source or folder
    slurm_report.show_plan(_rows(prepared, options, to), screen)
    show_text(prepared)
    with scratch.folder() as place:
        script = write_script(replace(prepared, changed=True), place)
        refusals = submit.test_only(script, options)
    missing = [folder.path for folder in prepared.job.folders if folder.exists is False]
    for path in missing:
        screen.show([[(f"mgpu: would create {path} for the job's output", "")]])
    if refusals:
        screen.show(report_screen.headed("NOT STARTED", "fail", f"Slurm rejects the job: {refusals[0]}", screen))
        return errors.LAUNCH_REFUSED
    screen.show([[("mgpu: Slurm accepts the job", "ok"), ("; nothing was submitted (--dry-run)", "")]])
    return errors.READY


# A job submitted earlier


def _manage_job(request: Request) -> int:
    """Attach to, show or stop a job; return the exit code."""
    from mgpu.launch import follow as runs

    runs.check(replace(request, slurm=False))
    option = next(f"--{name}" for name in ("attach", "status", "stop", "why", "report") if getattr(request, name))
    name = request.target[0] if request.target else ""
    if not name.isdecimal():
        text = f"{option} with --slurm needs a job number:  mgpu launch --slurm {option} JOB   (squeue --me)"
        raise MgpuError(text, errors.USAGE)
    job = int(name)
    if request.report:
        return job_case.report(request, job)
    found = _record(job, named=request.slurm)
    screen = report_screen.Screen.of(sys.stderr)
    say = speaker(screen)
    if request.status:
        return status.show(found, request)
    if request.why:
        return ask_nodes.explain(request, found)
    with ReceivedSignals() as signals:
        if request.stop and not found.ended:
            if trouble := submit.cancel(job):
                raise MgpuError(f"could not cancel job {job}: {trouble}", errors.NOT_READY)
            say(f"cancelling job {job}", "")
        hangs = JobHangs(None if request.stop else ask_nodes.folder_of(found))
        followed = follow(job, signals, attached=True, quiet=request.stop, say=say, hangs=hangs)
    if request.stop:
        word = f"has ended ({followed.state})" if not followed.left else "may still be running"
        say(f"job {job} {word}", "ok" if not followed.left else "warn")
        return errors.READY if not followed.left else errors.NOT_READY
    if followed.left:
        say(f"detached; job {job} is still running.  {shell('mgpu launch --slurm --attach {:id}', job)}", "")
        return errors.INTERRUPTED
    followed = replace(followed, target=request.target)
    return slurm_report.report_end(followed, None, triage=True, json_result="", config=None)


def _record(job: int, *, named: bool) -> records.Record:
    """Return Slurm's record of a job. `named`: with --slurm; else the number may be a PID. Raises MgpuError."""
    no_process = (
        "" if named else f"there is no process {job} on this machine, and no run of that name. As a Slurm job: "
    )
    try:
        found = records.read_record(job)
    except MgpuError as error:
        raise MgpuError(f"{no_process}{error.message}", error.exit_code) from None
    if found is None:
        text = f"Slurm has no record of job {job} (finished jobs are dropped after MinJobAge, 5 minutes by default)"
        raise MgpuError(f"{no_process}{text}", errors.UNKNOWN)
    return found
