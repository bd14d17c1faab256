"""Determine how a job ended: which rank failed first, on which node, and the exit code.

The sources are Slurm's record of the job, srun's messages about its tasks, and the launchers' tables in the output and
in the nodes' log files.
"""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mgpu import errors, file_reading, hostlist
from mgpu.launch.run_outcome import parse_table
from mgpu.slurm.follow import Followed
from mgpu.slurm.record import Record
from mgpu.snapshot import EndedRank, FailedRank, Run

if TYPE_CHECKING:
    from mgpu.launch.run_json import PreflightOfJob

_READ_BYTES = 64 << 20  # of the end of a file
_MOST_FILES = 2000
_MOST_HOSTS = 4 << 20  # bytes of a hostfile: one line per task
_TERMINATED = 128 + signal.SIGTERM
# Slurm ended the job, with SIGTERM first. ExitCode is then 0:0 or 0:15 (measured on 22.05: 0:0 for TIMEOUT, CANCELLED).
BY_SLURM = frozenset({"TIMEOUT", "PREEMPTED", "CANCELLED", "DEADLINE", "REVOKED"})
# Exit codes of srun and launchers that hide a rank's own: 1 from launchers, and the codes of tasks that srun stopped
# because another task failed (128 + KILL, 128 + TERM; 9 and 15 in older releases).
_FLAT = frozenset({1, 9, 15, 137, 143})
_CONSEQUENCES = frozenset({-15, -9, -6, 1})  # probably a consequence, if two ranks failed at the same moment
# srun: error: node2: task 1: Exited with exit code 7; srun: error: node[1-2]: tasks 0-1: Killed (22.05, and source)
_TASK = re.compile(rb"srun: error: (?P<nodes>[\w.\[\],-]+): tasks? (?P<tasks>[\d,\-\[\]]+): (?P<how>[^\n]*)")
_EXITED = re.compile(rb"Exited with exit code (\d+)")
# fmt: off
_SIGNALS = {
    b"Killed": 137, b"Terminated": 143, b"Segmentation fault": 139, b"Aborted": 134, b"Bus error": 135,
    b"Out Of Memory": 137, b"Floating point exception": 136, b"Illegal instruction": 132, b"Interrupt": 130,
}
# fmt: on
_LABEL = re.compile(rb"^ {0,6}(\d{1,6}): ?", re.MULTILINE)
_TEE = re.compile(rb"^\[[A-Za-z_]+\d+\]:(?=\[rank\d)", re.MULTILINE)


@dataclass(frozen=True)
class Task:
    """The first failed task of a step, as reported by srun."""

    node: str
    task: str
    code: int | None


@dataclass(frozen=True)
class Found:
    """The ranks and tasks found in the output and the nodes' log files."""

    ranks: tuple[EndedRank, ...] = ()
    task: Task | None = None
    parts: Mapping[str, bytes] | None = None  # each node's output, if the lines are labeled

    @property
    def first(self) -> EndedRank | None:
        """The rank that failed first."""
        return next((rank for rank in self.ranks if rank.first), None)


def state_code(record: Record | None) -> int:
    """Return the exit code according to Slurm alone: the job's own, or 128 + N for a signal N."""
    if record is None:
        return errors.UNKNOWN
    if record.state == "COMPLETED":
        return 0
    if record.exit_code:
        return record.exit_code
    if record.state == "OUT_OF_MEMORY":
        return 137
    if record.state in BY_SLURM:
        return _TERMINATED
    if record.signal and record.reason != "JobLaunchFailure" and record.signal < 64:
        return 128 + record.signal
    return errors.NOT_READY


def exit_status(followed: Followed, found: Found) -> int:
    """Return mgpu's exit code."""
    if followed.never:
        return errors.LAUNCH_REFUSED
    if followed.timed_out:
        return errors.TIMED_OUT
    if followed.signalled is not None:
        return 128 + followed.signalled
    if followed.held:
        return errors.NOT_READY
    code = state_code(followed.record)
    if code in _FLAT and followed.record is not None and followed.record.exit_code:
        first = found.first
        if first is not None and first.exit_code:
            return 128 - first.exit_code if first.exit_code < 0 else first.exit_code
        if found.task is not None and found.task.code:
            return found.task.code
    return code


