"""How does mgpu start a program of its own so that the program never outlives mgpu?

Each child gets its own session, no stdin, and a tie: the read end of a pipe whose only write end belongs to mgpu. The
read end is owned by the child's process group (fcntl F_SETOWN, F_SETSIG, O_ASYNC). When mgpu exits, even by SIGKILL or
the OOM killer, the kernel closes the write end and sends the signal to the whole group.

Why not PR_SET_PDEATHSIG: it fires when the starting *thread* exits, reaches only the direct child, needs ctypes (5 ms
to import) and code between fork and exec, which rules out vfork.

A tie does not reach a process that left the child's group (setsid) or runs as another user (a setuid program), a
process in uninterruptible sleep until it wakes up, and a program other than a probe between its start and `hold` (about
1 ms; a probe checks its tie itself).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

_REAP_S = 1.0  # maximum wait for a killed child in uninterruptible sleep


class Tie:
    """The pipe between mgpu and one child; closed together with this object."""

    def __init__(self) -> None:
        self.reading, self._writing = map(_above_streams, os.pipe())
        self._made_by = os.getpid()

    def hold(self, process: int, *, of_group: bool, number: signal.Signals) -> None:
        """Make the kernel send the signal `number` to `process` when mgpu exits."""
        with contextlib.suppress(OSError):  # a kernel without F_SETSIG: the child is then stopped only by `end`
            fcntl.fcntl(self.reading, fcntl.F_SETOWN, -process if of_group else process)
            fcntl.fcntl(self.reading, fcntl.F_SETSIG, number)
            fcntl.fcntl(self.reading, fcntl.F_SETFL, fcntl.fcntl(self.reading, fcntl.F_GETFL) | os.O_ASYNC)

    def let_go(self) -> None:
        """Close our copy of the child's end."""
        if self.reading >= 0:
            os.close(self.reading)
            self.reading = -1

    def __del__(self, _ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if _ending() or os.getpid() != self._made_by:  # the kernel closes it; a fork of mgpu may have reused the number
            return
        self.let_go()
        with contextlib.suppress(OSError):
            os.close(self._writing)


def _above_streams(number: int) -> int:
    """Move a file descriptor above those of the standard streams, if mgpu was started with one of them closed."""
    if number > 2:
        return number
    copy = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(number)
    return copy


class Program(subprocess.Popen[bytes]):
    """A program started by mgpu. It is killed at the latest when its last reference is dropped."""

    tie: Tie | None = None
    _made_by = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        self._made_by = os.getpid()
        super().__init__(*args, **options)
        _live.add(self)

    def kill_group(self) -> None:
        """Send SIGKILL to the program and its children, unless it has exited."""
        if self._made_by != os.getpid() or self.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(self.pid) == self.pid:
                os.killpg(self.pid, signal.SIGKILL)
            else:
                self.kill()

    def __del__(self, *args: Any, _ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if _ending():  # modules may already be unloaded; the tie is closed with this process
            return
        if getattr(self, "_child_created", False):  # as in Popen: false if nothing was started
            self.kill_group()
        super().__del__(*args)


_live: weakref.WeakSet[Program] = weakref.WeakSet()


def start(
    command: Sequence[str],
    *,
    tie: Tie | None = None,
    at_our_end: signal.Signals = signal.SIGKILL,
    start_new_session: bool = True,
    **options: Any,
) -> Program:
    """Start a program that gets the signal `at_our_end` when mgpu exits. Raises OSError.

    Options are those of subprocess.Popen. `tie`: created beforehand, for a child that checks its file descriptor.
    """
    tie = tie or Tie()
    options.setdefault("stdin", subprocess.DEVNULL)
    try:
        program = Program(command, pass_fds=(tie.reading,), start_new_session=start_new_session, **options)
        program.tie = tie
        tie.hold(program.pid, of_group=start_new_session, number=at_our_end)
    finally:
        tie.let_go()
    return program


def run(
    command: Sequence[str], timeout_s: float, *, input: bytes | None = None, **options: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run a program and capture its output. Raises OSError, and subprocess.TimeoutExpired after `timeout_s`.

    If anything interrupts the wait, the program and its children are killed.
    """
    pipe = subprocess.PIPE
    program = start(command, stdin=subprocess.DEVNULL if input is None else pipe, stdout=pipe, stderr=pipe, **options)
    try:
        out, err = program.communicate(input, timeout_s)
    finally:
        end(program)
    return subprocess.CompletedProcess(program.args, program.returncode, out, err)


def end(*programs: Program) -> None:
    """Kill programs and their children, and close their streams, without waiting for uninterruptible sleep."""
    for program in programs:
        program.kill_group()
    for program in programs:
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(_REAP_S)
        for stream in (program.stdin, program.stdout, program.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def end_all() -> None:
    """Kill and reap all programs that are still running."""
    end(*[program for program in list(_live) if program.poll() is None])
