"""Trees of /sys, /proc and /dev as machines of several kinds show them, built in a folder.

Described after the kernel's own documents (Documentation/ABI/testing/sysfs-bus-pci, sysfs-bus-pci-devices-aer_stats,
stable/sysfs-class-infiniband), `lspci -tv` of DGX and PLX boxes in public issues, and cloud vendors' pages; no machine
was recorded.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mgpu.snapshot import InfiniBand, Pci, decode
from tests.conftest import ROOT

GEN3, GEN4, GEN5 = "8.0 GT/s PCIe", "16.0 GT/s PCIe", "32.0 GT/s PCIe"
ACS_REDIRECTS = 0x1D  # SrcValid+ ReqRedir+ CmpltRedir+ UpstreamFwd+, as the kernel sets it under an IOMMU


def config_space(vendor: int, device: int, acs: int | None = None, size: int = 4096) -> bytes:
    """The configuration space of a device; with an ACS capability behind an AER one."""
    data = bytearray(size)
    data[0:4] = vendor.to_bytes(2, "little") + device.to_bytes(2, "little")
    if size > 0x100:
        following = 0x148 if acs is not None else 0
        data[0x100:0x104] = (0x0001 | 2 << 16 | following << 20).to_bytes(4, "little")
        if acs is not None:
            data[0x148:0x14C] = (0x000D | 1 << 16).to_bytes(4, "little")
            data[0x14E:0x150] = acs.to_bytes(2, "little")
    return bytes(data)


class Machine:
    """A machine's files in a folder."""

    def __init__(self, root: Path, *, cpus: int = 8) -> None:
        self.root = root
        self.sys, self.proc, self.dev = root / "sys", root / "proc", root / "dev"
        self.table: list[str] = []
        self.before: list[tuple[Path, bytes]] = []
        self.listed = True  # the kernel shows /proc/bus/pci/devices
        (self.sys / "bus/pci/devices").mkdir(parents=True)
        self.write(self.proc / "uptime", "864000.00 1000.00\n")
        self.cpus = f"0-{cpus - 1}"
        self.all_cpus = range(cpus)

    def write(self, path: Path, text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        try:
            path.write_bytes(data)
        except FileNotFoundError:
            path.parent.mkdir(parents=True)
            path.write_bytes(data)

    def folder(self, address: str) -> Path:
        return (self.sys / "bus/pci/devices" / address).resolve()

    def put(self, address: str, name: str, text: str | bytes) -> None:
        """Change one file of a device, until `restore`."""
        path = self.folder(address) / name
        self.before.append((path, path.read_bytes()))
        self.write(path, text)

    def restore(self) -> None:
        """Every file as it was built: building a machine costs more than looking at it."""
        while self.before:
            self.write(*self.before.pop())

    def device(
        self,
        address: str,
        path: Iterable[str],
        *,
        kind: str,
        vendor: str,
        device: str,
        driver: str | None = None,
        numa: int = -1,
        cpus: str | None = None,
        width: int = 16,
        width_max: int = 16,
        speed: str = GEN5,
        speed_max: str = GEN5,
        acs: int | None = None,
        config_bytes: int = 4096,
    ) -> None:
        """A device on the bus, with the bridges above it."""
        path = tuple(path)
        place = self.sys / "devices" / "/".join((*path, address))
        link = self.sys / "bus/pci/devices" / address
        if link.is_symlink():
            return
        files: dict[str, str | bytes] = {
            "class": f"0x{kind}\n",
            "vendor": f"0x{vendor}\n",
            "device": f"0x{device}\n",
            "uevent": (f"DRIVER={driver}\n" if driver else "")
            + f"PCI_CLASS={int(kind, 16):X}\nPCI_ID={vendor.upper()}:{device.upper()}\nPCI_SLOT_NAME={address}\n",
            "numa_node": f"{numa}\n",
            "local_cpulist": f"{cpus or self.cpus}\n",
            "current_link_width": f"{width}\n",
            "max_link_width": f"{width_max}\n",
            "current_link_speed": f"{speed}\n",
            "max_link_speed": f"{speed_max}\n",
            "aer_dev_fatal": "Undefined 0\nDLP 0\nSDES 0\nTLP 0\nTOTAL_ERR_FATAL 0\n",
            "power/runtime_status": "active\n",
            "config": config_space(int(vendor, 16), int(device, 16) if device.isdecimal() else 0, acs, config_bytes),
        }
        read = ("class", "uevent", "config", "current_link_width", "max_link_width")
        place.mkdir(parents=True)
        for name, text in files.items():
            if driver != "pcieport" or name in read:  # of bridges, nothing else is ever looked at
                self.write(place / name, text)
        link.symlink_to(os.path.relpath(place, link.parent))
        bus, slot = address.split(":")[1:]
        number = int(bus, 16) << 8 | int(slot[:2], 16) << 3 | int(slot[3])
        self.table.append(f"{number:04x}\t{vendor}{device[:4]:0>4}\t0\t{driver or ''}\n")

    def bridges(self, path: Iterable[str], *, acs: int | None = 0, speed: str = GEN5, width: int = 16) -> None:
        """A root port and the ports of switches below it."""
        path = tuple(path)
        for depth in range(1, len(path)):
            self.device(
                path[depth], path[:depth], kind="060400", vendor="8086" if depth == 1 else "1000", device="c030",
                driver="pcieport", acs=acs, speed=speed, speed_max=speed, width=width,
            )  # fmt: skip

    def hca(
        self,
        name: str,
        address: str,
        *,
        layer: str = "InfiniBand",
        state: str = "4: ACTIVE",
        physical: str = "5: LinkUp",
        rate: str = "400 Gb/sec (4X NDR)",
        board: str = "MT_0000000838",
        firmware: str = "28.39.1002",
        lid: str = "0x1c",
        sm_lid: str = "0x1",
        net: Iterable[str] = (),
        gids: Mapping[int, tuple[str, str]] | None = None,
        link_downed: int = 0,
        node: bool = True,
    ) -> None:
        """An RDMA adapter with one port, on a device that is there already."""
        place = self.folder(address)
        base = place / "infiniband" / name
        port = base / "ports/1"
        for file, text in {
            "fw_ver": firmware,
            "board_id": board,
            "ports/1/link_layer": layer,
            "ports/1/state": state,
            "ports/1/phys_state": physical,
            "ports/1/rate": rate,
            "ports/1/lid": lid,
            "ports/1/sm_lid": sm_lid,
            "ports/1/counters/link_downed": str(link_downed),
        }.items():
            self.write(base / file, f"{text}\n")
        for index in range(6):
            gid, kind = (gids or {}).get(index, ("0000:0000:0000:0000:0000:0000:0000:0000", ""))
            self.write(port / f"gids/{index}", f"{gid}\n")
            if kind:
                self.write(port / f"gid_attrs/types/{index}", f"{kind}\n")
        for interface in net:
            (place / "net" / interface).mkdir(parents=True)
        said = dict(line.split("=", 1) for line in (place / "uevent").read_text().splitlines())
        (place / "driver").symlink_to(f"../../../bus/pci/drivers/{said['DRIVER']}")
        link = self.sys / "class/infiniband" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(base, link.parent))
        (base / "device").symlink_to(f"../../../{address}")
        number = len(list((self.sys / "class/infiniband").iterdir())) - 1
        self.write(self.sys / f"class/infiniband_verbs/uverbs{number}/ibdev", f"{name}\n")
        if node:
            self.write(self.dev / f"infiniband/uverbs{number}", "")

    def libibverbs(self) -> None:
        self.write(self.root / "usr/lib/x86_64-linux-gnu/libibverbs.so.1", "")

    # --- what the probes make of it

    def pci(self, **arguments: Any) -> Pci:
        if self.listed:
            self.write(self.proc / "bus/pci/devices", "".join(self.table))
        roots: dict[str, Any] = {"sys_root": str(self.sys), "proc": str(self.proc), "root": str(self.root)}
        found = run("pci", **roots | {"cpus": self.all_cpus} | arguments)
        return decode(Pci, found["pci"], "pci")

    def infiniband(self) -> InfiniBand:
        roots = {"sys_root": str(self.sys), "proc": str(self.proc), "dev": str(self.dev), "root": str(self.root)}
        return decode(InfiniBand, run("infiniband", **roots)["infiniband"], "infiniband")


