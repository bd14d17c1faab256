"""Which wheel of PyTorch does a driver run?"""

from __future__ import annotations

from mgpu.snapshot import Driver

from .._knowledge import DRIVER_FLOOR, numbers

# CUDA builds on PyTorch's wheel index, newest first (RELEASE.md): the suffix that fits a driver is suggested.
_WHEELS = ((13, 0), (12, 8), (12, 6), (11, 8))


def install(driver: Driver) -> str:
    """The pip line for a wheel this driver runs."""
    version = numbers(driver.version)
    for major, minor in _WHEELS:
        if version >= DRIVER_FLOOR[major]:
            return f"pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu{major}{minor}"
    return "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu118"
