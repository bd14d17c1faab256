"""Which kind of failure is an error of torch: out of memory, or a GPU error?"""

from __future__ import annotations

import re
import sys
from typing import Any

from .journal import Failure

_GPU_ERROR = re.compile(r"CUDA (?:driver )?error|CUBLAS_STATUS|CUDNN_STATUS|cudaError|no kernel image", re.IGNORECASE)
_HOST_MEMORY = re.compile(r"can't allocate memory|cannot allocate memory|DefaultCPUAllocator|bad_alloc", re.IGNORECASE)
_REQUESTED = re.compile(r"[Tt]ried to allocate ([\d.]+ \w+)|you tried to allocate (\d+ bytes)")
_CODE = re.compile(r"\berror:? (\d{1,3})\b", re.IGNORECASE)


def classify(error: BaseException) -> Failure | None:
    """Return the failure with its kind; None for any other error."""
    message = str(error).strip() or type(error).__name__
    first = f"{type(error).__name__}: {message}".splitlines()[0]
    out_of_memory = getattr(getattr(sys.modules.get("torch"), "cuda", None), "OutOfMemoryError", ())
    if isinstance(error, out_of_memory):
        return Failure(first, "out_of_memory", where="gpu", asked=_requested_memory(message), **_free_memory())
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _HOST_MEMORY.search(message)):
        return Failure(first, "out_of_memory", where="host", asked=_requested_memory(message))
    if isinstance(error, RuntimeError) and _GPU_ERROR.search(message):  # AcceleratorError is one, since torch 2.8
        code = getattr(error, "error_code", None)
        number = _CODE.search(message)
        if not isinstance(code, int):
            code = int(number.group(1)) if number else None
        return Failure(first, "cuda_error", code=code)
    return None


def _requested_memory(message: str) -> str | None:
    found = _REQUESTED.search(message)
    return next(group for group in found.groups() if group) if found else None


def _free_memory() -> dict[str, Any]:
    """Return the free and total memory of the GPU; empty if it does not answer."""
    try:
        free, total = sys.modules["torch"].cuda.mem_get_info()
    except Exception:  # of any type: the failure is already known
        return {}
    return {"free_mib": free >> 20, "total_mib": total >> 20}
