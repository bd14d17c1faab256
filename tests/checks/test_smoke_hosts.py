"""checks/smoke/hosts.py, and what checks/smoke/group.py says of ranks that do not meet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mgpu.smoke.ranks import STAGES
from mgpu.snapshot import Peer, Rank, Ranks, RendezvousEndpoint, Step
from tests.checks.facts import Case, fails, problem, rank, ranks, skips, table, warns, well


def broken(number: int, kind: str | None, error: str = "", /, rung: str = "group", **evidence: Any) -> Rank:
    """A rank on which a rung failed."""
    steps = (*(Step(below, True) for below in STAGES[: STAGES.index(rung)]), Step(rung, False, error))
    return rank(
        number, steps=steps, kind=kind, error=error, evidence=evidence, failed_at=10.0 + number, last_word="all-reduce",
        host="n1", world_size=None, accelerate_world_size=None, parameters=None, peers=PEERS,
    )  # fmt: skip


def two(*members: Rank, **changes: Any) -> Ranks:
    """Machine 0 of two, one rank each."""
    usual: dict[str, Any] = {
        "nodes": 2,
        "node": 0,
        "meeting": RendezvousEndpoint("n1", 29500),
        "ended": "died",
        "rungs": STAGES,
    }
    return replace(ranks(*members), **{"expected": 2, **usual, **changes})


PEERS = (Peer(0, "n1", "10.0.0.1"), Peer(1, "n2", "10.0.0.2", reachable=True))
ONE_WAY = (PEERS[0], Peer(1, "n2", "127.0.1.1", reachable=False, error="connection refused"))
NEVER = rank(0, pid=None, host=None, device=None, steps=(), last_word=None, last_word_order=0, finished=False)
MET = rank(0, host="n1", peers=PEERS)
WAY = {"host": "n2", "address": "127.0.1.1", "origin": "hostname", "source": "n1", "error": "connection refused"}
BLOCKED = {**WAY, "address": "10.0.0.2", "error": "timed out"}
RESET = (
    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [10.0.0.2]:4821: Connection reset by peer."
)
CLOSED = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:4821"
JOINED = "torch.distributed.DistStoreError: Timed out after 6 seconds waiting for clients. 1/2 clients joined."
CASES = (
    # ranks_never_came
    fails("ranks_never_came", 'ranks 2 and 3 on n2 did not reach stage "group" within 30 s', "result",
        ranks=ranks(broken(0, "ranks_missing", ranks=[2, 3], hosts=["n2"], limit_s=30))),
    fails("ranks_never_came", 'rank 1 did not reach stage "group" within 3 s', "launcher.log",
        ranks=ranks(broken(0, "ranks_missing", ranks=[1], hosts=[], limit_s=3))),
    fails("ranks_never_came", "and more", "launcher.log",
        ranks=ranks(broken(0, "ranks_missing", ranks=list(range(1, 20)), hosts=["n1", "n2"], limit_s=3))),
    well("ranks_never_came", "all 2 ranks connected", ranks=ranks(MET)),
    skips("ranks_never_came", "no rank reached the rendezvous", ranks=ranks(NEVER)),
    # rank_interface_missing
    fails("rank_interface_missing", 'in stage "group": GLOO_SOCKET_IFNAME=nope0, but n1 has no such interface',
        "export GLOO_SOCKET_IFNAME=eth0",
        ranks=ranks(broken(0, "interface_missing", variable="GLOO_SOCKET_IFNAME", value="nope0",
                           interfaces=["lo", "eth0"]))),
    well("rank_interface_missing", "exist", ranks=ranks(MET)),
    skips("rank_interface_missing", "no rank got that far", ranks=ranks(NEVER)),
    # ranks_laid_out_otherwise
    fails("ranks_laid_out_otherwise", "number of this machine is 1 for the launcher, but 0 in the config",
        "--node-rank 1",
        ranks=two(broken(0, "wrong_layout", what="number of this machine", found=1, wanted=0))),
    fails("ranks_laid_out_otherwise", "ranks on this machine is 3 for the launcher, but 2", "--node-rank 0",
        ranks=two(broken(0, "wrong_layout", what="ranks on this machine", found=3, wanted=2))),
    well("ranks_laid_out_otherwise", "2 ranks placed as configured"),
    skips("ranks_laid_out_otherwise", "no rank reached", ranks=ranks(replace(NEVER, world_size=None))),
    # meeting_point_unreachable
    fails("meeting_point_unreachable", 'rank 0 did not reach stage "start": rendezvous endpoint n1:29500 of node 0',
        "nc -vz n1 29500",
        ranks=two(NEVER, node=1, meeting=RendezvousEndpoint("n1", 29500, "connection refused"))),
    fails("meeting_point_unreachable", "does not respond", "nc -vz n1 29500",
        ranks=two(NEVER, node=1, meeting=RendezvousEndpoint("n1", 29500, "timed out"), ended="stalled")),
    fails("meeting_point_unreachable", "its name cannot be resolved", "main_process_ip",
        ranks=two(NEVER, node=1, meeting=RendezvousEndpoint("n1", 29500, "its name cannot be resolved (unknown)"))),
    fails("meeting_point_unreachable", "main_process_ip n1 is not an address of this machine", "ip -br addr",
        ranks=two(NEVER, meeting=RendezvousEndpoint("n1", 29500, "is not an address of this machine"))),
    fails("meeting_point_unreachable", 'in stage "group": cannot connect to rendezvous endpoint n1:29500: timed out',
        "nc -vz",
        ranks=two(broken(0, "master_unreachable", address="n1", port=29500, error="timed out"))),
    well("meeting_point_unreachable", "n1:29500 answered", ranks=two(NEVER)),
    well("meeting_point_unreachable", "answered", ranks=two(MET, meeting=RendezvousEndpoint("n1", 29500, "timed out"))),
    skips("meeting_point_unreachable", "single-node run"),
    skips("meeting_point_unreachable", "has no rendezvous endpoint", ranks=two(MET, meeting=None)),
    # machines_never_came
    fails("machines_never_came", 'node 1 did not join; rank 0 did not reach stage "start"', "--node-rank 1",
        ranks=two(NEVER, launcher_output=JOINED)),
    fails("machines_never_came", "node 1 did not join;", "--node-rank 1", ranks=two(NEVER, ended="stalled")),
    fails("machines_never_came", "1 of the others (node 1 and node 2) did not join;", "--node-rank 2",
        ranks=two(NEVER, nodes=3, launcher_output=JOINED.replace("1/2", "2/3"))),
    well("machines_never_came", "all 2 nodes joined", ranks=two(MET)),
    skips("machines_never_came", "single-node run"),
    skips("machines_never_came", "another reason", ranks=two(NEVER, launcher_output="ImportError")),
    skips("machines_never_came", "interrupted", ranks=two(NEVER, ended="interrupted")),
    # host_advertises_loopback
    fails("host_advertises_loopback",
        'in stage "group": n2 advertises 127.0.1.1 (its own name resolves to that); from n1: connection',
        "GLOO_SOCKET_IFNAME=eth0", ranks=two(broken(0, "advertises_loopback", **WAY))),
    fails("host_advertises_loopback", "its own name does not resolve", "/etc/hosts",
        ranks=two(broken(0, "name_unresolvable", **{**WAY, "origin": "unresolvable"}))),
    fails("host_advertises_loopback", "(set by GLOO_SOCKET_IFNAME);", "ip -br addr",
        ranks=two(broken(0, "advertises_loopback", **{**WAY, "origin": "GLOO_SOCKET_IFNAME"}))),
    well("host_advertises_loopback", "to each other", ranks=two(MET)),
    skips("host_advertises_loopback", "single-node run"),
    skips("host_advertises_loopback", "not tested (nothing)", ranks=two(NEVER)),
    # host_port_blocked
    fails("host_port_blocked", 'in stage "group": n1 cannot connect to n2 at 10.0.0.2: timed out', "iptables",
        ranks=two(broken(0, "data_port_blocked", **BLOCKED))),
    fails("host_port_blocked", "answered by another program", "GLOO_SOCKET_IFNAME",
        ranks=two(broken(0, "data_port_blocked", **{**BLOCKED, "error": "answered by another program"}))),
    well("host_port_blocked", "to each other", ranks=two(MET)),
    skips("host_port_blocked", "single-node run"),
    # host_reached_one_way
    warns("host_reached_one_way", "n1 cannot connect to n2 at 127.0.1.1: connection refused", "getent hosts n2",
        ranks=two(replace(MET, peers=ONE_WAY), ended="finished")),
    well("host_reached_one_way", "1 other host reachable", ranks=two(MET, ended="finished")),
    skips("host_reached_one_way", "single-node run"),
    skips("host_reached_one_way", "not tested", ranks=two(NEVER)),
    # peer_disappeared
    fails("peer_disappeared", 'n2 (rank 1) closed its connection to rank 0 (cuda:0, pid 5000) in stage "collectives"',
        "Check the test's result on n2.", ranks=two(broken(0, None, RESET, rung="collectives"))),
    fails("peer_disappeared", "n2 (rank 1) closed", "n2", ranks=two(broken(0, None, CLOSED, rung="train"))),
    well("peer_disappeared", "not a broken connection to another node",
        ranks=two(broken(0, None, RESET.replace("10.0.0.2", "10.0.0.1")))),
    well("peer_disappeared", "no connection to another node broke", ranks=two(MET)),
    skips("peer_disappeared", "single-node run", ranks=ranks(broken(0, None, RESET))),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_every_host_that_cannot_be_reached_is_named() -> None:
    ways = [WAY, {**WAY, "host": "n1", "source": "n2"}]
    found = problem("host_advertises_loopback", ranks=two(broken(0, "advertises_loopback", **WAY, ways=ways)))
    assert found.cause.endswith("Affected: n1 and n2.") and found.subjects == ("n1", "n2")
