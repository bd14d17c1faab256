"""Watch the ranks of a Slurm job on this node: the process of `job_watch` that runs on each node.

If they make no progress, it asks them what they do and writes that to the folder of this node, which all nodes and the
submitting machine share. The first node joins what all have found, as FOLDER/hang.json: the verdict. On a request
(`mgpu launch --why JOB`) it asks the ranks at once. The memory of the ranks, their values that are not finite, and
their steps go to the same folders.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

from mgpu.errors import reason
from mgpu.hangs import hang_evidence, hang_files
from mgpu.hangs.hang_watch import HangWatch, OnHang
from mgpu.launch import node_answers, node_pace, node_ranks, why, why_subject
from mgpu.launch.node_pace import NodePace
from mgpu.launchers import run_folder
from mgpu.process import processes
from mgpu.scheduler import submit
from mgpu.slurm import node_files
from mgpu.snapshot import Hang

_NODE = run_folder.Kind("watch", "node-", (hang_files.NAME, node_answers.ANSWER, node_ranks.NAME, node_pace.NAME))
_TICK_S = 1.0
_FIND_S = 5.0  # between two searches for ranks, once all are known
_MOST_DIGITS = 12
_RECORDED = re.compile(r"(\d{1,7})\.(\d{1,7})\.(stacks|beat)")  # rank, pid
_STARTS = 3  # of the process that watches, if the kernel kills it
_ENDING_S = 1.0  # for the ranks to end: Slurm stops all steps at once
_UNDONE_S = 5.0  # before the end: progress that was only the end of the job
_LAST_S = 5.0  # for the process that watches to store what it has: the shared folder may not answer
_SIGNALS = (signal.SIGTERM, signal.SIGCHLD)


class NodeRun:
    """The ranks of the job on this node: what a supervisor is to a watch."""

    def __init__(self, recorded: Path, output: Path | None, job: str) -> None:
        """`output`: the file of the job's output."""
        self.recorded, self._output, self._job = recorded, output, job
        self.ranks: Mapping[int, processes.Rank] = {}
        self.generation = 0  # of the ranks: a job may train several times
        self.started = self.last_output = time.monotonic()
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
        alive = {key for key in known if node_files.is_recorded(key[1], recorded)}
        first = {key for key in alive if (key[0], processes.parent_of(key[1]) or 0) not in alive}
        # A rank that has joined a process group, before a program that has the same rank in its environment.
        return {rank: processes.Rank(pid) for rank, pid in sorted(first, key=lambda key: key in counts)}
    return {}


@dataclass(frozen=True)
class Node:
    """Where a node of the job keeps what it finds."""

    folder: Path  # of this node, shared
    local: Path  # with the recorder
    name: str
    nodes: int  # of the job
    first: bool  # this node gives the verdict


class NodeWatch:
    """Watches one node."""

    def __init__(self, node: Node, run: NodeRun, after_s: float, on_hang: OnHang) -> None:
        self._node, self._run, self._after_s, self._on_hang = node, run, after_s, on_hang
        self._records = node_ranks.RankRecords(node.local, node.folder, node.name)
        self._watch, self._pace, self._generation = self._new_watch(), self._new_pace(), 0
        self._shown: Hang | None = None
        self._withdrawn: tuple[float, Hang | None] = (0.0, None)  # the last verdict, when there was progress again
        self._answered = node_answers.requested(node.folder.parent)

    def _new_watch(self) -> HangWatch:
        on_hang: OnHang = self._on_hang if self._node.first else "report"
        watch = HangWatch(self._node.local, 0, 0, after_s=self._after_s, on_hang=on_hang)
        watch.reports = self._node.folder
        return watch

    def _new_pace(self) -> NodePace:
        return NodePace(self._node.local, self._node.folder, self._node.nodes, first=self._node.first)

    def tick(self) -> None:
        """Look at the ranks once."""
        self._run.look(self._watch.expected)
        if self._run.generation != self._generation:
            self._watch, self._pace, self._generation = self._new_watch(), self._new_pace(), self._run.generation
        self._count()
        gone = self._run.are_gone()
        # After the training, the job may do something else for hours; unless ranks of other nodes still wait.
        if not gone or (self._node.first and hang_files.of_other_nodes(self._node.folder)):
            self._watch.tick(self._run)
        if not gone:
            self._pace.tick(self._run)
        self.record()
        verdict = self._watch.verdict
        if self._node.first and verdict is not self._shown:
            if verdict is None:
                self._withdrawn = (time.monotonic(), self._shown)
            self._show(verdict)
        number = node_answers.requested(self._node.folder.parent)
        if number > self._answered and self._run.ranks:
            self._answered = number
            self._answer()

    def _show(self, verdict: Hang | None) -> None:
        self._shown, shared = verdict, self._node.folder.parent
        hang_files.remove(shared) if verdict is None else hang_files.write(shared, verdict)

    def end(self) -> None:
        """Store what is known last. What Slurm and the launcher print at the end of a job is no progress."""
        since, verdict = self._withdrawn
        if verdict is not None and self._shown is None and time.monotonic() - since < _UNDONE_S:
            self._show(verdict)
        self.record(at_once=True)

    def record(self, *, at_once: bool = False) -> None:
        """Store what the ranks have recorded, if it is time to."""
        self._records.tick(self._run.ranks, self._watch.world, ended=at_once or self._run.are_gone())

    def _count(self) -> None:
        """Read from a rank how many there are."""
        pid = next((rank.pid for rank in self._run.ranks.values()), None)
        if pid is not None and not self._watch.expected:
            given = processes.environment(pid)
            world = given.get(b"WORLD_SIZE", b"") or given.get(b"SLURM_STEP_NUM_TASKS", b"")
            here = given.get(b"LOCAL_WORLD_SIZE", b"")
            self._watch.expected = int(here) if here.isdigit() else len(self._run.ranks)
            self._watch.world = int(world[:_MOST_DIGITS]) if world.isdigit() else self._watch.expected
        self._pace.expected, self._pace.world = self._watch.expected, self._watch.world

    def _answer(self) -> None:
        """Ask the ranks what they do now."""
        part = why_subject.Part(self._node.local, dict(self._run.ranks), self._watch.expected)
        hang = why.ask(why_subject.Subject("", None, (part,))).hang
        quiet = min(hang.quiet_s, round(time.monotonic() - self._run.last_output, 1))
        found = replace(hang, quiet_s=quiet, world=self._watch.world)
        node_answers.answer(self._node.folder, self._answered, found)


