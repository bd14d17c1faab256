"""checks/network"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mgpu.snapshot import Interface, Plan
from tests.checks.facts import (
    BRIDGE,
    ETH,
    LO,
    NO_INFINIBAND,
    Case,
    config,
    fails,
    hca,
    infiniband,
    informs,
    master,
    nccl,
    network,
    problem,
    skips,
    slurm,
    table,
    warns,
    well,
)

NODES2 = Plan(nodes=2)
DOWN = Interface(
    "eno2", False, False, (), False, 1500, None, "physical", False, None, False, False, False
)  # fmt: skip
UNPLUGGED = replace(ETH, name="eno2", addresses=("10.20.31.7",), running=False, speed_mbit_per_s=None)
OTHER = replace(ETH, name="enp65s0", addresses=("10.99.0.7",))
IB0 = replace(ETH, name="ib0", addresses=("10.50.0.7",), kind="infiniband", mtu=2044, speed_mbit_per_s=400_000)
TUNNEL = replace(ETH, name="tailscale0", addresses=("100.64.0.7",), kind="tunnel", speed_mbit_per_s=None)
USB = replace(ETH, name="enxusb", addresses=("169.254.3.1",), routable=False, speed_mbit_per_s=None)
RAILS = tuple(replace(ETH, name=f"ens{n}", addresses=(f"10.{n}.0.7",), mtu=9000) for n in range(4))
SIX = replace(ETH, addresses=("2001:db8::7",), ipv4=False, ipv6=True)
FAR = master()
HERE = master(name="node7", addresses=("10.20.30.7",), local=True, interface="eno1")


def two(**changes: Any) -> dict[str, Any]:
    return {"plan": NODES2, "network": network(**changes)}


DEEPSPEED = """\
distributed_type: DEEPSPEED
num_machines: 2
num_processes: 8
deepspeed_config:
  deepspeed_multinode_launcher: {}
