"""Did a folder of the data vanish while several runs of one log used it?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.command_line import shell
from mgpu.snapshot import Log, UncaughtException

_MISSING = re.compile(r"No such file or directory: '([^'\n]{1,400})'|Not found: \"([^\"\n]{1,400})\": No such file")
_CALL = re.compile(r"(?P<file>[^:\s]+):(?P<line>\d+) in (?P<function>\w+)$")
_DEPTH = 3  # parts of an absolute path: "", "data" and a folder in it


def _path(one: UncaughtException) -> str:
    """Return the missing file that an exception names, without a leading "./"; empty if it names none."""
    found = None if one.of_launcher else _MISSING.search(one.message)
    return (found[1] or found[2]).removeprefix("./") if found else ""


def _folder_of_both(first: str, second: str) -> str:
    """Return the folder that holds both files, if it is one that a job chooses; else an empty text."""
    both: list[str] = []
    for one, other in zip(first.split("/")[:-1], second.split("/")[:-1], strict=False):
        if one != other:
            break
        both.append(one)
    deep = len(both) >= (_DEPTH if first.startswith("/") else 1)
    return "/".join(both) if deep and both[0] != ".." else ""


def _got_past(earlier: UncaughtException, later: UncaughtException) -> bool:
    """Whether the earlier run had passed the line of the script that the later one did not."""
    lines = {
        (found["file"], found["function"]): int(found["line"])
        for found in (_CALL.match(call.place) for call in later.calls if not call.package)
        if found
    }
    reached = [_CALL.match(call.place) for call in earlier.calls if not call.package]
    return any(
        one and int(one["line"]) > lines.get((one["file"], one["function"]), int(one["line"])) for one in reached
    )


@check(
    Severity.ERROR,
    source="https://man7.org/linux/man-pages/man3/errno.3.html",
    role="root",
    kind="script",
    tags=("precise",),
    same_as=("log_exception", "log_file_missing"),
)
def log_folder_lost(log: Log) -> Answer:
    """Files of one folder that earlier runs of the log could read are missing in later ones.

    Why: The folder was removed, renamed or moved while the job ran, or its mount or symlink was lost.

    Fix: Check the folder, then repeat the runs that failed since then.
    """
    missing = [(path, one) for one in log.raised if (path := _path(one))]
    first_path, first = missing[0] if missing else ("", None)
    for path, one in missing[1:]:
        folder = _folder_of_both(first_path, path) if path != first_path else ""
        if folder not in (first_path.rpartition("/")[0], path.rpartition("/")[0]) and folder.count("/") > 0:
            continue  # each has a folder of its own in it
        if first is None or not folder or not first.caught or first.file != one.file or not _got_past(first, one):
            continue
        if sum(each.times for other, each in missing if other == path) < 2 * max(1, len(one.ranks)):
            continue  # one run alone can have another path
        return Problem(
            f"files in {folder} probably vanished while the job ran: first {first_path} was missing, then {path}",
            "The first run that failed had passed the line of the script at which later runs miss their file. If both "
            "read the same folder, the paths are right, and it was removed, renamed or moved meanwhile, or its mount "
            "or symlink was lost.",
            (
                Fix(
                    "Check whether the folder is there, on the node of the job, and what it is mounted from.",
                    (shell("ls -ld {:path}; df -hT {:path}", folder, folder), "mgpu doctor --only storage"),
                ),
                Fix("Find out who or what removed it (a cleanup, another job, a quota), and restore it."),
                Fix("Then repeat the runs from the first failure on."),
            ),
            {"line": first.message, "rank": first.rank, "at": first.at},
            place=Place(first.file, first.line),
        )
    return Ok("no files of one folder vanished between runs of this log")
