"""checks/environ; the tables behind it are tests/test_variables.py."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgpu import engine
from mgpu.snapshot import FACTS, Plan
from mgpu.snapshot.redaction import redact
from tests.checks.facts import (
    BARE,
    DOCKER,
    ETH,
    KUBERNETES,
    LO,
    NO_INFINIBAND,
    WHEEL,
    Case,
    config,
    driver,
    fails,
    gpus,
    hca,
    infiniband,
    informs,
    link,
    links,
    nccl,
    network,
    nic,
    pci,
    pci_device,
    pytorch,
    seen,
    skips,
    slurm,
    system,
    table,
    warns,
    well,
)
from tests.conftest import Run


def in_file(*lines: str, path: str = "/etc/nccl.conf", **changes: Any) -> dict[str, Any]:
    return {"nccl": nccl(config_files={path: lines}), **changes}


def loaded(version: str | None, **changes: Any) -> dict[str, Any]:
    """The facts of a machine that loads this NCCL."""
    return {"nccl": nccl(replace(WHEEL, version=version)), **changes}


TWO: dict[str, Any] = {"plan": Plan(nodes=2)}
ONE_GPU: dict[str, Any] = {"gpus": gpus(1), "links": ()}
NO_LIBRARY = replace(nccl(), libraries=())
# Four cards behind PCIe switches, two and two; peer access works.
PCIE: dict[str, Any] = {
    "gpus": gpus(4, name="NVIDIA A100-PCIE-40GB", compute_capability=(8, 0), nvlinks=()),
    "links": tuple(
        link(a, b, nvlinks=0, through_switch=False, topology="PIX" if (a, b) in ((0, 1), (2, 3)) else "SYS")
        for a in range(4)
        for b in range(a + 1, 4)
    ),
}
GEFORCE: dict[str, Any] = {
    "gpus": gpus(2, name="NVIDIA GeForce RTX 4090", compute_capability=(8, 9), nvlinks=()),
    "links": links(2, nvlinks=0, through_switch=False, topology="PIX", p2p_read=0, p2p_write=0),
}
UNKNOWN_LINKS: dict[str, Any] = {"links": links(4, nvlinks=None, p2p_read=None, p2p_write=None, topology=None)}
# Two professional cards, each on a root port of its own: NCCL lets them talk through the CPU on AMD only.
WORKSTATION: dict[str, Any] = {
    "gpus": gpus(2, name="NVIDIA RTX 6000 Ada Generation", compute_capability=(8, 9), nvlinks=()),
    "links": links(2, nvlinks=0, through_switch=False, topology="NODE"),
}
ROCE = infiniband(*(hca(n, link_layer="Ethernet", gid_types=("RoCE v2",)) for n in range(2)))
EFA = infiniband(hca(0, device="rdmap0s6", link_layer="EFA"))
# GPU 0 and its card under one PCIe switch, GPU 1 and another card under two of them.
SWITCHED = pci(
    pci_device(0, path=("pci0000:15", "0000:15:01.0", "0000:16:00.0", "0000:17:00.0")),
    nic(0, path=("pci0000:15", "0000:15:01.0", "0000:16:00.0", "0000:17:01.0")),
    pci_device(1, path=("pci0000:15", "0000:15:01.0", "0000:16:00.0", "0000:17:02.0", "0000:20:00.0", "0000:21:00.0")),
)
OFFLOADED = "distributed_type: FSDP\nnum_processes: 4\nfsdp_config:\n  fsdp_offload_params: true\n"
THREADS = ("--num_cpu_threads_per_process", "8")
DEEPSPEED = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
num_machines: 1
num_processes: 4
deepspeed_config:
  offload_optimizer_device: cpu
"""
IPV4_ONLY = tuple(replace(i, ipv4=True, ipv6=False) for i in (LO, ETH))

