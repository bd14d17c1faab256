"""Run a launch without the terminal it was started from: `--detach`, and `--watch SCRIPT`.

The supervisor runs in its own session without a terminal, so no key and no hangup reaches it. mgpu's messages go to
FOLDER/mgpu.log, the program's output only to its log. The command returns once the launcher is running.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from mgpu import errors, messages
from mgpu.command_line import shell
from mgpu.errors import MgpuError, reason
from mgpu.launch import registry
from mgpu.launch import start_errors as starting
from mgpu.launch.request import Request
from mgpu.process import child_process, signals
from mgpu.process.command import Command
from mgpu.report import screen as report_screen
from mgpu.snapshot import Run, Snapshot

if TYPE_CHECKING:
    from mgpu.launch.hand_off import Hangs
    from mgpu.launch.run_json import RunDocument

NOTES = "mgpu.log"
_LOGIND_S = 2.0  # timeout; logind answers in milliseconds
_Started = Callable[[registry.Entry], None]


def start(
    request: Request,
    command: Command,
    folder: Path,
    snapshot: Snapshot,
    hangs: Hangs | None = None,
    recorded: Callable[[Run], Run] | None = None,
    amend: Callable[[RunDocument], None] | None = None,
) -> int:
    """Start the run in the background; return 0 once the launcher is running. Raises MgpuError if it cannot start.

    The caller has called `run_entry.can_keep`. `hangs`, `recorded`, `amend`: see `hand_off`.
    """

    def supervised(started: _Started) -> int:
        from mgpu.launch import hand_off

        return hand_off.hand_off(request, command, folder, snapshot, started, hangs, recorded, amend)

    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _supervise(writing, folder, supervised)
    os.close(writing)
    run = _started_run(child, reading, folder)
    if request.watch:
        from mgpu.launch import gpu_table

        return gpu_table.watch(registry.find(run, registry.entries()[0]))
    _show_started(run)
    return errors.READY


def _started_run(child: int, descriptor: int, folder: Path) -> str:
    """Wait for the message of the supervisor; return the run's id. Raises MgpuError if it has not started."""
    try:
        os.waitpid(child, 0)
        with open(descriptor, encoding="utf-8") as pipe:
            line = pipe.readline()
    except KeyboardInterrupt:
        raise MgpuError("interrupted; the run may continue:  mgpu launch --status", errors.INTERRUPTED) from None
    try:
        message = json.loads(line)
    except ValueError:
        raise MgpuError(f"the run ended before its launcher started. See {folder / NOTES}", errors.CANNOT_RUN) from None
    if "error" in message:
        raise MgpuError(message["error"], message["exit_code"])
    run: str = message["id"]
    return run


def _show_started(run: str) -> None:
    """Print the run's id on stdout, for scripts, and the commands for it on stderr."""
    screen = report_screen.Screen.of(sys.stderr)
    lines: list[report_screen.Line] = [[("mgpu: started", "ok"), (" in the background", "")]]
    for label, option in (("Follow", "--attach"), ("Status", "--status"), ("Stop", "--stop")):
        lines.append([(f"{label:<11}", "bold"), (shell("mgpu launch {:option} {:id}", option, run), "")])
    if ends := what_ends_it():
        lines += report_screen.unstyled(report_screen.wrapped(ends, screen.width))
    screen.show(lines)
    if sys.stdout is not None:
        print(run, flush=True)


def _supervise(descriptor: int, folder: Path, run: Callable[[_Started], int]) -> NoReturn:
    """Run the supervisor in this process, which never returns; write one message to the pipe `descriptor`."""
    code = errors.LAUNCH_REFUSED
    pipe = open(descriptor, "w", encoding="utf-8")  # noqa: SIM115

    def report(**message: object) -> None:
        with contextlib.suppress(OSError, ValueError):  # the other end is no longer waiting
            pipe.write(json.dumps(message) + "\n")
            pipe.close()

    try:
        os.setsid()
        if os.fork():
            os._exit(0)  # the grandchild is not a session leader, so a terminal it opens cannot become its own
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        _detach_streams(folder)
        code = run(lambda entry: report(id=entry.id))
    except MgpuError as error:
        code = error.exit_code
        messages.notice(error.message)
        report(error=error.message, exit_code=code)
    except signals.Stopped as stopped:
        code = 128 + stopped.number
        report(error=f"stopped by {signal.Signals(stopped.number).name} before the launcher started", exit_code=code)
    except OSError as error:
        refused = starting.failure(error)
        print(f"mgpu: {refused.message}", file=sys.stderr)
        report(error=refused.message, exit_code=code)
    except BaseException as error:
        import traceback

        traceback.print_exc()
        report(error=f"a bug in mgpu: {reason(error)} ({folder / NOTES} has more)", exit_code=code)
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


def _detach_streams(folder: Path) -> None:
    """Close the terminal and every inherited stream, so that `ssh host mgpu launch --detach ...` returns."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if int(name) > 2 and os.get_inheritable(int(name)):  # our own files are not
                os.close(int(name))
    try:
        notes = os.open(folder / NOTES, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        notes = null
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(Tolerant(notes, "w")), encoding="utf-8", errors="replace", line_buffering=True
    )
    sys.stdout = sys.stderr


class Tolerant(io.FileIO):
    """A file that ignores write errors: a full disk must not stop the supervisor."""

    def write(self, data: Any, /) -> int:
        """Write if possible; return the number of bytes."""
        try:
            return super().write(data) or 0
        except OSError:
            return len(data)


# What stops a detached run


def what_ends_it() -> str:
    """Return what will stop a run of this session although it is detached, as text; empty if nothing is known to."""
    if job := os.environ.get("SLURM_JOB_ID"):
        return f"The run stops when Slurm job {job} ends."
    try:
        group = Path("/proc/self/cgroup").read_text("utf-8", "replace")
    except OSError:
        return ""
    return _of_logind(group, os.getuid(), _kills_user_processes)


def _of_logind(group: str, user: int, kills: Callable[[], bool]) -> str:
    """Return the warning if logind kills this session's processes at logout.

    logind.conf(5): with KillUserProcesses=yes it kills the session's scope, except for root. A scope of the user's own
    manager survives while the user lingers (systemd-run(1), last example).
    """
    in_session = any("/session-" in line and ".scope" in line for line in group.splitlines())
    if not in_session or user == 0 or not kills():
        return ""
    return (
        "Logging out stops this run (logind: KillUserProcesses=yes). To prevent that, run once:"
        "  loginctl enable-linger  and start with:  systemd-run --user --scope mgpu launch --detach ..."
    )


def _kills_user_processes() -> bool:
    try:
        done = child_process.run(["loginctl", "show-session", "--property=KillUserProcesses"], _LOGIND_S)
    except (OSError, subprocess.SubprocessError, ValueError):
        return False
    return b"KillUserProcesses=yes" in done.stdout
