"""Which ranks does the launcher report as failed: in torchrun's table and lines, accelerate's single process, srun?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from mgpu import hostlist
from mgpu.known_launchers import KNOWN, PROGRAMS
from mgpu.readers.log.line import LONGEST_TEXT, Line
from mgpu.secrets_masking import masked
from mgpu.snapshot import FailedRank

_START = "Root Cause (first observed failure)"
_SCRIPT = re.compile(r"(?P<script>\S+\.py) FAILED$")  # the title of the table
_FIELD = re.compile(r"\s+(time|host|rank|exitcode|error_file|traceback)\s*:\s*(.*)$")
_RANK = re.compile(r"(\d{1,9})\b(?: \(local_rank: (\d{1,9})\))?")
_CODE = re.compile(r"(-?\d{1,9})\b(?: *\(pid: (\d{1,9})\))?")
# failed (exitcode: -9) local_rank: 2 (pid: 4711) of binary: /usr/bin/python
_SINGLE = re.compile(r"failed \(exitcode: (-?\d{1,9})\) local_rank: (\d{1,9}) \(pid: (\d{1,9})\) of")
# A command started by accelerate's launcher: its Python, or another launcher. A script's own commands are not ranks.
_PROGRAMS = "|".join((r"python[\d.]*", r"pypy[\d.]*", *PROGRAMS, "mpirun"))
STARTED = re.compile(rf"Command (?:'?\[)?'?(?:[^',\s]*/)?(?:{_PROGRAMS})(?=['\s])")
# What torchrun and torch.multiprocessing raise when one of their processes has failed: never the cause.
LAUNCHER_EXCEPTIONS = frozenset(
    {
        "ChildFailedError",
        "ProcessRaisedException",
        "ProcessExitedException",
        "PapermillExecutionError",
        "CellExecutionError",
    }
)  # the last two: of a notebook
_LAUNCHERS = [known for known in KNOWN.values() if known.started]
# The first line in which a launcher reports that a rank has failed. `frames[:1]`: the frame of its entry point.
FAILURE_REPORT = re.compile(
    rf"^.*(?:{'|'.join(pattern for known in _LAUNCHERS for pattern in known.says)})|"
    r"^Traceback.*\n(?:  File .*\n(?:    .*\n)?){1,3}?"
    rf"  File .*(?:{'|'.join(frame for known in _LAUNCHERS for frame in known.frames[:1])})",
    re.M,
)
_PROCESS_ERROR = re.compile(
    rf"CalledProcessError: {STARTED.pattern}.*"
    r"(?:returned non-zero exit status (\d{1,9})\.|died with <Signals\.\w+: (\d{1,9})>)"
)
# Without another launcher, a task of srun is a rank: https://slurm.schedmd.com/srun.html (SLURM_PROCID).
_TASKS = re.compile(
    r"^srun: error: (?P<host>[^\s:]+): tasks? (?P<tasks>[\d,-]{1,4000}): "
    r"(?:Exited with exit code (?P<code>\d{1,3})|(?P<signal>Killed|Segmentation fault|Aborted|Bus error|Out Of Memory))"
)
_SIGNALS = {"Killed": -9, "Out Of Memory": -9, "Segmentation fault": -11, "Aborted": -6, "Bus error": -7}
_TASKS_KEPT = 1000


@dataclass
class Tables:
    """The failed ranks that launchers report in one file."""

    open: dict[str, str] | None = None
    root: bool = False
    fallen: dict[int, FailedRank] = field(default_factory=dict)
    single: dict[int, FailedRank] = field(default_factory=dict)
    tasks: dict[int, FailedRank] = field(default_factory=dict)
    script: str | None = None  # as torchrun's command named it

    @property
    def waiting(self) -> bool:
        """Whether the next lines can belong to a table."""
        return self.open is not None

    def take(self, line: Line) -> None:
        """Process the next line that can belong to a table."""
        text = line.text
        if text.startswith(_START):
            self._entry()
            self.open, self.root = {}, True
        elif text.startswith("Failures:"):
            self.open, self.root = {}, False
        elif found := _SCRIPT.match(text):
            self.script = self.script or found["script"]
        elif found := _SINGLE.search(text):
            code, local, pid = map(int, found.groups())
            self.single[local] = FailedRank(local, code, False, local, None, pid, line.at)
        elif found := _PROCESS_ERROR.search(text):
            self.single[0] = FailedRank(0, int(found[1]) if found[1] else -int(found[2]), True, 0)
        elif found := _TASKS.match(text):
            self._failed_tasks(found, line)
        elif self.open is not None:
            self._within(text)

    def failed_tasks(self) -> tuple[FailedRank, ...]:
        """Return the failed tasks of srun, which are ranks if no launcher reports any."""
        return () if self.fallen or self.single else tuple(self.tasks.values())

    def ranks(self) -> tuple[FailedRank, ...]:
        """Return the failed ranks from the table or, without one, from single lines."""
        self._entry()
        self.open = None
        return tuple((self.fallen or self.single).values())

    def _failed_tasks(self, found: re.Match[str], line: Line) -> None:
        """Store the tasks in a line of srun. If several failed together, the first one is not known."""
        tasks = [int(name[1:]) for name in hostlist.expand(f"t[{found['tasks']}]")[:_TASKS_KEPT] if name[1:].isdigit()]
        code = _SIGNALS[found["signal"]] if found["signal"] else int(found["code"])
        for task in tasks if code else ():
            first = not self.tasks and len(tasks) == 1
            self.tasks.setdefault(task, FailedRank(task, code, first, host=found["host"], at=line.at))

    def _within(self, text: str) -> None:
        if found := _FIELD.match(text):
            if found[1] in (self.open or {}):
                self._entry()
            assert self.open is not None
            self.open[found[1]] = found[2]
        elif text.startswith("====="):
            self._entry()
            self.open = None
        elif re.match(r"\[\d+\]:|-----", text):
            self._entry()

    def _entry(self) -> None:
        """Store the entry of one rank, if it is complete."""
        entry, self.open = self.open or {}, {}
        rank, code = _RANK.match(entry.get("rank", "")), _CODE.match(entry.get("exitcode", ""))
        if rank is None or code is None:
            return
        error = entry.get("traceback", "").strip()
        message = error if error and not error.startswith(("To enable traceback", "Signal ")) else None
        self.fallen[int(rank[1])] = FailedRank(
            int(rank[1]),
            int(code[1]),
            self.root,
            int(rank[2]) if rank[2] else None,
            entry.get("host") or None,
            int(code[2]) if code[2] else None,
            entry["time"].replace("_", "T", 1) if entry.get("time") else None,
            masked(message)[:LONGEST_TEXT] if message else None,
        )


def add_failed(fallen: dict[int, FailedRank], ranks: Iterable[FailedRank]) -> None:
    """Add the ranks of a file to those of the others; a file in which a rank is the first to fail knows best."""
    for rank in ranks:
        before = fallen.get(rank.rank)
        if before is None or (rank.first and not before.first):
            fallen[rank.rank] = rank
