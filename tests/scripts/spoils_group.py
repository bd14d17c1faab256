"""Makes one rank of the smoke test miss the others: each function is called in every rank before it climbs."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

from mgpu.smoke.ranks import group

_KEPT: list[Any] = []


def _late(seconds: float) -> None:
    """Ends the rank without a word, later than the others wait."""
    time.sleep(seconds)
    os._exit(1)


def never_comes(rank: int) -> None:
    """Rank 1 is busy with something else when the others meet."""
    if rank == 1:
        group._meet = lambda here: _late(3)


def skips_the_barrier(rank: int) -> None:
    """Rank 1 joins the process group and then does not come to the first barrier."""
    if rank == 1:
        group._first_barrier = lambda here: _late(5)


def no_interface(rank: int) -> None:
    """gloo is told to use an interface that does not exist."""
    os.environ["GLOO_SOCKET_IFNAME"] = "nope0"


def port_taken(rank: int) -> None:
    """Somebody else listens where rank 0 is to host the store."""
    if rank == 0:
        other = socket.create_server(("127.0.0.1", int(os.environ["MASTER_PORT"])))
        _KEPT.append(other)


def silent(rank: int) -> None:
    """Nobody listens where rank 1 is told that the others meet."""
    if rank == 1:
        with socket.create_server(("127.0.0.1", 0)) as free:
            os.environ["MASTER_PORT"] = str(free.getsockname()[1])


def unknown_name(rank: int) -> None:
    """Rank 1 is told a host that does not exist (RFC 6761: .invalid never does)."""
    if rank == 1:
        os.environ["MASTER_ADDR"] = "nowhere.invalid"
