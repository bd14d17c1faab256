"""What is in the folder where a file is missing, or in which the program finds nothing to load?

Only of a launch: the recorder has read the folder on the node of the rank that failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from mgpu.check import Fix, Problem
from mgpu.command_line import shell
from mgpu.snapshot import ListedFolder
from mgpu.text import listed

from ._messages import exception_of

_ALIKE = 0.75  # of difflib; "trainer_state.pt" and "train_state.pt" are 0.93
_LONGEST = 80  # characters of a path in a title
_RELATIVE = "The path is relative"
_EMPTY_OR_AWAY = "The folder is empty, is not mounted on this node, was"  # of checkpoints
_MOST_ENTRIES = 1000  # that the recorder counts


def with_folder(problem: Problem, facts: Mapping[str, Any]) -> Problem:
    """Return the problem with what is in the folder of its exception."""
    one = exception_of(problem, facts)
    folder = next((line.folder for line in one.recorded if line.folder), None) if one is not None else None
    if one is None or folder is None:
        return problem
    return _missing(problem, folder, one.place or "the script") if folder.missing else _named(problem, folder)


def _named(problem: Problem, folder: ListedFolder) -> Problem:
    cause = problem.cause.replace(_EMPTY_OR_AWAY, "It was") if folder.count else problem.cause
    return replace(problem, cause=f"{folder.path} {_content(folder)}. {cause}")


def _missing(problem: Problem, folder: ListedFolder, place: str) -> Problem:
    rest = _below(folder)
    first, _, deeper = rest.partition("/")
    what = "folder" if deeper else "file"
    near = get_close_matches(first, folder.names, 1, _ALIKE)
    similar = f" There is '{near[0]}'." if near else ""
    where = "The current folder" if folder.here else folder.path
    no = "and" if folder.names else "it has"
    says = f"{where} {_content(folder)}, {no} no {what} '{first}'.{similar}"
    # In a folder that exists below the current one, the run did not start in a wrong folder.
    if folder.here or _RELATIVE not in problem.cause:
        return replace(problem, cause=f"{says} {problem.cause}")
    look = Fix(
        f"Give the code a path that is there, or make the {what} first.",
        (shell("ls -la {:path}", folder.path),),
    )
    title = f"{_short(folder.path)} has no {what} '{first}' ({place})"
    return replace(problem, title=title, cause=f"{says} The path is {folder.missing}.", fix=look)


def _below(folder: ListedFolder) -> str:
    """Return the part of the missing path below the folder."""
    path = folder.missing.removeprefix("./") if folder.path == "." else folder.missing
    return path.removeprefix(folder.path).strip("/") if folder.path != "." else path.strip("/")


def _content(folder: ListedFolder) -> str:
    if not folder.names:
        return "is empty" if not folder.count else f"has {folder.count} entries"
    count = "more than 1,000" if folder.count >= _MOST_ENTRIES else str(folder.count)
    if folder.count > len(folder.names):
        return f"has {count} entries, among them {listed(folder.names)}"
    return f"has {listed(folder.names)}"


def _short(path: str) -> str:
    return path if len(path) <= _LONGEST else f"...{path[-_LONGEST:]}"
