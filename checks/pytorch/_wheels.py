"""Which wheel of PyTorch does a driver run?"""

from __future__ import annotations

import re

from mgpu.snapshot import Driver, Pytorch

from .._knowledge import DRIVER_FLOOR, numbers

# CUDA builds on PyTorch's wheel index, newest first (RELEASE.md): the suffix that fits a driver is suggested.
_WHEELS = ((13, 0), (12, 8), (12, 6), (11, 8))


def install(driver: Driver) -> str:
    """The pip line for a wheel this driver runs."""
    version = numbers(driver.version)
    if not version:
        return "pip install --force-reinstall torch"
    for major, minor in _WHEELS:
        if version >= DRIVER_FLOOR[major]:
            return f"pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu{major}{minor}"
    return "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu118"


def pinned(pytorch: Pytorch) -> str | None:
    """What pip takes for this very build: "torch==2.9.1 --index-url …/whl/cu128". None: it is of another origin."""
    found = re.fullmatch(r"(\d+(?:\.\d+)+)\+(cu\d+|cpu)", pytorch.version or "")  # torch/version.py tells the build
    return f"torch=={found.group(1)} --index-url https://download.pytorch.org/whl/{found.group(2)}" if found else None
