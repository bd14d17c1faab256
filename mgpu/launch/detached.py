"""How does a run go on without the terminal it was started from? `--detach`, and under `--watch SCRIPT`.

The supervisor goes on in a session of its own, without a terminal: no key and no hangup reaches it. What mgpu says goes
to FOLDER/mgpu.log, what the program writes to its log only. The command ends when the launcher is there.
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
from typing import Any, NoReturn

from mgpu import errors, messages
from mgpu.command_line import shell
from mgpu.errors import MgpuError, reason
from mgpu.launch import registry
from mgpu.launch import start_errors as starting
from mgpu.launch.request import Request
from mgpu.process import child_process, signals
from mgpu.process.command import Command
from mgpu.report import screen as report_screen
from mgpu.snapshot import Snapshot

NOTES = "mgpu.log"
_ASKED_S = 2.0  # logind answers in milliseconds


def start(request: Request, command: Command, folder: Path, snapshot: Snapshot) -> int:
    """Start the run and leave it; 0 once the launcher is there. Raises MgpuError when it could not be started.

    Whoever calls has asked `keeping.can_keep`.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _go_on(request, command, folder, snapshot, writing)
    os.close(writing)
    try:
        os.waitpid(child, 0)
        with open(reading, encoding="utf-8") as pipe:
            told = pipe.readline()
    except KeyboardInterrupt:
        raise MgpuError("left early; the run may go on:  mgpu launch --status", errors.INTERRUPTED) from None
    try:
        word = json.loads(told)
    except ValueError:
        raise MgpuError(
            f"the run ended before its launcher was there; {folder / NOTES} may say why", errors.CANNOT_RUN
        ) from None
    if "error" in word:
        raise MgpuError(word["error"], word["exit_code"])
    if request.watch:
        from mgpu.launch import gpu_table

        return gpu_table.watch(registry.find(word["id"], registry.entries()[0]))
    _say(word["id"])
    return errors.READY


def _say(run: str) -> None:
    """The run's id on stdout, for scripts; what one does with it on stderr."""
    screen = report_screen.Screen.of(sys.stderr)
    lines: list[report_screen.Line] = [[("mgpu: started", "ok"), (", and goes on when this terminal is closed", "")]]
    for label, option in (("Follow it", "--attach"), ("How it is", "--status"), ("End it", "--stop")):
        lines.append([(f"{label:<11}", "bold"), (shell("mgpu launch {:option} {:id}", option, run), "")])
    if ends := what_ends_it():
        lines += report_screen.unstyled(report_screen.wrapped(ends, screen.width))
    screen.show(lines)
    if sys.stdout is not None:
        print(run, flush=True)


def _go_on(request: Request, command: Command, folder: Path, snapshot: Snapshot, told: int) -> NoReturn:
    """The life of the supervisor, in a process that never returns."""
    code = errors.LAUNCH_REFUSED
    pipe = open(told, "w", encoding="utf-8")  # noqa: SIM115

    def tell(**word: object) -> None:
        with contextlib.suppress(OSError, ValueError):  # the other end is not waiting any more
            pipe.write(json.dumps(word) + "\n")
            pipe.close()

    try:
        os.setsid()
        if os.fork():
            os._exit(0)  # what goes on leads no session: no terminal that it opens can become its own
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        _let_go(folder)
        from mgpu.launch import hand_off

        code = hand_off.hand_off(request, command, folder, snapshot, started=lambda entry: tell(id=entry.id))
    except MgpuError as error:
        code = error.exit_code
        messages.notice(error.message)
        tell(error=error.message, exit_code=code)
    except signals.Stopped as stopped:
        code = 128 + stopped.number
        tell(error=f"stopped by {signal.Signals(stopped.number).name} before the launcher started", exit_code=code)
    except OSError as error:
        refused = starting.failure(error)
        print(f"mgpu: {refused.message}", file=sys.stderr)
        tell(error=refused.message, exit_code=code)
    except BaseException as error:
        import traceback

        traceback.print_exc()
        tell(error=f"a bug in mgpu: {reason(error)} ({folder / NOTES} has more)", exit_code=code)
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


def _let_go(folder: Path) -> None:
    """Of the terminal and of every stream that others gave us: `ssh host mgpu launch --detach …` is to come back."""
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
    """A file that swallows what it cannot keep: a full disk must not end the one who watches over the run."""

    def write(self, data: Any, /) -> int:
        """Write what can be written."""
        try:
            return super().write(data) or 0
        except OSError:
            return len(data)


# What ends it all the same


def what_ends_it() -> str:
    """What will end a run of this session although it is detached, in words; empty when nothing is known to."""
    if job := os.environ.get("SLURM_JOB_ID"):
        return f"It ends with the Slurm job {job} at the latest."
    try:
        group = Path("/proc/self/cgroup").read_text("utf-8", "replace")
    except OSError:
        return ""
    return _of_logind(group, os.getuid(), _kills_user_processes)


def _of_logind(group: str, user: int, kills: Callable[[], bool]) -> str:
    """logind.conf(5): with KillUserProcesses=yes all of a session's scope ends at logout, but for root's. What is in a
    scope of the user's own manager does not, while that one lingers (systemd-run(1), its last example)."""
    in_session = any("/session-" in line and ".scope" in line for line in group.splitlines())
    if not in_session or user == 0 or not kills():
        return ""
    return (
        "Here a logout ends everything of the session (logind: KillUserProcesses=yes). To survive it, once:"
        "  loginctl enable-linger  and then  systemd-run --user --scope mgpu launch --detach ..."
    )


def _kills_user_processes() -> bool:
    try:
        done = child_process.run(["loginctl", "show-session", "--property=KillUserProcesses"], _ASKED_S)
    except (OSError, subprocess.SubprocessError, ValueError):
        return False
    return b"KillUserProcesses=yes" in done.stdout
