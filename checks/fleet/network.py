"""Can the nodes reach each other the way their ranks will, and which one cannot?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.hostlist import fold
from mgpu.snapshot import Fleet, NodeAddresses, NodePath
from mgpu.text import counted, listed

from .._interfaces import GLOO_NAME, NCCL_NAME, export_commands, is_loopback, names_for_nccl
from ._mesh import (
    OF_NAMES,
    Blame,
    behind_nat,
    doors_by_node,
    error_summary,
    find_blame,
    nodes_with_verb,
    paths_tried,
    rank_paths,
    reachable_addresses,
    working_interface,
)

_Number = TypeVar("_Number", int, float)
_GLOO = "https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupGloo.cpp"
_HOSTS = "measured three hosts of network namespaces, torch 2.13, Slurm 22.05 2026-11"
# Mbit/s for 512 KiB with other transfers running; 30-2600 were measured between hosts on one busy two-core machine.
_SLOW_MBIT, _CERTAINLY_SLOW_MBIT, _TIMES_SLOWER = 100.0, 12.0, 20
_ORIGINS = {"unresolvable": "its own name does not resolve", "hostname": "its own name resolves to that"}


def _likely_cause(said: str) -> str:
    """Return the likely cause of a connect() error between nodes that Slurm reaches."""
    if "refused" in said:
        return "The connection was rejected: a firewall, or the address belongs to another host."
    if "timed out" in said:
        return "Packets are dropped: a firewall, or no route between these addresses."
    if "answered by" in said:
        return "Another host or program answers at that address."
    return "The network has no route there."


def _address_suffix(nodes: tuple[str, ...], doors: dict[str, NodeAddresses]) -> str:
    """Return " at ADDRESS" for a single node, else ""."""
    return f" at {doors[nodes[0]].address}" if len(nodes) == 1 and nodes[0] in doors else ""


@check(Severity.ERROR, source=_GLOO, given=paths_tried)
def node_tells_loopback(fleet: Fleet) -> Answer:
    """A node gives the other nodes a loopback address to connect to.

    Why: gloo sends the other nodes the address that its own host name resolves to. If that is 127.0.1.1 (Debian's
    /etc/hosts), or the name does not resolve, each other node connects to itself: connection refused on one side, a
    hang for half an hour on the other.

    Fix: set the interface in GLOO_SOCKET_IFNAME, or make the name resolve to its real address.
    """
    loopback_paths = [path for path in rank_paths(fleet) if is_loopback(path.tried[0])]
    lost = tuple(
        node for node in doors_by_node(fleet) if any(p.peer == node and not p.connected for p in loopback_paths)
    )
    if not lost:
        return Ok(f"no loopback address among {counted(len(fleet.doors), 'node')}")
    door = doors_by_node(fleet)[lost[0]]
    origin = _ORIGINS.get(door.origin, f"{door.origin}={door.named.get(door.origin, '')}")
    way = working_interface(fleet, (door.node for door in fleet.doors))
    return Problem(
        f"{nodes_with_verb(lost, 'give')} the other nodes the loopback address {door.address}: {origin}",
        "Every node that connects there connects to itself, and the ranks hang in init_process_group.",
        (
            Fix(
                "Set the interface that the nodes share, in the job script.",
                export_commands(GLOO_NAME, name=way or "eth0"),
            ),
            Fix(
                f"Or make the node's name resolve to an address that others can reach, in /etc/hosts of {fold(lost)}.",
                (shell("getent hosts {:host}", door.hostname), "sudoedit /etc/hosts"),
                who="admin",
            ),
        ),
        {"nodes": fold(lost), "address": door.address, "origin": door.origin, "hostname": door.hostname},
        lost,
    )


@check(Severity.ERROR, source=_HOSTS, given=paths_tried)
def node_unreachable(fleet: Fleet) -> Answer:
    """A node cannot be reached by the others, or cannot reach them, on the ports that ranks use.

    Why: Slurm's own ports are open, or the node would not be in the job. The ranks listen on ports that the system
    chooses, on one interface. If those are blocked, gloo and NCCL hang while connecting, for minutes without
    output.

    Fix: open all TCP ports between the nodes, or select an interface that works.
    """
    translated = {one.node for one in behind_nat(fleet)}  # another check reports these
    paths = [path for path in rank_paths(fleet) if not is_loopback(path.tried[0])]
    paths = [path for path in paths if not translated & {path.node, path.peer}]
    if not paths:
        return Skip("no rank has an address that others could reach")
    found = find_blame(paths, lambda path: bool(path.connected), fleet.nodes)
    if not found.subjects:
        return Ok(f"{counted(len(paths), 'connection')} between {counted(len(fleet.doors), 'node')}")
    return _connection_problems(fleet, paths, found)


def _connection_problems(fleet: Fleet, paths: list[NodePath], found: Blame) -> tuple[Problem, ...]:
    doors = doors_by_node(fleet)
    failed = [path for path in paths if not path.connected]
    problems = []
    if found.reached:
        title = f"no other node can reach {fold(found.reached)}{_address_suffix(found.reached, doors)}"
        title = "no node can reach another" if len(found.reached) == len(doors) else title
        problems.append(
            _connection_problem(fleet, title, [p for p in failed if p.peer in found.reached], found.reached)
        )
    if found.reaching:
        title = f"{fold(found.reaching)} cannot reach any other node"
        problems.append(
            _connection_problem(fleet, title, [p for p in failed if p.node in found.reaching], found.reaching)
        )
    for one, other in found.links:
        ways = [p for p in failed if {p.node, p.peer} == {one, other}]
        title = listed(f"{p.node} cannot reach {p.peer}" for p in ways)
        problems.append(_connection_problem(fleet, title, ways, (other,)))
    return tuple(problems)


def _connection_problem(fleet: Fleet, title: str, ways: list[NodePath], nodes: tuple[str, ...]) -> Problem:
    """Return the problem for failed connections; `nodes`: those to exclude."""
    doors = doors_by_node(fleet)
    peer, source = doors[ways[0].peer], doors.get(ways[0].node)
    interface = peer.interface_of(peer.address)
    other = working_interface(fleet, doors)
    allow = shell("sudo iptables -I INPUT -s {:host} -p tcp -j ACCEPT", source.address if source else "ADDRESS")
    likely = _likely_cause(error_summary(ways))
    cause = f"{likely} Slurm reaches the nodes: its ports are open, but the ranks' ports are not."
    fixes = [
        Fix(
            f"Open all TCP ports between the nodes, on {peer.node} first.",
            ("sudo iptables -S INPUT", "sudo nft list ruleset", allow),
            who="admin",
        )
    ]
    if other and interface and other != interface.name:
        cause = f"The ranks use {interface.name} there. All nodes can reach each other over {other}."
        fixes.insert(0, Fix(f"Make the ranks use {other}.", export_commands(GLOO_NAME, NCCL_NAME, name=other)))
    elif interface and peer.named:
        fixes.append(
            Fix("Or unset the variables that select the interface.", (shell("unset {:name}", list(peer.named)),))
        )
    evidence = {"from": ways[0].node, "to": peer.node, "address": peer.address, "error": ways[0].error}
    return Problem(
        f"{title}: {error_summary(ways)}",
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
    """An interface of a node is up and has an address, but the other nodes cannot reach it.

    Why: nothing shows that its network does not connect the nodes. NCCL may use it as soon as it is up, and its
    socket transport uses all interfaces it finds: the rendezvous works over one interface, and the ranks hang on
    the other.

    Fix: select the interfaces that work, or fix this one.
    """
    ranks, ways, doors = {id(path) for path in rank_paths(fleet)}, reachable_addresses(fleet), doors_by_node(fleet)
    problems, tried = [], 0
    by_name: dict[str, list[NodePath]] = {}
    for path in fleet.paths or ():
        if path.via not in OF_NAMES and path.peer in doors and id(path) not in ranks and path.connected is not None:
            by_name.setdefault(path.via, []).append(path)
    for name, paths in by_name.items():
        # Other checks report pairs without any connection.
        counted_in = [path for path in paths if (path.node, path.peer) in ways]
        tried += len(counted_in)
        found = find_blame(counted_in, lambda path: bool(path.connected) and path.bulk is not False, fleet.nodes)
        used = any(_nccl_uses(doors[node], name) for node in found.subjects)
        one_network = any(path.connected for path in counted_in)
        if found.subjects and (used or one_network):
            problems.append(_isolation_problem(fleet, name, counted_in, found))
    if problems:
        return tuple(problems)
    return Ok(f"{counted(tried, 'connection')} to other interfaces") if tried else Ok("one external interface per node")


def _nccl_uses(door: NodeAddresses, name: str) -> bool:
    return door.on_gpu and name in names_for_nccl(door.interfaces, door.named.get(NCCL_NAME))


def _isolation_problem(fleet: Fleet, name: str, paths: list[NodePath], found: Blame) -> Problem:
    doors, nodes = doors_by_node(fleet), found.subjects
    failed = [path for path in paths if {path.node, path.peer} & {*nodes} and not path.connected]
    address = next((one.addresses[0] for one in doors[nodes[0]].interfaces if one.name == name and one.addresses), None)
    where = f" ({address})" if address and len(nodes) == 1 else ""
    way = working_interface(fleet, (door.node for door in fleet.doors))
    said = f"cannot be reached: {error_summary(failed)}" if failed else "loses full-size packets"
    used = any(_nccl_uses(doors[node], name) for node in nodes)
    uses = "NCCL would also use it." if used else "With the current settings the ranks do not use it."
    return Problem(
        f"{name} of {fold(nodes)}{where} is up, but {said}",
        f"Its network does not reach the other nodes. {uses}",
        (
            Fix(
                "Select the interface that works, in the job script.",
                export_commands(NCCL_NAME, GLOO_NAME, name=way or "eth0"),
            ),
            Fix(
                "Or fix its network, or switch it off.",
                ("ip -br addr", shell("sudo ip link set {:interface} down", name)),
                who="admin",
            ),
        ),
        {"interface": name, "nodes": fold(nodes), "address": address},
        nodes,
    )


@check(Severity.ERROR, source=_HOSTS, given=paths_tried)
def node_loses_full_packets(fleet: Fleet) -> Answer:
    """Small packets arrive between two nodes, but full-size packets are lost.

    Why: an interface sends larger packets (MTU) than a device on the path can carry. Name lookups, ssh and the
    rendezvous use small packets and work. The first large all-reduce hangs without a message.

    Fix: set the same MTU on all interfaces and switches between the nodes.
    """
    paths = [path for path in rank_paths(fleet) if path.bulk is not None]
    if not paths:
        return Skip("no connection between the nodes could be tested")
    found = find_blame(paths, lambda path: path.bulk is not False, fleet.nodes)
    if not found.subjects:
        return Ok(f"full-size packets arrive on {counted(len(paths), 'connection')}")
    doors = doors_by_node(fleet)
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
        f"full-size packets are lost {between}, small ones arrive{differ}",
        f"A device on the path over {name} carries only smaller packets than the interfaces send.",
        _one_mtu(nodes, name, lower, doors[nodes[0]].address),
        {"nodes": fold(nodes), "interface": name, **{f"mtu of {node}": mtu for node, mtu in mtus.items()}},
        nodes,
    )


def _one_mtu(nodes: Sequence[str], name: str, size: int, address: str | None) -> tuple[Fix, ...]:
    ways = (
        shell("ip link show {:interface}", name),
        shell("sudo ip link set {:interface} mtu {:number}", name, size),
    )
    everywhere = f"Set one MTU on the whole path, on {fold(nodes)} and its switch port: the smaller one works."
    size_that_fits = "Find the largest size that still arrives, and set that plus 28 bytes of headers as MTU."
    ping = shell("ping -M do -s 1472 {:host}", address)
    return Fix(everywhere, ways, who="admin"), Fix(size_that_fits, (ping,))


def _low_median(values: list[_Number]) -> _Number | None:
    """Return the median; of two middle values the smaller."""
    return sorted(values)[(len(values) - 1) // 2] if values else None


@check(Severity.WARNING, source=_HOSTS, given=paths_tried)
def node_link_slow(fleet: Fleet) -> Answer:
    """Traffic between nodes is far slower than any current network.

    Why: a port fell back to 10 or 100 Mbit/s, or packets get lost: nothing fails, but every training step waits for
    this node.

    Fix: check the link's speed and error_summary.
    """
    # The better of the two directions, as one measurement may have been disturbed.
    both: dict[frozenset[str], float] = {}
    paths = [path for path in rank_paths(fleet) if path.mbit_per_s is not None]
    for path in paths:
        pair = frozenset((path.node, path.peer))
        both[pair] = max(both.get(pair, 0.0), path.mbit_per_s or 0.0)
    if not both:
        return Skip("no connection between the nodes was measured")
    usual = _low_median(list(both.values())) or 0.0
    limit = max(_CERTAINLY_SLOW_MBIT, min(_SLOW_MBIT, usual / _TIMES_SLOWER))
    found = find_blame(paths, lambda path: both[frozenset((path.node, path.peer))] >= limit, fleet.nodes)
    worst = min(both.values())
    if not found.subjects:
        return Ok(f"at least {worst:.0f} Mbit/s with all connections active")
    doors, nodes = doors_by_node(fleet), found.subjects
    interface = doors[nodes[0]].interface_of(doors[nodes[0]].address)
    name = interface.name if interface else "eth0"
    return Problem(
        f"{worst:.3g} Mbit/s to or from {fold(nodes)}; the median between these nodes is {usual:.3g}",
        "Measured with half a megabyte in each direction. Every collective waits for the slowest link.",
        Fix(
            f"Check the speed and the error_summary of its link, on {fold(nodes)}.",
            (shell("ethtool {:interface} | grep Speed", name), shell("ip -s link show {:interface}", name)),
            who="admin",
        ),
        {"nodes": fold(nodes), "mbit_per_s": round(worst, 3), "usual": round(usual, 3)},
        nodes,
    )
