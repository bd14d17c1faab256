"""What does a feature need: which GPU, which version of which package? Facts, each with its source.

The wizard and the checks share these facts, so no check rejects a proposal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

# Compute capabilities.
BF16: Final = (8, 0)  # native bf16 from here; torch.cuda.is_bf16_supported() counts emulation as well
FP16: Final = (7, 0)  # tensor cores
FP8: Final = (8, 9)  # accelerate.utils check_cuda_fp8_capability

# Values of distributed_type with an NVIDIA GPU for each rank (accelerate.utils.DistributedType, 1.15).
GPU_TYPES: Final = ("MULTI_GPU", "FSDP", "DEEPSPEED", "MEGATRON_LM")

# fsdp_version was added in accelerate 1.6: older versions accept the key, ignore it and run FSDP1.
FSDP2_ACCELERATE: Final = (1, 6)
FSDP2_TORCH: Final = (2, 6)  # accelerate.utils.constants: FSDP2_PYTORCH_VERSION
TENSOR_PARALLEL_TRANSFORMERS: Final = (4, 52)  # BETA_TP_AVAILABLE_TRANSFORMERS_VERSION
# Measured: the launcher of 1.6.0 passes fp8_backend to the ranks; 1.4.0 stops on fp8; 1.3.0 and 1.0.1 drop the backend.
FP8_ACCELERATE: Final = (1, 6)
# fmt: off
# accelerate's fp8 backends, as in fp8_config: the package, and its minimum version (utils/imports.py). In accelerate's
# own order of preference (1.15).
FP8_LIBRARIES: Final[Mapping[str, tuple[str, tuple[int, ...]]]] = {
    "AO": ("torchao", (0, 6, 1)), "TE": ("transformer-engine", ()), "MSAMP": ("ms-amp", ()),
}
# fmt: on

# Up to this version, torch waits indefinitely for the lock of a killed build; later versions give up, or use a kernel
# lock and leave the file in place (github.com/pytorch/pytorch/pull/190543).
BATON_TORCH: Final = (2, 13)


def version_numbers(version: str | None) -> tuple[int, ...]:
    """Return the leading numbers of a version: "580.65.06" -> (580, 65, 6), "2.13.0+cu130" -> (2, 13, 0)."""
    found = re.match(r"\d+(?:\.\d+)*", version or "")
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def is_older(version: str | None, than: tuple[int, ...]) -> bool:
    """Return whether a version is known and below this one."""
    known = version_numbers(version)
    return bool(known) and known < than


def fp8_backends(packages: Mapping[str, str]) -> tuple[str, ...]:
    """Return the fp8 backends whose library is installed and new enough."""
    return tuple(
        name
        for name, (package, least) in FP8_LIBRARIES.items()
        if package in packages and version_numbers(packages[package]) >= least
    )