def run_of(followed: Followed, found: Found, code: int, folder: Path | None) -> Run:
    """Return the fact `run`."""
    record = followed.record
    return Run(
        code,
        record.exit_code if record else code,
        round(followed.seconds, 3),
        signal.Signals(followed.signalled).name if followed.signalled is not None else None,
        followed.timed_out,
        found.ranks,
        slurm=followed.state if followed.signalled is None and not followed.timed_out else None,
        log=str(folder) if folder else None,
        watched=False,
    )


def read_outcome(followed: Followed) -> Found:
    """Find the failed ranks and tasks in the output and the nodes' log files."""
    record = followed.record
    if record is None or not followed.output:
        return Found()
    printed = _end_of(Path(followed.output))
    tasks = task_nodes(record, Path(followed.output))
    parts = _by_node(printed, tasks)
    names = frozenset(tasks)
    fallen: list[tuple[str | None, FailedRank]] = []
    for node, text in (parts or {"": printed}).items():
        fallen += [(node or _slurm_name(rank.host, names), rank) for rank in parse_table(text).values()]
    for path in node_files(record, Path(followed.output)):
        where = node_in(path, Path(followed.output).parent, tasks)
        fallen += [(where or _slurm_name(rank.host, names), rank) for rank in parse_table(_end_of(path)).values()]
    task = _first_task(printed, tasks)
    return Found(_ended_ranks(fallen, task), task, parts)


def task_nodes(record: Record, output: Path) -> tuple[str, ...]:
    """Return the nodes of the tasks in order: the ones chosen by the pre-flight, else all nodes of the job."""
    for folder in preflight_folders(record, output):
        with contextlib.suppress(OSError):
            if chosen := file_reading.read(folder / "hostfile", most=_MOST_HOSTS).decode("utf-8", "replace").split():
                return tuple(dict.fromkeys(chosen))
    with contextlib.suppress(ValueError):
        return hostlist.expand(record.nodes)
    return ()


def preflight_folders(record: Record, output: Path) -> Iterator[Path]:
    """Yield the folders of the job's pre-flight."""
    return folders(record, output, "preflight-")


def folders(record: Record, output: Path, prefix: str) -> Iterator[Path]:
    """Yield mgpu's folders of a job: next to the script that mgpu wrote, or next to the job's output."""
    name = f"{prefix}{record.job}"
    script = Path(record.script if Path(record.script).is_file() else record.script.partition(" ")[0])
    for folder in dict.fromkeys((script.parent, output.parent, output.parent / "logs", Path("logs"))):
        if (folder / name).is_dir():
            yield folder / name


def preflight(followed: Followed) -> PreflightOfJob | None:
    """Return the result of the job's pre-flight: the good, bad and chosen nodes, and how many are needed."""
    if not followed.output or followed.record is None:
        return None
    return preflight_in(preflight_folders(followed.record, Path(followed.output)))


def preflight_in(folders: Iterable[Path]) -> PreflightOfJob | None:
    """Return the pre-flight result from the first of these folders that can be read."""
    from mgpu.fleet import artifacts

    for folder in folders:
        with contextlib.suppress(KeyError, TypeError, ValueError):
            document = artifacts.read(folder) or {}
            return {
                "folder": str(folder),
                "need": int(document["need"]),
                "bad": [{"node": str(one["node"]), "reason": str(one["reason"])} for one in document["bad"]],
                "good": [str(node) for node in document["good"]],
                "chosen": [str(node) for node in document["chosen"]],
            }
    return None


def node_files(record: Record, output: Path) -> list[Path]:
    """Return the log files next to the job's output that have the job's number in their names."""
    number = re.compile(rf"(?<!\d){record.job}(?!\d)")
    try:
        beside = [path for path in output.parent.iterdir() if number.search(path.name) and path != output]
    except OSError:
        return []
    files = [path for path in beside if path.is_file() and path.suffix in (".log", ".out", ".err", ".txt", "")]
    return sorted(files)[:_MOST_FILES]


