"""What ends a run when mgpu itself is killed?

The launcher is told by the kernel (supervisor.py: a parent-death signal, or the hangup of its terminal) and ends its
ranks in its own way. A forked child, the guard, holds the other end of a pipe: when mgpu dies, even by SIGKILL, the
pipe ends, and the guard gives the launcher its time, ends what is left of the run, and hands the terminal back as it
was. accelerate's single-process launcher, for one, leaves its child alone.
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
_DONE, _NOW = b"done", b"now"  # nothing is left to do; end it, and wait for nobody
_RAW, _COOKED = "raw", "cooked"
_LAUNCHERS_S = 40.0  # torchrun gives its ranks 30 s between TERM and KILL (measured torch 2.13)
_POLL_S = 0.05


class Guard:
    """The guard of one run; a new one when it was killed itself."""

    def __init__(self, run_id: str, terminal: Sequence[Any] | None = None) -> None:
        """`terminal`: the attributes of the terminal on stdin, to be put back if it `is_raw` then."""
        self._run_id, self._terminal = run_id, terminal
        self._told: list[bytes] = []
        self._begin()

    def _begin(self) -> None:
        reading, self._writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _watch(self._run_id, reading, self._terminal)
        os.close(reading)
        for line in self._told:
            self._write(line)

    def knows(self, what: int | str) -> None:
        """Tell it which process is the launcher, and where torchrun wants a rank's errors."""
        line = os.fsencode(str(what)) + b"\n"
        self._told.append(line)
        self._write(line)

    def is_raw(self, yes: bool) -> None:
        """Tell it whether the terminal on stdin is the run's now, and raw; a background job's is somebody else's."""
        self.knows(_RAW if yes else _COOKED)

    def _write(self, line: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._writing, line)

    def look(self) -> bool:
        """Whether it lives; a new one is there when not."""
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(self.pid, os.WNOHANG)[0] == 0:
                return True
        os.close(self._writing)
        self._begin()
        return False

    def end(self, done: bool) -> None:
        """`done`: there is nothing left for it to do; else it ends what the block was kept from ending."""
        self._write(_DONE if done else _NOW)
        os.close(self._writing)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


@contextlib.contextmanager
def over(run_id: str, terminal: Sequence[Any] | None = None) -> Iterator[Guard]:
    """Watch over the processes of a run for as long as the block lasts."""
    guard = Guard(run_id, terminal)
    done = False
    try:
        yield guard
        done = True
    finally:
        guard.end(done)  # not done: by a second Ctrl-C, say


def _watch(run_id: str, reading: int, terminal: Sequence[Any] | None) -> None:
    """The guard's life; it never returns."""
    try:
        os.setsid()  # out of reach of the terminal's keys
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        keys = os.dup(0) if terminal is not None else None
        for name in os.listdir("/proc/self/fd"):  # hold nobody's pipe open
            if int(name) not in (reading, keys):
                with contextlib.suppress(OSError):
                    os.close(int(name))
        told = b""
        while word := os.read(reading, 4096):
            told += word
        if told.endswith(_DONE):
            return
        lines = told.removesuffix(_NOW).splitlines()
        if keys is not None and terminal is not None and _was_raw(lines):
            _put_back(keys, terminal)
        if not told.endswith(_NOW):
            _let_it_end(run_id, next((int(line) for line in lines if line.isdigit()), None))
        processes.end_run(run_id, _GRACE_S)
        sweep(os.fsdecode(line) for line in lines if line.startswith(b"/"))
    finally:
        os._exit(0)


def _was_raw(lines: Iterable[bytes]) -> bool:
    """By the last that was told of it."""
    told = [line for line in lines if line in (_RAW.encode(), _COOKED.encode())]
    return told[-1:] == [_RAW.encode()]


def _put_back(keys: int, terminal: Sequence[Any]) -> None:
    with contextlib.suppress(OSError, termios.error):
        termios.tcsetattr(keys, termios.TCSANOW, list(terminal))


def sweep(error_files: Iterable[str], before: frozenset[Path] | None = None) -> None:
    """Remove the folders that torchrun makes for its ranks' errors and never removes; with what was there `before` the
    run also the empty one of a launcher that ended before its ranks began."""
    from mgpu.process import leftover_files
    from mgpu.process.leftover_files import error_folder

    folders = {error_folder(path) for path in error_files if len(Path(path).parents) > 3}
    if folders or before is not None:  # those that bear torchrun's name, and no others
        leftover_files.sweep(leftover_files.files() if before is None else before, (), folders)


def _let_it_end(run_id: str, launcher: int | None) -> None:
    """Wait for the launcher, which the kernel has told, while it ends its ranks."""
    deadline = time.monotonic() + _LAUNCHERS_S
    while launcher is not None and time.monotonic() < deadline:
        if launcher not in {process.pid for process in processes.of_run(run_id)}:
            return
        time.sleep(_POLL_S)


def dies_with_us() -> Callable[[], None]:
    """For the child between fork and exec: SIGTERM when its parent, this process, dies."""
    import ctypes

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def ask() -> None:
        prctl(1, int(signal.SIGTERM), 0, 0, 0)  # PR_SET_PDEATHSIG, prctl(2)
        if os.getppid() != parent:
            os._exit(1)

    return ask
