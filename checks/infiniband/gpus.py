"""Are adapters close to GPUs, and can they access GPU memory?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import version_numbers
from mgpu.snapshot import (
    Gpu,
    Host,
    InfiniBand,
    Kernel,
    Libraries,
    Nccl,
    Pci,
    PciDevice,
    Plan,
    Visible,
    nearest_nics,
    path_between,
)
from mgpu.text import counted, listed

from .._nccl_settings import settings
from .._nvlink_models import CONSUMER
from .._wording import gpu_list
from ._adapters import NEAR, active_ports, several_nodes

_GPU_DIRECT = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#gpu-direct"
# NVIDIA GPU Operator documentation, "GPUDirect RDMA": DMA-BUF needs Linux 5.12 and the open kernel modules.
_DMA_BUF_KERNEL = (5, 12)
# Share of the raw bits that carry data: 128b/130b encoding, PCIe 3 and later (PCI Express Base Specification).
_ENCODING = 128 / 130


@check(Severity.WARNING, source=f"{_GPU_DIRECT}", given=several_nodes)
def gpudirect_rdma_unavailable(
    infiniband: InfiniBand, plan: Plan, kernel: Kernel, host: Host, gpus: tuple[Gpu, ...]
) -> Answer:
    """Adapters cannot access GPU memory directly: neither nvidia-peermem nor DMA-BUF is available.

    Why: traffic between nodes is copied through host memory.
    More: GPUDirect RDMA needs the kernel module nvidia_peermem, or the open NVIDIA driver with DMA-BUF (Linux 5.12).

    Fix: load the module, now and at every boot.
    """
    if not [port for port in active_ports(infiniband) if port.link_layer in ("InfiniBand", "Ethernet")]:
        return Skip("no active InfiniBand or RoCE port")
    if not gpus or any(CONSUMER.search(gpu.name or "GeForce") for gpu in gpus):
        return Skip("no GPUs known to support GPUDirect RDMA")
    if kernel.modules is None:
        return Skip("the kernel modules cannot be listed")
    if loaded := {"nvidia_peermem", "nv_peer_mem"} & set(kernel.modules):
        return Ok(f"{next(iter(loaded))} is loaded")
    release = version_numbers(host.kernel)
    if kernel.driver_flavour is None or not release:
        return Skip("whether the driver supports DMA-BUF is unknown")
    if kernel.driver_flavour == "open":
        if release >= _DMA_BUF_KERNEL:
            return Ok(f"DMA-BUF: the open driver on Linux {host.kernel}")
        if ".el" in host.kernel:
            return Skip(f"whether DMA-BUF was backported to this kernel ({host.kernel}) is unknown")
    return Problem(
        f"neither nvidia_peermem nor DMA-BUF ({kernel.driver_flavour} driver, Linux {host.kernel})",
        fix=Fix(
            commands=(
                "sudo modprobe nvidia-peermem",
                "echo nvidia-peermem | sudo tee /etc/modules-load.d/nvidia-peermem.conf",
            ),
            who="admin",
        ),
        evidence={"driver": kernel.driver_flavour, "kernel": host.kernel},
    )


def _adapters_near(
    pci: Pci, infiniband: InfiniBand, gpus: tuple[Gpu, ...], visible: Visible
) -> dict[int, list[str]] | None:
    """Return the active adapters below the same switch as each visible GPU; None if the bus does not show it."""
    active = {port.device for port in active_ports(infiniband)}
    nics = [nic for nic in pci.of("nic") if active & set(nic.names) and nic.path]
    places = {
        gpu.index: place for gpu in gpus if gpu.index in visible.gpus and (place := pci.at(gpu.pci)) and place.path
    }
    if not nics or not places:
        return None
    return {
        index: [nic.names[0] for nic in nics if path_between(place, nic) in NEAR] for index, place in places.items()
    }


@check(
    Severity.WARNING,
    source=_GPU_DIRECT,
    because_of=("infiniband_port_down", "rdma_driver_missing"),
    given=several_nodes,
)
def gpu_without_its_adapter(
    pci: Pci, infiniband: InfiniBand, gpus: tuple[Gpu, ...], visible: Visible, plan: Plan
) -> Answer:
    """A GPU has no active adapter next to it, although most other GPUs have one.

    Why: it shares another GPU's adapter, and every collective between nodes waits for it.

    Fix: find the missing adapter.
    More: Check the bus, its driver and its port.
    """
    near = _adapters_near(pci, infiniband, gpus, visible)
    if near is None:
        return Skip("the bus positions of GPUs and active adapters are unknown")
    own = {index: names for index, names in near.items() if names}
    shared = [name for names in own.values() for name in names]
    without = [index for index in near if index not in own]
    if not own or len(set(shared)) < len(own) or len(without) >= len(own):
        return Skip("this machine does not have one adapter per GPU")
    if not without:
        return Ok(f"an adapter next to each of {counted(len(own), 'GPU')}")
    return Problem(
        f"no active adapter next to {gpu_list(without)}; the other {len(own)} have one",
        fix=Fix(commands=("lspci -d 15b3:", "ibstat", "nvidia-smi topo -m"), who="admin"),
        evidence={f"gpu_{index}": ", ".join(names) or "none" for index, names in near.items()},
        subjects=tuple(f"GPU {index}" for index in without),
    )


@check(
    Severity.INFO,
    source=_GPU_DIRECT,
    because_of=("gpu_without_its_adapter", "vm_rdma_without_topology_file"),
    given=several_nodes,
)
def gpus_far_from_adapters(
    pci: Pci, infiniband: InfiniBand, gpus: tuple[Gpu, ...], visible: Visible, plan: Plan, host: Host
) -> Answer:
    """GPUs can reach the nearest active adapter only through the CPU.

    Why: NCCL copies the traffic of these GPUs to other nodes through host memory.
    More: NCCL uses GPUDirect RDMA if GPU and adapter share a PCIe switch. Otherwise it copies through host memory,
    and across sockets also over the link between the CPUs.

    Fix: no action needed. For a run on fewer GPUs, prefer those next to an adapter.
    """
    if host.virtual:
        return Skip("a virtual machine's bus may differ from the real one")
    if any(gpu.c2c_enabled for gpu in gpus):
        return Skip("with a Grace CPU, GPUs reach the adapters over NVLink-C2C")
    near = _adapters_near(pci, infiniband, gpus, visible)
    if near is None:
        return Skip("the bus positions of GPUs and active adapters are unknown")
    far = [index for index, names in near.items() if not names]
    if not far:
        return Ok(f"{counted(len(near), 'GPU')} with an adapter below the same switch")
    place = {gpu.index: pci.at(gpu.pci) for gpu in gpus}
    ways = {index: _nearest_adapter_path(pci, place[index]) for index in far}
    return Problem(
        f"{gpu_list(far)}: no active adapter below the same PCIe switch ({ways[far[0]]})",
        evidence={f"gpu_{index}": way for index, way in ways.items()},
        subjects=tuple(f"GPU {index}" for index in far),
    )


def _nearest_adapter_path(pci: Pci, gpu: PciDevice | None) -> str:
    """Return the adapter nearest to a GPU, and the path to it."""
    nic = next(iter(nearest_nics(pci, gpu.address)), None) if gpu else None
    return f"nearest: {nic.names[0] if nic.names else nic.address}, {path_between(gpu, nic)}" if gpu and nic else "none"


@check(Severity.WARNING, source="https://github.com/NVIDIA/nccl/issues/1102", given=several_nodes)
def vm_rdma_without_topology_file(
    host: Host,
    pci: Pci,
    infiniband: InfiniBand,
    gpus: tuple[Gpu, ...],
    visible: Visible,
    plan: Plan,
    libraries: Libraries,
    env: Mapping[str, str],
    nccl: Nccl,
) -> Answer:
    """A virtual machine with InfiniBand shows no PCIe switches, and NCCL has no topology file.

    Why: NCCL treats GPUs and adapters as far apart: no GPUDirect RDMA, a sixth of the bandwidth.
    More: The provider's topology file describes what the virtual bus hides.

    Fix: set your provider's file for this machine type (Azure: /opt/microsoft/*-topo.xml).
    """
    if not host.virtual:
        return Skip("not a virtual machine")
    if not any(port.link_layer != "EFA" for port in active_ports(infiniband)):
        return Skip("no active InfiniBand or RoCE port")
    given = settings(env, nccl)
    if pci.topology_gpus or "NCCL_TOPO_FILE" in given:
        return Ok("NCCL has a topology file")
    if level := given.get("NCCL_NET_GDR_LEVEL"):
        return Ok(f"NCCL_NET_GDR_LEVEL={level.value} sets the distance for GPUDirect RDMA")
    if any(library.name.startswith("nccl-net") for library in libraries.found):
        return Skip("the provider's network plugin has the topology")
    near = _adapters_near(pci, infiniband, gpus, visible)
    if near is None:
        return Skip("the bus positions of GPUs and active adapters are unknown")
    if any(near.values()):
        return Ok("the bus shows adapters next to the GPUs")
    return Problem(
        f"{host.virtual} with {counted(len(active_ports(infiniband)), 'active port')}, no visible PCIe switch, "
        "no topology file",
        fix=Fix(commands=("export NCCL_TOPO_FILE=/opt/microsoft/ndv5-topo.xml",)),
        evidence={"hypervisor": host.virtual, "ports": len(active_ports(infiniband))},
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/networking/display/connectx7vpi", given=several_nodes)
def nic_pcie_narrow(pci: Pci, infiniband: InfiniBand, plan: Plan) -> Answer:
    """An adapter's PCIe link is slower than the adapter supports, and slower than its port.

    Why: a 400 Gb/s port in a PCIe 4.0 x16 slot gets 250 Gb/s at most. Adapters do not slow their link when idle, so
    the value read is the real one.

    Fix: use another slot, reseat the card, or check the BIOS.
    """
    rates: dict[str, float] = {}
    for port in active_ports(infiniband):
        rates[port.device] = max(rates.get(port.device, 0.0), port.rate_gbit_per_s or 0.0)
    links = {
        nic: (nic.width * nic.speed_gt_per_s * _ENCODING, max(rates.get(name, 0.0) for name in nic.names))
        for nic in pci.of("nic")
        if nic.width and nic.speed_gt_per_s and any(rates.get(name) for name in nic.names)
    }
    bad = {
        nic: (slot, port)
        for nic, (slot, port) in links.items()
        if slot < port
        and ((nic.width or 0) < (nic.width_max or 0) or (nic.speed_gt_per_s or 0) < (nic.speed_max_gt_per_s or 0))
    }
    if not links:
        return Skip("no active adapter reports its PCIe link")
    if not bad:
        return Ok(f"the PCIe links of {counted(len(links), 'adapter')} are as fast as their ports")
    nic, (slot, port_rate) = next(iter(bad.items()))
    return Problem(
        f"{listed(n.names[0] for n in bad)}: PCIe x{nic.width} at {nic.speed_gt_per_s:g} GT/s carries {slot:.0f} of "
        f"the port's {port_rate:g} Gb/s",
        f"The card supports x{nic.width_max} at {nic.speed_max_gt_per_s:g} GT/s; the slot limits it."
        if nic.speed_max_gt_per_s
        else f"The card supports x{nic.width_max}; the slot limits it.",
        Fix(commands=(shell("sudo lspci -vvs {:id} | grep Lnk", nic.address),), who="hardware"),
        {n.names[0]: round(slot) for n, (slot, _) in bad.items()},
        tuple(n.names[0] for n in bad),
    )
