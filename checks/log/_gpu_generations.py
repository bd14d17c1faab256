"""Which torch has kernels for a GPU that the installed one lacks? Texts for `log_gpu_older_or_newer_than_torch`."""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

_ASK = "python -c 'import torch; print(torch.cuda.get_arch_list(), torch.cuda.get_device_capability())'"
# https://github.com/pytorch/pytorch/blob/main/RELEASE.md: wheels for CUDA 12.8 and newer have no kernels below sm_70 or
# sm_75, those for CUDA 12.6 have them from sm_50 to sm_90.
_FIRST_LACKING = 75
_BLACKWELL = 100


def other_generation(groups: Mapping[str, str], _: UncaughtException | None) -> Meaning | None:
    """Say whether the GPU that torch's warning names is older or newer than this torch, and what to install."""
    number = int(groups["arch"].removeprefix("sm_"))
    return Meaning(
        f"the installed torch has no kernels for this GPU: {groups['gpu']} ({groups['arch']})",
        f"A wheel contains code for some GPU generations only; torch's warning lists them. {_why(number)}",
        (_remedy(number), Fix("Compare the two.", (_ASK,))),
    )


def _why(number: int) -> str:
    if number >= _BLACKWELL:
        return "This GPU is a Blackwell, which needs a build for CUDA 12.8 or newer."
    if number < _FIRST_LACKING:
        return "This GPU is older than those of the list: newer wheels leave its generation out."
    return "This GPU is newer than the CUDA that this torch was built with, or the wheel was made for other GPUs only."


def _remedy(number: int) -> Fix:
    if number >= _BLACKWELL:
        return Fix(
            "Install a torch for CUDA 12.8 or newer.",
            ("pip install --upgrade torch --index-url https://download.pytorch.org/whl/cu128",),
        )
    if number < _FIRST_LACKING:
        return Fix(
            "Install a torch for CUDA 12.6, whose wheels still have kernels for it.",
            ("pip install torch --index-url https://download.pytorch.org/whl/cu126",),
        )
    return Fix(
        "Install a newer torch, for a newer CUDA.",
        ("pip install --upgrade torch --index-url https://download.pytorch.org/whl/cu126",),
    )
