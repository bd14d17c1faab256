"""checks/driver.py"""

from __future__ import annotations

import pytest

from mgpu.snapshot import Plan
from tests.checks.facts import (
    DOCKER,
    WSL,
    Case,
    driver,
    fails,
    gpu,
    gpus,
    lost,
    no_driver,
    problem,
    skips,
    table,
    warns,
    well,
)

NODES = ("/dev/nvidiactl", "/dev/nvidia0")
CASES = (
    # nvml_library_missing
    fails("nvml_library_missing", "4 NVIDIA GPUs on the PCI bus", "ubuntu-drivers install",
        driver=no_driver(pci_gpus=4)),
    fails("nvml_library_missing", "1 NVIDIA GPU on the PCI bus", "ubuntu-drivers install",
        driver=no_driver(pci_gpus=1)),
    fails(
        "nvml_library_missing",
        "device nodes /dev/nvidiactl, /dev/nvidia0, but no driver library",
        "docker run --gpus all",
        driver=no_driver(device_nodes=NODES, pci_gpus=None),
        container=DOCKER,
    ),
    fails(
        "nvml_library_missing",
        "kernel module 580.65.06, but no driver library",
        "export LD_LIBRARY_PATH=/usr/lib/wsl/lib",
        driver=no_driver(module_version="580.65.06"),
        container=WSL,
    ),
    well("nvml_library_missing", "libnvidia-ml.so.1 loads"),
    well("nvml_library_missing", "loads", driver=no_driver("UNKNOWN")),
    skips("nvml_library_missing", "no NVIDIA GPU on this machine", driver=no_driver()),
    skips("nvml_library_missing", "no NVIDIA GPU",
        driver=no_driver(device_nodes=("/dev/nvidiactl", "/dev/nvidia-uvm"))),
    skips("nvml_library_missing", "0 GPUs are wanted", driver=no_driver(pci_gpus=4), plan=Plan(expect_gpus=0)),
    # driver_not_loaded
    fails("driver_not_loaded", "driver not loaded", "sudo modprobe nvidia",
        driver=no_driver("DRIVER_NOT_LOADED", pci_gpus=4)),
    well("driver_not_loaded", "driver 580.65.06 is loaded"),
    skips("driver_not_loaded", "no NVIDIA GPU", driver=no_driver()),
    skips("driver_not_loaded", "NVML: UNKNOWN", driver=no_driver("UNKNOWN")),
    skips(
        "driver_not_loaded",
        "no NVIDIA GPU",
        driver=no_driver("DRIVER_NOT_LOADED", pci_gpus=0),
    ),
    fails("driver_not_loaded", "not loaded", "modprobe", driver=no_driver("DRIVER_NOT_LOADED", pci_gpus=None)),
    fails("driver_not_loaded", "not loaded", "modprobe",
        driver=no_driver("DRIVER_NOT_LOADED", device_nodes=("/dev/nvidiactl",))),
    # driver_library_mismatch
    fails(
        "driver_library_mismatch",
        "the loaded kernel module (570.26) is not the installed driver's",
        "sudo reboot",
        driver=no_driver("LIB_RM_VERSION_MISMATCH", module_version="570.26"),
    ),
    fails("driver_library_mismatch", "(an older version)", "sudo reboot", driver=no_driver("LIB_RM_VERSION_MISMATCH")),
    well("driver_library_mismatch", "agree on 580.65.06"),
    skips("driver_library_mismatch", "NVML: LIBRARY_NOT_FOUND", driver=no_driver(pci_gpus=4)),
    # driver_does_not_answer
    fails("driver_does_not_answer", "NVML: UNKNOWN", "grep -i xid", driver=no_driver("UNKNOWN")),
    fails("driver_does_not_answer", "NVML: NO_PERMISSION", "ls -l /dev/nvidia*", driver=no_driver("NO_PERMISSION")),
    well("driver_does_not_answer", "NVML answers"),
    skips("driver_does_not_answer", "NVML: DRIVER_NOT_LOADED", driver=no_driver("DRIVER_NOT_LOADED", pci_gpus=4)),
    skips("driver_does_not_answer", "NVML: LIB_RM_VERSION_MISMATCH", driver=no_driver("LIB_RM_VERSION_MISMATCH")),
    skips("driver_does_not_answer", "no NVIDIA GPU", driver=no_driver()),
    # gpus_on_bus_not_in_driver
    warns("gpus_on_bus_not_in_driver", "5 NVIDIA GPUs on the PCI bus, 4 in the driver", "dmesg",
        driver=driver(pci_gpus=5)),
    well("gpus_on_bus_not_in_driver", "4 of 4 GPUs on the PCI bus"),
    well("gpus_on_bus_not_in_driver", "4 of 3", driver=driver(pci_gpus=3)),
    skips("gpus_on_bus_not_in_driver", "a container may be given some", driver=driver(pci_gpus=8), container=DOCKER),
    skips("gpus_on_bus_not_in_driver", "the PCI bus cannot be read", driver=driver(pci_gpus=None)),
    skips("gpus_on_bus_not_in_driver", "NVML: UNKNOWN", driver=no_driver("UNKNOWN", pci_gpus=4), gpus=()),
    # driver_lacks_compute
    fails("driver_lacks_compute", "libcuda does not", "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        driver=driver(cuda_version=None), container=DOCKER),
    well("driver_lacks_compute", "CUDA up to 13.0"),
    skips("driver_lacks_compute", "does not tell", driver=driver(cuda_version=None)),
    skips("driver_lacks_compute", "no NVIDIA GPU", driver=no_driver()),
    # gpu_lost
    fails("gpu_lost", "GPU 3: GPU_IS_LOST", "sudo reboot", gpus=gpus(4, lost(3))),
    fails("gpu_lost", "GPU 1 and 2: GPU_IS_LOST", "export CUDA_VISIBLE_DEVICES=0,3", gpus=gpus(4, lost(1), lost(2))),
    fails("gpu_lost", "GPU 0: GPU_REQUIRES_RESET", "sudo reboot", gpus=(lost(0, "GPU_REQUIRES_RESET"),)),
    fails(
        "gpu_lost",
        "GPU 3",
        "export CUDA_DEVICE_ORDER=PCI_BUS_ID",
        gpus=gpus(4, lost(3)),
    ),
    fails("gpu_lost", "GPU 3", "export CUDA_VISIBLE_DEVICES=0,1",
        gpus=gpus(4, gpu(0, permitted=False), lost(3))),
    well("gpu_lost", "4 of 4 GPUs answer"),
    skips("gpu_lost", "no GPU here", gpus=()),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_a_lost_gpu_with_no_sibling_has_no_stopgap() -> None:
    only = problem("gpu_lost", gpus=(lost(0),))
    assert [fix.kind for fix in only.fixes] == ["fix"]
    assert only.fixes[0].who == "hardware"
