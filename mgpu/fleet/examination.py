"""Examine all machines at the same time: the doctor's quick checks, clocks, shared folders, and the network.

Facts only: the result is the fact `fleet`, which `checks/fleet` judges.
"""

from __future__ import annotations

import contextlib
import secrets
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mgpu import files
from mgpu.errors import MgpuError
from mgpu.fleet import artifacts, bad_nodes, route
from mgpu.fleet.workers import Workers
from mgpu.launchers import run_folder
from mgpu.snapshot import Fleet, HostAccess, NodeAddresses, NodeFault
from mgpu.text import counted

if TYPE_CHECKING:
    from mgpu.report.json_types import StageStatus

_CLOCKS = 3  # queries; the one with the fastest answer is the most accurate
_CLOCK_S = 15.0
_MESH_S = 20.0  # the connection test itself ends within 11 s


class Showing(Protocol):
    """Where progress is shown."""

    def say(self, text: str) -> None:
        """Show one line."""

    def asked(self, answered: int, asked: int, waiting: Sequence[str]) -> None:
        """Show how many machines have answered."""


@dataclass(frozen=True)
class Wish:
    """What every machine is asked."""

    config: str | None  # the text of a config to check there
    config_name: str
    own_configs: Mapping[str, str] = field(default_factory=dict, kw_only=True)  # of machines with another one
    cpu: bool  # the ranks will not use GPUs
    folders: tuple[str, ...]  # that all machines must share; empty: none
    files: Mapping[str, str]  # name -> a file that every machine reads itself
    ports: tuple[int, ...]  # for the rendezvous
    nodes: int  # that will run one job
    data: tuple[str, ...] = ()  # paths whose content must be the same everywhere
    project: bool = False  # compare the code in the current folder
    by_name: bool = True  # the machines know each other by the names they have here


