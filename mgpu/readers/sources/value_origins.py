"""Where do the values of the lines that failed in a log come from? Adds what the user's own source says to the log."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from mgpu.file_reading import current_folder
from mgpu.readers.sources import gradient_modes
from mgpu.readers.sources.frame_scopes import Scope, scope_of
from mgpu.readers.sources.lookup import Lookup, raised_if
from mgpu.readers.sources.source_files import Changed, Sources
from mgpu.snapshot import Definition, Log, UncaughtException

_EXCEPTIONS = 6  # of a log whose lines are looked up
# Not about a value of the line at which they came: where a signal was noticed, a file that Python cannot parse, and
# where the memory ended.
_WITHOUT_VALUES = re.compile(
    r"(?:^|\.)(?:KeyboardInterrupt|SignalException|SystemExit|SyntaxError|MemoryError|\w*IndentationError|TabError)$"
)
_HANDLER = "torch/utils/data/_utils/signal_handling.py"  # torch's, after the death of a loader's worker: at any line
_MEMORY = re.compile(r"^\S*OutOfMemory\w*\b|CUDA out of memory|HIP out of memory")


def with_sources(log: Log, folders: Iterable[Path] = ()) -> Log:
    """Return the log with what the source says of its failed lines.

    The files are searched in the project of the current folder and of the others given, and where the log has them.
    """
    if not log.raised and not log.failed_script:
        return log
    sources = Sources(folders)
    raised = list(log.raised)
    for at, one in enumerate(raised[:_EXCEPTIONS]):
        interrupted = any(call.place.startswith(_HANDLER) for call in one.calls)
        if not (one.of_launcher or interrupted or _WITHOUT_VALUES.search(one.type)):
            raised[at] = replace(one, defined=(*_condition_of_package(one, sources), *_defined(one, sources)))
    return replace(log, raised=tuple(raised), source=_script(log, sources))


def _script(log: Log, sources: Sources) -> str | None:
    """Return the path of the script that the log's first traceback begins in, or else of the one that had failed."""
    of_ranks = [one for one in log.raised if not one.of_launcher and any(call.file for call in one.calls)]
    if of_ranks:
        first = next((scope for scope in _frames(of_ranks[0], sources) if scope), None)
        return _relative(first.module.path) if first and first.function is None else None
    found = sources.named(log.failed_script) if log.failed_script else None
    return _relative(found.path) if found else None


def _relative(path: str) -> str:
    """Return a path as a person in the current folder would write it, if the file is below that."""
    here = current_folder()
    return path[len(here) + 1 :] if here and path.startswith(f"{here}/") else path


def _frames(one: UncaughtException, sources: Sources) -> list[Scope | None]:
    """Return the scopes of the frames whose files are there; nothing if one of them is not the one that ran."""
    try:
        return [scope_of(call, at, sources) if call.file else None for at, call in enumerate(one.calls)]
    except Changed:
        return []


def _condition_of_package(one: UncaughtException, sources: Sources) -> list[Definition]:
    """Return what held where an installed package raised the exception, if that package is installed here, too."""
    last = one.calls[-1] if one.calls else None
    number = last.place.partition(" in ")[0].rpartition(":")[2] if last else ""
    if last is None or not last.installed or not number.isdigit():
        return []
    module = sources.of_package(last.installed, int(number), last.code or "")
    code = raised_if(module, int(number), one) if module else ""
    return [Definition("", "condition", last.place, code)] if code else []


def _defined(one: UncaughtException, sources: Sources) -> tuple[Definition, ...]:
    own = [at for at, call in enumerate(one.calls) if call.file]
    frames = _frames(one, sources)
    deepest = frames[own[-1]] if frames and own else None
    if deepest is None:
        return ()
    lookup = Lookup(sources, frames, one.calls)
    try:
        if _MEMORY.search(f"{one.type}: {one.message}"):
            found = gradient_modes.kept(frames, one.calls)
            return (found,) if found else ()
        lookup.add_subjects(one)
        lookup.follow_line(deepest, one)
    except RecursionError:  # an expression or a chain of branches with thousands of parts
        return ()
    return tuple(lookup.found)
