"""Which ways between GPUs, and to network cards, would NCCL take by itself?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.snapshot import Gpu, InfiniBand, Link, Pci, PciDevice, path_between

from .._grammars import c_integer, is_on
from .._nccl_settings import Setting
from .._nvlink_models import CONSUMER

_LEVELS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")


def closer(a: str, b: str) -> bool:
    """Whether one path type is closer than another."""
    return _LEVELS.index(a) < _LEVELS.index(b)


def talks_directly(link: Link, gpus: tuple[Gpu, ...], pci: Pci) -> bool | None:
    """Whether NCCL would let this pair talk directly by default; None where that is not known."""
    if link.nvlinks:
        return True
    if link.nvlinks is None or link.p2p_read is None or link.p2p_write is None or link.topology is None:
        return None
    # Peer access over PCIe that drivers promise for GeForce cards is not there, or is switched off with good reason.
    if any(CONSUMER.search(gpu.name or "") for gpu in gpus if gpu.index in (link.a, link.b)):
        return False
    # Through the CPU only on AMD machines with two GPUs at most (src/graph/paths.cc ncclTopoCheckP2p).
    near = link.topology in ("LOC", "PIX", "PXB") or (pci.cpu_vendor == "amd" and len(gpus) <= 2)
    return (link.p2p_read, link.p2p_write) == (0, 0) and near


def way(link: Link) -> str:
    """The path between two GPUs as NCCL calls it: nvidia-smi's NODE is PHB to it."""
    return {"NODE": "PHB", None: "LOC"}.get(link.topology, link.topology or "LOC")


def has_switch_reduction(gpus: tuple[Gpu, ...], links: tuple[Link, ...]) -> bool:
    """Whether the NVSwitches of this machine can add (NVLink SHARP): Hopper and newer, all behind switches."""
    young = all(gpu.compute_capability is not None and gpu.compute_capability >= (9, 0) for gpu in gpus)
    return young and len(links) > 1 and all(link.through_switch and link.nvlinks for link in links)


def switched_off(found: Mapping[str, Setting]) -> list[str]:
    """The variables that take a transport inside the machine from NCCL."""
    switches: tuple[str, ...] = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE")
    off = [name for name in switches if name in found and is_on(found[name].value)]
    nvls = found.get("NCCL_NVLS_ENABLE")
    return [*off, "NCCL_NVLS_ENABLE"] if nvls and nvls.value and c_integer(nvls.value)[0] == 0 else off


def cards_near(gpus: tuple[Gpu, ...], pci: Pci, infiniband: InfiniBand) -> list[tuple[int, PciDevice, str]]:
    """Each GPU with each active card that is below the same switch, and the way between them."""
    cards = [card for port in infiniband.ports if port.active and (card := pci.at(port.pci)) is not None]
    return [
        (gpu.index, card, way)
        for gpu in gpus
        if gpu.pci and (device := pci.at(gpu.pci))
        for card in cards
        if (way := path_between(device, card)) in ("PIX", "PXB")
    ]
