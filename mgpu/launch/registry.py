"""List the runs on this machine and determine their state.

Every run, detached or not, has a file $XDG_STATE_HOME/mgpu/runs/ID.json. Only its supervisor writes it: at the start,
once the launcher is running, and at the end. Several machines may share a home folder, and a supervisor may be killed
before it can write, so a run's state is determined from its entry and from the process it names.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from mgpu import errors, files
from mgpu.errors import MgpuError
from mgpu.file_reading import read_own
from mgpu.launchers import project_folder
from mgpu.process import processes
from mgpu.process.boot import boot_id
from mgpu.snapshot import BadSnapshot, decode
from mgpu.structured_text import json_of

State = Literal["running", "ended", "lost", "elsewhere"]

_SCHEMA = 1
_PART = re.compile(r"/node\d+$")  # the folder of one host's part, in the one of the run
_LARGEST = 256 << 10  # bytes; a typical entry has 1 KiB. Command lines can have 2 MiB, but long arguments are cut.


@dataclass(frozen=True)
class Entry:
    """One run, as written by its supervisor."""

    id: str
    run_id: str  # the mark in the environment of all its processes
    host: str
    boot_id: str  # of the supervisor's kernel
    pid_space: int  # the PID namespace of the pids
    pid: int  # of the supervisor
    pid_started: int  # in clock ticks since boot: the same pid with another start time is another process
    folder: str  # of the logs
    cwd: str
    target: tuple[str, ...]  # the script and its arguments, secrets masked
    command: tuple[str, ...]  # the launcher's command line, secrets masked
    config: str
    started: str  # ISO, UTC
    ranks: int | None = None  # on this machine
    detached: bool = False
    launcher: int | None = None  # its pid, once it is running
    ended: str | None = None
    exit_code: int | None = None  # the training's own; None with `ended`: unknown
    signalled: str | None = None  # SIGTERM ...: mgpu was asked to stop the run
    timed_out: bool = False
    schema: int = _SCHEMA

    @property
    def known_exit_code(self) -> int:
        """The training's own exit code; 3 if unknown."""
        return errors.UNKNOWN if self.exit_code is None else self.exit_code


def folder() -> Path:
    """Return the folder of the entries. Raises OSError if there is no state folder."""
    return files.state_folder() / "runs"


# State


def state(entry: Entry) -> State:
    """Return the state of a run. lost: its supervisor exited without writing how the run ended."""
    if entry.ended is not None:
        return "ended"
    if not _is_here(entry):
        return "elsewhere"
    return "running" if is_supervised(entry) else "lost"


def is_supervised(entry: Entry) -> bool:
    """Whether the supervisor that wrote the entry is running on this machine."""
    return entry.boot_id == boot_id() and started_at(entry.pid) == entry.pid_started


def _is_here(entry: Entry) -> bool:
    """Whether the entry's pids belong to this machine (or did before a reboot)."""
    if entry.boot_id == boot_id():
        return entry.pid_space == pid_space()
    return entry.host == socket.gethostname()


def whereabouts(entry: Entry) -> str:
    """Return where a run is that cannot be queried from here."""
    if entry.boot_id == boot_id():
        return f"in another container on {entry.host}"
    return f"on host {entry.host}"


def started_at(pid: int) -> int | None:
    """Return the start time of a live process in clock ticks since boot; None if there is none or it has ended."""
    try:
        fields = processes.stat_fields(pid)
        return None if fields[0] in "ZX" else int(fields[19])  # field 22 of proc(5), after the process name
    except (OSError, ValueError, IndexError):
        return None


