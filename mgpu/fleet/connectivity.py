"""Does each node of a job reach the others as the ranks will?

Every node listens at a port the system chooses, as gloo, NCCL and torchrun do, and has a card with its names and
addresses, of which the others are told its endpoint. Then it connects to them: by name, at the place where all meet,
and at the address of each interface. Through the last go a packet of full size and many of them, both ways. Standard
library only, no torch; all connections of a node are tried side by side, each with a limit, so that a network that
swallows everything costs seconds.
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
from mgpu.snapshot import Interface, NodeDoor, NodePath, decode

RESOLVE_S = 2.0  # for all names together
CONNECT_S = 2.5  # the first packet is sent again after 1 s, and then only after 3 s
POUR_S = 1.5  # each way, and each of the two amounts; a lost packet is sent again after 0.2, 0.6 and 1.4 s
QUIET_S = 1.0  # so long nothing came before the limit: it does not go on slowly, it has stopped
LIMIT_S = 9.0  # of all of it, after the names
# Up to so many others are all tried, both ways; of more, each tries those 1, 2, 4, 8 … places further on: a bad node is
# then named by as many as a bad link is by one.
_ALL_TRIED = 16
_BULK = 256 << 10  # many packets of any MTU, and 2 ms at 1 Gbit/s
_BULK_ELSEWHERE = 64 << 10  # over interfaces that the ranks do not name first
_INTERFACES = 8  # of a peer that are tried; NCCL takes no more than 16
_BACKLOG = 4096
_STRANGER = "answered by somebody else"


@dataclass(frozen=True)
class _Road:
    """A connection to try."""

    peer: str
    via: str
    name: str | None  # to be resolved here; else the address stands
    address: str
    port: int
    word: str
    bulk: int


class Listening:
    """This node's open port, and the way to the others'. `card` is for the head; `close` ends it."""

    def __init__(self, node: str, *, on_gpu: bool = False, meeting_port: int | None = None) -> None:
        open_files.raise_limit()  # on the first node of a thousand as many connections come in
        self._word = secrets.token_hex(8)
        self._node = node
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda *_: None)  # of callers that are cut off at the end
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._servers: list[asyncio.Server] = []
        own = self._serve(0)
        error = None
        if meeting_port is not None:
            try:
                self._serve(meeting_port)
            except OSError as failure:
                error = addresses.words(failure.errno or 0)
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
        """One caller. It has to know the word; then it names amounts, each is counted, and sent back."""
        with contextlib.suppress(OSError, ValueError, asyncio.TimeoutError):
            said = await asyncio.wait_for(reader.readline(), CONNECT_S)
            if said.decode("ascii", "replace").strip() == self._word:
                writer.write(f"{self._word[::-1]}\n".encode())
                while wanted := await asyncio.wait_for(reader.readline(), LIMIT_S):
                    size = min(int(wanted), _BULK)
                    arrived, quiet = await _count(reader, size)
                    back = _packet(writer) if size < _BULK_ELSEWHERE else size
                    writer.write(f"{arrived} {quiet:.3f} {back}\n".encode())
                    writer.write(bytes(back))
        writer.transport.abort()  # the caller hangs up first, unless something is wrong

    def walk(self, endpoints: Sequence[Mapping[str, Any]], *, head: str | None = None) -> list[NodePath]:
        """Try the others; `endpoints` of all nodes in the job's order, `head`: the name or address where the ranks
        meet, which belongs to the node that listens at a meeting port. Ends within RESOLVE_S + LIMIT_S."""
        roads = _roads(self._node, endpoints, head)
        known = _resolved({road.name for road in roads if road.name})
        told: dict[int, NodePath] = {}
        self._do(self._walk(roads, known, told))
        late = ((road.address,) if road.address else () for road in roads)
        return [
            told.get(place) or _path(self._node, road, tried, False, "timed out")
            for place, (road, tried) in enumerate(zip(roads, late, strict=True))
        ]

    async def _walk(
        self, roads: Sequence[_Road], known: Mapping[str, tuple[list[str], str | None]], told: dict[int, NodePath]
    ) -> None:
        async def one(place: int, road: _Road) -> None:
            found, error = known[road.name] if road.name else ([road.address], None)
            if found:
                told[place] = await _go(self._node, road, found)
            else:
                told[place] = _path(self._node, road, (), False, f"its name cannot be resolved ({error})")

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


def door_of(card: Mapping[str, Any]) -> NodeDoor:
    """The fact in a card."""
    return decode(NodeDoor, card["door"], "door")


def endpoint_of(card: Mapping[str, Any]) -> dict[str, Any]:
    """What the other nodes need to come to this one. All are sent to all: 1,000 cards of nodes with eight network cards
    are 2.9 MB of JSON, their endpoints 0.3 MB, and packed for the way (framing.packed) 63 KB; with one, 1.1 MB, 0.2 MB
    and 38 KB (measured 2026-11)."""
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
    """Which of `count` nodes the node of this number tries."""
    if count <= _ALL_TRIED + 1:
        return [other for other in range(count) if other != node]
    return sorted({(node + (1 << step)) % count for step in range((count - 1).bit_length())} - {node})


# ---- this node


def _door(node: str, on_gpu: bool, meeting_port: int | None, meeting_error: str | None) -> NodeDoor:
    hostname = socket.gethostname()
    found, error = _resolved({hostname})[hostname]
    told = addresses.Advertised("127.0.0.1", "unresolvable")
    if found or on_gpu or os.environ.get(addresses.GLOO):  # a name without an answer is not asked for again
        told = addresses.advertised(os.environ, on_gpu)
    return NodeDoor(
        node,
        hostname,
        _full_name(hostname),
        tuple(found),
        error,
        told.address,
        told.origin,
        {name: os.environ[name] for name in (addresses.GLOO, addresses.NCCL) if os.environ.get(name)},
        on_gpu,
        _interfaces(),
        meeting_port,
        meeting_error,
    )


def _full_name(hostname: str) -> str:
    """What torchrun tells the others: socket.getfqdn(), which may ask a slow resolver."""
    told: list[str] = []
    asking = threading.Thread(target=lambda: told.append(socket.getfqdn(hostname)), daemon=True)
    asking.start()
    asking.join(RESOLVE_S)
    return told[0] if told else hostname


def _interfaces() -> tuple[Interface, ...]:
    try:
        return tuple(decode(Interface, one, "interface") for one in network.interfaces())
    except OSError:
        return ()


def _listener(port: int) -> socket.socket:
    """A port on all addresses of this machine; of both families where it has both."""
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


# ---- the ways to the others


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


def _ways_in(door: NodeDoor) -> dict[str, str]:
    """Interface -> its address at which other machines may reach this node; first of all the one its ranks tell."""
    told = door.interface_of(door.address)
    name = told.name if told else "lo" if addresses.is_loopback(door.address) else "?"
    found = {name: door.address} if door.address else {}
    for one in door.interfaces:
        usable = (
            one.up and one.running is not False and not one.loopback and not one.virtual and one.routable is not False
        )
        address = next(iter(sorted(one.addresses, key=lambda text: ":" in text)), None)
        if usable and address and len(found) < _INTERFACES:
            found.setdefault(one.name, address)
    return found


def _resolved(names: Iterable[str]) -> dict[str, tuple[list[str], str | None]]:
    """Name -> its addresses, and the resolver's words where it has none. Asked side by side: a resolver may hang."""
    return {name: (found, error) for name, (found, error, _) in network.resolve(names, RESOLVE_S).items()}


