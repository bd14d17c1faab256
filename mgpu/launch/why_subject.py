"""Which run does `--why [RUN|PID|LOG-DIR]` mean, and which processes are its ranks?"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mgpu import errors
from mgpu.errors import MgpuError
from mgpu.hangs import hang_evidence, hang_files
from mgpu.launch import list_runs, node_answers, registry
from mgpu.launch.registry import Entry
from mgpu.process import processes
from mgpu.recorder.inject._mgpu_recorder import FOLDER, folder_in
from mgpu.snapshot import Hang

NOWHERE = Path(os.devnull)  # the folder of a run without a recorder
_ENDS_S = 5.0  # a supervisor reads the log before it stores the end


@dataclass(frozen=True)
class Part:
    """The ranks on this machine that write to one folder."""

    folder: Path
    ranks: dict[int, processes.Rank]
    expected: int


@dataclass(frozen=True)
class Subject:
    """The run in question."""

    name: str
    run: str | None
    parts: tuple[Part, ...]
    others: tuple[Hang, ...] = ()  # what other nodes have written
    gaps: tuple[str, ...] = ()
    entry: Entry | None = None
    finished: bool = False  # with exit code 0, so that no rank waits


def find_subject(name: str | None, runs: Sequence[Entry]) -> Subject:
    """Return the run, the process or the log folder that is meant. Raises MgpuError (3)."""
    if name is None:
        return _of_entry(_unnamed(runs))
    if any(entry.id == name for entry in runs):
        return _of_entry(registry.find(name, runs))
    if name.isdigit() and os.path.isdir(f"/proc/{name}"):
        return _of_pid(int(name))
    if (nodes := hang_files.node_folders(Path(name))) or (Path(name) / hang_files.NAME).is_file():
        return _of_folder(Path(name), nodes or [Path(name)], runs)
    if name.isdigit() and not registry.named(name, runs):
        raise MgpuError(
            f"there is no process {name} on this machine, and no run of that name. List all runs:  "
            "mgpu launch --status",
            errors.UNKNOWN,
        )
    return _of_entry(registry.find(name, runs))


def _unnamed(runs: Sequence[Entry]) -> Entry:
    """Return the running run of this folder, else its latest if that one hung, else one that runs in another folder."""
    running = [entry for entry in runs if registry.refresh(entry)[1] == "running"]
    here = [entry for entry in runs if registry.is_of_this_folder(entry)]
    if mine := [entry for entry in running if entry in here]:
        return mine[0]
    if here and here[0].exit_code and hang_files.read(Path(here[0].folder)):
        return here[0]
    if not running:
        raise MgpuError(
            "no run of mgpu is running here. For one that mgpu did not start:  mgpu launch --why PID", errors.UNKNOWN
        )
    return running[0]


def after_ranks(subject: Subject) -> Subject:
    """Return the run again, whose ranks are not running: it may be at its end. Raises MgpuError (3)."""
    entry = subject.entry
    deadline = time.monotonic() + _ENDS_S
    while entry is not None and time.monotonic() < deadline:
        entry, state = registry.refresh(entry)
        if state != "running":
            return _of_entry(entry)
        if list_runs.rank_processes(entry):
            return _of_entry(entry)
        time.sleep(0.1)
    return replace(subject, gaps=(*subject.gaps, "no rank of it is running now: it is starting or ending"))


def _of_entry(entry: Entry) -> Subject:
    return replace(_ranks_of_entry(entry), entry=entry)


def _ranks_of_entry(entry: Entry) -> Subject:
    entry, state = registry.refresh(entry)
    folder = Path(entry.folder)
    if state == "running" and (hosts := hang_files.node_folders(folder / node_answers.HOSTS)):
        return _of_hosts(entry, hosts)
    if state == "running":
        is_job = entry.ranks is None and not (folder / hang_evidence.RECORDED).is_dir()
        if is_job and (hang := hang_files.read(folder)):  # in an allocation: its nodes have asked the ranks
            return Subject(entry.id, entry.id, (), (hang,))
        part = Part(folder, list_runs.rank_processes(entry), entry.ranks or 0)
        return Subject(entry.id, entry.id, (part,), tuple(hang_files.of_other_nodes(folder)))
    if state == "elsewhere" and (hang := hang_files.read(folder)):
        return Subject(entry.id, entry.id, (), (hang, *hang_files.of_other_nodes(folder)))
    if state == "ended" and entry.exit_code and (hang := hang_files.read(folder)):
        return Subject(entry.id, entry.id, (), (hang,), ("it has ended: this is what its ranks did last",))
    if state == "ended" and entry.exit_code == 0:
        return Subject(entry.id, entry.id, (), gaps=("it has ended, so no rank waits",), finished=True)
    where = f"is {registry.whereabouts(entry)} and cannot be asked from here" if state == "elsewhere" else "has ended"
    raise MgpuError(f"{entry.id} {where}. What its ranks did is in {folder}/ (mgpu doctor --log)", errors.UNKNOWN)


def _of_hosts(entry: Entry, hosts: Sequence[Path]) -> Subject:
    """Ask the hosts of a run over ssh, which answer through the run's folder here."""
    shared = Path(entry.folder) / node_answers.HOSTS
    answers = node_answers.ask(shared, hosts, lambda: registry.refresh(entry)[1] != "running")
    silent = ", ".join(hang_files.node_name(place) or place.name for place in answers.silent)
    if not answers.found:
        raise MgpuError(
            f"no host of {entry.id} has answered ({silent}): its ranks may not have started", errors.UNKNOWN
        )
    found = tuple(hang_files.on_host(hang, place) for place, hang in answers.found.items())
    gaps = (f"{silent} did not answer within {node_answers.ANSWER_S:.0f} s, or has no rank",) if silent else ()
    return Subject(entry.id, entry.id, (), found, gaps)


