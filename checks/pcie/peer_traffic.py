"""Does something between the GPUs redirect or translate their peer-to-peer transfers?"""

from __future__ import annotations

from dataclasses import replace

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Gpu, Host, Kernel, Link, Pci, PciDevice, Plan, Visible, path_between
from mgpu.text import counted

from ._peer_links import pcie_peer_links

_TROUBLE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
# Paths on which NCCL uses peer access over PCIe by default: through one or more switches, not through the CPU.
_NCCL_TAKES = ("PIX", "PXB")
# With an AMD CPU and at most this many GPUs, NCCL also uses it through the CPU (src/graph/paths.cc, ncclTopoCheckP2p).
_NCCL_TAKES_ON_AMD = 2


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
    pairs = pcie_peer_links(links, visible)
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
    pairs = [(place[p.a], place[p.b]) for p in pcie_peer_links(links, visible) if p.a in place and p.b in place]
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
