"""Do the GPUs sit well on the PCI bus, and does it let them talk to each other?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Family, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import (
    Container,
    Driver,
    Gpu,
    Host,
    Kernel,
    Link,
    Pci,
    PciDevice,
    Plan,
    Visible,
    bus_address,
    path_between,
)

from ._gpus import was_running
from ._wording import counted, gpu_list, listed

FAMILY = Family(gpu_only=True)
_NVML = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"
_TROUBLE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
_P2P_OK = 0  # nvmlGpuP2PStatus_t
# Where NCCL takes peer access over PCIe by default: below one switch or several, not across the CPU …
_NCCL_TAKES = ("PIX", "PXB")
# … but across the CPU, too, where it is AMD's and there are at most two GPUs (src/graph/paths.cc, ncclTopoCheckP2p).
_NCCL_TAKES_ON_AMD = 2
# A GPU that computes this much, in one of its fastest states, has no reason to have its link slowed.
_BUSY_PERCENT, _FAST_STATE = 50, 2


def _over_pcie(links: tuple[Link, ...], visible: Visible) -> list[Link]:
    """Pairs the run would use that reach each other's memory, and not by NVLink."""
    return [
        link
        for link in links
        if {link.a, link.b} <= set(visible.gpus)
        and link.nvlinks == 0
        and (link.p2p_read, link.p2p_write) == (_P2P_OK, _P2P_OK)
    ]


# --- on the bus --------------------------------------------------------------------------------------------------


@check(Severity.ERROR, source="https://docs.nvidia.com/deploy/xid-errors/", condemns_node=True)
def gpu_off_the_bus(pci: Pci) -> Answer:
    """A GPU stands on the PCI bus and does not answer: its configuration reads as ones.

    Why: the GPU or its slot lost power or its link (Xid 79, "GPU has fallen off the bus"). The driver counts it until
    the next start, and whoever touches it waits or dies.

    Fix: a cold start of the machine; when it comes back, check power cables, riser and temperature.
    """
    told = [device for device in pci.of("gpu") if device.answers is not None]
    bad = [device for device in told if not device.answers]
    if not told:
        return Skip("no GPU on the bus that could be asked")
    if not bad:
        return Ok(f"{counted(len(told), 'GPU')} on the bus answer")
    first = bad[0].address
    return Problem(
        f"{counted(len(bad), 'GPU')} on the bus {'does' if len(bad) == 1 else 'do'} not answer "
        f"({listed(device.address for device in bad)})",
        "Its configuration space reads as ones: the GPU fell off the bus (power, riser, heat, or the board).",
        (
            Fix("Power the machine off and on again; a reboot alone is often not enough.", who="admin"),
            Fix(
                "If it comes back: power cables, riser, slot, board.",
                (shell("sudo lspci -vvs {:id}", first),),
                "hardware",
            ),
        ),
        {device.address: "reads as ones" for device in bad},
        tuple(device.address for device in bad),
    )


@check(Severity.WARNING, source=_NVML, because_of=("gpu_lost", "gpu_off_the_bus"))
def pcie_width_reduced(gpus: tuple[Gpu, ...], host: Host) -> Answer:
    """A GPU's PCIe link is narrower than the GPU can.

    Why: width does not drop when idle: the card sits in a narrow slot, on a riser, or has a bad contact. Loading data
    and, without NVLink, every gradient goes through it. A virtual machine is judged by its other GPUs only: how many
    lanes it gets is its provider's choice.

    Fix: another slot, reseat the card, or the BIOS's lane settings.
    """
    known = [gpu for gpu in gpus if gpu.pcie_width and gpu.pcie_width_max and "Laptop" not in (gpu.name or "")]
    wanted: dict[str | None, int] = {}
    for gpu in known:
        now, most = gpu.pcie_width or 0, gpu.pcie_width_max or 0
        wanted[gpu.name] = max(wanted.get(gpu.name, 0), now if host.virtual else most)
    bad = [gpu for gpu in known if (gpu.pcie_width or 0) < wanted[gpu.name]]
    if bad:
        gpu = bad[0]
        return Problem(
            f"{gpu_list(g.index for g in bad)}: PCIe x{gpu.pcie_width} of x{wanted[gpu.name]}",
            "Half the lanes are half the bandwidth to the host and, without NVLink, to the other GPUs.",
            Fix("Ask for another instance: one GPU has fewer lanes than its siblings.", who="admin")
            if host.virtual
            else Fix(
                "Check slot, riser and BIOS lane settings.",
                (shell("nvidia-smi -q -d PCI -i {:number}", gpu.index),),
                "hardware",
            ),
            {f"gpu_{g.index}_width": g.pcie_width for g in bad},
            tuple(f"GPU {g.index}" for g in bad),
        )
    if not known:
        return Skip("no GPU here tells its width")
    what = f"the same width, x{known[0].pcie_width}," if host.virtual else "full width"
    return Ok(f"{what} on {len(known)} of {len(gpus)} GPUs")


