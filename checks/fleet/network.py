"""Do the nodes reach each other as their ranks will, and which one does not?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.hostlist import fold
from mgpu.snapshot import Fleet, NodeDoor, NodePath
from mgpu.text import counted, listed

from .._interfaces import GLOO_NAME, NCCL_NAME, export, is_loopback, nccl_takes
from ._mesh import (
    OF_NAMES,
    Blame,
    blamed,
    doors_of,
    errors,
    of_ranks,
    paths_tried,
    reachable,
    who,
    working_interface,
)

_Number = TypeVar("_Number", int, float)
_GLOO = "https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupGloo.cpp"
_HOSTS = "measured three hosts of network namespaces, torch 2.13, Slurm 22.05 2026-11"
# Of 512 KiB beside others; between hosts on one busy machine of two cores it was 30-2600.
_SLOW_MBIT, _CERTAINLY_SLOW_MBIT, _TIMES_SLOWER = 100.0, 12.0, 20
_ORIGINS = {"unresolvable": "its own name does not resolve", "hostname": "its own name resolves to that"}


def _why(said: str) -> str:
    """What an error of connect() means between nodes that Slurm reaches."""
    if "refused" in said:
        return "It is rejected: a firewall, or the address belongs to another machine."
    if "timed out" in said:
        return "What is sent there is dropped: a firewall, or no way between these addresses."
    if "somebody else" in said:
        return "Another machine or program answers at that address."
    return "The network has no way there."


def _where(nodes: tuple[str, ...], doors: dict[str, NodeDoor]) -> str:
    """The address of a node, where it is one."""
    return f" at {doors[nodes[0]].address}" if len(nodes) == 1 and nodes[0] in doors else ""


@check(Severity.ERROR, source=_GLOO, given=paths_tried)
def node_tells_loopback(fleet: Fleet) -> Answer:
    """A node would tell the ranks of the other nodes that it is reached at a loopback address.

    Why: gloo tells the others the address that the own host name resolves to. Where that is 127.0.1.1 (Debian's
    /etc/hosts), or the name does not resolve, each other node connects to itself: connection refused on one side, a
    hang for half an hour on the other.

    Fix: name the interface in GLOO_SOCKET_IFNAME, or give the name its real address.
    """
    told = [path for path in of_ranks(fleet) if is_loopback(path.tried[0])]
    lost = tuple(node for node in doors_of(fleet) if any(p.peer == node and not p.connected for p in told))
    if not lost:
        return Ok(f"no rank of {counted(len(fleet.doors), 'node')} is looked for at a loopback address")
    door = doors_of(fleet)[lost[0]]
    origin = _ORIGINS.get(door.origin, f"{door.origin}={door.named.get(door.origin, '')}")
    way = working_interface(fleet, (door.node for door in fleet.doors))
    return Problem(
        f"{who(lost, 'tell')} the others to come to {door.address}: {origin}",
        "Every node that connects there meets itself, and the ranks hang while their group is formed.",
        (
            Fix("Name the interface that the nodes share, in the job script.", export(GLOO_NAME, name=way or "eth0")),
            Fix(
                f"Or let /etc/hosts of {fold(lost)} give its own name the address that others reach.",
                (shell("getent hosts {:host}", door.hostname), "sudoedit /etc/hosts"),
                who="admin",
            ),
        ),
        {"nodes": fold(lost), "address": door.address, "origin": door.origin, "hostname": door.hostname},
        lost,
    )


@check(Severity.ERROR, source=_HOSTS, given=paths_tried)
def node_unreachable(fleet: Fleet) -> Answer:
    """A node cannot be reached by the others, or does not reach them, at the ports that ranks take.

    Why: Slurm's own ports are open, or the node would not be in the job; the ranks listen at ports that the system
    chooses, on one interface. With those closed gloo and NCCL hang while they connect, without a word for minutes.

    Fix: open all TCP ports between the nodes, or name an interface that works.
    """
    paths = [path for path in of_ranks(fleet) if not is_loopback(path.tried[0])]
    if not paths:
        return Skip("no rank is looked for at an address that others could reach")
    found = blamed(paths, lambda path: bool(path.connected), fleet.nodes)
    if not found.subjects:
        return Ok(f"{counted(len(paths), 'connection')} between {counted(len(fleet.doors), 'node')}")
    return _told(fleet, paths, found)


def _told(fleet: Fleet, paths: list[NodePath], found: Blame) -> tuple[Problem, ...]:
    doors = doors_of(fleet)
    failed = [path for path in paths if not path.connected]
    problems = []
    if found.reached:
        title = f"no other node reaches {fold(found.reached)}{_where(found.reached, doors)}"
        title = "no node reaches another" if len(found.reached) == len(doors) else title
        problems.append(_closed(fleet, title, [p for p in failed if p.peer in found.reached], found.reached))
    if found.reaching:
        title = f"{who(found.reaching, 'reach')} no other node"
        problems.append(_closed(fleet, title, [p for p in failed if p.node in found.reaching], found.reaching))
    for one, other in found.links:
        ways = [p for p in failed if {p.node, p.peer} == {one, other}]
        title = listed(f"{p.node} does not reach {p.peer}" for p in ways)
        problems.append(_closed(fleet, title, ways, (other,)))
    return tuple(problems)


def _closed(fleet: Fleet, title: str, ways: list[NodePath], nodes: tuple[str, ...]) -> Problem:
    """The problem of connections that failed; `nodes`: those to leave out."""
    doors = doors_of(fleet)
    peer, source = doors[ways[0].peer], doors.get(ways[0].node)
    interface = peer.interface_of(peer.address)
    other = working_interface(fleet, doors)
    allow = shell("sudo iptables -I INPUT -s {:host} -p tcp -j ACCEPT", source.address if source else "ADDRESS")
    cause = f"{_why(errors(ways))} Slurm reaches the nodes: its ports are open, those that the ranks take are not."
    fixes = [
        Fix(
            f"Open all TCP ports between the nodes, on {peer.node} first.",
            ("sudo iptables -S INPUT", "sudo nft list ruleset", allow),
            who="admin",
        )
    ]
    if other and interface and other != interface.name:
        cause = f"The ranks use {interface.name} there. Over {other} all nodes reach each other."
        fixes.insert(0, Fix(f"Let the ranks use {other}.", export(GLOO_NAME, NCCL_NAME, name=other)))
    elif interface and peer.named:
        fixes.append(Fix("Or unset what names the interface.", (shell("unset {:name}", list(peer.named)),)))
    evidence = {"from": ways[0].node, "to": peer.node, "address": peer.address, "error": ways[0].error}
    return Problem(
        f"{title}: {errors(ways)}",
        cause,
        tuple(fixes),
        evidence | {"interface": interface.name if interface else None, "failed": len(ways)},
        nodes,
    )


@check(
    Severity.WARNING,
    source="https://github.com/NVIDIA/nccl/blob/master/src/misc/socket.cc (ncclFindInterfaces)",
    given=paths_tried,
)
def node_interface_isolated(fleet: Fleet) -> Answer:
    """An interface of a node is up and has an address, and the other nodes do not reach it.

    Why: nothing shows that its network ends there. NCCL may use it as soon as it is up, and its socket transport uses
    all that it finds: the ranks meet over one interface and hang on the other.

    Fix: name the interfaces that work, or mend this one.
    """
    ranks, ways, doors = {id(path) for path in of_ranks(fleet)}, reachable(fleet), doors_of(fleet)
    problems, tried = [], 0
    by_name: dict[str, list[NodePath]] = {}
    for path in fleet.paths or ():
        if path.via not in OF_NAMES and path.peer in doors and id(path) not in ranks and path.connected is not None:
            by_name.setdefault(path.via, []).append(path)
    for name, paths in by_name.items():
        counted_in = [path for path in paths if (path.node, path.peer) in ways]  # others say why there is no way at all
        tried += len(counted_in)
        found = blamed(counted_in, lambda path: bool(path.connected) and path.bulk is not False, fleet.nodes)
        used = any(_nccl_uses(doors[node], name) for node in found.subjects)
        one_network = any(path.connected for path in counted_in)
        if found.subjects and (used or one_network):
            problems.append(_isolated(fleet, name, counted_in, found))
    if problems:
        return tuple(problems)
    return Ok(f"{counted(tried, 'connection')} to other interfaces") if tried else Ok("one interface a node leads out")


def _nccl_uses(door: NodeDoor, name: str) -> bool:
    return door.on_gpu and name in nccl_takes(door.interfaces, door.named.get(NCCL_NAME))


def _isolated(fleet: Fleet, name: str, paths: list[NodePath], found: Blame) -> Problem:
    doors, nodes = doors_of(fleet), found.subjects
    failed = [path for path in paths if {path.node, path.peer} & {*nodes} and not path.connected]
    address = next((one.addresses[0] for one in doors[nodes[0]].interfaces if one.name == name and one.addresses), None)
    where = f" ({address})" if address and len(nodes) == 1 else ""
    way = working_interface(fleet, (door.node for door in fleet.doors))
    said = f"leads to no other node: {errors(failed)}" if failed else "packets of full size are lost"
    used = any(_nccl_uses(doors[node], name) for node in nodes)
    uses = "NCCL would use it as well." if used else "The ranks do not use it as they are told now."
    return Problem(
        f"{name} of {fold(nodes)}{where} is up, and {said}",
        f"Its network ends before the other nodes. {uses}",
        (
            Fix("Name the interface that works, in the job script.", export(NCCL_NAME, GLOO_NAME, name=way or "eth0")),
            Fix(
                "Or mend its network, or switch it off.",
                ("ip -br addr", shell("sudo ip link set {:interface} down", name)),
                who="admin",
            ),
        ),
        {"interface": name, "nodes": fold(nodes), "address": address},
        nodes,
    )


@check(Severity.ERROR, source=_HOSTS, given=paths_tried)
def node_loses_full_packets(fleet: Fleet) -> Answer:
    """Small packets arrive between two nodes, and packets of full size are lost.

    Why: an interface is set to larger packets (MTU) than something on the way carries. Names, ssh and the rendezvous
    need small ones and work; the first large all-reduce hangs, and no message comes.

    Fix: the same MTU on all interfaces and switches between the nodes.
    """
    paths = [path for path in of_ranks(fleet) if path.bulk is not None]
    if not paths:
        return Skip("no connection between the nodes that could be tried")
    found = blamed(paths, lambda path: path.bulk is not False, fleet.nodes)
    if not found.subjects:
        return Ok(f"packets of full size on {counted(len(paths), 'connection')}")
    doors = doors_of(fleet)
    mtus = {door.node: interface.mtu for door in fleet.doors if (interface := door.interface_of(door.address))}
    nodes, known = found.subjects, sorted({mtu for mtu in mtus.values() if mtu})
    first = doors[nodes[0]].interface_of(doors[nodes[0]].address)
    name = first.name if first else "eth0"
    of_a_link = found.links and not (found.reached or found.reaching)
    between = f"between {listed(found.links[0])}" if of_a_link else f"to and from {fold(nodes)}"
    differ, lower = "", 1500 if known and known[0] > 1500 else 1400
    if len(known) > 1:
        having = {value: fold([node for node, mtu in mtus.items() if mtu == value]) for value in reversed(known)}
        differ, lower = "; MTU " + ", ".join(f"{value} on {those}" for value, those in having.items()), known[0]
    return Problem(
        f"packets of full size are lost {between}, small ones arrive{differ}",
        f"Something on the way over {name} carries smaller packets than the interfaces send.",
        _one_mtu(nodes, name, lower, doors[nodes[0]].address),
        {"nodes": fold(nodes), "interface": name, **{f"mtu of {node}": mtu for node, mtu in mtus.items()}},
        nodes,
    )


def _one_mtu(nodes: Sequence[str], name: str, size: int, address: str | None) -> tuple[Fix, ...]:
    ways = (
        shell("ip link show {:interface}", name),
        shell("sudo ip link set {:interface} mtu {:number}", name, size),
    )
    everywhere = f"Set one MTU on the whole way, on {fold(nodes)} and its switch port: the smaller one works."
    size_that_fits = "See which size still goes through, and set that: 28 bytes are added to it."
    ping = shell("ping -M do -s 1472 {:host}", address)
    return Fix(everywhere, ways, who="admin"), Fix(size_that_fits, (ping,))


def _usual(values: list[_Number]) -> _Number | None:
    """The middle one: of two the smaller."""
    return sorted(values)[(len(values) - 1) // 2] if values else None


@check(Severity.WARNING, source=_HOSTS, given=paths_tried)
def node_link_slow(fleet: Fleet) -> Answer:
    """Data goes between nodes at a small part of the speed of any network of today.

    Why: a port that fell back to 10 or 100 Mbit/s, or packets that get lost: nothing fails, and every step of the
    training waits for this node.

    Fix: look at the link's speed and errors.
    """
    both: dict[frozenset[str], float] = {}  # of the two directions the better: one look may have come at a bad moment
    paths = [path for path in of_ranks(fleet) if path.mbit_per_s is not None]
    for path in paths:
        pair = frozenset((path.node, path.peer))
        both[pair] = max(both.get(pair, 0.0), path.mbit_per_s or 0.0)
    if not both:
        return Skip("no connection between the nodes was measured")
    usual = _usual(list(both.values())) or 0.0
    limit = max(_CERTAINLY_SLOW_MBIT, min(_SLOW_MBIT, usual / _TIMES_SLOWER))
    found = blamed(paths, lambda path: both[frozenset((path.node, path.peer))] >= limit, fleet.nodes)
    worst = min(both.values())
    if not found.subjects:
        return Ok(f"at least {worst:.0f} Mbit/s, with all connections at once")
    doors, nodes = doors_of(fleet), found.subjects
    interface = doors[nodes[0]].interface_of(doors[nodes[0]].address)
    name = interface.name if interface else "eth0"
    return Problem(
        f"{worst:.3g} Mbit/s to or from {fold(nodes)}; {usual:.3g} is usual among these nodes",
        "Half a megabyte was sent there and back. Every collective waits for the slowest link.",
        Fix(
            f"Look at the speed and the errors of its link, on {fold(nodes)}.",
            (shell("ethtool {:interface} | grep Speed", name), shell("ip -s link show {:interface}", name)),
            who="admin",
        ),
        {"nodes": fold(nodes), "mbit_per_s": round(worst, 3), "usual": round(usual, 3)},
        nodes,
    )
