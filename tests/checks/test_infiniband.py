"""checks/infiniband"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from mgpu import engine
from mgpu.snapshot import HcaPort, Library, Plan, Snapshot
from tests.checks.facts import (
    DOCKER,
    NO_INFINIBAND,
    Case,
    facts,
    gpus,
    hca,
    host,
    infiniband,
    informs,
    kernel,
    libraries,
    nccl,
    nic,
    pci,
    pci_device,
    problem,
    seen,
    skips,
    table,
    warns,
    well,
)
from tests.conftest import CHECKS

TWO: dict[str, Any] = {"plan": Plan(nodes=2)}
VM = host(virtual="Hyper-V")
DOWN: dict[str, Any] = {"state": "DOWN", "phys_state": "Polling", "rate_gbit_per_s": 10.0}
FLAT = pci(
    *(pci_device(n, path=("pci0000:00",), numa_node=None) for n in range(4)),
    *(nic(n, path=("pci0000:00",), numa_node=None) for n in range(4)),
)


def ports(*changed: HcaPort, number: int = 4, **changes: Any) -> Any:
    """Adapters of one kind, and others in place of those with the same name."""
    found = {f"mlx5_{n}": hca(n, **changes) for n in range(number)} | {port.device: port for port in changed}
    return infiniband(*found.values())


def roce(index: int = 0, **changes: Any) -> HcaPort:
    usual = {"gid_types": ("IB/RoCE v1", "RoCE v2"), "gid_ipv4": True, "interfaces": (f"eth{index}",)}
    return hca(index, **{"link_layer": "Ethernet", "rate_gbit_per_s": 200.0} | usual | changes)


def roces(*changed: HcaPort) -> Any:
    found = {f"mlx5_{n}": roce(n) for n in range(4)} | {port.device: port for port in changed}
    return infiniband(*found.values())


def efas(**changes: Any) -> Any:
    usual: dict[str, Any] = {"link_layer": "EFA", "board": "EFA", "rate_gbit_per_s": 100.0, "link_downed": None}
    return infiniband(*(hca(n, **usual | {"device": f"rdmap{16 * n}s27"} | changes) for n in range(4)))


def plugin(path: str = "/opt/amazon/ofi-nccl/lib/libnccl-net.so", **changes: Any) -> Any:
    usual = libraries()
    return replace(usual, found=(*usual.found, replace(Library("nccl-net", path, "library_path"), **changes)))


def beside(gpu_numbers: Iterable[int], adapters: Iterable[int], **changes: Any) -> Any:
    """GPUs each below a switch of their own, and adapters below those of the same number."""
    cards = [nic(n) for n in adapters]
    return pci(*(pci_device(n) for n in gpu_numbers), *cards, **changes)


CASES = (
    # infiniband_none_active
    warns("infiniband_none_active", "none of 4 InfiniBand ports is active (mlx5_0:1: DOWN)", "ibstat", **TWO,
        infiniband=ports(**DOWN)),
    warns("infiniband_none_active", "none of 4 EFA ports is active", "rdma link show", **TWO,
        infiniband=efas(state="DOWN")),
    well("infiniband_none_active", "4 ports active (mlx5_0:1, mlx5_1:1, mlx5_2:1 and mlx5_3:1)", **TWO),
    well("infiniband_none_active", "1 port active", **TWO,
        infiniband=infiniband(hca(0, **DOWN), roce(1))),
    skips("infiniband_none_active", "a single-node run does not use the network", infiniband=ports(**DOWN)),
    skips("infiniband_none_active", "no InfiniBand or EFA", **TWO, infiniband=NO_INFINIBAND),
    skips("infiniband_none_active", "no InfiniBand or EFA", **TWO, infiniband=infiniband(roce(0, **DOWN))),
    skips("infiniband_none_active", "no InfiniBand or EFA", **TWO, infiniband=ports(state=None)),
    # infiniband_port_down
    warns("infiniband_port_down", "mlx5_2:1: DOWN (Polling), while other adapters of its kind are active",
        "ibstat mlx5_2", **TWO, infiniband=ports(hca(2, **DOWN))),
    well("infiniband_port_down", "4 similar adapters", **TWO),
    well("infiniband_port_down", "similar adapters", **TWO,  # somebody switched it off
        infiniband=ports(hca(2, **DOWN | {"phys_state": "Disabled"}))),
    well("infiniband_port_down", "similar adapters", **TWO,  # the second port of a card that is up
        infiniband=ports(hca(3, **DOWN, pci="0000:5c:00.1"))),
    well("infiniband_port_down", "similar adapters", **TWO,  # storage: not beside a GPU, another board or layer
        infiniband=infiniband(*(hca(n) for n in range(4)), hca(7, **DOWN))),
    well("infiniband_port_down", "similar adapters", **TWO, infiniband=ports(hca(2, **DOWN, board="MT_0000000891"))),
    well("infiniband_port_down", "similar adapters", **TWO, infiniband=ports(hca(2, **DOWN, link_layer="Ethernet"))),
    well("infiniband_port_down", "similar adapters", **TWO,  # half of them: built so
        infiniband=ports(hca(2, **DOWN), hca(3, **DOWN))),
    well("infiniband_port_down", "similar adapters", **TWO,  # virtual functions are for guests
        infiniband=ports(*(hca(n, **DOWN, virtual_function=True, device=f"mlx5_{n}") for n in (2,)))),
    skips("infiniband_port_down", "a single-node run does not use the network", infiniband=ports(hca(2, **DOWN))),
    skips("infiniband_port_down", "no adapter with an active port", **TWO, infiniband=ports(**DOWN)),
    # infiniband_without_subnet_manager
    warns("infiniband_without_subnet_manager", "mlx5_1:1: INIT, link up but", "opensm", **TWO,
        infiniband=ports(hca(1, state="INIT", phys_state="LinkUp", lid=0xFFFF, sm_lid=0))),
    warns("infiniband_without_subnet_manager", "and mlx5_3:1: ARMED", "sminfo", **TWO,
        infiniband=ports(state="ARMED", phys_state="LinkUp")),
    well("infiniband_without_subnet_manager", "none of 4", **TWO),
    well("infiniband_without_subnet_manager", "none of 4", **TWO, infiniband=ports(**DOWN)),
    well("infiniband_without_subnet_manager", "none of 3", **TWO,
        infiniband=ports(roce(0, state="INIT", phys_state="LinkUp"))),
    skips("infiniband_without_subnet_manager", "a single-node run does not use the network",
        infiniband=ports(state="INIT")),
    skips("infiniband_without_subnet_manager", "no InfiniBand port", **TWO, infiniband=roces()),
    # infiniband_rate_low
    warns("infiniband_rate_low", "mlx5_3:1: 100 Gb/s, 400 Gb/s on similar ports", "ibstat mlx5_3", **TWO,
        infiniband=ports(hca(3, rate_gbit_per_s=100.0, lanes=1))),
    warns("infiniband_rate_low", "mlx5_0:1: 100 Gb/s, on one lane only", "cable", **TWO,
        infiniband=infiniband(hca(0, rate_gbit_per_s=100.0, lanes=1))),
    well("infiniband_rate_low", "400 Gb/s on mlx5_0:1, equal on similar ports (4 in total)", **TWO),
    well("infiniband_rate_low", "400 Gb/s", **TWO,  # a storage card of another board
        infiniband=ports(hca(7, rate_gbit_per_s=100.0, board="MT_0000000223"))),
    well("infiniband_rate_low", "ports (4 in total)", **TWO,  # the second port of a storage card, as in a DGX A100
        infiniband=ports(hca(7, rate_gbit_per_s=100.0))),
    warns("infiniband_rate_low", "mlx5_7:1: 100 Gb/s, 400 Gb/s on similar ports", "ibstat", **TWO, pci=FLAT,
        infiniband=ports(hca(7, rate_gbit_per_s=100.0))),
    well("infiniband_rate_low", "25 Gb/s", **TWO,  # 25 GbE has one lane
        infiniband=infiniband(roce(0, rate_gbit_per_s=25.0, lanes=1))),
    well("infiniband_rate_low", "400 Gb/s", **TWO, infiniband=ports(hca(2, **DOWN))),
    skips("infiniband_rate_low", "a single-node run does not use the network",
        infiniband=ports(hca(3, rate_gbit_per_s=100.0))),
    skips("infiniband_rate_low", "no active port", **TWO, infiniband=ports(rate_gbit_per_s=None)),
    # infiniband_link_unstable: 5 times in a day, over the time the machine is up
    warns("infiniband_link_unstable", "mlx5_1:1 lost its link 50 times in 10 days", "mlxlink -d mlx5_1", **TWO,
        infiniband=ports(hca(1, link_downed=50))),
    warns("infiniband_link_unstable", "lost its link 5 times in 1 day", "cable", **TWO,
        infiniband=replace(ports(hca(1, link_downed=5)), uptime_s=3600.0)),
    well("infiniband_link_unstable", "49 link losses on 4 ports", **TWO,
        infiniband=ports(hca(1, link_downed=49))),
    well("infiniband_link_unstable", "0 link losses on 4 ports", **TWO),
    skips("infiniband_link_unstable", "the machine has just started", **TWO,
        infiniband=replace(ports(hca(1, link_downed=5)), uptime_s=3599.0)),
    skips("infiniband_link_unstable", "the machine has just started", **TWO,
        infiniband=replace(ports(), uptime_s=None)),
    skips("infiniband_link_unstable", "counts", **TWO, infiniband=efas()),
    skips("infiniband_link_unstable", "a single-node run does not use the network",
        infiniband=ports(hca(1, link_downed=500))),
    # infiniband_firmware_mixed
    informs("infiniband_firmware_mixed", "MT_0000000838: firmware 28.36.1010 and 28.39.1002", "mlxfwmanager", **TWO,
        infiniband=ports(hca(3, firmware="28.36.1010"))),
    well("infiniband_firmware_mixed", "one firmware for each of 1 board", **TWO),
    well("infiniband_firmware_mixed", "2 boards", **TWO,
        infiniband=ports(hca(3, firmware="22.35.1012", board="MT_0000000359"))),
    skips("infiniband_firmware_mixed", "no active adapter", **TWO, infiniband=ports(board=None)),
    skips("infiniband_firmware_mixed", "a single-node run does not use the network"),
    # roce_gid_missing
    warns("roce_gid_missing", "mlx5_1:1: no RoCE v2 address (IB/RoCE v1)", "sudo cma_roce_mode -d mlx5_1 -p 1 -m 2",
        **TWO, infiniband=roces(roce(1, gid_types=("IB/RoCE v1",)))),
    warns("roce_gid_missing", "no RoCE v2 address (no address at all)", "--network=host", **TWO,
        infiniband=roces(roce(1, gid_types=()))),
    well("roce_gid_missing", "RoCE v2 on 4 ports", **TWO, infiniband=roces()),
    skips("roce_gid_missing", "no active RoCE port", **TWO),  # InfiniBand needs none
    skips("roce_gid_missing", "no active RoCE port", **TWO, infiniband=roces(*(roce(n,
        gid_types=None) for n in range(4)))),
    skips("roce_gid_missing", "a single-node run does not use the network", infiniband=roces(roce(1, gid_types=()))),
    # roce_address_missing
    warns("roce_address_missing", "mlx5_2:1: active, but without an IPv4 address", "ip address add ADDRESS/24 dev eth2",
        **TWO, infiniband=roces(roce(2, gid_ipv4=False))),
    warns("roce_address_missing", "mlx5_2:1: active", "export NCCL_IB_HCA='^=mlx5_2:1'",
        **TWO, infiniband=roces(roce(2, gid_ipv4=False)), env={"NCCL_IB_HCA": "mlx5"}),
    well("roce_address_missing", "on 4 RoCE ports", **TWO, infiniband=roces()),
    well("roce_address_missing", "on 3 RoCE ports", **TWO, infiniband=roces(roce(2, gid_ipv4=False)),
        env={"NCCL_IB_HCA": "^mlx5_2"}),
    skips("roce_address_missing", "AF_INET6", **TWO, infiniband=roces(roce(2, gid_ipv4=False)),
        env={"NCCL_IB_ADDR_FAMILY": "AF_INET6"}),
    skips("roce_address_missing", "AF_INET6", **TWO, infiniband=roces(roce(2, gid_ipv4=False)),
        nccl=nccl(config_files={"/etc/nccl.conf": ("NCCL_IB_ADDR_FAMILY=AF_INET6",)})),
    skips("roce_address_missing", "no active RoCE port", **TWO),
    skips("roce_address_missing", "that NCCL would use", **TWO, infiniband=roces(), env={"NCCL_IB_HCA": "bnxt"}),
    skips("roce_address_missing", "a single-node run does not use the network",
        infiniband=roces(roce(2, gid_ipv4=False))),
    # verbs_node_unusable
    warns("verbs_node_unusable", "/dev/infiniband: no device node usable for 4 of 4 active ports",
        "--device=/dev/infiniband",
        **TWO, container=DOCKER,
        infiniband=replace(ports(), verbs_nodes=(), verbs_unusable=tuple(f"mlx5_{n}" for n in range(4)))),
    warns("verbs_node_unusable", "no device node usable for 1 of 4 active ports (mlx5_2:1)", "ls -l /dev/infiniband",
        **TWO,
        infiniband=replace(ports(), verbs_unusable=("mlx5_2",))),
    warns("verbs_node_unusable", "4 of 4", "sudo modprobe ib_uverbs", **TWO,
        infiniband=replace(ports(), verbs_nodes=(), verbs_unusable=tuple(f"mlx5_{n}" for n in range(4)))),
    well("verbs_node_unusable", "4 adapters can be opened", **TWO),
    well("verbs_node_unusable", "3 adapters", **TWO, infiniband=replace(ports(hca(3, **DOWN)),
        verbs_unusable=("mlx5_3",))),
    skips("verbs_node_unusable", "no active port", **TWO, infiniband=NO_INFINIBAND),
    skips("verbs_node_unusable", "a single-node run does not use the network",
        infiniband=replace(ports(), verbs_unusable=("mlx5_2",))),
    # verbs_library_missing
    warns("verbs_library_missing", "4 active ports, but no libibverbs.so.1", "apt-get install -y libibverbs1", **TWO,
        infiniband=replace(ports(), verbs_library=False)),
    well("verbs_library_missing", "is installed", **TWO),
    skips("verbs_library_missing", "no active port", **TWO, infiniband=NO_INFINIBAND),
    skips("verbs_library_missing", "no active port", **TWO, infiniband=replace(ports(**DOWN), verbs_library=False)),
    skips("verbs_library_missing", "a single-node run does not use the network",
        infiniband=replace(ports(), verbs_library=False)),
    # rdma_driver_missing
    warns("rdma_driver_missing", "1 network card without an RDMA adapter (0000:5d:00.0)", "modprobe mlx5_ib", **TWO,
        infiniband=ports(number=3)),
    warns("rdma_driver_missing", "4 network cards without", "sudo modprobe efa", **TWO, infiniband=NO_INFINIBAND,
        pci=pci(*(nic(n, vendor="1d0f", device="efa1", driver=None, pci_class="020000") for n in range(4)))),
    well("rdma_driver_missing", "4 cards, all with an RDMA adapter", **TWO),
    skips("rdma_driver_missing", "no InfiniBand or EFA card", **TWO, pci=pci(pci_device(0))),
    # Ethernet cards may be meant for TCP only, and a card given to a guest is the guest's
    skips("rdma_driver_missing", "no InfiniBand", **TWO, pci=pci(nic(0, pci_class="020000")), infiniband=NO_INFINIBAND),
    skips("rdma_driver_missing", "no InfiniBand", **TWO, pci=pci(nic(0, driver="vfio-pci")), infiniband=NO_INFINIBAND),
    skips("rdma_driver_missing", "a single-node run does not use the network", infiniband=NO_INFINIBAND),
    # gpudirect_rdma_unavailable
    warns("gpudirect_rdma_unavailable", "neither nvidia_peermem nor DMA-BUF (proprietary driver, Linux 6.8.0-45",
        "sudo modprobe nvidia-peermem", **TWO, kernel=kernel(modules=("nvidia",), driver_flavour="proprietary")),
    warns("gpudirect_rdma_unavailable", "(open driver, Linux 5.11.22)", "modules-load.d", **TWO,
        kernel=kernel(modules=("nvidia",)), host=host(kernel="5.11.22")),
    well("gpudirect_rdma_unavailable", "nvidia_peermem is loaded", **TWO),
    well("gpudirect_rdma_unavailable", "nv_peer_mem is loaded", **TWO,
        kernel=kernel(modules=("nv_peer_mem",), driver_flavour="proprietary")),
    well("gpudirect_rdma_unavailable", "DMA-BUF: the open driver", **TWO, kernel=kernel(modules=("nvidia",))),
    well("gpudirect_rdma_unavailable", "DMA-BUF", **TWO, kernel=kernel(modules=()), host=host(kernel="5.12.0")),
    skips("gpudirect_rdma_unavailable", "whether DMA-BUF was backported to this kernel (4.18.0-553.el", **TWO,
        kernel=kernel(modules=()),
        host=host(kernel="4.18.0-553.el8_10.x86_64")),
    skips("gpudirect_rdma_unavailable", "no active", **TWO, infiniband=efas(), kernel=kernel(modules=())),
    skips("gpudirect_rdma_unavailable", "known to support", **TWO, gpus=gpus(name="NVIDIA GeForce RTX 4090")),
    skips("gpudirect_rdma_unavailable", "known to support", **TWO, gpus=()),
    skips("gpudirect_rdma_unavailable", "cannot be listed", **TWO, kernel=kernel(modules=None)),
    skips("gpudirect_rdma_unavailable", "unknown", **TWO, kernel=kernel(modules=(), driver_flavour=None)),
    skips("gpudirect_rdma_unavailable", "a single-node run does not use the network",
        kernel=kernel(modules=(), driver_flavour="proprietary")),
    # gpu_without_its_adapter
    warns("gpu_without_its_adapter", "no active adapter next to GPU 2; the other 3 have one", "lspci -d 15b3:",
        **TWO,
        pci=beside(range(4), (0, 1, 3))),
    warns("gpu_without_its_adapter", "no active adapter next to GPU 1", "ibstat", **TWO, infiniband=ports(hca(1,
        **DOWN))),
    well("gpu_without_its_adapter", "an adapter next to each of 4 GPUs", **TWO),
    well("gpu_without_its_adapter", "each of 2 GPUs", **TWO, pci=beside(range(4), (0, 1)), visible=seen(0, 1)),
    skips("gpu_without_its_adapter", "does not have one adapter per", **TWO, pci=beside(range(4), (0,))),
    skips("gpu_without_its_adapter", "does not have one adapter per", **TWO, pci=FLAT),
    skips("gpu_without_its_adapter", "unknown", **TWO, pci=pci(readable=False, devices=())),
    skips("gpu_without_its_adapter", "a single-node run does not use the network", pci=beside(range(4), (0, 1, 3))),
    # gpus_far_from_adapters
    informs("gpus_far_from_adapters",
        "GPUs 1, 2 and 3: no active adapter below the same PCIe switch (nearest: mlx5_0, NODE",
        "No action needed. For", **TWO, pci=beside(range(4), (0,))),
    informs("gpus_far_from_adapters", "GPU 3: no active adapter",
        "No action needed. For a run on fewer GPUs, prefer those next to an adapter.", **TWO,
        pci=beside(range(4), (0, 1, 2))),
    well("gpus_far_from_adapters", "4 GPUs with an adapter below the same switch", **TWO),
    skips("gpus_far_from_adapters", "a virtual machine", **TWO, pci=beside(range(4), (0,)), host=VM),
    skips("gpus_far_from_adapters", "Grace", **TWO, pci=beside(range(4), (0,)), gpus=gpus(c2c_enabled=True)),
    skips("gpus_far_from_adapters", "unknown", **TWO, pci=beside(range(4), ())),
    skips("gpus_far_from_adapters", "a single-node run does not use the network", pci=beside(range(4), (0,))),
    # vm_rdma_without_topology_file
    warns("vm_rdma_without_topology_file", "Hyper-V with 4 active ports, no visible PCIe switch,", "NCCL_TOPO_FILE",
        **TWO, host=VM, pci=FLAT),
    well("vm_rdma_without_topology_file", "NCCL has a topology file", **TWO, host=VM,
        pci=replace(FLAT, topology_file="/x.xml", topology_gpus=("0000:1a:00.0",))),
    well("vm_rdma_without_topology_file", "NCCL has a topology file", **TWO, host=VM, pci=FLAT,
        nccl=nccl(config_files={"/etc/nccl.conf": ("NCCL_TOPO_FILE=/x.xml",)})),
    well("vm_rdma_without_topology_file", "NCCL_NET_GDR_LEVEL=SYS", **TWO, host=VM, pci=FLAT,
        env={"NCCL_NET_GDR_LEVEL": "SYS"}),
    well("vm_rdma_without_topology_file", "the bus shows", **TWO, host=VM),
    skips("vm_rdma_without_topology_file", "network plugin", **TWO, host=VM, pci=FLAT, libraries=plugin()),
    skips("vm_rdma_without_topology_file", "no active InfiniBand", **TWO, host=VM, pci=FLAT, infiniband=efas()),
    skips("vm_rdma_without_topology_file", "not a virtual", **TWO, pci=FLAT),
    skips("vm_rdma_without_topology_file", "a single-node run does not use the network", host=VM, pci=FLAT),
    skips("vm_rdma_without_topology_file", "unknown", **TWO, host=VM, pci=pci(readable=False, devices=())),
    # nic_pcie_narrow
    warns("nic_pcie_narrow", "mlx5_0: PCIe x16 at 16 GT/s carries 252 of the port's 400 Gb/s",
        "lspci -vvs 0000:5a:00.0",
        **TWO, pci=pci(nic(0, speed_gt_per_s=16.0))),
    warns("nic_pcie_narrow", "mlx5_1: PCIe x8 at 32 GT/s carries 252 of", "reseat", **TWO, pci=pci(nic(0), nic(1,
        width=8))),
    well("nic_pcie_narrow", "4 adapters are", **TWO),
    # a 200 Gb/s card of two PCIe halves can no more; and what is narrow, but wide enough
    well("nic_pcie_narrow", "1 adapter", **TWO, pci=pci(nic(0, speed_gt_per_s=8.0, speed_max_gt_per_s=8.0))),
    well("nic_pcie_narrow", "1 adapter", **TWO, pci=pci(nic(0, width=8)), infiniband=ports(rate_gbit_per_s=200.0)),
    skips("nic_pcie_narrow", "no active adapter", **TWO, pci=pci(nic(0, width=None))),
    skips("nic_pcie_narrow", "no active adapter", **TWO, infiniband=ports(**DOWN)),
    skips("nic_pcie_narrow", "a single-node run does not use the network", pci=pci(nic(0, width=8))),
    # ib_hca_unmatched
    warns("ib_hca_unmatched", "NCCL_IB_HCA=ibp selects none of 4 active ports", "unset NCCL_IB_HCA", **TWO,
        env={"NCCL_IB_HCA": "ibp"}),
    warns("ib_hca_unmatched", "NCCL_IB_HCA=mlx5_0:2 selects none", "unset", **TWO, env={"NCCL_IB_HCA": "mlx5_0:2"}),
    warns("ib_hca_unmatched", "NCCL_IB_HCA==mlx5 selects none", "unset", **TWO, env={"NCCL_IB_HCA": "=mlx5"}),
    warns("ib_hca_unmatched", "NCCL_IB_HCA=^mlx5 selects none", "unset", **TWO, env={"NCCL_IB_HCA": "^mlx5"}),
    warns("ib_hca_unmatched", "NCCL_IB_HCA=mlx5_0,mlx5_8: no mlx5_8 on this machine", "unset", **TWO,
        env={"NCCL_IB_HCA": "mlx5_0,mlx5_8"}),
    warns("ib_hca_unmatched", "no mlx5_1:2 on this machine", "# remove the line from /etc/nccl.conf", **TWO,
        nccl=nccl(config_files={"/etc/nccl.conf": ("NCCL_DEBUG=WARN", "NCCL_IB_HCA=mlx5_0:1,mlx5_1:2")})),
    # The same line with blanks: they belong to the name, which then is another one, and to the value.
    skips("ib_hca_unmatched", "NCCL_IB_HCA is not set", **TWO,
        nccl=nccl(config_files={"/etc/nccl.conf": ("NCCL_IB_HCA =mlx5_1:2",)})),
    warns("ib_hca_unmatched", "NCCL_IB_HCA= mlx5_0 selects none", "# remove the line from /etc/nccl.conf", **TWO,
        nccl=nccl(config_files={"/etc/nccl.conf": ("NCCL_IB_HCA= mlx5_0",)})),
    well("ib_hca_unmatched", "mlx5_0:1, mlx5_1:1, mlx5_2:1 and mlx5_3:1", **TWO, env={"NCCL_IB_HCA": "mlx5"}),
    well("ib_hca_unmatched", "NCCL_IB_HCA==mlx5_0:1,mlx5_1: mlx5_0:1 and mlx5_1:1", **TWO,
        env={"NCCL_IB_HCA": "=mlx5_0:1,mlx5_1"}),
    well("ib_hca_unmatched", "mlx5_1:1", **TWO, env={"NCCL_IB_HCA": "mlx5_1:1:0:2"}),  # rail and plane
    well("ib_hca_unmatched", "mlx5_0:1", **TWO, env={"NCCL_IB_HCA": "^mlx5_9"}),  # leaving out what is not there
    well("ib_hca_unmatched", "mlx5_3:1", **TWO, env={"NCCL_IB_HCA": ","}),  # an empty list chooses nothing
    skips("ib_hca_unmatched", "not set", **TWO),
    skips("ib_hca_unmatched", "not set", **TWO, env={"NCCL_IB_HCA": ""}),
    skips("ib_hca_unmatched", "no adapter", **TWO, env={"NCCL_IB_HCA": "mlx5"}, infiniband=NO_INFINIBAND),
    skips("ib_hca_unmatched", "a single-node run does not use the network", env={"NCCL_IB_HCA": "ibp"}),
    # ib_link_layers_mixed
    informs("ib_link_layers_mixed", "3 InfiniBand ports and 1 Ethernet port active (mlx5_3:1)",
        "export NCCL_IB_HCA==mlx5_0:1,mlx5_1:1,mlx5_2:1", **TWO, infiniband=ports(roce(3))),
    well("ib_link_layers_mixed", "4 active ports of one kind", **TWO),
    well("ib_link_layers_mixed", "of one kind", **TWO, infiniband=roces()),
    well("ib_link_layers_mixed", "selected by NCCL_IB_HCA=^mlx5_3", **TWO, infiniband=ports(roce(3)),
        env={"NCCL_IB_HCA": "^mlx5_3"}),
    skips("ib_link_layers_mixed", "no active port", **TWO, infiniband=NO_INFINIBAND),
    skips("ib_link_layers_mixed", "a single-node run does not use the network", infiniband=ports(roce(3))),
    # efa_plugin_missing
    warns("efa_plugin_missing", "4 EFA adapters, but no NCCL plugin for EFA", "/opt/amazon/ofi-nccl/lib", **TWO,
        infiniband=efas()),
    warns("efa_plugin_missing", "NCCL_NET_PLUGIN=none", "unset NCCL_NET_PLUGIN", **TWO, infiniband=efas(),
        libraries=plugin(), env={"NCCL_NET_PLUGIN": "none"}),
    warns("efa_plugin_missing", "no NCCL plugin", "Install aws-ofi-nccl", **TWO, infiniband=efas(),
        libraries=plugin(loads=False)),
    well("efa_plugin_missing", "/opt/amazon/ofi-nccl/lib/libnccl-net.so for 4 EFA adapters", **TWO, infiniband=efas(),
        libraries=plugin()),
    well("efa_plugin_missing", "libnccl-net-ofi.so", **TWO, infiniband=efas(),
        libraries=plugin("/x/libnccl-net-ofi.so", name="nccl-net-ofi")),
    skips("efa_plugin_missing", "no active EFA adapter", **TWO),
    skips("efa_plugin_missing", "no active EFA adapter", **TWO, infiniband=efas(state="DOWN")),
    skips("efa_plugin_missing", "a single-node run does not use the network", infiniband=efas()),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


@pytest.mark.parametrize("adapters", [infiniband(), roces(), NO_INFINIBAND, infiniband(hca(0))])
def test_a_sound_machine_has_no_problem_in_a_run_over_several(adapters: Any) -> None:
    found = [check for check in CHECKS.values() if check.area in ("infiniband", "links", "pcie")]
    cards = beside(range(4), range(len(adapters.ports)))
    snapshot = Snapshot(**facts(**TWO, infiniband=adapters, pci=cards))
    for outcome in engine.run(found, snapshot):
        assert outcome.problem is None or outcome.check.id == "gpus_far_from_adapters", outcome.answer


def test_a_falling_back_to_tcp_is_named_as_such() -> None:
    """Adapters that are there and cannot be used cost most of the speed, and no log line says so."""
    for check, changes in {
        "verbs_library_missing": {"infiniband": replace(infiniband(), verbs_library=False)},
        "infiniband_none_active": {"infiniband": ports(**DOWN)},
        "efa_plugin_missing": {"infiniband": efas()},
        "ib_hca_unmatched": {"env": {"NCCL_IB_HCA": "ibp"}},
    }.items():
        assert "NCCL then silently falls back to TCP" in problem(check, **TWO, **changes).cause
