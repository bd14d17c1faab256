"""On which port do the ranks of one machine meet?

A free one, chosen at every launch, so that two runs on one machine do not fight. `main_process_port: 0` in the file
would say the same to accelerate 1.15; with 1.0 and 1.6 the ranks then wait for each other for ever (measured 2026-11).
"""

from __future__ import annotations

import errno
import socket

from mgpu.errors import USAGE, MgpuError
from mgpu.snapshot import Config


def asked(port: str, config: Config) -> int | None:
    """The port that somebody has named, by --port or in the config; None: any free one. Raises MgpuError (2)."""
    if port == "auto":
        if config.num_machines > 1:
            raise MgpuError(f"--port auto: {config.path} spans {config.num_machines} machines, which must agree", USAGE)
        return None
    return int(port) if port else config.port


def for_launch(config: Config, named: int | None = None, *, needs_port: bool = False) -> int | None:
    """The port to tell the launcher: the one named where it is not the config's own, else a free one where ranks of one
    machine meet; None where the launcher knows it, or needs none. `needs_port`: it reads none from the config, and a
    single rank needs one too."""
    if named is not None:
        return None if named == config.port and not needs_port else named
    if config.num_machines > 1 or (config.distributed_type == "NO" and not needs_port):
        return None
    return free()


def free() -> int:
    """A port that nobody listens on now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def taken(port: int) -> bool:
    """Whether somebody on this machine listens on a port. Connections that are only being forgotten do not count."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
        return False
