"""Reach workers on machines that have no scheduler: one ssh connection per host, this machine without ssh.

mgpu travels over the connection (hosts/payload.py), so it need not be installed there. At most _AT_ONCE connections are
being opened at a time: a jump host, and sshd's MaxStartups, refuse more. Each worker gets a message at least every two
seconds; one that gets none stops everything it started (far_side.py).
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mgpu.errors import CANNOT_RUN, MgpuError, reason
from mgpu.fleet import framing
from mgpu.fleet.workers import KEPT_LINES, Workers
from mgpu.hosts import payload, ssh, ssh_errors, ssh_keys
from mgpu.hosts.named_hosts import Host, names
from mgpu.process import child_process
from mgpu.snapshot import HostAccess

_AT_ONCE = 10  # sshd's default for MaxStartups: from 10 on, connections that have not logged in are refused
_AGAIN = 1  # attempts after a refusal for which another attempt can help
PING_S = 2.0
_END_S = 8.0  # for a worker to stop what it started
_BY_ITSELF_S = 2.0
_CHUNK = 1 << 16
_LONGEST = 16 << 20  # bytes of a line; a longer one is not ours


@dataclass
class _Connection:
    """One host's connection and what it has said so far."""

    host: Host
    process: child_process.Program
    pending: bytearray  # to be written to stdin
    reader: framing.Reader = field(default_factory=framing.Reader)
    partial: dict[str, bytes] = field(default_factory=lambda: {"out": b"", "err": b""})
    stderr: list[str] = field(default_factory=list)
    noise: list[str] = field(default_factory=list)  # what a shell's start-up files print
    greeted: bool = False
    reached_at: str = ""  # the address that ssh connected to
    open: set[str] = field(default_factory=lambda: {"out", "err"})