def node_in(path: Path, base: Path, nodes: Sequence[str]) -> str | None:
    """Return the node that a file's name contains: its name, or its number in the job (n0, node1)."""
    name = str(path.relative_to(base)) if path.is_relative_to(base) else path.name
    named = [node for node in nodes if re.search(rf"(?<![\w.]){re.escape(node)}(?![\w])", name)]
    if named:
        return max(named, key=len)
    found = re.search(r"(?<![A-Za-z])n(?:ode)?(\d{1,5})(?!\d)", name)
    return nodes[int(found[1])] if found and int(found[1]) < len(nodes) else None


def _end_of(path: Path) -> bytes:
    try:
        with open(file_reading.open_checked(path), "rb") as file:
            file.seek(max(0, file.seek(0, 2) - _READ_BYTES))
            return file.read(_READ_BYTES)
    except OSError:
        return b""


def _by_node(printed: bytes, nodes: Sequence[str]) -> dict[str, bytes] | None:
    """Return each node's output by the labels of `srun --label`; None if there are none."""
    numbers = [int(found[1]) for found in _LABEL.finditer(printed)]
    if not numbers or not nodes or len(numbers) < printed.count(b"\n") * 0.5:
        return None
    each = max(1, -(-(max(numbers) + 1) // len(nodes)))  # tasks per node in block distribution, Slurm's default
    parts: dict[str, list[bytes]] = {}
    for line in printed.splitlines(keepends=True):
        label = _LABEL.match(line)
        if label is None:  # from the batch script or srun
            parts.setdefault("", []).append(line)
            continue
        node = nodes[min(int(label[1]) // each, len(nodes) - 1)]
        parts.setdefault(node, []).append(_TEE.sub(b"", line[label.end() :]))
    return {node: b"".join(lines) for node, lines in parts.items()}


def _slurm_name(host: str | None, nodes: frozenset[str]) -> str | None:
    """Return Slurm's name of a host; None if it is not a node of the job."""
    if host is None:
        return None
    short = host.partition(".")[0]
    return host if host in nodes else short if short in nodes else None


def _first_task(printed: bytes, nodes: Sequence[str]) -> Task | None:
    """Return the first task that failed by itself, not one that srun stopped afterwards."""
    failed = []
    for found in _TASK.finditer(printed):
        code = _EXITED.search(found["how"])
        number = int(code[1]) if code else next((c for word, c in _SIGNALS.items() if word in found["how"]), None)
        with contextlib.suppress(ValueError):
            names = hostlist.expand(found["nodes"].decode("ascii", "replace"))
            if not nodes or set(names) <= set(nodes):
                failed.append(Task(hostlist.fold(names), found["tasks"].decode("ascii", "replace"), number))
    own = [task for task in failed if task.code not in (137, 143, None)]
    return next(iter(own or failed), None)


def _ended_ranks(fallen: Sequence[tuple[str | None, FailedRank]], task: Task | None) -> tuple[EndedRank, ...]:
    """Return every rank in a launcher's table, with its node; the first one to fail on any node is marked."""
    roots = [(node, rank) for node, rank in fallen if rank.first]
    marked: frozenset[int] = frozenset()
    if roots:
        earliest = min((rank.at or "9" for _, rank in roots))
        at_once = [one for one in roots if (one[1].at or "9") == earliest]
        own = [one for one in at_once if one[1].exit_code not in _CONSEQUENCES] or at_once
        by_srun = [one for one in own if task is not None and one[0] == task.node] or own
        marked = frozenset({by_srun[0][1].rank})
    ranks: dict[int, EndedRank] = {}
    for node, rank in fallen:
        where = node or (task.node if task is not None and rank.first and len(roots) == 1 else rank.host)
        one = EndedRank(
            rank.rank,
            rank.exit_code,
            rank.rank in marked,
            rank.local_rank,
            where,
            rank.pid,
            at=rank.at,
            error=rank.error,
        )
        before = ranks.get(rank.rank)
        ranks[rank.rank] = one if before is None else replace(before, host=before.host or one.host)
    return tuple(ranks[number] for number in sorted(ranks))
