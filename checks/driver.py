"""Is there an NVIDIA driver, and does it answer?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Container, Driver, Gpu, Plan

from ._knowledge import counted, gpu_list, use_only

_NVML = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html"
_NO_GPU = "no NVIDIA GPU on this machine"
# nvmlReturn_t names that have a check of their own here; any other one is `driver_does_not_answer`.
_OWN_CHECK = {"LIBRARY_NOT_FOUND", "DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH"}


def _wanted(plan: Plan) -> bool:
    """A plan for no GPU at all (`--expect-gpus 0`) makes the driver nobody's business."""
    return plan.expect_gpus != 0


@check(Severity.ERROR, source=_NVML)
def nvml_library_missing(driver: Driver, container: Container, plan: Plan) -> Answer:
    """There is an NVIDIA GPU, but the driver's library libnvidia-ml.so.1 cannot be loaded.

    Why: the library comes with the driver. On the host its absence means that the driver is not installed; in a
    container that it was started without the GPUs or without the capability "utility". PyTorch then trains on the CPU.

    Fix: install the driver, or start the container with its GPUs.
    """
    if not driver.any_gpu:
        return Skip(_NO_GPU)
    if driver.nvml_error != "LIBRARY_NOT_FOUND":
        return Ok("libnvidia-ml.so.1 loads")
    if not _wanted(plan):
        return Skip("0 GPUs are wanted")
    seen = (
        f"{counted(driver.pci_gpus, 'NVIDIA GPU')} on the PCI bus"
        if driver.pci_gpus
        else f"device nodes {', '.join(driver.device_nodes)}"
        if driver.device_nodes
        else f"kernel module {driver.module_version}"
    )
    if container.kind:
        fix = Fix(
            "Start the container with its GPUs.",
            ("docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",),
        )
    elif container.wsl:
        fix = Fix("Put WSL's driver folder on the loader's path.", ("export LD_LIBRARY_PATH=/usr/lib/wsl/lib",))
    else:
        fix = Fix("Install the NVIDIA driver.", ("sudo ubuntu-drivers install --gpgpu",), who="admin")
    return Problem(
        f"{seen}, but no driver library",
        "libnvidia-ml.so.1 comes with the driver. Without it neither PyTorch nor NCCL can reach a GPU.",
        fix,
        {"nvml": driver.nvml_error, "loader": driver.nvml_detail, "pci_gpus": driver.pci_gpus},
    )


@check(Severity.ERROR, source=_NVML)
def driver_not_loaded(driver: Driver) -> Answer:
    """The NVIDIA kernel module is not loaded.

    Why: the libraries are installed, but the kernel half of the driver is not running: not built for this kernel
    (DKMS), refused by secure boot, or blocked. Every CUDA call then fails with "no CUDA-capable device".

    Fix: load the module; when that fails, the kernel log says why.
    """
    if driver.nvml_error == "DRIVER_NOT_LOADED" and driver.any_gpu:
        return Problem(
            "NVML: driver not loaded",
            "The driver's libraries are here, its kernel module is not running.",
            Fix(
                "Load it, and read why it failed.", ("sudo modprobe nvidia", "sudo dmesg | grep -i nvidia"), who="admin"
            ),
            {"nvml": driver.nvml_error, "module_version": driver.module_version},
        )
    return Ok(f"driver {driver.version} is loaded") if driver.nvml_error is None else Skip(_absent(driver))


@check(Severity.ERROR, source=_NVML)
def driver_library_mismatch(driver: Driver) -> Answer:
    """The driver's library and its loaded kernel module have different versions.

    Why: the driver package was upgraded while the old module stayed loaded (unattended upgrades do this). Running
    programs go on; every new one fails with "Driver/library version mismatch".

    Fix: reboot, or reload the modules when nothing uses the GPUs.
    """
    if driver.nvml_error == "LIB_RM_VERSION_MISMATCH":
        loaded = driver.module_version or "an older version"
        return Problem(
            f"the loaded kernel module ({loaded}) is not the installed driver's",
            "The driver was upgraded and its kernel module not reloaded: no new program can use the GPUs.",
            Fix("Reboot the machine.", ("sudo reboot",), who="admin"),
            {"nvml": driver.nvml_error, "module_version": driver.module_version},
        )
    if driver.nvml_error is not None:
        return Skip(_absent(driver))
    return Ok(f"library and module agree on {driver.version}")


