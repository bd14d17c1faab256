"""List the runs, or show one: `--status`.

The table has a row for each run, and below it what is known of its hang. On a screen that is too narrow for the script
and the folder, they have a line of their own, so that neither is cut. Exit code 0; with a run named: 0 if it is running
or succeeded, 1 if it failed or was lost, 3 if unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from mgpu import durations, errors, files
from mgpu.hangs import hang_files
from mgpu.launch import hang_report, list_runs, pace_report, registry, run_lines
from mgpu.launch.registry import Entry, State
from mgpu.launch.request import Request
from mgpu.process import processes
from mgpu.report import document as documents
from mgpu.report.screen import Line, Screen, Style
from mgpu.text import counted, visible
from mgpu.version import __version__

if TYPE_CHECKING:
    from mgpu.launch.run_json import ListedRun, StatusDocument

SCHEMA = "mgpu.runs/1.0"
_SHOWN_ENDED = 10
_HEADS = ("RUN", "STATE", "SINCE", "RANKS", "EXIT", "SCRIPT", "FOLDER")
_FIXED = 5  # columns before the script
_UNDER = "  "  # indents what belongs to the row above
_LEAST = 20  # columns of a script that is cut


class _Row(NamedTuple):
    cells: tuple[str, ...]
    style: Style
    hang: str


def run(request: Request, name: str | None, runs: Sequence[Entry], troubles: Sequence[str]) -> int:
    """Show the runs, or one, on stdout or as JSON in the --json-result file. Raises MgpuError."""
    named = registry.find(name, runs) if name else None
    found = [registry.refresh(entry) for entry in ([named] if named else runs)]
    if request.json_result:
        _write_json(request.json_result, found, troubles)
    if request.json_result != "-":
        screen = Screen.of()
        screen.show(list_runs.lines(*found[0], screen) if named else table(found, troubles, screen))
    return _code(*found[0]) if named else errors.READY


def _code(entry: Entry, state: State) -> int:
    if state == "elsewhere":
        return errors.UNKNOWN
    return errors.READY if state == "running" or (state == "ended" and entry.exit_code == 0) else errors.NOT_READY


# The table


def table(found: Sequence[tuple[Entry, State]], troubles: Sequence[str], screen: Screen) -> list[Line]:
    """Return the runs, the running ones first, and a line for each entry that cannot be read."""
    first = [pair for pair in found if pair[1] in ("running", "elsewhere")]
    ended = [pair for pair in found if pair[1] not in ("running", "elsewhere")]
    shown = [*first, *ended[:_SHOWN_ENDED]]
    lines = _lines([_row(*pair) for pair in shown], screen) if shown else []
    if not shown:
        lines.append([("No runs found. Start one with:  mgpu launch SCRIPT", "")])
    if len(ended) > _SHOWN_ENDED:
        more = counted(len(ended) - _SHOWN_ENDED, "earlier run")
        lines.append([(f"{more} not shown (list all: --json-result -)", "")])
    return [*lines, *(line for trouble in troubles for line in screen.paragraph(trouble, rest=_UNDER, style="warn"))]


def _row(entry: Entry, state: State) -> _Row:
    shown, style = list_runs.state_word(entry, state)
    alive = hang = ""
    if state == "running":
        hosts = list_runs.hosts_of(entry)
        live = f"{len(list_runs.ranks(entry))} of {entry.ranks or '?'}"
        alive = counted(len(hosts), "host") if hosts else live
        if hang := hang_report.one_line(hang_files.read(Path(entry.folder))):
            shown, style = "no progress" if shown == "running" else shown, "fail"
    elif state == "elsewhere":
        shown = registry.whereabouts(entry)
    elif state == "lost" and (left := processes.processes_of_run(entry.run_id)):
        alive = f"{len(left)} left"
    code = "" if entry.exit_code is None else str(entry.exit_code)
    folder = "." if registry.is_of_this_folder(entry) else visible(entry.cwd)
    since = durations.age_text(entry.ended or entry.started)
    return _Row((entry.id, shown, since, alive, code, run_lines.script_text(entry), folder), style, hang)


def _lines(rows: Sequence[_Row], screen: Screen) -> list[Line]:
    """Return the rows under their heads. The folder is shown unless all runs are of the current one."""
    count = len(_HEADS) if any(row.cells[-1] != "." for row in rows) else len(_HEADS) - 1
    texts = [_HEADS[:count], *(row.cells[:count] for row in rows)]
    widths = [max(len(text[place]) for text in texts) for place in range(count)]
    room = screen.width - sum(widths[:_FIXED]) - 2 * _FIXED - (widths[-1] + 2 if count > _FIXED + 1 else 0)
    below = room < min(widths[_FIXED], _LEAST) or (count > _FIXED + 1 and room < widths[_FIXED])
    if below:
        widths = widths[:_FIXED]
        while len(widths) > 2 and sum(widths) + 2 * len(widths) - 2 > screen.width:
            widths.pop()  # no part of a column, whose head would be cut
    else:
        widths[_FIXED] = min(widths[_FIXED], room)
    lines: list[Line] = [[(_cut(_padded(_HEADS, widths), screen.width), "bold")]]
    for row in rows:
        text = _cut(_padded([row.cells[0], row.cells[1], *row.cells[2:]], widths), screen.width)
        before, after = widths[0] + 2, widths[0] + 2 + len(row.cells[1])
        lines.append([(text[:before], ""), (text[before:after], row.style), (text[after:], "")])
        if below:
            script, folder = row.cells[_FIXED:]
            of_run = f"{script}   in {folder}" if count > _FIXED + 1 and folder != "." else script
            lines += screen.paragraph(of_run, _UNDER, _UNDER)
        if row.hang:
            lines += screen.paragraph(row.hang, _UNDER, _UNDER, style="fail")
    return lines


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return the cells of these columns as one line; a cell that is too wide for its column is cut."""
    return "  ".join(_cut(cell, width).ljust(width) for cell, width in zip(cells, widths, strict=False)).rstrip()


def _cut(text: str, width: int) -> str:
    return text.rstrip() if len(text) <= width else text[: max(0, width - 3)] + "..."


# JSON


def _write_json(path: str, found: Sequence[tuple[Entry, State]], troubles: Sequence[str]) -> None:
    runs: list[ListedRun] = []
    for entry, state in found:
        live = list_runs.ranks(entry) if state == "running" else []
        last = "" if registry.successor(entry) else list_runs.last_line(Path(entry.folder))
        quiet = hang_files.read(Path(entry.folder)) if state == "running" else None
        hang = hang_report.entry(quiet) if quiet else None
        found_pace = pace_report.read(Path(entry.folder)) if state == "running" else None
        pace = pace_report.entry(found_pace) if found_pace else None
        more = {"alive": live, "last_line": last, "hang": hang, "pace": pace}
        runs.append(cast("ListedRun", {**registry.as_json(entry, state), **more}))
    status: StatusDocument = {"schema": SCHEMA, "mgpu": __version__, "runs": runs, "unreadable": list(troubles)}
    text = documents.text(status)
    if path == "-":
        print(text, end="")
    else:
        files.write_named(Path(path), text)
