"""Does this machine know its own name, which interfaces are there, and is the rendezvous port free?

Runs in a child process: name resolution may hang. Standard library and psutil.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

_RESOLVE_LIMIT_S = 2.0  # a resolver that takes longer delays every rendezvous; reported, not waited for
_VIRTUAL = ("docker", "virbr", "veth", "br-", "cni", "flannel", "cali", "lxc", "podman", "tap", "ifb", "dummy")


def probe(port: int = 29500) -> Iterator[dict[str, Any]]:
    """Yield the fact network."""
    hostname = socket.gethostname()
    busy, owner = _port(port)
    addresses, error = _resolve(hostname)
    local, _ = _resolve("localhost")
    yield {
        "network": {
            "hostname": hostname,
            "hostname_addresses": addresses,
            "hostname_error": error,
            "localhost_ok": any(address in ("127.0.0.1", "::1") for address in local),
            "interfaces": _interfaces(),
            "port": port,
            "port_busy": busy,
            "port_owner": owner,
        }
    }


def _resolve(name: str) -> tuple[list[str], str | None]:
    """Addresses of a name, in order; the resolver's words when there are none."""
    result: dict[str, Any] = {"addresses": [], "error": f"no answer in {_RESOLVE_LIMIT_S:g} s"}

    def ask() -> None:
        try:
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            result.update(addresses=list(dict.fromkeys(str(item[4][0]) for item in found)), error=None)
        except (OSError, UnicodeError) as error:
            result["error"] = getattr(error, "strerror", None) or str(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_RESOLVE_LIMIT_S)
    return list(result["addresses"]), result["error"]


def _port(port: int) -> tuple[bool, str | None]:
    """Whether something listens on the port on any address, and who, as far as this user may see."""
    if not any(_taken(family, port) for family in (socket.AF_INET, socket.AF_INET6)):
        return False, None
    import psutil

    try:
        for connection in psutil.net_connections("tcp"):
            if connection.laddr and connection.laddr.port == port and connection.status == "LISTEN" and connection.pid:
                return True, f"pid {connection.pid} ({psutil.Process(connection.pid).name()})"
    except psutil.Error:
        pass
    return True, None


def _taken(family: int, port: int) -> bool:
    """Whether binding the port fails because somebody has it; a family this machine lacks takes nothing."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe_socket:
            probe_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # TIME_WAIT is not busy
            if family == socket.AF_INET6:
                probe_socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe_socket.bind(("", port))
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


def _interfaces() -> list[dict[str, Any]]:
    import psutil

    stats = psutil.net_if_stats()
    found = []
    for name, addresses in psutil.net_if_addrs().items():
        stat = stats.get(name)
        numbers = [a.address.partition("%")[0] for a in addresses if a.family in (socket.AF_INET, socket.AF_INET6)]
        found.append({
            "name": name,
            "up": bool(stat and stat.isup),
            "loopback": name == "lo" or os.path.exists(f"/sys/class/net/{name}/loopback"),
            "addresses": numbers,
            "virtual": name.startswith(_VIRTUAL),
            "mtu": stat.mtu if stat else None,
            "speed_mbit_per_s": stat.speed or None if stat else None,
        })  # fmt: skip
    return found