@check(Severity.ERROR, source=_NVML, because_of=("container_lost_gpus",))
def driver_does_not_answer(driver: Driver) -> Answer:
    """NVML starts with an error.

    Why: the driver is there but refuses: a GPU in a bad state, device nodes that this user or cgroup may not open, or a
    container that lost its devices when the host reloaded systemd. CUDA will refuse in the same way.

    Fix: `nvidia-smi` shows the same error; restart the container, or reset the GPUs.
    """
    if driver.nvml_error is None:
        return Ok("NVML answers")
    if driver.nvml_error in _OWN_CHECK:
        return Skip(_absent(driver))
    denied = driver.nvml_error == "NO_PERMISSION"
    return Problem(
        f"NVML: {driver.nvml_error}",
        f"The driver refuses to answer ({driver.nvml_detail}), so CUDA will refuse as well.",
        Fix(
            "Give this user the device nodes, or restart the container."
            if denied
            else "See what nvidia-smi says; restart the container, or reset the GPUs.",
            ("ls -l /dev/nvidia*",) if denied else ("nvidia-smi", "sudo dmesg | grep -i xid"),
            who="admin",
        ),
        {"nvml": driver.nvml_error, "detail": driver.nvml_detail},
    )  # fmt: skip


@check(
    Severity.WARNING,
    source="https://docs.nvidia.com/deploy/gpu-debug-guidelines/",
    because_of=("gpu_lost",),
)
def gpus_on_bus_not_in_driver(driver: Driver, gpus: tuple[Gpu, ...], container: Container) -> Answer:
    """The PCI bus has more NVIDIA GPUs than the driver shows.

    Why: a GPU failed to start, was bound to another driver (vfio), or this process may not open it. A run that counts
    on all GPUs of the box gets fewer.

    Fix: the kernel log names the GPU that failed to start.
    """
    if driver.nvml_error is not None or not driver.pci_gpus:
        return Skip(_absent(driver) if driver.nvml_error else "the PCI bus cannot be read here")
    if container.kind:
        return Skip("a container may be given some of the GPUs")
    if driver.pci_gpus > len(gpus):
        return Problem(
            f"{driver.pci_gpus} NVIDIA GPUs on the PCI bus, {len(gpus)} in the driver",
            "The driver did not start one of the GPUs, or it was handed to a virtual machine.",
            Fix("Look for the reason in the kernel log.", ("sudo dmesg | grep -iE 'nvrm|xid'",), who="admin"),
            {"pci_gpus": driver.pci_gpus, "nvml_gpus": len(gpus)},
        )
    return Ok(f"{len(gpus)} of {driver.pci_gpus} GPUs on the PCI bus are in the driver")


@check(
    Severity.ERROR,
    source="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html",
)
def driver_lacks_compute(driver: Driver, container: Container) -> Answer:
    """NVML works, but the CUDA driver library libcuda.so.1 is not there.

    Why: in a container the capability "compute" was not given (NVIDIA_DRIVER_CAPABILITIES=utility only): nvidia-smi
    works and PyTorch sees no GPU.

    Fix: start the container with the capabilities compute and utility.
    """
    if driver.nvml_error is not None:
        return Skip(_absent(driver))
    if driver.cuda_version is not None:
        major, minor = driver.cuda_version
        return Ok(f"the driver serves CUDA up to {major}.{minor}")
    if not container.kind:
        return Skip("NVML does not tell the CUDA version here")
    return Problem(
        "NVML answers, libcuda does not",
        "The container was given the GPUs for monitoring only: PyTorch will see none.",
        Fix(
            "Start it with both capabilities.",
            ("docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",),
        ),
        {"driver": driver.version, "container": container.kind},
    )


@check(Severity.ERROR, source="https://docs.nvidia.com/deploy/xid-errors/")
def gpu_lost(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU does not answer the driver any more.

    Why: it fell off the PCI bus (Xid 79), needs a reset, or has no power. A process that touches it fails, and the
    other ranks wait for it in their next collective. CUDA may refuse to start on the whole machine.

    Fix: reboot; when it comes back, check power, seating and temperature, then the vendor.
    """
    lost = {gpu.index: gpu.lost for gpu in gpus if gpu.lost}
    if lost:
        why = next(iter(lost.values()))
        others = [gpu.index for gpu in gpus if not gpu.lost and gpu.permitted]
        stopgap = (
            (Fix("Train on the others meanwhile.", use_only(others, gpus), kind="stopgap",
                 caveat="CUDA may still refuse to start until the machine was rebooted"),)
            if others
            else ()
        )  # fmt: skip
        return Problem(
            f"{gpu_list(lost)}: {why}",
            "The GPU stopped answering the driver; a rank on it fails and the others hang in their next collective.",
            (
                Fix(
                    "Reboot. If it is lost again: power, seating, temperature; then the vendor.",
                    ("sudo reboot",),
                    "hardware",
                ),
                *stopgap,
            ),
            {f"gpu_{i}": reason for i, reason in lost.items()},
            tuple(f"GPU {i}" for i in lost),
        )
    return Ok(f"{len(gpus)} of {len(gpus)} GPUs answer") if gpus else Skip("no GPU here")


def _absent(driver: Driver) -> str:
    return f"NVML: {driver.nvml_error}" if driver.any_gpu else _NO_GPU
