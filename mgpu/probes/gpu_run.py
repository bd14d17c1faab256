"""Does a GPU compute correctly, and do copies between GPUs arrive intact?

Runs in one child process per GPU, in the training run's interpreter, with CUDA_VISIBLE_DEVICES set to that GPU: a
hung driver or a crash affects only this GPU's result. Calls libcuda.so.1 through ctypes to get CUDA's own error codes.
If torch is installed, it runs the kernels. Imports only the standard library and torch.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import re
import time
from collections.abc import Iterator
from typing import Any

# cuda.h: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR, _MULTIPROCESSOR_COUNT; two codes
_CAPABILITY, _MULTIPROCESSORS = (75, 76), 16
_NO_DEVICE, _PEER_ALREADY = 100, 704
_BF16_SINCE = (8, 0)  # CUDA C++ Programming Guide: bfloat16 arithmetic needs compute capability 8.0

_CHECKED_BYTES = 16 << 20  # memory that is written and read back
_COPIED_BYTES = 16 << 20  # from GPU to GPU
_SIZE, _ROUNDS, _SEED = 2048, 8, 2026  # of the matrices


class _CudaError(Exception):
    """A call of libcuda that did not return CUDA_SUCCESS."""

    def __init__(self, call: str, code: int, name: str | None) -> None:
        self.call, self.code, self.name = call, code, name


class _Cuda:
    """libcuda.so.1. Every call raises _CudaError unless it succeeds."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")

    def __call__(self, call: str, *arguments: Any, fine: tuple[int, ...] = ()) -> None:
        try:
            function = getattr(self.library, call)
        except AttributeError:  # an older driver
            raise _CudaError(call, -1, "not in this driver") from None
        code = int(function(*arguments))
        if code and code not in fine:
            raise _CudaError(call, code, self._name(code))

    def _name(self, code: int) -> str | None:
        """Return CUDA's name for the code. A newer driver can return codes that are not known here."""
        name = ctypes.c_char_p()
        with contextlib.suppress(AttributeError):
            self.library.cuGetErrorName(code, ctypes.byref(name))
        return name.value.decode("ascii", "replace") if name.value else None

    def number(self, call: str, *arguments: Any) -> int:
        """Make a call that writes an int through its first argument, and return it."""
        value = ctypes.c_int()
        self(call, ctypes.byref(value), *arguments)
        return value.value

    def pointer(self, call: str, *arguments: Any) -> ctypes.c_void_p:
        """Make a call that writes a handle through its first argument, and return it."""
        value = ctypes.c_void_p()
        self(call, ctypes.byref(value), *arguments)
        return value


