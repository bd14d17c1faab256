"""Which devices are on the PCI bus, and how far apart are two of them?"""

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
    # the kernel driver bound to it: nvidia, nouveau, vfio-pci, mlx5_core; None: none
    driver: Annotated[Same[Label | None], Wording(none="none")]
    answers: bool | None  # False: its configuration space reads as all ones, so it fell off the bus
    numa_node: Same[int | None]
    cpus_near: Same[Label | None]
    width: Same[int | None]  # this and the next three: network cards only; for GPUs NVML reports them
    width_max: Same[int | None]
    speed_gt_per_s: Moment[float | None]
    speed_max_gt_per_s: Same[float | None]
    path: Identity[tuple[Label, ...]] = ()  # host bridge, root port and switch ports down to the device
    acs_redirect: bool | None = None  # a switch above redirects peer traffic to the root (ACS); None: unreadable
    aer_fatal: Moment[int | None] = None  # since boot
    names: Identity[tuple[Label, ...]] = ()  # its interfaces and HCAs: eth0, mlx5_0
    cpus_near_usable: Same[int | None] = None  # number of CPUs near it that this process may use
    uplink_width: Same[int | None] = None  # lanes of the narrowest link above the switches on its path
    uplink_width_max: Same[int | None] = None
    pci_class: Same[Label | None] = None  # 030200 a 3D controller, 020000 Ethernet, 020700 InfiniBand


@dataclass(frozen=True)
class Pci:
    """The devices on the PCI bus, with or without a driver."""

    devices: tuple[PciDevice, ...]
    readable: bool  # False: /sys shows no PCI tree (some containers), so NCCL sees none either
    nvswitches: Same[int | None] = None
    cpu_vendor: Literal["amd", "intel", "other"] | None = None  # determined by the first host bridge
    fabric_manager: Same[Label | None] = None  # version of nv-fabricmanager, if there are NVSwitches
    # the file NCCL would read: NCCL_TOPO_FILE, or the one provided by a cloud's machine image
    topology_file: Same[Text | None] = None
    topology_error: Same[Label | None] = None  # why it could not be read
    topology_gpus: Identity[tuple[Label, ...] | None] = None  # addresses of the GPUs it describes

    def of(self, kind: Literal["gpu", "nic"]) -> tuple[PciDevice, ...]:
        """Return the devices of one kind."""
        return tuple(device for device in self.devices if device.kind == kind)

    def at(self, address: str | None) -> PciDevice | None:
        """Return the device at this address, in the notation of sysfs or NVML."""
        return self._places.get(bus_address(address)) if address else None

    @cached_property
    def _places(self) -> Mapping[str, PciDevice]:
        return {device.address: device for device in self.devices}


Distance: TypeAlias = Literal["PIX", "PXB", "PHB", "NODE", "SYS"]


_DISTANCES: tuple[Distance, ...] = ("PIX", "PXB", "PHB", "NODE", "SYS")


def bus_address(text: str) -> str:
    """Return a PCI address in sysfs notation: NVML's "00000000:1A:00.0" becomes "0000:1a:00.0"."""
    *domain, bus, slot = ("", "", *text.strip().lower().split(":"))
    return ":".join((domain[-1].lstrip("0").zfill(4), bus, slot))


def path_between(a: PciDevice, b: PciDevice) -> Distance | None:
    """Return the distance of two devices as `nvidia-smi topo -m` names it; None if it is not known."""
    if not a.path or not b.path:
        return None
    shared = 0
    while shared < min(len(a.path), len(b.path)) and a.path[shared] == b.path[shared]:
        shared += 1
    if shared > 1:  # beyond the host bridge: they share a switch, whose downstream ports belong to it
        return "PIX" if max(len(a.path), len(b.path)) - shared <= 1 else "PXB"
    if shared:
        return "PHB"
    return "NODE" if a.numa_node == b.numa_node else "SYS"


def nearest_nics(pci: Pci, gpu_pci_address: str | None) -> tuple[PciDevice, ...]:
    """Return all network cards at the shortest distance from a GPU; none if distances are not known."""
    gpu = pci.at(gpu_pci_address)
    far = [(nic, path_between(gpu, nic)) for nic in pci.of("nic")] if gpu else []
    return next((near for d in _DISTANCES if (near := tuple(nic for nic, distance in far if distance == d))), ())
