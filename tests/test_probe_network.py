"""The network probe: on this machine, in network namespaces with planted faults, and on described machines."""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpu import engine
from mgpu.probes import gather
from mgpu.probes import network as probed
from mgpu.probes.runner import NETWORK
from mgpu.snapshot import Container, Interface, Master, Network, Plan, Snapshot, from_json
from mgpu.snapshot.redaction import redact
from tests.checks.facts import NO_INFINIBAND, nccl, slurm
from tests.conftest import CHECKS, environment, missing, need

NODES2 = Plan(nodes=2)
UP, DOWN, NO_LINK, UNKNOWN = 6, 2, 7, 0  # IF_OPER_*, except NO_LINK


def link(index: int, name: str, kind: str = "", **changes: Any) -> dict[str, Any]:
    """A link as the kernel tells it."""
    usual = {
        "index": index, "name": name, "type": 1, "up": True, "state": UP, "mtu": 1500,
        "mac": f"02:00:00:00:00:{index:02x}", "master": None, "kind": kind, "peer_elsewhere": False,
    }  # fmt: skip
    return usual | changes


LOOPBACK = link(1, "lo", type=772, state=UNKNOWN, mtu=65536, mac="00:00:00:00:00:00")


def described(
    folder: Path,
    links: Sequence[Mapping[str, Any]],
    addresses: Sequence[Sequence[Any]],
    *,
    routes: str = "",
    **files: str,
) -> Network:
    """What the probe makes of a described machine. `routes`: names with a default route; files: eth0_speed="1000"."""
    net = folder / "proc" / "net"
    net.mkdir(parents=True, exist_ok=True)
    lines = ["Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT"]
    lines += [f"{name} 00000000 0100000A 0003 0 0 {n} 00000000 0 0 0" for n, name in enumerate(routes.split())]
    (net / "route").write_text("\n".join(lines) + "\n")
    for one in links:
        place = folder / "sys" / "class" / "net" / one["name"]
        place.mkdir(parents=True, exist_ok=True)
        (place / "ifindex").write_text(f"{one['index']}\n")
        (place / "address").write_text(f"{one['mac']}\n")
        if not one["kind"] and one["type"] == 1:
            (place / "device").mkdir(exist_ok=True)
    for name, text in files.items():
        interface, _, file = name.rpartition("_")
        (folder / "sys" / "class" / "net" / interface / file).write_text(f"{text}\n")
    recorded = {"links": links, "addresses": addresses}
    *_, found = probed.probe(proc=str(folder / "proc"), sys_root=str(folder / "sys"), recorded=recorded)
    network = from_json(found).network
    assert network is not None
    return replace(network, hostname="node7", hostname_addresses=("10.0.0.7",), hostname_error=None)


def kinds(network: Network) -> dict[str, tuple[str | None, bool]]:
    return {interface.name: (interface.kind, interface.virtual) for interface in network.interfaces}


def chosen(network: Network, **facts: Any) -> dict[str, str]:
    """What the checks of the family say, by id, of a run over two machines: the problems only."""
    usual: dict[str, Any] = {
        "network": network, "plan": NODES2, "env": {}, "nccl": nccl(), "slurm": slurm(node_rank=None),
        "infiniband": NO_INFINIBAND, "container": Container(None, False, 2),
    }  # fmt: skip
    checks = [check for check in CHECKS.values() if check.area == "network"]
    outcomes = engine.run(checks, Snapshot(**usual | facts))
    return {outcome.check.id: outcome.problem.title for outcome in outcomes if outcome.problem}


# --- described machines ------------------------------------------------------------------------------------------


