"""What is known of GPU models' links, and of what their fabric reports, each with its source.

Keyed by the whole name NVML gives: "GH200" contains "H200", and a PCIe or NVL board of the same chip has other links. A
model that is not here is not judged by model.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mgpu.snapshot import Gpu

_VALIDATION = "https://docs.nvidia.com/health-validation/reference/checks/nvlink"
_GPUD = "https://github.com/leptonai/gpud"  # its recordings of `nvidia-smi nvlink --status`


class Model(NamedTuple):
    """The NVLinks of a model that sits on an NVSwitch board."""

    name: str  # a regular expression for the whole name
    nvlinks: int | None  # all of them are up; None: boards differ
    nvlink_mb_per_s: int | None  # one link, one way, as NVML reports it
    source: str


MODELS: tuple[Model, ...] = (
    Model(r"(NVIDIA )?A100-SXM4?-[48]0GB", 12, 25_000, _GPUD),
    Model(r"NVIDIA H100 80GB HBM3", 18, 26_562, _VALIDATION),
    Model(r"NVIDIA H200", 18, 26_562, _VALIDATION),
    Model(r"NVIDIA B200", 18, 53_125, _VALIDATION),
    # An NVL72 tray and an NVL4 board bear the same name, and their links go to different places.
    Model(r"NVIDIA GB[23]00", None, 53_125, _VALIDATION),
)

# The chips that hang on a Grace CPU by NVLink-C2C.
GRACE = re.compile(r"\bG[HB][23]00\b")

# GPUDirect RDMA is for data-centre and professional boards:
# docs.nvidia.com/cuda/gpudirect-rdma, "GPUDirect RDMA is available on both Tesla and Quadro GPUs".
CONSUMER = re.compile(r"\b(GeForce|TITAN)\b")


def model_of(gpu: Gpu) -> Model | None:
    """What is known of a GPU's model."""
    return next((model for model in MODELS if re.fullmatch(model.name, gpu.name or "")), None)


# nvml.h NVML_GPU_FABRIC_HEALTH_MASK_*: fields of two bits, of which 1 says that the bad thing holds (0: not supported).
_HEALTH = {
    0: "its bandwidth is degraded",
    2: "its routes are being recovered",
    4: "a route is unhealthy",
    6: "it recovers from an access timeout",
}
# … and a field of four bits: 0 not supported, 1 none.
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
    """What the fabric says is wrong with a GPU's place in it; None where it says nothing at all."""
    if not mask:
        return None
    found = [words for shift, words in _HEALTH.items() if mask >> shift & 0b11 == 1]
    code = mask >> 8 & 0b1111
    if code > 1:
        found.append(f"configuration: {_CONFIGURATION.get(code, f'code {code}')}")
    return tuple(found)
