"""checks/driver/"""

from __future__ import annotations

from dataclasses import replace

import pytest

from mgpu.snapshot import NvmlWait, Pci, Plan
from tests.checks.facts import (
    DOCKER,
    WSL,
    Case,
    driver,
    fails,
    gpu,
    gpus,
    host,
    informs,
    kernel,
    lost,
    no_driver,
    pci,
    pci_device,
    problem,
    skips,
    table,
    warns,
    well,
)

NODES = ("/dev/nvidiactl", "/dev/nvidia0")
UVM = ("/dev/nvidia-uvm", *NODES)
DENIED = ("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia3", "/dev/nvidiactl")
ROOT = host(user_is_root=True)
JETSON = host(machine="aarch64", kernel="5.15.148-tegra")
RACK = gpus(4, fabric_cluster="5f6ab0e8-0f1d-4c2b-9c0e-6d1a2b3c4d5e", fabric_clique=32766)
TWO = Plan(nodes=2)
FIVE = pci(*(pci_device(n) for n in range(5)))
HIDDEN = Pci((), False)
SILENT = NvmlWait("nvmlInit", True, 10.0, "S", "futex_wait_queue")
STUCK = NvmlWait("GPU 2", True, 10.0, "D", "_nv037_os_wait")
CASES = (
    # nvml_hangs
    well("nvml_hangs", "every NVML call returned"),
    skips("nvml_hangs", "cannot be called", nvml_wait=NvmlWait(None, called=False)),
    warns("nvml_hangs", "no reply from nvmlInit after 10 s", "nvidia-smi -pm 1", nvml_wait=SILENT),
    warns("nvml_hangs", "no reply from nvmlInit", "Not all processes could be checked", nvml_wait=SILENT,
        kernel=kernel(stuck=None)),
    warns("nvml_hangs", "no reply from GPU 2 after 10 s", "sudo reboot", nvml_wait=STUCK),
    warns(
        "nvml_hangs", "no reply from nvmlInit", "--gpu-reset", nvml_wait=SILENT,
        kernel=kernel(stuck=("nvidia-smi (pid 4711, started 3 h ago)",)),
    ),
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
    skips("nvml_library_missing", "no GPUs expected (--expect-gpus 0)",
        driver=no_driver(pci_gpus=4), plan=Plan(expect_gpus=0)),
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
        "the loaded kernel module (570.26) does not match the installed driver",
        "sudo reboot",
        driver=no_driver("LIB_RM_VERSION_MISMATCH", module_version="570.26"),
    ),
    fails("driver_library_mismatch", "(an older version)", "sudo reboot", driver=no_driver("LIB_RM_VERSION_MISMATCH")),
    well("driver_library_mismatch", "library and module are both 580.65.06"),
    skips("driver_library_mismatch", "NVML: LIBRARY_NOT_FOUND", driver=no_driver(pci_gpus=4)),
    # driver_does_not_answer
    fails("driver_does_not_answer", "NVML: UNKNOWN", "grep -i xid", driver=no_driver("UNKNOWN")),
    fails("driver_does_not_answer", "NVML: NO_PERMISSION", "ls -l /dev/nvidia*", driver=no_driver("NO_PERMISSION")),
    well("driver_does_not_answer", "NVML responds"),
    skips("driver_does_not_answer", "NVML: DRIVER_NOT_LOADED", driver=no_driver("DRIVER_NOT_LOADED", pci_gpus=4)),
    skips("driver_does_not_answer", "NVML: LIB_RM_VERSION_MISMATCH", driver=no_driver("LIB_RM_VERSION_MISMATCH")),
    skips("driver_does_not_answer", "no NVIDIA GPU", driver=no_driver()),
    # gpus_on_bus_not_in_driver
    warns("gpus_on_bus_not_in_driver", "5 NVIDIA GPUs on the PCI bus, 4 in the driver (0000:1e:00.0)", "dmesg",
        pci=FIVE),
    warns("gpus_on_bus_not_in_driver", "5 NVIDIA GPUs on the PCI bus, 4 in the driver", "dmesg",
        driver=driver(pci_gpus=5), pci=HIDDEN),
    warns("gpus_on_bus_not_in_driver", "4 NVIDIA GPUs on the PCI bus, 3 in the driver", "dmesg",
        gpus=gpus(3, gpu(1, pci=None))),
    well("gpus_on_bus_not_in_driver", "4 of 4 GPUs on the PCI bus"),
    well("gpus_on_bus_not_in_driver", "4 of 4 GPUs on the PCI bus are in the driver; 1 reserved for virtual machines",
        pci=pci(*FIVE.devices[:4], replace(FIVE.devices[4], driver="vfio-pci"))),
    well("gpus_on_bus_not_in_driver", "4 of 4",  # a card of another vendor
        pci=pci(*FIVE.devices[:4], replace(FIVE.devices[4], vendor="1002", driver="amdgpu"))),
    well("gpus_on_bus_not_in_driver", "4 of 3", driver=driver(pci_gpus=3), pci=HIDDEN),
    well("gpus_on_bus_not_in_driver", "2 of 4 GPUs on the PCI bus; 2 reserved for others",  # a Slurm step
        gpus=gpus(2), driver=driver(nodes_denied=("/dev/nvidia2", "/dev/nvidia3"))),
    well("gpus_on_bus_not_in_driver", "2 of 4",
        gpus=gpus(4, gpu(2, permitted=False), gpu(3, permitted=False)),
        driver=driver(nodes_denied=("/dev/nvidia2", "/dev/nvidia3"))),
    warns("gpus_on_bus_not_in_driver", "4 NVIDIA GPUs on the PCI bus, 1 in the driver", "dmesg",
        gpus=gpus(1), driver=driver(nodes_denied=("/dev/nvidia2", "/dev/nvidia3"))),
    skips("gpus_on_bus_not_in_driver", "a container may have only some of the GPUs", pci=FIVE, container=DOCKER),
    skips("gpus_on_bus_not_in_driver", "the PCI bus cannot be read", driver=driver(pci_gpus=None), pci=HIDDEN),
    skips("gpus_on_bus_not_in_driver", "NVML: UNKNOWN", driver=no_driver("UNKNOWN", pci_gpus=4), gpus=()),
    # driver_lacks_compute
    fails("driver_lacks_compute", "libcuda does not", "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        driver=driver(cuda_version=None), container=DOCKER),
    well("driver_lacks_compute", "CUDA up to 13.0"),
    skips("driver_lacks_compute", "NVML does not report the CUDA version here", driver=driver(cuda_version=None)),
    skips("driver_lacks_compute", "no NVIDIA GPU", driver=no_driver()),
    # driver_version_unreadable
    warns("driver_version_unreadable", "the driver does not report its version", "cat /proc/driver/nvidia/version",
        driver=driver(version=None, module_version=None)),
    well("driver_version_unreadable", "driver 580.65.06"),
    well("driver_version_unreadable", "driver 580.65.06", driver=driver(version=None)),
    skips("driver_version_unreadable", "no NVIDIA GPU", driver=no_driver()),
    # driver_slow_to_start: 5 s with persistence mode on, when nothing has to be started
    warns("driver_slow_to_start", "the driver took 5.0 s to respond", "dmesg", driver=driver(init_s=5.0)),
    warns("driver_slow_to_start", "6.2 s", "dmesg", driver=driver(init_s=6.2),
        gpus=gpus(4, lost(1), gpu(2, permitted=False, persistence_mode=None))),
    well("driver_slow_to_start", "the driver responded in 4.99 s", driver=driver(init_s=4.99)),
    skips("driver_slow_to_start", "each GPU may take 1-3 s", driver=driver(init_s=9.5),
        gpus=gpus(4, gpu(1, persistence_mode=False))),
    skips("driver_slow_to_start", "each GPU may take", driver=driver(init_s=9.5), gpus=gpus(persistence_mode=None)),
    skips("driver_slow_to_start", "was not measured", driver=driver(init_s=None)),
    skips("driver_slow_to_start", "NVML: UNKNOWN", driver=no_driver("UNKNOWN")),
    # driver_starts_with_each_program: persistence mode off, and 1 s is felt
    informs("driver_starts_with_each_program", "the driver took 2.4 s to start: persistence mode is off on GPU 0",
        "nvidia-persistenced", driver=driver(init_s=2.4), gpus=gpus(1, persistence_mode=False)),
    informs("driver_starts_with_each_program", "1.0 s", "nvidia-persistenced", driver=driver(init_s=1.0),
        gpus=gpus(4, gpu(3, persistence_mode=False))),
    well("driver_starts_with_each_program", "the driver responded in 0.99 s", driver=driver(init_s=0.99),
        gpus=gpus(persistence_mode=False)),
    well("driver_starts_with_each_program", "the driver responded in 2.40 s", driver=driver(init_s=2.4)),
    well("driver_starts_with_each_program", "the driver responded in 2.40 s", driver=driver(init_s=2.4),
        gpus=gpus(persistence_mode=None)),
    skips("driver_starts_with_each_program", "persistence mode belongs to the host and is not visible here",
        driver=driver(init_s=2.4), container=DOCKER,
        gpus=gpus(persistence_mode=False)),
    skips("driver_starts_with_each_program", "persistence mode belongs to the host and is not visible here",
        driver=driver(init_s=2.4), container=WSL),
    skips("driver_starts_with_each_program", "was not measured", driver=driver(init_s=None)),
    # device_nodes_denied
    fails("device_nodes_denied", "no permission to open /dev/nvidia-uvm and /dev/nvidiactl",
        "sudo usermod -aG video $USER",
        driver=driver(nodes_denied=("/dev/nvidiactl", "/dev/nvidia-uvm"), nodes_group="video")),
    fails("device_nodes_denied", "/dev/nvidia-uvm, /dev/nvidiactl, /dev/nvidia0 and /dev/nvidia1 …",
        "NVreg_DeviceFileMode=0666", driver=driver(nodes_denied=DENIED)),
    fails("device_nodes_denied", "/dev/nvidia0", "NVreg_DeviceFileMode=0666",
        driver=no_driver("NO_PERMISSION", device_nodes=NODES, nodes_denied=("/dev/nvidia0",))),
    fails("device_nodes_denied", "/dev/dxg", "NVreg_DeviceFileMode",
        driver=driver(device_nodes=("/dev/dxg",), nodes_denied=("/dev/dxg",)), container=WSL),
    well("device_nodes_denied", "this user may open the driver's device files"),
    # some sites give each job its own GPUs by changing the owner of the files
    well("device_nodes_denied", "this user may open the driver's device files; 2 of 4 GPUs reserved for others",
        driver=driver(nodes_denied=("/dev/nvidia0", "/dev/nvidia1"))),
    skips("device_nodes_denied", "no device file", driver=driver(device_nodes=(), nodes_denied=())),
    skips("device_nodes_denied", "no device file", driver=driver(nodes_denied=None)),
    skips("device_nodes_denied", "no NVIDIA GPU", driver=no_driver()),
    # device_node_missing: the number in its name is the GPU's minor, not its index
    fails("device_node_missing", "GPU 1: no /dev/nvidia4", "sudo nvidia-modprobe -c 4", gpus=gpus(2, gpu(1, minor=4))),
    well("device_node_missing", "4 GPUs with device files"),
    well("device_node_missing", "2 GPUs with device files", gpus=gpus(4, gpu(1, minor=9, permitted=False), lost(2))),
    skips("device_node_missing", "no GPU reports its minor number", gpus=gpus(minor=None)),
    skips("device_node_missing", "no device file", driver=driver(device_nodes=("/dev/dxg",)), container=WSL),
    skips("device_node_missing", "NVML: UNKNOWN", driver=no_driver("UNKNOWN", device_nodes=NODES)),
    # uvm_missing_in_container
    fails("uvm_missing_in_container", "no /dev/nvidia-uvm in this container", "docker run --gpus all",
        container=DOCKER, driver=driver(device_nodes=NODES)),
    fails("uvm_missing_in_container", "no /dev/nvidia-uvm", "sudo nvidia-modprobe -u -c 0",
        container=DOCKER, driver=driver(device_nodes=NODES)),
    well("uvm_missing_in_container", "is in the container", container=DOCKER),
    skips("uvm_missing_in_container", "not a container", driver=driver(device_nodes=NODES)),
    skips("uvm_missing_in_container", "no /dev/nvidiaN", container=DOCKER,
        driver=driver(device_nodes=("/dev/nvidiactl",))),
    skips("uvm_missing_in_container", "CUDA on this chip does not need /dev/nvidia-uvm",
        container=DOCKER, driver=driver(device_nodes=NODES),
        host=JETSON),
    skips("uvm_missing_in_container", "NVML: UNKNOWN", container=DOCKER,
        driver=no_driver("UNKNOWN", device_nodes=NODES)),
    # uvm_cannot_be_loaded
    warns("uvm_cannot_be_loaded", "nvidia-uvm is not loaded", "sudo nvidia-modprobe -u -c 0",
        driver=driver(device_nodes=NODES, uvm_loaded=False, modprobe=False)),
    warns("uvm_cannot_be_loaded", "nvidia-uvm is not loaded", "/etc/modules-load.d",
        driver=driver(device_nodes=NODES, uvm_loaded=True, modprobe=False)),  # loaded, and nobody makes its file
    well("uvm_cannot_be_loaded", "is loaded"),
    well("uvm_cannot_be_loaded", "nvidia-uvm is loaded on first use",
        driver=driver(device_nodes=NODES, uvm_loaded=False)),
    well("uvm_cannot_be_loaded", "nvidia-uvm is loaded on first use", host=ROOT,
        driver=driver(device_nodes=NODES, uvm_loaded=False, modprobe=False)),
    skips("uvm_cannot_be_loaded", "the host loads the modules",
        container=DOCKER, driver=driver(device_nodes=NODES, uvm_loaded=False)),
    skips("uvm_cannot_be_loaded", "the host loads the modules", container=WSL),
    skips("uvm_cannot_be_loaded", "cannot be read", driver=driver(uvm_loaded=None)),
    skips("uvm_cannot_be_loaded", "no GPU device file in /dev", driver=driver(device_nodes=(), modprobe=False)),
    skips("uvm_cannot_be_loaded", "no NVIDIA GPU", driver=no_driver()),
    # imex_channel_unusable: NVLink between machines
    fails("imex_channel_unusable", "no permission to open 1 IMEX channel", "chmod 666",
        driver=driver(imex_channels=1, imex_usable=False), gpus=RACK, plan=TWO),
    fails("imex_channel_unusable", "no IMEX channel in /dev", "NVreg_CreateImexChannel0=1", gpus=RACK, plan=TWO),
    fails("imex_channel_unusable", "no IMEX channel in /dev", "export NCCL_MNNVL_ENABLE=0", gpus=RACK, plan=TWO),
    well("imex_channel_unusable", "2048 IMEX channels, at least one usable", gpus=RACK, plan=TWO,
        driver=driver(imex_channels=2048, imex_usable=True)),
    skips("imex_channel_unusable", "single-node run", gpus=RACK),
    skips("imex_channel_unusable", "no multi-node NVLink domain", plan=TWO),
    skips("imex_channel_unusable", "NCCL_MNNVL_ENABLE=0", gpus=RACK, plan=TWO, env={"NCCL_MNNVL_ENABLE": "0"}),
    skips("imex_channel_unusable", "cannot be listed", gpus=RACK, plan=TWO, driver=driver(imex_channels=None)),
    # gpu_lost
    fails("gpu_lost", "GPU 3 fell off the bus (GPU_IS_LOST)", "sudo reboot", gpus=gpus(4, lost(3))),
    fails("gpu_lost", "GPU 1 fell off the bus (GPU_IS_LOST); GPU 3 has no external power (INSUFFICIENT_POWER)",
          "sudo reboot", gpus=gpus(4, lost(1), lost(3, "INSUFFICIENT_POWER"))),
    fails("gpu_lost", "GPUs 1 and 2 fell off the bus (GPU_IS_LOST)", "export CUDA_VISIBLE_DEVICES=0,3",
          gpus=gpus(4, lost(1), lost(2))),
    fails("gpu_lost", "GPU 0 needs a reset (RESET_REQUIRED)", "sudo reboot", gpus=(lost(0, "RESET_REQUIRED"),)),
    fails("gpu_lost", "GPU 0 does not respond (UNKNOWN)", "sudo reboot", gpus=(lost(0, "UNKNOWN"),)),
    fails(
        "gpu_lost",
        "GPU 3",
        "export CUDA_DEVICE_ORDER=PCI_BUS_ID",
        gpus=gpus(4, lost(3)),
    ),
    fails("gpu_lost", "GPU 3", "export CUDA_VISIBLE_DEVICES=0,1",
        gpus=gpus(4, gpu(0, permitted=False), lost(3))),
    well("gpu_lost", "4 of 4 GPUs respond"),
    skips("gpu_lost", "no GPU here", gpus=()),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_a_lost_gpu_with_no_sibling_has_no_stopgap() -> None:
    only = problem("gpu_lost", gpus=(lost(0),))
    assert [fix.kind for fix in only.fixes] == ["fix"]
    assert only.fixes[0].who == "hardware"
