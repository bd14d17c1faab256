"""At which address does this host say that it can be reached, and who can connect to whom?

gloo takes GLOO_SOCKET_IFNAME, else what the own host name resolves to, else the loopback address (torch's
ProcessGroupGloo.cpp); NCCL takes NCCL_SOCKET_IFNAME, else the first interface that is neither lo nor docker*,
InfiniBand first (its misc/socket.cc). A wrong one shows as a hang in the first collective; a connection tried
beforehand shows why.
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
_KNOCK_S, _AGAIN_S, _ASK_AGAIN_S = 4.0, 0.02, 0.5
GLOO, NCCL = "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"


@dataclass(frozen=True)
class Advertised:
    """What this host says of itself, and where that comes from."""

    address: str
    origin: str  # GLOO_SOCKET_IFNAME, hostname (its name resolves to it), unresolvable, NCCL_SOCKET_IFNAME, interface


def interfaces() -> list[str]:
    """Names of the interfaces there are."""
    with contextlib.suppress(OSError):
        return [name for _, name in socket.if_nameindex()]
    return []


def missing(environ: Mapping[str, str], on_gpu: bool) -> tuple[str, str] | None:
    """A variable that names an interface which does not exist, and its value."""
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
    """NCCL's own words: "=eth0" exactly, "eth" a prefix, "^docker" anything else; several with commas."""
    text = wanted.lstrip("^=")
    exact = wanted.lstrip("^").startswith("=")
    found = any(name == one if exact else name.startswith(one) for one in text.split(",") if one)
    return not found if wanted.startswith("^") else found


def advertised(environ: Mapping[str, str], on_gpu: bool) -> Advertised:
    """What the backend of the ranks on this host will tell the others."""
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
    """The IPv4 address of an interface, else its IPv6 one."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        request = struct.pack("256s", interface.encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(asked, _SIOCGIFADDR, request)[20:24])
    with contextlib.suppress(OSError), open("/proc/net/if_inet6", encoding="ascii") as file:
        for line in file:
            digits, *_, name = line.split()
            if name == interface:
                return str(ipaddress.ip_address(int(digits, 16)))
    return None


def is_loopback(address: str) -> bool:
    """Whether only this host itself reaches it."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address).is_loopback
    return False


def connects(mine: str, theirs: str) -> bool:
    """Whether gloo connects from an address to another: the larger one does, the smaller one listens (pair.cc)."""
    with contextlib.suppress(ValueError):
        one, other = ipaddress.ip_address(mine), ipaddress.ip_address(theirs)
        return one.version != other.version or one.packed >= other.packed
    return True


class Listener:
    """A port at an address that answers every connection with a word, so that a stranger is not taken for it."""

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
        """Stop answering."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._socket.close()


@dataclass
class _Call:
    key: str
    word: bytes
    heard: bytes = b""


def reach(others: Mapping[str, tuple[str, int, str]], limit_s: float) -> dict[str, str | None]:
    """For each key (address, port, the word that the listener says): None when it answered, else what happened."""
    told: dict[str, str | None] = dict.fromkeys(others, "timed out")
    waiting = selectors.DefaultSelector()
    caller: Any
    for key, (address, port, word) in others.items():
        caller = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        caller.setblocking(False)
        code = caller.connect_ex((address, port))
        if code not in (0, errno.EINPROGRESS):
            told[key] = words(code)
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
                told[call.key] = words(error.errno or 0)
                data = b""
            else:
                call.heard += data
                if call.heard == call.word:
                    told[call.key] = None
                elif not data:
                    told[call.key] = "answered by somebody else"
            if not data or told[call.key] is None:
                waiting.unregister(caller)
                caller.close()
    for left_over in list(waiting.get_map().values()):
        caller = left_over.fileobj
        caller.close()
    waiting.close()
    return told


def knock(host: str, port: int, limit_s: float) -> str | None:
    """None as soon as somebody listens there, else why nobody could be reached until the limit."""
    deadline = time.monotonic() + limit_s
    while True:
        again = _AGAIN_S
        left = deadline - time.monotonic()
        try:
            with socket.create_connection((host, port), timeout=max(0.1, min(left, _KNOCK_S))):
                return None
        except socket.gaierror as error:
            told, again = unresolved(error), _ASK_AGAIN_S
            if error.errno == socket.EAI_NONAME:
                return told
        except TimeoutError:
            told = "timed out"
        except OSError as error:
            told = words(error.errno or 0)
        if time.monotonic() + again >= deadline:
            return told
        time.sleep(again)


def unresolved(error: socket.gaierror) -> str:
    """A name that nobody knows."""
    return f"its name cannot be resolved ({error.strerror})"


def words(code: int) -> str:
    """An errno of connect(): connection refused, timed out, no route to host …"""
    return "timed out" if code == errno.ETIMEDOUT else os.strerror(code).lower()
