"""Are the GPUs' PCIe links healthy, and do they allow peer-to-peer transfers?"""

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

from ._gpus import driver_was_running, gpu_problem, gpu_subjects

FAMILY = Family(gpu_only=True)
_NVML = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"
_TROUBLE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
_P2P_OK = 0  # nvmlGpuP2PStatus_t
# Paths on which NCCL uses peer access over PCIe by default: through one or more switches, not through the CPU.
_NCCL_TAKES = ("PIX", "PXB")
# With an AMD CPU and at most this many GPUs, NCCL also uses it through the CPU (src/graph/paths.cc, ncclTopoCheckP2p).
_NCCL_TAKES_ON_AMD = 2
# A GPU this busy in one of its fastest states has no reason to slow its link down.
_BUSY_PERCENT, _FAST_STATE = 50, 2


def _pcie_peer_links(links: tuple[Link, ...], visible: Visible) -> list[Link]:
    """Return the pairs of the run that can access each other's memory, but not over NVLink."""
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


# --- peer traffic ------------------------------------------------------------------------------------------------


_NCCL_ELSEWHERE = "NCCL uses host memory here, but copies between GPUs (device_map, pipelines) take this path"
_PASS_THROUGH = (
    "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&iommu=pt /' /etc/default/grub",
    "sudo update-grub && sudo reboot",
)
_NCCL_P2P_OFF = Fix(
    "Disable peer-to-peer transfers in NCCL until then.",
    ("export NCCL_P2P_DISABLE=1",),
    kind="stopgap",
    caveat="gradients go through host memory",
)


@check(Severity.WARNING, source="https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#iommu-on-linux")
def iommu_translates_peer_traffic(
    kernel: Kernel, host: Host, links: tuple[Link, ...], visible: Visible, pci: Pci
) -> Answer:
    """GPUs use peer-to-peer transfers over PCIe while the IOMMU translates addresses.

    Why: on bare metal, NVIDIA does not support peer transfers through a translating IOMMU: writes can be lost although
    CUDA reports success. NCCL then hangs in its first collective with the GPUs at 100 %, or a model spread across
    GPUs returns garbage.
    More: Reported for pairs of RTX PRO 6000 (vllm-project/vllm#33041) and RTX 5880 (NVIDIA/nccl#2079), for example.

    Fix: boot Linux with iommu=pt, or turn the IOMMU off in the BIOS. Until then, set NCCL_P2P_DISABLE=1.
    """
    if host.virtual:
        return Skip("a virtual machine needs its host's IOMMU")
    if host.machine != "x86_64":
        return Skip("known only for x86 machines")
    pairs = _pcie_peer_links(links, visible)
    if not pairs:
        return Skip("no peer access over PCIe between visible GPUs")
    if kernel.iommu is None:
        return Skip("the IOMMU mode cannot be read here. As root: dmesg | grep -i -e DMAR -e IOMMU")
    if kernel.iommu != "translating":
        return Ok(f"IOMMU {'off' if kernel.iommu == 'off' else 'in passthrough mode'}")
    near = [pair for pair in pairs if pair.topology in _NCCL_TAKES]
    amd = pci.cpu_vendor == "amd" and len(visible.gpus) <= _NCCL_TAKES_ON_AMD
    nccl = "NCCL uses this path" if near or amd else _NCCL_ELSEWHERE
    option = "amd_iommu" if pci.cpu_vendor == "amd" else "intel_iommu"
    return Problem(
        f"the IOMMU translates, but {counted(len(pairs), 'GPU pair')} would use peer access over PCIe "
        f"(GPUs {pairs[0].a} and {pairs[0].b})",
        f"Peer transfers through a translating IOMMU hang or lose data without an error. {nccl}.",
        (
            Fix(f"Add iommu=pt (or {option}=off) to the kernel command line and reboot.", _PASS_THROUGH, who="admin"),
            replace(_NCCL_P2P_OFF, caveat=f"{_NCCL_P2P_OFF.caveat}; does not affect copies that PyTorch makes itself"),
        ),
        {"iommu": kernel.iommu, "command_line": kernel.command_line, "nccl_takes_it": bool(near or amd)},
    )


def _is_redirected(a: PciDevice, b: PciDevice) -> bool | None:
    """Return whether the switch above both devices redirects their traffic upstream; False if they share none."""
    if path_between(a, b) not in _NCCL_TAKES:
        return False
    flags = (a.acs_redirect, b.acs_redirect)
    return True if True in flags else None if None in flags else False


