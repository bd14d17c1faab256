"""Handle the options for a run started earlier: `--attach`, `--status`, `--report`, `--why`, `--stop`, `--watch`.

`--watch` is one of them without a script. Only `--report` probes the machine: the others also work where nothing could
be launched.
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
from mgpu.hangs import hang_files
from mgpu.launch import hang_report, registry, run_lines
from mgpu.launch.registry import Entry
from mgpu.launch.report import PROGRAM_ENDS
from mgpu.launch.request import Request, flag_of
from mgpu.process.log_follower import Output
from mgpu.report import screen as report_screen

_POLL_S = 0.2
_LOOK_S = 2.0  # between two looks at what is known of a hang
# Undo what a program that was still drawing may have set: normal style, visible cursor.
_RESET = b"\x1b[0m\x1b[?25h"
_OPTIONS = ("attach", "status", "report", "why", "stop", "watch")


def run(request: Request) -> int:
    """Run the requested command and return its exit code. Raises MgpuError."""
    check(request)
    runs, troubles = registry.entries()
    name = request.target[0] if request.target else None
    if request.status:
        from mgpu.launch import show_runs

        return show_runs.run(request, name, runs, troubles)
    if request.report:
        from mgpu.launch import run_case

        return run_case.run(request, name, runs)
    if request.why:
        from mgpu.launch import why

        return why.run(request, name, runs)
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
    """Raise MgpuError (2) for an option that means nothing for a run started earlier."""
    given = [f"--{name}" for name in _OPTIONS if getattr(request, name)]
    if len(given) > 1:
        raise MgpuError(f"{' and '.join(given)}: choose one", errors.USAGE)
    (option,) = given
    free = {"target", "yes", *_OPTIONS, *(["json_result"] if request.status or request.why or request.report else [])}
    for field in dataclasses.fields(Request):
        if field.name not in free and getattr(request, field.name) != field.default:
            flag = flag_of(field.name)
            raise MgpuError(f"{option} is for a run that was started earlier: omit {flag}", errors.USAGE)
    if len(request.target) > 1 or any(word == "" or word.startswith("-") for word in request.target):
        raise MgpuError(f"{option} accepts at most one run:  mgpu launch {option} [RUN]", errors.USAGE)


# --attach


def attach(entry: Entry) -> int:
    """Show a run's output until it ends, then the report; return the training's own exit code (3 if unknown).

    Ctrl-C detaches without stopping the run: 130.
    """
    screen = report_screen.Screen.of(sys.stderr)
    output = Output(Path(entry.folder))
    entry, state = registry.refresh(entry)
    if (later := registry.successor(entry)) and state != "running":
        text = f"mgpu: {entry.id}: its folder now has the log of a later run, {later.id}"
        screen.show([[(text, "warn")], *run_lines.lines(entry, screen), *_known_end(entry)])
        return entry.known_exit_code
    hangs = _KnownHang(entry)
    _introduce(entry, state, output, screen, hangs)
    if on_terminal := report_screen.is_terminal(sys.stdout):
        output.skip_to_tail()
    try:
        entry = _until_the_end(entry, output, hangs)
    except KeyboardInterrupt:
        _settle(output, on_terminal)
        entry, state = registry.refresh(entry)
        again = shell("mgpu launch --attach {:id}", entry.id)
        text = "has ended" if state in ("ended", "lost") else f"is still running.  {again}"
        screen.show([[], [(f"mgpu: detached; {entry.id} {text}", "")]])
        return errors.INTERRUPTED
    _settle(output, on_terminal)
    screen.show([[(screen.rule(PROGRAM_ENDS), "")], *_end(entry, screen)])
    return entry.known_exit_code


def _introduce(
    entry: Entry, state: registry.State, output: Output, screen: report_screen.Screen, hangs: _KnownHang
) -> None:
    began = f"{entry.id}, started {durations.precise_age_text(entry.started)}"
    of_run = run_lines.lines(entry, screen)
    if state == "elsewhere":
        where = registry.whereabouts(entry)
        if not output.is_there:
            raise MgpuError(f"{entry.id} is {where} and cannot be queried from here", errors.UNKNOWN)
        lines: list[report_screen.Line] = [
            [(f"mgpu: {began} {where}: cannot determine from here whether it is still running", "warn")]
        ]
    elif state == "running":
        lines = [[(f"mgpu: {began}; Ctrl-C leaves it running", "")]]
    else:
        lines = [[(f"mgpu: {began}", "")]]
        if not output.is_there:
            lines.append([(f"mgpu: its log no longer exists: {entry.folder}", "warn")])
    hang = hangs.news(screen) if state == "running" else []
    screen.show([*lines, *of_run, *hang, [(screen.rule("your program's output"), "")]])


class _KnownHang:
    """What the run's supervisor has found while the run makes no progress."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._shown: str | None = None
        self._next = 0.0

    def news(self, screen: report_screen.Screen) -> list[report_screen.Line]:
        """Return lines if this has changed since the last call; at most every 2 s."""
        if (now := time.monotonic()) < self._next:
            return []
        self._next = now + _LOOK_S
        hang = hang_files.read(Path(self._entry.folder))
        if hang is None:
            was_shown, self._shown = self._shown, None
            return [[("mgpu: the run makes progress again", "")]] if was_shown else []
        text = hang_report.one_line(hang)
        cause = text.partition(": ")[2]  # the seconds before it change all the time
        if not text or cause == self._shown:
            return []
        self._shown = cause
        why = shell("mgpu launch --why {:id}", self._entry.id)
        return screen.paragraph(f"mgpu: {text}  {why}", style="warn")


def _until_the_end(entry: Entry, output: Output, hangs: _KnownHang) -> Entry:
    """Copy the run's output to stdout; return the entry once the run has ended and all output was copied."""
    screen = report_screen.Screen.of(sys.stderr)
    while True:
        # Read the state first: all output is written before the end is recorded.
        entry, state = registry.refresh(entry)
        while data := output.read():
            _write(data)
        if state in ("ended", "lost"):
            return entry
        if news := hangs.news(screen):
            screen.show(news if output.at_line_start else [[], *news])
        _pause()


def _pause() -> None:
    """Wait briefly. Raises BrokenPipeError if our reader exited, which a write might not reveal for hours."""
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
    """Reset the terminal, so that mgpu's next message starts on a new line."""
    if on_terminal:
        _write(_RESET if output.at_line_start else _RESET + b"\r\n")


def _end(entry: Entry, screen: report_screen.Screen) -> list[report_screen.Line]:
    """Return the stored report of the run's end; without one, what the entry contains."""
    if entry.ended is not None:
        from mgpu.launch import report as launch_report

        if stored := launch_report.load_report(Path(entry.folder), screen):
            return stored
    return _known_end(entry)


def _known_end(entry: Entry) -> list[report_screen.Line]:
    from mgpu.launch import list_runs

    state = registry.state(entry)
    word, style = list_runs.state_word(entry, state)
    lines: list[report_screen.Line] = [[(f"mgpu: {word}", style), (list_runs.ending(entry), "")]]
    if left := list_runs.leftover_text(entry, state):
        lines.append([(left, "warn")])
    return lines
