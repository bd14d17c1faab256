"""Start the launcher, watch the run, and report its end."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mgpu import errors, messages
from mgpu.errors import MgpuError
from mgpu.hangs import hang_evidence
from mgpu.hangs.hang_watch import HangWatch, OnHang
from mgpu.launch import rank_facts, registry, run_entry, start_errors
from mgpu.launch.exchange_watch import ExchangeWatch
from mgpu.launch.finite_watch import FiniteWatch
from mgpu.launch.gpu_watch import Watch
from mgpu.launch.node_pace import PaceOfPart
from mgpu.launch.node_ranks import NodeRecords
from mgpu.launch.pace_watch import PaceWatch
from mgpu.launch.request import Request
from mgpu.launch.run_outcome import Aftermath
from mgpu.process import exit_code, guard, open_files, run_log, time_limit
from mgpu.process import supervisor as process_supervisor
from mgpu.process.command import Command
from mgpu.report import failure
from mgpu.report import screen as report_screen
from mgpu.snapshot import Hang, Run, Snapshot

PROGRAM_STARTS = "your program's output starts here"
if TYPE_CHECKING:
    from mgpu.launch.run_json import RunDocument

_READER_GONE = (errno.EPIPE, errno.EIO, errno.ECONNRESET)  # the other end of a pipe, terminal or socket was closed


class Hangs(Protocol):
    """What finds out why a run makes no progress."""

    hang: Hang | None

    def tick(self, supervisor: process_supervisor.Supervisor) -> None:
        """Look at the progress."""

    def before_signal(self, supervisor: process_supervisor.Supervisor) -> None:
        """Look at the ranks before they are stopped."""

    def is_stopped_elsewhere(self) -> bool:
        """Whether another node has stopped the run because of a hang."""


@dataclass(frozen=True)
class _Watches:
    """What observes a run while it runs."""

    after: Aftermath
    gpus: Watch
    exchange: ExchangeWatch
    hang: Hangs
    pace: PaceWatch
    finite: FiniteWatch
    records: NodeRecords | None  # of one node's part of a run: for the machine that joins all

    def ticks(self) -> list[process_supervisor.Tick]:
        """Return what the supervisor calls."""
        return [
            lambda running: self.after.tick(running.ranks),
            self.gpus.tick,
            self.exchange.tick,
            self.hang.tick,
            self.pace.tick,
            self.finite.tick,
            *([self.records.tick] if self.records else []),
        ]

    def before_signal(self, running: process_supervisor.Supervisor) -> None:
        """Record what the ranks do before they are asked to stop."""
        self.hang.before_signal(running)
        self.after.before_signal(running.ranks)


def _watches(request: Request, command: Command, folder: Path, snapshot: Snapshot, hangs: Hangs | None) -> _Watches:
    config, ranks = snapshot.config, command.ranks
    world = (config.world if config else None) or ranks
    stop: OnHang = "stop" if request.on_hang == "stop" else "report"
    node = request.node
    nodes = config.num_machines if config and node is not None else 1
    is_part = nodes > 1 and request.recorder
    trained = partial(rank_facts.trained_bytes, folder, ranks)
    return _Watches(
        Aftermath(expected=ranks, folder=folder, run_id=command.run_id),
        Watch(snapshot, command, folder),
        ExchangeWatch(ranks, config.num_machines if config else 1, trained=trained if request.recorder else None),
        hangs or HangWatch(folder, ranks, world, after_s=request.hang_after_s, on_hang=stop),
        PaceOfPart(folder, node or 0, nodes, ranks, world) if is_part else PaceWatch(folder, ranks),
        FiniteWatch(folder, ranks),
        NodeRecords(folder, world) if is_part else None,
    )


def hand_off(
    request: Request,
    command: Command,
    folder: Path,
    snapshot: Snapshot,
    started: Callable[[registry.Entry], None] | None = None,
    hangs: Hangs | None = None,
    recorded: Callable[[Run], Run] | None = None,
    amend: Callable[[RunDocument], None] | None = None,
) -> int:
    """Run the launcher under supervision; return the training's own exit code.

    `started` is called with the run's entry as soon as the launcher is running. `hangs`: of a job, whose script gives
    its ranks the recorder and whose nodes watch them. `recorded` adds what these nodes have recorded to its end,
    `amend` what the hosts of a run over ssh say of it.
    """
    open_files.open_missing_streams()
    screen = report_screen.Screen.of(sys.stderr)
    with contextlib.suppress(OSError):  # the reader of stderr exited
        screen.show([[(screen.rule(PROGRAM_STARTS), "")]])
    if request.recorder and hangs is None:  # else the ranks are on other machines
        command = hang_evidence.with_recorder(command, folder, nan_check=request.nan_check)
    watches = _watches(request, command, folder, snapshot, hangs)
    with run_entry.running(command, folder, request, started) as kept, watches.gpus:
        ticks: list[process_supervisor.Tick] = [kept.tick, *watches.ticks()]
        if request.timeout_s:
            ticks.append(time_limit.tick(request.timeout_s))
        ended = _supervise(command, folder, ticks, watches.before_signal)
        if ended.returncode and not ended.signalled and watches.hang.is_stopped_elsewhere():
            ended.timed_out = True
        code = _exit_code(command, ended)
        try:
            if watches.records:
                watches.records.end()
            also = _amendment(kept.name, amend)
            _report_end(request, command, folder, snapshot, ended, watches, code, recorded, also)
        finally:
            hang_evidence.tidy(folder)
            kept.ended(code, signalled=ended.signalled, timed_out=ended.timed_out)
    return code


def _amendment(run: str, amend: Callable[[RunDocument], None] | None) -> Callable[[RunDocument], None]:
    """Return what completes the document of a run's end: the run's ID, and what `amend` adds."""

    def complete(document: RunDocument) -> None:
        document["run"] = run
        if amend is not None:
            amend(document)

    return complete


def _report_end(
    request: Request,
    command: Command,
    folder: Path,
    snapshot: Snapshot,
    ended: process_supervisor.Ended,
    watches: _Watches,
    code: int,
    recorded: Callable[[Run], Run] | None = None,
    amend: Callable[[RunDocument], None] | None = None,
) -> None:
    """Report how the run ended and why. An error here does not change the exit code."""
    from mgpu.launch import report as launch_report
    from mgpu.launch import run_facts_file

    try:
        run = _fact(command, ended, watches, code)
        with_ranks = recorded(run) if recorded else None
        timeline = run_facts_file.timeline_of(folder, command, run, watches.pace.waits())
        launch_report.report_end(request, command, folder, run, snapshot, watches.hang.hang, with_ranks, amend)
        run_facts_file.store(folder, snapshot, with_ranks or run, timeline, watches.hang.hang)
        if isinstance(watches.pace, PaceOfPart) and (gap := watches.pace.gap()):
            screen = report_screen.Screen.of(sys.stderr)
            screen.show(failure.row(screen, "Nodes", gap))
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


def _fact(command: Command, ended: process_supervisor.Ended, watches: _Watches, code: int) -> Run:
    """Return how the run ended, with what was observed of it; remove the launcher's error files."""
    seen = watches.gpus.result()
    run = watches.after.run(
        ended,
        code=code,
        seconds=ended.seconds,
        timed_out=ended.timed_out,
        gpus=seen.gpus,
        gpus_after_s=seen.after_s,
    )
    guard.sweep(ended.error_files, watches.after.files_before)
    # The ranks of a job's steps are Slurm's children, not ours: mgpu does not see whether there were any.
    run = replace(run, gpus_gap=seen.gap, quiet_s=seen.quiet_s, watched=not command.is_job)
    pace, not_finite = watches.pace.result(), watches.finite.result()
    return replace(run, exchange=watches.exchange.result(), pace=pace, not_finite=not_finite)


def _supervise(
    command: Command, folder: Path, ticks: list[process_supervisor.Tick], before_signal: process_supervisor.Tick
) -> process_supervisor.Ended:
    """Supervise the run from its start to its last process, and write its log and mgpu's own."""
    with _notes(folder) as note:
        supervisor = process_supervisor.Supervisor(command, None, ticks, note, before_signal)
        supervisor.log = log = run_log.open_log(folder, lambda text: supervisor.say(text, important=True))
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
