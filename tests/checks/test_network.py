"""checks/network.py"""

from __future__ import annotations

from dataclasses import replace

import pytest

from mgpu.snapshot import Interface, Plan
from tests.checks.facts import BRIDGE, ETH, LO, Case, fails, network, skips, table, warns, well

NODES2 = Plan(nodes=2)
NO_ADDRESS = Interface("eno2", True, False, (), False)
CASES = (
    # hostname_unresolvable
    warns("hostname_unresolvable",
        "'node7' does not resolve: Name or service not known", "echo '127.0.1.1 node7' | sudo tee -a /etc/hosts",
        network=network(hostname_addresses=(), hostname_error="Name or service not known")),
    well("hostname_unresolvable", "node7 is 10.20.30.7"),
    # hostname_is_loopback
    fails("hostname_is_loopback", "node7 resolves to 127.0.1.1", "export GLOO_SOCKET_IFNAME=eno1",
        network=network(hostname_addresses=("127.0.1.1",)), plan=NODES2),
    fails("hostname_is_loopback", "node7 resolves to ::1", "export NCCL_SOCKET_IFNAME=eth0",
        network=network(hostname_addresses=("::1",), interfaces=(LO, BRIDGE, NO_ADDRESS)), plan=NODES2),
    well("hostname_is_loopback", "node7 is 10.20.30.7", plan=NODES2),
    skips("hostname_is_loopback", "on one machine", network=network(hostname_addresses=("127.0.1.1",))),
    skips("hostname_is_loopback", "does not resolve at all", network=network(hostname_addresses=()), plan=NODES2),
    # loopback_is_down
    fails("loopback_is_down", "no loopback interface is up", "sudo ip link set lo up",
        network=network(interfaces=(replace(LO, up=False), ETH))),
    fails("loopback_is_down", "no loopback interface is up", "sudo ip link set lo up",
        network=network(interfaces=(ETH,))),
    well("loopback_is_down", "lo is up"),
    skips("loopback_is_down", "cannot be listed", network=network(interfaces=())),
    # localhost_unresolvable
    fails("localhost_unresolvable", "localhost does not resolve", "echo '127.0.0.1 localhost'",
        network=network(localhost_ok=False)),
    well("localhost_unresolvable", "localhost is this machine"),
    # port_busy
    warns("port_busy", "port 29500 is in use by pid 412 (python)", "ss -ltnp 'sport = :29500'",
        network=network(port_busy=True, port_owner="pid 412 (python)")),
    warns("port_busy", "in use by a process that this user may not see", "ss -ltnp", network=network(port_busy=True)),
    well("port_busy", "port 29500 is free"),
    # socket_interface_missing
    fails("socket_interface_missing", "NCCL_SOCKET_IFNAME=ib0: no such interface", "export NCCL_SOCKET_IFNAME=eno1",
        env={"NCCL_SOCKET_IFNAME": "ib0"}),
    fails("socket_interface_missing",
        "NCCL_SOCKET_IFNAME=ib0, GLOO_SOCKET_IFNAME=eno", "export GLOO_SOCKET_IFNAME=eno1",
        env={"NCCL_SOCKET_IFNAME": "ib0", "GLOO_SOCKET_IFNAME": "eno"}),
    fails("socket_interface_missing", "NCCL_SOCKET_IFNAME=ib0", "NCCL_SOCKET_IFNAME=eno1",
        env={"NCCL_SOCKET_IFNAME": "ib0"}, network=network(interfaces=(LO, NO_ADDRESS, ETH))),
    well("socket_interface_missing", "is here", env={"NCCL_SOCKET_IFNAME": "eno1", "GLOO_SOCKET_IFNAME": "eno1"}),
    skips("socket_interface_missing", "no interface is prescribed"),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


# NCCL user guide, NCCL_SOCKET_IFNAME: a comma list of prefixes, `^` excludes, `=` makes names exact; gloo: exact names.
@pytest.mark.parametrize(
    ("variable", "value", "here"),
    [
        ("NCCL_SOCKET_IFNAME", "en", True),
        ("NCCL_SOCKET_IFNAME", "ib,en", True),
        ("NCCL_SOCKET_IFNAME", "ib,eth", False),
        ("NCCL_SOCKET_IFNAME", "=eno1", True),
        ("NCCL_SOCKET_IFNAME", "=eno", False),
        ("NCCL_SOCKET_IFNAME", "=ib0,eno1", True),
        ("NCCL_SOCKET_IFNAME", "^docker", True),
        ("NCCL_SOCKET_IFNAME", "^docker,lo,eno", False),
        ("NCCL_SOCKET_IFNAME", "^=docker0,lo,eno", True),
        ("NCCL_SOCKET_IFNAME", "^=docker0,lo,eno1", False),
        ("NCCL_SOCKET_IFNAME", "", True),
        ("GLOO_SOCKET_IFNAME", "eno1", True),
        ("GLOO_SOCKET_IFNAME", "eno", False),
        ("GLOO_SOCKET_IFNAME", "lo, eno1", True),
        ("GLOO_SOCKET_IFNAME", "lo,ib0", False),
        ("GLOO_SOCKET_IFNAME", "^docker0", False),
    ],
)
def test_which_interfaces_a_value_names(variable: str, value: str, here: bool) -> None:
    outcome = Case("socket_interface_missing", "ok", "", changes={"env": {variable: value}}).answer()
    assert outcome.status == ("ok" if here else "fail")
