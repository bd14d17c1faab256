"""Which ranks joined the rendezvous, and can the hosts connect to each other?

Tested through the rendezvous store before a process group exists: a missing rank or an unreachable address would only
show as a hang in the group. The store is the launcher's, or rank 0's if the launcher has none.
"""

from __future__ import annotations

import json
import math
import os
import socket
import time
from datetime import timedelta
from typing import Any

from . import addresses
from .context import Here
from .journal import Failure

# Connecting takes milliseconds; a lost SYN is sent again after 1 s and after 3 s.
REACH_S = 4.0
# Factor by which another host's ranks may take longer to start than ours, for example because of a slower disk.
_SLOWER = 3.0
# Share of that limit for connecting: a rank that cannot connect reports it before the others report it as missing.
_CONNECT_SHARE = 0.6
_POLL_S = 0.02
_FEW = 32  # keys; with more, a rank polls less often, because all ranks query the same store


def limit_s(here: Here) -> float:
    """Return how long a rank waits for the others, in seconds, based on the time of its own imports."""
    own = time.monotonic() - here.began
    return min(here.orders.start_limit_s, max(here.orders.stall_s, _SLOWER * own))


def store(here: Here, limit: float) -> Any:
    """Connect to the store of the rendezvous. The process group connects to it again later."""
    distributed = here.torch.distributed
    try:
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    except (KeyError, ValueError) as error:
        raise Failure(f"the launcher set no rendezvous endpoint: {error}", "master_unreachable", address=None) from None
    limit *= _CONNECT_SHARE
    of_launcher = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    hosts_it = here.rank == 0 and not of_launcher
    if not hosts_it and (silent := addresses.wait_for_listener(host, port, limit)):
        raise Failure(
            f"the rendezvous endpoint {host}:{port} does not answer: {silent}",
            "master_unreachable",
            address=host,
            port=port,
            error=silent,
            limit_s=round(limit, 1),
        )
    try:
        found = distributed.TCPStore(
            host,
            port,
            here.world,
            hosts_it,
            timedelta(seconds=math.ceil(limit)),  # torch 2.4 truncates to seconds
            wait_for_workers=False,
            multi_tenant=not of_launcher,
        )
    except (RuntimeError, ValueError) as error:
        raise _store_failure(host, port, str(error), hosts_it=hosts_it) from None
    return distributed.PrefixStore("mgpu", found)


def _store_failure(host: str, port: int, message: str, *, hosts_it: bool) -> Failure:
    """Return what a message of torch's store means."""
    first = message.splitlines()[0]
    if hosts_it and "EADDRINUSE" in message:
        return Failure(f"cannot listen on {host}:{port}: another process does", "port_taken", port=port, error=first)
    return Failure(
        f"the rendezvous endpoint {host}:{port} is not a torch store: {first}",
        "master_unreachable",
        address=host,
        port=port,
        error="answered by another program",
    )


def introduce(here: Here, meeting: Any) -> addresses.Listener | None:
    """Announce this rank and its host's address to the others.

    With several hosts, the first rank of each host listens at the address; its listener is returned.
    """
    found = addresses.advertised_address(os.environ, here.on_gpu)
    listener = None
    if here.orders.nodes > 1 and here.rank == _first_rank(here, here.orders.node):
        listener = addresses.Listener(found.address, _word(here.rank))
    mine = {
        "host": socket.gethostname(),
        "node": here.orders.node,
        "address": found.address,
        "origin": found.origin,
        "port": listener.port if listener else None,
    }
    meeting.set(f"rank{here.rank}", json.dumps(mine))
    return listener


def gather(here: Here, meeting: Any, limit: float) -> list[dict[str, Any]]:
    """Wait for all ranks and return what each announced. Raises Failure (ranks_missing)."""
    keys = [f"rank{rank}" for rank in range(here.world)]
    came = _wait(meeting, keys, limit)
    cards = [json.loads(meeting.get(key)) if key in came else None for key in keys]
    host_of = {one["node"]: one["host"] for one in cards if one}
    here.reports(peers=[_peer(here, rank, one, host_of) for rank, one in enumerate(cards)])
    absent = [rank for rank, one in enumerate(cards) if one is None]
    if absent:
        hosts = sorted({host_of.get(_node(here, rank), f"node {_node(here, rank)}") for rank in absent})
        many = "s" if len(absent) > 1 else ""
        raise Failure(
            f"rank{many} {_some(absent)} ({', '.join(hosts)}) did not join the rendezvous within {limit:.0f} s",
            "ranks_missing",
            ranks=absent,
            hosts=hosts,
            limit_s=round(limit, 1),
        )
    return [one for one in cards if one]


