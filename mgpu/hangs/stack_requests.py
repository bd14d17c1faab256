"""How is a process made to write its stacks with a signal, and not harmed by it?

Faulthandler walks the frames of a thread in the handler itself. If that thread, or another one, runs Python code at
this moment, the frames are not whole: one signal in 80 ended a busy process of three threads with SIGSEGV under Python
3.13.0, one in 100 under 3.12.1, one in 1,200 under 3.11.7 (measured 2026-12). So:

* a main thread that sleeps, in Python or in C code, writes its own frames in the handler, which do not change;
* one that runs gets a signal that Python handles between two instructions. If it has run for some time without that, it
  is in C code, so its frames do not change either;
* of one that the kernel does not run, the recorder's thread writes all stacks, which Python's lock protects, or no one
  runs Python code because the main thread has that lock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from mgpu.process import processes
from mgpu.recorder.inject._mgpu_recorder import SIGNAL, SIGNAL_FOR_ALL, SIGNAL_TO_PYTHON, THREAD

_UNINTERRUPTIBLE = "in uninterruptible sleep"  # a state of `processes.state_of`
_IN_C_S = 0.2  # of CPU time without an instruction of Python: at the latest every 5 ms it looks for signals
_HANDLED = (SIGNAL, SIGNAL_FOR_ALL, SIGNAL_TO_PYTHON)


class StackRequests:
    """The processes that were asked while they ran Python code, as it seemed."""

    def __init__(self) -> None:
        self._running: dict[int, float] = {}  # process -> seconds that its main thread had run before

    def send(self, pid: int) -> None:
        """Ask a process, if it has handlers."""
        self._running.pop(pid, None)  # of an earlier request
        if not listens(pid):
            return
        state = processes.state_of(pid)
        if state == "running":
            self._running[pid] = processes.thread_s(pid, pid)
            processes.signal_thread(pid, pid, SIGNAL_TO_PYTHON)
        elif state == _UNINTERRUPTIBLE and (thread := _recorders_thread(pid)):
            processes.signal_thread(pid, thread, SIGNAL_FOR_ALL)
        else:
            processes.signal_thread(pid, pid, SIGNAL)

    def insist(self, silent: Iterable[int]) -> bool:
        """Ask those that have not answered, and do not run Python code by now; return whether there was one."""
        stuck = [pid for pid in silent if pid in self._running and self._is_in_c(pid)]
        for pid in stuck:
            del self._running[pid]
            if listens(pid):
                processes.signal_thread(pid, pid, SIGNAL)
        return bool(stuck)

    def _is_in_c(self, pid: int) -> bool:
        state = processes.state_of(pid)
        return state == "sleeping" or processes.thread_s(pid, pid) - self._running[pid] > _IN_C_S


def listens(pid: int) -> bool:
    """Whether a process has handlers for the signals, which would end it otherwise."""
    with contextlib.suppress(ValueError):
        caught = int(processes.status_of(pid, "SigCgt"), 16)
        return all(caught >> (number - 1) & 1 for number in _HANDLED)
    return False


def _recorders_thread(pid: int) -> int | None:
    return next((tid for tid in processes.threads_of(pid) if processes.thread_name(pid, tid) == THREAD), None)
