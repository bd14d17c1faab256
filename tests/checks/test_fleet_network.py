"""checks/fleet/network.py and checks/fleet/names.py"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from mgpu.fleet.connectivity import partners as mesh_of
from mgpu.snapshot import Fleet, Interface, NodeAddresses, NodePath
from tests.checks.facts import Case, fails, fleet, skips, table, warns, well
from tests.conftest import ask_all

THREE = ("n1", "n2", "n3")
SIX = tuple(f"n{number}" for number in range(1, 7))


def door(node: str, *more: Interface, mtu: int = 1500, **changes: Any) -> NodeAddresses:
    """A node with one interface, which its name means."""
    number = node.removeprefix("n")
    lo = Interface("lo", True, True, ("127.0.0.1",), False, 65536, kind="loopback", running=True, routable=False)
    eth0 = Interface("eth0", True, False, (f"10.200.0.{number}",), False, mtu, kind="physical", running=True, ipv4=True,
                     routable=True)  # fmt: skip
    usual = NodeAddresses(
        node, node, node, (f"10.200.0.{number}",), None, f"10.200.0.{number}", interfaces=(lo, eth0, *more)
    )
    return replace(usual, **changes)


def second(node: str, mtu: int = 1500) -> Interface:
    """One more interface of it."""
    return Interface("eth1", True, False, (f"10.201.0.{node.removeprefix('n')}",), False, mtu, kind="physical",
                     running=True, ipv4=True, routable=True)  # fmt: skip


def mesh(
    *nodes: str,
    doors: Mapping[str, NodeAddresses] | None = None,
    seen: Callable[[NodePath], NodePath | None] = lambda path: path,
    head: str | None = "n1",
) -> Fleet:
    """All ways between some nodes. `seen`: what became of a way that is well; None: it was not tried."""
    every = [(doors or {}).get(node, door(node)) for node in nodes]
    every[0] = replace(every[0], meeting_port=every[0].meeting_port or 14242)
    ways: list[NodePath] = []
    for one in every:
        for peer in every:
            if one.node == peer.node:
                continue
            ways.append(NodePath(one.node, peer.node, "name", peer.node, (f"10.200.0.{peer.node[1:]}",), True))
            if peer.address.startswith("127."):
                ways.append(NodePath(one.node, peer.node, "lo", "", (peer.address,), False, "connection refused"))
            ways += [
                NodePath(one.node, peer.node, way.name, "", way.addresses, True, None, True, None, 0.0001, 900.0)
                for way in peer.interfaces[1:]
            ]
        if head and one is not every[0]:
            ways.append(NodePath(one.node, every[0].node, "head", head, ("10.200.0.1",), True))
    found = tuple(way for path in ways if (way := seen(path)))
    return fleet(nodes=nodes, doors=tuple(every), paths=found)


def lost(path: NodePath, error: str = "timed out", tried: tuple[str, ...] | None = None) -> NodePath:
    """A way that leads nowhere."""
    return replace(
        path, connected=False, error=error, bulk=None, mbit_per_s=None, tried=path.tried if tried is None else tried
    )


def closed(*targets: str, error: str = "timed out") -> Callable[[NodePath], NodePath]:
    """Nobody reaches these nodes."""
    return lambda path: lost(path, error) if path.peer in targets else path


def mute(*sources: str) -> Callable[[NodePath], NodePath]:
    """These nodes reach nobody."""
    return lambda path: lost(path, "no route to host") if path.node in sources else path


def apart(*pair: str) -> Callable[[NodePath], NodePath]:
    """Two nodes that do not reach each other."""
    return lambda path: lost(path) if {path.node, path.peer} == {*pair} else path


def astray(name: str, *sources: str, to: tuple[str, ...] = ("127.0.1.1",), via: str = "") -> Callable[..., NodePath]:
    """A name that means something else on some nodes."""

    def seen(path: NodePath) -> NodePath:
        named = path.via in ("name", "full_name", "head") and path.name == name and via in ("", path.via)
        error = "connection refused" if to else "its name cannot be resolved (Name or service not known)"
        return lost(path, error, to) if named and path.node in sources else path

    return seen


def shrinks(*nodes: str, via: str = "eth0") -> Callable[[NodePath], NodePath]:
    """Full packets do not come through to and from these."""
    return lambda path: (
        replace(path, bulk=False, stalled="there", mbit_per_s=None)
        if path.via == via and {path.node, path.peer} & {*nodes}
        else path
    )


def slow(rate: float, *nodes: str) -> Callable[[NodePath], NodePath]:
    """So slow are the ways to and from these."""
    return lambda path: (
        replace(path, mbit_per_s=rate) if path.mbit_per_s and {path.node, path.peer} & {*nodes} else path
    )


def on_eth1(path: NodePath) -> NodePath:
    """The second network does not lead to n2."""
    return lost(path) if path.via == "eth1" and "n2" in (path.node, path.peer) else path


TWO_NETS = {node: door(node, second(node)) for node in THREE}
DATA_NET = {
    node: door(node, second(node), address=f"10.201.0.{node[1:]}", origin="GLOO_SOCKET_IFNAME",
               named={"GLOO_SOCKET_IFNAME": "eth1"}) for node in THREE
}  # fmt: skip
GPU_NETS = {node: replace(one, on_gpu=True, origin="interface") for node, one in TWO_NETS.items()}
NAMED = {
    node: replace(one, named={"NCCL_SOCKET_IFNAME": "eth0"}, origin="NCCL_SOCKET_IFNAME")
    for node, one in GPU_NETS.items()
}
LOOPBACK = door("n2", own_addresses=("127.0.1.1",), address="127.0.1.1")
NAMELESS = door("n2", own_addresses=(), own_error="Name or service not known", address="127.0.0.1",
                origin="unresolvable")  # fmt: skip
JUMBO = {"n1": door("n1", mtu=9000)}
ELSEWHERE = {node: door(node, full_name="localhost") for node in THREE}


def full_names(path: NodePath) -> NodePath:
    """What each node calls itself was tried in place of Slurm's name."""
    return replace(path, via="full_name", name="localhost") if path.via == "name" else path


