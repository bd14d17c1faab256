"""Which wheel of PyTorch does a driver run?"""

from __future__ import annotations

import re

from mgpu.command_line import shell
from mgpu.planning.requirements import numbers
from mgpu.snapshot import Driver, Pytorch

from .._cuda_drivers import DRIVER_FLOOR

# CUDA builds on PyTorch's wheel index, newest first (RELEASE.md): the suffix that fits a driver is suggested.
_WHEELS = ((13, 0), (12, 8), (12, 6), (11, 8))


def install(driver: Driver) -> str:
    """The pip line for a wheel this driver runs."""
    version = numbers(driver.version)
    if not version:
        return "pip install --force-reinstall torch"
    for major, minor in _WHEELS:
        if version >= DRIVER_FLOOR[major]:
            index = "https://download.pytorch.org/whl/cu{:number}{:number}"
            return shell(f"pip install --force-reinstall torch --index-url {index}", major, minor)
    return "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu118"


def pinned(pytorch: Pytorch) -> tuple[str, str] | None:
    """The package and the folder of PyTorch's index for this very build: "torch==2.9.1", "cu128"; None for others."""
    found = re.fullmatch(r"(\d+(?:\.\d+)+)\+(cu\d+|cpu)", pytorch.version or "")  # torch/version.py tells the build
    return (f"torch=={found.group(1)}", found.group(2)) if found else None
