"""checks/smoke/hosts.py, and what checks/smoke/group.py says of ranks that do not meet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mgpu.smoke.ranks import RUNGS
from mgpu.snapshot import Meeting, Peer, Rank, Ranks, Step
from tests.checks.facts import Case, fails, problem, rank, ranks, skips, table, warns, well


def broken(number: int, kind: str | None, error: str = "", /, rung: str = "group", **evidence: Any) -> Rank:
    """A rank on which a rung failed."""
    steps = (*(Step(below, True) for below in RUNGS[: RUNGS.index(rung)]), Step(rung, False, error))
    return rank(
        number, steps=steps, kind=kind, error=error, evidence=evidence, failed_at=10.0 + number, last_word="all-reduce",
        host="n1", world_size=None, accelerate_world_size=None, parameters=None, peers=PEERS,
    )  # fmt: skip


def two(*members: Rank, **changes: Any) -> Ranks:
    """Machine 0 of two, one rank each."""
    usual: dict[str, Any] = {"nodes": 2, "node": 0, "meeting": Meeting("n1", 29500), "ended": "died", "rungs": RUNGS}
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
    fails("ranks_never_came", 'ranks 2 and 3 on n2 did not come to "group" within 30 s', "verdict",
        ranks=ranks(broken(0, "ranks_missing", ranks=[2, 3], hosts=["n2"], limit_s=30))),
    fails("ranks_never_came", 'rank 1 did not come to "group" within 3 s', "launcher.log",
        ranks=ranks(broken(0, "ranks_missing", ranks=[1], hosts=[], limit_s=3))),
    fails("ranks_never_came", "and more", "launcher.log",
        ranks=ranks(broken(0, "ranks_missing", ranks=list(range(1, 20)), hosts=["n1", "n2"], limit_s=3))),
    well("ranks_never_came", "all 2 ranks came", ranks=ranks(MET)),
    skips("ranks_never_came", "no rank came as far", ranks=ranks(NEVER)),
    # rank_interface_missing
    fails("rank_interface_missing", 'at "group": GLOO_SOCKET_IFNAME=nope0, and n1 has no such interface',
        "export GLOO_SOCKET_IFNAME=eth0",
        ranks=ranks(broken(0, "interface_missing", variable="GLOO_SOCKET_IFNAME", value="nope0",
                           interfaces=["lo", "eth0"]))),
    well("rank_interface_missing", "exist", ranks=ranks(MET)),
    skips("rank_interface_missing", "no rank came as far", ranks=ranks(NEVER)),
    # ranks_laid_out_otherwise
    fails("ranks_laid_out_otherwise", "number of this machine is 1 for the launcher, 0 for the config",
        "--node-rank 1",
        ranks=two(broken(0, "wrong_layout", what="number of this machine", found=1, wanted=0))),
    fails("ranks_laid_out_otherwise", "ranks on this machine is 3 for the launcher, 2", "--node-rank 0",
        ranks=two(broken(0, "wrong_layout", what="ranks on this machine", found=3, wanted=2))),
    well("ranks_laid_out_otherwise", "2 ranks where the config wants them"),
    skips("ranks_laid_out_otherwise", "no rank came as far", ranks=ranks(replace(NEVER, world_size=None))),
    # meeting_point_unreachable
    fails("meeting_point_unreachable", 'rank 0 never came to "start": n1:29500, where machine 0 listens, refuses',
        "nc -vz n1 29500",
        ranks=two(NEVER, node=1, meeting=Meeting("n1", 29500, "connection refused"))),
    fails("meeting_point_unreachable", "does not answer", "nc -vz n1 29500",
        ranks=two(NEVER, node=1, meeting=Meeting("n1", 29500, "timed out"), ended="stalled")),
    fails("meeting_point_unreachable", "its name cannot be resolved", "main_process_ip",
        ranks=two(NEVER, node=1, meeting=Meeting("n1", 29500, "its name cannot be resolved (unknown)"))),
    fails("meeting_point_unreachable", "main_process_ip n1 is not an address of this machine", "ip -br addr",
        ranks=two(NEVER, meeting=Meeting("n1", 29500, "is not an address of this machine"))),
    fails("meeting_point_unreachable", 'at "group": the meeting point n1:29500 does not answer: timed out', "nc -vz",
        ranks=two(broken(0, "master_unreachable", address="n1", port=29500, error="timed out"))),
    well("meeting_point_unreachable", "n1:29500 answered", ranks=two(NEVER)),
    well("meeting_point_unreachable", "answered", ranks=two(MET, meeting=Meeting("n1", 29500, "timed out"))),
    skips("meeting_point_unreachable", "one machine"),
    skips("meeting_point_unreachable", "names no meeting point", ranks=two(MET, meeting=None)),
    # machines_never_came
    fails("machines_never_came", 'machine 1 never came; rank 0 did not come to "start"', "--node-rank 1",
        ranks=two(NEVER, launcher_output=JOINED)),
    fails("machines_never_came", "machine 1 never came", "--node-rank 1", ranks=two(NEVER, ended="stalled")),
    fails("machines_never_came", "1 of the others (machine 1 and machine 2) never came", "--node-rank 2",
        ranks=two(NEVER, nodes=3, launcher_output=JOINED.replace("1/2", "2/3"))),
    well("machines_never_came", "all 2 machines came", ranks=two(MET)),
    skips("machines_never_came", "one machine"),
    skips("machines_never_came", "another reason", ranks=two(NEVER, launcher_output="ImportError")),
    skips("machines_never_came", "not waited for", ranks=two(NEVER, ended="interrupted")),
    # host_advertises_loopback
    fails("host_advertises_loopback",
        'at "group": n2 says that it is reached at 127.0.1.1 (its own name resolves to that); from n1: connection',
        "GLOO_SOCKET_IFNAME=eth0", ranks=two(broken(0, "advertises_loopback", **WAY))),
    fails("host_advertises_loopback", "its own name does not resolve", "/etc/hosts",
        ranks=two(broken(0, "name_unresolvable", **{**WAY, "origin": "unresolvable"}))),
    fails("host_advertises_loopback", "GLOO_SOCKET_IFNAME says so", "ip -br addr",
        ranks=two(broken(0, "advertises_loopback", **{**WAY, "origin": "GLOO_SOCKET_IFNAME"}))),
    well("host_advertises_loopback", "reach each other", ranks=two(MET)),
    skips("host_advertises_loopback", "one machine"),
    skips("host_advertises_loopback", "not tried", ranks=two(NEVER)),
    # host_port_blocked
    fails("host_port_blocked", 'at "group": n1 cannot connect to n2 at 10.0.0.2: timed out', "iptables",
        ranks=two(broken(0, "data_port_blocked", **BLOCKED))),
    fails("host_port_blocked", "answered by somebody else", "GLOO_SOCKET_IFNAME",
        ranks=two(broken(0, "data_port_blocked", **{**BLOCKED, "error": "answered by somebody else"}))),
    well("host_port_blocked", "reach each other", ranks=two(MET)),
    skips("host_port_blocked", "one machine"),
    # host_reached_one_way
    warns("host_reached_one_way", "n1 cannot connect to n2 at 127.0.1.1: connection refused", "getent hosts n2",
        ranks=two(replace(MET, peers=ONE_WAY), ended="finished")),
    well("host_reached_one_way", "1 other host reached", ranks=two(MET, ended="finished")),
    skips("host_reached_one_way", "one machine"),
    skips("host_reached_one_way", "not tried", ranks=two(NEVER)),
    # peer_disappeared
    fails("peer_disappeared", 'n2 (rank 1) closed its connection to rank 0 (cuda:0, pid 5000) at "collectives"',
        "verdict of the test on n2", ranks=two(broken(0, None, RESET, rung="collectives"))),
    fails("peer_disappeared", "n2 (rank 1) closed", "n2", ranks=two(broken(0, None, CLOSED, rung="train"))),
    well("peer_disappeared", "no broken connection to another machine",
        ranks=two(broken(0, None, RESET.replace("10.0.0.2", "10.0.0.1")))),
    well("peer_disappeared", "no connection to another machine broke", ranks=two(MET)),
    skips("peer_disappeared", "one machine", ranks=ranks(broken(0, None, RESET))),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_every_host_that_cannot_be_reached_is_named() -> None:
    ways = [WAY, {**WAY, "host": "n1", "source": "n2"}]
    found = problem("host_advertises_loopback", ranks=two(broken(0, "advertises_loopback", **WAY, ways=ways)))
    assert found.cause.endswith("Concerned: n1 and n2.") and found.subjects == ("n1", "n2")
