"""Do the ranks of a run keep each other waiting, across its nodes?

At the same moments each node asks its ranks for their last steps and collectives, and stores them in its folder. The
first node of a Slurm job or of nodes that share a --log-dir, or the machine from which hosts were reached with ssh,
joins them and compares all ranks, as on one machine. Clocks of nodes may differ: if the kernel of a node does not
report its clock as synchronized, it is set by the moments at which the optimizers begin, which is when the last
collective of a step has completed on all ranks.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

from mgpu.hangs.hang_files import is_of_node, node_folders
from mgpu.launch import node_ranks, pace_report
from mgpu.launch.pace_watch import EVERY_S, Ended, PaceWatch, Supervised, Times
from mgpu.process.boot import boot_id
from mgpu.snapshot import Pace, fact_file

NAME = "steps.json"
_LARGEST = 16 << 20
_JOIN_S = 3.0  # between two looks at what the nodes have stored
_EACH_NODES = 32  # so many more nodes, and the ranks are asked less often
_LEAST_STEPS = 5  # to set a clock by
_MOST_SPREAD = 0.03  # of a step: what the moments at which optimizers begin on two nodes may vary in 3 of 4 steps
_FAR = 0.5  # of a step: clocks that differ by more are not synchronized, whatever the kernels report
_TIME_ERROR = 5  # adjtimex(2): the clock is not synchronized
_TIMEX_BYTES = 512  # struct timex has 208


@dataclass(frozen=True)
class RankTimes:
    """What one rank has recorded of its last steps."""

    rank: int
    steps: tuple[tuple[int, float, float, float, float], ...]  # number, and the fields of `Ended`
    starts: tuple[tuple[str, int, float], ...]  # of collectives: process group, number, when


@dataclass(frozen=True)
class NodeTimes:
    """What the ranks of one node have recorded, all of them asked at the same moment."""

    round: int  # number of the moment
    machine: str  # its boot ID: nodes with the same one have one clock
    synchronized: bool  # its clock, according to the kernel
    ranks: tuple[RankTimes, ...]


class StoredPace(PaceWatch):
    """Asks the ranks of one node, and stores their steps; ranks of the same node are compared with each other too."""

    fewest = 1

    def __init__(self, local: Path, folder: Path, nodes: int, expected: int = 0) -> None:
        """`local`: with the recorder. `folder`: of this node. `nodes`: of the run. `expected`: ranks of this node."""
        self._every = _pause_s(nodes)
        super().__init__(local, expected)
        self._folder = folder

    def pause(self, seconds: float) -> float:
        """Return the seconds until the next moment at which all nodes ask their ranks."""
        del seconds
        return self._every - time.time() % self._every

    def take(self, times: Times, supervisor: Supervised) -> None:
        """Store the steps of this node's ranks."""
        write(self._folder, NodeTimes(int(time.time() // self._every), boot_id(), _is_synchronized(), _recent(times)))
        if self.expected > 1:
            super().take(times, supervisor)


class PaceOfPart(StoredPace):
    """Of a run whose nodes were started with --node-rank: the first compares all, if they share a --log-dir."""

    def __init__(self, folder: Path, node: int, nodes: int, ranks: int, world: int) -> None:
        """`folder`: of this node. `ranks`: of this node. `world`: of the run."""
        super().__init__(folder, folder, nodes, ranks)
        self._node, self._nodes = node, nodes
        self._all = PaceOfNodes(folder.parent, nodes, world, _host_in) if node == 0 else None
        if self._all is not None:
            self._all.says, self._all.reports = True, folder

    def tick(self, supervisor: Supervised) -> None:
        """Ask the ranks, or join what all nodes have stored, if it is time to."""
        super().tick(supervisor)
        if self._all is not None and self.are_joined():
            self._all.tick(supervisor)

    def are_joined(self) -> bool:
        """Whether all nodes write to the same folder."""
        return bool(is_of_node(self._folder)) and len(node_folders(self._folder.parent)) >= self._nodes

    def result(self) -> Pace | None:
        """Return the pace of the ranks of all nodes if they were compared, else of this node's."""
        return (self._all.result() if self._all is not None else None) or super().result()

    def gap(self) -> str:
        """Return what could not be compared, and how it can be; "" if the nodes were joined or had nothing to compare.

        Each node says it about itself: none of them knows what the others were given.
        """
        if self.are_joined() or read(self._folder) is None:
            return ""
        return (
            f"node {self._node} of {self._nodes}: the steps of the other nodes are not known here, so a slow node was "
            "not looked for. Give all nodes the same --log-dir on a disk that they share, or start with --hosts."
        )


class NodePace(StoredPace):
    """Of a Slurm job: stores the steps of one node; on the first node, compares those of all."""

    def __init__(self, local: Path, folder: Path, nodes: int, *, first: bool) -> None:
        """See `StoredPace`; `folder` is shared."""
        super().__init__(local, folder, nodes)
        self.world = 0  # ranks of the job
        self._all = PaceOfNodes(folder.parent, nodes) if first else None

    def take(self, times: Times, supervisor: Supervised) -> None:
        """Store the steps of this node's ranks; they are compared with those of all nodes."""
        write(self._folder, NodeTimes(int(time.time() // self._every), boot_id(), _is_synchronized(), _recent(times)))

    def tick(self, supervisor: Supervised) -> None:
        """Ask the ranks, or join what all nodes have stored, if it is time to."""
        super().tick(supervisor)
        if self._all is not None:
            self._all.expected = self.world
            self._all.tick(supervisor)


class PaceOfNodes(PaceWatch):
    """Compares what all nodes have stored, once it is of the same moment."""

    def __init__(
        self, shared: Path, nodes: int, world: int = 0, host_of: Callable[[Path], str | None] = lambda place: None
    ) -> None:
        """`shared`: with the folders of the nodes. `host_of`: the host whose folder this is."""
        super().__init__(shared, world)
        self._every, self._host_of = _pause_s(nodes), host_of
        self.says = False  # whether a rank that keeps the others waiting is reported from here
        self._joined, self._look_at = 0, 0.0
        self._hosts: dict[int, str | None] = {}

    def tick(self, supervisor: Supervised) -> None:
        """Join what the nodes have stored, if it is time to."""
        if self._clock() < self._look_at:
            return
        self._look_at = self._clock() + _JOIN_S
        stored = {place: found for place in node_folders(self.folder) if (found := read(place)) is not None}
        last = max((node.round for node in stored.values()), default=0)
        nodes = {place: node for place, node in stored.items() if node.round == last != self._joined}
        if not nodes or sum(len(node.ranks) for node in nodes.values()) != self.expected or self.expected < 2:
            return
        self._joined = last
        self._look_at = self._clock() + _JOIN_S + self._every - time.time() % self._every
        self._hosts = {rank.rank: self._host_of(place) for place, node in nodes.items() for rank in node.ranks}
        if (times := joined(list(nodes.values()))) is not None and len(times.ends) == self.expected:
            self.take(times, supervisor)

    def _report(self, pace: Pace, supervisor: Supervised) -> None:
        """Report it, unless what follows the run does (rank_follower.py)."""
        if self.says:
            super()._report(pace, supervisor)

    def result(self) -> Pace | None:
        """Return the pace of all compared steps, with the host of each rank; None if there were too few."""
        pace = super().result()
        if pace is None:
            return None
        return replace(pace, ranks=tuple(replace(one, host=self._hosts.get(one.rank)) for one in pace.ranks))


def _pause_s(nodes: int) -> float:
    return EVERY_S * -(-nodes // _EACH_NODES)


def write(folder: Path, times: NodeTimes) -> None:
    """Store the steps of a node's ranks."""
    fact_file.write(folder / NAME, asdict(times))


def read(folder: Path) -> NodeTimes | None:
    """Return the steps of a node's ranks; None if there are none, or if they cannot be read."""
    return fact_file.read(folder / NAME, NodeTimes, most=_LARGEST)


def remove(folder: Path) -> None:
    """Remove what an earlier training of the job has left."""
    for path in (folder / NAME, folder.parent / pace_report.NAME):
        fact_file.remove(path)


def joined(nodes: Sequence[NodeTimes]) -> Times | None:
    """Return the steps of the ranks of all nodes, by the clock of the first; None if the clocks cannot be compared."""
    ends: dict[int, Mapping[int, Ended]] = {}
    starts: dict[int, Mapping[tuple[str, int], float]] = {}
    for node in nodes:
        ahead = _clock_difference(nodes[0], node)
        if ahead is None:
            return None
        for rank in node.ranks:
            ends[rank.rank] = {number: Ended(at - ahead, *rest) for number, at, *rest in rank.steps}
            starts[rank.rank] = {(group, number): at - ahead for group, number, at in rank.starts}
    return Times(ends, starts)


def _recent(times: Times) -> tuple[RankTimes, ...]:
    """Return what can be compared: the steps since the first collective that a rank still has."""
    found = []
    for rank, known in times.ends.items():
        since = min(times.starts[rank].values(), default=float("inf"))
        steps = tuple((number, *ended) for number, ended in sorted(known.items()) if ended.at >= since)
        starts = tuple((group, number, at) for (group, number), at in times.starts[rank].items())
        found.append(RankTimes(rank, steps, starts))
    return tuple(found)


def _host_in(folder: Path) -> str | None:
    """Return the host that a node has stored with its ranks."""
    found = node_ranks.read(folder)
    return found.ranks[0].host if found and found.ranks else None


# Clocks


def _is_synchronized() -> bool:
    try:
        state: int = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return False
    return 0 <= state < _TIME_ERROR


def _clock_difference(first: NodeTimes, other: NodeTimes) -> float | None:
    """Return by how many seconds the clock of a node is ahead of the first node's; None if that is not known."""
    if other is first or (first.machine and first.machine == other.machine):
        return 0.0
    here, there = _optimizers_begin(first), _optimizers_begin(other)
    common = sorted(here.keys() & there.keys())
    if len(common) < _LEAST_STEPS:
        return None
    ahead = median(there[number] - here[number] for number in common)
    step_s = (here[common[-1]] - here[common[0]]) / max(1, common[-1] - common[0])
    if first.synchronized and other.synchronized and abs(ahead) < _FAR * step_s:
        return 0.0
    deviations = sorted(abs(there[number] - here[number] - ahead) for number in common)
    return ahead if deviations[len(common) * 3 // 4] <= _MOST_SPREAD * step_s else None


def _optimizers_begin(node: NodeTimes) -> dict[int, float]:
    """Return when the optimizers of a node have begun, by the number of the step: the median of its ranks."""
    begins: dict[int, list[float]] = {}
    for rank in node.ranks:
        known = {number: Ended(*rest) for number, *rest in rank.steps}
        for number, ended in known.items():
            if before := known.get(number - 1):
                took = ended.optimizer_s - before.optimizer_s
                begins.setdefault(number, []).append(ended.at - took)
    return {number: median(found) for number, found in begins.items() if len(found) == len(node.ranks)}
