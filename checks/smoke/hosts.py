"""Can the nodes of a run connect to each other, and do all of them stay in the run?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Rank, Ranks, RendezvousEndpoint
from mgpu.text import counted, listed

from ._causes import LOST
from ._diagnoses import DIAGNOSES
from ._rank_states import (
    TORCH,
    last_line,
    last_progress,
    no_rank_started,
    own_failure,
    own_failures,
    rank_name,
    rank_names,
    report_of,
    stage_of,
)

_ELASTIC = "https://pytorch.org/docs/stable/elastic/rendezvous.html"
_GLOO = "https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupGloo.cpp"
_JOINED = re.compile(r"(\d+)/(\d+) clients joined")
# gloo's message for a lost peer, with its address: "Read error [10.0.0.2]:41527: Connection reset by peer".
_GONE = re.compile(
    r"\[([\w:.-]+)\]:\d+[^\n]{0,80}?(?:reset by peer|Broken pipe)|closed by peer \[([\w:.-]+)\]"  # also redacted ones
)


def _several_nodes(ranks: Ranks) -> Skip | None:
    """Skip a check of the connections between nodes if the run has only one."""
    return Skip("single-node run") if ranks.nodes == 1 else None


def _connection_cause(meeting: RendezvousEndpoint) -> str:
    """Return the likely cause of a failed connection to the rendezvous endpoint."""
    if meeting.error == "connection refused":
        return (
            "The host responds, but no process listens on the port: its test was not started or has finished, or a "
            "firewall rejects the connection."
        )
    if meeting.error == "timed out":
        return "There is no response at all: a firewall drops the packets, or no host has this address."
    return "All ranks need the rendezvous endpoint to start."


def _rank_cannot_connect(rank: Rank) -> Problem:
    address, port = rank.evidence.get("address"), rank.evidence.get("port")
    return Problem(
        f'{rank_name(rank)} in stage "group": cannot connect to rendezvous endpoint {address}:{port}: '
        f"{rank.evidence.get('error')}",
        "The launcher could connect to it; this rank cannot.",
        Fix("Open the port on the rendezvous node.", (shell("nc -vz {:host} {:number}", address, port),)),
        {"rank": rank.rank, "rung": "group", **_plain_evidence(rank)},
        (f"rank {rank.rank}",),
    )


@check(Severity.ERROR, source=_ELASTIC, tags=("echo",))
def meeting_point_unreachable(ranks: Ranks) -> Answer:
    """The rendezvous endpoint does not respond.

    Why: main_process_ip and main_process_port define it; node 0 listens there as soon as its launcher runs. torch
    retries for minutes, then reports only a timeout.

    Fix: Start the test on node 0 too, and make sure that its port is open.
    More: Correct the address, or open the port.
    """
    if failed := own_failure(ranks, "master_unreachable"):
        return _rank_cannot_connect(failed)
    meeting = ranks.meeting
    if meeting is None:
        return Skip("single-node run" if ranks.nodes == 1 else "the config has no rendezvous endpoint")
    if meeting.error is None or not no_rank_started(ranks):
        return Ok(f"{meeting.address}:{meeting.port} answered")
    numbers = [rank.rank for rank in ranks.ranks]
    where = f"{meeting.address}:{meeting.port}"
    endpoint = f"main_process_ip {meeting.address}" if ranks.node == 0 else f"rendezvous endpoint {where} of node 0"
    who = rank_names(numbers)
    title = f'{who} did not reach stage "start": {endpoint} {_error_verb(meeting.error)}'
    fixes = [Fix("Set main_process_ip to an address of node 0 that all nodes can reach.", ("ip -br addr",))]
    if ranks.node and "resolved" not in meeting.error:
        fixes.insert(0, commands(shell("nc -vz {:host} {:number}", meeting.address, meeting.port)))
    return Problem(
        title,
        _connection_cause(meeting),
        tuple(fixes),
        {
            "rung": "start",
            "address": meeting.address,
            "port": meeting.port,
            "error": meeting.error,
            "machine": ranks.node,
        },
        tuple(f"rank {rank.rank}" for rank in ranks.ranks),
    )


def _error_verb(error: str) -> str:
    return {"connection refused": "refuses the connection", "timed out": "does not respond"}.get(error, error)


@check(
    Severity.ERROR,
    source=_ELASTIC,
    because_of=("meeting_point_unreachable", "meeting_port_taken"),
    tags=("echo",),
    given=_several_nodes,
)
def machines_never_came(ranks: Ranks) -> Answer:
    """Not all nodes of the run joined the rendezvous.

    Why: each node's launcher waits for all nodes before it starts a rank.

    Fix: Start the test there, within the limit (--start-timeout).
    """
    if not no_rank_started(ranks):
        return Ok(f"all {ranks.nodes} nodes joined")
    if ranks.ended == "interrupted" or ranks.meeting is None:
        return Skip("interrupted, or no rendezvous endpoint")
    found = _JOINED.search(ranks.launcher_output or "")
    if not found and ranks.ended == "died":
        return Skip("the launcher failed for another reason")
    came = int(found[1]) if found else None
    here = rank_names([rank.rank for rank in ranks.ranks])
    others = listed(f"node {node}" for node in range(ranks.nodes) if node != ranks.node)
    missing = others if ranks.nodes == 2 or came == 1 else f"{ranks.nodes - (came or 1)} of the others ({others})"
    return Problem(
        f'{missing} did not join; {here} did not reach stage "start"',
        f"This is node {ranks.node} of {ranks.nodes}"
        + (f"; {came} of them joined" if came else "")
        + ". A node started with the node rank of another node does not count.",
        commands(
            *tuple(
                shell("mgpu smoke-test --node-rank {:number}", n) for n in range(min(ranks.nodes, 8)) if n != ranks.node
            )
        ),
        {"rung": "start", "machines": ranks.nodes, "came": came, "machine": ranks.node},
    )


@check(Severity.ERROR, source=_GLOO, because_of=(*LOST, *DIAGNOSES))
def host_advertises_loopback(ranks: Ranks) -> Answer:
    """A node gives the other nodes a loopback address to connect to.

    Why: gloo advertises the address that the node's own name resolves to. Debian and Ubuntu set it to 127.0.1.1 in
    /etc/hosts; the other nodes then connect to themselves, and hang or are refused.

    Fix: On each node, set the interface that the nodes share.
    More: Or correct /etc/hosts.
    """
    failed = own_failure(ranks, "advertises_loopback", "name_unresolvable")
    if failed is None:
        return _ok_if_trained(ranks)
    reported = failed.evidence
    ways = reported.get("ways") or [reported]
    hosts = sorted({str(way.get("host")) for way in ways})
    unresolved = failed.kind == "name_unresolvable"
    origin = "its own name does not resolve" if unresolved else "its own name resolves to that"
    if "IFNAME" in str(reported.get("origin")):
        origin = f"set by {reported['origin']}"
    return Problem(
        f'{rank_name(failed)} in stage "group": {reported.get("host")} advertises {reported.get("address")} '
        f"({origin}); from {reported.get('source')}: {reported.get('error')}",
        f"Every node that connects there connects to itself. Affected: {listed(hosts)}.",
        (
            commands("ip -br addr", "export GLOO_SOCKET_IFNAME=eth0   # the one with the node's own address"),
            Fix(
                f"Or make the node's name resolve to a reachable address, in /etc/hosts of {listed(hosts)}.",
                ("getent hosts $(hostname)", "sudoedit /etc/hosts"),
                who="admin",
            ),
        ),
        {"rank": failed.rank, "rung": "group", **_plain_evidence(failed)},
        tuple(hosts),
    )


@check(Severity.ERROR, source="https://pytorch.org/docs/stable/distributed.html", because_of=(*LOST, *DIAGNOSES))
def host_port_blocked(ranks: Ranks) -> Answer:
    """The rendezvous works, but one node cannot connect to another node's data ports.

    Why: the rendezvous uses one port, while data uses ports that the system chooses. If the firewall allows only
    the first one, init_process_group hangs.

    Fix: Open all TCP ports between the nodes of the run.
    """
    failed = own_failure(ranks, "data_port_blocked")
    if failed is None:
        return _ok_if_trained(ranks)
    reported = failed.evidence
    error = str(reported.get("error"))
    meaning = {
        "timed out": "Packets are dropped: a firewall, or an address in another network.",
        "connection refused": "The connection was rejected: a firewall, or the address belongs to another host.",
        "answered by another program": "Another host or program answers at that address.",
    }.get(error, "The network has no route there.")
    return Problem(
        f'{rank_name(failed)} in stage "group": {reported.get("source")} cannot connect to {reported.get("host")} at '
        f"{reported.get('address')}: {error}",
        f"{meaning} The rendezvous worked, so its port is open, but data needs other ports, chosen by the system.",
        (
            commands(
                "sudo iptables -S INPUT",
                shell("sudo iptables -I INPUT -s {:host} -p tcp -j ACCEPT", reported.get("source")),
                who="admin",
            ),
            Fix(
                "If the nodes share several networks, select the interface of the open one.",
                ("ip -br addr", "export GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0"),
            ),
        ),
        {"rank": failed.rank, "rung": "group", **_plain_evidence(failed)},
        (str(reported.get("host")),),
    )


@check(
    Severity.WARNING, source=_GLOO, because_of=("host_advertises_loopback", "host_port_blocked"), given=_several_nodes
)
def host_reached_one_way(ranks: Ranks) -> Answer:
    """This node cannot connect to another one; only the reverse direction works.

    Why: The ranks still connected, because one direction is enough for gloo.
    More: gloo needs one direction of each pair (the higher address connects). With other addresses, more nodes, or
    NCCL, which needs both directions, the run hangs on this network.

    Fix: Check what that node's name resolves to there, and its firewall.
    """
    tested = [(rank, peer) for rank in ranks.ranks for peer in rank.peers if peer.reachable is not None]
    closed = [(rank, peer) for rank, peer in tested if peer.reachable is False]
    if closed:
        rank, peer = closed[0]
        return Problem(
            f"{rank.host} cannot connect to {peer.host} at {peer.address}: {peer.error}",
            fix=commands(shell("getent hosts {:host}", peer.host), "sudo iptables -S INPUT"),
            evidence={"host": peer.host, "address": peer.address, "error": peer.error},
            subjects=(str(peer.host),),
        )
    if not tested:
        return Skip("not tested")
    return Ok(f"{counted(len({peer.host for _, peer in tested}), 'other host')} reachable")


@check(
    Severity.ERROR,
    source=TORCH,
    because_of=(*LOST, "rank_out_of_memory", "host_advertises_loopback", "host_port_blocked"),
    tags=("echo",),
    given=_several_nodes,
)
def peer_disappeared(ranks: Ranks) -> Answer:
    """A rank on another node disappeared while this node's ranks were communicating with it.

    Why: it was killed or failed there; this node sees only the broken connection.

    Fix: check the test's result on that node for the cause.
    """
    failed = own_failures(ranks)
    if not failed:
        return Ok("no connection to another node broke")
    found = _lost_peers(failed[0])
    if not found:
        return Ok("the first failure is not a broken connection to another node")
    rank, host, numbers = failed[0], found[0], found[1]
    return Problem(
        f'{host} ({rank_names(numbers)}) closed its connection to {rank_name(rank)} in stage "{stage_of(rank, ranks)}"',
        f"A rank on {host}, or the node, went down. {last_progress(rank)} ({rank_name(rank)}).",
        Fix(
            f"Check the test's result on {host}.",
            (report_of(rank, ranks),),
        ),
        {"rank": rank.rank, "host": host, "ranks_there": listed(numbers), "rung": stage_of(rank, ranks)},
        (str(host),),
    )


def _lost_peers(rank: Rank) -> tuple[str, list[int]] | None:
    """Return the host and ranks whose address is in the error of a broken connection, or None."""
    for match in _GONE.finditer(rank.error or ""):
        address = match[1] or match[2]
        there = [peer for peer in rank.peers if peer.address == address and peer.host and peer.host != rank.host]
        if there:
            return str(there[0].host), [peer.rank for peer in there]
    return None


def _plain_evidence(rank: Rank) -> dict[str, str | int | float | bool | None]:
    return {k: v for k, v in rank.evidence.items() if isinstance(v, str | int | float) or v is None}


def _ok_if_trained(ranks: Ranks) -> Answer:
    if skip := _several_nodes(ranks):
        return skip
    met = [rank for rank in ranks.ranks if any(peer.reachable is not None for peer in rank.peers)]
    return Ok("the hosts can connect to each other") if met else Skip(f"not tested ({last_line(ranks)})")
