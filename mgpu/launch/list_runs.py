"""Which runs are there, and how is one of them? `--status`.

0; with a run named: 0 while it runs and when it ended well, 1 when it failed or was lost, 3 when that cannot be told.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mgpu import durations, errors, file_reading, files, messages
from mgpu.command_line import shell
from mgpu.launch import gpu_readings_file, registry
from mgpu.launch.registry import Entry, State
from mgpu.launch.request import Request
from mgpu.launchers.argv import by_accelerate
from mgpu.process import processes, run_log
from mgpu.report import document as documents
from mgpu.report import screen as report_screen
from mgpu.text import counted
from mgpu.version import __version__

SCHEMA = "mgpu.runs/1.0"
_SHOWN_ENDED = 10
_LAST_BYTES = 8192


def run(request: Request, name: str | None, runs: Sequence[Entry], troubles: Sequence[str]) -> int:
    """Show the runs, or one; on stdout, or as JSON where --json-result says. Raises MgpuError."""
    named = registry.find(name, runs) if name else None
    looked = [registry.look(entry) for entry in ([named] if named else runs)]
    if request.json_result:
        _write_json(request.json_result, looked, troubles)
    if request.json_result != "-":
        screen = report_screen.Screen.of()
        screen.show(_one(*looked[0], screen) if named else _table(looked, troubles, screen))
    return _code(*looked[0]) if named else errors.READY


def _code(entry: Entry, state: State) -> int:
    if state == "elsewhere":
        return errors.UNKNOWN
    return errors.READY if state == "running" or (state == "ended" and entry.exit_code == 0) else errors.NOT_READY


# In words


def word(entry: Entry, state: State) -> tuple[str, report_screen.Style]:
    """One word for what a run does or how it ended."""
    if state == "running":
        return ("suspended", "warn") if processes.state_of(entry.pid) == "stopped" else ("running", "")
    if state == "lost":
        return "lost", "fail"
    if state == "elsewhere":
        return "elsewhere", "warn"
    if entry.timed_out:
        return "timed out", "fail"
    if entry.exit_code == 0:
        return "finished", "ok"
    return ("stopped", "warn") if entry.signalled else ("FAILED", "fail")


def ending(entry: Entry) -> str:
    """What follows the word: how long it took, with which exit code."""
    if entry.ended is None:
        return (
            ": whatever watched over it was killed, or the machine was restarted; how the training ended is not known"
        )
    seconds = durations.seconds_between(entry.started, entry.ended)
    after = "" if seconds is None else f" after {durations.lasted(seconds)}"
    code = "how is not known" if entry.exit_code is None else f"exit {entry.exit_code}"
    by = f" by {entry.signalled}" if entry.signalled and entry.exit_code != 0 and not entry.timed_out else ""
    return f"{by}{after}, {code}"


def _table(
    looked: Sequence[tuple[Entry, State]], troubles: Sequence[str], screen: report_screen.Screen
) -> list[report_screen.Line]:
    first = [pair for pair in looked if pair[1] in ("running", "elsewhere")]
    ended = [pair for pair in looked if pair[1] not in ("running", "elsewhere")]
    rows = [_row(*pair) for pair in [*first, *ended[:_SHOWN_ENDED]]]
    lines: list[report_screen.Line] = []
    if rows:
        heads = ("RUN", "STATE", "SINCE", "RANKS", "EXIT", "SCRIPT")
        widths = [max(len(head), *(len(row[0][i]) for row in rows)) for i, head in enumerate(heads)]
        lines.append([(_cut("  ".join(map(str.ljust, heads, widths)), screen.width), "bold")])
        for cells, style in rows:
            padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
            rest = screen.width - len(padded[0]) - len(padded[1]) - 4
            lines.append([(f"{padded[0]}  ", ""), (padded[1], style), ("  " + _cut("  ".join(padded[2:]), rest), "")])
    else:
        lines.append([("No run is known here.  mgpu launch SCRIPT  starts one.", "")])
    if len(ended) > _SHOWN_ENDED:
        more = len(ended) - _SHOWN_ENDED
        lines.append([(f"{counted(more, 'earlier run')}: --json-result - has all", "")])
    return [*lines, *([(trouble, "warn")] for trouble in troubles)]  # type: ignore[list-item]


def _row(entry: Entry, state: State) -> tuple[tuple[str, ...], report_screen.Style]:
    said, style = word(entry, state)
    alive = ""
    if state == "running":
        alive = f"{len(ranks(entry))} of {entry.ranks or '?'}"
    elif state == "elsewhere":
        said = registry.whereabouts(entry)
    elif state == "lost" and (left := processes.of_run(entry.run_id)):
        alive = f"{len(left)} left"
    code = "" if entry.exit_code is None else str(entry.exit_code)
    script = " ".join(shlex.join(entry.target).split())
    return (entry.id, said, durations.since(entry.ended or entry.started), alive, code, script), style


def _one(entry: Entry, state: State, screen: report_screen.Screen) -> list[report_screen.Line]:
    said, style = word(entry, state)
    lines: list[report_screen.Line] = [[(f"{entry.id}  ", "bold"), (said, style), (_how(entry, state), "")]]
    folder = Path(entry.folder)
    later = registry.successor(entry)
    host = "" if state == "running" else f" on {entry.host}"
    rows = [
        ("Script", shlex.join(entry.target)),
        ("Config", entry.config),
        ("Started", f"{durations.since(entry.started)}, {entry.started[:19]} UTC, in {entry.cwd}"),
        ("Command", shlex.join(entry.command)),
        ("Logs", f"{folder}/{_whose(later) if folder.is_dir() else ' is not there any more'}"),
        ("mgpu", f"pid {entry.pid}{host}{', detached' if entry.detached else ''}"),
    ]
    if state == "running":
        live = ranks(entry)
        rows += [(f"Rank {row['rank']}", f"pid {row['pid']}, {row['state']}") for row in live]
        if len(live) < (entry.ranks or 0):
            rows.append(("Ranks", f"{len(live)} of {entry.ranks} are there"))
    if left := left_of(entry, state):
        rows.append(("Left", left))
    if state == "running" and (gpus := gpu_readings_file.line(gpu_readings_file.stored(folder))):
        rows.append(("GPUs", gpus))
    if later is None and (last := last_line(folder)):
        rows.append(("Last line", last))
    for label, text in rows:
        first, *rest = report_screen.wrapped(text, screen.width - 11) or [""]
        lines += [[(f"{label:<11}", "bold"), (first, "")], *report_screen.unstyled(" " * 11 + more for more in rest)]
    return lines


def _whose(later: Entry | None) -> str:
    return f" has the log of a later run by now, {later.id}" if later else ""


def _how(entry: Entry, state: State) -> str:
    if state == "running":
        return f", {len(ranks(entry))} of {entry.ranks or '?'} ranks"
    if state == "elsewhere":
        return f": it is {registry.whereabouts(entry)}, and cannot be asked from here"
    return ending(entry)


def left_of(entry: Entry, state: State) -> str:
    """What still runs of a run that nobody watches over; empty when nothing does."""
    left = processes.of_run(entry.run_id) if state == "lost" else []
    pids = " ".join(str(process.pid) for process in left)
    return f"its processes still run ({pids}): {shell('mgpu launch --stop {:id}', entry.id)}" if left else ""


def _cut(text: str, width: int) -> str:
    return text.rstrip() if len(text) <= width else text[: max(0, width - 3)] + "..."


# Of now


def ranks(entry: Entry) -> list[dict[str, Any]]:
    """The live ranks of a run on this machine."""
    if entry.launcher is None:
        return []
    found = processes.ranks_under(entry.launcher)
    if not found and (entry.ranks or 1) == 1:
        found = processes.alone_under(entry.launcher, starts_it=by_accelerate(entry.command))
    states = {rank: (told.pid, processes.state_of(told.pid)) for rank, told in sorted(found.items())}
    return [
        {"rank": rank, "pid": pid, "state": state}
        for rank, (pid, state) in states.items()
        if state not in (None, "ended")
    ]


def last_line(folder: Path) -> str:
    """The last line that the program wrote, as a terminal would show it."""
    parts = run_log.parts(folder)
    if not parts:
        return ""
    try:
        printed = file_reading.read_part(parts[-1], most=_LAST_BYTES)
    except OSError:
        return ""
    text = messages.clean(printed.decode("utf-8", "replace").replace("\r", "\n"))
    lines = [line.strip() for line in re.split(r"\n+", text) if line.strip()]
    return lines[-1][:300] if lines else ""


def _write_json(path: str, looked: Sequence[tuple[Entry, State]], troubles: Sequence[str]) -> None:
    runs = []
    for entry, state in looked:
        live = ranks(entry) if state == "running" else []
        last = "" if registry.successor(entry) else last_line(Path(entry.folder))
        runs.append({**registry.as_json(entry, state), "alive": live, "last_line": last})
    document = {"schema": SCHEMA, "mgpu": __version__, "runs": runs, "unreadable": list(troubles)}
    text = documents.text(document)
    if path == "-":
        print(text, end="")
    else:
        files.write_named(Path(path), text)
