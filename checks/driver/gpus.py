"""Does the driver have every GPU on the PCI bus, and did it lose one?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Container, Driver, Gpu, Pci, bus_address
from mgpu.text import listed

from .._gpus import use_only
from .._wording import gpu_list
from ._nvml import driver_answers, is_gpu_node

_NVIDIA = "10de"  # vendor on the PCI bus
_PASSED_THROUGH = "vfio-pci"  # the kernel driver that keeps a device for a virtual machine
# What NVML's error codes mean (nvml.h), of one GPU and of several.
_LOST = {
    "GPU_IS_LOST": ("fell off the bus", "fell off the bus"),
    "RESET_REQUIRED": ("needs a reset", "need a reset"),
    "INSUFFICIENT_POWER": ("has no external power", "have no external power"),
}
_SILENT = ("does not respond", "do not respond")


@check(
    Severity.WARNING,
    source="https://docs.nvidia.com/deploy/gpu-debug-guidelines/",
    because_of=("gpu_lost", "gpu_off_the_bus", "driver_module_of_wrong_flavour"),
    given=driver_answers,
)
def gpus_on_bus_not_in_driver(driver: Driver, gpus: tuple[Gpu, ...], pci: Pci, container: Container) -> Answer:
    """The PCI bus has more NVIDIA GPUs than the driver shows.

    Why: a GPU failed to initialize, or another kernel driver uses it. A run that expects all GPUs gets fewer.

    Fix: check the kernel log for the reason.
    """
    if container.kind:
        return Skip("a container may have only some of the GPUs")
    on_bus = [device for device in pci.of("gpu") if device.vendor == _NVIDIA] if pci.readable else []
    given = [device for device in on_bus if device.driver == _PASSED_THROUGH]
    number = len(on_bus) - len(given) or driver.pci_gpus
    if not number:
        return Skip("the PCI bus cannot be read here")
    to_guests = f"; {len(given)} reserved for virtual machines" if given else ""
    # A device cgroup (Slurm's) hides forbidden GPUs from NVML, but the bus still shows them.
    forbidden = [node for node in driver.nodes_denied or () if is_gpu_node(node)]
    may = [gpu for gpu in gpus if gpu.permitted]
    if 0 < len(forbidden) < number and number - len(forbidden) <= len(may):
        return Ok(f"{len(may)} of {number} GPUs on the PCI bus; {len(forbidden)} reserved for others{to_guests}")
    if number <= len(gpus):
        return Ok(f"{len(gpus)} of {number} GPUs on the PCI bus are in the driver{to_guests}")
    shown = {bus_address(gpu.pci) for gpu in gpus if gpu.pci}
    missing = [device for device in on_bus if device not in given and device.address not in shown]
    at = f" ({listed(device.address for device in missing)})" if len(missing) == number - len(gpus) else ""
    return Problem(
        f"{number} NVIDIA GPUs on the PCI bus, {len(gpus)} in the driver{at}",
        f"The driver failed to initialize {'it' if number - len(gpus) == 1 else 'them'}, or another kernel driver uses "
        f"{'it' if number - len(gpus) == 1 else 'them'}.",
        Fix(commands=("sudo dmesg | grep -iE 'nvrm|xid'",), who="admin"),
        {"pci_gpus": number, "nvml_gpus": len(gpus)}
        | ({device.address: device.driver or "no kernel driver" for device in missing} if at else {}),
    )


@check(
    Severity.ERROR,
    source="https://docs.nvidia.com/deploy/xid-errors/",
    because_of=("gpu_off_the_bus",),
    condemns_node=True,
    stops_launch="always",
    stops_start=False,
)
def gpu_lost(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU no longer responds to the driver.

    Why: a rank on this GPU fails, and the others hang in their next collective.
    More: The GPU fell off the PCI bus (Xid 79), needs a reset, or has no power. CUDA may not start on this machine.

    Fix: reboot. If it is lost again, check power, seating and temperature, then contact the vendor.
    """
    lost = {gpu.index: gpu.lost for gpu in gpus if gpu.lost}
    if lost:
        others = [gpu.index for gpu in gpus if not gpu.lost and gpu.permitted]
        stopgap = (
            (
                Fix(
                    "Use only the other GPUs until then.",
                    use_only(others, gpus),
                    kind="stopgap",
                    caveat="CUDA may still fail to start until a reboot",
                ),
            )
            if others
            else ()
        )
        return Problem(
            "; ".join(_gone(code, [i for i in lost if lost[i] == code]) for code in dict.fromkeys(lost.values())),
            fix=(Fix(commands=("sudo reboot",), who="hardware"), *stopgap),
            evidence={f"gpu_{i}": reason for i, reason in lost.items()},
            subjects=tuple(f"GPU {i}" for i in lost),
        )
    return Ok(f"{len(gpus)} of {len(gpus)} GPUs respond") if gpus else Skip("no GPU here")


def _gone(code: str, indices: list[int]) -> str:
    """Return what happened to these GPUs, with NVML's code, by which it is found on the web."""
    return f"{gpu_list(indices)} {_LOST.get(code, _SILENT)[len(indices) > 1]} ({code})"
