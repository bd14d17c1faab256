"""Did InfiniBand or RoCE fail?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.signature import Row, signatures
from mgpu.snapshot import Log

from .._kernel_line import KERNEL_LINE

_IBV = "https://github.com/NVIDIA/nccl/blob/master/src/misc/ibvwrap.cc"
# fmt: off
_SLOW = Fix("Turn off RDMA.", ("export NCCL_IB_DISABLE=1",), kind="stopgap",
            caveat="TCP between the nodes is 5 to 20 times slower.")
# fmt: on


def _status_pattern(name: str, code: str) -> str:
    """Return a pattern for both formats of a work completion: 'error 12' and 'status=12', with or without its name."""
    return rf"Got completion .*(?:error|status)[ =]\(?(?:(?:{name})[()]+)?(?:{code})\b"


# What the kernel returned when an adapter tried to register GPU memory.
_BY_ERROR = (
    (
        re.compile(r"Bad address|err(?:or|no) 14\b"),
        "Bad address means that the card's driver does not recognize GPU memory at that address: without the module, "
        "or for memory of CUDA's virtual memory management (NCCL_CUMEM_ENABLE, expandable_segments).",
    ),
    (
        re.compile(r"Invalid argument|err(?:or|no) 22\b"),
        "Invalid argument means that the driver rejected the request itself. Possible reasons: a flag "
        "(NCCL_IB_PCI_RELAXED_ORDERING=0 leaves one out), memory of CUDA's virtual memory management "
        "(NCCL_CUMEM_ENABLE=0 and no expandable_segments avoid it), or a driver of the GPU that is much older than "
        "this NCCL. The limit on locked memory is not the reason.",
    ),
    (
        re.compile(r"Operation not supported|err(?:or|no) 95\b"),
        "Operation not supported means that the kernel or the card's driver has no DMA-BUF for GPUs. "
        "NCCL_DMABUF_ENABLE=0 makes NCCL use nvidia-peermem instead.",
    ),
)


def _registration_error(line: str, log: Log) -> str:
    """Return what the error of a refused registration means."""
    return next((f" {meaning}" for error, meaning in _BY_ERROR if error.search(line)), "")


# fmt: off
ROWS = (
    Row("log_ib_retries_exhausted", "root", "network",
        _status_pattern("IBV_WC_RETRY_EXC_ERR|IBV_WC_RNR_RETRY_EXC_ERR", "12|13"),
        ("NCCL WARN NET/IB : Got completion from peer 10.0.0.2<54862> with status=12 opcode=0 len=0 vendor err 129",
         "NCCL WARN NET/IB : Got completion from peer 10.0.0.2<1> with error 12, opcode 0, len 0, vendor err 129",
         "NCCL WARN NET/IB: Got completion from peer 10.0.0.2<1> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=x"),
        "the other node did not respond over InfiniBand or RoCE (completion error 12)",
        "Packets were lost until all retries failed: a wrong GID on RoCE, a rail that does not reach the other node, a "
        "bad cable, or the other rank died.",
        (Fix("Check the ports and which adapters reach each other.",
             ("mgpu doctor --only infiniband", "ibv_devinfo -v | grep -E 'hca_id|state|GID'", "ibqueryerrors")),
         Fix("Let NCCL select the GID, or name the connected adapters.",
             ("unset NCCL_IB_GID_INDEX", "export NCCL_IB_HCA=mlx5_0,mlx5_1")), _SLOW),
        "https://github.com/NVIDIA/nccl/issues/426"),
    Row("log_ib_protection_error", "root", "network",
        _status_pattern("IBV_WC_LOC_PROT_ERR", "4") + r"|async (?:fatal )?event[^:]*: ?local access violation",
        ("NCCL WARN NET/IB : Got completion from peer 10.0.0.2<54862> with status=4 opcode=0 len=0 vendor err 81",
         "node1:1:2 [0] transport/net_ib.cc:101 NCCL WARN NET/IB : mlx5_0:1 Got async event : local access violation "
         "work queue error"),
        "an adapter could not access a GPU's memory (local protection error)",
        "The usual cause is PCIe access control (ACS) or an IOMMU that breaks GPUDirect RDMA.",
        (Fix("Check whether GPUDirect is the cause.", ("NCCL_NET_GDR_LEVEL=0 mgpu smoke-test",
                                              "mgpu doctor --only pcie_acs_redirects,iommu_translates_peer_traffic")),
         Fix("Turn off ACS in the BIOS or on the bridges.", (), who="admin")),
        "https://github.com/NVIDIA/nccl/issues/1052"),
    Row("log_ib_remote_error", "root", "network",
        _status_pattern("IBV_WC_REM_ACCESS_ERR|IBV_WC_REM_OP_ERR|IBV_WC_REM_INV_REQ_ERR", "9|10|11"),
        ("node023:1:3 [0] transport/net_ib.cc:1909 NCCL WARN NET/IB : Got completion from peer 10.1.3.201<33057> with "
         "status=9 opcode=0 len=0 vendor err 138 (Send)",
         "NCCL WARN NET/IB : Got completion from peer 10.0.0.2<1> with error 11, opcode 0, len 0, vendor err 137"),
        "the adapter of the other node rejected an operation (completion error 9 to 11)",
        "The other node failed to read or write memory. Check it for ACS, GPUDirect or a driver fault.",
        Fix("Check the other node's log, and whether it works without GPUDirect.",
            ("sudo dmesg -T | grep -i mlx5 | tail", "NCCL_NET_GDR_LEVEL=0 mgpu smoke-test")),
        "https://github.com/NVIDIA/nccl/issues/1710"),
    Row("log_ib_flushed", "secondary", "network", _status_pattern("IBV_WC_WR_FLUSH_ERR", "5"),
        ("NCCL WARN NET/IB : Got completion from peer 10.0.0.2<54862> with status=5 opcode=0 len=0 vendor err 244",
         "node2:1:2 [0] ib_plugin.c:1007 NCCL WARN NET/IB : Got completion from peer 10.0.32.3<54891> with error 5, "
         "opcode 0, len 0, vendor err 249"),
        "InfiniBand work was discarded after an earlier failure (completion error 5)",
        "The queue was already broken. The first error, here or on the other node, is the cause.",
        Fix("Find the first error on any node.", ("mgpu doctor --log LOGS...",
                                                  "mgpu doctor --only infiniband")),
        "https://github.com/NVIDIA/nccl/issues/1737"),
    Row("log_mlx5_completion_error", "root", "network", r"\bmlx5: \S+: got completion with error:",
        ("mlx5: node7: got completion with error:", "(Actor pid=90, ip=10.0.0.3) mlx5: host_unknown: got completion "
                                                    "with error:"),
        "an InfiniBand or RoCE adapter reported a failed transfer (mlx5)",
        "The user-space driver of the adapter prints it for every failed RDMA operation, with its raw record in the "
        "next lines. The other node did not respond (a wrong GID, a rail without a path, a bad cable), it ended, or "
        "the memory of the transfer is not accessible (GPUDirect, PCIe ACS).",
        (Fix("Check the ports, and which adapters reach each other.",
             ("mgpu doctor --only infiniband", "ibstat | grep -E 'CA|State'", "ibqueryerrors")),
         Fix("Let NCCL report the operation, and name the adapters that are connected.",
             ("NCCL_DEBUG=INFO mgpu launch train.py", "export NCCL_IB_HCA=mlx5_0,mlx5_1")), _SLOW),
        "https://github.com/ofiwg/libfabric/issues/4283"),
    Row("log_memory_not_locked", "root", "nccl",
        r"ibv_(?:reg_mr|reg_dmabuf_mr|create_qp|create_cq)\w* failed"
        r"(?!.*(?:Bad address|Invalid argument|Operation not supported|err(?:or|no) (?:14|22|95)\b))",
        ("NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
         "NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory",
         "NCCL WARN Call to ibv_create_qp failed",
         "misc/ibvwrap.cc:183 NCCL WARN Call to ibv_reg_dmabuf_mr failed with error Cannot allocate memory"),
        "memory could not be registered with the network card: the limit on locked memory is too low",
        "RDMA pins memory. `ulimit -l` of the shell, of Slurm's daemon or of the container limits it. With an "
        "unlimited one, NCCL_BUFFSIZE or the number of channels was set too high.",
        Fix("Raise the limit for the ranks.",
            ("ulimit -l unlimited", "docker run --ulimit memlock=-1 ...", "mgpu doctor --only locked_memory_limited"),
            who="admin"),
        "https://github.com/NVIDIA/nccl-tests/issues/206"),
    Row("log_gpu_memory_not_registered", "root", "nccl",
        r"ibv_reg_(?:dmabuf_)?mr\w* failed.*(?:Bad address|Invalid argument|Operation not supported|err(?:or|no) "
        r"(?:14|22|95)\b)",
        ("node1:1:2 [0] misc/ibvwrap.cc:252 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Bad address",
         "misc/ibvwrap.cc:288 NCCL WARN Call to ibv_reg_dmabuf_mr failed with error Operation not supported",
         "misc/ibvwrap.cc:252 NCCL WARN Call to ibv_reg_mr failed with error Invalid argument",
         "  what():  ibv_reg_mr failed (errno 14) (Ib failure: Bad address)"),
        "a network card could not register GPU memory (GPUDirect RDMA)",
        "The module nvidia-peermem is not loaded or belongs to another driver, or kernel, NIC driver and NCCL disagree "
        "about DMA-BUF. GeForce cards do not support GPUDirect RDMA.",
        (Fix("Load the module.", ("sudo modprobe nvidia-peermem", "mgpu doctor --only gpudirect_rdma_unavailable"),
             who="admin"),
         Fix("Copy through host memory.", ("export NCCL_NET_GDR_LEVEL=LOC NCCL_DMABUF_ENABLE=0",), kind="stopgap",
             caveat="Slower between the nodes.")),
        "https://github.com/NVIDIA/nccl/issues/778", remark=_registration_error),
    Row("log_ib_not_connected", "root", "network", r"Call to ibv_modify_qp failed",
        ("NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, curr state INIT",
         "misc/ibvwrap.cc:187 NCCL WARN Call to ibv_modify_qp failed with error Network is unreachable"),
        "two adapters cannot connect over InfiniBand or RoCE",
        "The GID belongs to another network or VLAN, the adapters are on separate rails, or the container does not "
        "have the host's network.",
        (Fix("Check GIDs and rails, and name adapters that reach each other.",
             ("show_gids", "export NCCL_IB_HCA=mlx5_0,mlx5_1", "unset NCCL_IB_GID_INDEX",
              "mgpu doctor --only infiniband", "docker run --network=host ...")), _SLOW),
        "https://github.com/NVIDIA/nccl-tests/issues/185"),
    Row("log_ib_link_flaps", "root", "network",
        r"(?:[Gg]ot (?:(?:non-)?fatal )?async event|async fatal event(?: on \w+ .*)?) ?: "
        r"(?P<event>port error|device fatal[\w ]*|port[\w ]*|local(?! access)[\w ]*|client[\w ]*|GID[\w ]*)",
        ("node1:1:2 [0] NCCL WARN NET/IB : Got async event : port error",
         "node1:1:2 [0] transport/net_ib.cc:101 NCCL WARN NET/IB : mlx5_4:1 async fatal event: local catastrophic "
         "error"),
        "an InfiniBand or RoCE adapter reported: {event}",
        "A link went down and came back, or the adapter has a fault. The collective on it fails or hangs.",
        Fix("Find the link that loses its signal, and check the cable.",
            ("mgpu doctor --only infiniband_link_unstable,nic_link_flapped", "ibqueryerrors"), who="admin"),
        "https://github.com/NVIDIA/nccl/issues/905", summary="An InfiniBand or RoCE adapter reported a fault."),
    Row("log_adapter_fault", "secondary", "network",
        KERNEL_LINE + r"mlx\d_(?:core|ib) \S+(?: \S+)?: .*(?P<event>Link DOWN|health poll failed|health compromised|"
        r"enter(?:ing)? error state|internal error|command timeout)",
        ("mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN",
         "[12.345678] mlx5_core 0000:ab:00.0: poll_health:825:(pid 0): device's health compromised"),
        "the kernel reports a fault of an InfiniBand or RoCE adapter: {event}",
        "The link was lost, or the adapter's firmware does not respond. Collectives over it fail or hang.",
        Fix("Check cable, port and firmware.",
            ("ibstat | grep -E 'CA|State'", "mgpu doctor --only infiniband_link_unstable,nic_link_flapped",
             "sudo dmesg -T | grep -i mlx5 | tail -n 40"), who="admin"),
        "https://docs.kernel.org/networking/device_drivers/ethernet/mellanox/mlx5/index.html",
        summary="The kernel reports a fault of an InfiniBand or RoCE adapter."),
    Row("log_verbs_not_usable", "root", "network",
        r"Call to ibv_open_device failed|libibverbs: Warning: couldn't (?:open|load)|"
        r"Unable to open (?:device )?/dev/infiniband|ibv_alloc_pd failed|NET/IB : Unable to (?:open|query) device",
        ("NCCL WARN Call to ibv_open_device failed", "libibverbs: Warning: couldn't load driver 'libmlx5-rdmav34.so'",
         "NCCL WARN Call to ibv_alloc_pd failed with error Cannot allocate memory"),
        "InfiniBand devices exist, but this process cannot open them",
        "The container lacks /dev/infiniband, or the user-space driver (rdma-core) in the host's version.",
        Fix("Pass the devices to the container, and install rdma-core in the image.",
            ("docker run --device=/dev/infiniband --cap-add=IPC_LOCK ...",
             "mgpu doctor --only verbs_node_unusable,verbs_library_missing")), _IBV),
    Row("log_ucx_failed", "secondary", "network", r"UCX +ERROR (?P<words>.+)",
        ("[1700000000.1] [node7:4711 :0] ib_device.c:1 UCX  ERROR ibv_create_ah(dlid=1 port=1) failed: Connection "
         "timed out",),
        "UCX reported an error: {words}",
        "MPI or a plugin uses UCX alongside NCCL. The transport it selected does not work between these nodes.",
        Fix("Check which transports UCX can use.",
            ("ucx_info -d | grep -E 'Transport|Device'", "export UCX_NET_DEVICES=mlx5_0:1")),
        "https://openucx.readthedocs.io/en/master/faq.html", summary="UCX reported an error."),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
