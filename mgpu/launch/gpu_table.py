"""Show the GPUs of a run live: `mgpu launch --watch [RUN]`, a table that is redrawn in place.

It only reads what the run's supervisor stores. q and Ctrl-C leave the table; the run continues.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mgpu import durations, errors, quantities
from mgpu.command_line import shell
from mgpu.launch import gpu_readings_file, list_runs, pace_report, registry, run_lines
from mgpu.launch.gpu_readings_file import Now, Stored
from mgpu.launch.registry import Entry, State
from mgpu.process.terminal import is_foreground
from mgpu.report import screen as report_screen
from mgpu.report.live import Live

_EVERY_S = 1.0
_BAR = 20  # characters of a full bar
_LEAVES = b"qQ\x1b\x04"
_GIB = 1 << 30


def watch(entry: Entry) -> int:
    """Show the run until it ends and return its exit code (3 if unknown); without a terminal show it once. q: 0."""
    screen = report_screen.Screen.of()
    entry, state = registry.refresh(entry)
    if state == "elsewhere":
        where = registry.whereabouts(entry)
        if gpu_readings_file.load_readings(Path(entry.folder)) is None:
            raise errors.MgpuError(f"{entry.id} is {where} and cannot be queried from here", errors.UNKNOWN)
    if not screen.live or state in ("ended", "lost"):
        screen.show([*table(entry, state, screen), *_end(entry, state, screen)])
        return errors.READY if state in ("running", "elsewhere") else entry.known_exit_code
    try:
        entry, state = _until_the_end(entry, screen)
    except KeyboardInterrupt:
        _show_still_running(entry, screen)
        return errors.INTERRUPTED
    if state not in ("ended", "lost"):
        _show_still_running(entry, screen)
        return errors.READY
    screen.show(_end(entry, state, screen))
    return entry.known_exit_code


def _until_the_end(entry: Entry, screen: report_screen.Screen) -> tuple[Entry, State]:
    """Keep redrawing the table until the run has ended or the user leaves."""
    live = Live(screen)
    try:
        with _keys() as pressed:
            while True:
                entry, state = registry.refresh(entry)
                over = state in ("ended", "lost")
                now = report_screen.Screen.of(screen.stream)  # the window may have been resized
                lines = table(entry, state, now)
                live.paint(_fitting(lines if over else [*lines, [], *_footer(now)]))
                if over or pressed(_EVERY_S):
                    return entry, state
    finally:
        live.end()


def _show_still_running(entry: Entry, screen: report_screen.Screen) -> None:
    again, stop = shell("mgpu launch --attach {:id}", entry.id), shell("mgpu launch --stop {:id}", entry.id)
    text = f"{entry.id} is still running.  {again}   {stop}"
    screen.show([[(line, "")] for line in report_screen.wrapped(text, screen.width)])


def _end(entry: Entry, state: State, screen: report_screen.Screen) -> list[report_screen.Line]:
    """Return the stored report of how a run ended."""
    from mgpu.launch import report as launch_report

    return launch_report.load_report(Path(entry.folder), screen) or [] if state == "ended" else []


def _footer(screen: report_screen.Screen) -> list[report_screen.Line]:
    return report_screen.unstyled(report_screen.wrapped("q or Ctrl-C: leave (the run continues)", screen.width))


def _fitting(lines: list[report_screen.Line]) -> list[report_screen.Line]:
    """Return only the upper lines if the window is too small for all."""
    return lines[: max(1, shutil.get_terminal_size((80, 24)).lines - 1)]


# The table


def table(entry: Entry, state: State, screen: report_screen.Screen) -> list[report_screen.Line]:
    """Return a line on the run, a row for each GPU (or rank, if no GPU is monitored), and the last line of its log."""
    folder = Path(entry.folder)
    found = gpu_readings_file.load_readings(folder)
    word, style = list_runs.state_word(entry, state)
    how = f" for {_duration(entry)}" if state == "running" else list_runs.ending(entry) if state == "ended" else ""
    lines: list[report_screen.Line] = [[(f"{_cut(entry.id, screen.width)}  ", "bold")]]
    if len(entry.id) + 2 + len(word + how) > screen.width:
        lines.append([])
    lines[-1] += [(_cut(word, screen.width), style), (_cut(how, max(1, screen.width - len(word))), "")]
    # A path may be longer than a line, and a line that the terminal wraps is not redrawn in place.
    of_run = ("".join(text for text, _ in line) for line in run_lines.lines(entry, screen))
    lines += report_screen.unstyled(_cut(text, screen.width) for text in of_run)
    ranks = {row["rank"]: row for row in list_runs.ranks(entry)} if state == "running" else {}
    if found is not None and found.now:
        lines += _gpus(found, ranks, screen, state == "running")
    else:
        lines += _ranks(ranks, screen)
    pace = pace_report.read(folder) if state == "running" else None
    if pace is not None and pace_report.is_uneven(pace):
        lines += pace_report.table(pace_report.entry(pace), screen)
    for text in _caveats(entry, found, state):
        lines += [[(line, "warn")] for line in report_screen.wrapped(text, screen.width)]
    if found is not None and found.said:
        for text in found.said[-2:]:
            lines += report_screen.unstyled(report_screen.wrapped(f"mgpu: {text}", screen.width))
    if last := list_runs.last_line(folder):
        lines.append([(_cut(f"log: {last}", screen.width), "")])
    return lines


def _duration(entry: Entry) -> str:
    seconds = durations.seconds_between(entry.started, durations.now())
    return "?" if seconds is None else quantities.duration_text(seconds)


def _caveats(entry: Entry, found: Stored | None, state: State) -> list[str]:
    """Return why the readings are outdated or missing."""
    if state != "running":
        return []
    if found is None:
        seconds = durations.seconds_between(entry.started, durations.now()) or 0
        return [] if seconds < gpu_readings_file.OLD_S else ["no GPU of this run is monitored"]
    if found.gap is not None:
        return [f"GPU monitoring stopped: {found.gap}"]
    age = gpu_readings_file.age_s(found)
    return [f"the last reading is {quantities.duration_text(age)} old"] if age > gpu_readings_file.OLD_S else []


def _gpus(
    found: Stored, ranks: Mapping[int, Any], screen: report_screen.Screen, live: bool
) -> list[report_screen.Line]:
    """Return the table of GPUs; a narrow screen omits the load bar, then the power, then the pids."""
    of_pid = {row["pid"]: rank for rank, row in ranks.items()}
    columns: dict[str, list[str]] = {
        "GPU": [str(gpu.index) for gpu in found.now],
        "rank": [_ranks_on_gpu(gpu, of_pid) for gpu in found.now],
        "pid": [_pid(gpu, ranks) for gpu in found.now],
        "memory GiB": [_memory(gpu) for gpu in found.now],
        "busy": ["?" if gpu.busy_percent is None else f"{gpu.busy_percent} %" for gpu in found.now],
        "W": ["" if gpu.power_w is None else f"{gpu.power_w:.0f}" for gpu in found.now],
    }
    columns["load"] = [_bar(gpu.busy_percent, screen) for gpu in found.now]
    if not live:
        columns.pop("pid")
    for name in ("load", "W", "pid"):
        if _width(columns) > screen.width or not any(columns.get(name, ())):
            columns.pop(name, None)
    return _rows(columns, screen)


def _ranks(ranks: Mapping[int, Any], screen: report_screen.Screen) -> list[report_screen.Line]:
    if not ranks:
        return []
    rows = sorted(ranks.items())
    return _rows(
        {
            "rank": [str(rank) for rank, _ in rows],
            "pid": [str(row["pid"]) for _, row in rows],
            "state": [str(row["state"]) for _, row in rows],
        },
        screen,
    )


def _width(columns: Mapping[str, Sequence[str]]) -> int:
    return sum(max(len(name), *map(len, cells)) for name, cells in columns.items()) + 2 * (len(columns) - 1)


def _rows(columns: Mapping[str, Sequence[str]], screen: report_screen.Screen) -> list[report_screen.Line]:
    width = {name: max(len(name), *map(len, cells)) for name, cells in columns.items()}
    head = "  ".join(f"{name:<{width[name]}}" for name in columns)
    lines: list[report_screen.Line] = [[(_cut(head, screen.width), "bold")]]
    for place in range(len(next(iter(columns.values())))):
        cells = [f"{cells[place]:<{width[name]}}" for name, cells in columns.items()]
        lines.append([(_cut("  ".join(cells), screen.width), "")])
    return lines


def _ranks_on_gpu(gpu: Now, of_pid: Mapping[int, int]) -> str:
    """Return the ranks on a GPU; if not reported, the rank assigned to it."""
    if gpu.pids is not None:
        there = sorted({of_pid[pid] for pid in gpu.pids if pid in of_pid})
        if there:
            return ",".join(map(str, there))
        if not gpu.pids and of_pid:
            return "none"
    return "?" if gpu.rank is None else str(gpu.rank)


def _pid(gpu: Now, ranks: Mapping[int, Any]) -> str:
    if gpu.pids:
        return f"{gpu.pids[0]}{f' +{len(gpu.pids) - 1}' if len(gpu.pids) > 1 else ''}"
    own = ranks.get(gpu.rank) if gpu.pids is None and gpu.rank is not None else None
    return str(own["pid"]) if own else "-"


def _memory(gpu: Now) -> str:
    if gpu.used_bytes is None:
        return "?"
    total = f" / {gpu.total_bytes / _GIB:.0f}" if gpu.total_bytes else ""
    return f"{gpu.used_bytes / _GIB:.1f}{total}"


def _bar(percent: int | None, screen: report_screen.Screen) -> str:
    full, empty = ("█", "░") if screen.glyphs else ("#", ".")
    number = round(min(percent or 0, 100) * _BAR / 100)
    return full * number + empty * (_BAR - number) if percent is not None else ""


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(1, width - 3)] + "..."


# The keys


@contextlib.contextmanager
def _keys() -> Iterator[Any]:
    """Provide a function that waits for a number of seconds and returns whether the user wants to leave."""
    if not report_screen.is_terminal(sys.stdin) or not is_foreground():
        yield _wait
        return
    import termios
    import tty

    before = termios.tcgetattr(0)
    tty.setcbreak(0, termios.TCSANOW)
    try:
        yield _wait_for_key
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _wait_for_key(seconds: float) -> bool:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([0], [], [], left)[0]:
            keys = os.read(0, 64)
            if not keys or set(keys) & set(_LEAVES):
                return True
    return False
