"""What ends a run when mgpu itself is killed?

A forked child that holds the other end of a pipe: when mgpu dies, even by SIGKILL, the pipe ends, and the guard ends
every process of the run. The launchers do not do that themselves: accelerate's single-process one leaves its child.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

from mgpu.launch import processes

_GRACE_S = 10.0
_DONE = b"d"


@contextlib.contextmanager
def over(run_id: str) -> Iterator[None]:
    """Watch over the processes of a run for as long as the block lasts."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _watch(run_id, reading, writing)
    os.close(reading)
    done = False
    try:
        yield
        done = True
    finally:
        if done:  # else the guard ends what the block was kept from ending: by a second Ctrl-C, say
            with contextlib.suppress(OSError):
                os.write(writing, _DONE)
        os.close(writing)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _watch(run_id: str, reading: int, writing: int) -> None:
    """The guard's life; it never returns."""
    try:
        os.setsid()  # out of reach of the terminal's keys
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        os.close(writing)
        for stream in (0, 1, 2):  # hold nobody's pipe or terminal open
            with contextlib.suppress(OSError):
                os.close(stream)
        if os.read(reading, 1) != _DONE:
            processes.end_run(run_id, _GRACE_S)
    finally:
        os._exit(0)