def test_a_host_with_docker_and_libvirt(tmp_path: Path) -> None:
    links = [
        LOOPBACK,
        link(2, "eno1"),
        link(3, "eno2", state=DOWN),
        link(4, "docker0", "bridge", state=DOWN),
        link(5, "br-5f2a", "bridge"),
        link(7, "veth12ab", "veth", master=5, peer_elsewhere=True),
        link(8, "virbr0", "bridge"),
        link(9, "vnet0", "tun", master=8),
        link(10, "br0", "bridge"),
        link(11, "eno3", master=10),
    ]
    addresses = [
        [1, "127.0.0.1", 254], [2, "10.0.0.7", 0], [4, "172.17.0.1", 0], [5, "172.18.0.1", 0], [8, "192.168.122.1", 0],
        [10, "10.1.0.7", 0], [1, "::1", 254], [2, "fe80::7", 253], [7, "fe80::8", 253],
    ]  # fmt: skip
    network = described(
        tmp_path, links, addresses, routes="eno1", eno1_speed="25000", eno1_duplex="full", eno2_speed="-1"
    )
    assert kinds(network) == {
        "lo": ("loopback", False),
        "eno1": ("physical", False),
        "docker0": ("bridge", True),
        "br-5f2a": ("bridge", True),
        "virbr0": ("bridge", True),
        "br0": ("bridge", False),  # over a real interface: a way out
        "veth12ab": ("veth", True),
        "eno2": ("physical", False),
        "vnet0": ("tunnel", False),
        "eno3": ("physical", False),
    }
    assert [interface.name for interface in network.interfaces][:6] == [
        "lo",
        "eno1",
        "docker0",
        "br-5f2a",
        "virbr0",
        "br0",
    ]
    eno1, eno2 = network.interface("eno1"), network.interface("eno2")
    assert eno1 and (eno1.speed_mbit_per_s, eno1.full_duplex, eno1.running, eno1.ipv4, eno1.ipv6) == (
        25000, True, True, True, True,
    )  # fmt: skip
    assert eno2 and (eno2.speed_mbit_per_s, eno2.full_duplex, eno2.up, eno2.running) == (None, None, True, False)
    assert network.default_routes == ("eno1",)
    assert chosen(network) == {"interfaces_ambiguous": "NCCL may use any of eno1, br0"}


def test_a_container_reaches_others_through_its_veth(tmp_path: Path) -> None:
    links = [LOOPBACK, link(12, "eth0", "veth", peer_elsewhere=True), link(14, "eth1", "veth", peer_elsewhere=True)]
    addresses = [[1, "127.0.0.1", 254], [12, "172.17.0.2", 0], [14, "10.0.1.5", 0]]
    network = described(tmp_path, links, addresses, routes="eth0")
    assert kinds(network) == {"lo": ("loopback", False), "eth0": ("veth", False), "eth1": ("veth", False)}


def test_a_kubernetes_node_with_cilium_and_calico(tmp_path: Path) -> None:
    links = [
        LOOPBACK,
        link(2, "ens5"),
        link(3, "cilium_net", "veth"),
        link(4, "cilium_host", "veth"),
        link(5, "cilium_vxlan", "vxlan", state=UNKNOWN),
        link(6, "cali1234", "veth", peer_elsewhere=True),
    ]
    addresses = [
        [1, "127.0.0.1", 254], [2, "10.0.0.7", 0], [4, "10.244.0.1", 0], [3, "fe80::3", 253], [6, "fe80::6", 253],
    ]  # fmt: skip
    network = described(tmp_path, links, addresses, routes="ens5")
    assert kinds(network) == {
        "lo": ("loopback", False),
        "ens5": ("physical", False),
        "cilium_host": ("veth", True),
        "cilium_net": ("veth", True),
        "cali1234": ("veth", True),
        "cilium_vxlan": ("tunnel", False),
    }
    assert chosen(network) == {}


def test_a_server_with_a_bond_rails_and_a_management_controller(tmp_path: Path) -> None:
    rails = [link(20 + n, f"ens{n}", mtu=9000 if n else 1500) for n in range(4)]
    links = [
        LOOPBACK,
        link(2, "enxusb"),
        link(3, "bond0", "bond"),
        link(4, "bond0.100", "vlan", master=None),
        link(5, "ib0", type=32, mtu=2044, mac="00:00:10:49"),
        *rails,
        link(30, "wlp1"),
        link(31, "wg0", "wireguard", type=65534, mac="", state=UNKNOWN),
        link(32, "dummy0", "dummy", state=UNKNOWN),
        link(33, "odd0", "brandnew"),
    ]
    addresses = [
        [1, "127.0.0.1", 254], [2, "169.254.3.1", 253], [3, "10.0.0.7", 0],
        *([20 + n, f"10.{n + 1}.0.7", 0] for n in range(4)), [31, "10.9.0.7", 0],
    ]  # fmt: skip
    files = {f"ens{n}_speed": "400000" for n in range(4)}
    network = described(tmp_path, links, addresses, routes="bond0", **files)
    assert kinds(network) == {
        "lo": ("loopback", False),
        "enxusb": ("physical", False),
        "bond0": ("bond", False),
        **{f"ens{n}": ("physical", False) for n in range(4)},
        "wg0": ("tunnel", False),
        "bond0.100": ("vlan", False),
        "ib0": ("infiniband", False),
        "wlp1": ("physical", False),
        "dummy0": ("other", True),
        "odd0": ("other", False),
    }
    found = chosen(network)
    assert found["nccl_picks_dead_end"] == "by default, NCCL would choose enxusb (link-local only)"
    assert found["interface_mtu_differs"] == "ens0: MTU 1500, the other 3 of the same speed have 9000"