@dataclass
class Examination:
    """The examination of all machines, and what it found."""

    workers: Workers
    wish: Wish
    left_s: Callable[[], float]  # raises MgpuError if no time is left
    start_s: float  # for the workers to start
    ended: Callable[[str, StageStatus, str], None]
    progress: Showing
    found: dict[str, Any] = field(default_factory=dict)
    clocks: dict[str, float] = field(default_factory=dict)
    cards: list[dict[str, Any]] = field(default_factory=list)
    paths: list[dict[str, Any]] | None = None
    untried: list[str] = field(default_factory=list)  # folders that are not writable, so no token could be created

    @property
    def busy(self) -> dict[str, Sequence[int]]:
        """Machine -> the ports in use there."""
        return {node: answer["busy"] for node, answer in self.found.items()}

    @property
    def there(self) -> list[str]:
        """The machines that were examined and still answer."""
        return [node for node in self.workers.all_nodes if node in self.found and node not in self.workers.lost]

    def run(self) -> None:
        """Ask all machines."""
        wish, workers = self.wish, self.workers
        with _tokens(wish.folders) as tokens:
            self.untried = [folder for folder in wish.folders if folder not in tokens]
            found = workers.ask(
                {
                    "do": "examine",
                    "name": wish.config_name,
                    "config": wish.config,
                    "own_configs": wish.own_configs,
                    "cpu": wish.cpu,
                    "nodes": wish.nodes,
                    "tokens": tokens,
                    "files": wish.files,
                    "ports": list(wish.ports),
                    "data": list(wish.data),
                    "project": wish.project,
                },
                min(self.left_s(), self.start_s),
                show=self.progress.asked,
            )
        self.left_s()
        broken = {node: answer["error"] for node, answer in found.items() if answer.get("error")}
        for node, text in broken.items():
            workers.lost[node] = f"mgpu doctor failed: {text}"
        self.found = {node: answer for node, answer in found.items() if node not in broken}
        self.clocks = self._clocks()
        answered, count = len(self.there), len(workers.all_nodes)
        self.ended("examine", "fail" if workers.lost else "ok", f"{answered} of {counted(count, 'node')} answered")
        self.cards, self.paths = self._network()

    def _clocks(self) -> dict[str, float]:
        """Return each node's clock offset from the median in seconds, assuming half the round trip for each way."""
        best: dict[str, tuple[float, float]] = {}
        for _ in range(_CLOCKS):
            asked = time.time()
            answers = self.workers.ask({"do": "clock"}, min(self.left_s(), _CLOCK_S))
            for node, answer in answers.items():
                way = answer["heard"] - asked
                if node not in best or way < best[node][0]:
                    best[node] = (way, answer["time"] - asked - way / 2)
        middle = statistics.median([offset for _, offset in best.values()]) if best else 0.0
        return {node: round(offset - middle, 3) for node, (_, offset) in best.items()}

    def _network(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
        """Test whether every node reaches the others, with the rendezvous on the first node that is left."""
        if len(self.workers.nodes) < 2:
            self.ended("network", "skip", "one node" if self.workers.nodes else "no node answered")
            return [], None
        from mgpu.fleet import connectivity

        head = self.workers.nodes[0]
        self.progress.say(f"connect: {len(self.workers.nodes)} nodes, rendezvous on {head}")
        ports = [port for port in self.wish.ports if port not in self.busy.get(head, ())] or [self.wish.ports[0]]
        command = {"do": "listen", "head": head, "ports": ports, "cpu": self.wish.cpu}
        listening = self.workers.ask(command, min(self.left_s(), _MESH_S), show=self.progress.asked)
        cards = [listening[node]["card"] for node in self.workers.all_nodes if "card" in listening.get(node, {})]
        walked = self.workers.ask(
            {
                "do": "walk",
                "endpoints": [connectivity.endpoint_of(card) for card in cards],
                "head": head,
                "by_name": self.wish.by_name,
            },
            min(self.left_s(), _MESH_S),
            show=self.progress.asked,
        )
        paths = [path for answer in walked.values() for path in answer.get("paths", ())]
        broken = [node for node in self.workers.nodes if "paths" not in walked.get(node, {})]
        for node in broken:
            text = listening.get(node, {}).get("error") or walked.get(node, {}).get("error") or "no answer"
            self.workers.lost.setdefault(node, f"could not test its network: {text}")
        lost = sum(path["connected"] is False or path["bulk"] is False for path in paths)
        detail = f"{len(paths) - lost} of {len(paths)} connections work" if paths else "no connection could be tested"
        self.ended("network", "fail" if lost or broken or not paths else "ok", detail)
        return cards, paths

    def fleet(self, folder: Path | None, access: Mapping[str, HostAccess] | None = None) -> Fleet:
        """Compare the machines: the fact `fleet`. Save what each one reported in `folder`, if there is one."""
        from mgpu.fleet import connectivity
        from mgpu.fleet.compare import Machine, fleet_of
        from mgpu.snapshot import NodePath, decode, from_json

        found = {node: self.found[node] for node in self.there}
        if folder is not None:
            run_folder.make_below(folder / artifacts.MACHINES, artifacts.machines(list(found)))
            for node, answer in found.items():
                artifacts.keep_machine(folder, node, from_json(answer["facts"]))
        unshared: dict[str, tuple[str, ...]] = {}
        for shared in self.wish.folders:
            if blind := tuple(node for node, answer in found.items() if shared in answer["unseen"]):
                unshared[shared] = blind
        compared = fleet_of(
            [Machine(node, one["facts"], extra=bad_nodes.file_facts(one["files"])) for node, one in found.items()],
            dict(self.workers.lost),
            faults=[NodeFault(node, fault["id"], fault["text"]) for node in found for fault in found[node]["faults"]],
            clock_offsets_s={node: self.clocks[node] for node in found if node in self.clocks},
            unshared=unshared or (None if self.untried or not self.wish.folders else {}),
            paths=None if self.paths is None else [decode(NodePath, dict(path), "path") for path in self.paths],
            doors=tuple(connectivity.door_of(card) for card in self.cards),
            together=True,
        )
        if access is None:
            return compared
        reached = tuple(access[node] for node in self.workers.all_nodes if node in access)
        orphans = {node: tuple(answer["orphans"]) for node, answer in found.items() if answer["orphans"]}
        return replace(compared, access=reached, doors=_as_started(compared), orphans=orphans)


def _as_started(fleet: Fleet) -> tuple[NodeAddresses, ...]:
    """Return what the hosts advertise when mgpu starts their ranks: on the interface that works for all others.

    A host on which the user has set an interface keeps it.
    """
    ways = route.of_all(fleet, fleet.nodes)
    return tuple(
        replace(door, address=ways[door.node].address, origin="interface")
        if door.node in ways and not door.named
        else door
        for door in fleet.doors
    )


@contextlib.contextmanager
def _tokens(folders: Sequence[str]) -> Iterator[dict[str, str]]:
    """Create a file in each writable folder: a node that sees it sees this folder, not another one of the same name."""
    made: dict[str, str] = {}
    try:
        for folder in folders:
            name = f".mgpu-seen-{secrets.token_hex(6)}"
            with contextlib.suppress(OSError, MgpuError):
                files.write(Path(folder) / name, "")
                made[folder] = name
        yield made
    finally:
        for folder, name in made.items():
            with contextlib.suppress(OSError):
                (Path(folder) / name).unlink()
