"""Which runs are there, and what has become of them?

Every run, also one in the foreground, has a file $XDG_STATE_HOME/mgpu/runs/ID.json, which its supervisor alone writes:
at the start, when the launcher is there, and at the end. A home may be shared by several machines, and a supervisor
may be killed before it can write: what a run does now is told from its entry and from the process it names.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from mgpu import errors, files
from mgpu.errors import MgpuError
from mgpu.file_reading import read_own
from mgpu.process import processes
from mgpu.snapshot import BadSnapshot, decode
from mgpu.structured_text import json_of

State = Literal["running", "ended", "lost", "elsewhere"]

_SCHEMA = 1
_LARGEST = 256 << 10  # bytes; a command line is at most 2 MiB, a usual entry 1 KiB: longer arguments are cut


@dataclass(frozen=True)
class Entry:
    """One run, as its supervisor has written it."""

    id: str
    run_id: str  # the mark in the environment of all its processes
    host: str
    boot_id: str  # of the kernel the supervisor runs under
    pid_space: int  # the namespace in which the pids count
    pid: int  # of the supervisor
    pid_started: int  # in clock ticks since the boot: the same pid with another start is another process
    folder: str  # of the logs
    cwd: str
    target: tuple[str, ...]  # the script and its arguments, secrets masked
    command: tuple[str, ...]  # the whole launch, secrets masked
    config: str
    started: str  # ISO, UTC
    ranks: int | None = None  # on this machine
    detached: bool = False
    launcher: int | None = None  # its pid, once it is there
    ended: str | None = None
    exit_code: int | None = None  # the training's own; None with `ended`: not known
    signalled: str | None = None  # SIGTERM ...: mgpu was asked to stop the run
    timed_out: bool = False
    schema: int = _SCHEMA

    @property
    def known_exit_code(self) -> int:
        """The training's own; 3 if no one knows it."""
        return errors.UNKNOWN if self.exit_code is None else self.exit_code


def folder() -> Path:
    """Where the entries are. Raises OSError if no state can be kept."""
    return files.state_folder() / "runs"


# Of now


def state(entry: Entry) -> State:
    """What a run does now. lost: its supervisor is gone and has not written how it ended."""
    if entry.ended is not None:
        return "ended"
    if not _is_here(entry):
        return "elsewhere"
    return "running" if supervised(entry) else "lost"


def supervised(entry: Entry) -> bool:
    """Whether the supervisor that wrote the entry lives, here and now."""
    return entry.boot_id == boot_id() and started_at(entry.pid) == entry.pid_started


def _is_here(entry: Entry) -> bool:
    """Whether the pids of the entry are (or, before a restart, were) pids of this machine."""
    if entry.boot_id == boot_id():
        return entry.pid_space == pid_space()
    return entry.host == socket.gethostname()


def whereabouts(entry: Entry) -> str:
    """Where a run is that cannot be asked from here."""
    if entry.boot_id == boot_id():
        return f"in another container on {entry.host}"
    return f"on host {entry.host}"


def started_at(pid: int) -> int | None:
    """When a live process was started, in clock ticks since the boot; None: there is none, or it has ended."""
    try:
        fields = processes.stat_fields(pid)
        return None if fields[0] in "ZX" else int(fields[19])  # field 22 of proc(5), the name taken off
    except (OSError, ValueError, IndexError):
        return None


@cache
def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


@cache
def pid_space() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


# Read


def entries() -> tuple[list[Entry], list[str]]:
    """Every run there is an entry of, the latest first; and a sentence for each file that cannot be understood."""
    found, troubles = [], []
    try:
        place = folder()
    except OSError as error:
        return [], [f"the list of runs cannot be read: {errors.reason(error)}"]
    try:
        paths = sorted(path for path in place.iterdir() if path.suffix == ".json" and path.name[0] != ".")
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [f"{place} cannot be read: {errors.reason(error)}"]
    for path in paths:
        try:
            found.append(load(path))
        except FileNotFoundError:
            continue  # dropped meanwhile
        except (OSError, ValueError) as error:
            words = errors.reason(error) if isinstance(error, OSError) else str(error)
            troubles.append(f"{path} is not an entry of a run: {words}")
    return sorted(found, key=lambda entry: (entry.started, entry.id), reverse=True), troubles


def load(path: Path) -> Entry:
    """One entry. Raises OSError and ValueError."""
    raw = read_own(path, most=_LARGEST)
    try:
        data = json_of(raw.decode("utf-8"))
        if isinstance(data, dict) and data.get("schema") != _SCHEMA:
            raise ValueError(f"its schema is {data.get('schema')!r}, not {_SCHEMA}: another version of mgpu wrote it")
        entry = decode(Entry, data, "")
    except (BadSnapshot, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None
    if any(len(part) > 255 or "\0" in part for part in entry.folder.split("/")) or len(entry.folder) > 4096:
        raise ValueError("its folder is not a path")  # limits of the kernel: NAME_MAX, PATH_MAX
    if f"{entry.id}.json" != path.name:
        raise ValueError(f"it names another run, {entry.id}")
    return entry


def look(entry: Entry) -> tuple[Entry, State]:
    """The entry as it is now (as it was, when it cannot be read any more), and what the run does."""
    entry = _again(entry)
    if (now := state(entry)) == "lost":  # unless it has ended in between: its last word comes before its end
        entry = _again(entry)
        now = state(entry)
    return entry, now


def _again(entry: Entry) -> Entry:
    with contextlib.suppress(OSError, ValueError):
        return load(path_of(entry))
    return entry


def find(name: str | None, runs: Sequence[Entry]) -> Entry:
    """The run that a name means: an id, the beginning of one, its last digits, or the folder of its logs; without a
    name the latest that is still running, else the latest. Raises MgpuError."""
    if not runs:
        raise MgpuError("no run is known here.  mgpu launch SCRIPT  starts one", errors.USAGE)
    if not name:
        return next((entry for entry in runs if look(entry)[1] == "running"), runs[0])
    if exact := [entry for entry in runs if entry.id == name]:
        return exact[0]
    near = [entry for entry in runs if entry.id.startswith(name) or entry.id.endswith(f"-{name}")]
    if len(near) > 1:
        raise MgpuError(f"{name} may be {', '.join(entry.id for entry in near[:5])}: name one of them", errors.USAGE)
    if near:
        return near[0]
    if there := [entry for entry in runs if entry.folder == os.path.realpath(name)]:
        return there[0]  # the latest of those that shared a folder
    raise MgpuError(f"no run {name} is known here.  mgpu launch --status  lists them", errors.USAGE)


def writes_to(logs: Path) -> Entry | None:
    """The run that keeps its logs in a folder and still goes on."""
    where = str(logs.resolve())
    there = [entry for entry in entries()[0] if entry.folder == where]
    return next((entry for entry in there if look(entry)[1] == "running"), None)


def successor(entry: Entry) -> Entry | None:
    """A later run that has the same folder of logs: what stands there is of that one."""
    later = [other for other in entries()[0] if other.folder == entry.folder and other.started > entry.started]
    return later[0] if later else None


def as_json(entry: Entry, now: State) -> Mapping[str, object]:
    """An entry and what the run does now, for whoever automates."""
    return {"state": now, **{name: value for name, value in dataclasses.asdict(entry).items() if name != "schema"}}


def path_of(entry: Entry) -> Path:
    """The file of an entry."""
    return folder() / f"{entry.id}.json"