def _of_folder(folder: Path, nodes: Sequence[Path], runs: Sequence[Entry]) -> Subject:
    """Join the nodes that share a --log-dir: those on this machine are asked, the others have written what they do."""
    parts, others, gaps = [], [], []
    for node in nodes:
        here = next((entry for entry in runs if entry.folder == os.path.realpath(node)), None)
        if here is not None and registry.refresh(here)[1] == "running":
            here = registry.refresh(here)[0]
            parts.append(Part(node, list_runs.rank_processes(here), here.ranks or 0))
        elif hang := hang_files.read(node):
            others.append(hang)
        else:
            gaps.append(f"{node.name} has not reported a hang")
    if not parts and not others:
        raise MgpuError(f"no node of {folder} has reported a hang, and none runs here", errors.UNKNOWN)
    return Subject(str(folder), None, tuple(parts), tuple(others), tuple(gaps))


def _of_pid(pid: int) -> Subject:
    """Find the ranks below a process, or beside it if it is a rank itself or one of a rank's workers."""
    ranks = processes.ranks_around(pid) or {0: processes.Rank(pid)}
    first = processes.environment(min(ranks.items())[1].pid)
    variables = {os.fsdecode(name): os.fsdecode(value) for name, value in first.items()}
    recorded = Path(folder_in(variables)) if FOLDER in variables else NOWHERE
    ours = all(is_ours(f"/proc/{rank.pid}") for rank in ranks.values())
    gaps = () if ours else ("its processes belong to another user: what they do can only be seen by that user or root",)
    known = ours and recorded.name == hang_evidence.RECORDED and is_ours(recorded)  # /tmp is shared
    folder = recorded.parent if known else NOWHERE
    return Subject(f"process {pid}", None, (Part(folder, ranks, len(ranks)),), (), gaps)


def is_ours(place: str | Path) -> bool:
    """Whether a process, by its folder in /proc, or a folder belongs to this user."""
    try:
        return os.lstat(place).st_uid == os.geteuid()
    except OSError:
        return True  # it has ended, or there is none
