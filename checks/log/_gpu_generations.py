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
_FIRST_OF_CUDA_12 = 50
_OF_JETSON = (53, 62, 72, 87)
_BLACKWELL = 100
# With --force-reinstall, as pip takes a torch of the same version for the same, and with those that are built for it.
_OF_CUDA_126 = (
    "pip install --force-reinstall torch torchvision torchaudio --index-url https://download.pytorch.org/whl/cu126"
)
_OF_CUDA_128 = (
    "pip install --force-reinstall torch torchvision torchaudio --index-url https://download.pytorch.org/whl/cu128"
)


def other_generation(groups: Mapping[str, str], _: UncaughtException | None) -> Meaning | None:
    """Say whether the GPU that torch's warning names is older or newer than this torch, and what to install."""
    number = int(groups["arch"].removeprefix("sm_"))
    return Meaning(
        f"the installed torch has no kernels for this GPU: {groups['gpu']} ({groups['arch']})",
        f"A wheel contains code for some GPU generations only; torch's warning lists them. {_why(number)}",
        (_remedy(number), Fix("Compare the two.", (_ASK,))),
    )


def _why(number: int) -> str:
    if number in _OF_JETSON:
        return "This GPU is that of a Jetson, for which NVIDIA builds torch itself."
    if number >= _BLACKWELL:
        return "This GPU is a Blackwell, which needs a build for CUDA 12.8 or newer."
    if number < _FIRST_LACKING:
        return "This GPU is older than those of the list: newer wheels leave its generation out."
    return "This GPU is newer than the CUDA that this torch was built with, or the wheel was made for other GPUs only."


def _remedy(number: int) -> Fix:
    if number in _OF_JETSON:
        return Fix("Install NVIDIA's torch for the JetPack release of this machine.", ("cat /etc/nv_tegra_release",))
    if number < _FIRST_OF_CUDA_12:
        return Fix("No current torch has kernels for it: use another GPU, or an old torch that was built for CUDA 11.")
    if number >= _BLACKWELL:
        return Fix(
            "Install a torch for CUDA 12.8 or newer.",
            (_OF_CUDA_128,),
        )
    if number < _FIRST_LACKING:
        return Fix(
            "Install a torch for CUDA 12.6, whose wheels have kernels from sm_50 to sm_90.",
            (_OF_CUDA_126,),
        )
    return Fix(
        "Install a newer torch, for a newer CUDA.",
        (_OF_CUDA_126,),
    )