CASES = (
    # nccl_transport_disabled
    warns("nccl_transport_disabled", "NCCL_P2P_DISABLE=1", "unset NCCL_P2P_DISABLE", env={"NCCL_P2P_DISABLE": "1"}),
    warns("nccl_transport_disabled", "NCCL_P2P_DISABLE=1", "unset NCCL_P2P_DISABLE",
        env={"NCCL_P2P_DISABLE": " 1 "}, **PCIE),
    warns("nccl_transport_disabled", "NCCL_P2P_DISABLE=1, NCCL_SHM_DISABLE=1", "NCCL_P2P_DISABLE NCCL_SHM_DISABLE",
        env={"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}),
    warns("nccl_transport_disabled", "NCCL_SHM_DISABLE=1", "remove the line from /etc/nccl.conf",
        **in_file("NCCL_SHM_DISABLE=1"), **PCIE),
    warns("nccl_transport_disabled", "NCCL_SHM_DISABLE=1", "unset", env={"NCCL_SHM_DISABLE": "1"}, **GEFORCE),
    warns("nccl_transport_disabled", "NCCL_NVLS_ENABLE=0", "unset NCCL_NVLS_ENABLE", env={"NCCL_NVLS_ENABLE": "0"}),
    well("nccl_transport_disabled", "no transport is disabled"),
    well("nccl_transport_disabled", "no transport", env={"NCCL_P2P_DISABLE": "0", "NCCL_NET_GDR_LEVEL": "PXB"}),
    well("nccl_transport_disabled", "no transport", env={"NCCL_P2P_DISABLE": "2"}),  # only 1 counts
    # the environment wins; a blank before the = makes another name
    well("nccl_transport_disabled", "no transport",
        env={"NCCL_SHM_DISABLE": "0"}, **in_file("NCCL_SHM_DISABLE=1")),
    well("nccl_transport_disabled", "no transport", **in_file("NCCL_SHM_DISABLE = 1"), **PCIE),
    # switched off, and nothing is lost by it
    well("nccl_transport_disabled", "NCCL_P2P_DISABLE=1 has no effect", env={"NCCL_P2P_DISABLE": "1"}, **GEFORCE),
    well("nccl_transport_disabled", "NCCL_SHM_DISABLE=1 has no effect", env={"NCCL_SHM_DISABLE": "1"}),
    well("nccl_transport_disabled", "NCCL_NVLS_ENABLE=0 has no effect", env={"NCCL_NVLS_ENABLE": "0"}, **PCIE),
    well("nccl_transport_disabled", "has no effect", env={"NCCL_NVLS_ENABLE": "0"}, **loaded("2.16.5")),
    warns("nccl_transport_disabled", "NCCL_P2P_DISABLE=1", "unset",
        env={"NCCL_P2P_DISABLE": "1"}, pci=pci(cpu_vendor="amd"), **WORKSTATION),
    well("nccl_transport_disabled", "has no effect",
        env={"NCCL_P2P_DISABLE": "1"}, pci=pci(cpu_vendor="intel"), **WORKSTATION),
    well("nccl_transport_disabled", "one GPU", env={"NCCL_P2P_DISABLE": "1"}, **ONE_GPU),
    skips("nccl_transport_disabled", "is unknown", env={"NCCL_P2P_DISABLE": "1"}, **UNKNOWN_LINKS),
    skips("nccl_transport_disabled", "is unknown", env={"NCCL_SHM_DISABLE": "1"}, **UNKNOWN_LINKS),
    # nccl_network_disabled
    warns("nccl_network_disabled", "NCCL_IB_DISABLE=1, but 4", "unset NCCL_IB_DISABLE",
        env={"NCCL_IB_DISABLE": "1"}, **TWO),
    warns("nccl_network_disabled", "NCCL_NET=Socket, but 2", "unset NCCL_NET",
        env={"NCCL_NET": "Socket"}, infiniband=ROCE, slurm=slurm(nodes=2)),
    well("nccl_network_disabled", "no variable disables", env={"NCCL_IB_DISABLE": "0", "NCCL_NET": "IB"}, **TWO),
    well("nccl_network_disabled", "port is active", env={"NCCL_IB_DISABLE": "1"}, infiniband=NO_INFINIBAND, **TWO),
    well("nccl_network_disabled", "port is active", env={"NCCL_IB_DISABLE": "1"},
        infiniband=infiniband(hca(0, state="DOWN")), **TWO),
    skips("nccl_network_disabled", "single-node run", env={"NCCL_IB_DISABLE": "1"}),
    warns("cuda_variable_misspelt", "CUDA_VISIABLE_DEVICES instead of CUDA_VISIBLE_DEVICES",
        "unset CUDA_VISIABLE_DEVICES", env={"CUDA_VISIABLE_DEVICES": "0,1"}),
    well("cuda_variable_misspelt", "2 CUDA variables",
        env={"CUDA_DEVICE_MAX_COPY_CONNECTIONS": "1", "CUDA_HOME": "/usr/local/cuda"}),
    # nccl_variable_misspelt
    warns("nccl_variable_misspelt", "NCCL_SOCKET_IFNAM instead of NCCL_SOCKET_IFNAME", "unset NCCL_SOCKET_IFNAM",
        env={"NCCL_SOCKET_IFNAM": "eth0"}),
    warns("nccl_variable_misspelt", "NCCL_DISABLE_P2P instead of NCCL_P2P_DISABLE", "Use NCCL_P2P_DISABLE",
        env={"NCCL_DISABLE_P2P": "1"}),
    warns("nccl_variable_misspelt", "NCCL_DEBGU instead of NCCL_DEBUG", "/etc/nccl.conf", **in_file("NCCL_DEBGU=INFO")),
    warns("nccl_variable_misspelt", "NCCL_SOCKET_IFNAM instead of", "unset",
        env={"NCCL_SOCKET_IFNAM": "eth0"}, **loaded("2.33.1")),
    # newer than the names that are known: two letters may be a name of their own
    well("nccl_variable_misspelt", "no misspelled name", env={"NCCL_SOCKET_IFNAAM": "eth0"}, **loaded("2.33.1")),
    well("nccl_variable_misspelt", "no misspelled name among 3 NCCL variables",
        env={"NCCL_DEBUG": "WARN", "NCCL_VERSION": "2.29.7", "NCCL_FASTRAK_NUM_FLOWS": "2"}),
    skips("nccl_variable_misspelt", "ROCm", env={"NCCL_DISABLE_P2P": "1"}, pytorch=pytorch(cuda=None, hip="6.4")),
    # nccl_variable_unknown
    informs("nccl_variable_unknown", "NCCL_MAKE_IT_FAST: no NCCL up to 2.32.3 reads it", "unset NCCL_MAKE_IT_FAST",
        env={"NCCL_MAKE_IT_FAST": "1"}),
    well("nccl_variable_unknown", "4 NCCL variables set, all known",
        env={"NCCL_DEBUG": "WARN", "NCCL_TIMEOUT": "1", "NCCL_BLOCKING_WAIT": "0", "NCCL_TESTS_DEVICE": "0"}),
    well("nccl_variable_unknown", "0 NCCL variables"),
    skips("nccl_variable_unknown", "NCCL 2.33.1 may read", env={"NCCL_MAKE_IT_FAST": "1"}, **loaded("2.33.1")),
    skips("nccl_variable_unknown", "NCCL_NET_PLUGIN is set",
        env={"NCCL_MAKE_IT_FAST": "1", "NCCL_NET_PLUGIN": "fast"}),
    skips("nccl_variable_unknown", "ROCm", pytorch=pytorch(cuda=None, hip="6.4")),
    # nccl_variable_without_effect
    informs("nccl_variable_without_effect", "NCCL_TIMEOUT has no effect", "unset NCCL_TIMEOUT",
        env={"NCCL_TIMEOUT": "1800"}),
    informs("nccl_variable_without_effect", "NCCL_TIMEOUT, NCCL_LL_THRESHOLD have no effect", "unset",
        env={"NCCL_TIMEOUT": "1", "NCCL_LL_THRESHOLD": "0"}),
    informs("nccl_variable_without_effect", "NCCL_TREE_THRESHOLD", "remove the line from /etc/nccl.conf",
        **in_file("NCCL_TREE_THRESHOLD=0")),
    informs("nccl_variable_without_effect", "NCCL_IB_GDR_LEVEL has no effect", "unset",
        env={"NCCL_IB_GDR_LEVEL": "2"}, nccl=NO_LIBRARY),
    # new in 2.17, gone in 2.30.7
    informs("nccl_variable_without_effect", "NCCL_NVLS_ENABLE has no effect", "unset",
        env={"NCCL_NVLS_ENABLE": "0"}, **loaded("2.16.5")),
    informs("nccl_variable_without_effect", "NCCL_SHM_USE_CUDA_MEMCPY has no effect", "unset",
        env={"NCCL_SHM_USE_CUDA_MEMCPY": "1"}, **loaded("2.30.7")),
    well("nccl_variable_without_effect", "all of them read", env={"NCCL_NVLS_ENABLE": "0"}, **loaded("2.17.1")),
    well("nccl_variable_without_effect", "all of them read",
        env={"NCCL_SHM_USE_CUDA_MEMCPY": "1"}, **loaded("2.30.4")),
    well("nccl_variable_without_effect", "all of them read", env={"NCCL_NVLS_ENABLE": "0"}, nccl=NO_LIBRARY),
    well("nccl_variable_without_effect", "1 NCCL variable set, all of them read",
        env={"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "8"}),
    # variable_in_small_letters
    warns("variable_in_small_letters", "nccl_p2p_disable instead of NCCL_P2P_DISABLE", "unset nccl_p2p_disable",
        env={"nccl_p2p_disable": "1"}),
    warns("variable_in_small_letters", "Cuda_Visible_Devices instead of", "unset", env={"Cuda_Visible_Devices": "0"}),
    well("variable_in_small_letters", "in uppercase", env={"NCCL_DEBUG": "WARN", "nccl_whatever": "1"}),
    # nccl_file_overrides
    informs("nccl_file_overrides", "/etc/nccl.conf sets NCCL_DEBUG=WARN, NCCL_SOCKET_IFNAME==ens1f0",
        "cat /etc/nccl.conf", **in_file("NCCL_DEBUG=WARN", "NCCL_SOCKET_IFNAME==ens1f0")),
    informs("nccl_file_overrides", "/etc/nccl.conf sets NCCL_SOCKET_IFNAME=eth0", "cat",
        env={"NCCL_DEBUG": "INFO"}, **in_file("NCCL_DEBUG=WARN", "NCCL_SOCKET_IFNAME=eth0")),
    well("nccl_file_overrides", "sets nothing that the environment does not",
        env={"NCCL_DEBUG": "INFO"}, **in_file("NCCL_DEBUG=WARN")),
    well("nccl_file_overrides", "there is no nccl.conf"),
    # nccl_conf_file_missing
    warns("nccl_conf_file_missing", "NCCL_CONF_FILE=/opt/cluster.conf: no such file", "unset NCCL_CONF_FILE",
        env={"NCCL_CONF_FILE": "/opt/cluster.conf"}),
    well("nccl_conf_file_missing", "/home/ada/cluster.conf exists",
        env={"NCCL_CONF_FILE": "/home/ada/cluster.conf"}, **in_file(path="/home/ada/cluster.conf")),
    well("nccl_conf_file_missing", "not set"),
    skips("nccl_conf_file_missing", "NCCL 2.22.3 does not read it",
        env={"NCCL_CONF_FILE": "/opt/cluster.conf"}, **loaded("2.22.3")),
    # nccl_file_line_ignored
    warns("nccl_file_line_ignored", "/etc/nccl.conf: 'NCCL_DEBUG = INFO' has no effect", "without spaces.",
        **in_file("NCCL_DEBUG = INFO")),
    warns("nccl_file_line_ignored", "'export NCCL_DEBUG=INFO' has no effect, and 1 more", "without spaces.",
        **in_file("export NCCL_DEBUG=INFO", "NCCL_ALGO =Ring", path="/home/ada/.nccl.conf")),
    well("nccl_file_line_ignored", "2 lines of /etc/nccl.conf",
        **in_file("NCCL_DEBUG=INFO", "NCCL_SOCKET_IFNAME==eth0")),
    skips("nccl_file_line_ignored", "there is no nccl.conf"),
    # nccl_value_misread
    warns("nccl_value_misread", "NCCL_BUFFSIZE='4M': NCCL reads 4 and drops the unit", "unset NCCL_BUFFSIZE",
        env={"NCCL_BUFFSIZE": "4M"}),
    warns("nccl_value_misread", "NCCL_IB_DISABLE='true': NCCL reads 0", "unset", env={"NCCL_IB_DISABLE": "true"}),
    warns("nccl_value_misread", "NCCL_P2P_LEVEL='phb': it must be PHB in capitals", "unset",
        env={"NCCL_P2P_LEVEL": "phb"}),
    warns("nccl_value_misread", "NCCL_DEBUG='1'", "unset", env={"NCCL_DEBUG": "1"}),
    warns("nccl_value_misread", "NCCL_IB_TIMEOUT='0': 0 and 32 or more", "unset", env={"NCCL_IB_TIMEOUT": "0"}),
    warns("nccl_value_misread", "NCCL_IB_TIMEOUT='32'", "unset", env={"NCCL_IB_TIMEOUT": "32"}),
    warns("nccl_value_misread", "NCCL_MAX_CTAS='64'", "unset", env={"NCCL_MAX_CTAS": "64"}, **loaded("2.24.3")),
    warns("nccl_value_misread", "the quotes are part of the value", "unset", env={"NCCL_DEBUG": '"INFO"'}),
    warns("nccl_value_misread", "NCCL_NSOCKS_PERTHREAD='8': times NCCL_SOCKET_NTHREADS=9", "unset",
        env={"NCCL_SOCKET_NTHREADS": "9", "NCCL_NSOCKS_PERTHREAD": "8"}),
    warns("nccl_value_misread", "NCCL_ALGO='bogus'", "unset", env={"NCCL_ALGO": "bogus"}, **loaded("2.23.4")),
    warns("nccl_value_misread", "NCCL_CTA_POLICY='ZERO': names require NCCL 2.29", "remove the line",
        **loaded("2.28.9") | {"nccl": nccl(replace(WHEEL, version="2.28.9"),
        config_files={"/etc/nccl.conf": ("NCCL_CTA_POLICY=ZERO",)})}),
    well("nccl_value_misread", "1 NCCL variable set, all values valid",
        env={"NCCL_MAX_CTAS": "64"}, **loaded("2.25.1")),
    well("nccl_value_misread", "all values valid", env={"NCCL_IB_TIMEOUT": "31"}),
    well("nccl_value_misread", "all values valid", env={"NCCL_SOCKET_NTHREADS": "8", "NCCL_NSOCKS_PERTHREAD": "8"}),
    well("nccl_value_misread", "all values valid", env={"NCCL_NVLS_ENABLE": "many"},
        **loaded("2.16.5")),  # not read at all
    # nccl_value_refused
    fails("nccl_value_refused", "NCCL_ALGO='Rings': 'Rings' is unknown", "unset NCCL_ALGO",
        env={"NCCL_ALGO": "Rings"}, **loaded("2.24.3")),
    fails("nccl_value_refused", "NCCL_PROTO='Simple, LL'", "unset NCCL_PROTO", env={"NCCL_PROTO": "Simple, LL"}),
    well("nccl_value_refused", "stops NCCL", env={"NCCL_ALGO": "Rings"}, **loaded("2.23.4")),
    well("nccl_value_refused", "stops NCCL", env={"NCCL_ALGO": "Rings"}, nccl=NO_LIBRARY),
    well("nccl_value_refused", "stops NCCL", env={"NCCL_ALGO": "ring;allreduce:tree"}),
    skips("nccl_value_refused", "use gloo", env={"NCCL_ALGO": "Rings"}, plan=Plan(cpu_ranks=2)),
    skips("nccl_value_refused", "NCCL is not used with one GPU", env={"NCCL_ALGO": "Rings"}, visible=seen(0)),
    fails("nccl_value_refused", "is unknown", "unset", env={"NCCL_ALGO": "Rings"}, visible=seen(0), **TWO),
    # nccl_algorithm_incomplete
    fails("nccl_algorithm_incomplete", "NCCL_ALGO=Tree leaves broadcast and reduce", "unset NCCL_ALGO",
        env={"NCCL_ALGO": "Tree"}, **loaded("2.24.3")),
    fails("nccl_algorithm_incomplete", "NCCL_ALGO=^ring leaves", "unset", env={"NCCL_ALGO": "^ring"}),
    fails("nccl_algorithm_incomplete", "leaves reduce without", "unset",
        env={"NCCL_ALGO": "tree;broadcast:ring"}),
    well("nccl_algorithm_incomplete", "falls back to ring", env={"NCCL_ALGO": "Tree"}, **loaded("2.23.4")),
    well("nccl_algorithm_incomplete", "allows ring", env={"NCCL_ALGO": "allreduce:tree"}),
    well("nccl_algorithm_incomplete", "allows ring", env={"NCCL_ALGO": "Tree,Ring"}),
    well("nccl_algorithm_incomplete", "not set"),
    skips("nccl_algorithm_incomplete", "use gloo", env={"NCCL_ALGO": "Tree"}, plan=Plan(cpu_ranks=2)),
    skips("nccl_algorithm_incomplete", "one GPU", env={"NCCL_ALGO": "Tree"}, visible=seen(0), gpus=gpus(1)),
    skips("nccl_algorithm_incomplete", "is unknown", env={"NCCL_ALGO": "Tree"}, nccl=NO_LIBRARY),
    skips("nccl_algorithm_incomplete", "nccl_value_refused", env={"NCCL_ALGO": "Trees"}),
    # nccl_socket_family_absent
    fails("nccl_socket_family_absent", "NCCL_SOCKET_FAMILY=AF_INET6, but no interface", "unset NCCL_SOCKET_FAMILY",
        env={"NCCL_SOCKET_FAMILY": "AF_INET6"}, network=network(interfaces=IPV4_ONLY)),
    well("nccl_socket_family_absent", "eno1 has an AF_INET address",
        env={"NCCL_SOCKET_FAMILY": "AF_INET"}, network=network(interfaces=IPV4_ONLY)),
    well("nccl_socket_family_absent", "not set"),
    skips("nccl_socket_family_absent", "use gloo", plan=Plan(cpu_ranks=2),
        env={"NCCL_SOCKET_FAMILY": "AF_INET6"}, network=network(interfaces=IPV4_ONLY)),
    skips("nccl_socket_family_absent", "cannot be listed",
        env={"NCCL_SOCKET_FAMILY": "AF_INET6"}, network=network(interfaces=())),
    skips("nccl_socket_family_absent", "socket_interface_unusable",
        env={"NCCL_SOCKET_FAMILY": "AF_INET6", "NCCL_SOCKET_IFNAME": "eno"}),
    # nccl_log_overwritten
    informs("nccl_log_overwritten", "NCCL_DEBUG_FILE=/tmp/nccl.log: one file", "/tmp/nccl.log.%h.%p",
        env={"NCCL_DEBUG_FILE": "/tmp/nccl.log", "NCCL_DEBUG": "WARN"}),
    well("nccl_log_overwritten", "one file per rank",
        env={"NCCL_DEBUG_FILE": "/tmp/nccl.%p", "NCCL_DEBUG": "WARN"}),
    well("nccl_log_overwritten", "one file per", env={"NCCL_DEBUG_FILE": "/dev/stderr", "NCCL_DEBUG": "INFO"}),
    well("nccl_log_overwritten", "the output of each rank"),
    skips("nccl_log_overwritten", "NCCL_DEBUG enables no log", env={"NCCL_DEBUG_FILE": "/tmp/nccl.log"}),
    skips("nccl_log_overwritten", "one rank",
        env={"NCCL_DEBUG_FILE": "/tmp/nccl.log", "NCCL_DEBUG": "INFO"}, gpus=gpus(1)),
    # nccl_tuned_by_hand
    informs("nccl_tuned_by_hand", "2 NCCL debugging settings: NCCL_ALGO=Ring, NCCL_MIN_NCHANNELS=4",
        "unset NCCL_ALGO NCCL_MIN_NCHANNELS",
        env={"NCCL_ALGO": "Ring", "NCCL_MIN_NCHANNELS": "4", "NCCL_SOCKET_IFNAME": "eno"}),
    informs("nccl_tuned_by_hand", "1 NCCL debugging setting: NCCL_GRAPH_FILE=/tmp/rings.xml", "unset",
        env={"NCCL_GRAPH_FILE": "/tmp/rings.xml", "NCCL_TOPO_FILE": "/opt/topo.xml"}),
    well("nccl_tuned_by_hand", "no debugging setting is in effect",
        env={"NCCL_SOCKET_IFNAME": "eno1", "NCCL_P2P_DISABLE": "1", "NCCL_ALGO": "", "NCCL_IB_OOO_RQ": "1"}),
    # nccl_bandwidth_limited
    warns("nccl_bandwidth_limited", "NCCL_MAX_CTAS=1: one channel only", "unset NCCL_MAX_CTAS",
        env={"NCCL_MAX_CTAS": "1"}),
    warns("nccl_bandwidth_limited", "NCCL_PROTO=LL: only LL for everything", "unset", env={"NCCL_PROTO": "LL"}),
    warns("nccl_bandwidth_limited", "only LL for allreduce", "unset", env={"NCCL_PROTO": "Simple;allreduce:LL"}),
    well("nccl_bandwidth_limited", "not limited", env={"NCCL_MAX_CTAS": "2", "NCCL_PROTO": "LL,Simple"}),
    well("nccl_bandwidth_limited", "not limited", env={"NCCL_MAX_CTAS": "1"}, **loaded("2.16.5")),
    skips("nccl_bandwidth_limited", "one GPU", env={"NCCL_PROTO": "LL"}, **ONE_GPU),
    # nccl_ll128_forced
    warns("nccl_ll128_forced", "NCCL_PROTO=LL128,Simple forces LL128, but 6 of 6 GPU pairs have no NVLink",
        "unset NCCL_PROTO", env={"NCCL_PROTO": "LL128,Simple"}, **PCIE),
    well("nccl_ll128_forced", "NVLink connects every pair", env={"NCCL_PROTO": "LL128"}),
    well("nccl_ll128_forced", "does not force LL128", env={"NCCL_PROTO": "^LL128"}, **PCIE),
    well("nccl_ll128_forced", "does not force", env={"NCCL_PROTO": "Simple;allreduce:^LL,LL128"}, **PCIE),
    well("nccl_ll128_forced", "not set", **PCIE),
    skips("nccl_ll128_forced", "unknown", env={"NCCL_PROTO": "LL128"}, **UNKNOWN_LINKS),
    skips("nccl_ll128_forced", "fewer than two GPUs", env={"NCCL_PROTO": "LL128"}, links=()),
    # nccl_p2p_level_too_low
    warns("nccl_p2p_level_too_low", "NCCL_P2P_LEVEL=NVL disables direct transfers for 2 of 6", "unset NCCL_P2P_LEVEL",
        env={"NCCL_P2P_LEVEL": "NVL"}, **PCIE),
    warns("nccl_p2p_level_too_low", "NCCL_P2P_LEVEL=LOC disables direct transfers for 6", "unset",
        env={"NCCL_P2P_LEVEL": "LOC"}),
    warns("nccl_p2p_level_too_low", "NCCL_P2P_LEVEL=0 disables direct transfers for 6", "unset",
        env={"NCCL_P2P_LEVEL": "0"}),
    warns("nccl_p2p_level_too_low", "NCCL_P2P_LEVEL=PXB disables direct transfers for 1 of 1", "unset",
        env={"NCCL_P2P_LEVEL": "PXB"}, pci=pci(cpu_vendor="amd"), **WORKSTATION),
    well("nccl_p2p_level_too_low", "allows every direct transfer",
        env={"NCCL_P2P_LEVEL": "PHB"}, pci=pci(cpu_vendor="amd"), **WORKSTATION),
    well("nccl_p2p_level_too_low", "allows every direct transfer", env={"NCCL_P2P_LEVEL": "PIX"}, **PCIE),
    well("nccl_p2p_level_too_low", "allows every direct transfer", env={"NCCL_P2P_LEVEL": "NVL"}),
    well("nccl_p2p_level_too_low", "not set"),
    skips("nccl_p2p_level_too_low", "nccl_value_misread", env={"NCCL_P2P_LEVEL": "nvl"}),
    skips("nccl_p2p_level_too_low", "NCCL_P2P_DISABLE is on",
        env={"NCCL_P2P_LEVEL": "LOC", "NCCL_P2P_DISABLE": "1"}),
    skips("nccl_p2p_level_too_low", "unknown", env={"NCCL_P2P_LEVEL": "LOC"}, **UNKNOWN_LINKS),
    # nccl_gdr_level_too_low
    warns("nccl_gdr_level_too_low", "NCCL_NET_GDR_LEVEL=LOC disables GPUDirect RDMA for 2 GPUs",
        "unset NCCL_NET_GDR_LEVEL",
        env={"NCCL_NET_GDR_LEVEL": "LOC"}, pci=SWITCHED, infiniband=infiniband(hca(0)), **TWO),
    warns("nccl_gdr_level_too_low", "NCCL_NET_GDR_LEVEL=PIX disables GPUDirect RDMA for 1 GPU", "unset",
        env={"NCCL_NET_GDR_LEVEL": "PIX"}, pci=SWITCHED, infiniband=infiniband(hca(0)), slurm=slurm(nodes=2)),
    well("nccl_gdr_level_too_low", "the default", env={"NCCL_NET_GDR_LEVEL": "PHB"}, pci=SWITCHED, **TWO),
    well("nccl_gdr_level_too_low", "includes every adapter",
        env={"NCCL_NET_GDR_LEVEL": "PIX"}, pci=SWITCHED, infiniband=infiniband(hca(0)), gpus=gpus(1), **TWO),
    well("nccl_gdr_level_too_low", "not set"),
    skips("nccl_gdr_level_too_low", "single-node run", env={"NCCL_NET_GDR_LEVEL": "LOC"}),
    skips("nccl_gdr_level_too_low", "nccl_value_misread", env={"NCCL_NET_GDR_LEVEL": "near"}, **TWO),
    skips("nccl_gdr_level_too_low", "near a GPU",
        env={"NCCL_NET_GDR_LEVEL": "LOC"}, infiniband=NO_INFINIBAND, **TWO),
    # nccl_gid_index_prescribed
    warns("nccl_gid_index_prescribed", "NCCL_IB_GID_INDEX=3, but NCCL 2.21.5", "unset NCCL_IB_GID_INDEX",
        env={"NCCL_IB_GID_INDEX": "3"}, infiniband=ROCE, **loaded("2.21.5"), **TWO),
    well("nccl_gid_index_prescribed", "NCCL 2.20.5 needs it",
        env={"NCCL_IB_GID_INDEX": "3"}, infiniband=ROCE, **loaded("2.20.5"), **TWO),
    well("nccl_gid_index_prescribed", "no RoCE port is active", env={"NCCL_IB_GID_INDEX": "3"}, **TWO),
    well("nccl_gid_index_prescribed", "not set", env={"NCCL_IB_GID_INDEX": "-1"}),
    skips("nccl_gid_index_prescribed", "single-node run", env={"NCCL_IB_GID_INDEX": "3"}, infiniband=ROCE),
    skips("nccl_gid_index_prescribed", "unknown",
        env={"NCCL_IB_GID_INDEX": "3"}, infiniband=ROCE, nccl=NO_LIBRARY, **TWO),
    # nccl_host_buffers_fail
    warns("nccl_host_buffers_fail", "NCCL 2.26.2 in a docker container that blocks NUMA calls",
        "--cap-add SYS_NICE", container=replace(DOCKER, mempolicy=False), **loaded("2.26.2")),
    warns("nccl_host_buffers_fail", "NCCL 2.24.3", "export NCCL_CUMEM_HOST_ENABLE=0",
        container=replace(DOCKER, mempolicy=False), driver=driver(cuda_version=(12, 6)), **loaded("2.24.3")),
    well("nccl_host_buffers_fail", "checks for them first",
        container=replace(DOCKER, mempolicy=False), **loaded("2.26.3")),
    well("nccl_host_buffers_fail", "does not need them,",
        container=replace(DOCKER, mempolicy=False), **loaded("2.23.4")),
    well("nccl_host_buffers_fail", "not used here",
        container=replace(DOCKER, mempolicy=False), driver=driver(cuda_version=(12, 5)), **loaded("2.26.2")),
    well("nccl_host_buffers_fail", "allows NUMA calls", container=replace(DOCKER, mempolicy=True), **loaded("2.26.2")),
    well("nccl_host_buffers_fail", "disabled", env={"NCCL_CUMEM_HOST_ENABLE": "0"},
        container=replace(DOCKER, mempolicy=False), **loaded("2.26.2")),
    skips("nccl_host_buffers_fail", "not a container", container=BARE, **loaded("2.26.2")),
    skips("nccl_host_buffers_fail", "unknown", container=replace(DOCKER, mempolicy=None), **loaded("2.26.2")),
    skips("nccl_host_buffers_fail", "no NCCL library", nccl=NO_LIBRARY),
    # nccl_debug_leftover
    *(
        warns("nccl_debug_leftover", f"{name}={value}", f"unset {name}", env={name: value})
        for name, value in (
            ("NCCL_DEBUG", "TRACE"),
            ("NCCL_DEBUG", "trace"),
            ("TORCH_DISTRIBUTED_DEBUG", "DETAIL"),
            ("CUDA_LAUNCH_BLOCKING", "1"),
            ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),
            ("TORCH_NCCL_DESYNC_DEBUG", "true"),
            ("TORCH_NCCL_BLOCKING_WAIT", "1"),
            ("TORCH_NCCL_NAN_CHECK", "yes"),
            ("ACCELERATE_DEBUG_MODE", "true"),
        )
    ),
    well("nccl_debug_leftover", "no debugging mode",
        env={"NCCL_DEBUG": "INFO", "TORCH_DISTRIBUTED_DEBUG": "INFO", "CUDA_LAUNCH_BLOCKING": "0"}),
    warns("nccl_debug_leftover", "NCCL_DEBUG=TRACE", "/etc/nccl.conf",
        **in_file("NCCL_DEBUG=TRACE")),
    # nccl_debug_verbose
    informs("nccl_debug_verbose", "NCCL_DEBUG=INFO", "export NCCL_DEBUG=WARN", env={"NCCL_DEBUG": "INFO"}),
    informs("nccl_debug_verbose", "NCCL_DEBUG=info, NCCL_DEBUG_SUBSYS=INIT,coll", "WARN",
        env={"NCCL_DEBUG": "info", "NCCL_DEBUG_SUBSYS": "INIT,coll"}),
    well("nccl_debug_verbose", "NCCL_DEBUG=WARN", env={"NCCL_DEBUG": "WARN", "NCCL_DEBUG_SUBSYS": "ALL"}),
    well("nccl_debug_verbose", "warnings at most"),
    # cuda_debugging_left
    *(
        warns("cuda_debugging_left", f"{name}=1", f"unset {name}", env={name: "1"})
        for name in ("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "CUDA_DEVICE_WAITS_ON_EXCEPTION", "CUDA_FORCE_PTX_JIT")
    ),
    well("cuda_debugging_left", "no CUDA debugger setting is on",
        env={"CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "0", "CUDA_HOME": "/usr"}),
    # cuda_injection_set
    informs("cuda_injection_set", "CUDA_INJECTION64_PATH=/opt/spy.so", "unset CUDA_INJECTION64_PATH",
        env={"CUDA_INJECTION64_PATH": "/opt/spy.so"}),
    well("cuda_injection_set", "no library", env={"CUDA_INJECTION64_PATH": ""}),
    # nccl_errors_not_raised
    warns("nccl_errors_not_raised", "TORCH_NCCL_ASYNC_ERROR_HANDLING=0", "unset TORCH_NCCL_ASYNC_ERROR_HANDLING",
        env={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    warns("nccl_errors_not_raised", "NCCL_ASYNC_ERROR_HANDLING=0", "unset", env={"NCCL_ASYNC_ERROR_HANDLING": "0"}),
    warns("nccl_errors_not_raised", "TORCH_NCCL_ENABLE_MONITORING=False", "unset",
        env={"TORCH_NCCL_ENABLE_MONITORING": "False"}),
    well("nccl_errors_not_raised", "stop the run",
        env={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3", "TORCH_NCCL_ENABLE_MONITORING": "1"}),
    well("nccl_errors_not_raised", "stop the run"),
    well("nccl_errors_not_raised", "stop the run",  # that is torch_number_unreadable's
        env={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "false"}),
    # torch_boolean_unreadable
    fails("torch_boolean_unreadable", "TORCH_NCCL_BLOCKING_WAIT='on'", "unset TORCH_NCCL_BLOCKING_WAIT",
        env={"TORCH_NCCL_BLOCKING_WAIT": "on"}),
    fails("torch_boolean_unreadable", "TORCH_NCCL_ENABLE_TIMING='2'", "Use 1 or 0",
        env={"TORCH_NCCL_ENABLE_TIMING": "2"}),
    fails("torch_boolean_unreadable", "TORCH_NCCL_NAN_CHECK=''", "Use 1 or 0", env={"TORCH_NCCL_NAN_CHECK": ""}),
    fails("torch_boolean_unreadable", "TORCH_GLOO_LAZY_INIT='on'", "unset", env={"TORCH_GLOO_LAZY_INIT": "on"}),
    skips("torch_boolean_unreadable", "NCCL is not used",  # gloo does not look at them
        env={"TORCH_NCCL_BLOCKING_WAIT": "on"}, plan=Plan(cpu_ranks=2)),
    skips("torch_boolean_unreadable", "NCCL is not", env={"TORCH_NCCL_BLOCKING_WAIT": "on"}, visible=seen(0)),
    fails("torch_boolean_unreadable", "TORCH_GLOO_LAZY_INIT='on'", "unset",
        env={"TORCH_NCCL_BLOCKING_WAIT": "on", "TORCH_GLOO_LAZY_INIT": "on"}, plan=Plan(cpu_ranks=2)),
    well("torch_boolean_unreadable",
        "all torch.distributed switches are valid",  # PyTorch warns of this one, and goes on
        env={"TORCH_NCCL_USE_COMM_NONBLOCKING": "yes"}),
    *(
        well("torch_boolean_unreadable", "all torch.distributed switches are valid",
            env={"TORCH_NCCL_BLOCKING_WAIT": word})
        for word in ("1", "0", "Yes", "TRUE", "n", "f")
    ),
    # torch_number_unreadable
    fails("torch_number_unreadable", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC='ten'", "Write a number",
        env={"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "ten"}),
    fails("torch_number_unreadable", "TORCH_FR_BUFFER_SIZE=''", "unset", env={"TORCH_FR_BUFFER_SIZE": ""}),
    well("torch_number_unreadable", "all torch.distributed numbers are valid",
        env={"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "600s", "TORCH_FR_BUFFER_SIZE": " 2000"}),
    fails("torch_number_unreadable", "TORCH_DIST_INIT_BARRIER='x'", "unset",
        env={"TORCH_DIST_INIT_BARRIER": "x", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "x"}, plan=Plan(cpu_ranks=2)),
    skips("torch_number_unreadable", "NCCL is not", env={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "x"}, visible=seen(0)),
    # torch_debug_level_unknown
    fails("torch_debug_level_unknown", "TORCH_DISTRIBUTED_DEBUG='1'", "unset", env={"TORCH_DISTRIBUTED_DEBUG": "1"}),
    fails("torch_debug_level_unknown", "TORCH_DISTRIBUTED_DEBUG=''", "unset", env={"TORCH_DISTRIBUTED_DEBUG": ""}),
    well("torch_debug_level_unknown", "is detail", env={"TORCH_DISTRIBUTED_DEBUG": "detail"}),
    well("torch_debug_level_unknown", "not set"),
    # torch_variable_misspelt
    warns("torch_variable_misspelt", "TORCH_NCCL_ASYNC_ERROR_HANDLNG instead of",
        "unset TORCH_NCCL_ASYNC_ERROR_HANDLNG",
        env={"TORCH_NCCL_ASYNC_ERROR_HANDLNG": "1"}),
    warns("torch_variable_misspelt", "GLOO_SOCKET_IFNAMES instead of GLOO_SOCKET_IFNAME", "unset",
        env={"GLOO_SOCKET_IFNAMES": "eth0"}),
    warns("torch_variable_misspelt", "PYTORCH_CUDA_ALOC_CONF instead of PYTORCH_CUDA_ALLOC_CONF",
        "Use PYTORCH_CUDA_ALLOC_CONF, or remove it.",
        env={"PYTORCH_CUDA_ALOC_CONF": "expandable_segments:True"}),
    well("torch_variable_misspelt", "no misspelled",
        env={"TORCH_NCCL_NAN_CHECK": "0", "TORCH_NCCL_SOMETHING_NEW": "1", "TORCH_HOME": "/x"}),
    # torch_names_contradict
    warns("torch_names_contradict", "NCCL_BLOCKING_WAIT=1, but TORCH_NCCL_BLOCKING_WAIT=0", "unset NCCL_BLOCKING_WAIT",
        env={"NCCL_BLOCKING_WAIT": "1", "TORCH_NCCL_BLOCKING_WAIT": "0"}),
    well("torch_names_contradict", "set under two names",
        env={"NCCL_BLOCKING_WAIT": "1", "TORCH_NCCL_BLOCKING_WAIT": "1"}),
    # torch_name_outdated
    informs("torch_name_outdated", "NCCL_ASYNC_ERROR_HANDLING is TORCH_NCCL_ASYNC_ERROR_HANDLING", "unset",
        env={"NCCL_ASYNC_ERROR_HANDLING": "1"}, pytorch=pytorch(version="2.2.0")),
    informs("torch_name_outdated", "TORCH_NCCL_ASYNC_ERROR_HANDLING is NCCL_ASYNC_ERROR_HANDLING", "unset",
        env={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}, pytorch=pytorch(version="2.1.2")),
    well("torch_name_outdated", "are those of",
        env={"NCCL_ASYNC_ERROR_HANDLING": "1"}, pytorch=pytorch(version="2.1.2")),
    well("torch_name_outdated", "are those of", env={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}),
    skips("torch_name_outdated", "unknown", pytorch=pytorch(version=None)),
    # allocator_option_refused
    fails("allocator_option_refused", "expandable_segments: must be exactly True or False",
        "unset PYTORCH_CUDA_ALLOC_CONF",
        env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:true"}),
    fails("allocator_option_refused", "expandable_segment: PyTorch has no such option", "unset PYTORCH_ALLOC_CONF",
        env={"PYTORCH_ALLOC_CONF": "expandable_segment:True"}),
    fails("allocator_option_refused", "max_split_size_mb: must be at least 20", "unset",
        env={"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:19"}),
    well("allocator_option_refused", "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:20",
        env={"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:20"}),
    well("allocator_option_refused", "not configured"),
    well("allocator_option_refused", "not configured",  # 2.7 does not look at the new name
        env={"PYTORCH_ALLOC_CONF": "x:1"}, pytorch=pytorch(version="2.7.1")),
    well("allocator_option_refused", "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:20",  # … nor 2.13 beside the old one
        env={"PYTORCH_ALLOC_CONF": "x:1", "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:20"},
        pytorch=pytorch(version="2.13.0")),
    skips("allocator_option_refused", "which one PyTorch 2.9.0+cu130 reads is unknown",
        env={"PYTORCH_ALLOC_CONF": "x:1", "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:20"}),
    skips("allocator_option_refused", "may have options",
        env={"PYTORCH_CUDA_ALLOC_CONF": "faster:True"}, pytorch=pytorch(version="2.16.0")),
    fails("allocator_option_refused", "expandable_segments: must be exactly True or False", "unset",
        env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:true"}, pytorch=pytorch(version="2.16.0")),
    skips("allocator_option_refused", "a CPU rehearsal",
        env={"PYTORCH_CUDA_ALLOC_CONF": "x"}, plan=Plan(cpu_ranks=2)),
    skips("allocator_option_refused", "CPU build",
        env={"PYTORCH_CUDA_ALLOC_CONF": "x"}, pytorch=pytorch(cuda=None)),
    # allocator_setting_ignored
    warns("allocator_setting_ignored", "PyTorch 2.7.1 does not read PYTORCH_ALLOC_CONF",
        "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        env={"PYTORCH_ALLOC_CONF": "expandable_segments:True"}, pytorch=pytorch(version="2.7.1")),
    warns("allocator_setting_ignored", "2.9.0+cu130 drops expandable_segments", "export PYTORCH_CUDA_ALLOC_CONF",
        env={"PYTORCH_ALLOC_CONF": "expandable_segments:True"}),
    *(
        warns("allocator_setting_ignored", words, "unset PYTORCH_ALLOC_CONF",
            env={"PYTORCH_ALLOC_CONF": "backend:native", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
            pytorch=pytorch(version=version))
        for version, words in (
            ("2.7.1", "PYTORCH_CUDA_ALLOC_CONF takes precedence"),
            ("2.12.0", "PyTorch 2.12.0 reads one of the two"),
            ("2.13.0", "PYTORCH_CUDA_ALLOC_CONF takes precedence"),
        )
    ),
    warns("allocator_setting_ignored", "ignores expandable_segments", "backend:cudaMallocAsync",
        env={"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync,expandable_segments:True"}),
    well("allocator_setting_ignored", "PYTORCH_ALLOC_CONF=expandable_segments:True",
        env={"PYTORCH_ALLOC_CONF": "expandable_segments:True"}, pytorch=pytorch(version="2.10.0")),
    well("allocator_setting_ignored", "PYTORCH_CUDA_ALLOC_CONF=",
        env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    well("allocator_setting_ignored", "not configured"),
    skips("allocator_setting_ignored", "not a CUDA build",
        env={"PYTORCH_ALLOC_CONF": "x"}, pytorch=pytorch(cuda=None)),
    skips("allocator_setting_ignored", "unknown", env={"PYTORCH_ALLOC_CONF": "x"}, pytorch=pytorch(version=None)),
    # expandable_segments_exclude_registration
    informs("expandable_segments_exclude_registration", "expandable_segments:True with TORCH_NCCL_USE_TENSOR",
        "unset TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
        env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
             "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK": "1"}),
    well("expandable_segments_exclude_registration", "no memory setting",
        env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False",
             "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK": "1"}),
    # gloo_leaves_nccl_interface
    informs("gloo_leaves_nccl_interface", "NCCL is set to use eno1, but gloo uses docker0",
        "export GLOO_SOCKET_IFNAME=eno1",
        env={"NCCL_SOCKET_IFNAME": "eno", "GLOO_SOCKET_IFNAME": "docker0"}, **TWO),
    informs("gloo_leaves_nccl_interface", "NCCL is set to use docker0, but gloo uses eno1",
        "export GLOO_SOCKET_IFNAME=docker0",
        env={"NCCL_SOCKET_IFNAME": "docker"}, **TWO),
    well("gloo_leaves_nccl_interface", "both use eno1", env={"NCCL_SOCKET_IFNAME": "eno"}, **TWO),
    well("gloo_leaves_nccl_interface", "no interface is set for NCCL", env={"GLOO_SOCKET_IFNAME": "eno1"}, **TWO),
    skips("gloo_leaves_nccl_interface", "single-node run", env={"NCCL_SOCKET_IFNAME": "docker"}),
    skips("gloo_leaves_nccl_interface", "socket_interface_missing", env={"NCCL_SOCKET_IFNAME": "ib"}, **TWO),
    skips("gloo_leaves_nccl_interface", "unknown",
        env={"NCCL_SOCKET_IFNAME": "eno"}, network=network(hostname_addresses=()), **TWO),
    # gloo_transport_unknown
    warns("gloo_transport_unknown", "GLOO_DEVICE_TRANSPORT='tcp'", "unset", env={"GLOO_DEVICE_TRANSPORT": "tcp"}),
    well("gloo_transport_unknown", "is TCP", env={"GLOO_DEVICE_TRANSPORT": "TCP"}),
    well("gloo_transport_unknown", "not set"),
    # omp_threads_not_a_number
    fails("omp_threads_not_a_number", "OMP_NUM_THREADS='4,2'", "unset OMP_NUM_THREADS", env={"OMP_NUM_THREADS": "4,2"}),
    *(  # accelerate takes them
        well("omp_threads_not_a_number", f"OMP_NUM_THREADS={value}", env={"OMP_NUM_THREADS": value})
        for value in ("0", "-1", "+2")
    ),
    fails("omp_threads_not_a_number", "OMP_NUM_THREADS=''", "unset", env={"OMP_NUM_THREADS": ""}),
    fails("omp_threads_not_a_number", "OMP_NUM_THREADS='²'", "unset",
        env={"OMP_NUM_THREADS": "²"}),
    well("omp_threads_not_a_number", "OMP_NUM_THREADS=1", env={"OMP_NUM_THREADS": "1"}),
    well("omp_threads_not_a_number", "OMP_NUM_THREADS= 8 ", env={"OMP_NUM_THREADS": " 8 "}),
    skips("omp_threads_not_a_number", "not set"),
    # omp_threads_exceed_cpus: 4 ranks, 96 CPUs
    warns("omp_threads_exceed_cpus", "OMP_NUM_THREADS=25 for 4 ranks: 100 threads on 96 CPUs",
        "export OMP_NUM_THREADS=24", env={"OMP_NUM_THREADS": "25"}),
    warns("omp_threads_exceed_cpus", "MKL_NUM_THREADS=96", "export MKL_NUM_THREADS=24",
        env={"OMP_NUM_THREADS": "8", "MKL_NUM_THREADS": "96"}),
    well("omp_threads_exceed_cpus", "OMP_NUM_THREADS=24 for 4 ranks and 96 CPUs", env={"OMP_NUM_THREADS": "24"}),
    well("omp_threads_exceed_cpus", "OMP_NUM_THREADS=1",
        env={"OMP_NUM_THREADS": "1"}, system=system(cpus_allowed=2)),
    well("omp_threads_exceed_cpus", "one thread"),
    skips("omp_threads_exceed_cpus", "unknown", env={"OMP_NUM_THREADS": "25"}, gpus=(), visible=seen()),
    # omp_threads_too_few
    warns("omp_threads_too_few", "1 thread for each of 4 ranks on 96 CPUs", "export OMP_NUM_THREADS=24",
        config=config(DEEPSPEED)),
    warns("omp_threads_too_few", "1 thread", "export OMP_NUM_THREADS=24",
        env={"OMP_NUM_THREADS": "1"}, config=config(OFFLOADED, launch_flags=THREADS)),
    warns("omp_threads_too_few", "1 thread", "export OMP_NUM_THREADS=24", config=config(OFFLOADED)),
    warns("omp_threads_too_few", "1 thread", "export OMP_NUM_THREADS=24",  # it does not reach DeepSpeed's ranks
        config=config(DEEPSPEED, launch_flags=THREADS)),
    well("omp_threads_too_few", "24 threads", env={"OMP_NUM_THREADS": "24"}, config=config(DEEPSPEED)),
    well("omp_threads_too_few", "8 threads", config=config(OFFLOADED, launch_flags=THREADS)),
    well("omp_threads_too_few", "1 thread", config=config(DEEPSPEED), system=system(cpus_allowed=7)),
    skips("omp_threads_too_few", "the number of ranks is not known",
        config=config(DEEPSPEED.replace("num_processes: 4\n", ""))),
    well("omp_threads_too_few", "1 rank: neither", config=config(DEEPSPEED.replace("processes: 4", "processes: 1"))),
    warns("omp_threads_too_few", "1 thread for each of 1 rank", "export OMP_NUM_THREADS=96",
        env={"OMP_NUM_THREADS": "1"}, config=config(DEEPSPEED.replace("processes: 4", "processes: 1"))),
    warns("omp_threads_too_few", "1 thread for each of 1 rank", "export OMP_NUM_THREADS=96",  # FSDP's launcher sets it
        config=config(OFFLOADED.replace("processes: 4", "processes: 1"))),
    skips("omp_threads_too_few", "nothing is offloaded"),
    # launcher_variables_left
    warns("launcher_variables_left", "RANK=0, WORLD_SIZE=8", "unset RANK WORLD_SIZE",
        env={"WORLD_SIZE": "8", "RANK": "0"}),
    warns("launcher_variables_left", "MASTER_ADDR=10.0.0.1", "unset MASTER_ADDR", env={"MASTER_ADDR": "10.0.0.1"}),
    warns("launcher_variables_left", "TORCHELASTIC_USE_AGENT_STORE=True", "unset",
        env={"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "none"}),
    warns("launcher_variables_left", "RANK=0", "unset", env={"RANK": "0"}, container=KUBERNETES),
    well("launcher_variables_left", "set for this pod: rank 1 of 2", container=KUBERNETES,
        env={"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "job-0", "MASTER_PORT": "23456"}),
    well("launcher_variables_left", "no rank variables", env={"NCCL_DEBUG": "INFO"}),
    *(
        skips("launcher_variables_left", "a launcher started this shell",
            env={"RANK": "0", name: "0"})
        for name in ("SLURM_PROCID", "TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
    ),
    # torchrun_variables_left
    fails("torchrun_variables_left", "PET_NNODES=2", "unset PET_NNODES", env={"PET_NNODES": "2"}),
    fails("torchrun_variables_left", "PET_NNODES=1:4, PET_MASTER_ADDR=job-0", "unset PET_NNODES PET_MASTER_ADDR",
        env={"PET_NNODES": "1:4", "PET_MASTER_ADDR": "job-0", "PET_MASTER_PORT": "29500"}),
    fails("torchrun_variables_left", "PET_NODE_RANK=1", "unset", env={"PET_NODE_RANK": "1"}),
    fails("torchrun_variables_left", "PET_RDZV_ENDPOINT=job-0:29400", "unset",
        env={"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "job-0:29400"}),
    well("torchrun_variables_left", "as planned", env={"PET_RDZV_ENDPOINT": "job-0:29400"}),  # "static" has none
    # an operator's variables for one machine; the port and the number of ranks accelerate sets itself
    well("torchrun_variables_left", "PET_MASTER_ADDR=node7, as planned", env={
        "PET_NNODES": "1", "PET_NPROC_PER_NODE": "8", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "node7",
        "PET_MASTER_PORT": "29500"}),
    well("torchrun_variables_left", "no PET_ variable", env={"PET_NPROC_PER_NODE": "8"}),
    well("torchrun_variables_left", "no PET_ variable", env={"PET_NPROC_PER_NODE": "8"}, **TWO),
    fails("torchrun_variables_left", "PET_NNODES=3", "unset", env={"PET_NNODES": "3"}, **TWO),
    well("torchrun_variables_left", "PET_MASTER_ADDR=job-0, as planned",
        env={"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "job-0"}, **TWO),
    well("torchrun_variables_left", "as planned", env={"PET_NNODES": "1", "PET_NODE_RANK": "0"}),
    well("torchrun_variables_left", "no PET_ variable", env={"PET_LOG_DIR": "/tmp"}),
    skips("torchrun_variables_left", "node 1 of 2",
        env={"PET_NNODES": "2", "PET_NODE_RANK": "1"}, container=KUBERNETES),
    # accelerate_variables_left
    warns("accelerate_variables_left", "ACCELERATE_USE_CPU=true", "unset ACCELERATE_USE_CPU",
        env={"ACCELERATE_USE_CPU": "true"}),
    warns("accelerate_variables_left", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS=8", "unset",
        env={"ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "8"}),
    well("accelerate_variables_left", "no ACCELERATE_ variable",
        env={"ACCELERATE_USE_FSDP": "false", "ACCELERATE_MIXED_PRECISION": "bf16"}),
    well("accelerate_variables_left", "no ACCELERATE_", env={"ACCELERATE_USE_CPU": "1"}, plan=Plan(cpu_ranks=2)),
    skips("accelerate_variables_left", "a launcher started", env={"ACCELERATE_USE_CPU": "1", "SLURM_PROCID": "0"}),
    # libfabric_provider_not_efa
    warns("libfabric_provider_not_efa", "FI_PROVIDER=tcp excludes 1 EFA adapter", "export FI_PROVIDER=efa",
        env={"FI_PROVIDER": "tcp"}, infiniband=EFA, **TWO),
    warns("libfabric_provider_not_efa", "FI_PROVIDER=^efa", "efa", env={"FI_PROVIDER": "^efa"}, infiniband=EFA, **TWO),
    well("libfabric_provider_not_efa", "allows EFA", env={"FI_PROVIDER": "tcp,EFA"}, infiniband=EFA, **TWO),
    well("libfabric_provider_not_efa", "allows EFA", env={"FI_PROVIDER": "^tcp"}, infiniband=EFA, **TWO),
    well("libfabric_provider_not_efa", "not set", infiniband=EFA),
    skips("libfabric_provider_not_efa", "no EFA adapter", env={"FI_PROVIDER": "tcp"}, **TWO),
    skips("libfabric_provider_not_efa", "single-node run", env={"FI_PROVIDER": "tcp"}, infiniband=EFA),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_redaction_changes_no_verdict() -> None:
    """The first case of each check on a whole machine; the others with the facts that the check and names are made of,
    as redacting everything takes 20 ms."""
    whole = set[str]()
    for case in CASES:
        known = {*case.asked.facts, *case.changes, "host", "network", "storage"}
        dropped: dict[str, Any] = {} if case.check not in whole else {name: None for name in FACTS if name not in known}
        whole.add(case.check)
        outcomes = engine.run_check(case.asked, redact(replace(case.snapshot, **dropped)))
        assert [outcome.status for outcome in outcomes] == [case.status], case


# What a shell may hold, and which check names it. None of it needs a GPU.
PLANTED: dict[str, dict[str, str]] = {
    "nccl_variable_misspelt": {"NCCL_SOCKET_IFNAM": "eth0"},
    "nccl_variable_unknown": {"NCCL_MAKE_IT_FAST": "1"},
    "nccl_variable_without_effect": {"NCCL_TIMEOUT": "1800"},
    "nccl_value_misread": {"NCCL_BUFFSIZE": "4M"},
    "nccl_conf_file_missing": {"NCCL_CONF_FILE": "/nowhere/nccl.conf"},
    "nccl_tuned_by_hand": {"NCCL_MIN_NCHANNELS": "4"},
    "nccl_debug_leftover": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
    "nccl_debug_verbose": {"NCCL_DEBUG": "INFO"},
    "cuda_debugging_left": {"CUDA_DEVICE_WAITS_ON_EXCEPTION": "1"},
    "cuda_injection_set": {"CUDA_INJECTION64_PATH": "/nowhere.so"},
    "variable_in_small_letters": {"nccl_ib_disable": "1"},
    "nccl_errors_not_raised": {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"},
    "torch_boolean_unreadable": {"TORCH_GLOO_LAZY_INIT": "maybe"},
    "torch_number_unreadable": {"TORCH_FR_BUFFER_SIZE": "many"},
    "torch_variable_misspelt": {"TORCH_NCCL_TRACE_BUFER_SIZE": "1"},
    "gloo_transport_unknown": {"GLOO_DEVICE_TRANSPORT": "tcp"},
    "omp_threads_not_a_number": {"OMP_NUM_THREADS": "4,2"},
    "launcher_variables_left": {"RANK": "0", "WORLD_SIZE": "2"},
    "torchrun_variables_left": {"PET_NNODES": "2"},
    "accelerate_variables_left": {"ACCELERATE_USE_CPU": "yes"},
    "nccl_socket_family_absent": {"NCCL_SOCKET_FAMILY": "AF_INET6"},
}


def problems(run: Run, **env: str) -> dict[str, str]:
    """The problems `mgpu doctor --quick` finds in this environment: id -> title."""
    result = run("doctor", "--quick", "--json", "--only", "environ", env=env)
    return {c["id"]: c["title"] for c in json.loads(result.stdout)["checks"] if c["status"] in ("fail", "warn", "info")}


def test_what_is_planted_in_a_shell_is_found_there(mgpu: Run) -> None:
    everything = {name: value for planted in PLANTED.values() for name, value in planted.items()}
    found = problems(mgpu, **everything)
    missing = set(PLANTED) - set(found)
    assert missing <= {"nccl_socket_family_absent"}, missing  # this machine may have IPv6
    assert "NCCL_SOCKET_IFNAM instead of NCCL_SOCKET_IFNAME" in found["nccl_variable_misspelt"]


def test_a_clean_shell_has_no_problem(mgpu: Run) -> None:
    assert set(problems(mgpu)) <= {"nccl_file_overrides"}  # this machine may have an /etc/nccl.conf


def test_what_is_planted_in_a_file_is_found_there(mgpu: Run, tmp_path: Path) -> None:
    file = tmp_path / "cluster.conf"
    file.write_text("# of the old cluster\nNCCL_DEBUG = WARN\nNCCL_BUFFSIZE=4M\n#NCCL_ALGO=Ring\n")
    found = problems(mgpu, NCCL_CONF_FILE=str(file))
    assert "'NCCL_DEBUG = WARN' has no effect" in found["nccl_file_line_ignored"]
    assert "NCCL_BUFFSIZE='4M'" in found["nccl_value_misread"]
    assert "cluster.conf sets" in found["nccl_file_overrides"]