def reach(here: Here, meeting: Any, cards: list[dict[str, Any]]) -> None:
    """Test the connections between all hosts, from their first ranks, at the addresses that the backend would use.

    The results are shared, so that all ranks reach the same conclusion. Raises Failure if a needed connection fails.
    """
    nodes, mine = here.orders.nodes, here.orders.node
    first = {node: cards[_first_rank(here, node)] for node in range(nodes)}
    if here.rank == _first_rank(here, mine):
        others = {
            str(node): (one["address"], one["port"], _word(_first_rank(here, node)))
            for node, one in first.items()
            if node != mine
        }
        meeting.set(f"reach{mine}", json.dumps(addresses.reach(others, REACH_S)))
    came = _wait(meeting, [f"reach{node}" for node in range(nodes)], 2 * REACH_S)
    if lost := [node for node in range(nodes) if f"reach{node}" not in came]:
        hosts = [first[node]["host"] for node in lost]
        raise Failure(
            f"{', '.join(hosts)} joined the rendezvous and then stopped responding",
            "ranks_missing",
            ranks=[_first_rank(here, node) for node in lost],
            hosts=hosts,
            limit_s=2 * REACH_S,
        )
    found = {node: json.loads(meeting.get(f"reach{node}")) for node in range(nodes)}
    _note(here, found[mine])
    _refuse_closed(here, first, found)


def _refuse_closed(here: Here, first: dict[int, dict[str, Any]], found: dict[int, dict[str, str]]) -> None:
    """Raise Failure for the first needed connection between two nodes that failed; `first`: cards of first ranks."""
    closed = [
        {
            "host": first[target]["host"],
            "address": first[target]["address"],
            "origin": first[target]["origin"],
            "source": first[source]["host"],
            "error": error,
        }
        for source in first
        for target in first
        if (error := found[source].get(str(target)))
        and (here.on_gpu or addresses.connects(first[source]["address"], first[target]["address"]))
    ]
    if closed:
        one = closed[0]
        loopback = addresses.is_loopback(one["address"])
        unresolved = loopback and one["origin"] == "unresolvable"
        raise Failure(
            f"{one['host']} advertises {one['address']}, which {one['source']} cannot reach: {one['error']}",
            "name_unresolvable" if unresolved else "advertises_loopback" if loopback else "data_port_blocked",
            **one,
            ways=closed,
        )


def _note(here: Here, found: dict[str, str | None]) -> None:
    """Add the results of this host to the report."""
    peers = here.journal.report["peers"]
    for node, error in found.items():
        for rank in here.orders.ranks_of(int(node)):
            peers[rank] |= {"reachable": error is None, "error": error}


def _wait(meeting: Any, keys: list[str], limit: float) -> set[str]:
    """Wait until all keys exist or the time is up. Returns the existing keys."""
    deadline = time.monotonic() + limit
    while not (whole := meeting.check(keys)) and time.monotonic() < deadline:
        time.sleep(_POLL_S * max(1.0, len(keys) / _FEW))
    return {key for key in keys if whole or meeting.check([key])}


def _peer(here: Here, rank: int, one: dict[str, Any] | None, host_of: dict[int, str]) -> dict[str, Any]:
    if one is None:
        return {"rank": rank, "host": host_of.get(_node(here, rank)), "came": False}
    return {"rank": rank, "host": one["host"], "address": one["address"]}


def _node(here: Here, rank: int) -> int:
    return next(node for node in range(here.orders.nodes) if rank in here.orders.ranks_of(node))


def _first_rank(here: Here, node: int) -> int:
    return here.orders.ranks_of(node).start


def _word(rank: int) -> str:
    return f"mgpu rank {rank} {os.environ.get('MASTER_PORT', '')}\n"


def _some(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (", …" if len(ranks) > 8 else "")
