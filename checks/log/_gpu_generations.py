"""Which GPU has no kernels in the installed torch, and which torch has them? Texts for `log_gpu_without_kernels`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

from ._extension_kernels import extension_without_kernels

_ASK = "python -c 'import torch; print(torch.__version__, torch.version.cuda, torch.cuda.get_arch_list())'"
# https://github.com/pytorch/pytorch/blob/main/RELEASE.md: wheels for CUDA 12.8 and newer have no kernels below sm_70 or
# sm_75, those for CUDA 12.6 have them from sm_50 to sm_90.
_FIRST_LACKING = 75
_BLACKWELL = 100


def without_kernels(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Name the GPU that torch names in its warning, or the extension; None if the log has neither."""
    found = re.fullmatch(r"sm_(?P<number>\d+)a?", groups.get("arch") or "")
    if found is None:
        return extension_without_kernels(groups, raised)
    number = int(found["number"])
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
