"""Do the machines of a run find each other, and does none of them fall away?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Meeting, Rank, Ranks
from mgpu.text import counted, listed

from ._causes import LOST
from ._diagnoses import DIAGNOSES
from ._rank_states import TORCH, last_line, nobody_started, own_failure, own_failures, rung, who

_ELASTIC = "https://pytorch.org/docs/stable/elastic/rendezvous.html"
_GLOO = "https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupGloo.cpp"
_JOINED = re.compile(r"(\d+)/(\d+) clients joined")
# gloo's words for a peer that is gone, with its address: "Read error [10.0.0.2]:41527: Connection reset by peer".
_GONE = re.compile(
    r"\[([\w:.-]+)\]:\d+[^\n]{0,80}?(?:reset by peer|Broken pipe)|closed by peer \[([\w:.-]+)\]"  # also redacted ones
)


def _several(ranks: Ranks) -> Skip | None:
    """The run is one of several machines."""
    return Skip("one machine") if ranks.nodes == 1 else None


def _silence(meeting: Meeting) -> str:
    """What an answer of the network means there."""
    if meeting.error == "connection refused":
        return (
            "That machine is there, and nobody listens at the port: its test was not started, has ended, or a firewall "
            "rejects the connection."
        )
    if meeting.error == "timed out":
        return "Not even a refusal comes back: a firewall drops it, or no machine has this address."
    return "The ranks meet there; without it none of them starts."


def _rank_cannot_come(rank: Rank) -> Problem:
    address, port = rank.evidence.get("address"), rank.evidence.get("port")
    return Problem(
        f'{who(rank)} at "group": the meeting point {address}:{port} does not answer: {rank.evidence.get("error")}',
        "The launcher met the others there; this rank cannot reach it.",
        Fix(
            "Open the port on the machine that the ranks meet on.", (shell("nc -vz {:host} {:number}", address, port),)
        ),
        {"rank": rank.rank, **_plain(rank)},
        (f"rank {rank.rank}",),
    )


@check(Severity.ERROR, source=_ELASTIC, tags=("echo",))
def meeting_point_unreachable(ranks: Ranks) -> Answer:
    """The place where all ranks meet does not answer.

    Why: main_process_ip and main_process_port name it; machine 0 listens there as soon as its launcher runs. torch asks
    again for minutes and then says only that it timed out.

    Fix: Start the test on machine 0 too, and see that its port is open.
    More: Correct the address, or open the port.
    """
    if failed := own_failure(ranks, "master_unreachable"):
        return _rank_cannot_come(failed)
    meeting = ranks.meeting
    if meeting is None:
        return Skip("one machine" if ranks.nodes == 1 else "the config names no meeting point")
    if meeting.error is None or not nobody_started(ranks):
        return Ok(f"{meeting.address}:{meeting.port} answered")
    numbers = listed(rank.rank for rank in ranks.ranks)
    where = f"{meeting.address}:{meeting.port}"
    title = f'rank {numbers} never came to "start": {where}, where machine 0 listens, {_verb(meeting.error)}'
    if ranks.node == 0:
        title = f'rank {numbers} never came to "start": main_process_ip {meeting.address} {_verb(meeting.error)}'
    fixes = [Fix("Set main_process_ip to an address of machine 0 that all machines reach.", ("ip -br addr",))]
    if ranks.node and "resolved" not in meeting.error:
        fixes.insert(0, commands(shell("nc -vz {:host} {:number}", meeting.address, meeting.port)))
    return Problem(
        title,
        _silence(meeting),
        tuple(fixes),
        {"address": meeting.address, "port": meeting.port, "error": meeting.error, "machine": ranks.node},
        tuple(f"rank {rank.rank}" for rank in ranks.ranks),
    )


def _verb(error: str) -> str:
    return {"connection refused": "refuses the connection", "timed out": "does not answer"}.get(error, error)


@check(
    Severity.ERROR,
    source=_ELASTIC,
    because_of=("meeting_point_unreachable", "meeting_port_taken"),
    tags=("echo",),
    given=_several,
)
def machines_never_came(ranks: Ranks) -> Answer:
    """Not every machine of the run came to the meeting point.

    Why: the launcher of each machine waits for all of them before it starts a rank.

    Fix: Start it there, within the limit (--start-timeout).
    """
    if not nobody_started(ranks):
        return Ok(f"all {ranks.nodes} machines came")
    if ranks.ended == "interrupted" or ranks.meeting is None:
        return Skip("the ranks were not waited for")
    found = _JOINED.search(ranks.launcher_output or "")
    if not found and ranks.ended == "died":
        return Skip("the launcher ended for another reason")
    came = int(found[1]) if found else None
    others = listed(f"machine {node}" for node in range(ranks.nodes) if node != ranks.node)
    missing = others if ranks.nodes == 2 or came == 1 else f"{ranks.nodes - (came or 1)} of the others ({others})"
    return Problem(
        f'{missing} never came; rank {listed(r.rank for r in ranks.ranks)} did not come to "start"',
        f"This is machine {ranks.node} of {ranks.nodes}"
        + (f"; {came} of them met" if came else "")
        + ". A machine whose test was started with the number of another does not count.",
        commands(
            *tuple(
                shell("mgpu smoke-test --node-rank {:number}", n) for n in range(min(ranks.nodes, 8)) if n != ranks.node
            )
        ),
        {"machines": ranks.nodes, "came": came, "machine": ranks.node},
    )


@check(Severity.ERROR, source=_GLOO, because_of=(*LOST, *DIAGNOSES))
def host_advertises_loopback(ranks: Ranks) -> Answer:
    """A machine tells the others to reach it at a loopback address.

    Why: gloo advertises what the machine's own name resolves to. Debian and Ubuntu write 127.0.1.1 for it into
    /etc/hosts; the others then connect to themselves, and hang or are refused.

    Fix: Name the interface that the machines share, on each machine.
    More: Or correct /etc/hosts.
    """
    failed = own_failure(ranks, "advertises_loopback", "name_unresolvable")
    if failed is None:
        return _well(ranks)
    told = failed.evidence
    ways = told.get("ways") or [told]
    hosts = sorted({str(way.get("host")) for way in ways})
    unresolved = failed.kind == "name_unresolvable"
    origin = "its own name does not resolve" if unresolved else "its own name resolves to that"
    if "IFNAME" in str(told.get("origin")):
        origin = f"{told['origin']} says so"
    return Problem(
        f'{who(failed)} at "group": {told.get("host")} says that it is reached at {told.get("address")} ({origin}); '
        f"from {told.get('source')}: {told.get('error')}",
        f"Every machine that connects there meets itself. Concerned: {listed(hosts)}.",
        (
            commands("ip -br addr", "export GLOO_SOCKET_IFNAME=eth0   # the one with the machine's own address"),
            Fix(
                f"Let /etc/hosts of {listed(hosts)} give its own name the address that others reach.",
                ("getent hosts $(hostname)", "sudoedit /etc/hosts"),
                who="admin",
            ),
        ),
        {"rank": failed.rank, **_plain(failed)},
        tuple(hosts),
    )


@check(Severity.ERROR, source="https://pytorch.org/docs/stable/distributed.html", because_of=(*LOST, *DIAGNOSES))
def host_port_blocked(ranks: Ranks) -> Answer:
    """The machines meet, but one cannot connect to another's data ports.

    Why: the meeting point is one port; the data goes over ports that the system chooses. With only the first one
    open in the firewall, the process group hangs while it is formed.

    Fix: Open all TCP ports between the machines of the run.
    """
    failed = own_failure(ranks, "data_port_blocked")
    if failed is None:
        return _well(ranks)
    told = failed.evidence
    error = str(told.get("error"))
    meaning = {
        "timed out": "What is sent there is dropped: a firewall, or an address of another network.",
        "connection refused": "It is rejected: a firewall, or the address belongs to another machine.",
        "answered by somebody else": "Another machine or program answers at that address.",
    }.get(error, "The network has no way there.")
    return Problem(
        f'{who(failed)} at "group": {told.get("source")} cannot connect to {told.get("host")} at '
        f"{told.get('address')}: {error}",
        f"{meaning} They met at the meeting point, so that port is open; the data needs others, chosen by the system.",
        (
            commands(
                "sudo iptables -S INPUT",
                shell("sudo iptables -I INPUT -s {:host} -p tcp -j ACCEPT", told.get("source")),
                who="admin",
            ),
            Fix(
                "Where the machines share several networks, name the interface of the open one.",
                ("ip -br addr", "export GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0"),
            ),
        ),
        {"rank": failed.rank, **_plain(failed)},
        (str(told.get("host")),),
    )


@check(Severity.WARNING, source=_GLOO, because_of=("host_advertises_loopback", "host_port_blocked"), given=_several)
def host_reached_one_way(ranks: Ranks) -> Answer:
    """This machine cannot connect to another one; only the other way works.

    Why: The ranks got through all the same, since the connection the other way was enough.
    More: gloo needs one direction of each pair (the higher address connects). With other addresses, more machines or
    NCCL, which needs both, the same network hangs.

    Fix: See what that machine's name resolves to there, and its firewall.
    """
    told = [(rank, peer) for rank in ranks.ranks for peer in rank.peers if peer.reachable is not None]
    closed = [(rank, peer) for rank, peer in told if peer.reachable is False]
    if closed:
        rank, peer = closed[0]
        return Problem(
            f"{rank.host} cannot connect to {peer.host} at {peer.address}: {peer.error}",
            fix=commands(shell("getent hosts {:host}", peer.host), "sudo iptables -S INPUT"),
            evidence={"host": peer.host, "address": peer.address, "error": peer.error},
            subjects=(str(peer.host),),
        )
    return Ok(f"{counted(len({peer.host for _, peer in told}), 'other host')} reached") if told else Skip("not tried")


@check(
    Severity.ERROR,
    source=TORCH,
    because_of=(*LOST, "rank_out_of_memory", "host_advertises_loopback", "host_port_blocked"),
    tags=("echo",),
    given=_several,
)
def peer_disappeared(ranks: Ranks) -> Answer:
    """A rank on another machine went away while this machine's ranks were talking to it.

    Why: it was killed or failed there; here only the broken connection is seen.

    Fix: the cause stands in the verdict of the test on that machine.
    """
    failed = own_failures(ranks)
    if not failed:
        return Ok("no connection to another machine broke")
    found = _lost_peers(failed[0])
    if not found:
        return Ok("the first failure is no broken connection to another machine")
    rank, host, numbers = failed[0], found[0], found[1]
    many = "s" if len(numbers) > 1 else ""
    return Problem(
        f'{host} (rank{many} {listed(numbers)}) closed its connection to {who(rank)} at "{rung(rank, ranks)}"',
        f'One of the ranks on {host} ended, or the machine did. Here {who(rank)} had come to "{rank.last_word}".',
        Fix(
            f"Look at the verdict of the test on {host}.",
            (shell("cat {:path}/rank{:number}.json", ranks.folder, rank.rank),),
        ),
        {"rank": rank.rank, "host": host, "ranks_there": listed(numbers), "rung": rung(rank, ranks)},
        (str(host),),
    )


def _lost_peers(rank: Rank) -> tuple[str, list[int]] | None:
    """The other host, and its ranks, whose address stands in the words of a broken connection."""
    for match in _GONE.finditer(rank.error or ""):
        address = match[1] or match[2]
        there = [peer for peer in rank.peers if peer.address == address and peer.host and peer.host != rank.host]
        if there:
            return str(there[0].host), [peer.rank for peer in there]
    return None


def _plain(rank: Rank) -> dict[str, str | int | float | bool | None]:
    return {k: v for k, v in rank.evidence.items() if isinstance(v, str | int | float) or v is None}


def _well(ranks: Ranks) -> Answer:
    if skip := _several(ranks):
        return skip
    met = [rank for rank in ranks.ranks if any(peer.reachable is not None for peer in rank.peers)]
    return Ok("the hosts that connect reach each other") if met else Skip(f"not tried ({last_line(ranks)})")