@cache
def pid_space() -> int:
    """Return the id of this process's PID namespace; 0 if unknown."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


# Read


def entries() -> tuple[list[Entry], list[str]]:
    """Return all runs, latest first, and a sentence for each entry that cannot be read."""
    found, troubles = [], []
    try:
        place = folder()
    except OSError as error:
        return [], [f"cannot read the list of runs: {errors.reason(error)}"]
    try:
        paths = sorted(path for path in place.iterdir() if path.suffix == ".json" and path.name[0] != ".")
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [f"cannot read {place}: {errors.reason(error)}"]
    for path in paths:
        try:
            found.append(load(path))
        except FileNotFoundError:
            continue  # removed in the meantime
        except (OSError, ValueError) as error:
            why = errors.reason(error) if isinstance(error, OSError) else str(error)
            troubles.append(f"{path} is not a valid run entry: {why}")
    return sorted(_whole(found), key=lambda entry: (entry.started, entry.id), reverse=True), troubles


def _whole(found: Sequence[Entry]) -> list[Entry]:
    """Return the runs without the part that a run on hosts has on this machine, if it is one of them."""
    folders = {entry.folder for entry in found}
    return [entry for entry in found if not (_PART.search(entry.folder) and os.path.dirname(entry.folder) in folders)]


def load(path: Path) -> Entry:
    """Read one entry. Raises OSError and ValueError."""
    raw = read_own(path, most=_LARGEST)
    try:
        data = json_of(raw.decode("utf-8"))
        if isinstance(data, dict) and data.get("schema") != _SCHEMA:
            raise ValueError(f"schema {data.get('schema')!r} instead of {_SCHEMA}, written by another version of mgpu")
        entry = decode(Entry, data, "")
    except (BadSnapshot, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None
    if any(len(part) > 255 or "\0" in part for part in entry.folder.split("/")) or len(entry.folder) > 4096:
        raise ValueError("its folder is not a valid path")  # the kernel's limits: NAME_MAX, PATH_MAX
    if f"{entry.id}.json" != path.name:
        raise ValueError(f"it is for another run, {entry.id}")
    return entry


def refresh(entry: Entry) -> tuple[Entry, State]:
    """Read the entry again (keep the old one if it cannot be read), and return it with the run's state."""
    entry = _reload(entry)
    if (now := state(entry)) == "lost":  # it may have ended in between: the supervisor writes the entry, then exits
        entry = _reload(entry)
        now = state(entry)
    return entry, now


def _reload(entry: Entry) -> Entry:
    with contextlib.suppress(OSError, ValueError):
        return load(path_of(entry))
    return entry


def find(name: str | None, runs: Sequence[Entry]) -> Entry:
    """Find a run by its id, the beginning or last digits of its id, or its log folder.

    Without a name: the latest running run of the current folder, else the latest of it; of all folders only if the
    current one has no run. Raises MgpuError.
    """
    if not runs:
        raise MgpuError("no runs found. Start one with:  mgpu launch SCRIPT", errors.USAGE)
    if not name:
        near = [entry for entry in runs if is_of_this_folder(entry)] or list(runs)
        return next((entry for entry in near if refresh(entry)[1] == "running"), near[0])
    found = named(name, runs)
    if len({entry.id for entry in found}) > 1:
        raise MgpuError(f"{name} is ambiguous: {', '.join(entry.id for entry in found[:5])}", errors.USAGE)
    if found:
        return found[0]
    raise MgpuError(f"run {name} not found. List all runs:  mgpu launch --status", errors.USAGE)


def named(name: str, runs: Sequence[Entry]) -> list[Entry]:
    """Return the runs that a name may mean; by its folder, the latest run that used it."""
    if exact := [entry for entry in runs if entry.id == name]:
        return exact
    if near := [entry for entry in runs if entry.id.startswith(name) or entry.id.endswith(f"-{name}")]:
        return near
    return [entry for entry in runs if entry.folder == os.path.realpath(name)][:1]


def is_of_this_folder(entry: Entry) -> bool:
    """Whether a run was started in the current folder, or has its logs in the `.mgpu` of the current folder."""
    try:
        here = os.path.realpath(".")
    except OSError:  # the current folder was removed
        return False
    return entry.cwd == here or Path(here, project_folder.FOLDER) in Path(entry.folder).parents


def writes_to(logs: Path) -> Entry | None:
    """Return the run that is still writing its logs to a folder."""
    where = str(logs.resolve())
    there = [entry for entry in entries()[0] if entry.folder == where]
    return next((entry for entry in there if refresh(entry)[1] == "running"), None)


def successor(entry: Entry) -> Entry | None:
    """Return a later run with the same log folder, whose files are now in it."""
    later = [other for other in entries()[0] if other.folder == entry.folder and other.started > entry.started]
    return later[0] if later else None


def as_json(entry: Entry, now: State) -> Mapping[str, object]:
    """Return an entry and the run's state for JSON."""
    return {"state": now, **{name: value for name, value in dataclasses.asdict(entry).items() if name != "schema"}}


def path_of(entry: Entry) -> Path:
    """Return the file of an entry."""
    return folder() / f"{entry.id}.json"
