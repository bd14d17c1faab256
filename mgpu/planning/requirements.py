"""What does a feature need: which GPU, which version of which package? Facts, each with its source.

The wizard proposes by them and the checks judge by them, so that no proposal is refused by a check.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

# Compute capabilities.
BF16: Final = (8, 0)  # native bf16 begins here; torch.cuda.is_bf16_supported() counts emulation as well
FP16: Final = (7, 0)  # tensor cores
FP8: Final = (8, 9)  # accelerate.utils check_cuda_fp8_capability

# Values of distributed_type whose ranks want a GPU each, of NVIDIA's here (accelerate.utils.DistributedType, 1.15).
GPU_TYPES: Final = ("MULTI_GPU", "FSDP", "DEEPSPEED", "MEGATRON_LM")

# fsdp_version came with accelerate 1.6: older ones take the key, ignore it and run FSDP 1.
FSDP2_ACCELERATE: Final = (1, 6)
FSDP2_TORCH: Final = (2, 6)  # accelerate.utils.constants: FSDP2_PYTORCH_VERSION
TENSOR_PARALLEL_TRANSFORMERS: Final = (4, 52)  # BETA_TP_AVAILABLE_TRANSFORMERS_VERSION
# Measured: the launcher of 1.6.0 hands fp8_backend to the ranks, 1.4.0 stops on fp8, 1.3.0 and 1.0.1 drop the backend.
FP8_ACCELERATE: Final = (1, 6)
# fmt: off
# What accelerate does fp8 with, as fp8_config names it: the package, and its least version (utils/imports.py). In
# accelerate's own order of preference (1.15).
FP8_LIBRARIES: Final[Mapping[str, tuple[str, tuple[int, ...]]]] = {
    "AO": ("torchao", (0, 6, 1)), "TE": ("transformer-engine", ()), "MSAMP": ("ms-amp", ()),
}
# fmt: on

# Up to this version torch waits for ever for the lock of a killed build to vanish; later ones give up, or lock by the
# kernel and leave the file where it is (github.com/pytorch/pytorch/pull/190543).
BATON_TORCH: Final = (2, 13)


def numbers(version: str | None) -> tuple[int, ...]:
    """The leading numbers of a version: "580.65.06" -> (580, 65, 6), "2.13.0+cu130" -> (2, 13, 0)."""
    found = re.match(r"\d+(?:\.\d+)*", version or "")
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def older(version: str | None, than: tuple[int, ...]) -> bool:
    """Whether a version that is known is below this one."""
    known = numbers(version)
    return bool(known) and known < than


def fp8_backends(packages: Mapping[str, str]) -> tuple[str, ...]:
    """The fp8 backends whose library is installed, and new enough."""
    return tuple(
        name
        for name, (package, least) in FP8_LIBRARIES.items()
        if package in packages and numbers(packages[package]) >= least
    )
