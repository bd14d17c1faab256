"""Do the GPUs sit well on the PCI bus, and does it let them talk to each other?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

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
from mgpu.text import counted, listed

from ._gpus import gpu_problem, names_of, was_running

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

    Why: its configuration space reads as ones: the GPU fell off the bus (power, riser, heat, or the board).
    More: The GPU or its slot lost power or its link (Xid 79, "GPU has fallen off the bus"). The driver counts it until
    the next start, and whoever touches it waits or dies.

    Fix: power the machine off and on again; a reboot alone is often not enough.
    More: A cold start of the machine; when it comes back, check power cables, riser and temperature.
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
        fix=(
            Fix(who="admin"),
            Fix(
                "If it comes back: power cables, riser, slot, board.",
                (shell("sudo lspci -vvs {:id}", first),),
                "hardware",
            ),
        ),
        evidence={device.address: "reads as ones" for device in bad},
        subjects=tuple(device.address for device in bad),
    )


@check(Severity.WARNING, source=_NVML, because_of=("gpu_lost", "gpu_off_the_bus"))
def pcie_width_reduced(gpus: tuple[Gpu, ...], host: Host) -> Answer:
    """A GPU's PCIe link is narrower than the GPU can.

    Why: half the lanes are half the bandwidth to the host and, without NVLink, to the other GPUs.
    More: Width does not drop when idle: the card sits in a narrow slot, on a riser, or has a bad contact. Loading data
    and, without NVLink, every gradient goes through it. A virtual machine is judged by its other GPUs only: how many
    lanes it gets is its provider's choice.

    Fix: check slot, riser and BIOS lane settings.
    More: Of a virtual machine: ask for another instance.
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
            Fix("Ask for another instance: one GPU has fewer lanes than its siblings.", who="admin")
            if host.virtual
            else Fix(commands=(shell("nvidia-smi -q -d PCI -i {:number}", gpu.index),), who="hardware"),
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
        f"PCIe switch {switch}: x{width} to the host, x{widest} on the machine's other switches",
        f"{counted(len(below[switch]), 'GPU')} ({listed(d.address for d in below[switch])}) share this link.",
        Fix(commands=(shell("sudo lspci -vvs {:id} | grep LnkSta:", switch),), who="hardware"),
        {f"{switch}_width": width for switch, width in bad.items()} | {"widest": widest},
        tuple(bad),
    )


@check(Severity.INFO, source=_NVML)
def pcie_generation_limited(gpus: tuple[Gpu, ...]) -> Answer:
    """The slot is of an older PCIe generation than the GPU.

    Why: the slot or the BIOS holds the link to an older generation.
    More: Each generation halves the bandwidth. Judged by what slot and GPU can do together, never by the current speed,
    which falls when the GPU is idle.

    Fix: another slot, or the BIOS setting of this one.
    """
    known = [gpu for gpu in gpus if gpu.pcie_generation_max and gpu.pcie_generation_max_gpu]
    bad = [gpu for gpu in known if (gpu.pcie_generation_max or 0) < (gpu.pcie_generation_max_gpu or 0)]
    if bad:
        gpu = bad[0]
        return gpu_problem(
            bad,
            f"PCIe gen {gpu.pcie_generation_max}, the GPU can gen {gpu.pcie_generation_max_gpu}",
            {"generation": "pcie_generation_max"},
            Fix(who="hardware"),
        )
    return Ok(f"full generation on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here tells")


@check(Severity.WARNING, source=_NVML)
def pcie_generation_low_under_load(gpus: tuple[Gpu, ...], driver: Driver) -> Answer:
    """A GPU that works hard has its PCIe link at an older generation than it and its slot can do.

    Why: idle GPUs slow their link down, busy ones do not: this one trained badly or is held down.
    More: A link that stays slow under load trained badly, or power management holds it down: copies take twice the time
    a generation.

    Fix: reseat card or riser; look at the BIOS's ASPM setting.
    More: Switch PCIe power management (ASPM) off.
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
    """The link of a GPU or network card has had fatal PCIe errors since the machine started.

    Why: the link was lost and reset. A card, riser or cable that does this once does it again under load.

    Fix: look at the errors, then reseat card and riser.
    More: Move the job to another machine if it recurs.
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
        fix=Fix(commands=(shell("sudo lspci -vvs {:id}", bad[0].address),), who="hardware"),
        evidence={device.address: device.aer_fatal for device in bad},
        subjects=tuple(device.address for device in bad),
    )


# --- peer traffic ------------------------------------------------------------------------------------------------


