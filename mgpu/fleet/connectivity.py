"""Test whether each node of a job reaches the others the way the ranks will.

Every node listens on a port chosen by the system, as gloo, NCCL and torchrun do, and describes its names and addresses
in a card; the other nodes get its endpoint. Then each node connects to the others: by name, to the rendezvous endpoint,
and to the address of each interface. Over the last it sends one full-size packet and then many, both ways. Standard
library only, no torch. All connections of a node are tried in parallel with timeouts, so a network that drops
everything costs only seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import secrets
import socket
import threading
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mgpu.probes import network
from mgpu.process import open_files
from mgpu.smoke.ranks import addresses
from mgpu.snapshot import Interface, NodeAddresses, NodePath, decode

RESOLVE_S = 2.0  # for all names together
CONNECT_S = 2.5  # TCP repeats the first packet after 1 s, and then only after 3 s
POUR_S = 1.5  # in each direction, for each of the two amounts; TCP repeats a lost packet after 0.2, 0.6 and 1.4 s
QUIET_S = 1.0  # nothing arrived for this long before the limit: the transfer has stopped, it is not just slow
LIMIT_S = 9.0  # for everything after name resolution
# Up to this many others, all are tried in both directions. With more, each node tries those 1, 2, 4, 8 ... places
# further on, so that a bad node is reported by many nodes, and a bad link by one.
_ALL_TRIED = 16
_BULK = 256 << 10  # many packets of any MTU, and 2 ms at 1 Gbit/s
_BULK_ELSEWHERE = 64 << 10  # over interfaces other than the one the ranks advertise
_INTERFACES = 8  # of a peer that are tried; NCCL uses at most 16
_BACKLOG = 4096
_STRANGER = "answered by another program"  # checks/fleet/network.py matches its beginning


@dataclass(frozen=True)
class _Road:
    """A connection to try."""

    peer: str
    via: str
    name: str | None  # to be resolved here; None: use the address
    address: str
    port: int
    word: str
    bulk: int


class Listening:
    """This node's open port, and its connections to the others. `card` is for the head; `close` stops it."""

    def __init__(self, node: str, *, on_gpu: bool = False, meeting_port: int | None = None) -> None:
        open_files.raise_limit()  # on the first node of a thousand as many connections come in
        self._word = secrets.token_hex(8)
        self._node = node
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda *_: None)  # from peers that are disconnected at the end
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._servers: list[asyncio.Server] = []
        own = self._serve(0)
        error = None
        if meeting_port is not None:
            try:
                self._serve(meeting_port)
            except OSError as failure:
                error = addresses.describe_errno(failure.errno or 0)
        self.door = _door(node, on_gpu, meeting_port, error)
        self.card: dict[str, Any] = {"port": own, "word": self._word, "door": dataclasses.asdict(self.door)}

    def _serve(self, port: int) -> int:
        listener = _listener(port)
        self._servers.append(self._do(asyncio.start_server(self._answer, sock=listener, limit=_BULK)))
        number: int = listener.getsockname()[1]
        return number

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one peer. It must send our token; then for each amount it sends, count the bytes and send them back."""
        with contextlib.suppress(OSError, ValueError, asyncio.TimeoutError):
            token = await asyncio.wait_for(reader.readline(), CONNECT_S)
            if token.decode("ascii", "replace").strip() == self._word:
                writer.write(f"{self._word[::-1]}\n".encode())
                while wanted := await asyncio.wait_for(reader.readline(), LIMIT_S):
                    size = min(int(wanted), _BULK)
                    arrived, quiet = await _count(reader, size)
                    back = _packet(writer) if size < _BULK_ELSEWHERE else size
                    writer.write(f"{arrived} {quiet:.3f} {back}\n".encode())
                    writer.write(bytes(back))
        writer.transport.abort()  # the peer closes the connection first, unless something is wrong

    def walk(
        self,
        endpoints: Sequence[Mapping[str, Any]],
        *,
        head: str | None = None,
        by_name: bool = True,
        ways: bool = True,
    ) -> list[NodePath]:
        """Try to connect to the others, within RESOLVE_S + LIMIT_S.

        `endpoints`: of all nodes in the job's order. `head`: the rendezvous host, which is the node that listens on a
        rendezvous port. `by_name`: also by each node's names. `ways`: also over each interface.
        """
        roads = _roads(self._node, endpoints, head)
        roads = [
            road for road in roads if (by_name if road.via in ("name", "full_name") else ways or road.via == "head")
        ]
        known = _resolve({road.name for road in roads if road.name})
        done: dict[int, NodePath] = {}
        self._do(self._walk(roads, known, done))
        late = ((road.address,) if road.address else () for road in roads)
        return [
            done.get(place) or _path(self._node, road, tried, False, "timed out")
            for place, (road, tried) in enumerate(zip(roads, late, strict=True))
        ]

    async def _walk(
        self, roads: Sequence[_Road], known: Mapping[str, tuple[list[str], str | None]], done: dict[int, NodePath]
    ) -> None:
        async def one(place: int, road: _Road) -> None:
            found, error = known[road.name] if road.name else ([road.address], None)
            if found:
                done[place] = await _go(self._node, road, found)
            else:
                done[place] = _path(self._node, road, (), False, f"its name cannot be resolved ({error})")

        if tasks := [asyncio.ensure_future(one(place, road)) for place, road in enumerate(roads)]:
            _, late = await asyncio.wait(tasks, timeout=LIMIT_S)
            for task in late:
                task.cancel()

    def close(self) -> None:
        """Stop listening."""

        async def stop() -> None:
            for server in self._servers:
                server.close()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

        self._do(stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(1)


def door_of(card: Mapping[str, Any]) -> NodeAddresses:
    """Return the fact in a card."""
    return decode(NodeAddresses, card["door"], "door")


def endpoint_of(card: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a card that the other nodes need to connect to this one.

    All endpoints are sent to all nodes. 1,000 cards of nodes with eight network cards are 2.9 MB of JSON, their
    endpoints 0.3 MB, and 63 KB as sent (framing.packed); with one network card, 1.1 MB, 0.2 MB and 38 KB (measured
    2026-11).
    """
    door = door_of(card)
    return {
        "node": door.node,
        "port": card["port"],
        "word": card["word"],
        "full_name": door.full_name,
        "address": door.address,
        "ways": _ways_in(door),
        "meeting_port": door.meeting_port if door.meeting_error is None else None,
    }


