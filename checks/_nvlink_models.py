"""NVLink properties of GPU models and the meaning of their fabric status, each with its source.

Keyed by the full NVML name: "GH200" contains "H200", and a PCIe or NVL board with the same chip has other links. Models
not listed here are not judged by model.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mgpu.snapshot import Gpu

_VALIDATION = "https://docs.nvidia.com/health-validation/reference/checks/nvlink"
_GPUD = "https://github.com/leptonai/gpud"  # its recordings of `nvidia-smi nvlink --status`


class Model(NamedTuple):
    """The NVLinks of a model on an NVSwitch board."""

    name: str  # a regular expression for the full name
    nvlinks: int | None  # number of links, all expected up; None: boards differ
    nvlink_mb_per_s: int | None  # per link and direction, as NVML reports it
    source: str


MODELS: tuple[Model, ...] = (
    Model(r"(NVIDIA )?A100-SXM4?-[48]0GB", 12, 25_000, _GPUD),
    Model(r"NVIDIA H100 80GB HBM3", 18, 26_562, _VALIDATION),
    Model(r"NVIDIA H200", 18, 26_562, _VALIDATION),
    Model(r"NVIDIA B200", 18, 53_125, _VALIDATION),
    # An NVL72 tray and an NVL4 board have the same name but different links.
    Model(r"NVIDIA GB[23]00", None, 53_125, _VALIDATION),
)

# Chips connected to a Grace CPU by NVLink-C2C.
GRACE = re.compile(r"\bG[HB][23]00\b")

# GPUDirect RDMA is for data center and professional boards:
# docs.nvidia.com/cuda/gpudirect-rdma, "GPUDirect RDMA is available on both Tesla and Quadro GPUs".
CONSUMER = re.compile(r"\b(GeForce|TITAN)\b")


def model_of(gpu: Gpu) -> Model | None:
    """Return the known properties of a GPU's model, or None."""
    return next((model for model in MODELS if re.fullmatch(model.name, gpu.name or "")), None)


# nvml.h NVML_GPU_FABRIC_HEALTH_MASK_*: two-bit fields; 1 means that the condition is true (0: not supported).
_HEALTH = {
    0: "its bandwidth is degraded",
    2: "its routes are being recovered",
    4: "a route is unhealthy",
    6: "it is recovering from an access timeout",
}
# In the same mask, a four-bit field: 0 means not supported, 1 means no error.
_CONFIGURATION = {
    2: "incorrect system GUID",
    3: "incorrect chassis serial number",
    4: "no partition",
    5: "too few NVLinks",
    6: "incompatible GPU firmware",
    7: "invalid location",
    8: "invalid GPU state",
}


def fabric_complaints(mask: int | None) -> tuple[str, ...] | None:
    """Return the problems that the fabric reports for a GPU, or None if it reports no health at all."""
    if not mask:
        return None
    found = [complaint for shift, complaint in _HEALTH.items() if mask >> shift & 0b11 == 1]
    code = mask >> 8 & 0b1111
    if code > 1:
        found.append(f"configuration: {_CONFIGURATION.get(code, f'code {code}')}")
    return tuple(found)