def probe(peers: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the results of the one visible GPU; with `peers`, of copies between that many visible GPUs.

    `so_far` is updated at each step, so a crash or hang keeps the stage. `gpu_run` is the final result.
    """
    yield from _test_copies(peers) if peers else _test_gpu()


# ---- one GPU


def _test_gpu() -> Iterator[dict[str, Any]]:
    start = time.perf_counter()
    found: dict[str, Any] = {"ended": "failed", "stage": "library"}
    try:
        for asking in _steps(found):
            yield {"so_far": dict(found), "asking": asking}
        found["ended"] = "done"
    except _CudaError as refused:
        words = f"{refused.call} returned {refused.code}" if refused.code >= 0 else f"{refused.call}: {refused.name}"
        found |= {"code": refused.code if refused.code >= 0 else None, "name": refused.name, "detail": words}
    except Exception as error:
        found |= {"code": _code(error), "detail": _first_line(error)}
    found["seconds"] = round(time.perf_counter() - start, 3)
    yield {"so_far": dict(found), "asking": None, "gpu_run": dict(found)}


def _steps(found: dict[str, Any]) -> Iterator[str]:
    """Yield the name of each step before it runs; results are written to `found`."""
    yield "loading libcuda.so.1"
    cuda = _Cuda()
    found |= {"stage": "init", "libcuda": _mapped_path("/libcuda.so")}
    yield "cuInit"
    cuda("cuInit", 0)
    version = cuda.number("cuDriverGetVersion")
    found["cuda_version"] = [version // 1000, version % 1000 // 10]
    if cuda.number("cuDeviceGetCount") == 0:
        raise _CudaError("cuDeviceGetCount", _NO_DEVICE, "CUDA_ERROR_NO_DEVICE")
    found["stage"] = "context"
    yield "cuDevicePrimaryCtxRetain"
    device = cuda.number("cuDeviceGet", 0)
    capability = tuple(cuda.number("cuDeviceGetAttribute", which, device) for which in _CAPABILITY)
    found["multiprocessors"] = cuda.number("cuDeviceGetAttribute", _MULTIPROCESSORS, device)
    cuda("cuCtxSetCurrent", cuda.pointer("cuDevicePrimaryCtxRetain", device))
    found["stage"] = "memory"
    yield "cuMemAlloc"
    found["memory_free_bytes"] = _free_memory(cuda)
    found["memory_intact"] = _memory_intact(cuda)
    yield from _torch_steps(found, capability)


def _free_memory(cuda: _Cuda) -> int:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value


def _memory_intact(cuda: _Cuda) -> bool:
    """Whether test patterns that the GPU wrote to its memory are read back unchanged."""
    words = _CHECKED_BYTES // 4
    place = ctypes.c_void_p()
    cuda("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(_CHECKED_BYTES))
    host = ctypes.create_string_buffer(_CHECKED_BYTES)
    intact = True
    for pattern in (0x5A5AA5A5, 0xA5A55A5A):
        cuda("cuMemsetD32_v2", place, ctypes.c_uint(pattern), ctypes.c_size_t(words))
        cuda("cuCtxSynchronize")
        cuda("cuMemcpyDtoH_v2", host, place, ctypes.c_size_t(_CHECKED_BYTES))
        intact = intact and host.raw == pattern.to_bytes(4, "little") * words
    cuda("cuMemFree_v2", place)
    return intact


def _torch_steps(found: dict[str, Any], capability: tuple[int, ...]) -> Iterator[str]:
    """Run a kernel twice in each precision, with the same inputs on every GPU."""
    found["stage"] = "torch"
    yield "import torch"
    try:
        import torch
    except ModuleNotFoundError as error:
        found["no_kernel"] = (
            f"PyTorch is not installed ({error})" if error.name == "torch" else f"import torch: {error}"
        )
        return
    except BaseException as error:
        found["no_kernel"] = f"import torch: {_first_line(error)}"
        return
    if getattr(torch.version, "cuda", None) is None:
        found["no_kernel"] = f"PyTorch {torch.__version__} was built without CUDA"
        return
    yield "torch.cuda.init"
    torch.cuda.init()
    found |= {"stage": "kernel", "results": {}, "unsteady": [], "not_finite": []}
    types = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    for name, kind in types.items():
        if name == "bf16" and capability < _BF16_SINCE:
            continue
        yield f"a matrix product in {name}"
        digest, finite = _compute(torch, "cuda:0", kind)
        again, _ = _compute(torch, "cuda:0", kind)
        found["results"][name] = digest
        found["unsteady"] += [name] if again != digest else []
        found["not_finite"] += [] if finite else [name]
    found |= _nccl()


def _compute(torch: Any, device: str, kind: Any) -> tuple[str, bool]:
    """Return the digest of a chain of matrix products, and whether it is finite. The inputs are made on the CPU."""
    source = torch.Generator().manual_seed(_SEED)
    left = torch.randn(_SIZE, _SIZE, generator=source).to(kind).to(device)
    right = (torch.randn(_SIZE, _SIZE, generator=source) / _SIZE**0.5).to(kind).to(device)
    for _ in range(_ROUNDS):  # cuBLAS multiplies, one of torch's own kernels adds
        left = torch.add(left @ right, left, alpha=0.5)
    result = left.cpu().contiguous()
    data = ctypes.string_at(result.data_ptr(), result.numel() * result.element_size())
    return hashlib.sha256(data).hexdigest()[:16], bool(torch.isfinite(result).all())


def _nccl() -> dict[str, Any]:
    """Return the libnccl that torch loaded into this process, and the version it reports."""
    path = _mapped_path("/libnccl.so")
    if path is None:
        return {}
    number = ctypes.c_int()
    try:
        if ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number)):
            return {"nccl_path": path}
    except (OSError, AttributeError):
        return {"nccl_path": path}
    major, rest = divmod(number.value, 10000) if number.value >= 10000 else divmod(number.value, 1000)
    return {"nccl_path": path, "nccl_version": f"{major}.{rest // 100}.{rest % 100}"}


def _mapped_path(part: str, maps: str = "/proc/self/maps") -> str | None:
    """Return the path of a library that this process has mapped."""
    try:
        with open(maps, encoding="utf-8", errors="replace") as file:
            paths = ["/" + line.partition("/")[2].rstrip("\n") for line in file if "/" in line]
    except OSError:
        return None
    return next((path for path in paths if part in path), None)


def _code(error: Exception) -> int | None:
    """Return the CUDA error number of a torch error: an attribute since 2.8, "Error 802: …" in torch.cuda.init."""
    code = getattr(error, "error_code", None)
    if isinstance(code, int):
        return code
    if type(error).__name__ == "OutOfMemoryError":
        return 2
    number = re.search(r"\b[Ee]rror (\d{1,3})\b", str(error))
    return int(number.group(1)) if number else None


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip()}".splitlines()[0][:300]


# ---- between GPUs


def _test_copies(count: int) -> Iterator[dict[str, Any]]:
    """Copy between all pairs of visible GPUs and read back. A pair is [from, to, access, intact, error]."""
    pairs: list[list[Any]] = []
    found: dict[str, Any] = {"pairs": pairs, "error": None}
    yield {"so_far": found, "asking": "cuInit"}
    try:
        cuda = _Cuda()
        cuda("cuInit", 0)
        sent = os.urandom(_COPIED_BYTES // 16) * 16
        devices = [cuda.number("cuDeviceGet", place) for place in range(count)]
        contexts, buffers = [], []
        for device in devices:
            contexts.append(cuda.pointer("cuDevicePrimaryCtxRetain", device))
            cuda("cuCtxSetCurrent", contexts[-1])
            buffers.append(ctypes.c_void_p())
            cuda("cuMemAlloc_v2", ctypes.byref(buffers[-1]), ctypes.c_size_t(_COPIED_BYTES))
        for a in range(count):
            for b in range(count):
                if a != b:
                    pair: list[Any] = [a, b, None, None, None]
                    pairs.append(pair)
                    yield {"so_far": found, "asking": f"a copy from {a} to {b}"}
                    try:
                        pair[2] = bool(cuda.number("cuDeviceCanAccessPeer", devices[a], devices[b]))
                        source, target = (contexts[a], buffers[a]), (contexts[b], buffers[b])
                        pair[3] = _copy_intact(cuda, sent, source, target, pair[2])
                    except _CudaError as refused:
                        pair[4] = f"{refused.call} returned {refused.code} ({refused.name})"
    except _CudaError as refused:
        found["error"] = f"{refused.call} returned {refused.code} ({refused.name})"
    except OSError as error:
        found["error"] = str(error)
    yield {"so_far": found, "asking": None, "gpu_run": found}


def _copy_intact(cuda: _Cuda, sent: bytes, source: tuple[Any, Any], target: tuple[Any, Any], access: bool) -> bool:
    """Copy and return whether the data arrived intact; with peer access if CUDA reports it."""
    size = ctypes.c_size_t(len(sent))
    cuda("cuCtxSetCurrent", source[0])
    cuda("cuMemcpyHtoD_v2", source[1], sent, size)
    if access:
        cuda("cuCtxEnablePeerAccess", target[0], 0, fine=(_PEER_ALREADY,))
    cuda("cuCtxSetCurrent", target[0])
    cuda("cuMemsetD32_v2", target[1], ctypes.c_uint(0), ctypes.c_size_t(len(sent) // 4))
    cuda("cuCtxSynchronize")
    cuda("cuCtxSetCurrent", source[0])
    cuda("cuMemcpyPeer", target[1], target[0], source[1], source[0], size)
    cuda("cuCtxSynchronize")
    cuda("cuCtxSetCurrent", target[0])
    host = ctypes.create_string_buffer(len(sent))
    cuda("cuMemcpyDtoH_v2", host, target[1], size)
    return host.raw == sent
