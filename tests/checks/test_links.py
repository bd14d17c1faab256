"""checks/links.py"""

from __future__ import annotations

import pytest

from tests.checks.facts import (
    Case,
    fails,
    gpu,
    gpus,
    informs,
    link,
    links,
    lost,
    nvlinks,
    problem,
    seen,
    skips,
    table,
    warns,
    well,
)

PCIE = links(nvlinks=0, through_switch=False)  # peer access works, over PCIe
CASES = (
    # nvlink_fabric_not_ready
    fails("nvlink_fabric_not_ready", "fabric not started on 4 GPUs", "systemctl restart nvidia-fabricmanager",
        gpus=gpus(fabric_state=1)),
    fails("nvlink_fabric_not_ready", "fabric still starting on 1 GPU", "nvidia-fabricmanager",
        gpus=gpus(4, gpu(2, fabric_state=2))),
    fails("nvlink_fabric_not_ready", "fabric ended with NVML code 999 on 1 GPU", "nvidia-fabricmanager",
        gpus=gpus(4, gpu(2, fabric_status=999))),
    well("nvlink_fabric_not_ready", "fabric is up on 4 of 4"),
    well("nvlink_fabric_not_ready", "fabric is up on 3 of 4", gpus=gpus(4, lost(1))),
    skips("nvlink_fabric_not_ready", "no NVSwitch fabric", gpus=gpus(fabric_state=0, fabric_status=999)),
    skips("nvlink_fabric_not_ready", "no NVSwitch fabric", gpus=gpus(fabric_state=None)),
    # nvlink_inactive
    fails("nvlink_inactive", "GPU 2: 17 of 18 NVLinks active", "sudo nvidia-smi --gpu-reset",
        gpus=gpus(4, gpu(2, nvlinks=nvlinks(17, 1)))),
    fails("nvlink_inactive", "GPU 0 and 3: 0 of 18", "nvidia-smi nvlink --status",
        gpus=gpus(4, gpu(0, nvlinks=nvlinks(0, 18)), gpu(3, nvlinks=()))),
    well("nvlink_inactive", "18 NVLinks active on each of 4 GPUs"),
    # H100 NVL: 12 of 18 is all
    well("nvlink_inactive", "12 NVLinks active on each of 4",
        gpus=gpus(nvlinks=nvlinks(12, 6))),
    well("nvlink_inactive", "on each of 3 GPUs", gpus=gpus(4, lost(1))),
    well("nvlink_inactive", "on each of 3 GPUs", gpus=gpus(4, gpu(3, name="NVIDIA RTX 4090", nvlinks=()))),
    skips("nvlink_inactive", "no NVLinks here", gpus=gpus(nvlinks=())),
    skips("nvlink_inactive", "no NVLinks here", gpus=gpus(nvlinks=None)),
    well(
        "nvlink_inactive",
        "NVLinks active",
        gpus=gpus(4, *(gpu(n, nvlinks=nvlinks(0, 4)) for n in (2, 3)), nvlinks=nvlinks(4, remote="gpu")),
    ),
    fails("nvlink_inactive", "GPU 1: 3 of 4 NVLinks", "nvlink --status",
        gpus=gpus(2, gpu(1, nvlinks=nvlinks(3, 1, "gpu")), nvlinks=nvlinks(4, remote="gpu"))),
    # peer_access_missing
    informs("peer_access_missing", "6 of 6 GPU pairs without peer access", "Nothing to repair",
        links=links(nvlinks=0, p2p_read=2, p2p_write=2)),
    informs("peer_access_missing", "1 of 1 GPU pair without peer access", "Nothing to repair",
        links=(link(0, 1, p2p_write=5),), gpus=gpus(2)),
    well("peer_access_missing", "peer access on 6 of 6 GPU pairs"),
    well("peer_access_missing", "1 of 1 GPU pair",
        links=(*links(p2p_read=2)[1:], link(0, 1)), visible=seen(1, 0, value="1,0")),
    skips("peer_access_missing", "no pair of GPUs", links=(), gpus=gpus(1)),
    skips("peer_access_missing", "no pair of GPUs", links=links(p2p_read=6)),
    skips("peer_access_missing", "no pair of GPUs", links=links(p2p_read=None, p2p_write=None)),
    skips("peer_access_missing", "",
        links=links(p2p_write=None)),
    informs("peer_access_missing", "6 of 6 GPU pairs without", "Nothing to repair",
        links=links(p2p_read=None, p2p_write=4)),
    # nvlink_without_peer_access
    fails("nvlink_without_peer_access", "1 NVLink pair without peer access (GPU 1 and 2)", "nvidia-smi topo -p2p r",
        links=(link(0, 1), link(1, 2, p2p_read=4))),
    fails("nvlink_without_peer_access", "6 NVLink pairs without peer access", "nvidia-smi topo",
        links=links(p2p_read=4, p2p_write=4)),
    well("nvlink_without_peer_access", "peer access on all 6 NVLink pairs"),
    skips("nvlink_without_peer_access", "no NVLink between visible GPUs", links=links(nvlinks=0, p2p_read=2)),
    skips("nvlink_without_peer_access", "no NVLink", links=links(p2p_read=4), visible=seen(0, value="0")),
    skips("nvlink_without_peer_access", "no NVLink", links=links(p2p_read=None)),
    skips("nvlink_without_peer_access", "",
        links=links(p2p_read=6, p2p_write=6)),
    # pcie_width_reduced
    warns("pcie_width_reduced", "GPU 1: PCIe x8 of x16", "nvidia-smi -q -d PCI -i 1",
        gpus=gpus(4, gpu(1, pcie_width=8))),
    warns("pcie_width_reduced", "GPU 1 and 2: PCIe x4 of x16", "riser",
        gpus=gpus(4, gpu(1, pcie_width=4), gpu(2, pcie_width=8))),
    well("pcie_width_reduced", "full width on 4 of 4"),
    well("pcie_width_reduced", "full width on 3 of 4", gpus=gpus(4, gpu(0, pcie_width=None))),
    skips("pcie_width_reduced", "tells its width", gpus=gpus(pcie_width_max=None)),
    # pcie_generation_limited
    informs("pcie_generation_limited", "GPU 0: PCIe gen 4, the GPU can gen 5", "Another slot",
        gpus=gpus(4, gpu(0, pcie_generation_max=4))),
    well("pcie_generation_limited", "full generation on 4 of 4"),
    skips("pcie_generation_limited", "tells", gpus=gpus(pcie_generation_max_gpu=None)),
    # gpus_span_numa_nodes
    informs("gpus_span_numa_nodes", "GPU 0 and 1 near node 0; GPU 2 and 3 near node 1", "mgpu configure", links=PCIE),
    well("gpus_span_numa_nodes", "2 NUMA nodes, joined by NVLink"),
    well("gpus_span_numa_nodes", "all on NUMA node 1", gpus=gpus(numa_node=1), links=PCIE),
    well("gpus_span_numa_nodes", "all on NUMA node 0", links=PCIE, visible=seen(0, 1, value="0,1")),
    skips("gpus_span_numa_nodes", "not known", gpus=gpus(numa_node=None)),
    informs("gpus_span_numa_nodes", "near node 1", "mgpu configure",
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
        (4, "switched off in the driver"),
        (5, "not supported here"),
        (9, "the driver says no"),
    ],
)
def test_the_cause_says_why_there_is_no_peer_access(status: int, why: str) -> None:
    found = problem("peer_access_missing", links=links(p2p_read=status, p2p_write=status))
    assert why in found.cause