def test_what_sys_says_of_another_namespace_is_not_taken(tmp_path: Path) -> None:
    """`unshare -n`, and containers that share the host's /sys: eth0 there is another eth0."""
    described(tmp_path, [link(2, "eth0", mac="02:00:00:00:00:99")], [], eth0_speed="100000")
    recorded = {"links": [link(2, "eth0")], "addresses": []}
    *_, found = probed.probe(proc=str(tmp_path / "proc"), sys_root=str(tmp_path / "sys"), recorded=recorded)
    (interface,) = found["network"]["interfaces"]
    assert (interface["kind"], interface["speed_mbit_per_s"]) == (None, None)


def test_a_radio_is_wireless(tmp_path: Path) -> None:
    (tmp_path / "sys/class/net/wlp1/wireless").mkdir(parents=True)
    network = described(tmp_path, [link(3, "wlp1", state=UNKNOWN)], [[3, "192.168.1.7", 0]], routes="wlp1")
    assert kinds(network) == {"wlp1": ("wireless", False)}


def test_default_routes(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    assert probed._default_routes(str(tmp_path)) is None
    (tmp_path / "net/route").write_text(
        "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"
        "wlp1 00000000 01000A0A 0003 0 0 600 00000000 0 0 0\n"
        "eno1 00000000 01000A0A 0003 0 0 100 00000000 0 0 0\n"
        "eno1 0000A8C0 00000000 0001 0 0 100 0000FFFF 0 0 0\n"
        "dead 00000000 00000000 0201 0 0 1 00000000 0 0 0\n"
        "half a li"
    )
    assert probed._default_routes(str(tmp_path)) == ["eno1", "wlp1"]
    zero = "0" * 32
    (tmp_path / "net/ipv6_route").write_text(
        f"{zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200 lo\n"
        f"{zero} 00 {zero} 00 fe80{zero[4:]} 00000400 00000002 00000000 00000003 ib0\n"
        f"\udcff garbage\n{zero} 00\n",
        errors="surrogateescape",
    )
    assert probed._default_routes(str(tmp_path)) == ["eno1", "wlp1", "ib0"]
    (tmp_path / "net/route").unlink()
    (tmp_path / "net/route").mkdir()
    assert probed._default_routes(str(tmp_path)) == ["ib0"]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=120))
def test_an_answer_of_the_kernel_may_be_cut_anywhere(data: bytes) -> None:
    for _, payload in probed._messages(struct.pack("=IHHII", 16 + len(data), 16, 0, 1, 0) + data):
        probed._link(payload)
        probed._address(payload)
    list(probed._messages(data))
    probed._attributes(data)


def test_a_kernel_that_does_not_answer_leaves_the_interfaces_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(probed, "_netlink", refuse)
    *_, found = probed.probe()
    network = from_json(found).network
    assert network is not None and not network.listed
    assert chosen(network).keys() <= {"hostname_unresolvable", "hostname_is_loopback", "port_busy"}


# --- where the ranks meet ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodelist", "first"),
    [
        ("node1", "node1"),
        ("node1,node2", "node1"),
        ("node[1-2,5],big1", "node1"),
        ("gpu[003-007]", "gpu003"),
        ("gpu[003,009]", "gpu003"),
        ("a[1-2]-ib", "a1-ib"),
        ("", None),
        ("[", None),
    ],
)
def test_the_first_of_slurms_nodes(nodelist: str, first: str | None) -> None:
    assert probed._first_host(nodelist) == first


