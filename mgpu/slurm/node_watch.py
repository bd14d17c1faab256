"""Watch the ranks of a Slurm job on this node: the process of `job_watch` that runs on each node.

If they make no progress, it asks them what they do and writes that to the folder of this node, which all nodes and the
submitting machine share. The first node joins what all have found, as FOLDER/hang.json: the verdict. On a request
(`mgpu launch --why JOB`) it asks the ranks at once.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType

from mgpu import file_reading
from mgpu.errors import reason
from mgpu.launch import hang_evidence, hang_files, why
from mgpu.launch.hang_watch import HangWatch, OnHang
from mgpu.launchers import run_folder
from mgpu.process import processes
from mgpu.recorder.inject._mgpu_recorder import FOLDER, folder_in, make_own
from mgpu.scheduler import submit
from mgpu.snapshot import Hang

ANSWER = "answer.json"
REQUEST = "ask"  # the number of the last request, in a file that exists from the start: NFS caches that there is none
_NODE = run_folder.Kind("watch", "node-", (hang_files.NAME, ANSWER))
_TICK_S = 1.0
_FIND_S = 5.0  # between two searches for ranks, once all are known
_MOST_DIGITS = 12
_RECORDED = re.compile(r"(\d{1,7})\.(\d{1,7})\.(stacks|beat)")  # rank, pid


class NodeRun:
    """The ranks of the job on this node: what a supervisor is to a watch."""

    def __init__(self, recorded: Path, output: Path | None, job: str) -> None:
        """`output`: the file of the job's output."""
        self.recorded, self._output, self._job = recorded, output, job
        self.ranks: Mapping[int, processes.Rank] = {}
        self.generation = 0  # of the ranks: a job may train several times
        self.last_output = time.monotonic()
        self.timed_out = False
        self._written = self._found_at = 0.0

    def look(self, expected: int) -> None:
        """Find the ranks, and whether the job has printed something."""
        now = time.monotonic()
        if len(self.ranks) < expected or now - self._found_at >= _FIND_S:
            self._found_at = now
            found, before = ranks_in(self.recorded), {rank.pid for rank in self.ranks.values()}
            if found and not before & {rank.pid for rank in found.values()}:
                self.generation += 1
                self.ranks = found
            else:
                self.ranks = {**self.ranks, **found}  # one that has ended may be why the others wait
        if self._output is not None:
            with contextlib.suppress(OSError):
                written = self._output.stat().st_mtime
                if written != self._written:
                    self._written, self.last_output = written, now

    def are_gone(self) -> bool:
        """Whether none of the ranks exists any more."""
        return all(processes.state_of(rank.pid) in (None, "ended") for rank in self.ranks.values())

    def say(self, text: str, *, at_once: bool = False, important: bool = False) -> None:
        """Write to the log of the watch."""
        del at_once, important
        print(f"{os.environ.get('SLURMD_NODENAME')}: {text}", flush=True)

    def is_insisted(self) -> bool:
        """No user is here."""
        return False

    def stop(self, number: int = signal.SIGTERM, why: str = "") -> None:
        """Cancel the job."""
        self.say(f"cancelling job {self._job}: {why} {submit.cancel(int(self._job))}")


def ranks_in(recorded: Path) -> dict[int, processes.Rank]:
    """Return the ranks that record themselves in a folder and are running: no worker that they have started."""
    with contextlib.suppress(OSError):
        names = [match for path in recorded.iterdir() if (match := _RECORDED.fullmatch(path.name))]
        known = {(int(one[1]), int(one[2])) for one in names}
        counts = {(int(one[1]), int(one[2])) for one in names if one[3] == "beat"}
        alive = {key for key in known if _records(key[1], recorded)}
        first = {key for key in alive if (key[0], processes.parent_of(key[1]) or 0) not in alive}
        # A rank that has joined a process group, before a program that has the same rank in its environment.
        return {rank: processes.Rank(pid) for rank, pid in sorted(first, key=lambda key: key in counts)}
    return {}


def _records(pid: int, recorded: Path) -> bool:
    """Whether a process is one of this job's, and not another one with its number."""
    given = {os.fsdecode(name): os.fsdecode(value) for name, value in processes.environment(pid).items()}
    return FOLDER in given and folder_in(given) == str(recorded) and processes.state_of(pid) not in (None, "ended")