def not_by_full_name(path: NodePath) -> NodePath:
    """… and means the loopback address."""
    path = full_names(path)
    return lost(path, "connection refused", ("127.0.0.1",)) if path.via == "full_name" else path


def one_machine(path: NodePath) -> NodePath:
    """Nodes that are one machine in truth reach each other at its loopback address."""
    return replace(path, connected=True, error=None) if path.via == "lo" else path


CASES = (
    # node_tells_loopback
    fails("node_tells_loopback",
        "n2 gives the other nodes the loopback address 127.0.1.1: its own name resolves to that",
        "export GLOO_SOCKET_IFNAME=eth0", fleet=mesh(*THREE, doors={"n2": LOOPBACK})),
    fails("node_tells_loopback",
        "n2 gives the other nodes the loopback address 127.0.0.1: its own name does not resolve",
        "GLOO_SOCKET_IFNAME", fleet=mesh(*THREE, doors={"n2": NAMELESS})),
    well("node_tells_loopback", "no loopback address among 3 nodes", fleet=mesh(*THREE)),
    well("node_tells_loopback", "no loopback address among 3 nodes",
        fleet=mesh(*THREE, doors={"n2": LOOPBACK}, seen=one_machine)),
    skips("node_tells_loopback", "were not tried", fleet=fleet()),
    # node_unreachable
    fails("node_unreachable", "no other node can reach n2 at 10.200.0.2: timed out",
        "iptables -I INPUT -s 10.200.0.1 -p tcp -j ACCEPT", fleet=mesh(*THREE, seen=closed("n2"))),
    fails("node_unreachable", "no other node can reach n2 at 10.200.0.2: connection refused", "iptables",
        fleet=mesh(*THREE, seen=closed("n2", error="connection refused"))),
    fails("node_unreachable", "no other node can reach n2 at 10.200.0.2: answered by another program", "iptables",
        fleet=mesh(*THREE, seen=closed("n2", error="answered by another program"))),
    fails("node_unreachable", "no other node can reach n[2-3]: timed out", "iptables",
        fleet=mesh(*THREE, seen=closed("n2", "n3"))),
    fails("node_unreachable", "n4 cannot reach any other node: no route to host", "iptables",
        fleet=mesh(*SIX, seen=mute("n4"))),
    fails("node_unreachable", "n2 cannot reach n5 and n5 cannot reach n2: timed out", "iptables",
        fleet=mesh(*SIX, seen=apart("n2", "n5"))),
    fails("node_unreachable", "n1 cannot reach n2 and n2 cannot reach n1: timed out", "iptables",
        fleet=mesh("n1", "n2", seen=apart("n1", "n2"))),
    fails("node_unreachable", "no other node can reach n2 at 10.200.0.2: timed out", "iptables",
        fleet=mesh("n1", "n2", seen=closed("n2"))),
    fails("node_unreachable", "no node can reach another: timed out", "iptables",
        fleet=mesh(*THREE, seen=closed(*THREE))),
    fails("node_unreachable", "no other node can reach n2 at 10.201.0.2: timed out", "export GLOO_SOCKET_IFNAME=eth0",
        fleet=mesh(*THREE, doors=DATA_NET, seen=on_eth1)),
    well("node_unreachable", "6 connections between 3 nodes", fleet=mesh(*THREE)),
    skips("node_unreachable", "no rank has",
        fleet=mesh("n1", "n2", doors={node: door(node, address="127.0.1.1") for node in ("n1", "n2")})),
    skips("node_unreachable", "were not tried", fleet=fleet()),
    # node_interface_isolated
    warns("node_interface_isolated", "eth1 of n2 (10.201.0.2) is up, but cannot be reached: timed out",
        "export NCCL_SOCKET_IFNAME=eth0", fleet=mesh(*THREE, doors=TWO_NETS, seen=on_eth1)),
    warns("node_interface_isolated", "eth1 of n[1-3] is up", "export NCCL_SOCKET_IFNAME=eth0",
        fleet=mesh(*THREE, doors=GPU_NETS, seen=lambda path: lost(path) if path.via == "eth1" else path)),
    warns("node_interface_isolated", "eth1 of n3 (10.201.0.3) is up, but loses full-size packets",
        "NCCL_SOCKET_IFNAME=eth0",
        fleet=mesh(*THREE, doors=TWO_NETS, seen=shrinks("n3", via="eth1"))),
    well("node_interface_isolated", "6 connections to other interfaces", fleet=mesh(*THREE, doors=TWO_NETS)),
    well("node_interface_isolated", "6 connections to other interfaces",  # nobody uses it, and it leads nowhere for all
        fleet=mesh(*THREE, doors=NAMED, seen=lambda path: lost(path) if path.via == "eth1" else path)),
    well("node_interface_isolated", "one external interface per node", fleet=mesh(*THREE)),
    well("node_interface_isolated", "one external interface per node", fleet=mesh(*THREE, seen=closed("n2"))),
    skips("node_interface_isolated", "were not tried", fleet=fleet()),
    # node_loses_full_packets
    fails("node_loses_full_packets", "lost to and from n1, small ones arrive; MTU 9000 on n1, 1500 on n[2-3]",
        "sudo ip link set eth0 mtu 1500", fleet=mesh(*THREE, doors=JUMBO, seen=shrinks("n1"))),
    fails("node_loses_full_packets", "lost to and from n1, small ones arrive", "sudo ip link set eth0 mtu 1400",
        fleet=mesh(*THREE, seen=shrinks("n1"))),
    fails("node_loses_full_packets", "lost between n1 and n2, small ones arrive; MTU 9000 on n[1-2], 1500 on n[3-6]",
        "sudo ip link set eth0 mtu 1500",
        fleet=mesh(*SIX, doors={node: door(node, mtu=9000) for node in ("n1", "n2")},
            seen=lambda path: shrinks("n1")(path) if {path.node, path.peer} == {"n1", "n2"} else path)),
    well("node_loses_full_packets", "full-size packets arrive on 6 connections", fleet=mesh(*THREE, doors=JUMBO)),
    skips("node_loses_full_packets", "no connection", fleet=mesh(*THREE, seen=closed(*THREE))),
    skips("node_loses_full_packets", "were not tried", fleet=fleet()),
    # node_link_slow
    warns("node_link_slow", "9.4 Mbit/s to or from n3; the median between these nodes is 900",
        "ethtool eth0 | grep Speed",
        fleet=mesh(*SIX, seen=slow(9.4, "n3"))),
    warns("node_link_slow", "40 Mbit/s to or from n3; the median between these nodes is 900", "ip -s link show eth0",
        fleet=mesh(*SIX, seen=slow(40.0, "n3"))),
    warns("node_link_slow", "5 Mbit/s to or from", "ethtool", fleet=mesh(*THREE, seen=slow(5.0, *THREE))),
    well("node_link_slow", "at least 40 Mbit/s", fleet=mesh(*SIX, seen=slow(40.0, *SIX))),  # a busy machine
    well("node_link_slow", "at least 900 Mbit/s", fleet=mesh(*THREE)),
    well("node_link_slow", "at least 900 Mbit/s",  # one bad moment, and the way back was well
        fleet=mesh(*SIX, seen=lambda path: slow(3.0, "n2")(path) if path.node == "n2" else path)),
    skips("node_link_slow", "was measured", fleet=mesh(*THREE, seen=closed(*THREE))),
    skips("node_link_slow", "were not tried", fleet=fleet()),
    # head_unreachable
    fails("head_unreachable", "n[2-3] resolve n1 to 127.0.1.1, the rendezvous endpoint: connection refused",
        "sudoedit /etc/hosts   # 10.200.0.1 n1", fleet=mesh(*THREE, seen=astray("n1", "n2", "n3"))),
    fails("head_unreachable", "n3 resolves n1 to 127.0.1.1, the rendezvous endpoint:", "getent hosts n1",
        fleet=mesh(*THREE, seen=astray("n1", "n3"))),
    fails("head_unreachable", "n2 resolves n1 to 127.0.1.1, the rendezvous endpoint:", "getent hosts n1",
        fleet=mesh("n1", "n2", seen=astray("n1", "n2"))),
    fails("head_unreachable", "n[2-3] cannot resolve n1, the rendezvous endpoint: its name cannot be resolved",
        "getent hosts n1", fleet=mesh(*THREE, seen=astray("n1", "n2", "n3", to=()))),
    fails("head_unreachable", "n[2-3] cannot connect to the rendezvous endpoint n1:14242: timed out",
        "--dport 14242 -j ACCEPT", fleet=mesh(*THREE, seen=lambda p: lost(p) if p.via == "head" else p)),
    fails("head_unreachable", "n2 cannot connect to the rendezvous endpoint n1:14242", "--dport 14242",
        fleet=mesh(*SIX, seen=lambda p: lost(p) if p.via == "head" and p.node == "n2" else p)),
    fails("head_unreachable", "rendezvous endpoint localhost: on n[2-3] that is the node itself",
        "scontrol show hostnames",
        fleet=mesh(*THREE, head="localhost", seen=astray("localhost", *THREE, to=("127.0.0.1",)))),
    well("head_unreachable", "2 nodes connected to the rendezvous endpoint", fleet=mesh(*THREE)),
    well("head_unreachable", "0 nodes connected to the rendezvous endpoint",
        fleet=mesh(*THREE, seen=closed("n1"))),  # another check says why
    skips("head_unreachable", "was not tested", fleet=mesh(*THREE, head=None)),
    skips("head_unreachable", "were not tried", fleet=fleet()),
    # head_port_taken
    fails("head_port_taken", "n1 cannot listen on the rendezvous port 14242: address already in use",
        "sudo ss -ltnp 'sport = :14242'",
        fleet=mesh(*THREE, doors={"n1": door("n1", meeting_error="address already in use")})),
    well("head_port_taken", "n1 can listen on port 14242", fleet=mesh(*THREE)),
    skips("head_port_taken", "no rendezvous port", fleet=fleet()),
    # node_name_leads_elsewhere
    fails("node_name_leads_elsewhere", "n[1,3] resolve n2 to 10.9.9.9, which is not n2",
        "sudoedit /etc/hosts   # 10.200.0.2 n2",
        fleet=mesh(*THREE, seen=astray("n2", "n1", "n3", to=("10.9.9.9",)))),
    fails("node_name_leads_elsewhere", "n3 cannot resolve n1, which is not n1; 1 more name resolves wrongly",
        "getent hosts n1",
        fleet=mesh(*THREE, seen=lambda p: astray(p.name, "n3", to=())(p))),
    well("node_name_leads_elsewhere", "3 names resolved to the right nodes", fleet=mesh(*THREE)),
    well("node_name_leads_elsewhere",
        "2 names resolved to the right nodes",  # the address is not reached, whatever its name
        fleet=mesh(*THREE, doors=TWO_NETS, seen=lambda p: lost(p) if p.peer == "n2" and p.via != "eth1" else p)),
    skips("node_name_leads_elsewhere", "no name was tested", fleet=mesh(*THREE, seen=closed(*THREE))),
    skips("node_name_leads_elsewhere", "were not tried", fleet=fleet()),
    # node_own_name_leads_elsewhere
    warns("node_own_name_leads_elsewhere",
        "n[2-3] resolve localhost to 127.0.0.1, which is not n1; 4 more names resolve wrongly",
        "export PET_LOCAL_ADDR=$SLURMD_NODENAME",
        fleet=mesh(*THREE, doors=ELSEWHERE, seen=not_by_full_name)),
    well("node_own_name_leads_elsewhere", "3 names resolved to the right nodes",
        fleet=mesh(*THREE, doors=ELSEWHERE, seen=full_names)),
    skips("node_own_name_leads_elsewhere", "every node uses Slurm's name", fleet=mesh(*THREE)),
    skips("node_own_name_leads_elsewhere", "were not tried", fleet=fleet()),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


# What is left out of the job: the fewest nodes without which it works.
LEFT_OUT = [
    ("node_tells_loopback", mesh(*THREE, doors={"n2": LOOPBACK}), "n2"),
    ("node_unreachable", mesh(*THREE, seen=closed("n2")), "n2"),
    ("node_unreachable", mesh(*THREE, seen=closed("n2", "n3")), "n2 n3"),
    ("node_unreachable", mesh(*THREE, seen=closed(*THREE)), "n1 n2 n3"),
    ("node_unreachable", mesh(*SIX, seen=mute("n4")), "n4"),
    ("node_unreachable", mesh(*SIX, seen=apart("n2", "n5")), "n5"),
    ("node_unreachable", mesh("n1", "n2", seen=apart("n1", "n2")), "n2"),
    ("node_loses_full_packets", mesh(*THREE, seen=shrinks("n1")), "n1"),
    ("head_unreachable", mesh(*THREE, seen=astray("n1", "n2", "n3")), "n1"),
    ("head_unreachable", mesh(*THREE, seen=astray("n1", "n3")), "n3"),
    ("head_unreachable", mesh("n1", "n2", seen=astray("n1", "n2")), "n2"),
    ("head_unreachable", mesh(*THREE, seen=lambda p: lost(p) if p.via == "head" else p), "n1"),
    ("head_unreachable", mesh(*THREE, head="localhost", seen=astray("localhost", *THREE, to=("127.0.0.1",))), ""),
    ("head_port_taken", mesh(*THREE, doors={"n1": door("n1", meeting_error="address already in use")}), "n1"),
    ("node_name_leads_elsewhere", mesh(*THREE, seen=astray("n2", "n1", "n3", to=())), "n2"),
]


@pytest.mark.parametrize(("check", "seen", "nodes"), LEFT_OUT)
def test_the_fewest_nodes_are_left_out(check: str, seen: Fleet, nodes: str) -> None:
    (outcome,) = ask_all(check, fleet=seen)
    assert outcome.problem is not None
    assert outcome.problem.subjects == tuple(nodes.split())


def test_a_bad_node_and_a_bad_link_are_two_problems() -> None:
    seen = mesh(*SIX, seen=lambda path: apart("n1", "n6")(closed("n3")(path)))
    found = [outcome.problem for outcome in ask_all("node_unreachable", fleet=seen)]
    assert [problem and problem.subjects for problem in found] == [("n3",), ("n6",)]


def test_of_a_thousand_nodes_that_try_a_few_each_the_bad_ones_are_found() -> None:
    """Each tries those 1, 2, 4 ... places further on, as the real ones do; beside a link that fails by itself."""
    nodes = tuple(f"n{number}" for number in range(1, 1001))
    bad, link = {"n7", "n8", "n600"}, {"n1", "n2"}
    doors = tuple(door(node, address=f"10.200.{int(node[1:]) >> 8}.{int(node[1:]) & 255}") for node in nodes)
    paths = []
    for place, one in enumerate(doors):
        for other in mesh_of(place, len(nodes)):
            peer = doors[other]
            path = NodePath(one.node, peer.node, "eth0", "", (peer.address,), True, None, True)
            paths.append(lost(path) if peer.node in bad or {one.node, peer.node} == link else path)
    problems = [
        outcome.problem
        for outcome in ask_all("node_unreachable", fleet=fleet(nodes=nodes, doors=doors, paths=tuple(paths)))
    ]
    assert [problem and problem.subjects for problem in problems] == [("n7", "n8", "n600"), ("n2",)]
    assert problems[0] is not None and "n[7-8,600]" in problems[0].title
