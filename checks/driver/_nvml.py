"""What do several checks of the driver share: whether NVML answers, and which device files are GPUs?"""

from __future__ import annotations

from mgpu.check import Skip
from mgpu.snapshot import Driver

NO_GPU = "no NVIDIA GPU on this machine"


def absence_reason(driver: Driver) -> str:
    """Return why NVML does not respond."""
    return f"NVML: {driver.nvml_error}" if driver.any_gpu else NO_GPU


def driver_answers(driver: Driver) -> Skip | None:
    """Skip a check that needs a working driver."""
    return Skip(absence_reason(driver)) if driver.nvml_error is not None else None


def is_gpu_node(node: str) -> bool:
    """Return whether a device file is that of a GPU: /dev/nvidia0."""
    return node.removeprefix("/dev/nvidia").isdecimal()
