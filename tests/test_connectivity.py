"""Do nodes that listen find each other, and does nothing that answers, or does not answer, make them hang or lie?

All of it on the loopback interface; tests/test_slurm_hosts.py has real faults between hosts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from mgpu.fleet import connectivity, framing
from mgpu.snapshot import Interface, NodeAddresses, NodePath


@pytest.fixture
def two() -> Iterator[tuple[connectivity.Listening, connectivity.Listening]]:
    before = set(threading.enumerate())
    one, other = connectivity.Listening("n1"), connectivity.Listening("n2")
    yield one, other
    one.close()
    other.close()
    limit = time.monotonic() + 20
    while not set(threading.enumerate()) <= before and time.monotonic() < limit:
        time.sleep(0.01)  # a thread that had accepted a connection sees its end
    assert set(threading.enumerate()) <= before


def card(listening: connectivity.Listening, **door: Any) -> dict[str, Any]:
    """What the others are told of it, as it travels; found on the loopback interface."""
    found: dict[str, Any] = json.loads(json.dumps(listening.card))
    shown = found | {"door": found["door"] | {"interfaces": [], "address": "127.0.0.1", "full_name": ""} | door}
    endpoint: dict[str, Any] = framing.decode_message(framing.encode_message(connectivity.endpoint_of(shown)))
    return endpoint


def by_way(paths: list[NodePath]) -> Mapping[tuple[str, str], NodePath]:
    """Peer and way -> what became of it."""
    return {(path.peer, path.via): path for path in paths}


def test_two_nodes_find_each_other(two: tuple[connectivity.Listening, connectivity.Listening]) -> None:
    one, other = two
    cards = [card(one, node="localhost", meeting_port=one.card["port"]), card(other)]
    (name, path, head) = other.walk(cards, head="localhost")
    assert (path.node, path.peer, path.via, path.tried) == ("n2", "localhost", "lo", ("127.0.0.1",))
    assert (path.connected, path.error, path.bulk, path.stalled) == (True, None, True, None)
    assert path.round_trip_s and path.mbit_per_s
    assert (name.via, name.name, name.connected) == ("name", "localhost", True)
    assert (head.via, head.name, head.connected) == ("head", "localhost", True)


def test_a_name_that_nobody_knows(two: tuple[connectivity.Listening, connectivity.Listening]) -> None:
    one, other = two
    paths = by_way(one.walk([card(one), card(other, node="no-such-node.invalid")]))
    lost = paths["no-such-node.invalid", "name"]
    assert lost.connected is False and lost.tried == ()
    assert "cannot be resolved" in (lost.error or "")
    assert paths["no-such-node.invalid", "lo"].connected


def test_who_does_not_know_the_word_gets_no_answer(two: tuple[connectivity.Listening, connectivity.Listening]) -> None:
    for said in (b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01" + bytes(3000), b"x" * (1 << 20), b"\n"):
        with socket.create_connection(("127.0.0.1", two[0].card["port"]), timeout=10) as stranger:
            with contextlib.suppress(OSError):  # it may hang up while this is sent
                stranger.sendall(said)
                stranger.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(100) == b""
    assert by_way(two[1].walk([card(two[0]), card(two[1])]))["n1", "lo"].connected


def test_a_port_that_is_taken(two: tuple[connectivity.Listening, connectivity.Listening]) -> None:
    taken = connectivity.Listening("n3", meeting_port=two[0].card["port"])
    taken.close()
    assert (taken.door.meeting_port, taken.door.meeting_error) == (two[0].card["port"], "address already in use")


class Odd:
    """A program that takes a connection, and then says what it wants to."""

    def __init__(self, answer: bytes | None) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._answer = answer
        self._held: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._socket.accept()
                self._held.append(caller)
                if self._answer is not None:
                    caller.sendall(self._answer)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        for one in (self._socket, *self._held):
            one.close()


def test_what_is_silent_or_odd_costs_seconds_and_is_told_apart(
    two: tuple[connectivity.Listening, connectivity.Listening],
) -> None:
    """All at once: a port where nobody listens, a program that never answers, another one, one that swallows data."""
    one, other = two
    word = str(other.card["word"])
    closed = socket.create_server(("127.0.0.1", 0))
    odd = {"mute": Odd(None), "stranger": Odd(b"220 mail\r\n"), "swallows": Odd(f"{word[::-1]}\n".encode())}
    ports = {name: program.port for name, program in odd.items()} | {"nobody": closed.getsockname()[1]}
    closed.close()
    started = time.monotonic()
    paths = by_way(one.walk([card(one), *({**card(other, node=name), "port": port} for name, port in ports.items())]))
    assert time.monotonic() - started < connectivity.RESOLVE_S + connectivity.LIMIT_S + 8
    for program in odd.values():
        program.close()
    errors = {name: paths[name, "lo"].error for name in ports}
    assert errors == {
        "mute": "timed out", "stranger": "answered by another program", "nobody": "connection refused",
        "swallows": None,
    }  # fmt: skip
    assert (paths["swallows", "lo"].bulk, paths["swallows", "lo"].stalled) == (False, "there")


@pytest.mark.parametrize("count", [2, 3, 17, 18, 40, 1000])
def test_every_node_is_tried_by_several_others(count: int) -> None:
    tried = [set(connectivity.partners(node, count)) for node in range(count)]
    assert all(node not in others and others <= set(range(count)) for node, others in enumerate(tried))
    reached = [sum(node in others for others in tried) for node in range(count)]
    assert min(reached) >= min(count - 1, 5)
    assert max(map(len, tried)) <= 16  # however many nodes there are


def test_a_node_that_is_not_among_the_cards_tries_nothing(
    two: tuple[connectivity.Listening, connectivity.Listening],
) -> None:
    assert two[0].walk([card(two[1])]) == []


def test_what_a_thousand_nodes_are_told_of_each_other_is_short() -> None:
    """srun hands it to every node, and keeps 1 MiB of it for one that is stuck."""
    rng = random.Random(1)

    def endpoint(number: int) -> dict[str, Any]:
        cards = tuple(
            Interface(
                f"ib{card}", True, False, (f"10.{card}.{number >> 8}.{number & 255}", f"fe80::{rng.getrandbits(64):x}"),
                False, mtu=9000, running=True, routable=True,
            )
            for card in range(8)
        )  # fmt: skip
        name = f"gpu-{number:04}"
        door = NodeAddresses(
            name, name, f"{name}.site.org", address=cards[0].addresses[0], interfaces=cards,
            meeting_port=12000 if number < 2 else None, meeting_error="address already in use" if number < 1 else None,
        )  # fmt: skip
        word = f"{rng.getrandbits(64):016x}"
        return connectivity.endpoint_of(
            {"port": rng.randrange(32768, 60999), "word": word, "door": dataclasses.asdict(door)}
        )

    told = [endpoint(number) for number in range(1000)]
    assert [one["meeting_port"] for one in told[:3]] == [None, 12000, None]
    assert len(told[0]["ways"]) == 8
    packed = framing.encode_message({"do": "walk", "endpoints": told, "head": "gpu-0001"})
    assert len(packed) < 100_000
    assert framing.decode_message(packed)["endpoints"] == told


def test_the_door_is_read_back_from_the_card(two: tuple[connectivity.Listening, connectivity.Listening]) -> None:
    assert connectivity.door_of(json.loads(json.dumps(two[0].card))) == two[0].door
