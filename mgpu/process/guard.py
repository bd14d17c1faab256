"""What stops a run when mgpu itself is killed?

The kernel signals the launcher (supervisor.py: a parent-death signal, or the hangup of its terminal), which stops its
ranks in its own way. A forked child, the guard, reads from a pipe: when mgpu dies, even by SIGKILL, the pipe is closed,
and the guard waits for the launcher, kills the remaining processes of the run, and restores the terminal and the files
that a rehearsal has changed. For example, accelerate's single-process launcher does not stop its child.
"""

from __future__ import annotations

import contextlib
import os
import signal
import termios
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mgpu.process import processes

_GRACE_S = 10.0
_DONE, _NOW = b"done", b"now"  # nothing left to do; kill the run without waiting for the launcher
_RAW, _COOKED = "raw", "cooked"
_LAUNCHERS_S = 40.0  # torchrun gives its ranks 30 s between TERM and KILL (measured torch 2.13)
_POLL_S = 0.05


class Guard:
    """The guard process of one run; restarted if it is killed itself."""

    def __init__(
        self, run_id: str, terminal: Sequence[Any] | None = None, last: Callable[[], object] | None = None
    ) -> None:
        """Start the guard. `terminal`: the attributes to restore on stdin's terminal if it is raw by then.

        `last`: called by the guard once the run has no process any more.
        """
        self._run_id, self._terminal, self._last = run_id, terminal, last
        self._sent: list[bytes] = []
        self._begin()

    def _begin(self) -> None:
        reading, self._writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _watch(self._run_id, reading, self._terminal, self._last)
        os.close(reading)
        for line in self._sent:
            self._write(line)

    def knows(self, what: int | str) -> None:
        """Send the guard the pid of the launcher, or the path of a rank's error file."""
        line = os.fsencode(str(what)) + b"\n"
        self._sent.append(line)
        self._write(line)

    def set_raw(self, yes: bool) -> None:
        """Send the guard whether stdin's terminal is in raw mode for the run; a background job does not own it."""
        self.knows(_RAW if yes else _COOKED)

    def _write(self, line: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._writing, line)

    def look(self) -> bool:
        """Whether the guard is still running; if not, a new one is started."""
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(self.pid, os.WNOHANG)[0] == 0:
                return True
        os.close(self._writing)
        self._begin()
        return False

    def end(self, done: bool) -> None:
        """Stop the guard. `done`: the run is cleaned up; otherwise the guard kills the remaining processes now."""
        self._write(_DONE if done else _NOW)
        os.close(self._writing)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


@contextlib.contextmanager
def guard_run(
    run_id: str, terminal: Sequence[Any] | None = None, last: Callable[[], object] | None = None
) -> Iterator[Guard]:
    """Guard the processes of a run for the duration of the block."""
    guard = Guard(run_id, terminal, last)
    done = False
    try:
        yield guard
        done = True
    finally:
        guard.end(done)  # not done: for example after a second Ctrl-C


def _watch(run_id: str, reading: int, terminal: Sequence[Any] | None, last: Callable[[], object] | None) -> None:
    """Run the guard process; never returns."""
    try:
        os.setsid()  # detach from the terminal's signals
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        keys = os.dup(0) if terminal is not None else None
        for name in os.listdir("/proc/self/fd"):  # do not keep other pipes open
            if int(name) not in (reading, keys):
                with contextlib.suppress(OSError):
                    os.close(int(name))
        received = b""
        while data := os.read(reading, 4096):
            received += data
        if received.endswith(_DONE):
            return
        lines = received.removesuffix(_NOW).splitlines()
        if keys is not None and terminal is not None and _was_raw(lines):
            _restore(keys, terminal)
        if not received.endswith(_NOW):
            _wait_for_launcher(run_id, next((int(line) for line in lines if line.isdigit()), None))
        processes.end_run(run_id, _GRACE_S)
        if last is not None:
            last()
        sweep(os.fsdecode(line) for line in lines if line.startswith(b"/"))
    finally:
        os._exit(0)


def _was_raw(lines: Iterable[bytes]) -> bool:
    """Whether the last message about the terminal was that it is raw."""
    modes = [line for line in lines if line in (_RAW.encode(), _COOKED.encode())]
    return modes[-1:] == [_RAW.encode()]


def _restore(keys: int, terminal: Sequence[Any]) -> None:
    with contextlib.suppress(OSError, termios.error):
        termios.tcsetattr(keys, termios.TCSANOW, list(terminal))


def sweep(error_files: Iterable[str], before: frozenset[Path] | None = None) -> None:
    """Remove the folders that torchrun creates for its ranks' errors and never removes.

    With the files from `before` the run, also the empty folder of a launcher that exited before it started its ranks.
    """
    from mgpu.process import leftover_files
    from mgpu.process.leftover_files import error_folder

    folders = {error_folder(path) for path in error_files if len(Path(path).parents) > 3}
    if folders or before is not None:  # removes only folders with torchrun's name
        leftover_files.sweep(leftover_files.files() if before is None else before, (), folders)


def _wait_for_launcher(run_id: str, launcher: int | None) -> None:
    """Wait while the launcher, signaled by the kernel, stops its ranks."""
    deadline = time.monotonic() + _LAUNCHERS_S
    while launcher is not None and time.monotonic() < deadline:
        if launcher not in {process.pid for process in processes.processes_of_run(run_id)}:
            return
        time.sleep(_POLL_S)


def parent_death_hook() -> Callable[[], None]:
    """Return a function for the child between fork and exec that requests SIGTERM when this process dies."""
    import ctypes

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def request() -> None:
        prctl(1, int(signal.SIGTERM), 0, 0, 0)  # PR_SET_PDEATHSIG, prctl(2)
        if os.getppid() != parent:
            os._exit(1)

    return request
