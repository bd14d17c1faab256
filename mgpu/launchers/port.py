"""Which rendezvous port do the ranks of one machine use?

A free one, chosen at every launch, so that two runs on one machine do not conflict. `main_process_port: 0` in the file
does the same with accelerate 1.15; with 1.0 and 1.6 the ranks then wait for each other indefinitely (measured 2026-11).
"""

from __future__ import annotations

import errno
import random
import socket

from mgpu import file_reading
from mgpu.errors import LAUNCH_REFUSED, USAGE, MgpuError
from mgpu.snapshot import Config

_FIRST, _END = 20000, 30000  # above the numbers that most services have, below Kubernetes' node ports
_TRIES = 100
_RANGE, _MOST_BYTES = "/proc/sys/net/ipv4/ip_local_port_range", 100


def requested_port(port: str, config: Config) -> int | None:
    """Return the port from --port or the config; None for any free port. Raises MgpuError (2)."""
    if port == "auto":
        if config.num_machines > 1:
            raise MgpuError(f"--port auto: the {config.num_machines} nodes of {config.path} need the same port", USAGE)
        return None
    return int(port) if port else config.port


def launch_port(config: Config, named: int | None = None, *, needs_port: bool = False) -> int | None:
    """Return the port to pass to the launcher; None if it reads it from the config or needs none.

    `named` if it differs from the config's port, else a free one for the ranks of one machine. `needs_port`: the
    launcher does not read the config's port, and needs one even for a single rank.
    """
    if named is not None:
        return None if named == config.port and not needs_port else named
    if config.num_machines > 1 or (config.distributed_type == "NO" and not needs_port):
        return None
    return free_port()


def free_port() -> int:
    """Return a port without a listener.

    A random one below those that Linux gives to outgoing connections and to `bind(0)`: the launcher binds it only
    seconds later, and until then no other program may be given the same.
    """
    quiet = range(_FIRST, min(_END, _first_automatic_port()))
    for port in (*random.sample(quiet, min(_TRIES, len(quiet))), 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            free: int = probe.getsockname()[1]
            return free
    raise MgpuError("Linux has no free port left for the rendezvous of the ranks", LAUNCH_REFUSED)


def _first_automatic_port() -> int:
    """Return the first port that the system gives to programs by itself."""
    try:
        return int(file_reading.read(_RANGE, most=_MOST_BYTES).split()[0])
    except (OSError, ValueError, IndexError):
        return 32768  # Linux's default


def is_taken(port: int) -> bool:
    """Whether a process on this machine listens on the port. Connections in TIME_WAIT do not count."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
        return False