def main() -> None:
    """Watch until Slurm ends the step. Arguments: the folder, seconds, report or stop, the job's output.

    A child watches. If the kernel kills it, there is another one.
    What the ranks have left on this node is removed at the end.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    node, own, child, starts = _prepare(_node(os.environ)), os.getpid(), 0, 0
    while True:
        if not child and starts < _STARTS:
            starts += 1
            child = os.fork() or _watch_as_child(node, own)
        if signal.sigwait(_SIGNALS) == signal.SIGTERM:
            break
        if child and os.waitpid(child, os.WNOHANG)[0]:
            child = 0
    if child:
        os.kill(child, signal.SIGTERM)
        until = time.monotonic() + _LAST_S
        while not os.waitpid(child, os.WNOHANG)[0] and time.monotonic() < until:
            time.sleep(_ENDING_S / 20)
    if trouble := node_files.remove(node.local):
        print(f"{node.local}: {trouble}", flush=True)


def _watch_as_child(node: Node, parent: int) -> NoReturn:
    """Watch until SIGTERM, or until the parent was killed: then nothing else stops it, and Slurm starts a new one."""
    code = 1
    try:
        signal.signal(signal.SIGTERM, _end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        _watch(node, parent)
    except SystemExit:
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _node(environ: Mapping[str, str]) -> Node:
    name, nodes = environ["SLURMD_NODENAME"], environ.get("SLURM_NNODES", "")
    return Node(
        Path(sys.argv[1]) / f"node-{name}",
        node_files.of_job(environ),
        name,
        int(nodes) if nodes.isdigit() else 1,
        environ.get("SLURM_NODEID") == "0",
    )


def _prepare(node: Node) -> Node:
    """Create the folders of this node, and clear what an earlier run of a job that was requeued has left."""
    with contextlib.suppress(FileExistsError):
        run_folder.make_below(node.folder, _NODE)
    for place in (node.folder, *([node.folder.parent] if node.first else [])):
        hang_files.remove(place)
    node_ranks.remove(node.folder)
    node_pace.remove(node.folder)
    if node.first:
        (node.folder.parent / node_answers.REQUEST).touch(0o600)
    node_files.remove_left_over(node.local)
    try:
        node_files.claim(node.local)
    except OSError as error:  # of another user, or the disk is full: the ranks do not record here either
        print(f"{node.local}: {reason(error)}", flush=True)
        return replace(node, local=Path(os.devnull, "none"))
    return node


def _watch(node: Node, parent: int) -> None:
    _, _, after_s, on_hang, output = sys.argv
    printed = Path(output) if os.path.isfile(output) else None
    run = NodeRun(node.local / hang_evidence.RECORDED, printed, os.environ["SLURM_JOB_ID"])
    watch = NodeWatch(node, run, float(after_s), "stop" if on_hang == "stop" else "report")
    try:
        while os.getppid() == parent:
            watch.tick()
            time.sleep(_TICK_S)
    finally:
        until = time.monotonic() + _ENDING_S
        while not run.are_gone() and time.monotonic() < until:
            time.sleep(_ENDING_S / 10)
        watch.end()


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(0)