_NCCL_ELSEWHERE = "NCCL goes through host memory here, but copies between GPUs (device_map, pipelines) take this way"
_PASS_THROUGH = (
    "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&iommu=pt /' /etc/default/grub",
    "sudo update-grub && sudo reboot",
)
_OFF_THIS_WAY = Fix(
    "Keep NCCL off this way until then.",
    ("export NCCL_P2P_DISABLE=1",),
    kind="stopgap",
    caveat="gradients then go through host memory",
)


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
    nccl = "NCCL takes this way" if near or amd else _NCCL_ELSEWHERE
    option = "amd_iommu" if pci.cpu_vendor == "amd" else "intel_iommu"
    return Problem(
        f"the IOMMU translates, and {counted(len(pairs), 'GPU pair')} would talk over PCIe "
        f"(GPU {pairs[0].a} and {pairs[0].b})",
        f"Peer transfers through a translating IOMMU hang or lose data, without an error. {nccl}.",
        (
            Fix(f"Add iommu=pt (or {option}=off) to the kernel's command line and reboot.", _PASS_THROUGH, who="admin"),
            replace(_OFF_THIS_WAY, caveat=f"{_OFF_THIS_WAY.caveat}; copies that PyTorch makes itself are not helped"),
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

    Why: what they tell each other goes up to the CPU and back instead of through the switch: slow, or it hangs.
    More: On a machine that is not virtual, Access Control Services defeat GPUDirect: traffic between neighbours below
    one switch crosses the CPU's root. That is slow, and on many boards hangs NCCL's first collective.

    Fix: switch it off (until the next boot), or disable VT-d/IOMMU in the BIOS for good.
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
            fix=(
                Fix(
                    commands=(shell("for port in {:id}; do sudo setpci -s $port ECAP_ACS+0x6.w=0000; done", ports),),
                    who="admin",
                ),
                _OFF_THIS_WAY,
            ),
            evidence={"pairs": len(bad), "ports": ", ".join(ports)},
            subjects=tuple(sorted({device.address for pair in bad for device in pair})),
        )
    if None in states:
        return Skip("only root can read the switches' ACS registers: sudo lspci -vvv | grep ACSCtl")
    return Ok(f"no ACS redirection between {counted(len(pairs), 'pair')} of neighbours")


# --- what NCCL sees ----------------------------------------------------------------------------------------------


@check(Severity.WARNING, source=f"{_TROUBLE}#topology-detection")
def pci_tree_hidden(pci: Pci, gpus: tuple[Gpu, ...], visible: Visible, container: Container) -> Answer:
    """The GPUs cannot be found in /sys.

    Why: NCCL cannot see which devices are neighbours, and takes them all for equally far apart.
    More: In a container whose /sys is masked or belongs to another machine it takes all of them for equally far apart:
    wrong rings, no GPUDirect RDMA, a fraction of the speed.

    Fix: give the container the host's /sys.
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
        fix=Fix(
            commands=("docker run -v /sys:/sys:ro ...",) if container.kind else ("ls -l /sys/bus/pci/devices",),
            who="admin",
        ),
        evidence={"readable": pci.readable, "missing": listed(bus_address(gpu.pci or "") for gpu in gone[:8])},
        subjects=names_of(gone),
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-topo-file")
def topology_file_misfit(pci: Pci, gpus: tuple[Gpu, ...], env: Mapping[str, str]) -> Answer:
    """The topology file given to NCCL does not describe this machine.

    Why: the file belongs to another machine type: NCCL would build its rings for that one.
    More: NCCL_TOPO_FILE tells NCCL which GPUs and network cards are neighbours, and is believed. Wrong rings, or none
    of the help it was meant to give, let bandwidth fall to a tenth.

    Fix: use the file of this machine type, or none.
    """
    path = pci.topology_file
    if path is None:
        return Skip("NCCL is given no topology file")
    named = env.get("NCCL_TOPO_FILE")
    undo = Fix(commands=("unset NCCL_TOPO_FILE",) if named else (), who="you")
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
        fix=undo,
        evidence={"file": path, "missing": listed(missing[:8]), "described": len(described)},
    )


@check(Severity.INFO, source=f"{_TROUBLE}#topology-detection")
def vm_topology_flat(
    host: Host, pci: Pci, gpus: tuple[Gpu, ...], links: tuple[Link, ...], visible: Visible, container: Container
) -> Answer:
    """This virtual machine shows its GPUs without the PCIe switches above them.

    Why: NCCL cannot tell neighbours here and goes through host memory. It works, at a part of the speed.
    More: Direct transfer additionally needs ATS, which few providers switch on; where it is half on, the first
    collective hangs.

    Fix: ask the provider for a topology file, and set NCCL_TOPO_FILE to it.
    More: NCCL_P2P_DISABLE=1 if a run hangs.
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
        fix=(
            Fix(),
            Fix(
                "If the run hangs in its first collective:",
                ("export NCCL_P2P_DISABLE=1",),
                kind="stopgap",
                caveat="transfers go through host memory, as they mostly do here anyway",
            ),
        ),
        evidence={"hypervisor": host.virtual, "gpus": len(devices)},
    )
