"""Do `import torch` and torch.cuda work, and which libraries did the import load?

Runs in its own child process, in the training run's interpreter, because torch can be broken, slow, or crash the
process. It creates no CUDA context, and exits before anything else starts.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

_MAPPED = re.compile(r"lib(nccl|cudart|cublas|cublasLt|cudnn|nvJitLink|cuda)\.so[.\d]*$")
# Extensions compiled for one torch version: package -> its file next to torch (a regular expression).
_EXTENSIONS = {
    "flash_attn": r"flash_attn_2_cuda\..*so",
    "flash_attn_3": r"flash_attn_3/_C\..*so",
    "apex": r"amp_C\..*so",
    "causal_conv1d": r"causal_conv1d_cuda\..*so",
    "mamba_ssm": r"selective_scan_cuda\..*so",
    "torchvision": r"torchvision/_C\.(?:.*\.)?so",
    "xformers": r"xformers/_C\.(?:.*\.)?so",
}
_DIED = "the process died while loading it"


def probe() -> Iterator[dict[str, Any]]:
    """Yield the fact torch_runtime several times with more fields, so a crash keeps the earlier ones."""
    yield {"asking": "import torch"}
    gc.disable()  # nothing that is imported is garbage: an import of torch takes an eighth less (1.6 -> 1.4 s of CPU)
    start = time.perf_counter()
    try:
        import torch
    except BaseException as error:
        yield {"torch_runtime": {"import_error": f"{type(error).__name__}: {error}"}}
        return
    found: dict[str, Any] = {"import_error": None, "import_s": round(time.perf_counter() - start, 3)}
    found["mapped"] = _mapped_libraries("/proc/self/maps")
    yield {"asking": "torch.distributed"}
    distributed = torch.distributed
    found["gloo_available"] = distributed.is_available() and distributed.is_gloo_available()
    found["nccl_available"] = distributed.is_available() and distributed.is_nccl_available()
    if torch.version.cuda is None:
        found |= {"cuda_available": False, "device_count": 0}
    else:
        if found["nccl_available"]:
            found["nccl_version"] = ".".join(map(str, torch.cuda.nccl.version()))
        yield {"asking": "torch.cuda"}
        found |= _devices(torch)
        yield {"asking": "the loaded NCCL and cuDNN", "torch_runtime": found}
        found["nccl_loaded_version"] = _nccl_version((found["mapped"] or {}).get("nccl"))
        found |= _cudnn(torch)
    for package, path in _extensions(os.path.dirname(os.path.dirname(torch.__file__))).items():
        # Yield first what should remain if loading kills the process.
        yield {"asking": path, "torch_runtime": found | {"extensions": {**found.get("extensions", {}), package: _DIED}}}
        found["extensions"] = {**found.get("extensions", {}), package: _load(path)}
    yield {"torch_runtime": found}


def _mapped_libraries(maps: str) -> dict[str, str] | None:
    """Return the CUDA libraries that this process has mapped: name -> path."""
    found: dict[str, str] = {}
    try:
        with open(maps, encoding="utf-8", errors="replace") as file:
            for line in file:
                path = line.partition("/")[2].strip()
                name = _MAPPED.match(os.path.basename(path)) if path else None
                if name:
                    found.setdefault(name.group(1), f"/{path}")
    except OSError:
        return None
    return found


def _nccl_version(path: str | None) -> str | None:
    """Return the version of the loaded libnccl; torch.cuda.nccl.version() is the compile-time version."""
    if path is None:
        return None
    try:
        code = ctypes.c_int()
        if ctypes.CDLL(path).ncclGetVersion(ctypes.byref(code)):
            return None
    except (OSError, AttributeError):
        return None
    number = code.value
    if number < 10000:
        return f"{number // 1000}.{number % 1000 // 100}.{number % 100}"
    return f"{number // 10000}.{number % 10000 // 100}.{number % 100}"


def _cudnn(torch: Any) -> dict[str, str | None]:
    """Return the cuDNN version: 91002 -> 9.10.2. torch rejects one older than its compile-time version."""
    try:
        number = torch.backends.cudnn.version()
    except Exception as error:
        return {"cudnn_error": (str(error).strip() or type(error).__name__).splitlines()[0]}
    if type(number) is not int:
        return {}
    if number < 10000:  # before cuDNN 9: 8907 -> 8.9.7
        return {"cudnn_version": f"{number // 1000}.{number % 1000 // 100}.{number % 100}"}
    return {"cudnn_version": f"{number // 10000}.{number % 10000 // 100}.{number % 100}"}


def _devices(torch: Any) -> dict[str, Any]:
    """Return the devices in torch's order, or the error of torch.cuda.init."""
    try:
        torch.cuda.init()
    except Exception as error:  # the text includes CUDA's error code and message
        words = (str(error).strip() or type(error).__name__).splitlines()[0]
        return {"cuda_available": False, "device_count": 0, "cuda_error": words}
    devices = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        uuid = getattr(properties, "uuid", None)
        devices.append(
            {
                "index": index,
                "name": properties.name,
                "compute_capability": [properties.major, properties.minor],
                "memory_total_bytes": properties.total_memory,
                "uuid": f"GPU-{uuid}" if uuid is not None else None,
            }
        )
    return {"cuda_available": True, "device_count": len(devices), "devices": devices}


def _extensions(site: str) -> Mapping[str, str]:
    """Return the compiled extensions installed next to torch: package -> file."""
    found = {}
    listed: dict[str, list[str]] = {}
    for package, pattern in _EXTENSIONS.items():
        folder, _, name = pattern.rpartition("/")
        if folder not in listed:
            try:
                listed[folder] = sorted(os.listdir(os.path.join(site, folder)))
            except OSError:
                listed[folder] = []
        path = next((entry for entry in listed[folder] if re.fullmatch(name, entry)), None)
        if path:
            found[package] = os.path.join(site, folder, path)
    return found


def _load(path: str) -> str:
    """Load an extension like its package would, with torch's libraries loaded. Return the error; "" on success."""
    try:
        ctypes.CDLL(path)
    except OSError as error:
        return str(error).splitlines()[0]
    return ""
