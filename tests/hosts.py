"""Several hosts on this machine: each a network namespace with a name and an /etc/hosts of its own, on one bridge.

Needs root. A host lives as long as the process that holds its namespaces, and that ends with the tests.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.conftest import environment, missing, need

_HOLD = """\
mount --bind "$1" /etc/hosts
hostname "$2"
ip link set lo up
echo ready
exec setpriv --pdeathsig KILL sleep infinity
"""


class Network:
    """Hosts n1, n2 … with the addresses 10.200.0.1, .2 …, which all know each other's name."""

    def __init__(self, folder: Path, count: int = 2) -> None:
        if os.geteuid() != 0:
            missing("network namespaces need root")
        for tool in ("unshare", "nsenter", "setpriv", "ip", "mount", "hostname"):
            need(tool)
        self.folder = folder
        self.names = [f"n{number}" for number in range(1, count + 1)]
        self._holders: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Network:
        for name in ("switch", *self.names):
            home = self.folder / name
            home.mkdir(parents=True)
            self.knows(name)
            self._hold(name)
        switch = self._holders["switch"].pid
        self._inside("switch", "ip", "link", "add", "bridge0", "type", "bridge")
        self._inside("switch", "ip", "link", "set", "bridge0", "up")
        for number, name in enumerate(self.names, 1):
            pid = self._holders[name].pid
            _run("ip", "link", "add", "eth0", "netns", str(pid), "type", "veth", "peer", f"port{number}", "netns",
                 str(switch))  # fmt: skip
            self._inside("switch", "ip", "link", "set", f"port{number}", "master", "bridge0", "up")
            self._inside(name, "ip", "addr", "add", f"10.200.0.{number}/24", "dev", "eth0")
            self._inside(name, "ip", "link", "set", "eth0", "up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in self.names:
            for pid in self.left(name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for holder in self._holders.values():
            holder.kill()
            holder.communicate()

    def knows(self, name: str, **others: str) -> None:
        """Write a host's /etc/hosts; `others` are addresses that differ: n1="127.0.1.1"."""
        known = {one: f"10.200.0.{number}" for number, one in enumerate(self.names, 1)} | others
        lines = ["127.0.0.1 localhost", *(f"{address} {one}" for one, address in known.items())]
        (self.folder / f"{name}.hosts").write_text("\n".join(lines) + "\n")  # in place: it is mounted

    def firewall(self, name: str, *rule: str) -> None:
        """A rule of iptables on a host: "-A", "INPUT", …"""
        need("iptables")
        self._inside(name, "iptables", *rule)

    def start(self, name: str, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """`python -m mgpu ARGUMENTS` on a host, in a folder of its own that is its home too."""
        home = self.folder / name
        command = [sys.executable, "-m", "mgpu", *arguments]
        return subprocess.Popen(
            self._entering(name, command), cwd=home, env=environment(home, env), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        )  # fmt: skip

    def left(self, name: str) -> list[int]:
        """Processes on a host, except the one that holds it."""
        holder = self._holders[name].pid
        here = os.readlink(f"/proc/{holder}/ns/net")
        found = []
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            with contextlib.suppress(OSError):
                if pid != holder and os.readlink(f"/proc/{pid}/ns/net") == here:
                    found.append(pid)
        return found

    def _hold(self, name: str) -> None:
        unshare = ["unshare", "-n", "-m", "-u", "--propagation", "private"]
        holder = subprocess.Popen(
            [*unshare, "sh", "-ec", _HOLD, "sh", str(self.folder / f"{name}.hosts"), name],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._holders[name] = holder
        assert holder.stdout is not None and holder.stderr is not None
        if holder.stdout.readline().strip() != "ready":
            missing(f"network namespaces are not allowed here: {holder.stderr.read().strip()}")

    def _entering(self, name: str, command: Sequence[str]) -> list[str]:
        """The folder is entered after the namespace: the same folder in the old one is on another mount."""
        inside = ["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", str(self.folder / name)]
        return ["nsenter", "-t", str(self._holders[name].pid), "-n", "-m", "-u", *inside, *command]

    def _inside(self, name: str, *command: str) -> None:
        _run(*self._entering(name, command))


def _run(*command: str) -> None:
    done: Any = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
