"""Which runs of this folder does bare `mgpu` show: those that are running, else the last one if it failed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mgpu import durations
from mgpu.command_line import shell
from mgpu.report import screen as report_screen
from mgpu.text import counted, visible

if TYPE_CHECKING:
    from mgpu.launch.registry import Entry, State

MOST = 3  # running ones that are shown
_LONGEST = 60  # characters of a command


@dataclass(frozen=True)
class RunHere:
    """A run of this folder, and the command that shows more about it."""

    label: str  # Running, Hang, Last run
    text: str
    style: report_screen.Style
    command: str
    purpose: str  # of the command, for a menu
    running: bool

    @property
    def option(self) -> str:
        """The command without the run: mgpu launch --why."""
        return self.command.rpartition(" ")[0]


def of_folder(folder: Path) -> list[RunHere]:
    """Return the runs of a folder that are running, latest first, else the last one if it failed."""
    from mgpu.launch import registry

    here = os.path.realpath(folder)
    known = [registry.refresh(entry) for entry in registry.entries()[0] if entry.cwd == here]
    running = [_running(entry) for entry, state in known if state == "running"]
    if running:
        return running
    return _failed(*known[0]) if known and known[0][1] in ("ended", "lost") else []


def lines(runs: Sequence[RunHere], next_line: str, screen: report_screen.Screen) -> list[report_screen.Line]:
    """Return the rows about the runs, each with its command if that is not the next one anyway."""
    shown: list[report_screen.Line] = []
    for run in runs[:MOST]:
        head: report_screen.Line = [(f"{run.label:<10}", "bold")]
        shown += report_screen.columned(head, run.text, screen, run.style)
        shown += [[(f"{' ' * 10}{run.command}", "")]] if run.command != next_line else []
    if more := len(runs) - MOST:
        shown += [[(f"{counted(more, 'more run')}: mgpu launch --status", "")]] if more > 0 else []
    return shown


def _running(entry: Entry) -> RunHere:
    from mgpu.hangs import hang_files
    from mgpu.launch import hang_report, list_runs

    word, style = list_runs.state_word(entry, "running")
    hang = hang_report.one_line(hang_files.read(Path(entry.folder)))
    text = f"{_script(entry)} is {word}, started {durations.precise_age_text(entry.started)}"
    if hang:
        command, purpose = shell("mgpu launch --why {:id}", entry.id), "show why the run makes no progress"
        return RunHere("Hang", f"{text}: {hang}", "warn", command, purpose, running=True)
    command = shell("mgpu launch --status {:id}", entry.id)
    return RunHere("Running", f"{text}.", style, command, "show the run", running=True)


def _failed(entry: Entry, state: State) -> list[RunHere]:
    """Return the last run if it failed or was lost. A run that the user stopped did not fail."""
    from mgpu.launch import list_runs

    word, style = list_runs.state_word(entry, state)
    if style != "fail":
        return []
    when = durations.age_text(entry.ended or entry.started)
    if left := list_runs.leftover_text(entry, state):
        command = shell("mgpu launch --stop {:id}", entry.id)
        text = f"{_script(entry)} has lost its supervisor; {left.partition(':')[0]}."
        return [RunHere("Running", text, style, command, "stop its processes", running=True)]
    text = f"{_script(entry)} {word} {when}{list_runs.ending(entry)}."
    command = shell("mgpu launch --report {:id}", entry.id)
    return [RunHere("Last run", text, style, command, "write a report about the last run", running=False)]


def _script(entry: Entry) -> str:
    """Return the script and its arguments, in one short line."""
    text = visible(" ".join(shlex.join(entry.target).split()))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
