"""checks/fleet/ssh.py: what is said of hosts that cannot be reached with ssh, or that lack the project"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mgpu.snapshot import Fleet, HostAccess, NodeAddresses, NodeFault, NodePath
from mgpu.snapshot.networking import Interface
from tests.checks.facts import NODES, Case, fails, fleet, informs, problem, skips, table, warns, well

PYTHON = "/home/me/env/bin/python"


def reached(node: str, **changes: Any) -> HostAccess:
    return HostAccess(
        **{"node": node, "destination": f"me@{node}", "python": PYTHON, "python_wanted": PYTHON, **changes}
    )


def hosts(**of_n2: Any) -> Fleet:
    """Four hosts, of which the second one has a problem."""
    access = tuple(reached(node, **(of_n2 if node == "n2" else {})) for node in NODES)
    missing = {"n2": str(of_n2.get("said", ""))} if of_n2.get("problem") else {}
    return fleet(access=access, missing=missing)


def unreached(problem: str, said: str, **more: Any) -> Fleet:
    return hosts(problem=problem, said=said, python="", python_wanted="", **more)


NAME = unreached("no_name", "ssh: Could not resolve hostname n2: Name or service not known")
DOWN = unreached("down", "ssh: connect to host n2 port 22: No route to host")
CLOSED = unreached("closed", "ssh: connect to host n2 port 22: Connection refused")
KEY = unreached("key", "me@n2: Permission denied (publickey).")
AGENT = unreached("key", "sign_and_send_pubkey: signing failed for ED25519 from agent: agent refused operation")
CHANGED = unreached("host_key_changed", "Host key verification failed.")
CHANGED_PORT = unreached("host_key_changed", "Host key verification failed.", port=2222)
NEW = unreached("host_key_new", "No ED25519 host key is known for n2 and you have requested strict checking.")
CONFIG = unreached("config", "/home/me/.ssh/config: line 3: Bad configuration option: foo")
ACCOUNT = unreached("account", "account expired")
BUSY = unreached("busy", "kex_exchange_identification: Connection closed by remote host")
JUMP = unreached("jump", "stdio forwarding failed")
LOCKED = unreached("agent", "me@n2: Permission denied (publickey).", locked_key="/home/me/.ssh/id_ed25519")
SUDO = unreached("sudo", "sudo: a password is required")
NO_PYTHON = unreached("no_python", "mgpu: no Python here")
FULL = unreached("full", "mgpu: no folder for temporary files: /dev/shm: No space left on device")
WIFI = Interface("wlan0", True, False, ("10.0.0.2",), False, kind="wireless", running=True, routable=True)
CABLE = Interface("eth0", True, False, ("10.1.0.2",), False, kind="physical", running=True, routable=True)
REACHED_NAT = {"reached_at": "10.0.0.2", "served_at": "192.168.1.5"}


def networked(access: dict[str, str], *, connected: bool = True, of_n2: tuple[Interface, ...] = ()) -> Fleet:
    """Four hosts with a cable each; `connected`: whether the others reach n2."""
    doors = tuple(
        NodeAddresses(node, node, address=cards[0].addresses[-1], interfaces=cards)
        for node in NODES
        for cards in [of_n2 if of_n2 and node == "n2" else (replace(CABLE, addresses=(f"10.1.0.{node[1:]}",)),)]
    )
    paths = tuple(
        NodePath(one.node, other.node, other.interfaces[0].name, tried=(other.address,),
                 connected=connected or other.node != "n2")
        for one in doors
        for other in doors
        if one is not other
    )  # fmt: skip
    return replace(hosts(**access), doors=doors, paths=paths)


LOST = fleet(
    access=tuple(map(reached, NODES)), missing={"n2": "the connection ended: Timeout, server n2 not responding."}
)
CASES = (
    fails("ssh_name_unknown", "n2: this name cannot be resolved", "getent hosts n2", fleet=NAME),
    well("ssh_name_unknown", "every name is known (4 hosts)", fleet=hosts()),
    skips("ssh_name_unknown", "the nodes are not hosts of --hosts"),
    fails("ssh_unreachable", "n2: connect to host n2 port 22: No route to host", "ping -c 3 n2", fleet=DOWN),
    fails("ssh_unreachable", "n2: connect to host n2 port 22: Connection refused", "systemctl start ssh", fleet=CLOSED),
    well("ssh_unreachable", "every host answers (4 hosts)", fleet=hosts()),
    fails("ssh_key_refused", "n2: your key is not accepted", "ssh-copy-id me@n2", fleet=KEY),
    fails("ssh_key_refused", "n2: your key is not accepted", "ssh-add", fleet=AGENT),
    well("ssh_key_refused", "every host accepts your key", fleet=hosts()),
    fails("ssh_host_key_changed", "n2: its host key has changed", "ssh-keygen -R n2", fleet=CHANGED),
    fails("ssh_host_key_changed", "n2: its host key has changed", "ssh-keygen -R '[n2]:2222'", fleet=CHANGED_PORT),
    well("ssh_host_key_changed", "every host key is the known one", fleet=hosts()),
    fails("ssh_host_key_unknown", "n2: its host key is not known here yet", "ssh me@n2", fleet=NEW),
    well("ssh_host_key_unknown", "every host key is known", fleet=hosts()),
    fails("ssh_configuration_invalid", "n2: /home/me/.ssh/config: line 3: Bad conf", "ssh -v me@n2", fleet=CONFIG),
    well("ssh_configuration_invalid", "your ssh configuration works", fleet=hosts()),
    fails("ssh_refused_by_host", "n2: ssh did not start a command: account", "ssh me@n2 true", fleet=ACCOUNT),
    well("ssh_refused_by_host", "every host runs commands", fleet=hosts()),
    fails("ssh_connection_lost", "n2: the connection ended: Timeout, server n2 not", "ssh me@n2 uptime", fleet=LOST),
    well("ssh_connection_lost", "the connections lasted (4 hosts)", fleet=hosts()),
    fails("ssh_no_python", "n2: no Python here", "ssh me@n2 command -v python3", fleet=NO_PYTHON),
    well("ssh_no_python", "every host has a Python", fleet=hosts()),
    fails("ssh_no_space", "n2: no folder for temporary files: /dev/shm: No space", "df -h /tmp", fleet=FULL),
    well("ssh_no_space", "every host has space for temporary files", fleet=hosts()),
    fails("ssh_other_python", f"n2: no {PYTHON}", f"ssh me@n2 ls -l {PYTHON}", fleet=hosts(python="/usr/bin/python3")),
    well("ssh_other_python", "the same Python path on every host", fleet=hosts()),
    fails("ssh_no_folder", "n2: no folder like the current one (No such file", 'rsync -a ./ me@n2:"$PWD"/',
        fleet=hosts(folder_error="No such file or directory")),
    well("ssh_no_folder", "the current folder is on every host", fleet=hosts()),
    informs("ssh_noisy", "n2: the shell's start-up files print 'Welcome to n2'", "case $-",
        fleet=hosts(noise=("Welcome to n2",))),
    well("ssh_noisy", "no shell prints text of its own", fleet=hosts()),
    fails("ssh_agent_missing", "n2: your key /home/me/.ssh/id_ed25519 needs its", "ssh-add /home/me", fleet=LOCKED),
    well("ssh_agent_missing", "no key needs a passphrase (4 hosts)", fleet=hosts()),
    well("ssh_agent_missing", "no key needs a passphrase (3 hosts)", fleet=KEY),
    fails("ssh_jump_host_failed", "n2: the jump host does not connect to it: stdio", "ssh -v me@n2", fleet=JUMP),
    well("ssh_jump_host_failed", "every jump host works", fleet=hosts()),
    fails("ssh_sessions_exhausted", "n2: its sshd accepts no more connections or sessions: kex", "sshd -T", fleet=BUSY),
    well("ssh_sessions_exhausted", "every sshd accepts a session", fleet=hosts()),
    fails("ssh_sudo_required", "n2: sudo at login: sudo: a password is required", "ssh me@n2 true", fleet=SUDO),
    well("ssh_sudo_required", "no login runs sudo", fleet=hosts()),
    warns("ssh_folder_not_writable", "n2: your user may not write to the project's", "ls -ld",
        fleet=hosts(folder_writable=False)),
    well("ssh_folder_not_writable", "your user may write", fleet=hosts(folder_writable=True)),
    warns("node_ranks_left", "n2: 2 ranks of an earlier run without a launcher", "ssh me@n2 kill 12 13",
        fleet=replace(hosts(), orphans={"n2": (12, 13)})),
    well("node_ranks_left", "no ranks of an earlier run (4 hosts)", fleet=hosts()),
    fails("node_behind_nat", "n2: you reach it at 10.0.0.2, but its own address is 192.168.1.5 (NAT)", "ip -br addr",
        fleet=networked(REACHED_NAT, connected=False)),
    well("node_behind_nat", "every host is reached by the others", fleet=networked(REACHED_NAT)),
    well("node_behind_nat", "every host is reached by the others", fleet=networked({}, connected=False)),
    skips("node_behind_nat", "the connections between the nodes were not tried", fleet=hosts()),
    warns("node_on_wifi", "n2: the ranks would use Wi-Fi (wlan0), although eth0 has a cable", "GLOO_SOCKET_IFNAME=eth0",
        fleet=networked({}, of_n2=(WIFI, CABLE))),
    well("node_on_wifi", "no host with a cable uses Wi-Fi (4 hosts)", fleet=networked({}, of_n2=(WIFI,))),
    well("node_on_wifi", "no host with a cable uses Wi-Fi (4 hosts)", fleet=networked({})),
    fails("node_without_ipv4", "n2: only IPv6 addresses, others have IPv4 ones (n[1,3-4])", "10.77.0.1/24 dev eth0",
        fleet=networked({}, of_n2=(replace(CABLE, addresses=("fe80::1", "fd00::2")),))),
    well("node_without_ipv4", "an IPv4 address on 4 hosts", fleet=networked({})),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_case(case: Case) -> None:
    case.verify()


def test_a_host_that_ssh_does_not_reach_is_reported_once() -> None:
    """With the reason of ssh, and not also as a node that is missing."""
    answer = Case("fleet_node_missing", "ok", "", changes={"fleet": KEY}).asked.function(fleet=KEY)
    assert "no other host is missing" in str(answer)


def test_commands_for_hosts_use_ssh_and_not_slurm() -> None:
    """A difference, a fault and a clock are looked at with ssh; the local machine needs none."""
    seen = fleet(access=tuple(map(reached, NODES)), faults=(NodeFault("n2", "gpu_lost", "GPU 1 is lost"),))
    found = problem("fleet_node_faulty", fleet=seen)
    assert found.fixes[0].commands[0] == "ssh me@n2 mgpu doctor"
    assert found.fixes[1].commands == ("mgpu doctor --hosts me@n1,me@n3,me@n4",)
    ahead = fleet(access=tuple(map(reached, NODES)), clock_offsets_s={"n1": 0.0, "n2": 600.0, "n3": 0.0, "n4": 0.0})
    assert problem("fleet_clock_far_off", fleet=ahead).fixes[0].commands == ("ssh me@n2 timedatectl status",)


def test_each_reason_for_a_missing_folder_is_named() -> None:
    errors = {"n2": "No such file or directory", "n3": "Permission denied", "n4": "Permission denied"}
    seen = fleet(access=tuple(reached(node, folder_error=errors.get(node)) for node in NODES))
    answer = Case("ssh_no_folder", "fail", "", changes={"fleet": seen}).asked.function(fleet=seen)
    assert isinstance(answer, tuple)
    assert [(one.subjects, one.fixes[0].commands[0]) for one in answer] == [
        (("n2",), 'rsync -a ./ me@n2:"$PWD"/'),
        (("n3", "n4"), "ssh me@n3 'id; ls -ld ~'"),
    ]


def test_a_taken_port_is_looked_at_with_ssh() -> None:
    door = NodeAddresses("n1", "n1", meeting_port=29500, meeting_error="Address already in use")
    found = problem("head_port_taken", fleet=fleet(access=tuple(map(reached, NODES)), doors=(door,)))
    assert found.fixes[0].commands == ("ssh me@n1 \"ss -ltnp 'sport = :29500'\"",)
    assert "SLURM" not in found.fixes[1].commands[0]


def test_a_host_name_with_a_shell_in_it_is_in_no_command() -> None:
    seen = fleet(access=(reached("n1"), reached("n2", destination="n2;rm -rf ~", problem="key", said="denied")))
    assert all("rm -rf" not in line for fix in problem("ssh_key_refused", fleet=seen).fixes for line in fix.commands)
