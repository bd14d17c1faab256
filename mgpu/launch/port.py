"""On which port do the ranks of one machine meet?

A free one, chosen at every launch, so that two runs on one machine do not fight. `main_process_port: 0` in the file
would say the same to accelerate 1.15; with 1.0 and 1.6 the ranks then wait for each other for ever (measured 2026-11).
"""

from __future__ import annotations

import errno
import socket

from mgpu.snapshot import Config


def for_launch(config: Config) -> int | None:
    """A free port for a config of several ranks on one machine that names none; None where the launcher needs none."""
    if config.num_machines > 1 or config.distributed_type == "NO" or config.port:
        return None
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
