"""Does `mgpu doctor --hosts` name each planted fault on the right host, and leave nothing running?

Real ssh servers on hosts of namespaces. Every host of a bed has another fault, so that one command finds all of them.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mgpu import errors
from mgpu.fleet import hosts_doctor, ssh_workers, stages
from mgpu.hostlist import fold
from tests.ssh_host import HOME, SshHost
from tests.ssh_hosts import SshHosts

_WHOLE_S = 240.0  # for one command on a busy machine; mgpu's own limit is shorter
_SUDO = "sudo: a password is required"  # sudo 1.9, without a terminal
_STOP_S = 90.0  # the longest time that anything may stay on a host of a busy machine
_GIT = ("git", "-c", "user.name=trainer", "-c", "user.email=trainer@example.org")


@dataclass(frozen=True)
class Fault:
    """How a host is spoiled, and the check that names it; "" if mgpu must work there."""

    plant: Callable[[SshHost], object]
    check: str
    said: str = ""  # a part of the title


@dataclass(frozen=True)
class Seen:
    """What one command reported."""

    code: int
    document: dict[str, Any]

    def of(self, host: str) -> dict[str, str]:
        """Check -> title, of all findings that name a host."""
        return {
            one["id"]: one["title"]
            for one in self.document["checks"]
            if one["status"] in ("fail", "warn", "info") and host in one["subjects"]
        }

    def whole(self) -> list[tuple[str, str, str]]:
        """All findings, for the message of an assertion."""
        return [
            (one["status"], one["id"], one["title"])
            for one in self.document["checks"]
            if one["status"] not in ("ok", "skip")
        ]


def doctor(hosts: SshHosts, named: str, *options: str, env: dict[str, str] | None = None) -> Seen:
    """`mgpu doctor --hosts NAMED --json` on the head, after which nothing is left on any host."""
    before = {pid for name in hosts.names for pid in hosts[name].left()}  # of a fault: a held connection
    process = hosts.start("head", "doctor", "--hosts", named, "--json", *options, env=env)
    out, err = process.communicate(timeout=_WHOLE_S)
    assert out, err
    _nothing_new(hosts, before)
    return Seen(process.returncode, json.loads(out))


def _nothing_new(hosts: SshHosts, before: set[int]) -> None:
    """Wait until nothing is left on any host but what was there before."""
    end = time.monotonic() + _STOP_S
    while True:
        left = {
            name: new
            for name in hosts.names
            if (new := {pid: words for pid, words in hosts[name].left().items() if pid not in before})
        }
        if not left:
            return
        assert time.monotonic() < end, left
        time.sleep(0.1)


def names_each_fault(seen: Seen, faults: dict[str, Fault], nodes: list[str]) -> None:
    """Each fault is reported on its host, and a host without one is not named.

    Except for a slow link: all the hosts share this machine's cores, which other tests need too.
    """
    wrong = {}
    for (title, fault), host in zip(faults.items(), nodes, strict=False):
        found = seen.of(host)
        if fault.check != "node_link_slow":
            found.pop("node_link_slow", None)
        if (fault.check and fault.said not in found.get(fault.check, "\0")) or (not fault.check and found):
            wrong[title] = (host, fault, found)
    assert not wrong, (wrong, seen.whole())


def _occupied(host: SshHost) -> None:
    """A server that accepts one connection that has not logged in, and there is one: from the host itself."""
    host.configure("MaxStartups 1:100:1")
    host.root("bash", "-c", f"exec 3<>/dev/tcp/{host.name}/22; read -u 3; (exec -a held sleep 300) >/dev/null 2>&1 &")


def _no_python(host: SshHost) -> None:
    host.python(None)
    host.profile("export PATH=/nowhere\n")


def _no_agent(host: SshHost) -> None:
    """Only a key that needs its passphrase opens this host."""
    head, key = host.bed.head, f"{HOME}/.ssh/locked"
    made = head.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", key)
    assert made.returncode == 0, made.stderr
    host.write(".ssh/authorized_keys", (head.home / ".ssh" / "locked.pub").read_text())
    head.ssh_config(f"Host {host.name}\n    IdentityFile {key}\n    IdentitiesOnly yes\n    IdentityAgent none\n")
    config = head.home / ".ssh" / "config"
    config.write_text(config.read_text().replace("Host n* m*", f"Host !{host.name} n* m*"))


def _full(*places: str) -> Callable[[SshHost], None]:
    def fill(host: SshHost) -> None:
        for place in places:
            host.disk(place, "64k")

    return fill


def _behind_closed(host: SshHost) -> None:
    """The jump host, the last one, forwards nothing."""
    jump = host.bed[host.bed.nodes[-1]]
    jump.configure("AllowTcpForwarding no")
    host.only_through(jump.name)


NOT_REACHED = {
    "well": Fault(lambda host: None, ""),
    "key refused": Fault(SshHost.refuse_key, "ssh_key_refused"),
    "host key changed": Fault(SshHost.new_host_key, "ssh_host_key_changed"),
    "host key unknown": Fault(lambda host: host.bed.head.forget(host.name), "ssh_host_key_unknown"),
    "server stopped": Fault(SshHost.stop_sshd, "ssh_unreachable", "Connection refused"),
    "server does not answer": Fault(SshHost.freeze_sshd, "ssh_unreachable", "banner exchange"),
    "host down": Fault(SshHost.down, "ssh_unreachable"),
    "no login": Fault(lambda host: host.login_shell("/usr/sbin/nologin"), "ssh_refused_by_host", "not available"),
    "forced command": Fault(lambda host: host.configure("ForceCommand internal-sftp"), "ssh_refused_by_host", "sftp"),
    "profile that exits": Fault(lambda host: host.profile("exit 3\n"), "ssh_refused_by_host"),
    "server is full": Fault(_occupied, "ssh_sessions_exhausted"),
    "no sessions": Fault(lambda host: host.configure("MaxSessions 0"), "ssh_sessions_exhausted"),
    "old server": Fault(
        lambda host: host.configure("KexAlgorithms diffie-hellman-group1-sha1"),
        "ssh_configuration_invalid",
        "negotiate",
    ),
    "no agent": Fault(_no_agent, "ssh_agent_missing", "needs its passphrase"),
    "sudo at login": Fault(
        lambda host: host.configure(f"ForceCommand echo '{_SUDO}' >&2; exit 1"), "ssh_sudo_required", "password is"
    ),
    "no Python": Fault(_no_python, "ssh_no_python"),
    "full everywhere": Fault(_full("/tmp", "/var/tmp", "/dev/shm"), "ssh_no_space", "No space left on device"),
    "jump host refuses": Fault(_behind_closed, "ssh_jump_host_failed", "stdio forwarding failed"),
}
_HOLDS = """\
import socket, sys, time
held = [socket.create_server(("", int(port))) for port in sys.argv[1:]]
print("held", flush=True)
time.sleep(600)
"""
_UNKNOWN = "n77"  # a name that nothing knows


def test_hosts_that_ssh_does_not_reach(tmp_path: Path) -> None:
    with SshHosts(tmp_path / "hosts", len(NOT_REACHED) + 1) as hosts:
        for (_, fault), name in zip(NOT_REACHED.items(), hosts.nodes, strict=False):
            fault.plant(hosts[name])
        seen = doctor(hosts, f"{fold(hosts.nodes)},{_UNKNOWN}")
        assert seen.code == errors.NOT_READY
        names_each_fault(seen, NOT_REACHED, hosts.nodes)
        assert seen.of(_UNKNOWN).keys() == {"ssh_name_unknown"}
        assert not seen.of(hosts.nodes[-1]), "the jump host itself works"
        hosts.head.ssh_config("NoSuchOption yes\n")
        broken = doctor(hosts, "n[1-2]")
        assert [*broken.of("n1")] == [*broken.of("n2")] == ["ssh_configuration_invalid"], broken.whole()


def _commit(host: SshHost, *command: str) -> None:
    done = host.run(*_GIT, *command)
    assert done.returncode == 0, done.stderr


def _other_commit(host: SshHost) -> None:
    host.write("project/train.py", "print(2)\n")
    _commit(host, "commit", "-q", "-a", "-m", "second")


def _other_torch(host: SshHost) -> None:
    found = importlib.util.find_spec("torch")  # not imported: it would stay in the process of the tests
    assert found is not None and found.origin is not None
    version = Path(found.origin).with_name("version.py")
    text = version.read_text().replace(importlib.metadata.version("torch"), "2.1.0+cpu")
    assert "2.1.0+cpu" in text
    host.replace(str(version), text)


def _closed_folder(host: SshHost) -> None:
    """The project belongs to another user, who lets no one in."""
    os.chown(host.project, 0, 0)
    host.project.chmod(0o700)


def _read_only(host: SshHost) -> None:
    """The project belongs to another user, who lets others read."""
    os.chown(host.project, 0, 0)
    host.project.chmod(0o755)


def _ranks_left(host: SshHost) -> None:
    """A rank whose launcher was killed."""
    orphan = f"({sys.executable} -c 'import time; time.sleep(600)' & ) >/dev/null 2>&1"
    assert (
        host.run("sh", "-c", orphan, env={"RANK": "0", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "x"}).returncode
        == 0
    )


def _venv_elsewhere(host: SshHost) -> None:
    """Its environment is in the project folder, and there is none at the path of here."""
    host.python(None)
    host.write("project/.venv/bin/python", "#!/bin/sh\n").chmod(0o755)
    host.write("project/.venv/lib/python3.11/site-packages/torch/__init__.py", "")


def _ports_taken(host: SshHost) -> None:
    """Ranks of an earlier run hold every port that mgpu would choose for the rendezvous."""
    holder = host.popen(sys.executable, "-c", _HOLDS, *map(str, stages.some_ports(hosts_doctor.FIRST_PORT)))
    assert holder.stdout is not None and holder.stdout.readline()


EXAMINED = {
    "port taken": Fault(_ports_taken, "head_port_taken"),
    "other Python": Fault(lambda host: host.python(None), "ssh_other_python"),
    "other environment": Fault(_venv_elsewhere, "ssh_other_python"),
    "other torch": Fault(_other_torch, "fleet_torch_differs"),
    "other commit": Fault(_other_commit, "fleet_script_differs", "commit"),
    "uncommitted change": Fault(
        lambda host: host.write("project/train.py", "3\n"), "fleet_script_differs", "uncommitt"
    ),
    "data missing": Fault(lambda host: (host.project / "data" / "a").unlink(), "fleet_script_differs", "data"),
    "folder missing": Fault(lambda host: host.project.rename(host.home / "moved"), "ssh_no_folder", "No such file"),
    "folder not writable": Fault(_read_only, "ssh_folder_not_writable"),
    "ranks left": Fault(_ranks_left, "node_ranks_left", "1 rank of an earlier run"),
    "folder not readable": Fault(_closed_folder, "ssh_no_folder", "Permission denied"),
    "clock": Fault(lambda host: host.clock(-400), "fleet_clock_far_off"),
    "small /dev/shm": Fault(lambda host: host.small_shm("64M"), "fleet_shm_differs"),
    "full /tmp": Fault(_full("/tmp"), "fleet_storage_differs"),
    "noisy profile": Fault(lambda host: host.profile("echo Welcome\n"), "ssh_noisy", "Welcome"),
    "fish": Fault(lambda host: host.login_shell("fish"), ""),
    "tcsh": Fault(lambda host: host.login_shell("tcsh"), ""),
}


def test_hosts_that_differ(tmp_path: Path) -> None:
    with SshHosts(tmp_path / "hosts", len(EXAMINED)) as hosts:
        hosts.head.write("project/train.py", "print(1)\n")
        hosts.head.write("project/data/a", "1\n")
        for command in (("init", "-q"), ("add", "train.py"), ("commit", "-q", "-m", "first")):
            _commit(hosts.head, *command)
        hosts.copy_project()
        for (_, fault), name in zip(EXAMINED.items(), hosts.nodes, strict=True):
            fault.plant(hosts[name])
        seen = doctor(hosts, fold(hosts.nodes), "--path", "data")
        assert seen.code == errors.NOT_READY
        names_each_fault(seen, EXAMINED, hosts.nodes)
        # The environment that was found there is in the command.
        elsewhere = next(one for one in seen.document["checks"] if one["id"] == "ssh_other_python" and one["title"])
        assert "/.venv/bin/python" in json.dumps(elsewhere["fix"]), elsewhere


def _ports_closed(host: SshHost) -> None:
    host.bed.firewall(host.name, "-A", "INPUT", "-i", "eth0", "-p", "tcp", "--syn", "!", "--dport", "22", "-j", "DROP")


def _behind_nat(host: SshHost) -> None:
    """A router has the host's address, and forwards only ssh to the host, which has another one behind it."""
    bed, port = host.bed, f"port{host.bed.names.index(host.name) + 1}"
    for command in (("addr", "flush", "dev", "eth0"), ("addr", "add", "10.77.0.2/24", "dev", "eth0"),
                    ("route", "add", "default", "via", "10.77.0.1")):  # fmt: skip
        host.root("ip", *command)
    bed.link("switch", port, "nomaster")
    bed.router(port, "10.77.0.1/24", f"{host.address}/24", f"{host.address}:22", "10.77.0.2:22")


