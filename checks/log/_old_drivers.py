"""Which torch does the driver still run that torch reports as too old? Texts for `log_driver_too_old`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

_CHECK = "mgpu doctor --only driver_too_old_for_torch"
_NEWER = Fix("Install a newer driver: current wheels need one for CUDA 12.6 or newer.", (_CHECK,), who="admin")
# Which CUDA an older torch has wheels for differs from release to release, and extensions fit only one of them.
NEWER_TOOLKIT = (
    Fix(
        "Compare the CUDA that the driver supports (in the first lines of nvidia-smi) with those that torch and the "
        "extensions were built with.",
        ("nvidia-smi | head -4", "python -c 'import torch; print(torch.__version__, torch.version.cuda)'", _CHECK),
    ),
    Fix("Install a newer driver.", who="admin"),
    Fix(
        "Or install the same torch for a CUDA that the driver supports (wheels of each release: "
        "https://pytorch.org/get-started/previous-versions/), and build the extensions with that CUDA."
    ),
)
# Wheels run with each driver of their CUDA's major version (minor-version compatibility); those of CUDA 11.8 end with
# torch 2.7: https://docs.pytorch.org/get-started/previous-versions
_OLD_WHEELS = {
    11: Fix(
        "Or install a torch that was built for CUDA 11.8, which this driver can run. torch 2.7 is the last one; a "
        "wheel for CUDA 12 or newer fails in the same way.",
        ("pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu118", _CHECK),
    ),
    12: Fix(
        "Or install a torch that was built for CUDA 12.6. A wheel for CUDA 13 fails in the same way.",
        ("pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126", _CHECK),
    ),
}


def driver_of_cuda(groups: Mapping[str, str], _: UncaughtException | None) -> Meaning | None:
    """Translate the version of torch's message (11040 is CUDA 11.4); None if the line has none."""
    version = re.search(r"found version (\d+)", groups["found"])
    if not version:
        return None
    found = version[1]
    major, minor = int(found) // 1000, int(found) % 1000 // 10
    older = _OLD_WHEELS.get(major)
    return Meaning(
        f"the driver is too old for the CUDA that torch was built with: it supports CUDA {major}.{minor}",
        f"The version {found} in torch's message is the newest CUDA that the driver supports: {major}.{minor}. torch "
        "reports that no GPU is available, and a run without --cpu falls back to the CPU or fails.",
        (_NEWER, older) if older else (_NEWER,),
    )