def partners(node: int, count: int) -> list[int]:
    """Return the numbers of the nodes, of `count`, that this node tries."""
    if count <= _ALL_TRIED + 1:
        return [other for other in range(count) if other != node]
    return sorted({(node + (1 << step)) % count for step in range((count - 1).bit_length())} - {node})


# ---- this node


def _door(node: str, on_gpu: bool, meeting_port: int | None, meeting_error: str | None) -> NodeAddresses:
    hostname = socket.gethostname()
    found, error = _resolve({hostname})[hostname]
    advertised = addresses.Advertised("127.0.0.1", "unresolvable")
    if found or on_gpu or os.environ.get(addresses.GLOO):  # do not try to resolve an unresolvable name again
        advertised = addresses.advertised_address(os.environ, on_gpu)
    return NodeAddresses(
        node,
        hostname,
        _full_name(hostname),
        tuple(found),
        error,
        advertised.address,
        advertised.origin,
        {name: os.environ[name] for name in (addresses.GLOO, addresses.NCCL) if os.environ.get(name)},
        on_gpu,
        _interfaces(),
        meeting_port,
        meeting_error,
    )


def _full_name(hostname: str) -> str:
    """Return the name that torchrun advertises: socket.getfqdn(), which may wait for a slow resolver."""
    names: list[str] = []
    thread = threading.Thread(target=lambda: names.append(socket.getfqdn(hostname)), daemon=True)
    thread.start()
    thread.join(RESOLVE_S)
    return names[0] if names else hostname


def _interfaces() -> tuple[Interface, ...]:
    try:
        return tuple(decode(Interface, one, "interface") for one in network.interfaces())
    except OSError:
        return ()


def _listener(port: int) -> socket.socket:
    """Open a port on all addresses of this machine, for IPv4 and IPv6 if it has both."""
    for family, anywhere in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):
        try:
            listener = socket.socket(family, socket.SOCK_STREAM)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((anywhere, port))
            listener.listen(_BACKLOG)
        except OSError:
            if family == socket.AF_INET:
                raise
        else:
            return listener
    raise AssertionError("unreachable")


# ---- connections to the others


def _roads(node: str, endpoints: Sequence[Mapping[str, Any]], head: str | None) -> list[_Road]:
    here = next((place for place, one in enumerate(endpoints) if one["node"] == node), None)
    if here is None:
        return []
    found = []
    for place in partners(here, len(endpoints)):
        one = endpoints[place]
        peer, end = one["node"], (one["port"], one["word"])
        found.append(_Road(peer, "name", peer, "", *end, 0))
        if one["full_name"] not in ("", peer):
            found.append(_Road(peer, "full_name", one["full_name"], "", *end, 0))
        for via, address in one["ways"].items():
            size = _BULK if address == one["address"] else _BULK_ELSEWHERE
            found.append(_Road(peer, via, None, address, *end, size))
    meeting = next((one for one in endpoints if one["meeting_port"]), None)
    if head and meeting is not None and meeting["node"] != node:
        found.append(_Road(meeting["node"], "head", head, "", meeting["meeting_port"], meeting["word"], 0))
    return found