def _only_ipv6(host: SshHost) -> None:
    """No IPv4 address; the head knows it by its IPv6 address."""
    for device in ("eth0", "eth1"):
        host.root("ip", "-4", "addr", "flush", "dev", device)
    host.root("ip", "-6", "addr", "add", "fd00:200::7/64", "dev", "eth0", "nodad")
    host.bed.head.root("ip", "-6", "addr", "replace", "fd00:200::99/64", "dev", "eth0", "nodad")
    host.bed.knows("head", **{host.name: "fd00:200::7"})


NETWORK = {
    "well": Fault(lambda host: None, ""),
    "ports closed": Fault(_ports_closed, "node_unreachable"),
    "own name is loopback": Fault(
        lambda host: host.bed.knows(host.name, **{host.name: "127.0.1.1"}), "node_tells_loopback"
    ),
    "interface leads nowhere": Fault(
        lambda host: host.bed.link("switch", "second4", "nomaster"), "node_interface_isolated"
    ),
    "large packets lost": Fault(
        lambda host: host.bed.link("switch", "second5", "mtu", "1400"), "node_loses_full_packets"
    ),
    "slow link": Fault(lambda host: host.slow("20mbit"), "node_link_slow"),
    "behind a router": Fault(_behind_nat, "node_behind_nat", "own address is 10.77.0.2"),
    "only IPv6": Fault(_only_ipv6, "node_without_ipv4", "only IPv6 addresses, others"),
}


