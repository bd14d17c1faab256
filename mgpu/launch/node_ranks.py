"""The memory of the ranks of a run, and their first values that are not finite: of each node, and of all."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from mgpu.hangs.hang_files import node_folders
from mgpu.launch import pace_report, rank_facts
from mgpu.launch.pace_watch import Supervised
from mgpu.process import processes
from mgpu.snapshot import EndedRank, NotFinite, Run, fact_file

NAME = "ranks.json"
_LARGEST = 4 << 20
_EVERY_S = 10.0  # between two files of a node, while the ranks run
LAST_S = 3.0  # until what the nodes store last is here: the ranks have just ended, and NFS caches
_POLL_S = 0.1
_MOST_RANKS = 1 << 16


@dataclass(frozen=True)
class NodeRanks:
    """What the ranks of one node have recorded so far."""

    ranks: tuple[EndedRank, ...]  # with their memory; how they ended is not known here
    not_finite: tuple[NotFinite, ...] | None
    world: int  # ranks of the run; 0: not known
    ended: bool  # none of them runs any more


class RankRecords:
    """Collects on one node what its ranks record."""

    def __init__(self, local: Path, folder: Path, node: str) -> None:
        """`local`: with the recorder. `folder`: of this node, shared."""
        self._local, self._folder, self._node = local, folder, node
        self._memory = rank_facts.PeakMemory()
        self._ranks: dict[int, processes.Rank] = {}
        self._stored: NodeRanks | None = None
        self._stored_at = 0.0

    def tick(self, ranks: Mapping[int, processes.Rank], world: int, *, ended: bool) -> None:
        """Read the memory of the ranks, and store what is new: at once a NaN and their end, else now and then."""
        self._ranks.update(ranks)
        for rank, process in ranks.items():
            self._memory.look(rank, process.pid)
        now, not_finite = time.monotonic(), rank_facts.not_finite(self._local)
        is_news = self._stored is not None and not_finite != self._stored.not_finite
        if not self._ranks or (not ended and not is_news and now - self._stored_at < _EVERY_S):
            return
        found = NodeRanks(
            tuple(self._rank(rank, process) for rank, process in sorted(self._ranks.items())),
            not_finite,
            world,
            ended,
        )
        self._stored_at = now
        if found != self._stored:
            self._stored = found
            fact_file.write(self._folder / NAME, asdict(found))

    def _rank(self, rank: int, process: processes.Rank) -> EndedRank:
        peaks = self._memory.of(self._local, rank, process.pid)
        raised, raised_at = rank_facts.raised(self._local, rank, process.pid)
        return EndedRank(
            rank,
            local_rank=process.local_rank,
            host=self._node,
            pid=process.pid,
            peak_bytes=peaks.host or None,
            peak_allocated_bytes=peaks.allocated,
            peak_reserved_bytes=peaks.reserved,
            error=raised,
            raised_at=raised_at,
            values=rank_facts.values(self._local, rank, process.pid),
        )


class NodeRecords:
    """The records of one node's part of a run, which are stored beside its log."""

    def __init__(self, folder: Path, world: int) -> None:
        """`folder`: of this node. `world`: ranks of the run."""
        self._records = RankRecords(folder, folder, socket.gethostname())
        self._world = world
        self._ranks: Mapping[int, processes.Rank] = {}

    def tick(self, supervisor: Supervised) -> None:
        """Store what is new."""
        self._ranks = supervisor.ranks
        self._records.tick(self._ranks, self._world, ended=False)

    def end(self) -> None:
        """Store what the ranks have recorded last: they have ended."""
        self._records.tick(self._ranks, self._world, ended=True)


def read(folder: Path) -> NodeRanks | None:
    """Return what a node has stored; None if it has not, or if that cannot be read."""
    return fact_file.read(folder / NAME, NodeRanks, most=_LARGEST)


def remove(folder: Path) -> None:
    """Remove what an earlier run of a job that was requeued has left."""
    fact_file.remove(folder / NAME)


def with_records(
    run: Run,
    folder: Path | None,
    *,
    wait_s: float = 0.0,
    host_of: Callable[[Path], str | None] = lambda place: None,
) -> Run:
    """Return a run with what its nodes have stored in the folder that they share; None: it has no recorder.

    `wait_s`: how long to wait for nodes whose ranks have just ended. `host_of`: the host whose folder this is, if its
    name is another than its own.
    """
    if folder is None:
        return run
    until = time.monotonic() + wait_s
    while True:
        places = {place: found for place in node_folders(folder) if (found := read(place)) is not None}
        nodes = list(places.values())
        if all(node.ended for node in nodes) or time.monotonic() >= until:
            break
        time.sleep(_POLL_S)
    world = min(max((node.world for node in nodes), default=0), _MOST_RANKS)
    known = {number: EndedRank(number) for number in range(world)} | {rank.rank: rank for rank in run.ranks}
    for place, node in places.items():
        ranks = (replace(rank, host=host_of(place) or rank.host) for rank in node.ranks)
        known |= {rank.rank: _with_memory(known.get(rank.rank), rank) for rank in ranks}
    seen = [one for node in nodes for one in node.not_finite or ()]
    return replace(
        run,
        ranks=tuple(known[number] for number in sorted(known)),
        expected=max(run.expected or 0, len(known)) or None,
        pace=pace_report.read(folder),
        not_finite=tuple(sorted(seen, key=rank_facts.order)) if nodes else None,
    )


def _with_memory(ended: EndedRank | None, recorded: EndedRank) -> EndedRank:
    """Return how a rank has ended, according to the launcher, with the memory that it has recorded."""
    ended = ended or EndedRank(recorded.rank)
    return replace(
        ended,
        local_rank=recorded.local_rank if ended.local_rank is None else ended.local_rank,
        host=ended.host or recorded.host,
        pid=ended.pid or recorded.pid,
        peak_bytes=recorded.peak_bytes,
        peak_allocated_bytes=recorded.peak_allocated_bytes,
        peak_reserved_bytes=recorded.peak_reserved_bytes,
        raised_at=recorded.raised_at,
        values=recorded.values,
    )
