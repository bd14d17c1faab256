"""Which kind of failure is an error of torch's: memory, or the GPU?"""

from __future__ import annotations

import re
import sys
from typing import Any

from .journal import Failure

_GPU_ERROR = re.compile(r"CUDA (?:driver )?error|CUBLAS_STATUS|CUDNN_STATUS|cudaError|no kernel image", re.IGNORECASE)
_HOST_MEMORY = re.compile(r"can't allocate memory|cannot allocate memory|DefaultCPUAllocator|bad_alloc", re.IGNORECASE)
_ASKED = re.compile(r"[Tt]ried to allocate ([\d.]+ \w+)|you tried to allocate (\d+ bytes)")
_CODE = re.compile(r"\berror:? (\d{1,3})\b", re.IGNORECASE)


def named(error: BaseException) -> Failure | None:
    """The failure with its kind; None for an error that may be anything."""
    words = str(error).strip() or type(error).__name__
    first = f"{type(error).__name__}: {words}".splitlines()[0]
    out_of_memory = getattr(getattr(sys.modules.get("torch"), "cuda", None), "OutOfMemoryError", ())
    if isinstance(error, out_of_memory):
        return Failure(first, "out_of_memory", where="gpu", asked=_asked(words), **_free())
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _HOST_MEMORY.search(words)):
        return Failure(first, "out_of_memory", where="host", asked=_asked(words))
    if isinstance(error, RuntimeError) and _GPU_ERROR.search(words):  # AcceleratorError is one, since torch 2.8
        code = getattr(error, "error_code", None)
        number = _CODE.search(words)
        if not isinstance(code, int):
            code = int(number.group(1)) if number else None
        return Failure(first, "cuda_error", code=code)
    return None


def _asked(words: str) -> str | None:
    found = _ASKED.search(words)
    return next(group for group in found.groups() if group) if found else None


def _free() -> dict[str, Any]:
    """What the GPU says it has left; nothing when it does not answer either."""
    try:
        free, total = sys.modules["torch"].cuda.mem_get_info()
    except Exception:  # whatever it says: the failure is already known
        return {}
    return {"free_mib": free >> 20, "total_mib": total >> 20}