@check(Severity.WARNING, source="https://docs.kernel.org/PCI/index.html")
def pcie_switch_uplink_narrow(pci: Pci) -> Answer:
    """The link above a PCIe switch is narrower than that of the machine's other switches.

    Why: every GPU below the switch shares this link to the host. nvidia-smi shows the full width for each of them, and
    loading data is still slow on these GPUs only.

    Fix: the cable, slot or riser of the switch.
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
        f"PCIe switch {switch}: x{width} to the host, x{widest} on the machine's other switches",
        f"{counted(len(below[switch]), 'GPU')} ({listed(d.address for d in below[switch])}) share this link.",
        Fix(
            "Check the switch's slot, cable or riser.",
            (shell("sudo lspci -vvs {:id} | grep LnkSta:", switch),),
            "hardware",
        ),
        {f"{switch}_width": width for switch, width in bad.items()} | {"widest": widest},
        tuple(bad),
    )


@check(Severity.INFO, source=_NVML)
def pcie_generation_limited(gpus: tuple[Gpu, ...]) -> Answer:
    """The slot is of an older PCIe generation than the GPU.

    Why: each generation halves the bandwidth. Judged by what slot and GPU can do together, never by the current speed,
    which falls when the GPU is idle.

    Fix: a slot of the GPU's own generation, or the BIOS's setting.
    """
    known = [gpu for gpu in gpus if gpu.pcie_generation_max and gpu.pcie_generation_max_gpu]
    bad = [gpu for gpu in known if (gpu.pcie_generation_max or 0) < (gpu.pcie_generation_max_gpu or 0)]
    if bad:
        gpu = bad[0]
        return Problem(
            f"{gpu_list(g.index for g in bad)}: PCIe gen {gpu.pcie_generation_max}, "
            f"the GPU can gen {gpu.pcie_generation_max_gpu}",
            "The slot or the BIOS holds the link to an older generation.",
            Fix("Another slot, or the BIOS setting of this one.", who="hardware"),
            {f"gpu_{g.index}_generation": g.pcie_generation_max for g in bad},
            tuple(f"GPU {g.index}" for g in bad),
        )
    return Ok(f"full generation on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here tells")


@check(Severity.WARNING, source=_NVML)
def pcie_generation_low_under_load(gpus: tuple[Gpu, ...], driver: Driver) -> Answer:
    """A GPU that works hard has its PCIe link at an older generation than it and its slot can do.

    Why: an idle GPU slows its link to save power, a busy one does not. A link that stays slow under load trained badly,
    or power management holds it down: copies take twice the time a generation.

    Fix: reseat the card or its riser; switch PCIe power management (ASPM) off.
    """
    busy = [
        gpu
        for gpu in gpus
        if gpu.pcie_generation
        and gpu.pcie_generation_max
        and (gpu.utilization_percent or 0) >= _BUSY_PERCENT
        and gpu.performance_state is not None
        and gpu.performance_state <= _FAST_STATE
        and was_running(gpu, driver)
    ]
    bad = [gpu for gpu in busy if (gpu.pcie_generation or 0) < (gpu.pcie_generation_max or 0)]
    if not busy:
        return Skip("no GPU is at work; the link of an idle one may be slow")
    if not bad:
        return Ok(f"full generation on {counted(len(busy), 'busy GPU')}")
    gpu = bad[0]
    return Problem(
        f"{gpu_list(g.index for g in bad)}: PCIe gen {gpu.pcie_generation} of {gpu.pcie_generation_max} while "
        f"{gpu.utilization_percent}% busy",
        "Idle GPUs slow their link down, busy ones do not: this one trained badly or is held down.",
        Fix(
            "Reseat card or riser; look at the BIOS's ASPM setting.",
            (shell("nvidia-smi -q -d PCI -i {:number}", gpu.index), "cat /sys/module/pcie_aspm/parameters/policy"),
            "hardware",
        ),
        {f"gpu_{g.index}_generation": g.pcie_generation for g in bad},
        tuple(f"GPU {g.index}" for g in bad),
    )


@check(
    Severity.WARNING,
    source="https://docs.kernel.org/PCI/pcieaer-howto.html",
    because_of=("gpu_lost", "gpu_off_the_bus"),
)
def pcie_fatal_errors(pci: Pci) -> Answer:
    """The link of a GPU or network card has had fatal PCIe errors since the machine started.

    Why: after a fatal error the link has to be reset; whatever used the device then was lost. A device that did it once
    does it again under load: Xid 79 and a hung job.

    Fix: reseat the card, check riser and power; move the job to another machine if it recurs.
    """
    told = [device for device in pci.devices if device.aer_fatal is not None]
    bad = [device for device in told if device.aer_fatal]
    if not told:
        return Skip("the kernel counts no PCIe errors here")
    if not bad:
        return Ok(f"no fatal PCIe errors on {counted(len(told), 'device')}")
    return Problem(
        f"{counted(sum(d.aer_fatal or 0 for d in bad), 'fatal PCIe error')} since boot "
        f"({listed(d.address for d in bad)})",
        "The link was lost and reset. A card, riser or cable that does this once does it again under load.",
        Fix(
            "Look at the errors, then reseat card and riser.",
            (shell("sudo lspci -vvs {:id}", bad[0].address),),
            "hardware",
        ),
        {device.address: device.aer_fatal for device in bad},
        tuple(device.address for device in bad),
    )


# --- peer traffic ------------------------------------------------------------------------------------------------


@check(Severity.WARNING, source="https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#iommu-on-linux")
def iommu_translates_peer_traffic(
    kernel: Kernel, host: Host, links: tuple[Link, ...], visible: Visible, pci: Pci
) -> Answer:
    """GPUs reach each other over PCIe while the IOMMU translates addresses.

    Why: on a machine that is not virtual, NVIDIA does not support peer transfers through a translating IOMMU: writes
    can be dropped though CUDA reports success. NCCL then hangs in its first collective with the GPUs at 100 %, or a
    model spread over GPUs gives garbage.

    Fix: start Linux with iommu=pt, or switch the IOMMU off in the BIOS; NCCL_P2P_DISABLE=1 helps until then.
    """
    if host.virtual:
        return Skip("a virtual machine needs its host's IOMMU")
    if host.machine != "x86_64":
        return Skip("known of x86 machines only")
    pairs = _over_pcie(links, visible)
    if not pairs:
        return Skip("no visible GPUs that reach each other over PCIe")
    if kernel.iommu is None:
        return Skip("how the IOMMU is set cannot be read: sudo dmesg | grep -i -e DMAR -e IOMMU")
    if kernel.iommu != "translating":
        return Ok(f"IOMMU {'off' if kernel.iommu == 'off' else 'passes through'}")
    near = [pair for pair in pairs if pair.topology in _NCCL_TAKES]
    amd = pci.cpu_vendor == "amd" and len(visible.gpus) <= _NCCL_TAKES_ON_AMD
    nccl = (
        "NCCL takes this way"
        if near or amd
        else "NCCL goes through host memory here, but copies between GPUs (device_map, pipelines) take this way"
    )
    option = "amd_iommu" if pci.cpu_vendor == "amd" else "intel_iommu"
    return Problem(
        f"the IOMMU translates, and {counted(len(pairs), 'GPU pair')} would talk over PCIe "
        f"(GPU {pairs[0].a} and {pairs[0].b})",
        f"Peer transfers through a translating IOMMU hang or lose data, without an error. {nccl}.",
        (
            Fix(
                f"Add iommu=pt (or {option}=off) to the kernel's command line and reboot.",
                (
                    "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&iommu=pt /' /etc/default/grub",
                    "sudo update-grub && sudo reboot",
                ),
                who="admin",
            ),
            Fix(
                "Keep NCCL off this way until then.",
                ("export NCCL_P2P_DISABLE=1",),
                kind="stopgap",
                caveat="gradients then go through host memory; copies that PyTorch makes itself are not helped",
            ),
        ),
        {"iommu": kernel.iommu, "command_line": kernel.command_line, "nccl_takes_it": bool(near or amd)},
    )


def _redirected(a: PciDevice, b: PciDevice) -> bool | None:
    """Whether a switch both hang on sends their traffic up; False where they share none."""
    if path_between(a, b) not in _NCCL_TAKES:
        return False
    told = (a.acs_redirect, b.acs_redirect)
    return True if True in told else None if None in told else False


@check(
    Severity.WARNING,
    source=f"{_TROUBLE}#pci-access-control-services-acs",
    because_of=("iommu_translates_peer_traffic",),
)
def pcie_acs_redirects(
    pci: Pci, gpus: tuple[Gpu, ...], links: tuple[Link, ...], visible: Visible, host: Host, plan: Plan
) -> Answer:
    """PCIe switches send what their devices tell each other up to the CPU and back (ACS).

    Why: on a machine that is not virtual, Access Control Services defeat GPUDirect: traffic between neighbours below
    one switch crosses the CPU's root. That is slow, and on many boards hangs NCCL's first collective.

    Fix: switch ACS off on the switches' ports, or in the BIOS with VT-d.
    """
    if host.virtual:
        return Skip("virtual machines need ACS")
    place = {gpu.index: found for gpu in gpus if gpu.index in visible.gpus and (found := pci.at(gpu.pci))}
    pairs = [(place[p.a], place[p.b]) for p in _over_pcie(links, visible) if p.a in place and p.b in place]
    if plan.nodes > 1:
        pairs += [(gpu, nic) for gpu in place.values() for nic in pci.of("nic") if nic.names]
    pairs = [pair for pair in pairs if path_between(*pair) in _NCCL_TAKES]
    if not pairs:
        return Skip("no two devices of the run talk to each other below one PCIe switch")
    states = [_redirected(*pair) for pair in pairs]
    bad = [pair for pair, state in zip(pairs, states, strict=True) if state]
    if bad:
        ports = sorted({port for pair in bad for device in pair if device.acs_redirect for port in device.path[2:]})
        return Problem(
            f"ACS redirects the traffic of {counted(len(bad), 'pair')} of neighbours "
            f"({bad[0][0].address} and {bad[0][1].address})",
            "What they tell each other goes up to the CPU and back instead of through the switch: slow, or it hangs.",
            (
                Fix(
                    "Switch it off (until the next boot), or disable VT-d/IOMMU in the BIOS for good.",
                    (shell("for port in {:id}; do sudo setpci -s $port ECAP_ACS+0x6.w=0000; done", ports),),
                    who="admin",
                ),
                Fix(
                    "Keep NCCL off this way until then.",
                    ("export NCCL_P2P_DISABLE=1",),
                    kind="stopgap",
                    caveat="gradients then go through host memory",
                ),
            ),
            {"pairs": len(bad), "ports": ", ".join(ports)},
            tuple(sorted({device.address for pair in bad for device in pair})),
        )
    if None in states:
        return Skip("only root can read the switches' ACS registers: sudo lspci -vvv | grep ACSCtl")
    return Ok(f"no ACS redirection between {counted(len(pairs), 'pair')} of neighbours")


# --- what NCCL sees ----------------------------------------------------------------------------------------------


@check(Severity.WARNING, source=f"{_TROUBLE}#topology-detection")
def pci_tree_hidden(pci: Pci, gpus: tuple[Gpu, ...], visible: Visible, container: Container) -> Answer:
    """The GPUs cannot be found in /sys.

    Why: NCCL reads there which GPUs and network cards are neighbours. In a container whose /sys is masked or belongs to
    another machine it takes all of them for equally far apart: wrong rings, no GPUDirect RDMA, a fraction of the speed.

    Fix: mount the host's /sys into the container.
    """
    known = [gpu for gpu in gpus if gpu.index in visible.gpus and gpu.pci]
    if container.wsl:
        return Skip("WSL has no PCI bus to show")
    if len(known) < 2:
        return Skip("not several GPUs whose place on the bus is known")
    gone = [gpu for gpu in known if pci.at(gpu.pci) is None]
    if not gone:
        return Ok(f"{counted(len(known), 'GPU')} found in /sys")
    return Problem(
        f"/sys shows {len(known) - len(gone)} of {len(known)} visible GPUs on the PCI bus",
        "NCCL cannot see which devices are neighbours, and takes them all for equally far apart.",
        Fix(
            "Give the container the host's /sys.",
            ("docker run -v /sys:/sys:ro ...",) if container.kind else ("ls -l /sys/bus/pci/devices",),
            "admin",
        ),
        {"readable": pci.readable, "missing": listed(bus_address(gpu.pci or "") for gpu in gone[:8])},
        tuple(f"GPU {gpu.index}" for gpu in gone),
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-topo-file")
def topology_file_misfit(pci: Pci, gpus: tuple[Gpu, ...], env: Mapping[str, str]) -> Answer:
    """The topology file given to NCCL does not describe this machine.

    Why: NCCL_TOPO_FILE tells NCCL which GPUs and network cards are neighbours, and is believed. A file of another
    machine type gives wrong rings or none of the help it was meant to give: bandwidth falls to a tenth.

    Fix: use the file of this machine type, or unset the variable.
    """
    path = pci.topology_file
    if path is None:
        return Skip("NCCL is given no topology file")
    named = env.get("NCCL_TOPO_FILE")
    undo = Fix("Use the file of this machine type, or none.", ("unset NCCL_TOPO_FILE",) if named else (), "you")
    if pci.topology_error is not None:
        return Problem(
            f"NCCL_TOPO_FILE {path} cannot be read: {pci.topology_error}",
            "NCCL goes on without it, and takes the machine for what /sys shows.",
            undo,
            {"file": path, "error": pci.topology_error},
        )
    here = {bus_address(gpu.pci) for gpu in gpus if gpu.pci}
    described = {bus_address(address) for address in pci.topology_gpus or ()}
    if not here or not described:
        return Skip("the file names no GPU" if here else "the GPUs' places on the bus are not known")
    missing = sorted(here - described)
    if not missing:
        return Ok(f"{path} describes {counted(len(here), 'GPU')} of this machine")
    return Problem(
        f"{path} does not describe {len(missing)} of {len(here)} GPUs of this machine",
        "The file belongs to another machine type: NCCL would build its rings for that one.",
        undo,
        {"file": path, "missing": listed(missing[:8]), "described": len(described)},
    )


@check(Severity.INFO, source=f"{_TROUBLE}#topology-detection")
def vm_topology_flat(
    host: Host, pci: Pci, gpus: tuple[Gpu, ...], links: tuple[Link, ...], visible: Visible, container: Container
) -> Answer:
    """This virtual machine shows its GPUs without the PCIe switches above them.

    Why: NCCL cannot see which GPUs are neighbours, so without NVLink it sends everything through host memory. Direct
    transfer additionally needs ATS, which few providers switch on; where it is half on, the first collective hangs.

    Fix: the provider's topology file, if there is one; NCCL_P2P_DISABLE=1 if a run hangs.
    """
    if not host.virtual or container.wsl:
        return Skip("not a virtual machine" if not host.virtual else "WSL has no PCI bus to show")
    devices = [found for gpu in gpus if gpu.index in visible.gpus and (found := pci.at(gpu.pci)) and found.path]
    if len(devices) < 2:
        return Skip("not several GPUs whose place on the bus is known")
    if any(link.nvlinks for link in links):
        return Ok("the GPUs are joined by NVLink")
    if any(len(device.path) > 1 for device in devices):
        return Ok("the bus shows what is above the GPUs")
    if pci.topology_gpus:
        return Ok(f"flat, and {pci.topology_file} describes it")
    return Problem(
        f"{host.virtual}: {len(devices)} GPUs directly on the root bus",
        "NCCL cannot tell neighbours here and goes through host memory. It works, at a part of the speed.",
        (
            Fix("Ask the provider for a topology file, and set NCCL_TOPO_FILE to it."),
            Fix(
                "If the run hangs in its first collective:",
                ("export NCCL_P2P_DISABLE=1",),
                kind="stopgap",
                caveat="transfers go through host memory, as they mostly do here anyway",
            ),
        ),
        {"hypervisor": host.virtual, "gpus": len(devices)},
    )
