"""Which GPU does this rank use, and which CPUs and NUMA node?"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .context import Here

_BUS_ID_LENGTH = 20


def identity_facts(here: Here) -> dict[str, Any]:
    """Return the fields of Rank that identify its device."""
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
    """Return the UUID in NVML's form. torch returns it without the prefix; the name shows if it is a MIG instance."""
    digits = getattr(properties, "uuid", None)
    if digits is None:
        return None
    return f"{'MIG' if ' MIG ' in f'{properties.name} ' else 'GPU'}-{digits}"


def _pci(ordinal: int) -> str | None:
    """Return the PCI address from the loaded driver; older versions of torch do not report it."""
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
    """Return the GPU's NUMA node as the kernel reports it; None if it has none (-1)."""
    if address is None:
        return None
    domain, _, rest = address.partition(":")
    try:
        node = int(Path(f"/sys/bus/pci/devices/{domain[-4:]}:{rest}/numa_node").read_text("ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def spans(numbers: Iterable[int]) -> str:
    """{0, 1, 2, 5} -> "0-2,5"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def model(here: Here) -> str:
    """Return the name of the device that this rank computes on."""
    return str(here.torch.cuda.get_device_properties(here.device).name) if here.on_gpu else "CPU"


def kernels(here: Here) -> str:
    """Return a key that is equal for ranks that use the same kernels, and thus compute the same bits."""
    if here.on_gpu:
        properties = here.torch.cuda.get_device_properties(here.device)
        return f"{properties.name}, {properties.multi_processor_count} SM"
    return f"CPU, {here.torch.backends.cpu.get_cpu_capability()}"
