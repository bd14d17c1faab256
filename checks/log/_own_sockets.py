"""Is an address that was refused one of the program's own, and not the rendezvous of ranks? Cases of rows."""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case
from mgpu.snapshot import Log, UncaughtException

from ._circumstances import every, source_line

_OF_RANKS = ("torch", "accelerate", "deepspeed", "lightning", "pytorch_lightning", "horovod", "ray", "megatron", "vllm")
_SOCKET = "https://docs.python.org/3/library/socket.html"


def _opened_by_script(log: Log, raised: UncaughtException | None) -> bool:
    """Whether the script's own code, with Python's library alone, made the call that was refused."""
    if raised is None or not raised.raised_in_own_code:
        return False
    return not set(_OF_RANKS).intersection(raised.packages)


# fmt: off
_SAMPLE = 'Traceback (most recent call last):\n  File "/home/ada/view.py", line 8, in start\n    {line}\n{error}\n'
OWN_PORT = Case(
    every(_opened_by_script, source_line(r"\.bind\(|\blisten\(|\bserver_bind\(|\bcreate_server\(|\b\w*Server\(")),
    "the port that a server of the script's own listens on is already in use",
    "The line opens a socket of the program itself (a viewer, a monitor, a metrics server), not the rendezvous of "
    "ranks. Another process of this machine listens on the same port: usually an earlier run that has not ended, or a "
    "second run with the same default. If several ranks run the line, only one of them gets the port.",
    (Fix("Give this run another port, by the script's own option or in that line.",
         ("python train.py --help", "sock.bind((host, 0))  # any free port")),
     Fix("Or find the process that has it, and stop it if it is a leftover.",
         ("ss -ltnp  # Linux", "lsof -nP -iTCP -sTCP:LISTEN  # macOS"))),
    _SAMPLE.format(line="listener.bind((host, port))", error="OSError: [Errno 98] Address already in use"), _SOCKET)
OWN_NAME = Case(
    _opened_by_script,
    "the host name that the script connects to, or listens on, cannot be resolved",
    "The name is misspelled, or neither DNS nor the hosts file of this machine has it. A machine without a network or "
    "without internet access resolves no name of the internet. A whole URL (http://...) is not a host name.",
    (Fix("Print the name before that line, and try it by hand.", ("print(repr(host), port)", "getent hosts HOST")),
     Fix("Use an address in place of the name, if the host has a fixed one.")),
    _SAMPLE.format(line="sock.connect((host, port))",
                   error="socket.gaierror: [Errno -2] Name or service not known"), _SOCKET)
OWN_ADDRESS = Case(
    every(_opened_by_script, source_line(r"connect\w*\(|\.bind\(|sendto\(|\b\w*Server\(")),
    "the address that the script connects to, or listens on, cannot be used on this machine",
    "To connect: localhost often leads to ::1 first, an address of IPv6, which many containers lack; or no local port "
    "is left. To listen: the address must be one of this machine, or 0.0.0.0.",
    (Fix("Print the address, and use 127.0.0.1 instead of localhost.",
         ("print(repr(host), port)", "getent ahosts localhost", "ip -br addr")),
     Fix("If the server runs in another container or on the host, use its address: localhost is this container only.")),
    _SAMPLE.format(line="sock.connect(('localhost', 6379))",
                   error="OSError: [Errno 99] Cannot assign requested address"),
    "https://man7.org/linux/man-pages/man2/connect.2.html")
# fmt: on
