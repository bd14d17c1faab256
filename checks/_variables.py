"""Which environment variables does NCCL read, and since when?

Names and versions are from the tags v2.3.5 to v2.30.7 of github.com/NVIDIA/nccl (NCCL_PARAM, ncclGetEnv). For 2.31.2
and 2.32.3 they are from the strings in libnccl.so.2 of NVIDIA's wheels and the list of the user guide (env.html), both
read in 2026-11. The allowed values are in `_grammars`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Literal, NamedTuple

from ._grammars import (
    ALGO,
    ANY_NUMBER,
    OFF_AT_ONE,
    PROTO,
    SIZE,
    SWITCH,
    THREE_WAY,
    Grammar,
    Number,
    Version,
    WordList,
    Words,
    adapter_list,
    address_range,
    any_text,
    boolean,
    cta_policy,
    device_policy,
    file_path,
    host_and_port,
    interface_list,
    path_type,
    thread_count,
)

NEWEST_NCCL: Version = (2, 32, 3)  # the last version whose names are listed below; newer ones may read more

# The guide's groups: system settings may stay set, debugging settings should not.
Group = Literal["system", "debugging", "internal"]


class Variable(NamedTuple):
    """A variable that NCCL reads or used to read."""

    name: str
    grammar: Grammar
    since: Version = ()  # the first version that reads it; () for all versions
    until: Version | None = None  # the first version that no longer reads it
    group: Group = "internal"
    instead: str | None = None  # its replacement

    def read_by(self, version: Version) -> bool:
        """Return whether this NCCL version reads the variable. An unknown version counts as new."""
        if not version:
            return self.until is None
        return version >= self.since and (self.until is None or version < self.until)


_LOG_LEVELS = ("VERSION", "WARN", "ATTN", "INFO", "ABORT", "TRACE")
_ATTN: Mapping[str, Version] = {"ATTN": (2, 32)}  # a level between WARN and INFO
# fmt: off
_SUBSYSTEMS = (
    "INIT", "COLL", "P2P", "SHM", "NET", "GRAPH", "TUNING", "ENV", "ALLOC", "ALLOC_HOST", "CALL", "PROXY", "NVLS",
    "BOOTSTRAP", "REG", "PROFILE", "RAS", "DESTROY", "ALL",
)
# fmt: on
_FAMILY = Words(("AF_INET", "AF_INET6"), "NCCL ignores it (allowed: AF_INET, AF_INET6)", any_case=False)
_NO_LOG = "nothing is logged (allowed: VERSION, WARN, INFO, TRACE, and from 2.32 on ATTN)"
_NEVER_ENDS = "0 and 32 or more mean no timeout: one lost packet hangs the run forever"

# Name after NCCL_, grammar, since: "System configuration" in the guide.
_SYSTEM: tuple[tuple[str, Grammar, Version], ...] = (
    ("SOCKET_IFNAME", interface_list, ()),
    ("SOCKET_FAMILY", _FAMILY, ()),
    ("SOCKET_MAGIC", ANY_NUMBER, (2, 30, 7)),
    ("SOCKET_RETRY_CNT", Number(1), (2, 24)),
    ("SOCKET_RETRY_SLEEP_MSEC", Number(1), (2, 24)),
    ("SOCKET_POLL_TIMEOUT_MSEC", Number(0), (2, 28)),
    ("SOCKET_NTHREADS", Number(1, 16, "the guide allows 1 to 16, and NCCL uses 16 for more"), (2, 4, 8)),
    ("NSOCKS_PERTHREAD", Number(1, 64), (2, 4, 8)),
    ("CROSS_NIC", THREE_WAY, (2, 5, 6)),
    ("IB_HCA", adapter_list, ()),
    ("IB_RAIL_POLICY", Words(("NONE", "CX9:FLIP", "CX9:ALT", "CX9:BLOCK"), "NCCL ignores it"), (2, 32, 3)),
    ("IB_TIMEOUT", Number(1, 31, _NEVER_ENDS), ()),
    ("IB_RETRY_CNT", Number(0, 7), ()),
    ("IB_GID_INDEX", Number(0), ()),
    ("IB_ADDR_FAMILY", _FAMILY, (2, 21)),
    ("IB_ADDR_RANGE", address_range, (2, 21)),
    ("IB_ROCE_VERSION_NUM", Number(1, 2), (2, 21)),
    ("IB_SL", Number(0, 15, "it must fit in 4 bits"), ()),
    ("IB_TC", Number(0, 255, "it must fit in 8 bits"), ()),
    ("IB_FIFO_TC", Number(0, 255, "it must fit in 8 bits"), (2, 22, 3)),
    ("IB_RETURN_ASYNC_EVENTS", SWITCH, (2, 23)),
    ("IB_PKEY_VALUE", ANY_NUMBER, (2, 31, 2)),
    ("IB_EVENT_BASED_LB", ANY_NUMBER, (2, 31, 2)),
    ("OOB_NET_ENABLE", SWITCH, (2, 23)),
    ("OOB_NET_IFNAME", any_text, (2, 23)),
    ("UID_STAGGER_THRESHOLD", Number(1), (2, 23)),
    ("UID_STAGGER_RATE", Number(1), (2, 23)),
    ("NET", any_text, (2, 10)),
    ("NET_PLUGIN", any_text, (2, 11)),
    ("TUNER_PLUGIN", any_text, (2, 19)),
    ("PROFILER_PLUGIN", any_text, (2, 23)),
    ("ENV_PLUGIN", any_text, (2, 28)),
    ("IGNORE_CPU_AFFINITY", SWITCH, (2, 4, 6)),
    ("CONF_FILE", file_path, (2, 23)),
    ("DEBUG", Words(_LOG_LEVELS, _NO_LOG, trimmed_since=(2, 30, 7), since=_ATTN), ()),
    ("DEBUG_LEVELS", WordList((*_LOG_LEVELS, "ALL"), (2, 30, 7)), (2, 32, 3)),
    ("DEBUG_FILE", file_path, ()),
    ("DEBUG_SUBSYS", WordList(_SUBSYSTEMS, (2, 30, 7)), ()),
    ("DEBUG_TIMESTAMP_FORMAT", any_text, (2, 26)),
    ("DEBUG_TIMESTAMP_LEVELS", WordList((*_LOG_LEVELS, "ALL"), (2, 30, 7), _ATTN), (2, 26)),
    ("COLLNET_ENABLE", SWITCH, (2, 6)),
    ("COLLNET_NODE_THRESHOLD", Number(0), (2, 9, 9)),
    ("CTA_POLICY", cta_policy, (2, 27)),
    ("NETDEVS_POLICY", device_policy, (2, 28)),
    ("MULTI_RANK_GPU_ENABLE", SWITCH, (2, 30)),
    ("TOPO_FILE", file_path, (2, 6)),
    ("TOPO_DUMP_FILE", file_path, (2, 6)),
    ("SET_THREAD_NAME", boolean, (2, 12)),
)
# "Debugging": not for production, according to the guide.
_DEBUGGING: tuple[tuple[str, Grammar, Version], ...] = (
    ("P2P_DISABLE", OFF_AT_ONE, ()),
    ("P2P_LEVEL", path_type, ()),
    ("P2P_DIRECT_DISABLE", SWITCH, (2, 12, 12)),
    ("SHM_DISABLE", OFF_AT_ONE, ()),
    ("BUFFSIZE", SIZE, ()),
    ("NTHREADS", thread_count, ()),
    ("MAX_NCHANNELS", Number(1), (2, 5)),
    ("MIN_NCHANNELS", Number(1), (2, 5)),
    ("CHECK_POINTERS", SWITCH, ()),
    ("CHECK_MODE", Words(("DEFAULT", "DEBUG_LOCAL", "DEBUG_GLOBAL"), "NCCL uses DEFAULT"), (2, 29, 7)),
    ("LAUNCH_MODE", Words(("PARALLEL", "GROUP"), "NCCL uses PARALLEL"), ()),
    ("IB_DISABLE", SWITCH, ()),
    ("IB_AR_THRESHOLD", Number(0), (2, 6)),
    ("IB_OOO_RQ", SWITCH, (2, 30)),
    ("IB_QPS_PER_CONNECTION", Number(1, 128), (2, 10)),
    ("IB_SPLIT_DATA_ON_QPS", SWITCH, (2, 18)),
    ("IB_PCI_RELAXED_ORDERING", THREE_WAY, (2, 12)),
    ("IB_ADAPTIVE_ROUTING", SWITCH, (2, 16)),
    ("IB_ECE_ENABLE", SWITCH, (2, 23)),
    ("MEM_SYNC_DOMAIN", SWITCH, (2, 16)),
    ("CUMEM_ENABLE", SWITCH, (2, 18)),
    ("CUMEM_HOST_ENABLE", SWITCH, (2, 23)),
    ("NET_GDR_LEVEL", path_type, (2, 4)),
    ("NET_GDR_C2C", SWITCH, (2, 26)),
    ("NET_GDR_READ", SWITCH, ()),
    ("NET_SHARED_BUFFERS", SWITCH, (2, 8)),
    ("NET_SHARED_COMMS", SWITCH, (2, 12)),
    ("IGNORE_NET_MISMATCH", SWITCH, (2, 30)),
    ("IGNORE_COLLNET_MISMATCH", SWITCH, (2, 30)),
    ("ALGO", ALGO, (2, 5)),
    ("PROTO", PROTO, (2, 5)),
    ("NVB_DISABLE", SWITCH, (2, 9, 9)),
    ("PXN_DISABLE", SWITCH, (2, 12)),
    ("P2P_PXN_LEVEL", THREE_WAY, (2, 12)),
    ("PXN_C2C", SWITCH, (2, 27)),
    ("RUNTIME_CONNECT", SWITCH, (2, 22)),
    ("GRAPH_REGISTER", SWITCH, (2, 11)),
    ("LOCAL_REGISTER", SWITCH, (2, 19)),
    ("LEGACY_CUDA_REGISTER", SWITCH, (2, 24)),
    ("WIN_ENABLE", SWITCH, (2, 27)),
    ("SET_STACK_SIZE", SWITCH, (2, 9)),
    ("GRAPH_MIXING_SUPPORT", SWITCH, (2, 13)),
    ("GRAPH_STREAM_ORDERING", SWITCH, (2, 30)),
    ("RMA_EAGER_INIT", ANY_NUMBER, (2, 31, 2)),
    ("RUN_DIAGNOSTICS", SWITCH, (2, 31, 2)),
    ("RUN_RAS_DIAGNOSTICS", SWITCH, (2, 31, 2)),
    ("DMABUF_ENABLE", SWITCH, (2, 13)),
    ("P2P_NET_CHUNKSIZE", SIZE, (2, 14)),
    ("P2P_LL_THRESHOLD", Number(0), (2, 14)),
    ("ALLOC_P2P_NET_LL_BUFFERS", SWITCH, (2, 14)),
    ("COMM_BLOCKING", SWITCH, (2, 14)),
    ("CGA_CLUSTER_SIZE", Number(0, 8), (2, 15)),
    ("MAX_CTAS", Number(1, 64, before=((2, 25), 32)), (2, 17)),
    ("MIN_CTAS", Number(1, 64, before=((2, 25), 32)), (2, 17)),
    ("NVLS_ENABLE", THREE_WAY, (2, 17)),
    ("IB_MERGE_NICS", SWITCH, (2, 20)),
    ("NET_MERGE_POLICY", Words(("ALL", "RAIL"), "NCCL uses ALL"), (2, 30, 5)),
    ("MNNVL_ENABLE", THREE_WAY, (2, 21)),
    ("MNNVL_UUID", ANY_NUMBER, (2, 25)),
    ("MNNVL_CLIQUE_ID", ANY_NUMBER, (2, 23)),
    ("RAS_ENABLE", SWITCH, (2, 24)),
    ("RAS_ADDR", host_and_port, (2, 24)),
    ("RAS_TIMEOUT_FACTOR", Number(1), (2, 24)),
    ("LAUNCH_ORDER_IMPLICIT", SWITCH, (2, 26)),
    ("LAUNCH_RACE_FATAL", SWITCH, (2, 26)),
    ("IPC_USE_ABSTRACT_SOCKET", SWITCH, (2, 29)),
    ("SYM_GIN_KERNELS_ENABLE", SWITCH, (2, 29)),
)
# Read in the sources, not in the guide. All are numbers except those after the bar.
_INTERNAL: Mapping[Version, str] = {
    (): "GDR_FLUSH_DISABLE GROUP_CUDA_STREAM MAX_NRINGS MIN_NRINGS | COMM_ID",
    (2, 5, 6): "LL128_NTHREADS | HOSTID THREAD_THRESHOLDS",
    (2, 6, 4): "GRAPH_DUMP_FILE_RANK TOPO_DUMP_FILE_RANK | GRAPH_DUMP_FILE GRAPH_FILE",
    (2, 7, 3): "LL128_BUFFSIZE LL_BUFFSIZE MAX_P2P_NCHANNELS MIN_P2P_NCHANNELS P2P_READ_ENABLE",
    (2, 8, 3): "IB_PKEY IB_USE_INLINE",
    (2, 9, 6): "GDRCOPY_ENABLE GDRCOPY_FIFO_ENABLE GDRCOPY_FLUSH_ENABLE",
    (2, 9, 9): "NVB_PRECONNECT",
    (2, 11, 4): "GRAPH_HELPER_DISABLE",
    (2, 12, 7): "CHUNK_SIZE GDRCOPY_SYNC_ENABLE IGNORE_DISABLED_P2P NCHANNELS_PER_NET_PEER NET_DISABLE_INTRA",
    (2, 12, 10): "L1_SHARED_MEMORY_CARVEOUT",
    (2, 13, 4): "P2P_USE_CUDA_MEMCPY SHM_LOCALITY",
    (2, 14, 3): "PROXY_DUMP_SIGNAL",
    (2, 15, 1): "NET_FORCE_FLUSH",
    (2, 16, 2): "P2P_NVL_CHUNKSIZE P2P_PCI_CHUNKSIZE PROXY_APPEND_BATCH_SIZE",
    (2, 16, 5): "PROGRESS_APPENDOP_FREQ",
    (2, 17, 1): "NVLS_NCHANNELS",
    (2, 18, 1): "COMM_SPLIT_SHARE_RESOURCES IB_MERGE_VFS NET_OVERHEAD",
    (2, 19, 4): "CONNECT_ROUND_MAX_PEERS REPORT_CONNECT_PROGRESS | WARN_ENABLE_DEBUG_INFO",
    (2, 20, 3): "NVLSTREE_MAX_CHUNKSIZE",
    (2, 21, 5): "NVLS_CHUNKSIZE",
    (2, 22, 3): "IB_ROUTABLE_FLID_GID_INDEX UNPACK_DOUBLE_NCHANNELS WORK_ARGS_BYTES WORK_FIFO_BYTES",
    (2, 23, 4): "PAT_ENABLE",
    (2, 24, 3): "IB_MQP_RETRY_ALL IB_MQP_RETRY_CNT IB_MQP_RETRY_SLEEP_MSEC IB_WARN_RAIL_LOCAL "
    "NET_OPTIONAL_RECV_COMPLETION | NET_FORCE_MERGE NET_MERGE_LEVEL",
    (2, 26, 2): "NET_PLUGIN_REF_COUNT",
    (2, 27, 3): "COMM_SHRINK_SHARE_RESOURCES IB_DATA_DIRECT LL128_C2C NVLINK_UTIL_CENTRIC_SCHED_ENABLE SOCKET_INLINE "
    "SOCKET_MIN_TASKSIZE SOCKET_RCVBUF SOCKET_SNDBUF SYM_CTAS WIN_STRIDE | SYM_KERNEL",
    (2, 27, 5): "MNNVL_SCATTER_NETS_ENABLE",
    (2, 28, 3): "NVTX_DISABLE SET_CPU_STACK_SIZE SINGLE_PROC_MEM_REG_ENABLE | PROXY_CPUSET",
    (2, 28, 7): "GIN_ENABLE GIN_ERROR_QUERY_SEC GIN_GDAKI_NIC_HANDLER GIN_GDAKI_QP_DEPTH GIN_PROXY_QUEUE_SIZE GIN_TYPE "
    "MNNVL_RAIL_PER_HOST P2P_SCHEDULE_GROUP_SIZE",
    (2, 29, 2): "ALLGATHERV_ENABLE ENABLE_VERSION_CHECK MULTI_SEGMENT_REGISTER NUM_RMA_CTX P2P_EPOCH_ENABLE "
    "P2P_PER_CHANNEL_NET_BW RMA_PROXY_DUMP_SIGNAL RMA_PROXY_QUEUE_SIZE SYM_CE_THRESHOLD SYM_NOWIN_ENABLE",
    (2, 29, 7): "DISABLE_MEM_MANAGER GDAKI_USE_RELIABLE_DB GIN_NCONNECTIONS GIN_PLUGIN_REF_COUNT IB_DEVICE_PCI_ORDER "
    "IB_PREPOST_RECEIVE_WORK_REQUESTS IB_RECEIVER_SIDE_MATCHING_SCHEME IB_RESILIENCY_PORT_FAILOVER "
    "IB_RESILIENCY_PORT_FAILOVER_MAX_ATTEMPTS IB_RESILIENCY_PORT_FAILOVER_PROBE_DELAY LSA_TEAM_SIZE "
    "| GIN_PLUGIN NO_CACHE",
    (2, 30, 3): "ELASTIC_BUFFER_REGISTER GIN_GDAKI_MAX_DEST_RD_ATOMIC GIN_GDAKI_MAX_QP_RD_ATOMIC "
    "IB_RESILIENCY_PORT_RECOVERY IB_RESILIENCY_PORT_RECOVERY_ACK_TIMEOUT "
    "IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_INTERVAL IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_SIZE "
    "IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_SEQUENCE_SIZE IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_TIMEOUT "
    "IB_RESILIENCY_PORT_RECOVERY_ATTEMPTS_MAX IB_RESILIENCY_PORT_RECOVERY_START_DELAY MNNVL_CROSS_CLIQUE "
    "P2P_MAX_PEERS SYM_TMA_ENABLE | IBVERBS_LIB PARAM_DUMP_ALL",
    (2, 30, 4): "SYM_REUSE_SYSMEM_HANDLES",
    (2, 30, 7): "DEV_API_JIT GIN_IB_TC IB_QUERY_PORT_SPEED IB_SUBNET_AWARE_ROUTING IB_SUBNET_PREFIX_LEN "
    "RMA_DISABLE RMA_PLUGIN_REF_COUNT SHADOW_MEMPOOL_MAX_SIZE "
    "SYM_RS_GIN_CHUNK_SIZE TOPO_SPLIT_MLOPART | RMA_PLUGIN",
    (2, 31, 2): "CE_COLL_AG_MULTICAST_THRESHOLD CFT_ENABLE DIAGNOSTICS_ECC_THRESHOLD ENQUEUE_REARCH_ENABLE "
    "GDRCOPY_USE_INTERNAL_DMABUF GIN_IB_OOO_OPT GIN_PROXY_NTHREADS GIN_PROXY_POLL_BATCH HIER_CE_COLL_NUM_CTX "
    "IB_EVENT_BASED_LB_REMOTE IB_WQE_LATENCY_REPORT IB_WQE_LATENCY_THRESHOLD_NS NUM_RMA_INT_CTX "
    "P2P_PER_CHANNEL_REG_NET_BW RMA_MULTI_CTX_THRESHOLD",
    (2, 32, 3): "CE_CHUNK_SIZE CE_INTRA_GPU_MEMCPY_ENABLE DIAGNOSTICS_IB_BW_TIMEOUT GDAKI_FORCE_MCST "
    "GIN_GDAKI_LAG_AWARE_DISABLE HIER_CE_COLL_AG_RAIL_RING_ENABLE IB_SORT_MERGE_NICS NVLS_UB_SIZE "
    "PROGRESS_COUNTERS PROGRESS_COUNTER_MONITOR_POLL_MS PROGRESS_COUNTER_MONITOR_STALE_MS "
    "PROGRESS_COUNTER_MONITOR_STALE_WARN_SEC RMA_IB_WR_BATCHSIZE",
}
# Removed variables: name, since, until, replacement.
_GONE: tuple[tuple[str, Version, Version, str | None], ...] = (
    ("CHECKS_DISABLE", (), (2, 3), None),
    ("SINGLE_RING_THRESHOLD", (), (2, 3), None),
    ("IB_CUDA_SUPPORT", (), (2, 4), "NET_GDR_LEVEL"),
    ("IB_GDR_LEVEL", (), (2, 4), "NET_GDR_LEVEL"),
    ("LL_THRESHOLD", (), (2, 5), None),
    ("TREE_THRESHOLD", (2, 4), (2, 5), None),
    ("THREAD_THRESHOLD", (), (2, 5, 6), "THREAD_THRESHOLDS"),
    ("RINGS", (), (2, 5, 6), "GRAPH_FILE"),
    ("SHARED_BUFF_COUNT", (2, 8, 3), (2, 9, 6), None),
    ("GDRCOPY_TAIL_ENABLE", (2, 9, 6), (2, 12, 7), None),
    ("AGG_ALLOC_MODE", (2, 10, 3), (2, 13, 4), None),
    ("AGG_CHANNEL_SIZE", (2, 10, 3), (2, 20, 3), None),
    ("MNNVL", (2, 20, 3), (2, 21, 5), "MNNVL_ENABLE"),
    ("CUDA_PATH", (2, 13, 4), (2, 21, 5), None),
    ("WORK_FIFO_DEPTH", (2, 13, 4), (2, 22, 3), "WORK_FIFO_BYTES"),
    ("PROXY_PROFILE", (2, 12, 7), (2, 23, 4), "PROFILER_PLUGIN"),
    ("GIN_COUNTER_POOL_SIZE", (2, 28, 7), (2, 30, 3), None),
    ("GIN_SIGNAL_POOL_SIZE", (2, 28, 7), (2, 30, 3), None),
    ("GIN_NCONTEXTS", (2, 28, 7), (2, 30, 3), "GIN_NCONNECTIONS"),
    ("GIN_EXCLUSIVE_CONTEXTS", (2, 29, 7), (2, 30, 3), None),
    ("CREATE_THREAD_CONTEXT", (2, 13, 4), (2, 30, 7), None),
    ("SHM_MEMCPY_MODE", (2, 13, 4), (2, 30, 7), None),
    ("SHM_USE_CUDA_MEMCPY", (2, 13, 4), (2, 30, 7), None),
    ("MLOPART_RDMA_ENABLE", (2, 30, 7), (2, 32, 3), None),
    ("NET_GDR_MLOPART", (2, 30, 7), (2, 32, 3), None),
    ("TOPO_SCATTER_START_NET", (2, 31, 2), (2, 32, 3), None),
)
# fmt: off
_INSTEAD = {
    "MAX_NCHANNELS": "MAX_CTAS", "MIN_NCHANNELS": "MIN_CTAS", "MAX_NRINGS": "MAX_CTAS", "MIN_NRINGS": "MIN_CTAS",
    "CHECK_POINTERS": "CHECK_MODE=DEBUG_LOCAL",
}
# fmt: on


def _internal() -> Iterable[Variable]:
    for since, names in _INTERNAL.items():
        numbers, _, texts = names.partition("|")
        for name in numbers.split():
            yield Variable(f"NCCL_{name}", ANY_NUMBER, since, instead=_nccl(_INSTEAD.get(name)))
        for name in texts.split():
            yield Variable(f"NCCL_{name}", file_path if name.endswith("_FILE") else any_text, since)


def _nccl(name: str | None) -> str | None:
    return None if name is None else f"NCCL_{name}"


def _documented_variables(rows: Iterable[tuple[str, Grammar, Version]], group: Group) -> Iterable[Variable]:
    for name, grammar, since in rows:
        yield Variable(f"NCCL_{name}", grammar, since, group=group, instead=_nccl(_INSTEAD.get(name)))


VARIABLES: tuple[Variable, ...] = (
    *_documented_variables(_SYSTEM, "system"),
    *_documented_variables(_DEBUGGING, "debugging"),
    *_internal(),
    *(Variable(f"NCCL_{name}", any_text, since, until, instead=_nccl(new)) for name, since, until, new in _GONE),
)
NCCL: Mapping[str, Variable] = {variable.name: variable for variable in VARIABLES}

# Set in many launch scripts but read by nothing.
CUDA_GUIDE = "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables"
# fmt: off
# Variables that CUDA reads (CUDA C++ Programming Guide 13.0, CUDA environment variables), and others close to them.
_CUDA = frozenset({
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_MAX_COPY_CONNECTIONS", "CUDA_MODULE_LOADING", "CUDA_MODULE_DATA_LOADING", "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES", "GPU_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HPU_VISIBLE_DEVICES",
    "MUSA_VISIBLE_DEVICES", "MACA_VISIBLE_DEVICES",
})
# Long names that users write themselves.
_OFTEN_SET = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS")
# fmt: on
NEVER_READ = ("NCCL_TIMEOUT",)

# Names with NCCL's prefix that other software reads: PyTorch (older names), images, builds, tests, cloud plugins.
# fmt: off
FOREIGN = frozenset({
    "NCCL_ASYNC_ERROR_HANDLING", "NCCL_BLOCKING_WAIT", "NCCL_DESYNC_DEBUG", "NCCL_ENABLE_TIMING",
    "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", "NCCL_VERSION", "NCCL_HOME", "NCCL_ROOT", "NCCL_ROOT_DIR", "NCCL_DIR",
    "NCCL_PATH", "NCCL_LIBRARY", "NCCL_LIBRARIES", "NCCL_LIBRARY_PATH", "NCCL_LIB", "NCCL_LIBS", "NCCL_LIBDIR",
    "NCCL_INCLUDE", "NCCL_INSTALL_DIR", "NCCL_INSTALL_PATH", "NCCL_SRC", "NCCL_SRC_DIR", "NCCL_SO_PATH", "NCCL_PREFIX",
    "NCCL_VER", "NCCL_MAJOR", "NCCL_PLUGIN_P2P", "NCCL_DYNAMIC_CHUNK_SIZE", "NCCL_USE_SNAP", "NCCL_FLOW_COUNT",
})
FOREIGN_PREFIXES = (
    "NCCL_TESTS", "NCCL_LIB_", "NCCL_INC", "NCCL_BUILD", "NCCL_CMAKE", "NCCL_PKG", "NCCL_SHARP", "NCCL_UCX",
    "NCCL_IBEXT", "NCCL_INSPECTOR", "NCCL_PROFILE_", "NCCL_PROFILER_", "NCCL_TUNER_", "NCCL_FASTRAK",
    "NCCL_GPUDIRECTTCPX", "NCCL_TCPX", "NCCL_SHIMNET", "NCCL_GIB", "NCCL_GPU_", "NCCL_CTRAN", "NCCL_COLLTRACE",
    "NCCL_CVAR", "NCCL_RESHARD", "NCCL_EP_", "NCCL_CHECKPOINT", "NCCL_NET_OFI", "NCCL_TELEMETRY", "NCCL_MSCCL",
)
# fmt: on


def is_foreign(name: str) -> bool:
    """Return whether software other than NCCL reads this name."""
    return name in FOREIGN or name.startswith(FOREIGN_PREFIXES)


def edit_distance(a: str, b: str, limit: int) -> int:
    """Return the edit distance (change, add, drop, or swap neighbors), or limit + 1 if it is above `limit`."""
    if abs(len(a) - len(b)) > limit:
        return limit + 1
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        older, before, row = before, row, [i]
        for j, y in enumerate(b, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return limit + 1
    return min(row[-1], limit + 1)


def nearest_name(name: str, known: Iterable[str], most: int = 2) -> str | None:
    """Return the closest known name: up to `most` edits (1 in short names), or the same words in another order."""
    best: tuple[int, str] | None = None
    words, letters = sorted(name.split("_")), set(name)
    for candidate in known:
        if len(candidate) == len(name) and sorted(candidate.split("_")) == words:
            return candidate
        limit = min(most, 2 if len(candidate) >= 14 else 1)
        # Cheap bounds first: one edit changes the length by at most 1 and the set of letters by at most 2.
        if abs(len(candidate) - len(name)) > limit or len(letters.symmetric_difference(candidate)) > 2 * limit:
            continue
        if (far := edit_distance(name, candidate, limit)) <= limit and (best is None or far < best[0]):
            best = (far, candidate)
    return best[1] if best else None


@cache
def misspelt_cuda_name(name: str) -> str | None:
    """Return the variable that a misspelled name means: of CUDA, NCCL, or a launcher; None if it is not misspelled."""
    if name in NCCL or name in _CUDA or name in NEVER_READ or is_foreign(name):
        return None
    return nearest_name(name, NCCL if name.startswith("NCCL_") else _OFTEN_SET)
