"""checks/container.py"""

from __future__ import annotations

import pytest

from tests.checks.facts import DOCKER, WSL, Case, driver, fails, host, informs, no_driver, skips, table, well

NODES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia-uvm")
CASES = (
    # container_lost_gpus
    fails("container_lost_gpus", "2 GPU device nodes, and NVML says UNKNOWN", "docker restart",
        container=DOCKER, driver=no_driver("UNKNOWN", device_nodes=NODES)),
    fails("container_lost_gpus", "NVML says NO_PERMISSION", "docker restart",
        container=DOCKER, driver=no_driver("NO_PERMISSION", device_nodes=NODES)),
    well("container_lost_gpus", "4 GPU device nodes, and NVML may use them", container=DOCKER),
    skips("container_lost_gpus", "",
        container=DOCKER, driver=driver(nvml_error="DRIVER_NOT_LOADED")),
    skips("container_lost_gpus", "not a container", driver=no_driver("UNKNOWN", device_nodes=NODES)),
    skips("container_lost_gpus", "no /dev/nvidiaN",
        container=DOCKER, driver=no_driver("UNKNOWN", device_nodes=("/dev/nvidiactl",))),
    # wsl_limits_nccl
    informs("wsl_limits_nccl", "WSL2", "Fine for development", container=WSL),
    well("wsl_limits_nccl", "not WSL"),
    # kernel_older_than_advised: 5.5
    informs("kernel_older_than_advised", "Linux 5.4.0-216-generic, accelerate advises 5.5", "mgpu smoke-test",
        host=host(kernel="5.4.0-216-generic")),
    informs("kernel_older_than_advised", "Linux 4.18.0-553.el8.x86_64", "mgpu smoke-test",
        host=host(kernel="4.18.0-553.el8.x86_64")),
    well("kernel_older_than_advised", "Linux 5.5.0-1", host=host(kernel="5.5.0-1")),
    well("kernel_older_than_advised", "Linux 5.15.167.4-microsoft",
        host=host(kernel="5.15.167.4-microsoft-standard-WSL2")),
    well("kernel_older_than_advised", "Linux 5.5-custom",
        host=host(kernel="5.5-custom")),
    skips("kernel_older_than_advised", "'GNU'", host=host(kernel="GNU")),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
