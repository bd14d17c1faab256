"""An `nvidia-smi` for machines that are not there: it prints what NVML (the fake one of the tests) answers.

Only the forms that the peers of `side_by_side.py` ask for: no argument, -L, and --query-gpu=… --format=csv,noheader.
The layout and the messages of a failed start follow NVIDIA's tool; exit codes are NVML's.
"""

from __future__ import annotations

import sys

import pynvml

_FAILED = {
    9: "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
    "driver is installed and running.",
    18: "Failed to initialize NVML: Driver/library version mismatch",
}


def text(value: object) -> str:
    """NVML's texts, which older bindings give as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def asked(call: object, *arguments: object) -> object:
    """One answer, or NVML's words."""
    try:
        return call(*arguments)  # type: ignore[operator]
    except pynvml.NVMLError as error:
        return f"[{error}]"


def main() -> int:
    """As the arguments say."""
    arguments = sys.argv[1:]
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        print(_FAILED.get(error.value, f"Failed to initialize NVML: {error}"))
        return int(error.value)
    handles = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handles.append((index, pynvml.nvmlDeviceGetHandleByIndex(index)))
        except pynvml.NVMLError as error:
            print(f"Unable to determine the device handle for GPU{index}: {error}")
            return int(error.value)
    if "-L" in arguments:
        for index, handle in handles:
            name, uuid = asked(pynvml.nvmlDeviceGetName, handle), asked(pynvml.nvmlDeviceGetUUID, handle)
            print(f"GPU {index}: {text(name)} (UUID: {text(uuid)})")
        return 0
    query = next((a.partition("=")[2] for a in arguments if a.startswith("--query-gpu=")), None)
    driver = text(asked(pynvml.nvmlSystemGetDriverVersion))
    if query is not None:
        for index, handle in handles:
            print(", ".join(_field(name, index, handle, driver) for name in query.split(",")))
        return 0
    cuda = asked(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    version = f"{cuda // 1000}.{cuda % 1000 // 10}" if isinstance(cuda, int) else "N/A"
    print(f"| NVIDIA-SMI {driver:<20} Driver Version: {driver:<20} CUDA Version: {version:<8} |")
    for index, handle in handles:
        memory = asked(pynvml.nvmlDeviceGetMemoryInfo, handle)
        used = f"{memory.used >> 20}MiB / {memory.total >> 20}MiB" if hasattr(memory, "used") else memory  # type: ignore[attr-defined]
        errors = asked(pynvml.nvmlDeviceGetTotalEccErrors, handle, 1, 0)
        heat = asked(pynvml.nvmlDeviceGetTemperature, handle, 0)
        print(f"| {index}  {text(asked(pynvml.nvmlDeviceGetName, handle))} | {errors} |")
        print(f"| N/A  {heat}C | {used} | Default |")
    return 0


def _field(name: str, index: int, handle: object, driver: str) -> str:
    """One field of --query-gpu."""
    if name == "index":
        return str(index)
    if name == "driver_version":
        return driver
    if name == "name":
        return text(asked(pynvml.nvmlDeviceGetName, handle))
    if name == "uuid":
        return text(asked(pynvml.nvmlDeviceGetUUID, handle))
    if name == "compute_cap":
        found = asked(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
        return ".".join(map(str, found)) if isinstance(found, tuple | list) else str(found)
    if name == "memory.total":
        memory = asked(pynvml.nvmlDeviceGetMemoryInfo, handle)
        return f"{memory.total >> 20} MiB" if hasattr(memory, "total") else str(memory)
    return "[N/A]"


if __name__ == "__main__":
    sys.exit(main())