def test_hosts_that_do_not_reach_each_other(tmp_path: Path) -> None:
    with SshHosts(tmp_path / "hosts", len(NETWORK)) as hosts:
        hosts.second_network()
        for (_, fault), name in zip(NETWORK.items(), hosts.nodes, strict=True):
            fault.plant(hosts[name])
        seen = doctor(hosts, fold(hosts.nodes))
        assert seen.code == errors.NOT_READY
        names_each_fault(seen, NETWORK, hosts.nodes)


def test_many_hosts(tmp_path: Path) -> None:
    """More than connect at once. All answer, are compared, and reach each other: 552 connections a network, from one
    command. With MGPU_HOSTS=64: 4032."""
    many = int(os.environ.get("MGPU_HOSTS", "24"))
    assert many > 2 * ssh_workers._AT_ONCE
    with SshHosts(tmp_path / "hosts", 1) as hosts:
        hosts.many(many)
        seen = doctor(hosts, f"m[1-{many}]")
        titles = {one["id"]: one["title"] for one in seen.document["checks"] if one["status"] == "ok"}
        assert titles["ssh_unreachable"] == f"every host answers ({many} hosts)", seen.whole()
        assert (seen.document["fleet"]["nodes"], seen.document["fleet"]["count"]) == (f"m[1-{many}]", many)
        assert seen.code == errors.READY, seen.whole()