async def _go(node: str, road: _Road, found: Sequence[str]) -> NodePath:
    """Try the addresses in turn, as torch does; the first that answers counts."""
    error, end = "timed out", time.monotonic() + CONNECT_S
    for address in found:
        writer = None
        try:
            began = time.monotonic()
            opening = asyncio.open_connection(address, road.port, limit=_BULK)
            reader, writer = await asyncio.wait_for(opening, max(0.1, end - began))
            began = time.monotonic()
            writer.write(f"{road.word}\n".encode())
            said = await asyncio.wait_for(reader.readline(), max(0.5, end - began))
            round_trip = time.monotonic() - began
            if said.decode("ascii", "replace").strip() != road.word[::-1]:
                error = _STRANGER
                continue
            path = _path(node, road, found, True, None, round_trip)
            return await _pour(path, road.bulk, reader, writer) if road.bulk else path
        except (TimeoutError, asyncio.TimeoutError):
            error = "timed out"
        except (ConnectionError, asyncio.IncompleteReadError) as failure:
            error = addresses.words(failure.errno) if isinstance(failure, OSError) and failure.errno else _STRANGER
        except OSError as failure:
            error = addresses.words(failure.errno or 0)
        finally:
            if writer is not None:
                writer.transport.abort()
    return _path(node, road, found, False, error)


async def _pour(path: NodePath, size: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> NodePath:
    """A packet of full size, then many, there and back. Where full packets are lost, nothing more comes through."""
    for amount in (_packet(writer), size):
        began = time.monotonic()
        writer.write(f"{amount}\n".encode())  # in a packet of its own
        writer.write(bytes(amount))
        try:
            said = await asyncio.wait_for(reader.readline(), POUR_S + QUIET_S)
            there, quiet_there, wanted = (float(word) for word in said.split())
        except (TimeoutError, asyncio.TimeoutError, OSError, ValueError):
            there, quiet_there, wanted = 0.0, POUR_S, 0.0
        if there < amount and quiet_there >= QUIET_S:
            return dataclasses.replace(path, bulk=False, stalled="there")
        back, quiet_back = await _count(reader, int(wanted))
        if back < wanted and quiet_back >= QUIET_S:
            return dataclasses.replace(path, bulk=False, stalled="back")
        rate = (there + back) * 8e-6 / max(1e-6, time.monotonic() - began)
        if there < amount or back < wanted:  # slow, and a further amount would be mixed up with what is still coming
            break
    return dataclasses.replace(path, bulk=True, mbit_per_s=round(rate, 3))


async def _count(reader: asyncio.StreamReader, size: int) -> tuple[int, float]:
    """How many of `size` bytes come within the limit, and how long before its end the last of them did."""
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
    """How many bytes make one packet of full size on this connection: alone in it, they are not cut up on the way."""
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
