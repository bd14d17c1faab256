"""How does mgpu start a program of its own so that the program never outlives mgpu?

Each child gets a session of its own, no stdin, and a tie: the read end of a pipe whose only write end mgpu holds. The
read end belongs to the child's process group (fcntl F_SETOWN, F_SETSIG, O_ASYNC). When mgpu ends, also by SIGKILL or
the OOM killer, the kernel closes the write end and sends the signal to the whole group.

Why not PR_SET_PDEATHSIG: it fires when the starting *thread* ends, reaches only the direct child, needs ctypes (5 ms to
import) and code between fork and exec, which rules out vfork.

What a tie cannot reach: a process that left the child's group (setsid) or runs as another user (a setuid program), one
in uninterruptible sleep until it wakes up, and a program other than a probe in the moment between its start and `hold`
(about 1 ms; a probe checks its tie itself).
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

_REAP_S = 1.0  # a killed child in uninterruptible sleep is not waited for longer than this


class Tie:
    """The pipe between mgpu and one child; closed with the object that holds it."""

    def __init__(self) -> None:
        self.reading, self._writing = map(_above_streams, os.pipe())
        self._made_by = os.getpid()

    def hold(self, process: int, *, of_group: bool, number: signal.Signals) -> None:
        """Have the kernel send the signal `number` when this process ends."""
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
    """Move a file off the numbers of the standard streams: needed if mgpu was started with one of them closed."""
    if number > 2:
        return number
    copy = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(number)
    return copy


class Program(subprocess.Popen[bytes]):
    """A program of mgpu's own. It is killed when its last reference is dropped, at the latest."""

    tie: Tie | None = None
    _made_by = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        self._made_by = os.getpid()
        super().__init__(*args, **options)
        _live.add(self)

    def kill_group(self) -> None:
        """Send SIGKILL to the program and to what it started; one that ended does not matter."""
        if self._made_by != os.getpid() or self.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(self.pid) == self.pid:
                os.killpg(self.pid, signal.SIGKILL)
            else:
                self.kill()

    def __del__(self, *args: Any, _ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if _ending():  # modules may be gone already; the tie ends with this process
            return
        if getattr(self, "_child_created", False):  # as in Popen: false where nothing could be started
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
    """Start a program that ends with mgpu, by the signal `at_our_end`. Raises OSError.

    Options are those of subprocess.Popen. `tie`: made beforehand, for a child that checks it by its number.
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
    """Run a program to its end, its output captured. Raises OSError, and subprocess.TimeoutExpired after `timeout_s`.

    Whatever interrupts the wait, the program and what it started are killed.
    """
    pipe = subprocess.PIPE
    program = start(command, stdin=subprocess.DEVNULL if input is None else pipe, stdout=pipe, stderr=pipe, **options)
    try:
        out, err = program.communicate(input, timeout_s)
    finally:
        end(program)
    return subprocess.CompletedProcess(program.args, program.returncode, out, err)


def end(*programs: Program) -> None:
    """Kill programs and what they started, and close their streams. One in uninterruptible sleep is given up."""
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
    """Kill whatever is still running, and reap it."""
    end(*[program for program in list(_live) if program.poll() is None])
