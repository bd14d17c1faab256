"""Which paths between GPUs, and to network adapters, would NCCL use by default?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.snapshot import Gpu, InfiniBand, Link, Pci, PciDevice, path_between

from .._grammars import c_integer, is_on
from .._nccl_settings import Setting
from .._nvlink_models import CONSUMER

_LEVELS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")


def is_closer(a: str, b: str) -> bool:
    """Whether path type `a` is is_closer than `b`."""
    return _LEVELS.index(a) < _LEVELS.index(b)


def talks_directly(link: Link, gpus: tuple[Gpu, ...], pci: Pci) -> bool | None:
    """Whether NCCL uses direct peer-to-peer access for this pair by default; None if unknown."""
    if link.nvlinks:
        return True
    if link.nvlinks is None or link.p2p_read is None or link.p2p_write is None or link.topology is None:
        return None
    # Drivers report peer access over PCIe for GeForce cards, but it does not work or was disabled for good reason.
    if any(CONSUMER.search(gpu.name or "") for gpu in gpus if gpu.index in (link.a, link.b)):
        return False
    # NCCL goes through the CPU only on AMD machines with at most two GPUs (src/graph/paths.cc ncclTopoCheckP2p).
    near = link.topology in ("LOC", "PIX", "PXB") or (pci.cpu_vendor == "amd" and len(gpus) <= 2)
    return (link.p2p_read, link.p2p_write) == (0, 0) and near


def way(link: Link) -> str:
    """Return NCCL's name for the path between two GPUs; nvidia-smi's NODE is NCCL's PHB."""
    return {"NODE": "PHB", None: "LOC"}.get(link.topology, link.topology or "LOC")


def has_switch_reduction(gpus: tuple[Gpu, ...], links: tuple[Link, ...]) -> bool:
    """Whether the NVSwitches here can reduce (NVLink SHARP): Hopper or newer, all GPUs connected by switches."""
    young = all(gpu.compute_capability is not None and gpu.compute_capability >= (9, 0) for gpu in gpus)
    return young and len(links) > 1 and all(link.through_switch and link.nvlinks for link in links)


def disabled_transports(found: Mapping[str, Setting]) -> list[str]:
    """Return the variables that disable one of NCCL's transports within this machine."""
    switches: tuple[str, ...] = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE")
    off = [name for name in switches if name in found and is_on(found[name].value)]
    nvls = found.get("NCCL_NVLS_ENABLE")
    return [*off, "NCCL_NVLS_ENABLE"] if nvls and nvls.value and c_integer(nvls.value)[0] == 0 else off


def adapters_near_gpus(gpus: tuple[Gpu, ...], pci: Pci, infiniband: InfiniBand) -> list[tuple[int, PciDevice, str]]:
    """Return each GPU with each active adapter below the same PCIe switch, and the path between them."""
    cards = [card for port in infiniband.ports if port.active and (card := pci.at(port.pci)) is not None]
    return [
        (gpu.index, card, way)
        for gpu in gpus
        if gpu.pci and (device := pci.at(gpu.pci))
        for card in cards
        if (way := path_between(device, card)) in ("PIX", "PXB")
    ]
