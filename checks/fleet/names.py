"""Does the name of each node lead the others to it, and can all of them come to the place where they meet?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.hostlist import fold
from mgpu.snapshot import Fleet, NodeDoor, NodePath
from mgpu.text import counted

from .._interfaces import is_loopback
from ._mesh import blamed, doors_of, errors, paths_tried, reachable, who

_RENDEZVOUS = "https://github.com/pytorch/pytorch/blob/main/torch/distributed/elastic/rendezvous/dynamic_rendezvous.py"
_FIRST_NODE = 'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)'


def _addresses(door: NodeDoor) -> list[str]:
    """Those of a node that mean it on other nodes as well, the one of its ranks first."""
    found = [door.address, *(address for one in door.interfaces for address in one.addresses)]
    return [address for address in dict.fromkeys(found) if address and not is_loopback(address)]


def _astray(path: NodePath, door: NodeDoor) -> bool:
    """Whether the name means nothing there, or something else than this node."""
    return not set(path.tried) & set(_addresses(door))


def _by_itself(path: NodePath, door: NodeDoor, ways: Mapping[tuple[str, str], set[str]]) -> bool:
    """Whether a name or a port that leads nowhere is at fault itself: there is a way, and the name misses it, or it is
    open at that very address. An address that is not reached at all is another matter."""
    found = ways.get((path.node, path.peer), set())
    return bool(found) and (_astray(path, door) or bool(found & set(path.tried)))


def _meant(nodes: Sequence[str], path: NodePath) -> str:
    """What the name means there, for a sentence."""
    if not path.tried:
        return f"{fold(nodes)} cannot resolve {path.name}"
    return f"{who(nodes, 'resolve')} {path.name} to {path.tried[0]}"


def _hosts_line(door: NodeDoor, name: str) -> tuple[str, ...]:
    address = next(iter(_addresses(door)), "ADDRESS")
    return shell("getent hosts {:host}", name), shell("sudoedit /etc/hosts   # {:host} {:host}", address, name)


@check(Severity.ERROR, source=_RENDEZVOUS, given=paths_tried)
def head_unreachable(fleet: Fleet) -> Answer:
    """Nodes cannot connect to the place where all ranks meet, though they reach that node otherwise.

    Why: the job's first node listens at one port, by its name. Where the name means the loopback address, a node knocks
    at its own door; where a firewall closes the port, at a wall. torch waits for minutes and says that it timed out.

    Fix: correct the name, or open the port.
    """
    doors, ways = doors_of(fleet), reachable(fleet)
    paths = [p for p in fleet.paths or () if p.via == "head" and p.connected is not None and p.peer in doors]
    failed = [path for path in paths if not path.connected and _by_itself(path, doors[path.peer], ways)]
    if not paths:
        return Skip("the place where all meet was not tried")
    if not failed:
        return Ok(f"{counted(sum(bool(path.connected) for path in paths), 'node')} came there")
    first, head = failed[0], doors[failed[0].peer]
    nodes = tuple(path.node for path in failed)
    # The fewest nodes without which it works; with an address that means this machine on every one there are none.
    few = len(nodes) <= len(paths) / 2 or (len(nodes) == 1 and _astray(first, head))
    subjects: tuple[str, ...] = nodes if few else (head.node,)
    evidence = {"nodes": fold(nodes), "head": head.node, "port": head.meeting_port, "error": first.error}
    evidence["address"] = first.tried[0] if first.tried else None
    if first.name == "localhost" or is_loopback(first.name):
        subjects = ()
    return Problem(*_cannot_come(failed, head, nodes), evidence, subjects)


def _cannot_come(failed: Sequence[NodePath], head: NodeDoor, nodes: Sequence[str]) -> tuple[str, str, Fix]:
    """Title, cause and fix: what keeps nodes from the place where all meet."""
    first, said, port = failed[0], fold(nodes), head.meeting_port
    if first.name == "localhost" or is_loopback(first.name):
        return (
            f"all ranks are to meet at {first.name}: on {said} that is the node itself",
            f"That means another machine on every node. The first one is {head.node}.",
            Fix("Let them meet at the first node.", (_FIRST_NODE,)),
        )
    if _astray(first, head):
        return (
            f"{_meant(nodes, first)}, where all ranks meet: {errors(failed)}",
            f"That is not {head.node}: the ranks there would wait for somebody to answer until they time out.",
            Fix(f"Give the name its real address on {said}.", _hosts_line(head, first.name), who="admin"),
        )
    allow = shell("sudo iptables -I INPUT -p tcp --dport {:number} -j ACCEPT", port)
    return (
        f"{said} cannot connect to {first.name}:{port}, where all ranks meet: {errors(failed)}",
        f"{head.node} listens there, and other ports of it are open: a firewall closes this one.",
        Fix(f"Open the port on {head.node}, or take another one.", ("sudo iptables -S INPUT", allow), who="admin"),
    )


@check(Severity.ERROR, source=_RENDEZVOUS, because_of=("head_unreachable",))
def head_port_taken(fleet: Fleet) -> Answer:
    """The port at which all ranks are to meet is taken on the first node.

    Why: another job on the node, or a rank that outlived its own, holds it. The launcher stops with EADDRINUSE, or,
    worse, all ranks talk to the stranger and hang without a word.

    Fix: take another port, or end what holds it.
    """
    heads = [door for door in fleet.doors if door.meeting_port is not None]
    if not heads:
        return Skip("no port to meet at was tried")
    head = heads[0]
    if head.meeting_error is None:
        return Ok(f"{head.node} can listen at port {head.meeting_port}")
    return Problem(
        f"{head.node} cannot listen at port {head.meeting_port}, where all ranks are to meet: {head.meeting_error}",
        "Something else holds it there: another job, or what an earlier one left behind.",
        (
            Fix("See what holds it.", (shell("sudo ss -ltnp 'sport = :{:number}'", head.meeting_port),)),
            Fix(
                "Or take another port: below 32768, where the system takes none for itself.",
                ("export MASTER_PORT=$((12000 + (SLURM_JOB_ID + 1) % 20000))",),
            ),
        ),
        {"node": head.node, "port": head.meeting_port, "error": head.meeting_error},
        (head.node,),
    )


@check(Severity.ERROR, source=_RENDEZVOUS, because_of=("head_unreachable",), given=paths_tried)
def node_name_leads_elsewhere(fleet: Fleet) -> Answer:
    """The name that Slurm gives a node does not lead the other nodes to it, though its address does.

    Why: with c10d the ranks meet at the node whose name comes first, by that name. Nodes that cannot resolve it, or to
    which it means the loopback address, wait for minutes in silence.

    Fix: the same lines in /etc/hosts of all nodes, or an entry in DNS.
    """
    return _names(fleet, "name", "The ranks meet at a name. Those that it leads elsewhere wait until they time out.")


@check(
    Severity.WARNING,
    source=_RENDEZVOUS,
    because_of=("head_unreachable", "node_name_leads_elsewhere"),
    given=paths_tried,
)
def node_own_name_leads_elsewhere(fleet: Fleet) -> Answer:
    """The name that a node calls itself is not Slurm's name of it, and does not lead the other nodes to it.

    Why: unless told otherwise, torchrun and accelerate with c10d tell the others socket.getfqdn() of the node where
    they meet. Where /etc/hosts makes that `localhost`, or DNS does not know it, the other nodes wait in silence.

    Fix: tell the launcher Slurm's name (PET_LOCAL_ADDR, as in job scripts that mgpu writes), or correct the name.
    """
    words = "A job script that does not say --local-addr or PET_LOCAL_ADDR lets the ranks meet at that name."
    return _names(fleet, "full_name", words)


def _names(fleet: Fleet, via: str, cause: str) -> Answer:
    doors, ways = doors_of(fleet), reachable(fleet)
    paths = [
        path
        for path in fleet.paths or ()
        if path.via == via
        and path.connected is not None
        and path.peer in doors
        and (path.connected or _by_itself(path, doors[path.peer], ways))
    ]
    if not paths:
        return Skip("every node goes by Slurm's name" if via == "full_name" and ways else "no name was tried")
    found = blamed(paths, lambda path: bool(path.connected), fleet.nodes)
    if not found.subjects:
        return Ok(f"{counted(len({path.peer for path in paths}), 'name')} lead to their nodes")
    failed = [path for path in paths if not path.connected]
    first = next((path for path in failed if path.peer in found.reached[:1]), failed[0])
    nodes = [path.node for path in failed if (path.peer, path.tried) == (first.peer, first.tried)]
    more = len(failed) - len(nodes)
    line = Fix(
        f"Give the name its real address on {fold(nodes)}.", _hosts_line(doors[first.peer], first.name), who="admin"
    )
    told = Fix("Tell the launcher Slurm's name, in the step on each node.", ("export PET_LOCAL_ADDR=$SLURMD_NODENAME",))
    return Problem(
        f"{_meant(nodes, first)}, which is not {first.peer}"
        + (f"; {counted(more, 'more name leads', 'more names lead')} elsewhere" if more else ""),
        cause,
        (told, line) if via == "full_name" else line,
        {"from": first.node, "to": first.peer, "name": first.name, "error": first.error},
        found.subjects,
    )
