"""Which TCP connections exist on this machine, and how many bytes has each carried?

Asked of the kernel through sock_diag(7), which needs no privilege. /proc/net/tcp has the connections without the bytes.
The layout is that of linux/inet_diag.h and of struct tcp_info in linux/tcp.h (bytes_acked since Linux 4.1). In struct
inet_diag_msg, idiag_timer 1 is the timer of retransmissions, and idiag_retrans their number (net/ipv4/inet_diag.c).
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

ESTABLISHED, TIME_WAIT, LISTEN = 1, 6, 10  # linux/tcp_states.h
_SOCK_DIAG, _BY_FAMILY = 4, 20  # NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY
_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_ERROR, _DONE = 2, 3  # NLMSG_ERROR, NLMSG_DONE
_TCP_INFO = 2  # INET_DIAG_INFO
_STATES = 1 << ESTABLISHED | 1 << TIME_WAIT | 1 << LISTEN
_MESSAGE = 72  # size of struct inet_diag_msg
_ACKED_AT = 120  # offset of tcpi_bytes_acked in struct tcp_info; tcpi_bytes_received follows
_RETRANSMITS = 1  # idiag_timer
_TIMEOUT_S = 1.0

Address = tuple[bytes, int]  # in the kernel's form (IPv4 in the first 4 of 16 bytes), and the port


class Connection(NamedTuple):
    """One end of a TCP connection, or a listening socket."""

    state: int
    local: Address
    remote: Address
    inode: int  # 0: no process has it open
    sent: int | None = None  # bytes that the other end acknowledged; None: not counted
    received: int | None = None
    retransmits: int = 0  # how often the oldest data was sent again without an answer; 0 after any answer


def tcp_connections() -> list[Connection]:
    """Return the connections of this network namespace. Raises OSError if the kernel does not answer."""
    found: list[Connection] = []
    for family in (socket.AF_INET, socket.AF_INET6):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
            kernel.settimeout(_TIMEOUT_S)
            wanted = struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, 1 << (_TCP_INFO - 1), _STATES)
            kernel.send(struct.pack("=IHHII", 16 + len(wanted), _BY_FAMILY, _DUMP, 1, 0) + wanted)
            found += _answers(kernel)
    return found


def _answers(kernel: socket.socket) -> Iterator[Connection]:
    while True:
        data = kernel.recv(1 << 18)
        while data:
            length, kind = struct.unpack_from("=IH", data)
            if kind == _DONE:
                return
            if kind == _ERROR:
                number = -struct.unpack_from("=i", data, 16)[0]
                raise OSError(number, os.strerror(number))
            yield _connection(data[16:length])
            data = data[(length + 3) & ~3 :]


def _connection(message: bytes) -> Connection:
    family, state = message[0], message[1]
    local_port, remote_port = struct.unpack_from("!HH", message, 4)
    inode: int = struct.unpack_from("=I", message, 68)[0]
    local, remote = _plain(family, message[8:24]), _plain(family, message[24:40])
    sent, received = _counts(message)
    repeated = message[3] if message[2] == _RETRANSMITS else 0
    return Connection(state, (local, local_port), (remote, remote_port), inode, sent, received, repeated)


def address_text(address: Address) -> str:
    """Return "10.0.0.2:29500" or "[fd00::2]:29500"."""
    raw, port = address
    host = socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _plain(family: int, address: bytes) -> bytes:
    """Return an IPv4 address in the same form, whichever kind of socket it is on."""
    if family == socket.AF_INET:
        return address[:4]
    mapped = b"\0" * 10 + b"\xff\xff"  # ::ffff:a.b.c.d
    return address[12:16] if address.startswith(mapped) else address


def _counts(message: bytes) -> tuple[int | None, int | None]:
    at = _MESSAGE
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, at)
        if kind == _TCP_INFO and length >= 4 + _ACKED_AT + 16:
            sent, received = struct.unpack_from("=QQ", message, at + 4 + _ACKED_AT)
            return sent, received
        at += (length + 3) & ~3 or 4
    return None, None


def open_files(pid: int) -> Iterator[str]:
    """Return what the descriptors of a process refer to: "socket:[4711]", "/dev/nvidia0". Raises OSError."""
    folder = f"/proc/{pid}/fd"
    for number in os.listdir(folder):
        try:
            yield os.readlink(f"{folder}/{number}")
        except FileNotFoundError:
            continue


def sockets_of(files: Iterable[str]) -> set[int]:
    """Return the inodes of the sockets among open files."""
    return {int(name[8:-1]) for name in files if name.startswith("socket:[")}
