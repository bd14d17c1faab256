"""Does the kernel drive the GPUs with the right module?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import version_numbers
from mgpu.snapshot import Container, Driver, Gpu, Host, Kernel, Pci, PciDevice, Plan
from mgpu.text import counted, listed

_FLAVOURS = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/kernel-modules.html"

# accelerate warns below this (utils/other.py, check_os_kernel).
_KERNEL = (5, 5)
# PCI device IDs increase with the architecture: the open module's own list begins at 1e02, a Turing GPU
# (g_nv_name_released.h); B200 is 2901, the highest Ada 28f8. Only the open module supports Blackwell
# (developer.nvidia.com/blog/nvidia-transitions-fully-towards-open-source-gpu-kernel-modules).
_TURING, _BLACKWELL = 0x1E00, 0x2900


@check(Severity.INFO, source="https://github.com/huggingface/accelerate/issues/1929")
def kernel_older_than_advised(host: Host) -> Answer:
    """The Linux kernel is older than accelerate recommends.

    Why: older kernels made some multi-GPU runs hang, but many distributions backport the fix.
    More: accelerate warns below 5.5 that a run may hang. Because of backports the version alone proves nothing.

    Fix: run the smoke test to find out.
    """
    version = version_numbers(host.kernel)
    if not version:
        return Skip(f"cannot parse the kernel version {host.kernel!r}")
    if version < _KERNEL:
        return Problem(
            f"Linux {host.kernel}, accelerate recommends 5.5 or newer",
            fix=Fix(commands=("mgpu smoke-test",)),
            evidence={"kernel": host.kernel},
        )
    return Ok(f"Linux {host.kernel}")


# ---- the driver's module


@check(Severity.ERROR, source="https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/", condemns_node=True)
def nouveau_holds_gpus(kernel: Kernel, driver: Driver, plan: Plan) -> Answer:
    """The open-source driver nouveau is loaded instead of NVIDIA's.

    Why: nouveau took the GPUs at boot. It does not support CUDA.
    More: CUDA finds no device, and PyTorch trains on the CPU.

    Fix: block nouveau, install NVIDIA's driver, reboot.
    """
    if kernel.modules is None:
        return Skip("the loaded modules cannot be read here")
    free = [name for name in ("nouveau", "nova_core") if name in kernel.modules]
    if not free:
        return Ok("nouveau is not loaded")
    if driver.module_version or "nvidia" in kernel.modules:
        return Ok(f"{free[0]} drives another card, NVIDIA's module is loaded too")
    if not driver.any_gpu or plan.expect_gpus == 0:
        return Skip("no NVIDIA GPU expected here")
    return Problem(
        f"{free[0]} is loaded, NVIDIA's module is not",
        fix=Fix(
            commands=(
                "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' | sudo tee /etc/modprobe.d/no-nouveau.conf",
                "sudo update-initramfs -u || sudo dracut --force",
                "sudo reboot",
            ),
            who="admin",
        ),
        evidence={"modules": ", ".join(kernel.modules), "nvml": driver.nvml_error},
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/")
def secure_boot_may_refuse_driver(kernel: Kernel, driver: Driver, plan: Plan) -> Answer:
    """Secure Boot is on, and NVIDIA's module is not loaded.

    Why: Secure Boot rejects modules not signed with an enrolled key. The kernel log shows whether it did here.
    More: A module that DKMS built on this machine is signed with the machine's own key, which must be enrolled at the
    console. modprobe otherwise fails with "Key was rejected by service", and CUDA finds no device.

    Fix: check whether it was rejected. If so, enroll the key that DKMS signs with, and confirm at the next boot.
    More: Or disable Secure Boot in the firmware.
    """
    if driver.nvml_error != "DRIVER_NOT_LOADED" or not driver.any_gpu or plan.expect_gpus == 0:
        return Ok("the module is loaded") if driver.nvml_error is None else Skip("no module is missing")
    if kernel.secure_boot is None:
        return Skip("the firmware's setting cannot be read here. As an administrator: mokutil --sb-state")
    if not kernel.secure_boot:
        return Ok("Secure Boot is off")
    return Problem(
        "Secure Boot is on, NVIDIA's module is not loaded",
        fix=Fix(
            commands=(
                "sudo dmesg | grep -iE 'key was rejected|lockdown|nvidia'",
                "sudo mokutil --import /var/lib/shim-signed/mok/MOK.der",
            ),
            who="admin",
        ),
        evidence={"secure_boot": True, "nvml": driver.nvml_error},
    )


@check(Severity.ERROR, source=_FLAVOURS, condemns_node=True)
def driver_module_of_wrong_flavour(kernel: Kernel, pci: Pci, gpus: tuple[Gpu, ...], container: Container) -> Answer:
    """The loaded variant of NVIDIA's kernel module (open or proprietary) does not support a GPU here.

    Why: the module ignores GPUs of architectures that it does not support. They are missing from nvidia-smi.
    More: The open module supports Turing and newer, the proprietary one everything up to Hopper. Blackwell requires the
    open one.

    Fix: install the other variant of the same driver.
    """
    if kernel.driver_flavour is None:
        return Skip("unknown module variant: not loaded, or /proc/driver/nvidia is not visible")
    if container.kind:
        return Skip("a container may have only some of the GPUs")
    here = [device for device in pci.devices if device.kind == "gpu" and device.vendor == "10de"]
    if not here or any(gpu.pci is None for gpu in gpus):
        return Skip("cannot match the GPUs on the bus with the driver's")
    shown = {_normalize_pci(gpu.pci) for gpu in gpus}
    stray = [
        device for device in here if _normalize_pci(device.address) not in shown and _is_unsupported(device, kernel)
    ]
    if not stray:
        return Ok(f"the {kernel.driver_flavour} module supports {counted(len(here), 'GPU')}")
    other = "open" if kernel.driver_flavour == "proprietary" else "proprietary"
    package = "nvidia-open" if other == "open" else "cuda-drivers"
    return Problem(
        f"the {kernel.driver_flavour} module is loaded, but {listed(device.address for device in stray)} "
        f"{'needs' if len(stray) == 1 else 'need'} the {other} one",
        fix=Fix(
            f"Install the {other} variant (packages from NVIDIA's repository), then reboot.",
            (shell("sudo apt-get install {:package}", package), "sudo reboot"),
            who="admin",
        ),
        evidence={"flavour": kernel.driver_flavour} | {device.address: device.device for device in stray},
        subjects=tuple(device.address for device in stray),
    )


def _normalize_pci(pci: str | None) -> str:
    """Normalize a PCI address: NVML's "00000000:1A:00.0" and sysfs' "0000:1a:00.0" become equal."""
    domain, _, rest = (pci or "").lower().partition(":")
    return f"{domain.lstrip('0') or '0'}:{rest}"


def _is_unsupported(device: PciDevice, kernel: Kernel) -> bool:
    """Return whether the loaded variant cannot drive this architecture; False if the device ID is not a number."""
    try:
        number = int(device.device, 16)
    except ValueError:
        return False
    return number >= _BLACKWELL if kernel.driver_flavour == "proprietary" else number < _TURING


@check(Severity.WARNING, source="https://docs.nvidia.com/deploy/gpu-debug-guidelines/")
def process_stuck_in_driver(kernel: Kernel) -> Answer:
    """A process is stuck in the GPU driver and cannot be killed.

    Why: it waits for the driver. The next program that uses the same GPU hangs too.
    More: It waits for a GPU or a lock that is never released, so not even SIGKILL stops it. The next program that needs
    the same GPU or lock hangs: nvidia-smi, and also the launch.

    Fix: reboot. The kernel log shows what it waits for.
    """
    if kernel.stuck is None:
        return Skip("too many processes to check in time")
    if not kernel.stuck:
        return Ok("no process that uses the driver or a GPU is in uninterruptible sleep")
    return Problem(
        f"{listed(kernel.stuck)}: stuck in the kernel, cannot be killed",
        fix=Fix(commands=("sudo dmesg | grep -iE 'nvrm|xid|blocked for more'",), who="admin"),
        evidence={"stuck": ", ".join(kernel.stuck)},
        subjects=kernel.stuck,
    )
