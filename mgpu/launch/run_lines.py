"""The script of a run started earlier, and its folder if that is not the current one: as lines and as text.

The list of runs has those of all folders of a user, so every option that acts on a run shows which one it is.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from mgpu.command_line import shell
from mgpu.launch import registry
from mgpu.launch.registry import Entry
from mgpu.report.screen import Line, Screen, columned
from mgpu.text import visible

_LONGEST = 300  # characters of a script with its arguments


def script_text(entry: Entry) -> str:
    """Return the script of a run with its arguments, on one line."""
    text = " ".join(visible(shlex.join(entry.target)).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def rows(entry: Entry, *, with_folder: bool = False) -> list[tuple[str, str]]:
    """Return the script of a run, and its folder if that is not the current one. `with_folder`: in any case."""
    here = registry.is_of_this_folder(entry)
    folder = entry.cwd if here else f"{entry.cwd}  (not the current folder)"
    return [("Script", script_text(entry)), *([("Folder", folder)] if with_folder or not here else [])]


def lines(entry: Entry, screen: Screen, *, with_folder: bool = False) -> list[Line]:
    """Return `rows` for a screen."""
    found = rows(entry, with_folder=with_folder)
    return [line for label, text in found for line in columned([(f"{label:<11}", "bold")], text, screen)]


def choices(option: str, runs: Sequence[Entry]) -> str:
    """Return for each run the command with its name, its script and its folder, as more lines of a message."""
    found = []
    for entry in runs:
        command = shell("mgpu launch {:option} {:id}", option, entry.id)
        found += [f"  {command}", *(f"    {label}  {text}" for label, text in rows(entry, with_folder=True))]
    return "".join(f"\n{line}" for line in found)