"""
MACHINE = "distributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: 8\nmachine_rank: {}\nmain_process_ip: {}\n"

CASES = (
    # hostname_unresolvable
    warns("hostname_unresolvable",
        "'node7' does not resolve: Name or service not known", "echo '127.0.1.1 node7' | sudo tee -a /etc/hosts",
        network=network(hostname_addresses=(), hostname_error="Name or service not known")),
    warns("hostname_unresolvable", "'node7' does not resolve", "echo '10.20.30.7 node7'",
        **two(hostname_addresses=(), hostname_error="Name or service not known")),
    well("hostname_unresolvable", "node7 is 10.20.30.7"),
    # hostname_is_loopback
    fails("hostname_is_loopback", "node7 resolves to 127.0.1.1", "export GLOO_SOCKET_IFNAME=eno1",
        **two(hostname_addresses=("127.0.1.1",))),
    fails("hostname_is_loopback", "node7 resolves to ::1", "export NCCL_SOCKET_IFNAME=eth0",
        **two(hostname_addresses=("::1",), interfaces=(LO, BRIDGE, DOWN))),
    well("hostname_is_loopback", "node7 is 10.20.30.7", plan=NODES2),
    well("hostname_is_loopback", "GLOO_SOCKET_IFNAME=eno1 selects the interface",
        env={"GLOO_SOCKET_IFNAME": "eno1"}, **two(hostname_addresses=("127.0.1.1",))),
    skips("hostname_is_loopback", "a single-node run may use the loopback address",
        network=network(hostname_addresses=("127.0.1.1",))),
    skips("hostname_is_loopback", "does not resolve at all", **two(hostname_addresses=())),
    # hostname_is_elsewhere
    fails("hostname_is_elsewhere", "node7 resolves to 203.0.113.7, which no interface here has",
        "export GLOO_SOCKET_IFNAME=eno1", **two(hostname_addresses=("203.0.113.7",))),
    well("hostname_is_elsewhere", "an address of this machine",
        **two(hostname_addresses=("203.0.113.7", "10.20.30.7"))),
    well("hostname_is_elsewhere", "selects the interface",
        env={"GLOO_SOCKET_IFNAME": "eno1"}, **two(hostname_addresses=("203.0.113.7",))),
    skips("hostname_is_elsewhere", "single-node run", network=network(hostname_addresses=("203.0.113.7",))),
    skips("hostname_is_elsewhere", "does not resolve", **two(hostname_addresses=())),
    skips("hostname_is_elsewhere", "cannot be listed", **two(interfaces=())),
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
    # port_busy, master_port_busy
    warns("port_busy", "port 29500 is in use by pid 412 (python)", "ss -ltnp 'sport = :29500'",
        network=network(port_busy=True, port_owner="pid 412 (python)", port_owner_pid=412, port_owner_mine=False)),
    warns("port_busy", "in use by pid 412", "kill 412",
        network=network(port_busy=True, port_owner="pid 412 (python)", port_owner_pid=412, port_owner_mine=True)),
    warns("port_busy", "in use by a process that this user may not see", "ss -ltnp", network=network(port_busy=True)),
    warns("port_busy", "port 29500 is in use", "ss -ltnp", slurm=slurm(node_rank=1), **two(port_busy=True, master=FAR)),
    well("port_busy", "port 29500 is free"),
    skips("port_busy", "see master_port_busy", **two(port_busy=True)),
    fails("master_port_busy", "port 29500 is in use", "mgpu launch --port 29503 ...",
        **two(port_busy=True, port_free=29503)),
    fails("master_port_busy", "port 65535 is in use", "ss -ltnp", **two(port=65535, port_busy=True)),
    fails("master_port_busy", "port 29500 is in use", "ss -ltnp",
        slurm=slurm(node_rank=None), **two(port_busy=True, master=HERE)),
    well("master_port_busy", "port 29500 is free", plan=NODES2),
    skips("master_port_busy", "single-node run", network=network(port_busy=True)),
    skips("master_port_busy", "not known to be the rendezvous node",
        slurm=slurm(node_rank=None), **two(port_busy=True, master=FAR)),
    # master_unresolvable
    fails("master_unresolvable", "MASTER_ADDR 'XX.XX.XX.XX' does not resolve: Name or service not known",
        "export MASTER_ADDR=ADDRESS",
        **two(master=master(name="XX.XX.XX.XX", addresses=(), error="Name or service not known", local=None))),
    well("master_unresolvable", "node1 is 10.20.30.1", **two(master=FAR)),
    skips("master_unresolvable", "single-node run", network=network(master=master(addresses=()))),
    skips("master_unresolvable", "no rendezvous address is set", plan=NODES2),
    # master_unreachable
    fails("master_unreachable", "no route to node1 (10.20.30.1): Network is unreachable", "export MASTER_ADDR=ADDRESS",
        **two(master=master(interface=None, route_error="Network is unreachable"))),
    well("master_unreachable", "the route to node1 uses eno1", **two(master=FAR)),
    skips("master_unreachable", "single-node run", network=network(master=FAR)),
    skips("master_unreachable", "no rendezvous address is set", plan=NODES2),
    skips("master_unreachable", "does not resolve", **two(master=master(addresses=()))),
    # master_is_local_only
    fails("master_is_local_only", "2 nodes is localhost (127.0.0.1), an address of lo", "hostname -I",
        **two(master=master(name="localhost", addresses=("127.0.0.1", "::1"), local=True))),
    fails("master_is_local_only", "the rendezvous address of 2 nodes is 172.17.0.1, an address of docker0",
        "hostname -I",
        **two(master=master(name="172.17.0.1", addresses=("172.17.0.1",), local=True, interface="docker0"))),
    fails("master_is_local_only", "is node1 (127.0.1.1), an address of lo", "hostname -I",
        **two(master=master(addresses=("127.0.1.1",), local=True))),
    well("master_is_local_only", "node1 is 10.20.30.1", **two(master=FAR)),
    skips("master_is_local_only", "rank 0; the other ranks may have another address", env={"RANK": "0"},
        slurm=slurm(job_id=None),
        **two(master=master(name="localhost", addresses=("127.0.0.1",), local=True))),
    fails("master_is_local_only", "is localhost", "hostname -I", env={"RANK": "0"},  # srun hands it to all nodes
        **two(master=master(name="localhost", addresses=("127.0.0.1",), local=True))),
    skips("master_is_local_only", "see hostname_is_loopback",
        **two(master=master(name="node7", addresses=("127.0.1.1",), local=True))),
    skips("master_is_local_only", "single-node run",
        network=network(master=master(name="localhost", addresses=("127.0.0.1",)))),
    skips("master_is_local_only", "no rendezvous address is set", plan=NODES2),
    skips("master_is_local_only", "does not resolve", **two(master=master(addresses=()))),
    # master_elsewhere
    warns("master_elsewhere",
        "this is node 0, but MASTER_ADDR is node1 (10.20.30.1)", "MASTER_ADDR=10.20.30.7", **two(master=FAR)),
    warns("master_elsewhere", "this is node 0", "is_host=true",
        slurm=slurm(node_rank=None), env={"PET_NODE_RANK": "0"}, **two(master=FAR)),
    well("master_elsewhere", "node7 is this machine", **two(master=HERE)),
    skips("master_elsewhere", "not known to be the first", slurm=slurm(node_rank=1), **two(master=FAR)),
    skips("master_elsewhere", "not known to be the first", slurm=slurm(node_rank=None), **two(master=FAR)),
    skips("master_elsewhere", "the addresses are unknown", **two(master=master(local=None))),
    skips("master_elsewhere", "single-node run", network=network(master=FAR)),
    skips("master_elsewhere", "no rendezvous address is set", plan=NODES2),
    # config_address_not_here
    warns("config_address_not_here", "main_process_ip 10.20.30.1 is not an address of this machine",
        "--main_process_ip 10.20.30.7", at=(5, 1), config=config(MACHINE.format(0, "10.20.30.1"))),
    warns("config_address_not_here", "main_process_ip node1 is not", "machine_rank",
        config=config(MACHINE.format(0, "node1")), network=network(master=master(origin="config"))),
    well("config_address_not_here", "10.20.30.7 is eno1", config=config(MACHINE.format(0, "10.20.30.7"))),
    well("config_address_not_here", "node7 is this machine's name", config=config(MACHINE.format(0, "node7"))),
    well("config_address_not_here", "alias is this machine",
        config=config(MACHINE.format(0, "alias")), network=network(master=replace(HERE, name="alias"))),
    skips("config_address_not_here", "node1 was not resolved", config=config(MACHINE.format(0, "node1"))),
    skips("config_address_not_here", "127.0.0.2 was not", config=config(MACHINE.format(0, "127.0.0.2"))),
    skips("config_address_not_here", "not the first", config=config(MACHINE.format(1, "10.20.30.1"))),
    skips("config_address_not_here", "single-node run,"),
    skips("config_address_not_here", "cannot be listed",
        config=config(MACHINE.format(0, "10.20.30.1")), network=network(interfaces=())),
    # deepspeed_pdsh_missing
    fails("deepspeed_pdsh_missing", "deepspeed_multinode_launcher is pdsh, which is not installed",
        "deepspeed_multinode_launcher: standard", at=(5, 3),
        config=config(DEEPSPEED.format("pdsh")), network=network(pdsh=False)),
    fails("deepspeed_pdsh_missing", "is pdsh (its default), which is not installed", "sudo apt-get install pdsh",
        config=config("distributed_type: DEEPSPEED\nnum_machines: 2\n"), network=network(pdsh=False)),
    well("deepspeed_pdsh_missing", "pdsh is installed", config=config(DEEPSPEED.format("pdsh"))),
    well("deepspeed_pdsh_missing", "the launcher is standard",
        config=config(DEEPSPEED.format("standard")), network=network(pdsh=False)),
    skips("deepspeed_pdsh_missing", "not a multi-node DeepSpeed launch", network=network(pdsh=False)),
    skips("deepspeed_pdsh_missing", "not looked for",
        config=config(DEEPSPEED.format("pdsh")), network=network(pdsh=None)),
    # socket_interface_missing
    fails("socket_interface_missing", "NCCL_SOCKET_IFNAME=ib0: no such interface", "export NCCL_SOCKET_IFNAME=eno1",
        env={"NCCL_SOCKET_IFNAME": "ib0"}),
    fails("socket_interface_missing",
        "NCCL_SOCKET_IFNAME=ib0, GLOO_SOCKET_IFNAME=eno", "export GLOO_SOCKET_IFNAME=eno1",
        env={"NCCL_SOCKET_IFNAME": "ib0", "GLOO_SOCKET_IFNAME": "eno"}),
    fails("socket_interface_missing", "NCCL_SOCKET_IFNAME=ib0", "NCCL_SOCKET_IFNAME=eno1",
        env={"NCCL_SOCKET_IFNAME": "ib0"}, network=network(interfaces=(LO, DOWN, ETH))),
    fails("socket_interface_missing", "NCCL_SOCKET_IFNAME=eth0: no such interface", "NCCL_SOCKET_IFNAME=eno1",
        nccl=nccl(config_files={"/etc/nccl.conf": ("NCCL_DEBUG=WARN", "NCCL_SOCKET_IFNAME=eth0")})),
    well("socket_interface_missing", "exists;", env={"NCCL_SOCKET_IFNAME": "eno1", "GLOO_SOCKET_IFNAME": "eno1"}),
    # By NCCL's own rule a blank before the = belongs to the name: nothing is prescribed. One behind it to the value.
    skips("socket_interface_missing", "no interface is set",
        nccl=nccl(config_files={"/etc/nccl.conf": ("NCCL_SOCKET_IFNAME =eth0", " NCCL_SOCKET_IFNAME=eth0")})),
    fails("socket_interface_missing", "NCCL_SOCKET_IFNAME= eno1: no such interface", "NCCL_SOCKET_IFNAME=eno1",
        nccl=nccl(config_files={"/etc/nccl.conf": ("NCCL_SOCKET_IFNAME= eno1",)})),
    well("socket_interface_missing", "NCCL_SOCKET_IFNAME=eno exists", env={"NCCL_SOCKET_IFNAME": "eno"},
        nccl=nccl(config_files={"/etc/nccl.conf": ("NCCL_SOCKET_IFNAME=eth0",)})),
    skips("socket_interface_missing", "no interface is set"),
    skips("socket_interface_missing", "cannot be listed",
        env={"NCCL_SOCKET_IFNAME": "ib0"}, network=network(interfaces=())),
    # socket_interface_unusable
    fails("socket_interface_unusable", "NCCL_SOCKET_IFNAME=eno2: eno2 has no address", "sudo ip link set eno2 up",
        env={"NCCL_SOCKET_IFNAME": "eno2"}, network=network(interfaces=(LO, DOWN, ETH))),
    fails("socket_interface_unusable", "NCCL_SOCKET_IFNAME=eno2: eno2 has no link", "export NCCL_SOCKET_IFNAME=eno1",
        env={"NCCL_SOCKET_IFNAME": "eno2"}, network=network(interfaces=(LO, UNPLUGGED, ETH))),
    fails("socket_interface_unusable", "NCCL_SOCKET_IFNAME=eno2: eno2 is down", "export NCCL_SOCKET_IFNAME=eno1",
        env={"NCCL_SOCKET_IFNAME": "eno2"}, network=network(interfaces=(LO, replace(UNPLUGGED, up=False), ETH))),
    fails("socket_interface_unusable", "GLOO_SOCKET_IFNAME=eno1,eno2: eno2 has no address", "GLOO_SOCKET_IFNAME=eno1",
        env={"GLOO_SOCKET_IFNAME": "eno1,eno2"}, network=network(interfaces=(LO, DOWN, ETH))),
    fails("socket_interface_unusable", "NCCL_SOCKET_IFNAME=eno1: eno1 has no AF_INET6 address", "NCCL_SOCKET_IFNAME",
        env={"NCCL_SOCKET_IFNAME": "eno1", "NCCL_SOCKET_FAMILY": "AF_INET6"}),
    well("socket_interface_unusable", "NCCL_SOCKET_IFNAME=eno", env={"NCCL_SOCKET_IFNAME": "eno"},
        network=network(interfaces=(LO, DOWN, ETH))),
    well("socket_interface_unusable", "GLOO_SOCKET_IFNAME=eno2",  # gloo does not ask for a link
        env={"GLOO_SOCKET_IFNAME": "eno2"}, network=network(interfaces=(LO, UNPLUGGED, ETH))),
    skips("socket_interface_unusable", "no interface is set"),
    skips("socket_interface_unusable", "cannot be listed",
        env={"NCCL_SOCKET_IFNAME": "ib0"}, network=network(interfaces=())),
    # socket_interface_dead_end
    fails("socket_interface_dead_end", "NCCL_SOCKET_IFNAME=docker means docker0", "export NCCL_SOCKET_IFNAME=eno1",
        env={"NCCL_SOCKET_IFNAME": "docker"}, plan=NODES2),
    fails("socket_interface_dead_end", "GLOO_SOCKET_IFNAME=lo means lo", "export GLOO_SOCKET_IFNAME=eno1",
        env={"GLOO_SOCKET_IFNAME": "lo"}, plan=NODES2),
    well("socket_interface_dead_end", "NCCL_SOCKET_IFNAME=^docker,lo",
        env={"NCCL_SOCKET_IFNAME": "^docker,lo"}, plan=NODES2),
    skips("socket_interface_dead_end", "single-node run", env={"NCCL_SOCKET_IFNAME": "lo"}),
    skips("socket_interface_dead_end", "no interface is set", plan=NODES2),
    # socket_interface_off_route
    informs("socket_interface_off_route", "the route to node1 uses eno1, NCCL_SOCKET_IFNAME means enp65s0",
        "export NCCL_SOCKET_IFNAME=eno1",
        env={"NCCL_SOCKET_IFNAME": "enp"}, **two(master=FAR, interfaces=(LO, OTHER, ETH))),
    well("socket_interface_off_route", "the route to node1 also uses eno1", env={"NCCL_SOCKET_IFNAME": "en"},
        **two(master=FAR, interfaces=(LO, OTHER, ETH))),
    skips("socket_interface_off_route", "the rendezvous node, or the route to it, is unknown",
        env={"NCCL_SOCKET_IFNAME": "en"}, plan=NODES2),
    skips("socket_interface_off_route", "the rendezvous node, or the route to it, is unknown",
        env={"NCCL_SOCKET_IFNAME": "en"},
        **two(master=HERE)),
    skips("socket_interface_off_route", "single-node run", env={"NCCL_SOCKET_IFNAME": "en"}),
    skips("socket_interface_off_route", "no interface is set", plan=NODES2),
    # nccl_picks_dead_end
    warns("nccl_picks_dead_end", "NCCL would choose br-5f2a (a bridge)", "export NCCL_SOCKET_IFNAME=eno1",
        **two(interfaces=(LO, replace(BRIDGE, name="br-5f2a"), ETH))),
    warns("nccl_picks_dead_end", "NCCL would choose tailscale0 (a tunnel)", "export NCCL_SOCKET_IFNAME=eno1",
        **two(interfaces=(LO, TUNNEL, ETH))),
    warns("nccl_picks_dead_end", "NCCL would choose enxusb (link-local only)", "export GLOO_SOCKET_IFNAME=eno1",
        **two(interfaces=(LO, USB, ETH))),
    warns("nccl_picks_dead_end", "NCCL would choose docker0 (a bridge)", "NCCL_SOCKET_IFNAME",
        **two(interfaces=(LO, BRIDGE, SIX)), env={"NCCL_SOCKET_FAMILY": "AF_INET"}),
    warns("nccl_picks_dead_end", "NCCL would choose lo (loopback)", "NCCL_SOCKET_IFNAME=eth0",
        **two(interfaces=(LO, DOWN))),
    well("nccl_picks_dead_end", "NCCL would choose eno1", plan=NODES2),
    well("nccl_picks_dead_end", "NCCL would choose eno1", **two(interfaces=(LO, BRIDGE, UNPLUGGED, ETH, TUNNEL))),
    well("nccl_picks_dead_end", "NCCL would choose ib0", **two(interfaces=(LO, TUNNEL, ETH, IB0))),
    well("nccl_picks_dead_end", "NCCL would choose eno1",  # IPv4 addresses come first, whatever the order
        **two(interfaces=(LO, replace(SIX, name="cali1", routable=False, addresses=("fe80::1",)), ETH))),
    skips("nccl_picks_dead_end", "NCCL_SOCKET_IFNAME is set",
        env={"NCCL_SOCKET_IFNAME": "eno1"}, **two(interfaces=(LO, TUNNEL, ETH))),
    skips("nccl_picks_dead_end", "single-node run", network=network(interfaces=(LO, TUNNEL, ETH))),
    skips("nccl_picks_dead_end", "no interface has both a link", **two(interfaces=(DOWN,))),
    # nccl_picks_off_route
    warns("nccl_picks_off_route", "by default, NCCL would choose enp65s0; the route to node1 uses eno1",
        "export NCCL_SOCKET_IFNAME=eno1", **two(master=FAR, interfaces=(LO, OTHER, ETH))),
    well("nccl_picks_off_route", "NCCL would choose eno1", **two(master=FAR)),
    well("nccl_picks_off_route", "NCCL would choose ib0", **two(master=FAR, interfaces=(LO, ETH, IB0))),
    skips("nccl_picks_off_route", "the rendezvous node, or the route to it, is unknown",
        **two(interfaces=(LO, OTHER, ETH))),
    skips("nccl_picks_off_route", "the rendezvous node, or the route to it, is unknown",
        **two(master=HERE, interfaces=(LO, OTHER, ETH))),
    skips("nccl_picks_off_route", "single-node run", network=network(master=FAR, interfaces=(LO, OTHER, ETH))),
    # interfaces_ambiguous
    informs("interfaces_ambiguous", "NCCL may use any of enp65s0, eno1", "export NCCL_SOCKET_IFNAME=eno1",
        **two(interfaces=(LO, OTHER, ETH, BRIDGE))),
    well("interfaces_ambiguous", "NCCL can use only eno1", plan=NODES2),
    well("interfaces_ambiguous", "NCCL can use only ib0, ib1",
        **two(interfaces=(LO, IB0, replace(IB0, name="ib1", addresses=("10.51.0.7",)), ETH))),
    skips("interfaces_ambiguous", "NCCL_SOCKET_IFNAME is set",
        env={"NCCL_SOCKET_IFNAME": "eno1"}, **two(interfaces=(LO, OTHER, ETH))),
    skips("interfaces_ambiguous", "single-node run", network=network(interfaces=(LO, OTHER, ETH))),
    # network_leads_nowhere
    fails("network_leads_nowhere", "2 nodes, but no interface here leads to another one", "--network=host",
        **two(interfaces=(LO, BRIDGE))),
    fails("network_leads_nowhere", "no interface here leads to another one", "sudo ip link set eno2 up",
        **two(interfaces=(LO, DOWN, BRIDGE))),
    well("network_leads_nowhere", "eno1 leads out", plan=NODES2),
    skips("network_leads_nowhere", "single-node run", network=network(interfaces=(LO,))),
    skips("network_leads_nowhere", "cannot be listed", **two(interfaces=())),
    # network_ipv6_only
    informs("network_ipv6_only", "eno1 has no IPv4 address", "--rdzv-endpoint '[ADDRESS]:29500'",
        **two(interfaces=(LO, SIX, BRIDGE))),
    well("network_ipv6_only", "eno1 has an IPv4 address", plan=NODES2),
    skips("network_ipv6_only", "single-node run", network=network(interfaces=(LO, SIX))),
    skips("network_ipv6_only", "no interface leads out", **two(interfaces=(LO,))),
    skips("network_ipv6_only", "the address families are unknown", **two(interfaces=(LO, replace(ETH, ipv4=None)))),
    # interface_without_link
    warns("interface_without_link", "eno2 has an address but no link", "ethtool eno2",
        **two(interfaces=(LO, UNPLUGGED, ETH))),
    well("interface_without_link", "eno1 has a link", plan=NODES2),
    well("interface_without_link", "eno1 has a link",  # an onboard port that nobody uses has no address
        **two(interfaces=(LO, replace(UNPLUGGED, addresses=(), routable=False), ETH, replace(BRIDGE, running=False)))),
    skips("interface_without_link", "single-node run", network=network(interfaces=(LO, UNPLUGGED, ETH))),
    skips("interface_without_link", "no interface reports its link",
        **two(interfaces=(LO, replace(ETH, running=None)))),
    # interface_slow: 10 Gb/s
    warns("interface_slow", "2 nodes would communicate over eno1: 1 Gb/s", "accumulate gradients",
        infiniband=NO_INFINIBAND, **two(interfaces=(LO, replace(ETH, speed_mbit_per_s=1000)))),
    warns("interface_slow", "over eno1: 9.999 Gb/s", "accumulate",
        infiniband=NO_INFINIBAND, **two(interfaces=(LO, replace(ETH, speed_mbit_per_s=9_999)))),
    warns("interface_slow", "over eno1: 1 Gb/s", "export NCCL_SOCKET_IFNAME=enp65s0",
        infiniband=NO_INFINIBAND, **two(interfaces=(LO, replace(ETH, speed_mbit_per_s=1000), OTHER))),
    warns("interface_slow", "over eno1: 25 Gb/s, half duplex", "accumulate",
        infiniband=NO_INFINIBAND, **two(interfaces=(LO, replace(ETH, full_duplex=False)))),
    warns("interface_slow", "over eno1: 1 Gb/s", "accumulate",
        env={"NCCL_IB_DISABLE": "1"}, **two(interfaces=(LO, replace(ETH, speed_mbit_per_s=1000)))),
    warns("interface_slow", "over eno1: 1 Gb/s", "accumulate",
        infiniband=infiniband(hca(state="DOWN")), **two(interfaces=(LO, replace(ETH, speed_mbit_per_s=1000)))),
    well("interface_slow", "eno1 has 10 Gb/s",
        infiniband=NO_INFINIBAND, **two(interfaces=(LO, replace(ETH, speed_mbit_per_s=10_000)))),
    well("interface_slow", "4 RDMA ports are active", **two(interfaces=(LO, replace(ETH, speed_mbit_per_s=1000)))),
    skips("interface_slow", "single-node run"),
    skips("interface_slow", "eno1 does not report its speed",
        infiniband=NO_INFINIBAND, **two(interfaces=(LO, replace(ETH, speed_mbit_per_s=None)))),
    skips("interface_slow", "NCCL finds no interface to other nodes", infiniband=NO_INFINIBAND,
        **two(interfaces=(LO,))),
    # interface_mtu_differs
    warns("interface_mtu_differs", "ens0: MTU 1500, the other 3 of the same speed have 9000",
        "sudo ip link set ens0 mtu 9000", **two(interfaces=(LO, replace(RAILS[0], mtu=1500), *RAILS[1:]))),
    well("interface_mtu_differs", "4 equal interfaces, same MTU", **two(interfaces=(LO, *RAILS))),
    well("interface_mtu_differs", "same MTU",  # the management interface is another kind of thing
        **two(interfaces=(LO, replace(ETH, speed_mbit_per_s=1000), *RAILS))),
    well("interface_mtu_differs", "4 equal interfaces, same MTU",  # two against two: nobody can say which is odd
        **two(interfaces=(LO, *RAILS[:2], *(replace(rail, mtu=1500) for rail in RAILS[2:])))),
    skips("interface_mtu_differs", "fewer than three", **two(interfaces=(LO, replace(RAILS[0], mtu=1500), RAILS[1]))),
    skips("interface_mtu_differs", "single-node run", network=network(interfaces=(LO, *RAILS))),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


# NCCL user guide, NCCL_SOCKET_IFNAME: a comma list of prefixes, `^` excludes, `=` makes names exact; gloo: exact names.
@pytest.mark.parametrize(
    ("variable", "value", "status"),
    [
        ("NCCL_SOCKET_IFNAME", "en", "ok"),
        ("NCCL_SOCKET_IFNAME", "ib,en", "ok"),
        ("NCCL_SOCKET_IFNAME", "ib,eth", "fail"),
        ("NCCL_SOCKET_IFNAME", "ib, eno1", "fail"),  # the blank is part of the prefix
        ("NCCL_SOCKET_IFNAME", "=eno1", "ok"),
        ("NCCL_SOCKET_IFNAME", "=eno", "fail"),
        ("NCCL_SOCKET_IFNAME", "=ib0,eno1", "ok"),
        ("NCCL_SOCKET_IFNAME", "=eno1:1", "ok"),
        ("NCCL_SOCKET_IFNAME", "^docker", "ok"),
        ("NCCL_SOCKET_IFNAME", "^docker,lo,eno", "fail"),
        ("NCCL_SOCKET_IFNAME", "^=docker0,lo,eno", "ok"),
        ("NCCL_SOCKET_IFNAME", "^=docker0,lo,eno1", "fail"),
        ("NCCL_SOCKET_IFNAME", "", "skip"),
        ("NCCL_SOCKET_IFNAME", "x", "skip"),  # NCCL ignores a value of one letter
        ("GLOO_SOCKET_IFNAME", "eno1", "ok"),
        ("GLOO_SOCKET_IFNAME", "eno1,", "ok"),
        ("GLOO_SOCKET_IFNAME", "eno", "fail"),
        ("GLOO_SOCKET_IFNAME", "lo, eno1", "fail"),
        ("GLOO_SOCKET_IFNAME", "lo,ib0", "fail"),
        ("GLOO_SOCKET_IFNAME", "^docker0", "fail"),
    ],
)
def test_which_interfaces_a_value_names(variable: str, value: str, status: str) -> None:
    outcome = Case("socket_interface_missing", "ok", "", changes={"env": {variable: value}}).answer()
    assert outcome.status == status


def test_a_blank_in_a_list_of_interfaces_is_said() -> None:
    found = problem("socket_interface_missing", env={"NCCL_SOCKET_IFNAME": "ib0, eno1"})
    assert "space" in found.cause


def test_a_machine_saved_before_the_kinds_were_known_is_judged_by_what_it_has() -> None:
    old = tuple(Interface(i.name, i.up, i.loopback, i.addresses, i.virtual, i.mtu) for i in (LO, BRIDGE, ETH))
    facts = two(interfaces=old)
    assert Case("nccl_picks_dead_end", "ok", "eno1", changes=facts).answer().status == "ok"
    assert Case("network_leads_nowhere", "ok", "eno1", changes=facts).answer().status == "ok"
    assert Case("interface_without_link", "skip", "", changes=facts).answer().status == "skip"
