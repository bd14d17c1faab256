"""Which of the connections tried between nodes failed, and which node or link do the failures have in common?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mgpu.check import Skip
from mgpu.hostlist import fold
from mgpu.snapshot import Fleet, HostAccess, NodeAddresses, NodePath

OF_NAMES = frozenset({"name", "full_name", "head"})
# A node is at fault if more than half of the attempts in one direction failed: with three nodes, both others.
_MOST = 0.5


def paths_tried(fleet: Fleet) -> Skip | None:
    """Return a Skip if no connections between the nodes were tried, else None."""
    return None if fleet.paths else Skip("the connections between the nodes were not tried")


@dataclass(frozen=True)
class Blame:
    """The nodes and links that explain the failed connections."""

    reached: tuple[str, ...] = ()  # nodes that the others cannot reach
    reaching: tuple[str, ...] = ()  # nodes that cannot reach the others
    links: tuple[tuple[str, str], ...] = ()  # pairs that cannot reach each other but can reach others

    @property
    def subjects(self) -> tuple[str, ...]:
        """The fewest nodes to exclude so that all remaining connections work; of a pair, the later node."""
        return tuple(dict.fromkeys((*self.reached, *self.reaching, *(later for _, later in self.links))))


def find_blame(paths: Iterable[NodePath], well: Callable[[NodePath], bool], order: Sequence[str]) -> Blame:
    """Return which nodes and links explain the failures.

    Removes the worst node repeatedly; the failures that remain are links. `order`: the nodes of the job.
    """
    edges = [(path.node, path.peer, well(path)) for path in paths]
    reached: list[str] = []
    reaching: list[str] = []
    nodes, peers = {name for edge in edges for name in edge[:2]}, {peer for _, peer, _ in edges}
    if len(nodes) > 2 and nodes == peers and not any(well for _, _, well in edges):
        return Blame(reached=_in_order(nodes, order))
    alone = len(nodes) == 2
    while (worst := _worst_node(edges, order)) and not (alone and _both_ways(edges)):
        node, direction = worst
        (reached if direction else reaching).append(node)
        edges = [edge for edge in edges if node not in edge[:2]]
    place = {name: number for number, name in enumerate(order)}
    pairs = {tuple(sorted(edge[:2], key=lambda name: place.get(name, 0))) for edge in edges if not edge[2]}
    links = sorted((one, other) for one, other in pairs)
    return Blame(_in_order(reached, order), _in_order(reaching, order), tuple(links))


def _worst_node(edges: Sequence[tuple[str, str, bool]], order: Sequence[str]) -> tuple[str, int] | None:
    """Return the node with the largest share of failures, and the direction: 1 to the node, 0 from the node."""
    tries: dict[tuple[str, int], list[bool]] = {}
    for node, peer, well in edges:
        tries.setdefault((node, 0), []).append(well)
        tries.setdefault((peer, 1), []).append(well)
    place = {name: number for number, name in enumerate(order)}
    shares = [
        (results.count(False) / len(results), len(results), direction, -place.get(node, 0), node)
        for (node, direction), results in tries.items()
    ]
    if not shares:
        return None
    share, _, direction, _, node = max(shares)
    return (node, direction) if share > _MOST else None


def _both_ways(edges: Iterable[tuple[str, str, bool]]) -> bool:
    """Whether no connection works in either direction, so that neither of two nodes can be find_blame."""
    return not any(well for _, _, well in edges)


def _in_order(names: Iterable[str], order: Sequence[str]) -> tuple[str, ...]:
    wanted = set(names)
    return tuple(name for name in order if name in wanted)


def doors_by_node(fleet: Fleet) -> dict[str, NodeAddresses]:
    """Return how each node presents itself to the others, by node."""
    return {door.node: door for door in fleet.doors}


def rank_paths(fleet: Fleet) -> list[NodePath]:
    """Return the connections to the addresses that the ranks give each other."""
    doors = doors_by_node(fleet)
    return [
        path
        for path in fleet.paths or ()
        if path.via not in OF_NAMES
        and path.connected is not None
        and path.peer in doors
        and path.tried == (doors[path.peer].address,)
    ]


def reachable_addresses(fleet: Fleet) -> dict[tuple[str, str], set[str]]:
    """Return the addresses at which the first node of each pair reaches the second."""
    found: dict[tuple[str, str], set[str]] = {}
    for path in fleet.paths or ():
        if path.via not in OF_NAMES and path.connected:
            found.setdefault((path.node, path.peer), set()).update(path.tried)
    return found


def working_interface(fleet: Fleet, nodes: Iterable[str]) -> str | None:
    """Return the name of an interface on which every attempt to reach these nodes succeeded, with full-size packets."""
    wanted = set(nodes)
    tried: dict[str, dict[str, bool]] = {}
    for path in fleet.paths or ():
        if path.via not in (*OF_NAMES, "lo", "?") and path.peer in wanted:
            here = tried.setdefault(path.via, {})
            here[path.peer] = here.get(path.peer, True) and bool(path.connected) and path.bulk is not False
    good = [name for name, peers in tried.items() if set(peers) == wanted and all(peers.values())]
    return min(good, default=None)


def behind_nat(fleet: Fleet) -> list[HostAccess]:
    """Return the hosts that ssh reached at an address that is not theirs, and that some others cannot reach."""
    ways = reachable_addresses(fleet)
    lost = {path.peer for path in fleet.paths or () if (path.node, path.peer) not in ways}
    return [one for one in fleet.access or () if one.node in lost and _is_translated(one)]


def _is_translated(one: HostAccess) -> bool:
    """Whether the host has another address than the one that ssh connected to. A server for both kinds maps IPv4."""
    return bool(one.reached_at and one.served_at) and one.reached_at != one.served_at.removeprefix("::ffff:")


def error_summary(paths: Iterable[NodePath]) -> str:
    """Return the error_summary of failed connections, most frequent first: "timed out", "connection refused"."""
    said = [path.error or "no answer" for path in paths]
    return ", ".join(sorted(set(said), key=lambda one: (-said.count(one), one))[:2])


def nodes_with_verb(names: Sequence[str], verb: str) -> str:
    """Return nodes in Slurm's notation with a verb: "n2 reaches", "n[2-3] reach"."""
    return f"{fold(names)} {verb if len(set(names)) > 1 else verb + ('es' if verb.endswith('ch') else 's')}"
