"""Is every GPU on the PCI bus, with its full width and generation, and without errors?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Driver, Gpu, Host, Pci, PciDevice
from mgpu.text import counted, listed

from .._gpus import driver_was_running, gpu_problem

_NVML = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"
# A GPU this busy in one of its fastest states has no reason to slow its link down.
_BUSY_PERCENT, _FAST_STATE = 50, 2


@check(Severity.ERROR, source="https://docs.nvidia.com/deploy/xid-errors/", condemns_node=True)
def gpu_off_the_bus(pci: Pci) -> Answer:
    """A GPU on the PCI bus does not respond: its configuration space reads as all ones.

    Why: the GPU fell off the bus because of power, riser, heat or the board itself.
    More: The GPU or its slot lost power or its link (Xid 79, "GPU has fallen off the bus"). The driver lists it until
    the next reboot, but processes that access it hang or die.

    Fix: power the machine off and on again. A reboot alone is often not enough.
    More: If it recurs, check power cables, riser and temperature.
    """
    known = [device for device in pci.of("gpu") if device.answers is not None]
    bad = [device for device in known if not device.answers]
    if not known:
        return Skip("no GPU on the bus could be queried")
    if not bad:
        return Ok(f"{counted(len(known), 'GPU')} on the bus {'responds' if len(known) == 1 else 'respond'}")
    first = bad[0].address
    return Problem(
        f"{counted(len(bad), 'GPU')} on the bus {'does' if len(bad) == 1 else 'do'} not respond "
        f"({listed(device.address for device in bad)})",
        fix=(
            Fix(who="admin"),
            Fix(
                "If it recurs, check power cables, riser, slot and board.",
                (shell("sudo lspci -vvs {:id}", first),),
                "hardware",
            ),
        ),
        evidence={device.address: "reads as ones" for device in bad},
        subjects=tuple(device.address for device in bad),
    )


@check(Severity.WARNING, source=_NVML, because_of=("gpu_lost", "gpu_off_the_bus"))
def pcie_width_reduced(gpus: tuple[Gpu, ...], host: Host) -> Answer:
    """A GPU's PCIe link is narrower than the GPU supports.

    Why: half the lanes mean half the bandwidth to the host and, without NVLink, to the other GPUs.
    More: The width does not drop when idle, so the card is in a narrow slot, on a riser, or has a bad contact. Data
    and, without NVLink, every gradient go through this link. In a virtual machine, GPUs are compared only with each
    other, because the provider chooses the number of lanes.

    Fix: check slot, riser and BIOS lane settings.
    More: In a virtual machine, request another instance.
    """
    known = [gpu for gpu in gpus if gpu.pcie_width and gpu.pcie_width_max and "Laptop" not in (gpu.name or "")]
    wanted: dict[str | None, int] = {}
    for gpu in known:
        now, most = gpu.pcie_width or 0, gpu.pcie_width_max or 0
        wanted[gpu.name] = max(wanted.get(gpu.name, 0), now if host.virtual else most)
    bad = [gpu for gpu in known if (gpu.pcie_width or 0) < wanted[gpu.name]]
    if bad:
        gpu = bad[0]
        return gpu_problem(
            bad,
            f"PCIe x{gpu.pcie_width} of x{wanted[gpu.name]}",
            {"width": "pcie_width"},
            Fix("Request another instance: this GPU has fewer lanes than the others.", who="admin")
            if host.virtual
            else Fix(commands=(shell("nvidia-smi -q -d PCI -i {:number}", gpu.index),), who="hardware"),
        )
    if not known:
        return Skip("no GPU here reports its PCIe width")
    what = f"the same width (x{known[0].pcie_width})" if host.virtual else "full width"
    return Ok(f"{what} on {len(known)} of {len(gpus)} GPUs")


@check(Severity.WARNING, source="https://docs.kernel.org/PCI/index.html")
def pcie_switch_uplink_narrow(pci: Pci) -> Answer:
    """The uplink of a PCIe switch is narrower than that of the machine's other switches.

    Why: all GPUs below the switch share this link to the host. nvidia-smi shows the full width for each of them, but
    loading data is slow on these GPUs.

    Fix: check the switch's slot, cable or riser.
    """
    below: dict[str, list[PciDevice]] = {}
    for device in pci.of("gpu"):
        if device.uplink_width and device.uplink_width_max and len(device.path) > 2:
            below.setdefault(device.path[2], []).append(device)
    if not below:
        return Skip("no PCIe switch above a GPU")
    widths = {switch: devices[0].uplink_width or 0 for switch, devices in below.items()}
    widest = max(widths.values())
    bad = {switch: width for switch, width in widths.items() if width < widest}
    if not bad:
        return Ok(f"x{widest} above {counted(len(below), 'PCIe switch', 'PCIe switches')}")
    switch, width = next(iter(bad.items()))
    return Problem(
        f"PCIe switch {switch}: x{width} to the host, other switches x{widest}",
        f"{counted(len(below[switch]), 'GPU')} ({listed(d.address for d in below[switch])}) share this link.",
        Fix(commands=(shell("sudo lspci -vvs {:id} | grep LnkSta:", switch),), who="hardware"),
        {f"{switch}_width": width for switch, width in bad.items()} | {"widest": widest},
        tuple(bad),
    )


@check(Severity.INFO, source=_NVML)
def pcie_generation_limited(gpus: tuple[Gpu, ...]) -> Answer:
    """The slot supports only an older PCIe generation than the GPU.

    Why: the slot or the BIOS limits the link to an older generation.
    More: Each older generation halves the bandwidth. This compares what slot and GPU support, not the current speed,
    which drops when the GPU is idle.

    Fix: use another slot, or change this slot's BIOS setting.
    """
    known = [gpu for gpu in gpus if gpu.pcie_generation_max and gpu.pcie_generation_max_gpu]
    bad = [gpu for gpu in known if (gpu.pcie_generation_max or 0) < (gpu.pcie_generation_max_gpu or 0)]
    if bad:
        gpu = bad[0]
        return gpu_problem(
            bad,
            f"PCIe gen {gpu.pcie_generation_max}, the GPU supports gen {gpu.pcie_generation_max_gpu}",
            {"generation": "pcie_generation_max"},
            Fix(who="hardware"),
        )
    return Ok(f"full generation on {len(known)} of {len(gpus)} GPUs") if known else Skip("not reported by any GPU here")


@check(Severity.WARNING, source=_NVML)
def pcie_generation_low_under_load(gpus: tuple[Gpu, ...], driver: Driver) -> Answer:
    """A busy GPU's PCIe link runs at an older generation than the GPU and the slot support.

    Why: only idle GPUs slow their link down. This link is degraded by a bad contact or by power management.
    More: Copies take twice as long per generation.

    Fix: reseat the card or riser, and check the ASPM setting in the BIOS.
    More: Disable PCIe power management (ASPM).
    """
    busy = [
        gpu
        for gpu in gpus
        if gpu.pcie_generation
        and gpu.pcie_generation_max
        and (gpu.utilization_percent or 0) >= _BUSY_PERCENT
        and gpu.performance_state is not None
        and gpu.performance_state <= _FAST_STATE
        and driver_was_running(gpu, driver)
    ]
    bad = [gpu for gpu in busy if (gpu.pcie_generation or 0) < (gpu.pcie_generation_max or 0)]
    if not busy:
        return Skip("no GPU is busy (an idle GPU slows its link down)")
    if not bad:
        return Ok(f"full generation on {counted(len(busy), 'busy GPU')}")
    gpu = bad[0]
    return gpu_problem(
        bad,
        f"PCIe gen {gpu.pcie_generation} of {gpu.pcie_generation_max} while {gpu.utilization_percent}% busy",
        {"generation": "pcie_generation"},
        Fix(
            commands=(
                shell("nvidia-smi -q -d PCI -i {:number}", gpu.index),
                "cat /sys/module/pcie_aspm/parameters/policy",
            ),
            who="hardware",
        ),
    )


@check(
    Severity.WARNING,
    source="https://docs.kernel.org/PCI/pcieaer-howto.html",
    because_of=("gpu_lost", "gpu_off_the_bus"),
)
def pcie_fatal_errors(pci: Pci) -> Answer:
    """The link of a GPU or network adapter has had fatal PCIe errors since the machine booted.

    Why: the link was lost and reset. It is likely to happen again under load.

    Fix: check the errors, then reseat card and riser.
    More: Move the job to another machine if it recurs.
    """
    known = [device for device in pci.devices if device.aer_fatal is not None]
    bad = [device for device in known if device.aer_fatal]
    if not known:
        return Skip("the kernel counts no PCIe errors here")
    if not bad:
        return Ok(f"no fatal PCIe errors on {counted(len(known), 'device')}")
    return Problem(
        f"{counted(sum(d.aer_fatal or 0 for d in bad), 'fatal PCIe error')} since boot "
        f"({listed(d.address for d in bad)})",
        fix=Fix(commands=(shell("sudo lspci -vvs {:id}", bad[0].address),), who="hardware"),
        evidence={device.address: device.aer_fatal for device in bad},
        subjects=tuple(device.address for device in bad),
    )
