"""What does NCCL's RAS report about this machine's job? Asked through its client socket, without a program of NCCL's.

NCCL 2.24 and later listens on localhost:28028, or at NCCL_RAS_ADDR (src/ras/client_support.cc: rasClientInitSocket).
The commands are lines of text; `TIMEOUT` is answered by "OK", `VERBOSE STATUS` by the report, after which NCCL closes.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Collection, Mapping

from mgpu.process import connections
from mgpu.readers import nccl_ras
from mgpu.snapshot import RasCommunicator

LIMIT_S = 1.0  # for everything; NCCL's own client waits 5 s
_ADDRESS = ("localhost", 28028)
_MOST_BYTES = 4 << 20


def address(environ: Mapping[str, str] = os.environ) -> tuple[str, int]:
    """Return host and port of the client socket."""
    host, colon, port = environ.get("NCCL_RAS_ADDR", "").rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        return _ADDRESS
    return host.strip("[]") or "localhost", int(port)


def listens(where: tuple[str, int], pids: Collection[int]) -> bool:
    """Whether one of these processes listens at this port, as far as the kernel reports it.

    On a machine with several jobs, the RAS of only one of them can: its answer is not about the others.
    """
    try:
        known = connections.tcp_connections()
    except OSError:
        return True
    listening = {one.inode for one in known if one.state == connections.LISTEN and one.local[1] == where[1]}
    for pid in pids if listening else ():
        with contextlib.suppress(OSError):
            if not listening.isdisjoint(connections.sockets_of(connections.open_files(pid))):
                return True
    return False


def ask(where: tuple[str, int], limit_s: float = LIMIT_S) -> str:
    """Return the report. Raises OSError if nothing listens there or it does not answer in time."""
    until = time.monotonic() + limit_s
    with socket.create_connection(where, timeout=limit_s) as link:
        link.sendall(b"TIMEOUT 1\n")
        answer = _read(link, until, line=True)
        if not answer.startswith(b"OK"):
            raise ConnectionError("it is not NCCL's RAS")
        link.sendall(b"VERBOSE STATUS\n")
        return _read(link, until).decode("utf-8", "replace")


def _read(link: socket.socket, until: float, *, line: bool = False) -> bytes:
    """Read to the end of the stream, or of a line; until the limit, what has come so far."""
    found = b""
    while len(found) < _MOST_BYTES and not (line and found.endswith(b"\n")):
        left = until - time.monotonic()
        if left <= 0:
            break
        link.settimeout(left)
        try:
            data = link.recv(1 << 16)
        except TimeoutError:
            break
        if not data:
            break
        found += data
    return found


class Query:
    """Asks in a thread, so that no one waits for an answer that does not come."""

    def __init__(self, where: tuple[str, int] | None = None) -> None:
        self._where = where or address()
        self._found: tuple[RasCommunicator, ...] | None = None
        self._thread = threading.Thread(target=self._ask, name="mgpu-ras", daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._found = nccl_ras.communicators(ask(self._where))

    def result(self) -> tuple[RasCommunicator, ...] | None:
        """Return the communicators with a problem; None if RAS did not answer (yet)."""
        return self._found
