"""Who came to the meeting point, and do the hosts reach each other?

Through the store of the rendezvous, before a process group exists: a rank that is missing, and an address that nobody
reaches, would only show as a hang in it. The store is the one that the launcher keeps, or, without one, rank 0's.
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
# What another host's ranks may take longer to come than ours did, from their start on: its disk is slower.
_SLOWER = 3.0
# Of that, what a rank that cannot even connect gets: it says so before the others say that it did not come.
_CONNECT_SHARE = 0.6
_POLL_S = 0.02
_FEW = 32  # keys; of more, a rank asks less often: all of them ask one store for all of them


def limit_s(here: Here) -> float:
    """How long a rank waits for the others: imports take about as long everywhere."""
    own = time.monotonic() - here.began
    return min(here.orders.start_limit_s, max(here.orders.stall_s, _SLOWER * own))


def store(here: Here, limit: float) -> Any:
    """The store of the rendezvous; it is connected to a second time when the process group is formed."""
    distributed = here.torch.distributed
    try:
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    except (KeyError, ValueError) as error:
        raise Failure(f"the launcher gave no meeting point: {error}", "master_unreachable", address=None) from None
    limit *= _CONNECT_SHARE
    of_launcher = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    hosts_it = here.rank == 0 and not of_launcher
    if not hosts_it and (silent := addresses.knock(host, port, limit)):
        raise Failure(
            f"the meeting point {host}:{port} does not answer: {silent}",
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
            timedelta(seconds=math.ceil(limit)),  # torch 2.4 drops the rest
            wait_for_workers=False,
            multi_tenant=not of_launcher,
        )
    except (RuntimeError, ValueError) as error:
        first = str(error).splitlines()[0]
        if hosts_it and "EADDRINUSE" in str(error):
            raise Failure(
                f"cannot listen at {host}:{port}: another process does", "port_taken", port=port, error=first
            ) from None
        raise Failure(
            f"the meeting point {host}:{port} answers, but not as torch's: {first}",
            "master_unreachable",
            address=host,
            port=port,
            error="answered by somebody else",
        ) from None
    return distributed.PrefixStore("mgpu", found)


def introduce(here: Here, meeting: Any) -> addresses.Listener | None:
    """Tell the others that this rank is there, and where its host can be reached. The first rank of each of several
    hosts listens there."""
    found = addresses.advertised(os.environ, here.on_gpu)
    listener = None
    if here.orders.nodes > 1 and here.rank == _first(here, here.orders.node):
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
    """Wait for all the others: what each says of itself. Raises Failure (ranks_missing)."""
    keys = [f"rank{rank}" for rank in range(here.world)]
    came = _wait(meeting, keys, limit)
    told = [json.loads(meeting.get(key)) if key in came else None for key in keys]
    host_of = {one["node"]: one["host"] for one in told if one}
    here.reports(peers=[_peer(here, rank, one, host_of) for rank, one in enumerate(told)])
    absent = [rank for rank, one in enumerate(told) if one is None]
    if absent:
        hosts = sorted({host_of.get(_node(here, rank), f"machine {_node(here, rank)}") for rank in absent})
        many = "s" if len(absent) > 1 else ""
        raise Failure(
            f"rank{many} {_some(absent)} ({', '.join(hosts)}) did not come to the meeting point within {limit:.0f} s",
            "ranks_missing",
            ranks=absent,
            hosts=hosts,
            limit_s=round(limit, 1),
        )
    return [one for one in told if one]


def reach(here: Here, meeting: Any, told: list[dict[str, Any]]) -> None:
    """Each host's first rank connects to those of all others, at the address that the backend would use. What each
    found goes round, so that all ranks come to the same end. Raises Failure when a way that is needed is closed."""
    nodes = here.orders.nodes
    first = {node: told[_first(here, node)] for node in range(nodes)}
    mine = here.orders.node
    if here.rank == _first(here, mine):
        others = {
            str(node): (one["address"], one["port"], _word(_first(here, node)))
            for node, one in first.items()
            if node != mine
        }
        meeting.set(f"reach{mine}", json.dumps(addresses.reach(others, REACH_S)))
    keys = [f"reach{node}" for node in range(nodes)]
    came = _wait(meeting, keys, 2 * REACH_S)
    if len(came) < nodes:
        lost = [first[node]["host"] for node in range(nodes) if f"reach{node}" not in came]
        absent = [_first(here, node) for node in range(nodes) if f"reach{node}" not in came]
        raise Failure(
            f"{', '.join(lost)} came to the meeting point and then fell silent",
            "ranks_missing",
            ranks=absent,
            hosts=lost,
            limit_s=2 * REACH_S,
        )
    found = {node: json.loads(meeting.get(f"reach{node}")) for node in range(nodes)}
    _note(here, found[mine])
    closed = [
        {
            "host": first[target]["host"],
            "address": first[target]["address"],
            "origin": first[target]["origin"],
            "source": first[source]["host"],
            "error": error,
        }
        for source in range(nodes)
        for target in range(nodes)
        if (error := found[source].get(str(target)))
        and (here.on_gpu or addresses.connects(first[source]["address"], first[target]["address"]))
    ]
    if closed:
        one = closed[0]
        loopback = addresses.is_loopback(one["address"])
        unresolved = loopback and one["origin"] == "unresolvable"
        raise Failure(
            f"{one['host']} says that it is reached at {one['address']}; from {one['source']}: {one['error']}",
            "name_unresolvable" if unresolved else "advertises_loopback" if loopback else "data_port_blocked",
            **one,
            ways=closed,
        )


def _note(here: Here, found: dict[str, str | None]) -> None:
    """What this host found about the others, in the report."""
    peers = here.journal.report["peers"]
    for node, error in found.items():
        for rank in range(_first(here, int(node)), _first(here, int(node) + 1)):
            peers[rank] |= {"reachable": error is None, "error": error}


def _wait(meeting: Any, keys: list[str], limit: float) -> set[str]:
    """The keys that are there when all of them are, or when the time is over."""
    deadline = time.monotonic() + limit
    while not (whole := meeting.check(keys)) and time.monotonic() < deadline:
        time.sleep(_POLL_S * max(1.0, len(keys) / _FEW))
    return {key for key in keys if whole or meeting.check([key])}


def _peer(here: Here, rank: int, one: dict[str, Any] | None, host_of: dict[int, str]) -> dict[str, Any]:
    if one is None:
        return {"rank": rank, "host": host_of.get(_node(here, rank)), "came": False}
    return {"rank": rank, "host": one["host"], "address": one["address"]}


def _node(here: Here, rank: int) -> int:
    return rank // (here.world // here.orders.nodes)


def _first(here: Here, node: int) -> int:
    return node * (here.world // here.orders.nodes)


def _word(rank: int) -> str:
    return f"mgpu rank {rank} {os.environ.get('MASTER_PORT', '')}\n"


def _some(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (", …" if len(ranks) > 8 else "")