@check(
    Severity.WARNING,
    source=f"{_TROUBLE}#pci-access-control-services-acs",
    because_of=("iommu_translates_peer_traffic",),
)
def pcie_acs_redirects(
    pci: Pci, gpus: tuple[Gpu, ...], links: tuple[Link, ...], visible: Visible, host: Host, plan: Plan
) -> Answer:
    """PCIe switches redirect peer-to-peer traffic through the CPU (ACS).

    Why: traffic between devices below one switch goes up to the CPU and back, which is slow or hangs.
    More: On bare metal, Access Control Services (ACS) defeat GPUDirect: traffic between devices below one switch
    crosses the CPU's root complex. On many boards this hangs NCCL's first collective.

    Fix: disable ACS (until the next boot), or permanently disable VT-d/IOMMU in the BIOS.
    """
    if host.virtual:
        return Skip("virtual machines need ACS")
    place = {gpu.index: found for gpu in gpus if gpu.index in visible.gpus and (found := pci.at(gpu.pci))}
    pairs = [(place[p.a], place[p.b]) for p in _pcie_peer_links(links, visible) if p.a in place and p.b in place]
    if plan.nodes > 1:
        pairs += [(gpu, nic) for gpu in place.values() for nic in pci.of("nic") if nic.names]
    pairs = [pair for pair in pairs if path_between(*pair) in _NCCL_TAKES]
    if not pairs:
        return Skip("no peer traffic below one PCIe switch in this run")
    states = [_is_redirected(*pair) for pair in pairs]
    bad = [pair for pair, state in zip(pairs, states, strict=True) if state]
    if bad:
        ports = sorted({port for pair in bad for device in pair if device.acs_redirect for port in device.path[2:]})
        return Problem(
            f"ACS redirects traffic through the CPU for {counted(len(bad), 'device pair')} "
            f"({bad[0][0].address} and {bad[0][1].address})",
            fix=(
                Fix(
                    commands=(shell("for port in {:id}; do sudo setpci -s $port ECAP_ACS+0x6.w=0000; done", ports),),
                    who="admin",
                ),
                _NCCL_P2P_OFF,
            ),
            evidence={"pairs": len(bad), "ports": ", ".join(ports)},
            subjects=tuple(sorted({device.address for pair in bad for device in pair})),
        )
    if None in states:
        return Skip("only root can read the switches' ACS registers: sudo lspci -vvv | grep ACSCtl")
    return Ok(f"no ACS redirection for {counted(len(pairs), 'device pair')}")


# --- what NCCL sees ----------------------------------------------------------------------------------------------


@check(Severity.WARNING, source=f"{_TROUBLE}#topology-detection")
def pci_tree_hidden(pci: Pci, gpus: tuple[Gpu, ...], visible: Visible, container: Container) -> Answer:
    """The GPUs cannot be found in /sys.

    Why: NCCL cannot detect which devices are close to each other, and treats all as equally distant.
    More: This happens in a container whose /sys is masked or belongs to another machine. The result is wrong rings, no
    GPUDirect RDMA, and a fraction of the speed.

    Fix: give the container access to the host's /sys.
    """
    known = [gpu for gpu in gpus if gpu.index in visible.gpus and gpu.pci]
    if container.wsl:
        return Skip("WSL has no PCI bus to show")
    if len(known) < 2:
        return Skip("fewer than two GPUs with a known PCI address")
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
        subjects=gpu_subjects(gone),
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-topo-file")
def topology_file_misfit(pci: Pci, gpus: tuple[Gpu, ...], env: Mapping[str, str]) -> Answer:
    """NCCL's topology file does not describe this machine.

    Why: the file is for another machine type, and NCCL would build its rings for that one.
    More: NCCL_TOPO_FILE defines which GPUs and network adapters are close to each other, and NCCL trusts it. With wrong
    rings the bandwidth can drop to a tenth.

    Fix: use the file for this machine type, or none.
    """
    path = pci.topology_file
    if path is None:
        return Skip("no NCCL topology file is set")
    named = env.get("NCCL_TOPO_FILE")
    undo = Fix(commands=("unset NCCL_TOPO_FILE",) if named else (), who="you")
    if pci.topology_error is not None:
        return Problem(
            f"NCCL_TOPO_FILE {path} cannot be read: {pci.topology_error}",
            "NCCL continues without it and uses the topology that /sys shows.",
            undo,
            {"file": path, "error": pci.topology_error},
        )
    here = {bus_address(gpu.pci) for gpu in gpus if gpu.pci}
    described = {bus_address(address) for address in pci.topology_gpus or ()}
    if not here or not described:
        return Skip("the file lists no GPU" if here else "the GPUs' PCI addresses are unknown")
    missing = sorted(here - described)
    if not missing:
        return Ok(f"{path} describes {counted(len(here), 'GPU')} of this machine")
    return Problem(
        f"{path} lacks {len(missing)} of this machine's {len(here)} GPUs",
        fix=undo,
        evidence={"file": path, "missing": listed(missing[:8]), "described": len(described)},
    )


@check(Severity.INFO, source=f"{_TROUBLE}#topology-detection")
def vm_topology_flat(
    host: Host, pci: Pci, gpus: tuple[Gpu, ...], links: tuple[Link, ...], visible: Visible, container: Container
) -> Answer:
    """This virtual machine hides the PCIe switches above its GPUs.

    Why: NCCL cannot detect which GPUs are close to each other and uses host memory, which works but is slower.
    More: Direct transfers also need ATS, which few providers enable. If it is enabled only partly, the first collective
    hangs.

    Fix: ask the provider for a topology file, and set NCCL_TOPO_FILE to it.
    More: If a run hangs, set NCCL_P2P_DISABLE=1.
    """
    if not host.virtual or container.wsl:
        return Skip("not a virtual machine" if not host.virtual else "WSL has no PCI bus to show")
    devices = [found for gpu in gpus if gpu.index in visible.gpus and (found := pci.at(gpu.pci)) and found.path]
    if len(devices) < 2:
        return Skip("fewer than two GPUs with a known PCI address")
    if any(link.nvlinks for link in links):
        return Ok("the GPUs are connected by NVLink")
    if any(len(device.path) > 1 for device in devices):
        return Ok("the bus shows the switches above the GPUs")
    if pci.topology_gpus:
        return Ok(f"flat, and {pci.topology_file} describes it")
    return Problem(
        f"{host.virtual}: {len(devices)} GPUs directly on the root bus",
        fix=(
            Fix(),
            Fix(
                "If the run hangs in its first collective, disable peer-to-peer transfers.",
                ("export NCCL_P2P_DISABLE=1",),
                kind="stopgap",
                caveat="transfers go through host memory, as they mostly do here anyway",
            ),
        ),
        evidence={"hypervisor": host.virtual, "gpus": len(devices)},
    )
