"""What is in the folder where a file was looked for that is not there, or that an exception refuses?

Runs with any Python from 3.8 on.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

if TYPE_CHECKING or __package__:  # imported from mgpu, not in a rank
    from mgpu.recorder.inject._mgpu_own_code import is_users
else:
    from _mgpu_own_code import is_users

_QUOTED = re.compile(
    r"(?:No such file or directory|does not exist): *(?:[\"'<]([^\"'<>\n]+)[\"'>]|(\S+)$)|'([^'\n]+)' does not exist"
)
_OF_FILES = re.compile(r"(?i)director|folder|checkpoint|\bfiles?\b|\bpath\b|exist|\bfound\b")
_PROGRAMS = os.sep + "subprocess.py"  # a program is looked for in many folders
_MOST_ENTRIES, _MOST_NAMES, _MOST_FRAMES, _MOST_LOCALS = 1000, 8, 20, 200
_LONGEST, _LONGEST_NAME, _MOST_PARTS = 1024, 60, 40
_SHORTEST = 3  # characters of a folder that a message has


def of_failure(trace: TracebackType | None, error: BaseException) -> tuple[str, int, dict[str, Any]] | None:
    """Return the user's innermost file and line, and a folder; None if the exception is about none.

    "missing": the file that is not there; "": the message names the folder. "folder": the deepest one of its path that
    exists, "names": the first of what is in it, "count" of all of them. "here": whether it is the current folder.
    """
    own, frames = None, []
    while trace is not None:
        own = trace if is_users(trace.tb_frame.f_code.co_filename) else own
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    if own is None or not isinstance(error, (OSError, ValueError, AssertionError, RuntimeError)):
        return None
    if frames[-1].f_code.co_filename.endswith(_PROGRAMS):
        return None
    missing = _missing(error)
    if missing and os.path.lexists(missing):
        return None  # it is there by now
    folders = _named(frames[-_MOST_FRAMES:], str(error)) if not missing else iter((_deepest(missing),))
    folder = next(folders, "")
    if not folder or os.path.realpath(folder) in (os.sep, os.path.realpath(os.path.expanduser("~"))):
        return None  # what is there is not about this run
    facts: dict[str, Any] = {"missing": missing, "folder": folder, "here": os.path.samefile(folder, os.curdir)}
    return own.tb_frame.f_code.co_filename, own.tb_lineno, {**facts, **_content(folder)}


def _missing(error: BaseException) -> str:
    """Return the path that does not exist, as the exception has it."""
    path = error.filename if isinstance(error, FileNotFoundError) and error.filename2 is None else None
    if type(path) is not str and type(error).__name__ in ("FileNotFoundError", "RuntimeError", "OSError"):
        found = _QUOTED.search(str(error))
        path = (found[1] or found[2] or found[3]) if found else None
    fits = type(path) is str and 0 < len(path) <= _LONGEST and path.isprintable() and "://" not in path
    return path if fits and isinstance(path, str) else ""


def _deepest(path: str) -> str:
    """Return the deepest folder above a path that exists; "." for the current one."""
    for _ in range(_MOST_PARTS):
        path = os.path.dirname(path.rstrip(os.sep))
        if os.path.isdir(path or os.curdir):
            return path or os.curdir
        if not path.strip(os.sep):
            break
    return ""


def _named(frames: list[Any], message: str) -> Iterator[str]:
    """Yield the folders that variables of the frames hold, and that the message has, too."""
    for frame in reversed(frames if _OF_FILES.search(message) else []):
        for value in itertools.islice(list(frame.f_locals.values()), _MOST_LOCALS):
            kind = type(value)
            of_path = kind.__module__.startswith("pathlib") and kind.__name__ in ("PosixPath", "WindowsPath")
            text = value if kind is str else str(value) if of_path else ""
            if _SHORTEST <= len(text) <= _LONGEST and text.isprintable() and re.search(_whole(text), message):
                with contextlib.suppress(OSError):
                    if os.path.isdir(text):
                        yield text


def _whole(text: str) -> str:
    return rf"(?<![\w./-]){re.escape(text)}(?![\w-]|[./]\w)"


def _content(folder: str) -> dict[str, Any]:
    """Return the names of a folder's entries, those that begin with a dot last, without looking into any."""
    with os.scandir(folder) as entries:
        found = [one.name for one in itertools.islice(entries, _MOST_ENTRIES)]
    shown = sorted((one for one in found if len(one) <= _LONGEST_NAME and one.isprintable()), key=_order)
    return {"names": shown[:_MOST_NAMES], "count": len(found)}


def _order(name: str) -> tuple[bool, str]:
    return name.startswith("."), name
