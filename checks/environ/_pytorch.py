"""Which variables do PyTorch and its allocator read, and which values do they accept?

torch: ProcessGroupNCCL.hpp, FlightRecorder.hpp, Utils.hpp and distributed_c10d.py of 2.13 to 2.15. The allocator:
c10/core/AllocatorConfig.cpp and c10/cuda/CUDAAllocatorConfig.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .._grammars import Version

# torch reads these with getCvarBool: any value not listed here raises (torch Utils.hpp).
TRUE, FALSE = frozenset({"y", "yes", "1", "t", "true"}), frozenset({"n", "no", "0", "f", "false"})
# fmt: off
TORCH_BOOLEANS = (
    "TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT", "TORCH_NCCL_ENABLE_MONITORING", "TORCH_NCCL_DESYNC_DEBUG",
    "NCCL_DESYNC_DEBUG", "TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_NCCL_ENABLE_TIMING", "NCCL_ENABLE_TIMING",
    "TORCH_NCCL_NAN_CHECK", "TORCH_NCCL_HIGH_PRIORITY", "TORCH_GLOO_LAZY_INIT",
    "TORCH_NCCL_PROPAGATE_ERROR", "TORCH_NCCL_RETHROW_CUDA_ERRORS",
    "TORCH_NCCL_LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN", "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
)
# fmt: on
# torch reads these with getCvarInt (std::stoi: leading digits count, none raises), the last with int() in Python.
# fmt: off
TORCH_NUMBERS = (
    "TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
    "TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC",
    "TORCH_NCCL_COORD_CHECK_MILSEC", "TORCH_DIST_INIT_BARRIER",
)
# fmt: on
# Those of both lists that are read without NCCL (measured PyTorch 2.13, gloo). Only ProcessGroupNCCL reads the others.
# fmt: off
READ_BY_GLOO = frozenset({
    "TORCH_GLOO_LAZY_INIT", "TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE", "TORCH_DIST_INIT_BARRIER",
})
# fmt: on
TORCH_DEBUG_LEVELS = ("OFF", "INFO", "DETAIL")  # any case; everything else raises, including an empty value

# Old names; PyTorch 2.2 brought the new ones (github.com/pytorch/pytorch/pull/114077), and the new one wins.
TORCH_ALIASES = {
    "NCCL_ASYNC_ERROR_HANDLING": "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "NCCL_BLOCKING_WAIT": "TORCH_NCCL_BLOCKING_WAIT",
    "NCCL_DESYNC_DEBUG": "TORCH_NCCL_DESYNC_DEBUG",
    "NCCL_ENABLE_TIMING": "TORCH_NCCL_ENABLE_TIMING",
    "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK": "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
}
TORCH_RENAMED: Version = (2, 2)

# Only PyTorch uses these prefixes, so a name that almost matches a known one is a typo.
TORCH_PREFIXES = (
    "TORCH_NCCL_",
    "TORCH_DISTRIBUTED_",
    "TORCH_FR_",
    "TORCH_GLOO_",
    "GLOO_",
    "PYTORCH_ALLOC",
    "PYTORCH_CUDA_",
)
# fmt: off
TORCH_NAMES = frozenset({
    *(name for name in (*TORCH_BOOLEANS, *TORCH_NUMBERS) if name.startswith("TORCH")),
    "TORCH_NCCL_TRACE_CPP_STACK", "TORCH_FR_CPP_STACK", "TORCH_FR_DUMP_TEMP_FILE", "TORCH_FR_DUMP_DYNAMIC_FILE_NAME",
    "TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
    "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_TEARDOWN_ON_TIMEOUT", "TORCH_NCCL_EXTRA_DUMP_ON_EXEC",
    "TORCH_NCCL_CUDA_EVENT_CACHE", "TORCH_NCCL_RANKS_PER_ROOT", "TORCH_NCCL_BCAST_UNIQUEID",
    "TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING", "TORCH_NCCL_AVOID_RECORD_STREAMS",
    "TORCH_NCCL_NONBLOCKING_TIMEOUT", "TORCH_NCCL_USE_COMM_NONBLOCKING", "TORCH_DISTRIBUTED_DEBUG",
    "TORCH_DISTRIBUTED_USE_TORCHCOMMS",
    "TORCH_DISTRIBUTED_COMPILE_ON_ONE_RANK", "TORCH_DISTRIBUTED_DETAIL", "GLOO_SOCKET_IFNAME",
    "GLOO_DEVICE_TRANSPORT", "GLOO_LOG_LEVEL", "GLOO_DISABLE_CONNECTION_RETRIES", "GLOO_ASYNC_TIMEOUT_DEBUG",
    "GLOO_ENABLE_STORE_V2_API", "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER", "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
})
# fmt: on


# --- the allocator of PyTorch -------------------------------------------------------------------------------------

# Options of PYTORCH_ALLOC_CONF, the union of all versions (c10/core/AllocatorConfig.cpp, c10/cuda/
# CUDAAllocatorConfig.cpp): anything else raises. "boolean" means exactly True or False.
ALLOCATOR_OPTIONS: Mapping[str, str] = {
    "backend": "backend",
    "max_split_size_mb": "megabytes",
    "max_non_split_rounding_mb": "megabytes",
    "large_segment_size_mb": "text",
    "garbage_collection_threshold": "fraction",
    "roundup_power2_divisions": "divisions",
    "expandable_segments": "boolean",
    "expandable_segments_reserve": "text",
    "expandable_segments_reserve_by_class": "text",
    "release_lock_on_cudamalloc": "boolean",
    "release_lock_on_hipmalloc": "boolean",
    "pinned_use_cuda_host_register": "boolean",
    "pinned_use_hip_host_register": "boolean",
    "pinned_num_register_threads": "power",
    "pinned_use_background_threads": "boolean",
    "pinned_reserve_segment_size_mb": "text",
    "pinned_max_cached_size_mb": "text",
    "pinned_max_round_threshold_mb": "text",
    "pinned_free_catch_all": "text",
    "graph_capture_record_stream_reuse": "boolean",
    "per_process_memory_fraction": "text",
    "throw_on_cudamalloc_oom": "text",
}
NEWEST_ALLOCATOR: Version = (2, 15, 99)  # the options of this version; newer ones may have more
_SMALLEST_SPLIT_MB = 20  # "CachingAllocator option max_split_size_mb too small, must be >= 20"


@dataclass(frozen=True)
class AllocatorFault:
    """An allocator option that PyTorch rejects."""

    option: str
    why: str
    unknown: bool = False


def _allocator_pairs(value: str) -> list[tuple[str, str]]:
    """Split the options as PyTorch does: at commas outside brackets, ignoring spaces."""
    parts = re.split(r",(?![^\[]*\])", value.replace(" ", ""))
    return [(key, rest) for key, _, rest in (part.partition(":") for part in parts) if key]


def allocator_options(value: str) -> dict[str, str]:
    """Return the options by name; the last of each name wins."""
    return dict(_allocator_pairs(value))


def allocator_fault(value: str) -> AllocatorFault | None:
    """Return the first option that PyTorch rejects, or None if all are valid."""
    if value == "***":
        return None
    for key, setting in _allocator_pairs(value):
        kind = ALLOCATOR_OPTIONS.get(key)
        if kind is None:
            return AllocatorFault(key.partition("=")[0], "PyTorch has no such option", unknown="=" not in key)
        if (why := _allocator_misfit(kind, setting)) is not None:
            return AllocatorFault(key, why)
    return None


def _allocator_misfit(kind: str, setting: str) -> str | None:
    """Return why PyTorch rejects this setting, or None if it is valid."""
    if not setting:
        return "no value given, expected NAME:VALUE"
    if kind == "boolean":
        return None if setting in ("True", "False") else "must be exactly True or False"
    if kind == "backend":
        known = setting in ("native", "cudaMallocAsync", "hipMallocAsync")
        return None if known else "must be native or cudaMallocAsync"
    if kind == "megabytes":
        number = _leading_digits(setting)
        if number is None:
            return "not a number"
        return None if number >= _SMALLEST_SPLIT_MB else f"must be at least {_SMALLEST_SPLIT_MB}"
    if kind == "fraction":
        found = re.match(r"\+?(?:[0-9]+\.?[0-9]*|\.[0-9]+)", setting, re.ASCII)
        return None if found and 0 < float(found.group()[:30]) < 1 else "must be between 0 and 1"
    if kind in ("divisions", "power") and not setting.startswith("["):
        number = _leading_digits(setting)
        return None if number and number & (number - 1) == 0 else "must be a power of 2"
    return None


def _leading_digits(setting: str) -> int | None:
    found = re.match(r"\+?[0-9]{1,18}", setting, re.ASCII)
    return int(found.group()) if found else None
