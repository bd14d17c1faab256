"""Which step of starting a process group failed? Its line of code shows it if the message that says why is cut."""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.snapshot import UncaughtException

from ._own_objects import Meaning

_GLOO = re.compile(r"\bProcessGroupGloo\((?!\))")
_STORE = re.compile(r"\b(?:TCPStore|_create_c10d_store|_create_store_from_options)\(")
_SHORTEST = 60  # characters of a message that says more than the name of the step
# fmt: off
_BY_STEP = (
    (_GLOO,
     "a process group of gloo could not be set up: the ranks probably could not connect to each other",
     "Each rank announces the address of its host name or of GLOO_SOCKET_IFNAME, and connects to all others. With "
     "several nodes it is often a loopback address (127.0.1.1 in /etc/hosts), or belongs to a network that does not "
     "connect the nodes. If a rank has exited, the others cannot connect to it either.",
     (Fix("Set the interface that connects the nodes.",
          ("export GLOO_SOCKET_IFNAME=IFACE", "mgpu doctor --only hostname_is_loopback,network")),
      Fix("Find the rank whose log differs: it can have failed first.",
          ("mgpu doctor --log rank0.log rank1.log ...",)))),
    (_STORE,
     "the store of the rendezvous (TCPStore) could not be created: its port is taken, or rank 0 cannot be reached",
     "Rank 0 opens MASTER_PORT, and the others connect to it. On rank 0, the port is taken. On the others, "
     "the cause is a wrong MASTER_ADDR, a firewall, or a rank 0 that has not started or has exited.",
     (Fix("See what listens on the port, on the main node.", ("ss -ltnp 'sport = :29500'",)),
      Fix("Try it from the other nodes.", ("nc -vz MASTER_ADDR 29500", "mgpu doctor --only network")))),
)
# fmt: on


def _step(code: str) -> Meaning | None:
    return next((Meaning(title, why, fixes) for line, title, why, fixes in _BY_STEP if line.search(code)), None)


def group_not_made(one: UncaughtException) -> Meaning | None:
    """Explain an exception whose message is cut, by the line that raised it."""
    if len(one.message) > _SHORTEST or one.more or not (one.frames or ("",))[-1].startswith("torch/distributed/"):
        return None
    return _step(one.code or "")


def group_of_cut(code: str | None, frame: str | None) -> Meaning | None:
    """Explain the last line of a traceback that lacks its exception, if it starts a process group."""
    return _step(code or "") if (frame or "").startswith("torch/distributed/") else None