def run(name: str, **arguments: Any) -> dict[str, Any]:
    """What a probe file yields, merged as the parent merges it, through JSON."""
    spec = importlib.util.spec_from_file_location(f"tests_probe_{name}", ROOT / f"mgpu/probes/{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, Any] = {}
    for part in module.probe(**arguments):
        found |= json.loads(json.dumps(part))
    return found


def dgx_h100(root: Path) -> Machine:
    """Eight H100 and eight NDR adapters, each pair under a switch of its own; four NVSwitches; two storage cards.

    After the block diagram in docs.nvidia.com/dgx/dgxh100-user-guide.
    """
    machine = Machine(root)
    machine.device("0000:00:00.0", ["pci0000:00"], kind="060000", vendor="8086", device="09a2")
    for n, bus in enumerate((0x15, 0x3A, 0x4C, 0x5D, 0x97, 0xB7, 0xC7, 0xD7)):
        top = f"pci0000:{bus:02x}"
        switch = (top, f"0000:{bus:02x}:01.0", f"0000:{bus + 1:02x}:00.0")
        for slot, extra in ((0, 3), (2, 4)):
            port = (*switch, f"0000:{bus + 2:02x}:0{slot}.0")
            machine.bridges(port)
            common: dict[str, Any] = {"numa": n // 4, "cpus": "0-3" if n < 4 else "4-7"}
            if slot == 0:
                machine.device(
                    f"0000:{bus + extra:02x}:00.0", port, kind="030200", vendor="10de", device="2330",
                    driver="nvidia", **common,
                )  # fmt: skip
            else:
                machine.device(
                    f"0000:{bus + extra:02x}:00.0", port, kind="020700", vendor="15b3", device="1021",
                    driver="mlx5_core", **common,
                )  # fmt: skip
                machine.hca(f"mlx5_{n}", f"0000:{bus + extra:02x}:00.0", net=(f"ibp{bus + extra}s0",))
    for n in range(4):
        path = ("pci0000:05", f"0000:05:0{n}.0")
        machine.bridges(path)
        machine.device(
            f"0000:{0x06 + n:02x}:00.0", path, kind="068000", vendor="10de", device="22a3", driver="nvidia-nvswitch"
        )  # fmt: skip
    for n in range(2):  # for storage and the office network: not near any GPU, and not cabled for InfiniBand
        path = ("pci0000:28", f"0000:28:0{n}.0")
        machine.bridges(path)
        machine.device(
            f"0000:{0x29 + n:02x}:00.0", path, kind="020700", vendor="15b3", device="1021", driver="mlx5_core"
        )  # fmt: skip
        machine.hca(
            f"mlx5_{8 + n}", f"0000:{0x29 + n:02x}:00.0", state="1: DOWN", physical="2: Polling",
            rate="10 Gb/sec (4X SDR)", board="MT_0000000891", lid="0xffff", sm_lid="0x0",
        )  # fmt: skip
    machine.libibverbs()
    return machine


def plx_box(root: Path, *, acs: int = 0) -> Machine:
    """Four PCIe cards behind one PLX switch, in two pairs of ports; no network card that matters."""
    machine = Machine(root)
    machine.device("0000:00:00.0", ["pci0000:00"], kind="060000", vendor="8086", device="2020")
    for n in range(4):
        path = ("pci0000:3a", "0000:3a:00.0", "0000:3b:00.0", f"0000:3c:{4 * n:02x}.0")
        machine.bridges(path, acs=acs, speed=GEN4)
        machine.device(
            f"0000:{0x3D + n:02x}:00.0", path, kind="030200", vendor="10de", device="20f1", driver="nvidia", numa=0,
            speed=GEN4, speed_max=GEN4,
        )  # fmt: skip
    return machine


def workstation(root: Path, *, gpus: int = 2, cpu: str = "1022") -> Machine:
    """Cards on root ports of their own, as on a Threadripper board."""
    machine = Machine(root)
    machine.device("0000:00:00.0", ["pci0000:00"], kind="060000", vendor=cpu, device="1480")
    for n in range(gpus):
        path = (f"pci0000:{0x40 * n:02x}", f"0000:{0x40 * n:02x}:01.1")
        machine.bridges(path, acs=None, speed=GEN4)
        machine.device(
            f"0000:{0x40 * n + 1:02x}:00.0", path, kind="030000", vendor="10de", device="2684", driver="nvidia",
            speed=GEN4, speed_max=GEN4,
        )  # fmt: skip
    return machine


def flat_vm(root: Path, *, gpus: int = 4, rdma: int = 0) -> Machine:
    """A virtual machine that shows each device on the root bus, as QEMU does; adapters as passed through."""
    machine = Machine(root)
    machine.device("0000:00:00.0", ["pci0000:00"], kind="060000", vendor="8086", device="1237", config_bytes=256)
    for n in range(gpus):
        machine.device(
            f"0000:00:{5 + n:02x}.0", ["pci0000:00"], kind="030200", vendor="10de", device="2236", driver="nvidia",
            config_bytes=256,
        )  # fmt: skip
    for n in range(rdma):
        address = f"0000:00:{16 + n:02x}.0"
        machine.device(address, ["pci0000:00"], kind="020700", vendor="15b3", device="101c", driver="mlx5_core")
        machine.hca(f"mlx5_{n}", address, rate="200 Gb/sec (4X HDR)", board="MT_0000000223")
    if rdma:
        machine.libibverbs()
    return machine


def efa_instance(root: Path, *, cards: int = 4) -> Machine:
    """Like AWS p4d: EFA and ENA devices beside the GPUs. The adapters' names are rdma-core's persistent ones."""
    machine = Machine(root)
    machine.device("0000:00:00.0", ["pci0000:00"], kind="060000", vendor="1d0f", device="0200")
    for n in range(cards):
        path = (f"pci0000:{0x10 + 16 * n:02x}", f"0000:{0x10 + 16 * n:02x}:00.0")
        machine.bridges(path, speed=GEN4)
        for slot, device in enumerate(("efa1", "ec20", "20b0", "20b0")):
            gpu = device == "20b0"
            address = f"0000:{0x11 + 16 * n:02x}:{0x1B + slot:02x}.0"
            machine.device(
                address, path, kind="030200" if gpu else "020000", vendor="10de" if gpu else "1d0f", device=device,
                driver="nvidia" if gpu else "efa" if device == "efa1" else "ena", numa=n // 2,
                speed=GEN4, speed_max=GEN4,
            )  # fmt: skip
            if device == "efa1":
                machine.hca(
                    f"rdmap{16 + 16 * n}s27", address, layer="Unknown", rate="100 Gb/sec (4X EDR)", board="EFA",
                    firmware="0.0.0.0",
                )  # fmt: skip
    machine.libibverbs()
    return machine


ROCE_GIDS = {
    0: ("fe80:0000:0000:0000:0ac0:ebff:fe12:3456", "IB/RoCE v1"),
    1: ("fe80:0000:0000:0000:0ac0:ebff:fe12:3456", "RoCE v2"),
    2: ("0000:0000:0000:0000:0000:ffff:0a00:0107", "IB/RoCE v1"),
    3: ("0000:0000:0000:0000:0000:ffff:0a00:0107", "RoCE v2"),
}


def roce_box(root: Path, *, without: Mapping[int, Iterable[int]] | None = None) -> Machine:
    """Four GPUs, four 200 GbE adapters for RoCE. `without` leaves GIDs of an adapter out."""
    machine = Machine(root)
    machine.device("0000:00:00.0", ["pci0000:00"], kind="060000", vendor="1022", device="14a4")
    for n in range(4):
        switch = (f"pci0000:{0x20 * n:02x}", f"0000:{0x20 * n:02x}:03.1", f"0000:{0x20 * n + 1:02x}:00.0")
        for slot in (0, 1):
            machine.bridges((*switch, f"0000:{0x20 * n + 2:02x}:0{slot}.0"), speed=GEN4)
        machine.device(
            f"0000:{0x20 * n + 3:02x}:00.0", (*switch, f"0000:{0x20 * n + 2:02x}:00.0"), kind="030200", vendor="10de",
            device="20b2", driver="nvidia", numa=n, speed=GEN4, speed_max=GEN4,
        )  # fmt: skip
        address = f"0000:{0x20 * n + 4:02x}:00.0"
        machine.device(
            address, (*switch, f"0000:{0x20 * n + 2:02x}:01.0"), kind="020000", vendor="15b3", device="101d",
            driver="mlx5_core", numa=n, speed=GEN4, speed_max=GEN4,
        )  # fmt: skip
        left = {index: gid for index, gid in ROCE_GIDS.items() if index not in (without or {}).get(n, ())}
        machine.hca(
            f"mlx5_{n}", address, layer="Ethernet", rate="200 Gb/sec (4X HDR)", board="MT_0000000359",
            net=(f"enp{0x20 * n + 4}s0np0",), gids=left,
        )  # fmt: skip
    machine.libibverbs()
    return machine


def masked(machine: Machine) -> Machine:
    """The same machine from inside a container whose /sys/devices is empty: links that lead nowhere."""
    (machine.sys / "devices").rename(machine.root / "hidden")
    return machine


def without_root(pci: Pci) -> Pci:
    """As an ordinary user sees the bus: the ACS registers cannot be read."""
    return replace(pci, devices=tuple(replace(d, acs_redirect=None) for d in pci.devices))
