"""How is a run ended that was started before? `--stop`.

Its supervisor is asked, as Ctrl-C would ask it: it ends the launcher, the launcher its ranks, and what is left is
killed. Where nobody watches over a run any more, its processes are found by the mark they carry. 0 when the run is
over, also when it was before; 1 when something is left.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence

from mgpu import durations, errors
from mgpu.command_line import below, remark, shell
from mgpu.errors import MgpuError
from mgpu.launch import list_runs, registry, run_entry
from mgpu.launch.registry import Entry, State
from mgpu.process import processes
from mgpu.report import screen as report_screen
from mgpu.text import counted

# The supervisor gives its launcher 30 s (torchrun waits that long for its ranks) and 5 more, then tells the end.
_PATIENCE_S = 60.0
_GRACE_S = 5.0
_POLL_S = 0.1


def run(name: str | None, runs: Sequence[Entry]) -> int:
    """End one run. Raises MgpuError where it is not clear which."""
    entry, state = _which(name, runs)
    screen = report_screen.Screen.of(sys.stderr)
    if state == "elsewhere":
        raise MgpuError(f"{entry.id} is {registry.whereabouts(entry)}: cannot be ended from here", errors.UNKNOWN)
    if state == "ended":
        screen.show([[(f"mgpu: {entry.id} is over: {_told(entry, state, 0)}", "")]])
        return errors.READY
    if state == "running" and _ask(entry):
        screen.show([[(f"mgpu: ending {entry.id}, started {durations.since(entry.started)}", "")]])
        _wait(entry, _PATIENCE_S)
    left, stuck = processes.end_run(entry.run_id, _GRACE_S)
    entry, state = _wait(entry, _GRACE_S)
    if state == "lost" and left:
        run_entry.end_lost(entry)
    screen.show([[(f"mgpu: {entry.id} {_told(entry, state, len(left) - len(stuck))}", "")]])
    if stuck:
        pids = " ".join(map(str, stuck))
        screen.show([[(f"mgpu: processes that cannot be ended: {pids}", "fail")]])
    return errors.NOT_READY if stuck or state == "running" else errors.READY


def _told(entry: Entry, state: State, swept: int) -> str:
    if state == "lost":
        rest = f"{counted(swept, 'process', 'processes')} of it ended now" if swept else "nothing of it is left"
        return f"was lost, nobody watched over it any more: {rest}"
    return f"{list_runs.word(entry, state)[0]}{list_runs.ending(entry)}" if state == "ended" else "does not end"


def _which(name: str | None, runs: Sequence[Entry]) -> tuple[Entry, State]:
    """The run that is meant: the named one, else the only one that runs."""
    if name:
        return registry.look(registry.find(name, runs))
    going = [(entry, state) for entry, state in map(registry.look, runs) if state == "running" or _left(entry, state)]
    if not going:
        raise MgpuError("no run is going on here", errors.NOT_READY)
    if len(going) > 1:
        names = [below(shell("mgpu launch --stop {:id}", entry.id), remark(entry.target)) for entry, _ in going]
        raise MgpuError("".join(["several runs are going on: name one", *names]), errors.USAGE)
    return going[0]


def _left(entry: Entry, state: State) -> bool:
    return state == "lost" and bool(processes.of_run(entry.run_id))


def _ask(entry: Entry) -> bool:
    """TERM to the supervisor, and to no process that has its pid by chance; False when it is gone."""
    handle = None
    try:
        if hasattr(os, "pidfd_open"):  # built for a kernel from 5.3 on
            handle = os.pidfd_open(entry.pid)
    except ProcessLookupError:
        return False
    except OSError:  # run under one from before
        pass
    try:
        if not registry.supervised(entry):
            return False
        for number in (signal.SIGTERM, signal.SIGCONT):  # one that was suspended by Ctrl-Z is to hear it, too
            if handle is None:
                os.kill(entry.pid, number)
            else:
                signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        raise MgpuError(f"{entry.id} belongs to another user", errors.NOT_READY) from None
    finally:
        if handle is not None:
            with contextlib.suppress(OSError):
                os.close(handle)
    return True


def _wait(entry: Entry, limit_s: float) -> tuple[Entry, State]:
    deadline = time.monotonic() + limit_s
    while True:
        entry, state = registry.look(entry)
        if state != "running" or time.monotonic() > deadline:
            return entry, state
        time.sleep(_POLL_S)
