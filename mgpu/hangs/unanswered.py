"""Which hosts no longer answer a rank? From the retransmissions that the kernel counts for its TCP connections.

A process that is stopped or busy still answers: its kernel acknowledges the data. Only a host or a network that is down
does not.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from mgpu.process import connections, processes

_ENOUGH = 4  # retransmissions in a row: 3 s without an answer if the first one is sent after 200 ms
_MOST_PEERS = 8  # of a rank
STORE = " (the store)"


def peers(pids: Iterable[int]) -> dict[int, tuple[str, ...]]:
    """Return the addresses that do not answer a process, by its PID; only processes with such addresses."""
    silent: dict[int, connections.Connection] = {}
    with contextlib.suppress(OSError):
        silent = {one.inode: one for one in connections.tcp_connections() if one.retransmits >= _ENOUGH}
    if not silent:
        return {}
    return {pid: found for pid in pids if (found := _of_process(pid, silent))}


def _of_process(pid: int, silent: dict[int, connections.Connection]) -> tuple[str, ...]:
    try:
        inodes = connections.sockets_of(connections.open_files(pid))
        if os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net"):
            return ()
    except OSError:
        return ()
    store = processes.environment(pid).get(b"MASTER_PORT", b"")
    remote = {silent[inode].remote for inode in inodes & silent.keys()}
    shown = (f"{connections.address_text(one)}{STORE if str(one[1]).encode() == store else ''}" for one in remote)
    return tuple(sorted(shown)[:_MOST_PEERS])
