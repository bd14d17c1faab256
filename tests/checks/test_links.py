"""checks/links"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mgpu.snapshot import Gpu, LeftProcess, NvLink, Visible
from tests.checks.facts import (
    WSL,
    Case,
    driver,
    fails,
    gpu,
    gpus,
    informs,
    leftovers,
    link,
    links,
    lost,
    nvlinks,
    pci,
    pci_device,
    problem,
    seen,
    skips,
    table,
    warns,
    well,
)

A100: dict[str, Any] = {
    "name": "NVIDIA A100-SXM4-80GB",
    "fabric_state": 0,
    "fabric_status": None,
}  # NVML tells no fabric state of it
OLD = gpus(fabric_state=1)  # the fabric manager has not come by
MANAGER = LeftProcess(800, "nv-fabricmanager", "fabric_manager", mine=False)
# nvml.h: four fields of two bits at 2 (FALSE), the configuration at 1 (none)
SOUND = 0b0001_10_10_10_10


def at(speed: int | None, *slow: int, links: int = 18) -> tuple[NvLink, ...]:
    """NVLinks to switches at this speed, some at half of it."""
    half = None if speed is None else speed // 2
    return tuple(NvLink(n, True, "switch", None, half if n in slow else speed) for n in range(links))


def bridged(*pairs: tuple[int, int]) -> dict[str, Any]:
    """Four cards of which these pairs are joined by bridges."""
    made = tuple(
        link(a, b, nvlinks=4 if (a, b) in pairs else 0, through_switch=False) for a in range(4) for b in range(a + 1, 4)
    )
    cards = gpus(name="NVIDIA RTX A6000", fabric_state=0, nvlinks=nvlinks(4, remote="gpu"))
    return {"links": made, "gpus": cards}


def rtx(version: str = "535.183.01", name: str = "NVIDIA GeForce RTX 4090", **changes: Any) -> dict[str, Any]:
    cards = gpus(2, name=name, nvlinks=(), fabric_state=0)
    return {"gpus": cards, "links": links(2, nvlinks=0), "driver": driver(version=version), **changes}


PCIE = links(nvlinks=0, through_switch=False)  # peer access works, over PCIe


def pairs_of_links(*active: int) -> tuple[Gpu, ...]:
    """GPUs in pairs, each with so many links to the other."""
    partner = {0: gpu(1).pci, 1: gpu(0).pci, 2: gpu(3).pci, 3: gpu(2).pci}
    links_of = {n: tuple(NvLink(i, True, "gpu", partner[n]) for i in range(number)) for n, number in enumerate(active)}
    return gpus(4, *(gpu(n, nvlinks=found) for n, found in links_of.items()))


CASES = (
    # nvlink_fabric_not_ready
    fails("nvlink_fabric_not_ready", "fabric not started on 4 GPUs", "systemctl restart nvidia-fabricmanager",
        gpus=gpus(fabric_state=1)),
    fails("nvlink_fabric_not_ready", "fabric still starting on 1 GPU", "nvidia-fabricmanager",
        gpus=gpus(4, gpu(2, fabric_state=2))),
    fails("nvlink_fabric_not_ready", "fabric setup failed with NVML code 999 on 1 GPU", "nvidia-fabricmanager",
        gpus=gpus(4, gpu(2, fabric_status=999))),
    fails("nvlink_fabric_not_ready", "fabric still starting on 4 GPUs", "switch trays",
        gpus=gpus(name="NVIDIA GB200", fabric_state=2)),
    well("nvlink_fabric_not_ready", "fabric is up on 4 of 4"),
    well("nvlink_fabric_not_ready", "fabric is up on 3 of 4", gpus=gpus(4, lost(1))),
    skips("nvlink_fabric_not_ready", "no NVSwitch fabric", gpus=gpus(fabric_state=0, fabric_status=999)),
    skips("nvlink_fabric_not_ready", "no NVSwitch fabric", gpus=gpus(fabric_state=None)),
    # fabric_manager_missing
    fails("fabric_manager_missing", "4 NVSwitches, but nv-fabricmanager is not running", "systemctl enable --now",
        gpus=OLD),
    fails("fabric_manager_missing", "but nv-fabricmanager is not running", "systemctl status", gpus=gpus(**A100)),
    well("fabric_manager_missing", "4 NVSwitches, and the fabric is up"),
    well("fabric_manager_missing", "is running (pid 800)", gpus=OLD, leftovers=leftovers(processes=(MANAGER,))),
    skips("fabric_manager_missing", "no NVSwitch on the bus", gpus=OLD, pci=pci(nvswitches=0)),
    skips("fabric_manager_missing", "bus cannot be read", gpus=OLD, pci=pci(nvswitches=None)),
    # a container, hidepid
    skips("fabric_manager_missing", "on the host: systemctl status", gpus=OLD,
        leftovers=leftovers(sees_all_processes=False)),
    skips("fabric_manager_missing", "on the host", gpus=OLD, leftovers=leftovers(sees_all_processes=None)),
    # fabric_manager_version_differs
    fails("fabric_manager_version_differs", "nv-fabricmanager 570.86.15 is installed, the driver is 580.65.06",
        "apt-get install nvidia-fabricmanager-580", gpus=OLD, pci=pci(fabric_manager="570.86.15")),
    fails("fabric_manager_version_differs", "nv-fabricmanager 580.65.06 is installed, the driver is 570.86.15",
        "nvidia-fabricmanager-570", gpus=gpus(**A100), driver=driver(module_version="570.86.15")),
    well("fabric_manager_version_differs", "nv-fabricmanager 580.65.06, same as the driver", gpus=OLD),
    well("fabric_manager_version_differs", "at its next start", pci=pci(fabric_manager="570.86.15")),
    skips("fabric_manager_version_differs", "no NVSwitch", pci=pci(nvswitches=0), gpus=OLD),
    skips("fabric_manager_version_differs", "does not report its version", pci=pci(fabric_manager=None), gpus=OLD),
    skips("fabric_manager_version_differs", "driver's version is unknown", gpus=OLD,
        driver=driver(version=None, module_version=None)),
    # nvlink_fabric_degraded
    warns("nvlink_fabric_degraded", "NVSwitch fabric of GPU 1: its bandwidth is degraded", "NCCL_NVLS_ENABLE=0",
        gpus=gpus(4, gpu(1, fabric_health_mask=SOUND - 1), fabric_health_mask=SOUND)),
    warns("nvlink_fabric_degraded", "a route is unhealthy; configuration: too few NVLinks", "systemctl restart",
        gpus=gpus(fabric_health_mask=0b0101_10_01_10_10)),
    warns("nvlink_fabric_degraded", "configuration: code 15", "restart", gpus=gpus(fabric_health_mask=0b1111 << 8)),
    warns("nvlink_fabric_degraded", "configuration: code 15", "switch trays",
        gpus=gpus(name="NVIDIA GB200", fabric_health_mask=0b1111 << 8)),
    well("nvlink_fabric_degraded", "no fault on 4 GPUs", gpus=gpus(fabric_health_mask=SOUND)),
    skips("nvlink_fabric_degraded", "no GPU here reports", gpus=gpus(fabric_health_mask=0)),
    skips("nvlink_fabric_degraded", "no GPU here reports"),
    skips("nvlink_fabric_degraded", "no GPU here reports", gpus=gpus(fabric_state=0, fabric_health_mask=SOUND - 1)),
    # nvlink_inactive
    fails("nvlink_inactive", "GPU 2: 17 of 18 NVLinks active", "sudo nvidia-smi --gpu-reset",
        gpus=gpus(4, gpu(2, nvlinks=nvlinks(17, 1)))),
    fails("nvlink_inactive", "GPUs 0 and 3: 0 of 18", "nvidia-smi nvlink --status",
        gpus=gpus(4, gpu(0, nvlinks=nvlinks(0, 18)), gpu(3, nvlinks=()))),
    well("nvlink_inactive", "18 NVLinks active on each of 4 GPUs"),
    # H100 NVL: 12 of 18 is all
    well("nvlink_inactive", "12 NVLinks active on each of 4",
        gpus=gpus(nvlinks=nvlinks(12, 6))),
    well("nvlink_inactive", "on each of 3 GPUs", gpus=gpus(4, lost(1))),
    well("nvlink_inactive", "on each of 3 GPUs", gpus=gpus(4, gpu(3, name="NVIDIA RTX 4090", nvlinks=()))),
    skips("nvlink_inactive", "no NVLink here", gpus=gpus(nvlinks=())),
    skips("nvlink_inactive", "no NVLink here", gpus=gpus(nvlinks=None)),
    well(
        "nvlink_inactive",
        "NVLinks active",
        gpus=gpus(4, *(gpu(n, nvlinks=nvlinks(0, 4)) for n in (2, 3)), nvlinks=nvlinks(4, remote="gpu")),
    ),
    fails("nvlink_inactive", "GPU 1: 3 of 4 NVLinks", "nvlink --status",
        gpus=gpus(2, gpu(1, nvlinks=nvlinks(3, 1, "gpu")), nvlinks=nvlinks(4, remote="gpu"))),
    # four cards in two pairs: three bridges on one, one on the other
    well("nvlink_inactive", "NVLinks active", gpus=pairs_of_links(12, 12, 4, 4)),
    fails("nvlink_inactive", "GPU 1: 11 of 12 NVLinks", "nvlink --status", gpus=pairs_of_links(12, 11, 4, 4)),
    # on an A100 that is split into MIG instances they are switched off
    well("nvlink_inactive", "on each of 3 GPUs", gpus=gpus(4, gpu(3, mig_mode=True, nvlinks=nvlinks(0, 18)))),
    # nvlinks_fewer_than_model
    warns("nvlinks_fewer_than_model", "14 of 18 NVLinks active on every NVIDIA H100 80GB HBM3", "journalctl",
        gpus=gpus(nvlinks=nvlinks(14, 4))),
    warns("nvlinks_fewer_than_model", "10 of 12 NVLinks active on every NVIDIA A100", "nvlink --status",
        gpus=gpus(**A100, nvlinks=nvlinks(10, 2))),
    warns("nvlinks_fewer_than_model", "0 of 18", "nvlink --status", gpus=gpus(nvlinks=nvlinks(0, 18))),
    well("nvlinks_fewer_than_model", "18 NVLinks, as expected for the model, on 4 GPUs"),
    well("nvlinks_fewer_than_model", "on 4 GPUs", gpus=gpus(4, gpu(2, nvlinks=nvlinks(17, 1)))),  # nvlink_inactive's
    # boards and models of which it is not known: H100 NVL has 12 of 18, GH200 alone has none, NVL4 differs from NVL72
    *(
        skips("nvlinks_fewer_than_model", "no GPU on an NVSwitch board", gpus=gpus(name=name, nvlinks=nvlinks(12, 6)))
        for name in ("NVIDIA H100 NVL", "NVIDIA H100 PCIe", "NVIDIA GH200 480GB", "NVIDIA GB200", "NVIDIA H200 NVL",
            "NVIDIA H20", "NVIDIA A800-SXM4-80GB", "NVIDIA L40S", "Tesla V100-SXM2-32GB", "NVIDIA Rubin", None)
    ),
    # four GPUs of a board without switches in a virtual machine: links lead to GPUs of other guests
    skips("nvlinks_fewer_than_model", "no GPU on an NVSwitch", pci=pci(nvswitches=0),
        gpus=gpus(nvlinks=nvlinks(12, 6, remote="gpu"))),
    # one GPU of the board in a virtual machine has all of them off
    skips("nvlinks_fewer_than_model", "no GPU on an NVSwitch", pci=pci(nvswitches=0),
        gpus=gpus(1, nvlinks=nvlinks(0, 18))),
    skips("nvlinks_fewer_than_model", "no GPU", gpus=gpus(nvlinks=None)),
    skips("nvlinks_fewer_than_model", "no GPU", gpus=gpus(mig_mode=True, nvlinks=nvlinks(0, 18))),
    # nvlink_slow
    warns("nvlink_slow", "GPU 2: NVLink 3, 5 at 13281 MB/s, expected 26562", "--gpu-reset -i 2",
        gpus=gpus(4, gpu(2, nvlinks=at(26562, 3, 5)), nvlinks=at(26562))),
    warns("nvlink_slow", "at 25000 MB/s, expected 26562 (4 GPUs affected)", "cable", gpus=gpus(nvlinks=at(25000))),
    warns("nvlink_slow", "GPU 0: NVLink 0, 1", "cable",
        gpus=gpus(2, gpu(0, name="NVIDIA Rubin", nvlinks=at(30000, links=2)), name="NVIDIA Rubin", nvlinks=at(60000))),
    well("nvlink_slow", "26.562 GB/s on every active NVLink of 4 GPUs", gpus=gpus(nvlinks=at(26562))),
    well("nvlink_slow", "14.062 GB/s", gpus=gpus(2, name="NVIDIA RTX A6000", nvlinks=at(14062))),
    well("nvlink_slow", "on every active NVLink of 1 GPU", gpus=gpus(1, nvlinks=(*at(26562), NvLink(18, False,
        "unknown",
        None, 20000)))),
    well("nvlink_slow", "26.500 GB/s", gpus=gpus(name="NVIDIA H800", nvlinks=at(26500, links=8))),
    skips("nvlink_slow", "no active NVLink", gpus=gpus(nvlinks=at(None))),
    # nvlink_atomics_missing
    informs("nvlink_atomics_missing", "no atomic operations on 6 of 6 NVLink pairs (GPUs 0 and 1)", "topo -p2p a",
        links=links(p2p_atomics=5)),
    informs("nvlink_atomics_missing", "on 1 of 2 NVLink pairs", "topo",
        links=(link(0, 1, p2p_atomics=0), link(1, 2, p2p_atomics=2))),
    well("nvlink_atomics_missing", "atomic operations on 6 NVLink pairs", links=links(p2p_atomics=0)),
    skips("nvlink_atomics_missing", "no NVLink between visible GPUs, or its atomics are unknown",
        links=links(p2p_atomics=None)),
    skips("nvlink_atomics_missing", "no NVLink between visible GPUs, or its atomics are unknown",
        links=links(p2p_atomics=6)),
    skips("nvlink_atomics_missing", "no NVLink between visible GPUs, or its atomics are unknown",
        links=links(p2p_atomics=2, nvlinks=0)),
    # c2c_link_down
    warns("c2c_link_down", "GPUs 0, 1, 2 and 3: NVLink-C2C to the Grace CPU is off", "nvidia-smi c2c",
        gpus=gpus(name="NVIDIA GB200", c2c_enabled=False)),
    warns("c2c_link_down", "GPU 0: NVLink-C2C", "c2c", gpus=gpus(1, name="NVIDIA GH200 480GB", c2c_enabled=False)),
    well("c2c_link_down", "on for 4 GPUs", gpus=gpus(name="NVIDIA GB200", c2c_enabled=True)),
    skips("c2c_link_down", "no GPU here", gpus=gpus(c2c_enabled=False)),  # H200 is no GH200
    skips("c2c_link_down", "no GPU here", gpus=gpus(name="NVIDIA GB300", c2c_enabled=None)),
    # nvlink_pairs_split
    informs("nvlink_pairs_split", "no NVLink between GPUs 0 and 2", "CUDA_VISIBLE_DEVICES=0,1",
        **bridged((0, 1), (2, 3)), visible=seen(0, 2, value="0,2")),
    informs("nvlink_pairs_split", "between GPUs 1 and 3", "CUDA_VISIBLE_DEVICES=1,3",
        **bridged((1, 3)), visible=seen(0, 2, value="0,2")),
    well("nvlink_pairs_split", "some visible GPUs are connected", **bridged((0, 1), (2, 3)), visible=seen(2, 3)),
    well("nvlink_pairs_split", "some visible GPUs are connected", **bridged((0, 1), (2, 3))),
    well("nvlink_pairs_split", "no other GPUs of this node", links=PCIE, visible=seen(0, 2)),
    well("nvlink_pairs_split", "not enough bridged GPUs", **bridged((0, 1)), visible=seen(0, 2, 3)),
    skips("nvlink_pairs_split", "no pair", visible=seen(0)),
    skips("nvlink_pairs_split", "unknown", links=links(nvlinks=None), visible=seen(0, 1)),
    # peer_access_uneven
    warns("peer_access_uneven", "1 of 6 equal GPU pairs without peer access (GPUs 0 and 2)", "nvidia-smi topo -p2p r",
        links=tuple(replace(one, p2p_read=4) if (one.a, one.b) == (0, 2) else one for one in PCIE)),
    well("peer_access_uneven", "6 GPU pairs compared, no difference", links=PCIE),
    well("peer_access_uneven", "6 GPU pairs compared, no difference", links=links(nvlinks=0, p2p_read=2, p2p_write=2)),
    # across the sockets of an old board; cards with a bridge and without
    well("peer_access_uneven", "compared, no difference",
        links=tuple(link(a, b, nvlinks=0, topology="SYS" if (a < 2) != (b < 2) else "PHB",
            p2p_read=3 if (a < 2) != (b < 2) else 0) for a in range(4) for b in range(a + 1, 4))),
    well("peer_access_uneven", "compared, no difference",
        links=tuple(link(a, b, nvlinks=2 if (a, b) in ((0, 1), (2, 3)) else 0,
            p2p_read=0 if (a, b) in ((0, 1), (2, 3)) else 2) for a in range(4) for b in range(a + 1, 4))),
    skips("peer_access_uneven", "no two comparable pairs", links=(link(0, 1, p2p_read=4),), gpus=gpus(2)),
    skips("peer_access_uneven", "no two comparable pairs", links=links(topology=None)),
    skips("peer_access_uneven", "no two comparable pairs", gpus=gpus(mig_mode=True), links=PCIE),
    # rtx40_peer_access_misreported: the boundary is accelerate's
    warns("rtx40_peer_access_misreported", "2 RTX 40 cards and driver 535.183.01, older than 550.40.07",
        "export NCCL_P2P_DISABLE=1", **rtx()),
    warns("rtx40_peer_access_misreported", "driver 550.40.06", "export NCCL_IB_DISABLE=1",
        **rtx("550.40.06", env={"NCCL_P2P_DISABLE": "1"})),
    warns("rtx40_peer_access_misreported", "2 RTX 40 cards", "Update the driver",
        **rtx(name="NVIDIA RTX 4000 Ada Generation")),  # accelerate counts it, too
    well("rtx40_peer_access_misreported", "reports peer access correctly", **rtx("550.40.07")),
    well("rtx40_peer_access_misreported", "are set", **rtx(env={"NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1"})),
    skips("rtx40_peer_access_misreported", "fewer than two", **rtx(visible=seen(1, value="1"))),
    skips("rtx40_peer_access_misreported", "fewer than two", **rtx(name="NVIDIA GeForce RTX 5090")),
    skips("rtx40_peer_access_misreported", "version is unknown", **rtx() | {"driver": driver(version=None)}),
    # wsl_several_gpus
    informs("wsl_several_gpus", "2 GPUs under WSL2", "NCCL_P2P_DISABLE=1", container=WSL, visible=seen(0, 1)),
    informs("wsl_several_gpus", "2 GPUs", ".wslconfig", container=WSL, visible=seen(0, 1)),
    well("wsl_several_gpus", "one GPU", container=WSL, visible=seen(0)),
    well("wsl_several_gpus", "one GPU", container=WSL, visible=Visible("", ())),
    skips("wsl_several_gpus", "not WSL"),
    # cpus_far_from_gpus
    warns("cpus_far_from_gpus", "no usable CPU near GPUs 2 and 3", "--gres-flags=enforce-binding",
        pci=pci(*(pci_device(n, cpus_near_usable=8 if n < 2 else 0, cpus_near="48-95") for n in range(4)))),
    warns("cpus_far_from_gpus", "near GPU 2", "taskset -c 48-95",
        pci=pci(pci_device(2, cpus_near_usable=0, cpus_near="48-95"))),
    well("cpus_far_from_gpus", "near each of 4 GPUs"),
    well("cpus_far_from_gpus", "near each of 1 GPU", pci=pci(pci_device(0), pci_device(1, cpus_near_usable=0)),
        visible=seen(0)),
    skips("cpus_far_from_gpus", "unknown", pci=pci(pci_device(0, cpus_near_usable=None))),
    skips("cpus_far_from_gpus", "unknown", pci=pci(readable=False, devices=())),
    # peer_access_missing
    informs("peer_access_missing", "6 of 6 GPU pairs without peer access", "Nothing to repair",
        links=links(nvlinks=0, p2p_read=2, p2p_write=2)),
    informs("peer_access_missing", "1 of 1 GPU pair without peer access", "Nothing to repair",
        links=(link(0, 1, p2p_write=5),), gpus=gpus(2)),
    well("peer_access_missing", "peer access on 6 of 6 GPU pairs"),
    well("peer_access_missing", "1 of 1 GPU pair",
        links=(*links(p2p_read=2)[1:], link(0, 1)), visible=seen(1, 0, value="1,0")),
    skips("peer_access_missing", "no pair of GPUs", links=(), gpus=gpus(1)),
    skips("peer_access_missing", "peer access of the GPU pairs is unknown", links=links(p2p_read=6)),
    skips("peer_access_missing", "peer access of the GPU pairs is unknown", links=links(p2p_read=None, p2p_write=None)),
    skips("peer_access_missing", "",
        links=links(p2p_write=None)),
    informs("peer_access_missing", "6 of 6 GPU pairs without", "nvidia-smi topo -p2p r",
        links=links(p2p_read=None, p2p_write=4)),
    # nvlink_without_peer_access
    fails("nvlink_without_peer_access", "1 NVLink pair without peer access (GPUs 1 and 2)", "nvidia-smi topo -p2p r",
        links=(link(0, 1), link(1, 2, p2p_read=4))),
    fails("nvlink_without_peer_access", "6 NVLink pairs without peer access", "nvidia-smi topo",
        links=links(p2p_read=4, p2p_write=4)),
    well("nvlink_without_peer_access", "peer access on all 6 NVLink pairs"),
    skips("nvlink_without_peer_access", "no NVLink between visible GPUs", links=links(nvlinks=0, p2p_read=2)),
    skips("nvlink_without_peer_access", "no NVLink between", links=links(p2p_read=4), visible=seen(0, value="0")),
    skips("nvlink_without_peer_access", "peer access of the NVLink pairs is unknown", links=links(p2p_read=None)),
    skips("nvlink_without_peer_access", "",
        links=links(p2p_read=6, p2p_write=6)),
    # gpus_span_numa_nodes
    informs("gpus_span_numa_nodes", "GPUs 0 and 1 on NUMA node 0; GPUs 2 and 3 on NUMA node 1", "mgpu configure",
        links=PCIE),
    well("gpus_span_numa_nodes", "2 NUMA nodes, connected by NVLink"),
    well("gpus_span_numa_nodes", "all on NUMA node 1", gpus=gpus(numa_node=1), links=PCIE),
    well("gpus_span_numa_nodes", "all on NUMA node 0", links=PCIE, visible=seen(0, 1, value="0,1")),
    skips("gpus_span_numa_nodes", "unknown", gpus=gpus(numa_node=None)),
    informs("gpus_span_numa_nodes", "on NUMA node 1", "mgpu configure",
        links=()),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (1, "chipset"),
        (2, "these GPUs"),
        (3, "different sockets"),
        (4, "turned off in the driver"),
        (5, "not supported here"),
        (9, "the driver refuses it"),
    ],
)
def test_the_cause_says_why_there_is_no_peer_access(status: int, why: str) -> None:
    found = problem("peer_access_missing", links=links(p2p_read=status, p2p_write=status))
    assert why in found.cause