@pytest.mark.parametrize(
    ("given", "env", "expected"),
    [
        (None, {}, (None, None)),
        ("node3", {"MASTER_ADDR": "node1"}, ("node3", "config")),
        (None, {"MASTER_ADDR": "node1", "SLURM_JOB_ID": "1"}, ("node1", "MASTER_ADDR")),
        (
            None,
            {"SLURM_JOB_ID": "1", "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "n[1-2]"},
            ("n1", "SLURM_JOB_NODELIST"),
        ),
        (None, {"SLURM_JOB_ID": "1", "SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "n1"}, (None, None)),
        (None, {"SLURM_JOB_ID": "1", "SLURM_NNODES": "2"}, (None, None)),
        (None, {"SLURM_JOB_ID": "1", "SLURM_NNODES": "many", "SLURM_JOB_NODELIST": "n1"}, (None, None)),
    ],
)
def test_who_says_where_the_ranks_meet(given: str | None, env: Mapping[str, str], expected: tuple[Any, Any]) -> None:
    assert probed._master_name(given, env) == expected


def read(**arguments: Any) -> Network:
    """What the probe finds here, in its child."""
    snapshot = gather([replace(NETWORK, arguments=arguments)])
    assert snapshot.network is not None, snapshot.gaps
    return snapshot.network


def test_a_master_that_is_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    assert read().master == Master("127.0.0.1", "MASTER_ADDR", ("127.0.0.1",), None, True, "lo", None)


def test_a_master_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    network = read(master="192.0.2.250")  # kept for documentation: nobody is there, and no packet is sent
    assert network.master is not None
    assert (network.master.origin, network.master.local) == ("config", False)
    assert (network.master.interface in (network.default_routes or ())) or network.master.route_error


def test_a_master_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "XX.XX.XX.XX")
    master = read().master
    assert master is not None and master.error and not master.addresses and master.local is None


@pytest.mark.parametrize("name", ["a" * 300, "bad\udcff", "two words", "-", "%", "[::1]", "\u00fcber"])
def test_a_master_that_is_no_name(name: str) -> None:
    master = read(master=name).master
    assert master is not None and master.addresses == () and master.error


def test_the_resolver_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(*_: Any, **__: Any) -> list[Any]:
        time.sleep(4)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", slowly)
    monkeypatch.setattr(probed, "_RESOLVE_LIMIT_S", 0.4)
    start = time.monotonic()
    *_, found = probed.probe(master="slow")
    assert time.monotonic() - start < 3  # for the three names together
    monkeypatch.setattr(probed, "_RESOLVE_LIMIT_S", 0.1)
    *_, found = probed.probe(master="slow")
    assert found["network"]["hostname_error"] == "no answer in 0.1 s"
    assert found["network"]["master"]["error"] == "no answer in 0.1 s"


def test_redaction_keeps_the_verdict() -> None:
    network = read(master="node-of-ada.example.org")
    found = Snapshot(network=network, plan=NODES2)
    cleaned = redact(found)
    assert cleaned.network is not None and cleaned.network.master is not None
    assert "ada" not in json.dumps(cleaned.network.master.name)
    assert chosen(cleaned.network).keys() == chosen(network).keys()


# --- the port ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_busy_port_and_who_has_it(family: socket.AddressFamily) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as server:
        try:
            server.bind(("127.0.0.1" if family == socket.AF_INET else "::1", 0))
        except OSError:
            missing("this machine has no IPv6")
        server.listen()
        port = server.getsockname()[1]
        network = read(port=port)
        assert network.port_busy
        assert (network.port_owner_pid, network.port_owner_mine) == (os.getpid(), True)
        assert network.port_owner and network.port_owner.startswith(f"pid {os.getpid()} (")
        titles = chosen(network, plan=Plan())
        assert titles["port_busy"] == f"port {port} is in use by {network.port_owner}"
        assert f"kill {os.getpid()}" in commands_of("port_busy", network)
    assert not read(port=port).port_busy


def test_another_port_is_free_and_of_the_usual_range() -> None:
    with socket.socket() as busy, socket.socket() as next_one:
        busy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        busy.bind(("", 28431))
        busy.listen()
        next_one.bind(("", 28432))
        next_one.listen()
        assert read(port=28431).port_free not in (None, 28431, 28432)
    with socket.socket() as last:
        last.bind(("", 65535))
        last.listen()
        network = read(port=65535)
        assert network.port_busy and network.port_free in range(1024, 32768)
    assert read(port=28431).port_free is None


def commands_of(check_id: str, network: Network) -> tuple[str, ...]:
    (outcome,) = engine.run_check(CHECKS[check_id], Snapshot(network=network, plan=Plan(), slurm=slurm()))
    assert outcome.problem is not None
    return tuple(command for fix in outcome.problem.fixes for command in fix.commands)


def test_the_owner_in_a_recorded_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net").mkdir()
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    line = "   0: 00000000:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000  0 {} 1\n"
    (tmp_path / "net/tcp").write_text(head + line.format(4711) + line.replace(" 0A ", " 01 ").format(4712) + "cut off")
    for pid, inode in {100: 4712, 412: 4711}.items():
        (tmp_path / f"{pid}/fd").mkdir(parents=True)
        (tmp_path / f"{pid}/fd/3").symlink_to(f"socket:[{inode}]")
        (tmp_path / f"{pid}/fd/4").symlink_to("/mnt/dead-server/socket:[4711]")  # a file with such a name
        (tmp_path / f"{pid}/comm").write_text("python\n")
    (tmp_path / "413").mkdir()  # a process whose files may not be read
    assert probed._owner(29500, str(tmp_path)) == (412, "python", True)
    assert probed._owner(29501, str(tmp_path)) is None
    assert probed._owner(29500, str(tmp_path / "nowhere")) is None
    monkeypatch.setattr(probed, "_OWNER_LIMIT_S", -1.0)  # thousands of processes: not all can be asked
    assert probed._owner(29500, str(tmp_path)) is None


# --- this machine ------------------------------------------------------------------------------------------------


def test_this_machine_as_psutil_sees_it() -> None:
    network = read()
    addresses = {
        name: {a.address.partition("%")[0] for a in found if a.family in (socket.AF_INET, socket.AF_INET6)}
        for name, found in psutil.net_if_addrs().items()
    }
    stats = psutil.net_if_stats()
    assert {i.name: set(i.addresses) for i in network.interfaces} == {
        name: addresses.get(name, set()) for name in (stats.keys() | addresses.keys())
    }
    for interface in network.interfaces:
        assert interface.mtu == stats[interface.name].mtu
        assert interface.speed_mbit_per_s == (stats[interface.name].speed or None)
        assert bool(interface.running) == stats[interface.name].isup  # psutil: IFF_RUNNING
    assert network.hostname == socket.gethostname()
    assert [i.name for i in network.interfaces if i.loopback] == ["lo"]


def test_the_child_needs_the_standard_library_only_and_is_quick() -> None:
    code = f"import sys, time; start = time.perf_counter(); space = {{'__name__': 'x'}}; exec(open({str(NETWORK.path)!r}).read(), space); list(space['probe']()); print(time.perf_counter() - start)"  # noqa: E501
    best = min(
        float(
            subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True).stdout
        )
        for _ in range(3)
    )
    assert best < 0.5  # 15 ms here; a resolver may take its time


# --- planted faults: network namespaces --------------------------------------------------------------------------


def inside(setup: str, *, uts: str | None = None, hosts: str | None = None, folder: Path, **env: str) -> Network:
    """What the probe finds in a network namespace (host name, /etc/hosts) prepared by a script."""
    if os.geteuid() != 0:
        missing("namespaces need root")
    unshare = need("unshare")
    need("ip")
    code = (
        "import json; from mgpu.probes.runner import NETWORK; from mgpu.probes import gather; "
        "from mgpu.snapshot import to_json; print(json.dumps(to_json(gather([NETWORK]))))"
    )
    lines = ["set -e"]
    if hosts is not None:
        (folder / "hosts").write_text(hosts)
        lines.append(f"mount --bind {shlex.quote(str(folder / 'hosts'))} /etc/hosts")
    if uts is not None:
        lines.append(f"hostname {uts}")
    lines += [setup, f"exec {shlex.join([sys.executable, '-c', code])}"]
    command = [unshare, "-n", "-m", "-u", "--propagation", "private", "sh", "-c", "\n".join(lines)]
    done = subprocess.run(
        command, env=environment(folder, env), cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    if "Operation not permitted" in done.stderr:
        missing("network namespaces are not allowed here")
    assert done.returncode == 0, done.stderr
    snapshot = from_json(json.loads(done.stdout))
    assert snapshot.network is not None, snapshot.gaps
    return snapshot.network


def interface(network: Network, name: str) -> Interface:
    found = network.interface(name)
    assert found is not None, network.interfaces
    return found


HOSTS = "127.0.0.1 localhost\n10.200.0.1 n1\n10.200.0.2 n2\n"
CABLE = (
    "ip link set lo up; ip link add eth0 type veth peer name p; ip addr add 10.200.0.1/24 dev eth0; ip link set eth0 up"
)
LINKED = f"{CABLE}; ip link set p up"


def test_loopback_that_is_down(tmp_path: Path) -> None:
    network = inside("true", folder=tmp_path, uts="n1", hosts=HOSTS)
    assert [(i.name, i.up) for i in network.interfaces] == [("lo", False)]
    assert network.default_routes == ()
    found = chosen(network)
    assert found["loopback_is_down"] == "no loopback interface is up"
    assert found["network_leads_nowhere"] == "2 nodes, but no interface here leads to another one"


def test_bridges_tunnels_and_dead_ends_of_a_real_kernel(tmp_path: Path) -> None:
    setup = """\
ip link set lo up
ip link add br-old type bridge; ip addr add 172.18.0.1/16 dev br-old; ip link set br-old up
ip link add v0 type veth peer name v1; ip link set v1 master br-old; ip link set v0 up; ip link set v1 up
ip tuntap add tun0 mode tun; ip addr add 100.64.0.1/10 dev tun0; ip link set tun0 up
ip link add eth0 type veth peer name peer; ip addr add 10.200.0.1/24 dev eth0; ip link set eth0 up; ip link set peer up
ip route add default via 10.200.0.254
"""
    network = inside(setup, folder=tmp_path, uts="n1", hosts=HOSTS, MASTER_ADDR="n2")
    assert kinds(network)["br-old"] == ("bridge", True)
    assert kinds(network)["tun0"] == ("tunnel", False)
    assert kinds(network)["eth0"] == ("veth", False)  # it has the default route
    assert kinds(network)["v1"] == ("veth", True)
    assert interface(network, "tun0").running is False  # nobody holds its other end
    assert network.default_routes == ("eth0",)
    assert network.master == Master("n2", "MASTER_ADDR", ("10.200.0.2",), None, False, "eth0", None)
    found = chosen(network)
    assert found["nccl_picks_dead_end"] == "by default, NCCL would choose br-old (a bridge)"
    assert "nccl_picks_off_route" in found  # folded under it
    assert "hostname_is_loopback" not in found
    named = chosen(network, env={"NCCL_SOCKET_IFNAME": "tun0"})
    assert named["socket_interface_unusable"] == "NCCL_SOCKET_IFNAME=tun0: tun0 has no link"
    named = chosen(network, env={"NCCL_SOCKET_IFNAME": "ib0", "GLOO_SOCKET_IFNAME": "eth"})
    assert named["socket_interface_missing"] == "NCCL_SOCKET_IFNAME=ib0, GLOO_SOCKET_IFNAME=eth: no such interface"
    assert chosen(network, env={"NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"}) == {}


def test_the_order_is_that_of_getifaddrs(tmp_path: Path) -> None:
    """Made in another order than addressed, IPv6 only among them: NCCL walks the list that getifaddrs gives."""

    class Ifaddrs(ctypes.Structure):
        pass

    Ifaddrs._fields_ = [
        ("next", ctypes.POINTER(Ifaddrs)), ("name", ctypes.c_char_p), ("flags", ctypes.c_uint),
        ("address", ctypes.POINTER(ctypes.c_ushort)),
    ]  # fmt: skip
    head = ctypes.POINTER(Ifaddrs)()
    assert ctypes.CDLL(None).getifaddrs(ctypes.byref(head)) == 0
    order, entry = [], head
    while entry:
        if entry.contents.address and entry.contents.address[0] in (socket.AF_INET, socket.AF_INET6):
            order.append(entry.contents.name.decode())
        entry = entry.contents.next
    assert [i.name for i in read().interfaces if i.addresses] == list(dict.fromkeys(order))


def test_a_hostname_nobody_knows(tmp_path: Path) -> None:
    network = inside("ip link set lo up", folder=tmp_path, uts="nowhere", hosts="127.0.0.1 localhost\n")
    assert network.hostname == "nowhere"
    assert network.hostname_error and network.localhost_ok
    found = chosen(network, plan=Plan())
    assert found == {"hostname_unresolvable": f"'nowhere' does not resolve: {network.hostname_error}"}


def test_a_hostname_on_loopback_and_one_that_is_elsewhere(tmp_path: Path) -> None:
    network = inside(LINKED, folder=tmp_path, uts="n1", hosts="127.0.0.1 localhost\n127.0.1.1 n1\n")
    assert chosen(network)["hostname_is_loopback"] == "n1 resolves to 127.0.1.1"
    network = inside(LINKED, folder=tmp_path, uts="n1", hosts="127.0.0.1 localhost\n203.0.113.9 n1\n")
    assert chosen(network)["hostname_is_elsewhere"] == "n1 resolves to 203.0.113.9, which no interface here has"


def test_localhost_that_does_not_resolve(tmp_path: Path) -> None:
    network = inside("ip link set lo up", folder=tmp_path, uts="n1", hosts="10.9.9.9 localhost n1\n")
    assert chosen(network)["localhost_unresolvable"] == "localhost does not resolve to 127.0.0.1 or ::1"


def test_masters_that_cannot_be_reached(tmp_path: Path) -> None:
    network = inside(LINKED, folder=tmp_path, uts="n1", hosts=HOSTS, MASTER_ADDR="198.51.100.1")
    assert chosen(network)["master_unreachable"] == "no route to 198.51.100.1 (198.51.100.1): Network is unreachable"
    network = inside(LINKED, folder=tmp_path, uts="n1", hosts=HOSTS, MASTER_ADDR="no-such-node")
    assert chosen(network)["master_unresolvable"].startswith("MASTER_ADDR 'no-such-node' does not resolve: ")
    network = inside(LINKED, folder=tmp_path, uts="n1", hosts=HOSTS, MASTER_ADDR="localhost")
    title = "the rendezvous address of 2 nodes is localhost (127.0.0.1), an address of lo"
    assert chosen(network)["master_is_local_only"] == title
    network = inside(LINKED, folder=tmp_path, uts="n1", hosts=HOSTS, MASTER_ADDR="n2")
    found = chosen(network, slurm=slurm(node_rank=0))
    assert found["master_elsewhere"] == "this is node 0, but MASTER_ADDR is n2 (10.200.0.2)"
    assert "master_elsewhere" not in chosen(network, slurm=slurm(node_rank=1))


def test_a_cable_that_is_out(tmp_path: Path) -> None:
    network = inside(CABLE, folder=tmp_path, uts="n1", hosts=HOSTS)
    eth0 = interface(network, "eth0")
    assert (eth0.up, eth0.running) == (True, False)
    assert chosen(network, env={"NCCL_SOCKET_IFNAME": "eth0"})["socket_interface_unusable"] == (
        "NCCL_SOCKET_IFNAME=eth0: eth0 has no link"
    )


def test_only_ipv6(tmp_path: Path) -> None:
    setup = """\
ip link set lo up; ip link add eth0 type veth peer name p; ip link set p up; ip link set eth0 up
ip -6 addr add 2001:db8::1/64 dev eth0 nodad; ip -6 route add default via 2001:db8::ff
"""
    network = inside(setup, folder=tmp_path, uts="n1", hosts=HOSTS)
    eth0 = interface(network, "eth0")
    if not eth0.ipv6:
        missing("this kernel has no IPv6")
    assert (eth0.ipv4, eth0.routable, network.default_routes) == (False, True, ("eth0",))
    assert chosen(network)["network_ipv6_only"] == "eth0 has no IPv4 address"
