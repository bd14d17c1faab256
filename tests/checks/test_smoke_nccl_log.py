"""checks/smoke/nccl_log.py"""

from __future__ import annotations

import pytest

from mgpu.snapshot import NcclLine
from tests.checks.facts import (
    NO_INFINIBAND,
    Case,
    gpus,
    informs,
    links,
    nccl_log,
    problem,
    rank,
    ranks,
    skips,
    table,
    warns,
    well,
)

FOUR = ranks(*(rank(n) for n in range(4)))
SHM = (NcclLine(0, 1, "SHM/direct/direct"), NcclLine(1, 0, "SHM/direct/direct"))
IB = (NcclLine(0, 4, "NET/IB/0/GDRDMA"),)
NO_GDR = (NcclLine(0, 4, "NET/IB/0"), NcclLine(4, 0, "NET/IB/0"))
TWO_NODES = ranks(rank(0), rank(1), nodes=2, expected=4)
GEFORCE = gpus(2, name="NVIDIA GeForce RTX 4090")
PCIE = links(2, nvlinks=0, through_switch=False)
SHM_WARNING = "misc/shmutils.cc:132 Error while creating shared memory segment /dev/shm/nccl-a (size 9637888)"
LATER = "proxy.cc:1326 Socket recv failed while polling for opId=0x7f"
CASES = (
    # nccl_way_between_gpus_weak
    warns("nccl_way_between_gpus_weak", "GPUs 0 and 1 over SHM/direct/direct, although their link is NV18",
        "grep -hE", nccl_log=nccl_log(connections=SHM)),
    warns("nccl_way_between_gpus_weak", "GPUs 0 and 1 over NET/Socket/0", "mgpu doctor --only links",
        nccl_log=nccl_log(connections=(NcclLine(1, 0, "NET/Socket/0"),))),
    warns("nccl_way_between_gpus_weak", "though their link is PIX", "mgpu doctor",
        nccl_log=nccl_log(connections=SHM), links=links(2, nvlinks=0, through_switch=False, topology="PIX")),
    warns("nccl_way_between_gpus_weak", "1 more pair", "mgpu doctor", ranks=FOUR,
        nccl_log=nccl_log(connections=(*SHM, NcclLine(2, 3, "SHM/direct/direct")))),
    well("nccl_way_between_gpus_weak", "1 GPU pair connected as directly"),
    well("nccl_way_between_gpus_weak", "as directly", nccl_log=nccl_log(connections=SHM), links=PCIE),
    well("nccl_way_between_gpus_weak", "as directly", nccl_log=nccl_log(connections=SHM), links=links(2, p2p_read=3)),
    well("nccl_way_between_gpus_weak", "as directly",
        nccl_log=nccl_log(connections=(*SHM, NcclLine(0, 1, "P2P/CUMEM")))),
    well("nccl_way_between_gpus_weak", "set by NCCL_P2P_DISABLE",
        nccl_log=nccl_log(connections=SHM), env={"NCCL_P2P_DISABLE": "1"}),
    skips("nccl_way_between_gpus_weak", "no connection between two GPUs", nccl_log=nccl_log(connections=IB)),
    skips("nccl_way_between_gpus_weak", "no connection", gpus=GEFORCE, nccl_log=nccl_log(connections=SHM)),
    # nccl_network_is_slow
    warns("nccl_network_is_slow", "NCCL uses TCP between the nodes, although mlx5_0:1, mlx5_1:1, mlx5_2:1",
        "ls -l /dev/infiniband", ranks=TWO_NODES),
    well("nccl_network_is_slow", "IB, 4 active", ranks=TWO_NODES, nccl_log=nccl_log(network="IB")),
    well("nccl_network_is_slow", "Socket, 0 active", ranks=TWO_NODES, infiniband=NO_INFINIBAND),
    well("nccl_network_is_slow", "TCP, set by a variable", ranks=TWO_NODES, env={"NCCL_IB_DISABLE": "1"}),
    skips("nccl_network_is_slow", "single-node run"),
    skips("nccl_network_is_slow", "does not show", ranks=TWO_NODES, nccl_log=nccl_log(network=None)),
    # nccl_without_gpudirect
    informs("nccl_without_gpudirect", "NET/IB/0 without GPUDirect RDMA", "modprobe nvidia-peermem",
        nccl_log=nccl_log(connections=NO_GDR)),
    well("nccl_without_gpudirect", "NET/IB/0/GDRDMA", nccl_log=nccl_log(connections=IB)),
    well("nccl_without_gpudirect", "no connection over InfiniBand"),
    well("nccl_without_gpudirect", "NET/IB/0", gpus=GEFORCE, nccl_log=nccl_log(connections=NO_GDR)),
    # nccl_switches_do_not_add
    informs("nccl_switches_do_not_add", "4 GPUs connected by NVSwitches, but NVLink SHARP is not in use",
        "fabricmanager",
        ranks=FOUR),
    well("nccl_switches_do_not_add", "not applicable with 2 ranks and these GPUs"),
    well("nccl_switches_do_not_add", "in use", ranks=FOUR, nccl_log=nccl_log(nvls=True)),
    well("nccl_switches_do_not_add", "NCCL_NVLS_ENABLE=0", ranks=FOUR, env={"NCCL_NVLS_ENABLE": "0"}),
    well("nccl_switches_do_not_add", "not applicable", ranks=FOUR, gpus=gpus(4, compute_capability=(8, 0))),
    skips("nccl_switches_do_not_add", "does not show", ranks=FOUR, nccl_log=nccl_log(nvls=None)),
    # nccl_loaded_another
    warns("nccl_loaded_another", "the ranks loaded NCCL 2.27.5+cuda12.9, but this environment has 2.29.7",
        "LD_LIBRARY_PATH",
        nccl_log=nccl_log(version="2.27.5+cuda12.9")),
    well("nccl_loaded_another", "2.29.7+cuda13.0, as installed"),
    skips("nccl_loaded_another", "unknown", nccl_log=nccl_log(version=None)),
    # nccl_without_trees
    informs("nccl_without_trees", "rings only, on 2 nodes", "unset NCCL_ALGO",
        ranks=TWO_NODES, nccl_log=nccl_log(trees=False)),
    well("nccl_without_trees", "rings and trees", ranks=TWO_NODES),
    well("nccl_without_trees", "single-node run:", nccl_log=nccl_log(trees=False)),
    skips("nccl_without_trees", "the log does not show it", ranks=TWO_NODES, nccl_log=nccl_log(trees=None)),
    # nccl_warned
    warns("nccl_warned", "NCCL: misc/shmutils.cc:132 Error while creating shared memory segment", "grep -h -B5",
        nccl_log=nccl_log(warnings=(LATER, SHM_WARNING))),
    warns("nccl_warned", "NCCL: proxy.cc:1326 Socket recv failed", "grep", nccl_log=nccl_log(warnings=(LATER,))),
    well("nccl_warned", "no warning"),
    well("nccl_warned", "no warning",
        nccl_log=nccl_log(warnings=("misc/ibvwrap.cc:63 Failed to open libibverbs.so[.1]",))),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_a_warning_that_only_says_that_another_rank_is_gone_is_no_evidence() -> None:
    found = problem("nccl_warned", nccl_log=nccl_log(warnings=(LATER, SHM_WARNING)))
    assert list(found.evidence.values()) == [SHM_WARNING]
