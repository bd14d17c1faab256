"""Is a port in use on this machine, and which one is free? Standard library only."""

from __future__ import annotations

import errno
import socket

# Without the privileged ones, and below those that Linux gives to outgoing connections (ip_local_port_range).
_USUAL = range(1024, 32768)


def is_busy(port: int) -> bool:
    """Return whether a process listens on the port, with IPv4 or IPv6."""
    return any(_in_use(family, port) for family in (socket.AF_INET, socket.AF_INET6))


def free_beside(port: int) -> int | None:
    """Return another port without a listener: one of the next ones, else one after torch's default."""
    candidates = [number for number in (*range(port + 1, port + 101), *range(29500, 29600)) if number in _USUAL]
    return next((number for number in candidates if not is_busy(number)), None)


def _in_use(family: int, port: int) -> bool:
    """Whether binding the port fails because it is in use; False if this machine does not have the address family."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe_socket:
            probe_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # TIME_WAIT is not busy
            if family == socket.AF_INET6:
                probe_socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe_socket.bind(("", port))
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False
