"""Which GPU is this rank's, and where in the machine are it and the process?"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .context import Here

_BUS_ID_LENGTH = 20


def of(here: Here) -> dict[str, Any]:
    """Fields of Rank that say who it is."""
    found: dict[str, Any] = {
        "device": str(here.device),
        "cpus": spans(os.sched_getaffinity(0)),
        "kernels": kernels(here),
    }
    if not here.on_gpu:
        return found
    properties = here.torch.cuda.get_device_properties(here.device)
    address = _pci(here.device.index)
    return found | {
        "gpu_name": properties.name,
        "gpu_uuid": uuid(properties),
        "gpu_pci": address,
        "numa_node": _numa_node(address),
    }


def uuid(properties: Any) -> str | None:
    """As NVML names it. torch gives the bare digits, of a MIG instance its own, whose model says that it is one."""
    digits = getattr(properties, "uuid", None)
    if digits is None:
        return None
    return f"{'MIG' if ' MIG ' in f'{properties.name} ' else 'GPU'}-{digits}"


def _pci(ordinal: int) -> str | None:
    """The address on the bus, from the driver that this process has loaded: not every torch tells."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        device, text = ctypes.c_int(), ctypes.create_string_buffer(_BUS_ID_LENGTH)
        if cuda.cuDeviceGet(ctypes.byref(device), ordinal):
            return None
        if cuda.cuDeviceGetPCIBusId(text, _BUS_ID_LENGTH, device):
            return None
    except (OSError, AttributeError):
        return None
    return text.value.decode("ascii", "replace").lower() or None


def _numa_node(address: str | None) -> int | None:
    """Of the GPU, as the kernel tells it; None where it has none (-1)."""
    if address is None:
        return None
    domain, _, rest = address.partition(":")
    try:
        node = int(Path(f"/sys/bus/pci/devices/{domain[-4:]}:{rest}/numa_node").read_text("ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def spans(numbers: Iterable[int]) -> str:
    """{0, 1, 2, 5} -> "0-2,5" """
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def model(here: Here) -> str:
    """What this rank computes on, in a word."""
    return str(here.torch.cuda.get_device_properties(here.device).name) if here.on_gpu else "CPU"


def kernels(here: Here) -> str:
    """Ranks of which this is the same compute with the same kernels, and to the same bits."""
    if here.on_gpu:
        properties = here.torch.cuda.get_device_properties(here.device)
        return f"{properties.name}, {properties.multi_processor_count} SM"
    return f"CPU, {here.torch.backends.cpu.get_cpu_capability()}"