def _ways_in(door: NodeAddresses) -> dict[str, str]:
    """Return interface -> address at which other machines may reach this node, first the one its ranks advertise."""
    advertised = door.interface_of(door.address)
    name = advertised.name if advertised else "lo" if addresses.is_loopback(door.address) else "?"
    found = {name: door.address} if door.address else {}
    for one in door.interfaces:
        usable = (
            one.up and one.running is not False and not one.loopback and not one.virtual and one.routable is not False
        )
        address = next(iter(sorted(one.addresses, key=lambda text: ":" in text)), None)
        if usable and address and len(found) < _INTERFACES:
            found.setdefault(one.name, address)
    return found


def _resolve(names: Iterable[str]) -> dict[str, tuple[list[str], str | None]]:
    """Return name -> its addresses, or the resolver's error. Runs in parallel, because a resolver may hang."""
    return {name: (found, error) for name, (found, error, _) in network.resolve(names, RESOLVE_S).items()}


async def _go(node: str, road: _Road, found: Sequence[str]) -> NodePath:
    """Try the addresses in turn, as torch does; the first one that answers counts."""
    error, end = "timed out", time.monotonic() + CONNECT_S
    for address in found:
        writer = None
        try:
            began = time.monotonic()
            opening = asyncio.open_connection(address, road.port, limit=_BULK)
            reader, writer = await asyncio.wait_for(opening, max(0.1, end - began))
            began = time.monotonic()
            writer.write(f"{road.word}\n".encode())
            reply = await asyncio.wait_for(reader.readline(), max(0.5, end - began))
            round_trip = time.monotonic() - began
            if reply.decode("ascii", "replace").strip() != road.word[::-1]:
                error = _STRANGER
                continue
            path = _path(node, road, found, True, None, round_trip)
            return await _pour(path, road.bulk, reader, writer) if road.bulk else path
        except (TimeoutError, asyncio.TimeoutError):
            error = "timed out"
        except (ConnectionError, asyncio.IncompleteReadError) as failure:
            error = (
                addresses.describe_errno(failure.errno) if isinstance(failure, OSError) and failure.errno else _STRANGER
            )
        except OSError as failure:
            error = addresses.describe_errno(failure.errno or 0)
        finally:
            if writer is not None:
                writer.transport.abort()
    return _path(node, road, found, False, error)


async def _pour(path: NodePath, size: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> NodePath:
    """Send one full-size packet, then many, there and back. If full-size packets are lost, the transfer stops."""
    for amount in (_packet(writer), size):
        began = time.monotonic()
        writer.write(f"{amount}\n".encode())  # in a packet of its own
        writer.write(bytes(amount))
        try:
            reply = await asyncio.wait_for(reader.readline(), POUR_S + QUIET_S)
            there, quiet_there, wanted = (float(number) for number in reply.split())
        except (TimeoutError, asyncio.TimeoutError, OSError, ValueError):
            there, quiet_there, wanted = 0.0, POUR_S, 0.0
        if there < amount and quiet_there >= QUIET_S:
            return dataclasses.replace(path, bulk=False, stalled="there")
        back, quiet_back = await _count(reader, int(wanted))
        if back < wanted and quiet_back >= QUIET_S:
            return dataclasses.replace(path, bulk=False, stalled="back")
        rate = (there + back) * 8e-6 / max(1e-6, time.monotonic() - began)
        if there < amount or back < wanted:  # slow: another amount would mix with data still in transit
            break
    return dataclasses.replace(path, bulk=True, mbit_per_s=round(rate, 3))


async def _count(reader: asyncio.StreamReader, size: int) -> tuple[int, float]:
    """Return how many of `size` bytes arrived within the limit, and the seconds since the last of them."""
    arrived, end = 0, time.monotonic() + POUR_S
    last = end - POUR_S
    with contextlib.suppress(TimeoutError, asyncio.TimeoutError, OSError):
        while arrived < size and (left := end - time.monotonic()) > 0:
            data = await asyncio.wait_for(reader.read(min(1 << 16, size - arrived)), left)
            if not data:
                break
            arrived, last = arrived + len(data), time.monotonic()
    return arrived, max(0.0, time.monotonic() - last)


def _packet(writer: asyncio.StreamWriter) -> int:
    """Return the bytes of one full-size packet on this connection, which is not split on the way."""
    with contextlib.suppress(OSError, AttributeError):
        number: int = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        return max(1, min(number, _BULK_ELSEWHERE - 1))
    return 1400


def _path(
    node: str, road: _Road, found: Sequence[str], connected: bool, error: str | None, round_trip_s: float | None = None
) -> NodePath:
    return NodePath(
        node, road.peer, road.via, road.name or "", tuple(found), connected, error, round_trip_s=round_trip_s
    )
