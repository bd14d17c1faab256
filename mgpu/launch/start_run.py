"""Show what would run, or start it: a script with mgpu's launcher, or the user's own launch line."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from mgpu import engine, errors
from mgpu.errors import MgpuError
from mgpu.launch import gate, preflight, result_document, summary
from mgpu.launch.request import Request
from mgpu.launchers import argv as launching
from mgpu.launchers import run_folder
from mgpu.launchers.gpu_selection import Selection
from mgpu.process import command as process_command
from mgpu.report import screen
from mgpu.snapshot import Config

_WOULD_FAIL = "This run is expected to fail, or could not be checked:"
NOT_NOW = "Fix this, or launch anyway:"


def show_plan(
    request: Request,
    details: summary.Details,
    command: process_command.Command,
    stopping: Sequence[engine.Outcome],
    policy: str,
) -> int:
    """Show what would run, and what would stop it; return the exit code of a launch that would be refused, else 0."""
    summary.show(details, command, dry_run=True)
    would_stop = policy != "allow" and (stopping or (details.verified and policy == "refuse"))
    if not would_stop:
        return errors.READY
    shown = screen.Screen.of(sys.stdout)
    why = "of the problems above" if stopping else "the config is not verified"
    lines = (
        gate.problem_lines(request, stopping, summary.doctor_command(details.fewer.config), shown) if stopping else []
    )
    shown.show([*lines, [], *screen.headed("WOULD NOT START", "fail", f"because {why}", shown)])
    return errors.LAUNCH_REFUSED


def print_lines(lines: Sequence[str]) -> None:
    """Print byte for byte, including arguments that are not valid text."""
    data = b"".join(os.fsencode(line) + b"\n" for line in lines)
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None:
        sys.stdout.write(data.decode("utf-8", "replace"))
    else:
        stream.write(data)
    sys.stdout.flush()


def refuse(request: Request, config: Config, problems: Sequence[engine.Outcome]) -> int:
    """Refuse a run that is expected to fail."""
    doctor = summary.doctor_command(config)
    return gate.refuse(request, problems, _WOULD_FAIL, doctor, doctor)


def resolve_unverified(
    request: Request, few: Selection, verified: Sequence[engine.Outcome], policy: str
) -> Sequence[engine.Outcome] | int:
    """Apply the policy to an unverified config; return why it is still unverified, or the exit code of a refusal."""
    if policy == "refuse":
        return gate.refuse_unverified(request, few.config, verified)
    answer = (
        gate.ask_user(verified, smoke=request.smoke == "auto" and not request.gpus) if policy == "ask" else "launch"
    )
    if answer == "stop":
        gate.record(request, verified)
        return errors.LAUNCH_REFUSED
    if answer == "test":
        return run_smoke_test(request, few)
    if unseen := gate.cannot_see_gpus(few.snapshot):
        return refuse(request, few.config, unseen)
    return verified


def run_smoke_test(request: Request, few: Selection) -> Sequence[engine.Outcome]:
    """Run the smoke test; return why the config is still not verified. Raises MgpuError if the test failed."""
    from mgpu.smoke import run as smoke
    from mgpu.smoke.request import Request as SmokeRequest

    with contextlib.redirect_stdout(sys.stderr):  # stdout is the training's
        code = smoke.run(SmokeRequest(config=request.config, node=request.node))
    if code != errors.READY:
        raise MgpuError("not started: the smoke test did not pass", errors.LAUNCH_REFUSED)
    return gate.verification(preflight.with_stamp(few.snapshot))


def start(request: Request, command: process_command.Command, details: summary.Details) -> int:
    """Show what will run, ask for confirmation, and start it."""
    folder = None if request.exec_ else _plan_folder(request, details.fewer.config)
    if request.detach or request.watch:
        from mgpu.launch import run_entry

        run_entry.can_keep()
    details = replace(details, folder=folder)
    if details.fewer.snapshot.stamp is not None and not details.verified:
        details = replace(details, fewer=replace(details.fewer, snapshot=preflight.with_stamp(details.fewer.snapshot)))
    summary.show(details, command)
    undecided = bool(details.script or details.warnings)  # without findings, the command was the decision
    if undecided and not request.yes and screen.can_ask() and not summary.confirm_start():
        return result_document.record_declined(request)
    if folder is None:
        launching.exec_command(command)
    snapshot = details.fewer.snapshot
    with _claim_folder(request, folder) as claimed:
        gc.enable()
        if request.detach or request.watch:
            from mgpu.launch import detached

            return detached.start(request, command, claimed, snapshot)
        from mgpu.launch import hand_off

        return hand_off.hand_off(request, command, claimed, snapshot)


def _plan_folder(request: Request, config: Config) -> Path:
    """Return the folder for this run's files; nothing is created or removed yet.

    With several nodes, each has its own folder in --log-dir, which they may share. Raises MgpuError: 2 if another
    run still writes there, 125 if mgpu cannot write there.
    """
    folder = request.log_dir
    if folder and config.num_machines > 1:
        folder = os.path.join(folder, f"node{socket.gethostname() if request.node is None else request.node}")
    try:
        planned = run_folder.plan_folder(folder, run_folder.LAUNCH)
    except MgpuError as error:
        raise MgpuError(error.message, errors.LAUNCH_REFUSED) from None
    if folder:
        from mgpu.launch import registry

        if other := registry.writes_to(planned):
            raise MgpuError(f"{other.id} still writes its logs to {folder}. Use another --log-dir.", errors.USAGE)
    return planned


@contextlib.contextmanager
def _claim_folder(request: Request, planned: Path) -> Iterator[Path]:
    """Claim the folder for the duration of the run, cleared of an earlier launch's files. Raises MgpuError (125)."""
    with contextlib.ExitStack() as stack:
        outlived = request.detach or request.watch
        try:
            named = bool(request.log_dir)
            folder = run_folder.claim_folder(planned, run_folder.LAUNCH, named=named, outlived=outlived)
            path = stack.enter_context(folder)
        except MgpuError as error:
            raise MgpuError(error.message, errors.LAUNCH_REFUSED) from None
        yield path
