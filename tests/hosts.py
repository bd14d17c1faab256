"""Several hosts on this machine: each a network namespace with a name and an /etc/hosts of its own, on one bridge; and
a real Slurm over such hosts.

Needs root. A host lives as long as the process that holds its namespaces, and that ends with the tests.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.conftest import environment, missing, need
from tests.slurm import COMMON, ENDED

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

    def router(self, inside: str, own: str, outside: str, forwarded: str, target: str) -> None:
        """Let the switch translate addresses: `own` on its port `inside`, `outside` on the bridge."""
        need("iptables")
        address, _, port = forwarded.partition(":")
        self._inside("switch", "ip", "addr", "add", own, "dev", inside)
        self._inside("switch", "ip", "addr", "add", outside, "dev", "bridge0")
        self._inside("switch", "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        forward = ("-d", address, "-p", "tcp", "--dport", port, "-j", "DNAT", "--to-destination", target)
        self._inside("switch", "iptables", "-t", "nat", "-A", "PREROUTING", *forward)

    def second_network(self) -> None:
        """One more interface on every host, eth1 with 10.201.0.N, on a bridge of its own."""
        switch = self._holders["switch"].pid
        self._inside("switch", "ip", "link", "add", "bridge1", "type", "bridge")
        self._inside("switch", "ip", "link", "set", "bridge1", "up")
        for number, name in enumerate(self.names, 1):
            _run("ip", "link", "add", "eth1", "netns", str(self._holders[name].pid), "type", "veth", "peer",
                 f"second{number}", "netns", str(switch))  # fmt: skip
            self._inside("switch", "ip", "link", "set", f"second{number}", "master", "bridge1", "up")
            self._inside(name, "ip", "addr", "add", f"10.201.0.{number}/24", "dev", "eth1")
            self._inside(name, "ip", "link", "set", "eth1", "up")

    def link(self, host: str, *setting: str) -> None:
        """`ip link set SETTING` on a host, or on the "switch", whose port to nN is called portN, and secondN."""
        self._inside(host, "ip", "link", "set", *setting)

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


_CONF = f"""\
ClusterName=hosts
SlurmctldHost=n1(10.200.0.1)
{COMMON}TaskPlugin=task/none
SrunPortRange={{first}}-{{last}}
"""
_START_S, _GONE_S = 20.0, 10.0
_SLURM_PORTS = (61000, 61499)  # above those the system chooses from: 32768-60999
_OF_SLURM = f"6817,6818,{_SLURM_PORTS[0]}:{_SLURM_PORTS[1]}"


class SlurmHosts(Network):
    """Hosts that are the nodes of a Slurm: the controller on n1, a slurmd on each. Clients run on n1."""

    def __init__(self, folder: Path, count: int = 3) -> None:
        super().__init__(folder, count)
        self._programs = {name: need(name) for name in ("slurmctld", "slurmd", "srun", "sinfo", "scancel")}
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.conf = folder / "slurm.conf"

    def __enter__(self) -> SlurmHosts:
        super().__enter__()
        conf = _CONF.format(folder=self.folder, first=_SLURM_PORTS[0], last=_SLURM_PORTS[1])
        for number, name in enumerate(self.names, 1):
            (self.folder / "spool" / name).mkdir(parents=True)
            conf += f"NodeName={name} NodeAddr=10.200.0.{number} CPUs=4 CoresPerSocket=4 RealMemory=4000\n"
        conf += f"PartitionName=hosts Nodes={','.join(self.names)} Default=YES MaxTime=01:00:00 State=UP\n"
        (self.folder / "state").mkdir()
        (self.folder / "plugstack.conf").touch()
        self.conf.write_text(conf)
        try:
            self._up()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._daemons:
            self.ask("scancel", "--user=root", "--full", timeout=30)
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(3)
        super().__exit__(kind, error, trace)  # whatever is left on the hosts ends there
        for daemon in self._daemons:
            daemon.wait(5)

    def ask(
        self, *command: str, host: str = "n1", env: Mapping[str, str] | None = None, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """A command on a host, with this cluster as the one that Slurm's clients talk to."""
        home = self.folder / host
        return subprocess.run(
            self._entering(host, command), env=self._environment(home, env), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", timeout=timeout, check=False,
        )  # fmt: skip

    def ended(self, script: str, timeout: float = 120) -> dict[str, str]:
        """Submit a job script that lies in the home of n1, and wait for its end: what Slurm says of it."""
        sent = self.ask("sbatch", "--parsable", script)
        assert sent.returncode == 0, sent.stderr
        end = time.monotonic() + timeout
        while True:
            told = self.ask("scontrol", "-o", "show", "job", sent.stdout.strip()).stdout
            job = dict(word.split("=", 1) for word in told.split() if "=" in word)
            if job["JobState"] in ENDED:
                return job
            assert time.monotonic() < end, told
            time.sleep(0.1)

    def at_work(self) -> dict[str, list[str]]:
        """Host -> names of its processes that are none of Slurm's daemons, once a job has had time to end."""
        end = time.monotonic() + _GONE_S
        while True:
            found = {name: [comm for pid in self.left(name) if (comm := _comm(pid))] for name in self.names}
            busy = {name: comms for name, comms in found.items() if comms}
            if not busy or time.monotonic() > end:
                return busy
            time.sleep(0.1)

    @contextlib.contextmanager
    def dropping(self, *hosts: str, but: str = "", target: str = "DROP") -> Iterator[None]:
        """While it lasts, no new connection comes in on these hosts, but for Slurm's own and the ports named `but`."""
        ports = ",".join(filter(None, (_OF_SLURM, but)))
        rule = ("INPUT", "-i", "eth0", "-p", "tcp", "--syn", "-m", "multiport", "!", "--dports", ports, "-j", target)
        for host in hosts:
            self.firewall(host, "-A", *rule)
        try:
            yield
        finally:
            for host in hosts:
                self.firewall(host, "-D", *rule)

    @contextlib.contextmanager
    def knowing(self, *hosts: str, **others: str) -> Iterator[None]:
        """While it lasts, these hosts resolve some names to other addresses."""
        for host in hosts:
            self.knows(host, **others)
        try:
            yield
        finally:
            for host in hosts:
                self.knows(host)

    def _environment(self, home: Path, added: Mapping[str, str] | None = None) -> dict[str, str]:
        return environment(home, {"SLURM_CONF": str(self.conf), **(added or {})})

    def _up(self) -> None:
        self._daemon("n1", self._programs["slurmctld"], "-D", "-i", "-f", str(self.conf))
        for name in self.names:
            self._daemon(name, self._programs["slurmd"], "-D", "-N", name, "-f", str(self.conf))
        end = time.monotonic() + _START_S
        while self.ask("sinfo", "-h", "-t", "idle", "-o", "%D").stdout.strip() != str(len(self.names)):
            if time.monotonic() > end:
                missing("Slurm over hosts does not come up here: "
                        + "".join(path.read_text()[-600:] for path in self.folder.glob("*.log")))  # fmt: skip
            time.sleep(0.05)

    def _daemon(self, host: str, *command: str) -> None:
        with open(self.folder / f"{host}.{Path(command[0]).name}.log", "wb") as log:
            self._daemons.append(
                subprocess.Popen(
                    self._entering(host, command), env=self._environment(self.folder / host),
                    stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                )
            )  # fmt: skip


def _comm(pid: int) -> str | None:
    """The name of a process; None: it is one of Slurm's daemons, or gone."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return None
    return None if name in ("slurmctld", "slurmd", "slurmscriptd") or name.startswith("slurmctld") else name


def _run(*command: str) -> None:
    done: Any = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
