"""Which address does this host advertise to the other ranks, and can they connect to it?

gloo uses GLOO_SOCKET_IFNAME, else the address of the host name, else the loopback address (torch's
ProcessGroupGloo.cpp); NCCL uses NCCL_SOCKET_IFNAME, else the first interface that is neither lo nor docker*, InfiniBand
first (its misc/socket.cc). A wrong address causes a hang in the first collective; a test connection shows the reason
beforehand.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import ipaddress
import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SIOCGIFADDR = 0x8915
_LOOPBACK = "127.0.0.1"
_BACKLOG = 4096
_CONNECT_S, _RETRY_S, _RESOLVE_AGAIN_S = 4.0, 0.02, 0.5
GLOO, NCCL = "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"


@dataclass(frozen=True)
class Advertised:
    """The address that this host advertises, and its origin."""

    address: str
    origin: str  # GLOO_SOCKET_IFNAME, hostname (its name resolves to it), unresolvable, NCCL_SOCKET_IFNAME, interface


def interfaces() -> list[str]:
    """Return the names of all network interfaces."""
    with contextlib.suppress(OSError):
        return [name for _, name in socket.if_nameindex()]
    return []


def missing_interface(environ: Mapping[str, str], on_gpu: bool) -> tuple[str, str] | None:
    """Return a variable that names a missing interface, and its value; None if there is none."""
    there = interfaces()
    wanted = environ.get(GLOO, "")
    for name in filter(None, wanted.split(",")):
        if there and name not in there:
            return GLOO, name
    wanted = environ.get(NCCL, "")
    if on_gpu and there and wanted and not wanted.startswith("^") and not any(_nccl_takes(n, wanted) for n in there):
        return NCCL, wanted
    return None


def _nccl_takes(name: str, wanted: str) -> bool:
    """Whether NCCL's syntax selects the name: "=eth0" is exact, "eth" a prefix, "^docker" excludes; comma-separated."""
    text = wanted.lstrip("^=")
    exact = wanted.lstrip("^").startswith("=")
    found = any(name == one if exact else name.startswith(one) for one in text.split(",") if one)
    return not found if wanted.startswith("^") else found


def advertised_address(environ: Mapping[str, str], on_gpu: bool) -> Advertised:
    """Return the address that the backend of this host's ranks will advertise to the others."""
    if on_gpu:
        return _of_nccl(environ.get(NCCL, ""))
    if named := environ.get(GLOO, "").partition(",")[0]:
        return Advertised(_address_of(named) or _LOOPBACK, GLOO)
    name = socket.gethostname()
    with contextlib.suppress(OSError):
        for family, kind, _, _, address in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM):
            with contextlib.suppress(OSError), socket.socket(family, kind) as tried:
                tried.bind((address[0], 0))
                return Advertised(str(address[0]), "hostname")
    return Advertised(_LOOPBACK, "unresolvable")


def _of_nccl(wanted: str) -> Advertised:
    there = interfaces()
    if wanted:
        taken, origin = [name for name in there if _nccl_takes(name, wanted)], NCCL
    else:
        quiet = [name for name in there if name != "lo" and not name.startswith("docker")]
        taken, origin = sorted(quiet, key=lambda name: not name.startswith("ib")) or there, "interface"
    found = next((address for name in taken if (address := _address_of(name))), _LOOPBACK)
    return Advertised(found, origin)


def _address_of(interface: str) -> str | None:
    """Return the IPv4 address of an interface, or else its IPv6 address."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
        request = struct.pack("256s", interface.encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(query, _SIOCGIFADDR, request)[20:24])
    with contextlib.suppress(OSError), open("/proc/net/if_inet6", encoding="ascii") as file:
        for line in file:
            digits, *_, name = line.split()
            if name == interface:
                return str(ipaddress.ip_address(int(digits, 16)))
    return None


def is_loopback(address: str) -> bool:
    """Whether the address can only be reached from this host."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address).is_loopback
    return False


def connects(mine: str, theirs: str) -> bool:
    """Whether gloo connects from one address to the other: the larger one connects, the smaller listens (pair.cc)."""
    with contextlib.suppress(ValueError):
        one, other = ipaddress.ip_address(mine), ipaddress.ip_address(theirs)
        return one.version != other.version or one.packed >= other.packed
    return True


class Listener:
    """A port that answers every connection with a password, so that another program is not mistaken for it."""

    def __init__(self, address: str, word: str) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.bind((address, 0))
        self._socket.listen(_BACKLOG)
        self.port: int = self._socket.getsockname()[1]
        self._word = word.encode()
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._socket.accept()
                with contextlib.suppress(OSError), caller:
                    caller.sendall(self._word)

    def close(self) -> None:
        """Stop listening."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._socket.close()


@dataclass
class _Call:
    key: str
    word: bytes
    heard: bytes = b""


def reach(others: Mapping[str, tuple[str, int, str]], limit_s: float) -> dict[str, str | None]:
    """Connect to each address and port, and expect the given password.

    Returns for each key None if the listener answered, else the error.
    """
    results: dict[str, str | None] = dict.fromkeys(others, "timed out")
    waiting = selectors.DefaultSelector()
    caller: Any
    for key, (address, port, word) in others.items():
        caller = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        caller.setblocking(False)
        code = caller.connect_ex((address, port))
        if code not in (0, errno.EINPROGRESS):
            results[key] = describe_errno(code)
            caller.close()
            continue
        waiting.register(caller, selectors.EVENT_READ, _Call(key, word.encode()))
    deadline = time.monotonic() + limit_s
    while waiting.get_map() and (left := deadline - time.monotonic()) > 0:
        for ready, _ in waiting.select(left):
            caller, call = ready.fileobj, ready.data
            try:
                data = caller.recv(256)
            except OSError as error:
                results[call.key] = describe_errno(error.errno or 0)
                data = b""
            else:
                call.heard += data
                if call.heard == call.word:
                    results[call.key] = None
                elif not data:
                    results[call.key] = "answered by another program"
            if not data or results[call.key] is None:
                waiting.unregister(caller)
                caller.close()
    for left_over in list(waiting.get_map().values()):
        caller = left_over.fileobj
        caller.close()
    waiting.close()
    return results


def wait_for_listener(host: str, port: int, limit_s: float) -> str | None:
    """Connect until a listener accepts. Returns None on success, or the last error after `limit_s` seconds."""
    deadline = time.monotonic() + limit_s
    while True:
        again = _RETRY_S
        left = deadline - time.monotonic()
        try:
            with socket.create_connection((host, port), timeout=max(0.1, min(left, _CONNECT_S))):
                return None
        except socket.gaierror as error:
            failure, again = describe_unresolved(error), _RESOLVE_AGAIN_S
            if error.errno == socket.EAI_NONAME:
                return failure
        except TimeoutError:
            failure = "timed out"
        except OSError as error:
            failure = describe_errno(error.errno or 0)
        if time.monotonic() + again >= deadline:
            return failure
        time.sleep(again)


def describe_unresolved(error: socket.gaierror) -> str:
    """Return the text for a host name that cannot be resolved."""
    return f"its name cannot be resolved ({error.strerror})"


def describe_errno(code: int) -> str:
    """Return the text for an errno of connect(): connection refused, timed out, no route to host."""
    return "timed out" if code == errno.ETIMEDOUT else os.strerror(code).lower()
