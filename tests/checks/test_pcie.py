"""checks/pcie/"""

from __future__ import annotations

from typing import Any

import pytest

from mgpu.snapshot import Plan
from tests.checks.facts import (
    DOCKER,
    WSL,
    Case,
    driver,
    fails,
    gpu,
    gpus,
    host,
    informs,
    kernel,
    link,
    links,
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

PCIE = links(nvlinks=0, through_switch=False)  # peer access works, over PCIe
VM = host(virtual="KVM")
TWO = Plan(nodes=2)
SWITCH = ("pci0000:3a", "0000:3a:00.0", "0000:3b:00.0")


def below(*redirected: bool | None, nics: bool = False, **changes: Any) -> Any:
    """Four GPUs below one PCIe switch (with a card each); which of their ports redirect is told one by one."""
    told = redirected or (False,) * 4
    found = [pci_device(n, path=(*SWITCH, f"0000:3c:0{n}.0"), acs_redirect=told[n], **changes) for n in range(4)]
    cards = [nic(n, path=(*SWITCH, f"0000:3c:0{n + 4}.0"), acs_redirect=told[n]) for n in range(4) if nics]
    return pci(*found, *cards)


def switches(*widths: int | None, most: int = 16) -> Any:
    """Two GPUs below each of several switches."""
    return pci(
        *(
            pci_device(
                2 * n + k, path=(f"pci0000:{n}0", f"0000:{n}0:01.0", f"0000:{n}1:00.0", f"0000:{n}2:0{k}.0"),
                uplink_width=width, uplink_width_max=most if width else None,
            )
            for n, width in enumerate(widths)
            for k in range(2)
        )
    )  # fmt: skip


def translating(**changes: Any) -> dict[str, Any]:
    return {"kernel": kernel(iommu="translating", command_line="intel_iommu=on"), "links": PCIE} | changes


def busy(**changes: Any) -> Any:
    return gpu(1, **{"pcie_generation": 4, "utilization_percent": 97, "performance_state": 0} | changes)


def flat(number: int = 4, **changes: Any) -> dict[str, Any]:
    """A virtual machine that shows its GPUs on the root bus."""
    devices = pci(
        *(pci_device(n, path=("pci0000:00",), numa_node=None) for n in range(number)), nvswitches=0, **changes
    )
    return {"host": VM, "pci": devices, "gpus": gpus(number, nvlinks=(), fabric_state=0), "links": PCIE}


def file_of(*buses: int, **changes: Any) -> Any:
    """The topology file given to NCCL describes GPUs on these buses."""
    described = tuple(f"0000:{bus:02x}:00.0" for bus in buses)
    return pci(topology_file="/opt/topo.xml", topology_gpus=described, **changes)


CASES = (
    # gpu_off_the_bus
    fails("gpu_off_the_bus", "1 GPU on the bus does not respond (0000:1b:00.0)", "Power the machine off",
        pci=pci(pci_device(0), pci_device(1, answers=False), nic(0))),
    fails("gpu_off_the_bus", "2 GPUs on the bus do not respond (0000:1a:00.0 and 0000:1b:00.0)",
        "sudo lspci -vvs 0000:1a:00.0",
        pci=pci(pci_device(0, answers=False), pci_device(1, answers=False))),
    well("gpu_off_the_bus", "4 GPUs on the bus respond"),
    well("gpu_off_the_bus", "1 GPU", pci=pci(pci_device(0), pci_device(1, answers=None))),  # one is asleep
    well("gpu_off_the_bus", "1 GPU", pci=pci(pci_device(0), nic(0, answers=False))),
    skips("gpu_off_the_bus", "no GPU", pci=pci(pci_device(0, answers=None))),
    skips("gpu_off_the_bus", "no GPU", pci=pci(readable=False, devices=())),
    # pcie_width_reduced
    warns("pcie_width_reduced", "GPU 1: PCIe x8 of x16", "nvidia-smi -q -d PCI -i 1",
        gpus=gpus(4, gpu(1, pcie_width=8))),
    warns("pcie_width_reduced", "GPUs 1 and 2: PCIe x4 of x16", "riser",
        gpus=gpus(4, gpu(1, pcie_width=4), gpu(2, pcie_width=8))),
    warns("pcie_width_reduced", "GPU 3: PCIe x4 of x16", "riser",  # the slot says that it can no more
        gpus=gpus(4, gpu(3, pcie_width=4, pcie_width_max=4))),
    warns("pcie_width_reduced", "GPU 1: PCIe x4 of x8", "another instance", host=VM,
        gpus=gpus(4, gpu(1, pcie_width=4), pcie_width=8)),
    well("pcie_width_reduced", "full width on 4 of 4"),
    well("pcie_width_reduced", "full width on 3 of 4", gpus=gpus(4, gpu(0, pcie_width=None))),
    well("pcie_width_reduced", "full width on 2 of 2",
        gpus=gpus(2, gpu(1, name="NVIDIA GeForce RTX 4060", pcie_width=8, pcie_width_max=8))),
    well("pcie_width_reduced", "the same width (x8) on 4 of 4 GPUs", host=VM, gpus=gpus(pcie_width=8)),
    skips("pcie_width_reduced", "no GPU here reports its PCIe width", gpus=gpus(pcie_width_max=None)),
    skips("pcie_width_reduced", "no GPU here reports its PCIe width",
        gpus=gpus(1, name="NVIDIA GeForce RTX 4070 Laptop GPU", pcie_width=8)),
    # pcie_switch_uplink_narrow
    warns("pcie_switch_uplink_narrow", "PCIe switch 0000:11:00.0: x8 to the host, other switches x16",
        "lspci -vvs 0000:11:00.0",
        pci=switches(16, 8)),
    well("pcie_switch_uplink_narrow", "x16 above 2 PCIe switches", pci=switches(16, 16)),
    well("pcie_switch_uplink_narrow", "x8 above 2 PCIe switches", pci=switches(8, 8)),  # built so
    well("pcie_switch_uplink_narrow", "x8 above 1 PCIe switch", pci=switches(8)),
    well("pcie_switch_uplink_narrow", "x16 above 1 PCIe switch", pci=switches(16, None)),
    skips("pcie_switch_uplink_narrow", "no PCIe switch"),
    # pcie_generation_limited
    informs("pcie_generation_limited", "GPU 0: PCIe gen 4, the GPU supports gen 5",
        "Use another slot, or change this slot's BIOS setting.",
        gpus=gpus(4, gpu(0, pcie_generation_max=4))),
    well("pcie_generation_limited", "full generation on 4 of 4"),
    skips("pcie_generation_limited", "not reported by any GPU here", gpus=gpus(pcie_generation_max_gpu=None)),
    # pcie_generation_low_under_load
    warns("pcie_generation_low_under_load", "GPU 1: PCIe gen 1 of 5 while 97% busy", "pcie_aspm",
        gpus=gpus(4, busy(pcie_generation=1))),
    warns("pcie_generation_low_under_load", "GPU 1: PCIe gen 4 of 5 while 50% busy", "Reseat",
        gpus=gpus(4, busy(utilization_percent=50, performance_state=2))),
    well("pcie_generation_low_under_load", "full generation on 1 busy GPU", gpus=gpus(4, busy(pcie_generation=5))),
    skips("pcie_generation_low_under_load", "no GPU is busy (an idle GPU slows its link down)",
        gpus=gpus(4, busy(utilization_percent=49))),
    skips("pcie_generation_low_under_load", "no GPU is busy (an idle GPU slows its link down)",
        gpus=gpus(4, busy(performance_state=3))),
    skips("pcie_generation_low_under_load", "no GPU is busy (an idle GPU slows its link down)",
        gpus=gpus(4, busy(performance_state=None))),
    skips("pcie_generation_low_under_load", "no GPU is busy (an idle GPU slows its link down)",
         # the driver starts, and scrubs memory
        gpus=gpus(4, busy(persistence_mode=False)), driver=driver(init_s=2.5)),
    skips("pcie_generation_low_under_load", "no GPU is busy (an idle GPU slows its link down)",
        gpus=gpus(pcie_generation=1, performance_state=8)),  # idle
    # pcie_fatal_errors
    warns("pcie_fatal_errors", "3 fatal PCIe errors since boot (0000:1b:00.0 and 0000:5a:00.0)", "lspci -vvs 0000:1b",
        pci=pci(pci_device(0), pci_device(1, aer_fatal=1), nic(0, aer_fatal=2))),
    well("pcie_fatal_errors", "no fatal PCIe errors on 8 devices"),
    skips("pcie_fatal_errors", "counts no", pci=pci(pci_device(0, aer_fatal=None))),
    # iommu_translates_peer_traffic
    warns("iommu_translates_peer_traffic",
        "the IOMMU translates, but 6 GPU pairs would use peer access over PCIe (GPUs 0 and 1)",
        "iommu=pt", **translating()),
    warns("iommu_translates_peer_traffic", "1 GPU pair", "export NCCL_P2P_DISABLE=1",
        **translating(visible=seen(0, 1), pci=pci(cpu_vendor="amd"))),
    well("iommu_translates_peer_traffic", "IOMMU off", links=PCIE),
    well("iommu_translates_peer_traffic", "IOMMU in passthrough mode", links=PCIE, kernel=kernel(iommu="passthrough")),
    skips("iommu_translates_peer_traffic", "no peer access over PCIe between visible GPUs",
        **translating(links=links())),  # NVLink
    skips("iommu_translates_peer_traffic", "no peer access over PCIe between visible GPUs",
        **translating(visible=seen(0))),
    skips("iommu_translates_peer_traffic", "no peer access over PCIe between visible GPUs",
        **translating(links=links(nvlinks=0, p2p_read=2, p2p_write=2))),  # consumer cards
    skips("iommu_translates_peer_traffic", "a virtual machine", **translating(host=VM)),
    skips("iommu_translates_peer_traffic", "x86", **translating(host=host(machine="aarch64"))),
    skips("iommu_translates_peer_traffic",
        "the IOMMU mode cannot be read here. As root: dmesg | grep -i -e DMAR -e IOMMU",
        **translating(kernel=kernel(iommu=None))),
    # pcie_acs_redirects
    warns("pcie_acs_redirects",
        "ACS redirects traffic through the CPU for 6 device pairs (0000:1a:00.0 and 0000:1b:00.0)",
        "sudo setpci -s $port ECAP_ACS+0x6.w=0000", links=PCIE, pci=below(True, True, True, True)),
    warns("pcie_acs_redirects",
        "ACS redirects traffic through the CPU for 3 device pairs (0000:1a:00.0 and 0000:1b:00.0)",
        "for port in 0000:3b:00.0 0000:3c:01.0; do", links=PCIE,
        pci=below(False, True, False, False)),
    # GPUs that NVLink joins, but neighbours of network cards, and several machines
    warns("pcie_acs_redirects",
        "ACS redirects traffic through the CPU for 16 device pairs (0000:1a:00.0 and 0000:5a:00.0)",
        "NCCL_P2P_DISABLE=1", plan=TWO, pci=below(*(True,) * 4, nics=True)),
    well("pcie_acs_redirects", "no ACS redirection for 6 device pairs", links=PCIE, pci=below()),
    well("pcie_acs_redirects", "no ACS redirection for 16 device pairs", plan=TWO, pci=below(nics=True)),
    skips("pcie_acs_redirects", "sudo lspci -vvv | grep ACSCtl", links=PCIE, pci=below(*(None,) * 4)),
    skips("pcie_acs_redirects", "no peer traffic below one PCIe switch in this run",
        pci=below(*(True,) * 4, nics=True)),  # NVLink, one machine
    skips("pcie_acs_redirects", "no peer traffic below one PCIe switch in this run",
        links=PCIE),  # each below a root port of its own
    skips("pcie_acs_redirects", "virtual machines need", links=PCIE, pci=below(*(True,) * 4), host=VM),
    # pci_tree_hidden
    warns("pci_tree_hidden", "/sys shows 0 of 4 visible GPUs", "docker run -v /sys:/sys:ro",
        pci=pci(devices=(), readable=False), container=DOCKER),
    warns("pci_tree_hidden", "/sys shows 2 of 4 visible GPUs", "ls -l /sys/bus/pci/devices",
        pci=pci(pci_device(0), pci_device(3))),
    well("pci_tree_hidden", "4 GPUs found in /sys"),
    skips("pci_tree_hidden", "WSL", pci=pci(devices=(), readable=False), container=WSL),
    skips("pci_tree_hidden", "fewer than two GPUs with a known PCI address",
        pci=pci(devices=(), readable=False), visible=seen(0)),
    skips("pci_tree_hidden", "fewer than two GPUs with a known PCI address",
        pci=pci(devices=(), readable=False), gpus=gpus(pci=None)),
    # topology_file_misfit
    warns("topology_file_misfit", "/opt/topo.xml lacks 4 of this machine's 4 GPUs", "unset NCCL_TOPO_FILE",
        pci=file_of(1, 2, 3, 4), env={"NCCL_TOPO_FILE": "/opt/topo.xml"}),
    warns("topology_file_misfit", "/opt/topo.xml lacks 1 of this machine's 4 GPUs",
        "Use the file for this machine type, or none.",
        pci=file_of(0x1A, 0x1B, 0x1C)),
    warns("topology_file_misfit", "NCCL_TOPO_FILE /x cannot be read: No such file", "unset NCCL_TOPO_FILE",
        pci=pci(topology_file="/x", topology_error="No such file or directory"), env={"NCCL_TOPO_FILE": "/x"}),
    well("topology_file_misfit", "describes 4 GPUs", pci=file_of(0x1A, 0x1B, 0x1C, 0x1D)),
    # a container that was given 4 of the 8 GPUs of the file
    well("topology_file_misfit", "describes 4 GPUs", pci=file_of(*range(0x1A, 0x22))),
    skips("topology_file_misfit", "no NCCL topology file is set"),
    skips("topology_file_misfit", "the file lists no GPU", pci=file_of()),
    skips("topology_file_misfit", "the GPUs' PCI addresses are unknown", pci=file_of(1), gpus=gpus(pci=None)),
    # vm_topology_flat
    informs("vm_topology_flat", "KVM: 4 GPUs directly on the root bus", "export NCCL_P2P_DISABLE=1", **flat()),
    informs("vm_topology_flat", "KVM: 2 GPUs", "topology file", **flat(2)),
    well("vm_topology_flat", "the GPUs are connected by NVLink", **flat() | {"links": links()}),
    well("vm_topology_flat", "the bus shows the switches above the GPUs", host=VM, links=PCIE),
    well("vm_topology_flat", "/opt/topo.xml describes it", **flat(topology_file="/opt/topo.xml", topology_gpus=("x",))),
    skips("vm_topology_flat", "not a virtual machine", **flat() | {"host": host()}),
    skips("vm_topology_flat", "fewer than two GPUs with a known PCI address", **flat() | {"visible": seen(0)}),
    skips("vm_topology_flat", "WSL", **flat(), container=WSL),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "NCCL uses host memory here, but copies"),
        ({"links": links(nvlinks=0, topology="PXB")}, "NCCL uses this path"),
        (
            {"links": (link(0, 1, nvlinks=0),), "visible": seen(0, 1), "pci": pci(cpu_vendor="amd")},
            "NCCL uses this path",
        ),
        ({"visible": seen(0, 1, 2), "pci": pci(cpu_vendor="amd")}, "NCCL uses host memory"),
    ],
)
def test_the_cause_says_whether_nccl_takes_this_way(changes: dict[str, Any], words: str) -> None:
    assert words in problem("iommu_translates_peer_traffic", **translating(**changes)).cause
