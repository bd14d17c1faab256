"""Start the launcher, watch the run, and report its end."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from mgpu import errors, messages
from mgpu.errors import MgpuError
from mgpu.launch import hang_evidence, registry, run_entry, start_errors
from mgpu.launch.exchange_watch import ExchangeWatch
from mgpu.launch.gpu_watch import Watch
from mgpu.launch.hang_watch import HangWatch, OnHang
from mgpu.launch.request import Request
from mgpu.launch.run_outcome import Aftermath
from mgpu.process import exit_code, guard, open_files, run_log, time_limit
from mgpu.process import supervisor as process_supervisor
from mgpu.process.command import Command
from mgpu.report import screen as report_screen
from mgpu.snapshot import Exchange, Hang, Snapshot

_READER_GONE = (errno.EPIPE, errno.EIO, errno.ECONNRESET)  # the other end of a pipe, terminal or socket was closed


def hand_off(
    request: Request,
    command: Command,
    folder: Path,
    snapshot: Snapshot,
    started: Callable[[registry.Entry], None] | None = None,
) -> int:
    """Run the launcher under supervision; return the training's own exit code.

    `started` is called with the run's entry as soon as the launcher is running.
    """
    open_files.open_missing_streams()
    screen = report_screen.Screen.of(sys.stderr)
    with contextlib.suppress(OSError):  # the reader of stderr exited
        screen.show([[(screen.rule("your program's output starts here"), "")]])
    after = Aftermath(expected=command.ranks, folder=folder, run_id=command.run_id)
    if request.recorder:
        command = hang_evidence.with_recorder(command, folder)
    hang = _hang_watch(request, command, folder, snapshot)
    exchange = ExchangeWatch(command.ranks, snapshot.config.num_machines if snapshot.config else 1)
    with run_entry.running(command, folder, request, started) as kept, Watch(snapshot, command, folder) as watch:
        ticks: list[process_supervisor.Tick] = [kept.tick, lambda running: after.tick(running.ranks), watch.tick]
        ticks += [exchange.tick, hang.tick]
        if request.timeout_s:
            ticks.append(time_limit.tick(request.timeout_s))

        ended = _supervise(command, folder, ticks, lambda running: _before_signal(running, hang, after))
        hang_evidence.tidy(folder)
        code = _exit_code(command, ended)
        try:
            _report_end(request, command, folder, snapshot, ended, after, watch, code, exchange.result(), hang.hang)
        finally:
            kept.ended(code, signalled=ended.signalled, timed_out=ended.timed_out)
    return code


def _hang_watch(request: Request, command: Command, folder: Path, snapshot: Snapshot) -> HangWatch:
    world = (snapshot.config.num_processes if snapshot.config else None) or command.ranks
    stop: OnHang = "stop" if request.on_hang == "stop" else "report"
    return HangWatch(folder, command.ranks, world, after_s=request.hang_after_s, on_hang=stop)


def _before_signal(running: process_supervisor.Supervisor, hang: HangWatch, after: Aftermath) -> None:
    """Record what the ranks do before they are asked to stop."""
    hang.before_signal(running)
    after.before_signal(running.ranks)


def _report_end(
    request: Request,
    command: Command,
    folder: Path,
    snapshot: Snapshot,
    ended: process_supervisor.Ended,
    after: Aftermath,
    watch: Watch,
    code: int,
    exchange: Exchange | None = None,
    hang: Hang | None = None,
) -> None:
    """Report how the run ended and why. An error here does not change the exit code."""
    from mgpu.launch import report as launch_report

    seen = watch.result()
    try:
        run = after.run(
            ended,
            code=code,
            seconds=ended.seconds,
            timed_out=ended.timed_out,
            gpus=seen.gpus,
            gpus_after_s=seen.after_s,
        )
        guard.sweep(ended.error_files, after.files_before)
        # The ranks of a job's steps are Slurm's children, not ours: mgpu does not see whether there were any.
        run = replace(run, gpus_gap=seen.gap, quiet_s=seen.quiet_s, watched=not command.is_job, exchange=exchange)
        launch_report.report_end(request, command, folder, run, snapshot, hang)
        for stream in ended.lost:
            messages.notice(f"some output could not be written to {stream}. See {folder}/run.log")
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _READER_GONE:
            return
        if os.environ.get("MGPU_DEBUG"):
            raise
        what = "could not determine why the run ended" if isinstance(error, OSError) else "a bug in mgpu"
        messages.notice(f"{what}: {errors.reason(error)} (MGPU_DEBUG=1 shows where)")
        messages.notice(f"the training exited with code {code}")


def _supervise(
    command: Command, folder: Path, ticks: list[process_supervisor.Tick], before_signal: process_supervisor.Tick
) -> process_supervisor.Ended:
    """Supervise the run from its start to its last process, and write its log and mgpu's own."""
    with _notes(folder) as note:
        supervisor = process_supervisor.Supervisor(command, None, ticks, note, before_signal)
        supervisor.log = log = run_log.open_log(folder, supervisor.say)
        try:
            ended = supervisor.run()
        except MgpuError:
            raise
        except Exception as error:
            if supervisor.launcher is None or os.environ.get("MGPU_DEBUG"):
                raise
            what = f"mgpu failed while watching the run, and stopped it: {start_errors.failure_reason(error)}"
            raise MgpuError(f"{what}. See {folder}/", errors.LAUNCH_REFUSED) from None
        finally:
            if log is not None:
                log.close()
    if not ended.at_line_start and sys.stderr is not None and report_screen.is_terminal(sys.stderr):
        with contextlib.suppress(OSError):
            sys.stderr.write("\n")
    return ended


@contextlib.contextmanager
def _notes(folder: Path) -> Iterator[run_log.Notes]:
    notes = run_log.Notes(folder)
    try:
        yield notes
    finally:
        notes.close()


def _exit_code(command: Command, ended: process_supervisor.Ended) -> int:
    """Return mgpu's exit code: the training's, unless mgpu's own time limit was reached."""
    if ended.timed_out:
        return errors.TIMED_OUT
    return exit_code.training_exit_code(
        ended.returncode, ended.printed, ended.signalled, flattened=command.known.flattens
    )