class SshWorkers(Workers):
    """A worker on every host. A context manager: all workers are stopped at its end."""

    def __init__(self, hosts: Sequence[Host], *, folder: str) -> None:
        super().__init__(names(hosts))
        self._folder = folder
        self.access: dict[str, HostAccess] = {}  # hosts that were reached, or why not
        self._waiting = list(hosts)
        self._tries: dict[str, int] = {}
        self._live: dict[str, _Connection] = {}
        self._said: dict[str, list[str]] = {}  # host -> the last lines of its stderr
        self._sent: list[bytes] = []  # for connections that are opened later
        self._selector = selectors.DefaultSelector()
        self._pinged = time.monotonic()

    def start(self) -> None:
        """Open the first connections. Raises MgpuError if there is no ssh."""
        self._open_more()

    def close(self) -> None:
        """Stop the workers: by closing stdin, then by ending ssh, after which the far sides stop by themselves."""
        self._waiting.clear()
        left = [one.process for one in self._live.values()]
        for one in list(self._live.values()):
            self._shut_stdin(one)
        self._live.clear()
        end = time.monotonic() + _BY_ITSELF_S
        for number, more_s in ((signal.SIGTERM, _END_S), (signal.SIGKILL, 1.0)):
            while (left := [p for p in left if p.poll() is None]) and time.monotonic() < end:
                time.sleep(0.01)
            for process in left:
                process.send_signal(number)
            end = time.monotonic() + more_s
        child_process.end(*left)
        self._selector.close()

    def stderr_of(self, node: str) -> str:
        """Return the last lines that ssh and the worker of a host wrote to stderr."""
        return "\n".join(self._said.get(node, ()))

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message to all hosts."""
        line = framing.encode_message(message).encode() + b"\n"
        if message.get("do") != "ping":
            self._sent.append(line)
        for one in self._live.values():
            self._queue(one, line)

    def hear(self, wait_s: float) -> list[tuple[str, dict[str, Any]]]:
        """Return new messages of hosts; also write, open connections, and notice those that ended."""
        if time.monotonic() - self._pinged > PING_S:
            self._pinged = time.monotonic()
            self.send({"do": "ping"})
        found: list[tuple[str, dict[str, Any]]] = []
        if not self._selector.get_map():
            time.sleep(min(wait_s, 0.05))
        for key, _ in self._selector.select(min(wait_s, PING_S / 2)) if self._selector.get_map() else ():
            name, stream = key.data
            one = self._live.get(name)
            if one is None:
                continue
            if stream == "in":
                self._write(one)
            else:
                found += self._read(one, stream, key.fd)
        self._open_more()
        return found

    # ---- connections

    def _open_more(self) -> None:
        opening = sum(not one.greeted for one in self._live.values())
        while self._waiting and opening < _AT_ONCE:
            self._open(self._waiting.pop(0))
            opening += 1

    def _open(self, host: Host) -> None:
        said = payload.message(name=host.name, folder=self._folder, wanted=host.interpreter)
        first = ssh.opening(host.interpreter, payload.program(), said)
        try:
            process = child_process.start(
                ssh.command(host),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                at_our_end=signal.SIGTERM,
            )
        except OSError as error:
            raise MgpuError(f"cannot start ssh: {reason(error)}", CANNOT_RUN) from None
        one = _Connection(host, process, bytearray("".join(first).encode() + b"".join(self._sent)))
        self._live[host.name], self._said[host.name] = one, one.stderr
        self._tries[host.name] = self._tries.get(host.name, 0) + 1
        for name, stream in (("out", process.stdout), ("err", process.stderr)):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream.fileno(), selectors.EVENT_READ, (host.name, name))
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        self._selector.register(process.stdin.fileno(), selectors.EVENT_WRITE, (host.name, "in"))

    def _queue(self, one: _Connection, data: bytes) -> None:
        assert one.process.stdin is not None
        if one.process.stdin.closed:
            return
        if not one.pending:
            self._selector.register(one.process.stdin.fileno(), selectors.EVENT_WRITE, (one.host.name, "in"))
        one.pending += data

    def _write(self, one: _Connection) -> None:
        assert one.process.stdin is not None
        number = one.process.stdin.fileno()
        try:
            del one.pending[: os.write(number, one.pending[:_CHUNK])]
        except BlockingIOError:
            return
        except OSError:  # the program ended, which its stdout will show
            one.pending.clear()
            self._shut_stdin(one)
            return
        if not one.pending:
            self._selector.unregister(number)

    def _shut_stdin(self, one: _Connection) -> None:
        assert one.process.stdin is not None
        if not one.process.stdin.closed:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(one.process.stdin.fileno())
            with contextlib.suppress(OSError):
                one.process.stdin.close()

    def _read(self, one: _Connection, stream: str, number: int) -> list[tuple[str, dict[str, Any]]]:
        try:
            data = os.read(number, _CHUNK)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(number)
            one.open.discard(stream)
            # A connection that the user's ssh keeps in the background may hold stderr open: only stdout counts.
            if stream == "out":
                self._ended(one)
            return []
        *lines, rest = (one.partial[stream] + data).split(b"\n")
        one.partial[stream] = rest if len(rest) <= _LONGEST else b""
        texts = [line.decode("utf-8", "replace").rstrip("\r") for line in lines]
        if stream == "err":
            for text in texts:
                address = ssh_errors.remark(text)
                one.reached_at = address or one.reached_at
                one.stderr += [text] if address is None else []
            del one.stderr[:-KEPT_LINES]
            return []
        return [found for text in texts if (found := self._take(one, text)) is not None]

    def _take(self, one: _Connection, line: str) -> tuple[str, dict[str, Any]] | None:
        message = one.reader.take(line)
        if not isinstance(message, dict):
            if message is None and not framing.is_piece(line) and line.strip() and len(one.noise) < KEPT_LINES:
                one.noise.append(line)
            return None
        name = one.host.name
        if not one.greeted:
            one.greeted = True
            self._greeted(name, message)
            self.access[name] = HostAccess(
                name,
                one.host.destination,
                port=one.host.port,
                local=one.host.local,
                python=str(message.get("python", "")),
                python_wanted=one.host.interpreter,
                folder_error=message.get("folder_error"),
                folder_writable=message.get("folder_writable"),
                environment=str(message.get("environment", "")),
                reached_at=one.reached_at,
                served_at=_served_at(str(message.get("connection", ""))),
                noise=tuple(one.noise[:3]),
            )
            return None
        return name, message

    def _ended(self, one: _Connection) -> None:
        """Handle the end of a connection."""
        name = one.host.name
        self._drain(one)
        code = _wait(one.process)
        self._shut_stdin(one)
        self._live.pop(name, None)
        child_process.end(one.process)
        text = "\n".join(one.stderr)
        kind = ssh_errors.kind_of("\n".join((text, *one.noise)), code)  # nologin prints to stdout
        if not one.greeted and kind == ssh_errors.BUSY and self._tries[name] <= _AGAIN:
            self._waiting.append(one.host)
            return
        why = ssh_errors.reason(text or "\n".join(one.noise), code)
        if one.greeted:
            kind = ssh_errors.LOST
            self.lost.setdefault(name, f"the connection ended: {why}")
        else:
            self.lost.setdefault(name, why)
            said = tuple((one.noise or one.stderr)[-3:])
            locked = ssh_keys.locked_key(one.host) if kind == ssh_errors.KEY else ""
            kind = ssh_errors.AGENT if locked else kind
            self.access[name] = HostAccess(
                name,
                one.host.destination,
                port=one.host.port,
                local=one.host.local,
                problem=kind,
                said=why,
                noise=said,
                locked_key=locked,
            )

    def _drain(self, one: _Connection) -> None:
        """Read what is left of stderr: it has the reason."""
        assert one.process.stderr is not None
        end = time.monotonic() + 0.5
        while "err" in one.open and time.monotonic() < end:
            self._read(one, "err", one.process.stderr.fileno())
            time.sleep(0.005)
        if one.partial["err"]:
            one.stderr.append(one.partial["err"].decode("utf-8", "replace"))


def _wait(process: child_process.Program) -> int | None:
    """Return the exit code of a program whose stdout is closed; None if it does not exit."""
    try:
        return process.wait(2.0)
    except subprocess.TimeoutExpired:
        return None


def _served_at(connection: str) -> str:
    """Return the server's address in $SSH_CONNECTION: client, its port, server, its port."""
    words = connection.split()
    return words[2].partition("%")[0] if len(words) == 4 else ""
