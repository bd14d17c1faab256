"""Which rendezvous port do the ranks of one machine use?

A free one, chosen at every launch, so that two runs on one machine do not conflict. `main_process_port: 0` in the file
does the same with accelerate 1.15; with 1.0 and 1.6 the ranks then wait for each other indefinitely (measured 2026-11).
"""

from __future__ import annotations

import errno
import socket

from mgpu.errors import USAGE, MgpuError
from mgpu.snapshot import Config


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
    """Return a port without a listener."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_taken(port: int) -> bool:
    """Whether a process on this machine listens on the port. Connections in TIME_WAIT do not count."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
        return False
