"""Stop a run that was started earlier: `--stop`.

The supervisor is signaled as by Ctrl-C: it stops the launcher, which stops its ranks, and the rest is killed. If a run
has no supervisor any more, its processes are found by the run id in their environment. Without a name, only a run of
the current folder is stopped. Exit code 0 if the run has ended, even before; 1 if something is left.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence

from mgpu import durations, errors
from mgpu.errors import MgpuError
from mgpu.launch import list_runs, registry, run_entry, run_lines
from mgpu.launch.registry import Entry, State
from mgpu.process import processes
from mgpu.report import screen as report_screen
from mgpu.text import counted

# The supervisor gives its launcher 30 s (torchrun waits that long for its ranks) plus 5 s, then reports the end.
_PATIENCE_S = 60.0
_GRACE_S = 5.0
_POLL_S = 0.1


def run(name: str | None, runs: Sequence[Entry]) -> int:
    """Stop one run. Raises MgpuError if it is not clear which one."""
    entry, state = _find_run(name, runs)
    screen = report_screen.Screen.of(sys.stderr)
    if state == "elsewhere":
        raise MgpuError(f"{entry.id} is {registry.whereabouts(entry)} and cannot be stopped from here", errors.UNKNOWN)
    if state == "ended":
        screen.show([[(f"mgpu: {entry.id} has already ended: {_outcome(entry, state, 0)}", "")]])
        return errors.READY
    if state == "running" and _signal_supervisor(entry):
        began = durations.precise_age_text(entry.started)
        head: report_screen.Line = [(f"mgpu: stopping {entry.id}, started {began}", "")]
        screen.show([head, *run_lines.lines(entry, screen, with_folder=True)])
        _wait(entry, _PATIENCE_S)
    left, stuck = processes.end_run(entry.run_id, _GRACE_S)
    entry, state = _wait(entry, _GRACE_S)
    if state == "lost" and left:
        run_entry.end_lost(entry)
    outcome: report_screen.Line = [(f"mgpu: {entry.id} {_outcome(entry, state, len(left) - len(stuck))}", "")]
    screen.show([outcome, *(run_lines.lines(entry, screen, with_folder=True) if state == "lost" and left else [])])
    if stuck:
        pids = " ".join(map(str, stuck))
        screen.show([[(f"mgpu: could not stop these processes: {pids}", "fail")]])
    return errors.NOT_READY if stuck or state == "running" else errors.READY


def _outcome(entry: Entry, state: State, swept: int) -> str:
    if state == "lost":
        rest = f"stopped {counted(swept, 'leftover process', 'leftover processes')}" if swept else "no process is left"
        return f"was lost, its supervisor is no longer running: {rest}"
    word = list_runs.state_word(entry, state)[0]
    return f"{word}{list_runs.ending(entry)}" if state == "ended" else "does not stop"


def _find_run(name: str | None, runs: Sequence[Entry]) -> tuple[Entry, State]:
    """Return the named run, else the only active one of the current folder."""
    if name:
        return registry.refresh(registry.find(name, runs))
    looked = map(registry.refresh, runs)
    active = [(entry, state) for entry, state in looked if state == "running" or _has_leftovers(entry, state)]
    if not active:
        raise MgpuError("no run is active", errors.NOT_READY)
    here = [found for found in active if registry.is_of_this_folder(found[0])]
    if len(here) == 1:
        return here[0]
    named = run_lines.choices("--stop", [entry for entry, _ in here or active])
    if here:
        raise MgpuError(f"several runs of this folder are active, name one:{named}", errors.USAGE)
    if len(active) == 1 and report_screen.can_ask() and _confirm_elsewhere(active[0][0]):
        return active[0]
    others = "one is" if len(active) == 1 else "several are"
    raise MgpuError(
        f"nothing was stopped: no run of this folder is active, {others} in another folder:{named}", errors.USAGE
    )


def _confirm_elsewhere(entry: Entry) -> bool:
    """Ask whether to stop the only active run, which is of another folder."""
    from mgpu.prompts import prompts
    from mgpu.prompts.question import Choice, Question

    screen = report_screen.Screen.of()
    head = screen.paragraph(f"mgpu: no run of this folder is active. {entry.id} is in another folder:")
    screen.show([*head, *run_lines.lines(entry, screen)])
    question = Question(
        "stop_elsewhere",
        "Stop it?",
        "It is not of the current folder.",
        default="no",
        choices=(Choice("no", "No"), Choice("yes", "Yes, stop it")),
        saves=False,
    )
    return prompts.ask(question) == "yes"


def _has_leftovers(entry: Entry, state: State) -> bool:
    return state == "lost" and bool(processes.processes_of_run(entry.run_id))


def _signal_supervisor(entry: Entry) -> bool:
    """Send SIGTERM to the supervisor, never to another process with the same pid; False if it exited."""
    handle = None
    try:
        if hasattr(os, "pidfd_open"):  # Python was built for Linux 5.3 or later
            handle = os.pidfd_open(entry.pid)
    except ProcessLookupError:
        return False
    except OSError:  # the running kernel is older
        pass
    try:
        if not registry.is_supervised(entry):
            return False
        for number in (signal.SIGTERM, signal.SIGCONT):  # so that one suspended with Ctrl-Z handles it too
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
        entry, state = registry.refresh(entry)
        if state != "running" or time.monotonic() > deadline:
            return entry, state
        time.sleep(_POLL_S)
