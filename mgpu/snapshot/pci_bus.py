"""What is on the PCI bus, and how far apart are two devices?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Literal, TypeAlias

from mgpu.snapshot.fast_dataclass import dataclass
from mgpu.snapshot.field_types import Identity, Label, Moment, Same, Text, Wording


@dataclass(frozen=True)
class PciDevice:
    """A GPU or a network card on the PCI bus, from sysfs."""

    address: Identity[Label]  # 0000:1a:00.0
    kind: Identity[Literal["gpu", "nic"]]
    vendor: Same[Label]  # 10de
    device: Same[Label]
    # the kernel driver that holds it: nvidia, nouveau, vfio-pci, mlx5_core; None = none
    driver: Annotated[Same[Label | None], Wording(none="none")]
    answers: bool | None  # False: its configuration space reads as ones, it fell off the bus
    numa_node: Same[int | None]
    cpus_near: Same[Label | None]
    width: Same[int | None]  # this and the next three of network cards only: NVML tells of GPUs
    width_max: Same[int | None]
    speed_gt_per_s: Moment[float | None]
    speed_max_gt_per_s: Same[float | None]
    path: Identity[tuple[Label, ...]] = ()  # the host bridge, the root port and the switches' ports down to it
    acs_redirect: bool | None = None  # a switch above sends peer traffic up to the root (ACS); None: only root can read
    aer_fatal: Moment[int | None] = None  # since boot
    names: Identity[tuple[Label, ...]] = ()  # interfaces and HCAs it carries: eth0, mlx5_0
    cpus_near_usable: Same[int | None] = None  # how many of the CPUs near it this process may use
    uplink_width: Same[int | None] = None  # lanes of the narrowest link above the switches on its way
    uplink_width_max: Same[int | None] = None
    pci_class: Same[Label | None] = None  # 030200 a 3D controller, 020000 Ethernet, 020700 InfiniBand


@dataclass(frozen=True)
class Pci:
    """What stands on the PCI bus, whether the driver knows it or not."""

    devices: tuple[PciDevice, ...]
    readable: bool  # False: /sys shows no PCI tree (some containers), so NCCL sees none either
    nvswitches: Same[int | None] = None
    cpu_vendor: Literal["amd", "intel", "other"] | None = None  # by the first host bridge
    fabric_manager: Same[Label | None] = None  # version of the nv-fabricmanager installed beside NVSwitches
    # the file NCCL would read: NCCL_TOPO_FILE, or the one a cloud's machine brings
    topology_file: Same[Text | None] = None
    topology_error: Same[Label | None] = None  # why it could not be read
    topology_gpus: Identity[tuple[Label, ...] | None] = None  # addresses of the GPUs it describes

    def of(self, kind: Literal["gpu", "nic"]) -> tuple[PciDevice, ...]:
        """The devices of one kind."""
        return tuple(device for device in self.devices if device.kind == kind)

    def at(self, address: str | None) -> PciDevice | None:
        """The device at this address, as sysfs or as NVML writes it."""
        return self._places.get(bus_address(address)) if address else None

    @cached_property
    def _places(self) -> Mapping[str, PciDevice]:
        return {device.address: device for device in self.devices}


Distance: TypeAlias = Literal["PIX", "PXB", "PHB", "NODE", "SYS"]


_DISTANCES: tuple[Distance, ...] = ("PIX", "PXB", "PHB", "NODE", "SYS")


def bus_address(text: str) -> str:
    """A PCI address as sysfs writes it: NVML's "00000000:1A:00.0" is "0000:1a:00.0"."""
    *domain, bus, slot = ("", "", *text.strip().lower().split(":"))
    return ":".join((domain[-1].lstrip("0").zfill(4), bus, slot))


def path_between(a: PciDevice, b: PciDevice) -> Distance | None:
    """How far apart two devices are, as `nvidia-smi topo -m` names it; None where the bus does not show it."""
    if not a.path or not b.path:
        return None
    shared = 0
    while shared < min(len(a.path), len(b.path)) and a.path[shared] == b.path[shared]:
        shared += 1
    if shared > 1:  # the first is the host bridge; below it they share a switch, whose ports below count as part of it
        return "PIX" if max(len(a.path), len(b.path)) - shared <= 1 else "PXB"
    if shared:
        return "PHB"
    return "NODE" if a.numa_node == b.numa_node else "SYS"


def nearest_nics(pci: Pci, gpu_pci_address: str | None) -> tuple[PciDevice, ...]:
    """The network cards closest to a GPU: all of those at the shortest distance; none where that is not known."""
    gpu = pci.at(gpu_pci_address)
    far = [(nic, path_between(gpu, nic)) for nic in pci.of("nic")] if gpu else []
    return next((near for d in _DISTANCES if (near := tuple(nic for nic, distance in far if distance == d))), ())
