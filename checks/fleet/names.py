"""Does each node's name resolve to it on the other nodes, and can all nodes reach the rendezvous endpoint?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.hostlist import fold
from mgpu.snapshot import Fleet, NodeAddresses, NodePath
from mgpu.text import counted

from .._interfaces import is_loopback
from ._mesh import doors_by_node, error_summary, find_blame, nodes_with_verb, paths_tried, reachable_addresses
from ._ways import ON_NODES, look_at

_RENDEZVOUS = "https://github.com/pytorch/pytorch/blob/main/torch/distributed/elastic/rendezvous/dynamic_rendezvous.py"
_FIRST_NODE = 'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)'


def _addresses(door: NodeAddresses) -> list[str]:
    """Return the node's addresses that are valid on other nodes too, its ranks' address first."""
    found = [door.address, *(address for one in door.interfaces for address in one.addresses)]
    return [address for address in dict.fromkeys(found) if address and not is_loopback(address)]


def _resolves_elsewhere(path: NodePath, door: NodeAddresses) -> bool:
    """Whether the name does not resolve there, or resolves to something other than this node."""
    return not set(path.tried) & set(_addresses(door))


def _is_name_or_port_fault(path: NodePath, door: NodeAddresses, ways: Mapping[tuple[str, str], set[str]]) -> bool:
    """Whether the name or the port is the fault, not the connection between the nodes.

    True if the node can be reached but the name resolves elsewhere, or if other ports of that address can be reached.
    """
    found = ways.get((path.node, path.peer), set())
    return bool(found) and (_resolves_elsewhere(path, door) or bool(found & set(path.tried)))


def _resolution(nodes: Sequence[str], path: NodePath) -> str:
    """Return how the name resolves there, as the start of a sentence."""
    if not path.tried:
        return f"{fold(nodes)} cannot resolve {path.name}"
    return f"{nodes_with_verb(nodes, 'resolve')} {path.name} to {path.tried[0]}"


def _hosts_line(door: NodeAddresses, name: str) -> tuple[str, ...]:
    address = next(iter(_addresses(door)), "ADDRESS")
    return shell("getent hosts {:host}", name), shell("sudoedit /etc/hosts   # {:host} {:host}", address, name)


@check(Severity.ERROR, source=_RENDEZVOUS, given=paths_tried)
def head_unreachable(fleet: Fleet) -> Answer:
    """Nodes cannot connect to the rendezvous endpoint, although they can reach its node.

    Why: all nodes connect to one port of the job's first node, by its name. If the name resolves to the loopback
    address, a node connects to itself; behind a firewall the connection times out. torch waits for minutes, then
    reports a timeout.

    Fix: correct the name, or open the port.
    """
    doors, ways = doors_by_node(fleet), reachable_addresses(fleet)
    paths = [p for p in fleet.paths or () if p.via == "head" and p.connected is not None and p.peer in doors]
    failed = [path for path in paths if not path.connected and _is_name_or_port_fault(path, doors[path.peer], ways)]
    if not paths:
        return Skip("the rendezvous endpoint was not tested")
    if not failed:
        return Ok(
            f"{counted(sum(bool(path.connected) for path in paths), 'node')} connected to the rendezvous endpoint"
        )
    first, head = failed[0], doors[failed[0].peer]
    nodes = tuple(path.node for path in failed)
    # The fewest nodes to exclude. A loopback address is wrong on every node, so excluding nodes does not help.
    few = len(nodes) <= len(paths) / 2 or (len(nodes) == 1 and _resolves_elsewhere(first, head))
    subjects: tuple[str, ...] = nodes if few else (head.node,)
    evidence = {"nodes": fold(nodes), "head": head.node, "port": head.meeting_port, "error": first.error}
    evidence["address"] = first.tried[0] if first.tried else None
    if first.name == "localhost" or is_loopback(first.name):
        subjects = ()
    return Problem(*_head_problem(failed, head, nodes), evidence, subjects)


def _head_problem(failed: Sequence[NodePath], head: NodeAddresses, nodes: Sequence[str]) -> tuple[str, str, Fix]:
    """Return title, cause and fix for nodes that cannot connect to the rendezvous endpoint."""
    first, said, port = failed[0], fold(nodes), head.meeting_port
    if first.name == "localhost" or is_loopback(first.name):
        return (
            f"rendezvous endpoint {first.name}: on {said} that is the node itself",
            f"This name means a different host on every node. The first node is {head.node}.",
            Fix("Use the first node as rendezvous endpoint.", (_FIRST_NODE,)),
        )
    if _resolves_elsewhere(first, head):
        return (
            f"{_resolution(nodes, first)}, the rendezvous endpoint: {error_summary(failed)}",
            f"That is not {head.node}: the ranks there would wait for an answer until they time out.",
            Fix(
                f"Make the name resolve to its real address on {said}.",
                _hosts_line(head, first.name),
                who="admin",
            ),
        )
    allow = shell("sudo iptables -I INPUT -p tcp --dport {:number} -j ACCEPT", port)
    return (
        f"{said} cannot connect to the rendezvous endpoint {first.name}:{port}: {error_summary(failed)}",
        f"{head.node} listens there, and its other ports are open: a firewall blocks this one.",
        Fix(
            f"Open the port on {head.node}, or use another one.",
            ("sudo iptables -S INPUT", allow),
            who="admin",
        ),
    )


@check(Severity.ERROR, source=_RENDEZVOUS, because_of=("head_unreachable",))
def head_port_taken(fleet: Fleet) -> Answer:
    """The rendezvous port is in use on the first node.

    Why: another job on the node, or a rank left over from an earlier job, is using it. The launcher stops with
    EADDRINUSE or, worse, all ranks connect to that process and hang silently.

    Fix: use another port, or stop the process that uses it.
    """
    heads = [door for door in fleet.doors if door.meeting_port is not None]
    if not heads:
        return Skip("no rendezvous port was tested")
    head = heads[0]
    if head.meeting_error is None:
        return Ok(f"{head.node} can listen on port {head.meeting_port}")
    return Problem(
        f"{head.node} cannot listen on the rendezvous port {head.meeting_port}: {head.meeting_error}",
        "Another process is using it: another job, or one left over from an earlier job.",
        _port_fixes(fleet, head.node, head.meeting_port),
        {"node": head.node, "port": head.meeting_port, "error": head.meeting_error},
        (head.node,),
    )


def _port_fixes(fleet: Fleet, node: str, port: int | None) -> tuple[Fix, ...]:
    find = "Find the process that uses it."
    other = "Or use another port below 32768, where the system assigns none itself."
    if fleet.access is not None:
        look = look_at(fleet, (node,), f"{ON_NODES} ss -ltnp 'sport = :{{taken:number}}'", taken=port)
        return Fix(find, look), Fix(other, ("mgpu launch --port 12345",))
    return (
        Fix(find, (shell("sudo ss -ltnp 'sport = :{:number}'", port),)),
        Fix(other, ("export MASTER_PORT=$((12000 + (SLURM_JOB_ID + 1) % 20000))",)),
    )


@check(Severity.ERROR, source=_RENDEZVOUS, because_of=("head_unreachable",), given=paths_tried)
def node_name_leads_elsewhere(fleet: Fleet) -> Answer:
    """Slurm's name for a node does not resolve to it on other nodes, although its address is reachable.

    Why: with c10d, the rendezvous uses the name of the first node. Nodes that cannot resolve it, or resolve it to
    the loopback address, wait for minutes without output.

    Fix: use the same entries in /etc/hosts on all nodes, or an entry in DNS.
    """
    return _name_problems(
        fleet, "name", "The rendezvous uses a name. Nodes that resolve it wrongly wait until they time out."
    )


@check(
    Severity.WARNING,
    source=_RENDEZVOUS,
    because_of=("head_unreachable", "node_name_leads_elsewhere"),
    given=paths_tried,
)
def node_own_name_leads_elsewhere(fleet: Fleet) -> Answer:
    """A node's own name differs from its Slurm name and does not resolve to it on other nodes.

    Why: with c10d, torchrun and accelerate by default give the other nodes socket.getfqdn() of the rendezvous node.
    If /etc/hosts makes that `localhost`, or DNS does not have it, the other nodes wait without output.

    Fix: pass Slurm's name to the launcher (PET_LOCAL_ADDR, as in job scripts that mgpu writes), or correct the name.
    """
    cause = "A job script without --local-addr or PET_LOCAL_ADDR uses that name for the rendezvous."
    return _name_problems(fleet, "full_name", cause)


def _name_problems(fleet: Fleet, via: str, cause: str) -> Answer:
    doors, ways = doors_by_node(fleet), reachable_addresses(fleet)
    paths = [
        path
        for path in fleet.paths or ()
        if path.via == via
        and path.connected is not None
        and path.peer in doors
        and (path.connected or _is_name_or_port_fault(path, doors[path.peer], ways))
    ]
    if not paths:
        return Skip("every node uses Slurm's name" if via == "full_name" and ways else "no name was tested")
    found = find_blame(paths, lambda path: bool(path.connected), fleet.nodes)
    if not found.subjects:
        return Ok(f"{counted(len({path.peer for path in paths}), 'name')} resolved to the right nodes")
    failed = [path for path in paths if not path.connected]
    first = next((path for path in failed if path.peer in found.reached[:1]), failed[0])
    nodes = [path.node for path in failed if (path.peer, path.tried) == (first.peer, first.tried)]
    more = len(failed) - len(nodes)
    line = Fix(
        f"Make the name resolve to its real address on {fold(nodes)}.",
        _hosts_line(doors[first.peer], first.name),
        who="admin",
    )
    set_name = Fix(
        "Pass Slurm's name to the launcher, in the step on each node.", ("export PET_LOCAL_ADDR=$SLURMD_NODENAME",)
    )
    return Problem(
        f"{_resolution(nodes, first)}, which is not {first.peer}"
        + (f"; {counted(more, 'more name resolves', 'more names resolve')} wrongly" if more else ""),
        cause,
        (set_name, line) if via == "full_name" else line,
        {"from": first.node, "to": first.peer, "name": first.name, "error": first.error},
        found.subjects,
    )
