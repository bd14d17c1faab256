"""What is asked of a run that was started before? `--attach`, `--status`, `--stop`, and `--watch` without a script.

None of them looks at the machine: they answer also where nothing could be launched.
"""

from __future__ import annotations

import dataclasses
import os
import select
import sys
import time
from pathlib import Path

from mgpu import durations, errors
from mgpu.command_line import shell
from mgpu.errors import MgpuError
from mgpu.launch import registry
from mgpu.launch.registry import Entry
from mgpu.launch.request import Request
from mgpu.process.log_follower import Output
from mgpu.report import screen as report_screen

_POLL_S = 0.2
# What a program that is still drawing may have switched: the style back to normal, the cursor shown.
_AS_IT_WAS = b"\x1b[0m\x1b[?25h"
_ASKED = ("attach", "status", "stop", "watch")
_FLAGS = {"exec_": "--exec", "node": "--node-rank", "timeout_s": "--timeout", "triage": "--no-triage"}


def run(request: Request) -> int:
    """Answer; the exit code is said with each. Raises MgpuError."""
    check(request)
    runs, troubles = registry.entries()
    name = request.target[0] if request.target else None
    if request.status:
        from mgpu.launch import list_runs

        return list_runs.run(request, name, runs, troubles)
    if request.stop:
        from mgpu.launch import stop

        return stop.run(name, runs)
    if not runs and troubles:
        raise MgpuError("\n".join(troubles))
    entry = registry.find(name, runs)
    if request.watch:
        from mgpu.launch import gpu_table

        return gpu_table.watch(entry)
    return attach(entry)


def check(request: Request) -> None:
    """Raises MgpuError (2) where something stands beside the option that means nothing to it."""
    asked = [f"--{name}" for name in _ASKED if getattr(request, name)]
    if len(asked) > 1:
        raise MgpuError(f"{' and '.join(asked)}: choose one", errors.USAGE)
    (option,) = asked
    free = {"target", "yes", *_ASKED, *(["json_result"] if request.status else [])}
    for field in dataclasses.fields(Request):
        if field.name not in free and getattr(request, field.name) != field.default:
            flag = _FLAGS.get(field.name, f"--{field.name.replace('_', '-')}")
            raise MgpuError(f"{option} is about a run that was started before: leave out {flag}", errors.USAGE)
    if len(request.target) > 1 or any(word == "" or word.startswith("-") for word in request.target):
        raise MgpuError(f"{option} takes the name of one run, or nothing:  mgpu launch {option} [RUN]", errors.USAGE)


# --attach


def attach(entry: Entry) -> int:
    """Show what a run writes until it ends, then its end; gives the training's own exit code (3 when nobody knows it).
    Ctrl-C leaves the run as it is: 130."""
    screen = report_screen.Screen.of(sys.stderr)
    output = Output(Path(entry.folder))
    entry, state = registry.look(entry)
    if (later := registry.successor(entry)) and state != "running":
        words = f"mgpu: {entry.id}: its folder has the log of a later run by now, {later.id}"
        screen.show([[(words, "warn")], *_known(entry)])
        return entry.known_exit_code
    _introduce(entry, state, output, screen)
    if on_terminal := report_screen.is_terminal(sys.stdout):
        output.skip_to_tail()
    try:
        entry = _until_the_end(entry, output)
    except KeyboardInterrupt:
        _settle(output, on_terminal)
        entry, state = registry.look(entry)
        words = (
            "has ended" if state in ("ended", "lost") else f"goes on.  {shell('mgpu launch --attach {:id}', entry.id)}"
        )
        screen.show([[], [(f"mgpu: detached; {entry.id} {words}", "")]])
        return errors.INTERRUPTED
    _settle(output, on_terminal)
    screen.show([[(screen.rule("end of your program"), "")], *_end(entry, screen)])
    return entry.known_exit_code


def _introduce(entry: Entry, state: registry.State, output: Output, screen: report_screen.Screen) -> None:
    began = f"{entry.id}, started {durations.since(entry.started)}"
    if state == "elsewhere":
        where = registry.whereabouts(entry)
        if not output.is_there:
            raise MgpuError(f"{entry.id} is {where}: cannot be asked from here", errors.UNKNOWN)
        lines: list[report_screen.Line] = [
            [(f"mgpu: {began} {where}: whether it still runs cannot be told from here", "warn")]
        ]
    elif state == "running":
        lines = [[(f"mgpu: {began}; Ctrl-C leaves it running", "")]]
    else:
        lines = [[(f"mgpu: {began}", "")]]
        if not output.is_there:
            lines.append([(f"mgpu: its log is not there any more: {entry.folder}", "warn")])
    screen.show([*lines, [(screen.rule("your program's output"), "")]])


def _until_the_end(entry: Entry, output: Output) -> Entry:
    """Pass on what is written; the entry, when the run is over and all of it was passed on."""
    while True:
        # The state comes first: what was written before the end is there once the end is told.
        entry, state = registry.look(entry)
        while data := output.read():
            _write(data)
        if state in ("ended", "lost"):
            return entry
        _pause()


def _pause() -> None:
    """Wait a moment. Raises BrokenPipeError when our reader is gone: nothing may come for hours that would show it."""
    if sys.stdout is None:
        time.sleep(_POLL_S)
        return
    reader = select.poll()
    reader.register(1, 0)
    if reader.poll(1000 * _POLL_S):
        raise BrokenPipeError


def _write(data: bytes) -> None:
    view = memoryview(data if sys.stdout is not None else b"")
    while view:
        view = view[os.write(1, view) :]


def _settle(output: Output, on_terminal: bool) -> None:
    """What mgpu says next begins a line of its own."""
    if on_terminal:
        _write(_AS_IT_WAS if output.at_line_start else _AS_IT_WAS + b"\r\n")


def _end(entry: Entry, screen: report_screen.Screen) -> list[report_screen.Line]:
    """How it ended, in the words of where it was started; of a run that could not tell them, what is known."""
    if entry.ended is not None:
        from mgpu.launch import report as launch_report

        if told := launch_report.stored(Path(entry.folder), screen):
            return told
    return _known(entry)


def _known(entry: Entry) -> list[report_screen.Line]:
    from mgpu.launch import list_runs

    state = registry.state(entry)
    word, style = list_runs.word(entry, state)
    lines: list[report_screen.Line] = [[(f"mgpu: {word}", style), (list_runs.ending(entry), "")]]
    if left := list_runs.left_of(entry, state):
        lines.append([(left, "warn")])
    return lines
