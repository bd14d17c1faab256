"""Which PyTorch wheel does a driver support?"""

from __future__ import annotations

import re

from mgpu.command_line import shell
from mgpu.planning.requirements import version_numbers
from mgpu.snapshot import Driver, Pytorch

from .._cuda_drivers import DRIVER_FLOOR

# CUDA builds on PyTorch's wheel index, newest first (RELEASE.md). mgpu suggests the first one that the driver supports.
_WHEELS = ((13, 0), (12, 8), (12, 6), (11, 8))


def install_command(driver: Driver) -> str:
    """Return the pip command for the newest wheel that this driver supports."""
    version = version_numbers(driver.version)
    if not version:
        return "pip install --force-reinstall torch"
    for major, minor in _WHEELS:
        if version >= DRIVER_FLOOR[major]:
            index = "https://download.pytorch.org/whl/cu{:number}{:number}"
            return shell(f"pip install --force-reinstall torch --index-url {index}", major, minor)
    return "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu118"


def pinned_wheel(pytorch: Pytorch) -> tuple[str, str] | None:
    """Return requirement and index folder of this exact build ("torch==2.9.1", "cu128"); None for other builds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)+)\+(cu\d+|cpu)", pytorch.version or "")  # the build is in torch/version.py
    return (f"torch=={found.group(1)}", found.group(2)) if found else None