class NodeWatch:
    """Watches one node."""

    def __init__(
        self, folder: Path, local: Path, run: NodeRun, after_s: float, on_hang: OnHang, *, first: bool
    ) -> None:
        """`folder`: of this node, shared. `local`: with the recorder. `first`: this node gives the verdict."""
        self.folder, self._local, self._run, self._first = folder, local, run, first
        self._after_s, self._on_hang = after_s, on_hang
        self._watch, self._generation = self._new_watch(), 0
        self._shown: Hang | None = None
        self._answered = self._request()

    def _new_watch(self) -> HangWatch:
        on_hang: OnHang = self._on_hang if self._first else "report"
        watch = HangWatch(self._local, 0, 0, after_s=self._after_s, on_hang=on_hang)
        watch.reports = self.folder
        return watch

    def tick(self) -> None:
        """Look at the ranks once."""
        self._run.look(self._watch.expected)
        if self._run.generation != self._generation:
            self._watch, self._generation = self._new_watch(), self._run.generation
        self._count()
        # After the training, the job may do something else for hours; unless ranks of other nodes still wait.
        if not self._run.are_gone() or (self._first and hang_files.of_other_nodes(self.folder)):
            self._watch.tick(self._run)
        verdict = self._watch.verdict
        if self._first and verdict is not self._shown:
            self._shown = verdict
            hang_files.remove(self.folder.parent) if verdict is None else hang_files.write(self.folder.parent, verdict)
        number = self._request()
        if number > self._answered and self._run.ranks:
            self._answered = number
            self._answer()

    def _count(self) -> None:
        """Read from a rank how many there are."""
        pid = next((rank.pid for rank in self._run.ranks.values()), None)
        if pid is None or self._watch.expected:
            return
        given = processes.environment(pid)
        world = given.get(b"WORLD_SIZE", b"") or given.get(b"SLURM_STEP_NUM_TASKS", b"")
        here = given.get(b"LOCAL_WORLD_SIZE", b"")
        self._watch.expected = int(here) if here.isdigit() else len(self._run.ranks)
        self._watch.world = int(world[:_MOST_DIGITS]) if world.isdigit() else self._watch.expected

    def _request(self) -> int:
        """Return the number of the last request."""
        with contextlib.suppress(OSError, ValueError):
            return int(file_reading.read_part(self.folder.parent / REQUEST, most=_MOST_DIGITS, start=0))
        return 0

    def _answer(self) -> None:
        """Ask the ranks what they do now. The time of the file is the number of the request."""
        part = why.Part(self._local, dict(self._run.ranks), self._watch.expected)
        hang = why.ask(why.Subject("", None, (part,))).hang
        quiet = min(hang.quiet_s, round(time.monotonic() - self._run.last_output, 1))
        hang_files.write(self.folder, replace(hang, quiet_s=quiet, world=self._watch.world), ANSWER)
        with contextlib.suppress(OSError):
            os.utime(self.folder / ANSWER, (self._answered, self._answered))


def main() -> None:
    """Watch until Slurm ends the step. Arguments: the folder, seconds, report or stop, the job's output."""
    shared, after_s, on_hang, output = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4]
    environ = dict(os.environ)
    node, job = environ["SLURMD_NODENAME"], environ["SLURM_JOB_ID"]
    local = Path(f"/tmp/mgpu-{os.geteuid()}-{job}-{node}")
    try:
        make_own(str(local / hang_evidence.RECORDED))
    except OSError as error:  # of another user, or the disk is full; the ranks do not record here either
        print(f"{node}: {reason(error)}", flush=True)
        local = Path(os.devnull, "none")
    folder = shared / f"node-{node}"
    first = environ.get("SLURM_NODEID") == "0"
    with contextlib.suppress(FileExistsError):  # of an earlier run of a job that was requeued
        run_folder.make_below(folder, _NODE)
    for place in (folder, *([shared] if first else [])):
        hang_files.remove(place)
    if first:
        (shared / REQUEST).touch(0o600)
    signal.signal(signal.SIGTERM, _end)
    run = NodeRun(local / hang_evidence.RECORDED, Path(output) if os.path.isfile(output) else None, job)
    watch = NodeWatch(folder, local, run, after_s, "stop" if on_hang == "stop" else "report", first=first)
    try:
        while True:
            watch.tick()
            time.sleep(_TICK_S)
    finally:
        shutil.rmtree(local, ignore_errors=True)


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(0)
