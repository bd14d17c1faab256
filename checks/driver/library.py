"""Can the driver's libraries be loaded, and do they fit its kernel module?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Container, Driver, Plan
from mgpu.text import counted

from ._nvml import NO_GPU, absence_reason, driver_answers

_NVML = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html"
# nvmlReturn_t names with their own check here; any other is `driver_does_not_answer`.
_OWN_CHECK = {"LIBRARY_NOT_FOUND", "DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH"}


def _gpus_expected(plan: Plan) -> bool:
    """Return whether the plan uses GPUs; with `--expect-gpus 0` the driver does not matter."""
    return plan.expect_gpus != 0


@check(Severity.ERROR, source=_NVML, because_of=("nouveau_holds_gpus", "container_given_no_gpus"), condemns_node=True)
def nvml_library_missing(driver: Driver, container: Container, plan: Plan) -> Answer:
    """There is an NVIDIA GPU, but the driver's library libnvidia-ml.so.1 cannot be loaded.

    Why: the library is part of the driver. If it is missing on the host, the driver is not installed. In a container,
    it was started without GPUs or without the "utility" capability. PyTorch then trains on the CPU.

    Fix: install the NVIDIA driver.
    More: Or start the container with its GPUs.
    """
    if not driver.any_gpu:
        return Skip(NO_GPU)
    if driver.nvml_error != "LIBRARY_NOT_FOUND":
        return Ok("libnvidia-ml.so.1 loads")
    if not _gpus_expected(plan):
        return Skip("no GPUs expected (--expect-gpus 0)")
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
        fix = Fix("Add WSL's driver directory to the loader's path.", ("export LD_LIBRARY_PATH=/usr/lib/wsl/lib",))
    else:
        fix = Fix(commands=("sudo ubuntu-drivers install --gpgpu",), who="admin")
    return Problem(
        f"{seen}, but no driver library",
        "libnvidia-ml.so.1 is part of the driver. Without it neither PyTorch nor NCCL can use a GPU.",
        fix,
        {"nvml": driver.nvml_error, "loader": driver.nvml_detail, "pci_gpus": driver.pci_gpus},
    )


@check(Severity.ERROR, source=_NVML, because_of=("nouveau_holds_gpus",), condemns_node=True)
def driver_not_loaded(driver: Driver) -> Answer:
    """The NVIDIA kernel module is not loaded.

    Why: the driver's libraries are installed, but its kernel module is not loaded.
    More: It was not built for this kernel (DKMS), rejected by Secure Boot, or blocked. Every CUDA call then fails with
    "no CUDA-capable device".

    Fix: load it. If that fails, read the kernel log for the reason.
    """
    if driver.nvml_error == "DRIVER_NOT_LOADED" and driver.any_gpu:
        return Problem(
            "NVML: driver not loaded",
            fix=Fix(commands=("sudo modprobe nvidia", "sudo dmesg | grep -i nvidia"), who="admin"),
            evidence={"nvml": driver.nvml_error, "module_version": driver.module_version},
        )
    return Ok(f"driver {driver.version} is loaded") if driver.nvml_error is None else Skip(absence_reason(driver))


@check(Severity.ERROR, source=_NVML, condemns_node=True)
def driver_library_mismatch(driver: Driver) -> Answer:
    """The driver's library and its loaded kernel module have different versions.

    Why: the driver was upgraded but its kernel module was not reloaded. No new program can use the GPUs.
    More: Unattended upgrades cause this. Running programs continue. New ones fail with "Driver/library version
    mismatch".

    Fix: reboot the machine.
    More: Or reload the modules when nothing uses the GPUs.
    """
    if driver.nvml_error == "LIB_RM_VERSION_MISMATCH":
        loaded = driver.module_version or "an older version"
        return Problem(
            f"the loaded kernel module ({loaded}) does not match the installed driver",
            fix=Fix(commands=("sudo reboot",), who="admin"),
            evidence={"nvml": driver.nvml_error, "module_version": driver.module_version},
        )
    if driver.nvml_error is not None:
        return Skip(absence_reason(driver))
    return Ok(f"library and module are both {driver.version}")


@check(Severity.ERROR, source=_NVML, because_of=("container_lost_gpus", "device_nodes_denied"), condemns_node=True)
def driver_does_not_answer(driver: Driver) -> Answer:
    """NVML fails to initialize.

    Why: the driver is installed but rejects calls: a GPU is in a bad state, this user or cgroup may not open the device
    nodes, or the container lost its devices when the host reloaded systemd. CUDA will fail in the same way.

    Fix: run `nvidia-smi`, which shows the same error. Restart the container or reset the GPUs.
    """
    if driver.nvml_error is None:
        return Ok("NVML responds")
    if driver.nvml_error in _OWN_CHECK:
        return Skip(absence_reason(driver))
    denied = driver.nvml_error == "NO_PERMISSION"
    return Problem(
        f"NVML: {driver.nvml_error}",
        f"The driver rejects calls ({driver.nvml_detail}), so CUDA will fail too.",
        Fix(
            "Give this user access to the device nodes, or restart the container."
            if denied
            else "Run nvidia-smi. Then restart the container or reset the GPUs.",
            ("ls -l /dev/nvidia*",) if denied else ("nvidia-smi", "sudo dmesg | grep -i xid"),
            who="admin",
        ),
        {"nvml": driver.nvml_error, "detail": driver.nvml_detail},
    )


@check(
    Severity.ERROR,
    source="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html",
    given=driver_answers,
)
def driver_lacks_compute(driver: Driver, container: Container) -> Answer:
    """NVML works, but the CUDA driver library libcuda.so.1 is missing.

    Why: the container has the GPUs for monitoring only, and PyTorch cannot use them.
    More: NVIDIA_DRIVER_CAPABILITIES contains only "utility", so nvidia-smi works.

    Fix: start it with both capabilities.
    """
    if driver.cuda_version is not None:
        major, minor = driver.cuda_version
        return Ok(f"the driver supports CUDA up to {major}.{minor}")
    if not container.kind:
        return Skip("NVML does not report the CUDA version here")
    return Problem(
        "NVML works, libcuda does not",
        fix=Fix(commands=("docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",)),
        evidence={"driver": driver.version, "container": container.kind},
    )


@check(Severity.WARNING, source=_NVML, given=driver_answers)
def driver_version_unreadable(driver: Driver) -> Answer:
    """The driver responds but does not report its version.

    Why: without the version it cannot be compared with what PyTorch requires.
    More: A driver that does not report its version is broken, or other software responds in its place.

    Fix: read it from the kernel module.
    """
    version = driver.version or driver.module_version
    if version:
        return Ok(f"driver {version}")
    return Problem(
        "the driver does not report its version",
        fix=Fix(commands=("cat /proc/driver/nvidia/version",)),
        evidence={"nvml_version": driver.nvml_version},
    )
