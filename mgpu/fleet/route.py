"""Over which address do the hosts of one run reach each other best? From the connections that were measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mgpu.snapshot import Fleet


@dataclass(frozen=True)
class Route:
    """The way into a host that works for all others."""

    node: str
    interface: str
    address: str
    mbit_per_s: float | None  # of the slowest connection to it; None: not measured


def into(fleet: Fleet, node: str) -> Route | None:
    """Return the fastest interface of a host over which every other host reached it; None if there is none.

    A connection over which only small packets arrive does not count: the first large tensor would hang on it.
    """
    door = next((door for door in fleet.doors if door.node == node), None)
    others = {path.node for path in fleet.paths or () if path.peer == node}
    if door is None or not others:
        return None
    found: list[Route] = []
    for one in door.interfaces:
        paths = [path for path in fleet.paths or () if path.peer == node and path.via == one.name]
        if {path.node for path in paths} < others or not all(
            path.connected and path.bulk is not False for path in paths
        ):
            continue
        rates = [path.mbit_per_s for path in paths if path.mbit_per_s]
        address = next((path.tried[0] for path in paths if path.tried), "")
        if address:
            found.append(Route(node, one.name, address, min(rates) if rates else None))
    return max(found, key=lambda route: route.mbit_per_s or 0.0, default=None)


def of_all(fleet: Fleet, nodes: Sequence[str]) -> dict[str, Route]:
    """Return the way into each host that has one."""
    return {node: route for node in nodes if (route := into(fleet, node)) is not None}
