"""Which GPUs and network cards are on the PCI bus, under which bridges, and do they still respond?

Shares a child with other cheap probes, so it reads only values used by checks, and only relevant devices of the up to
a thousand. The roots of /proc and /sys are arguments, so recorded trees can be replayed. Standard library only.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from typing import Any

_NVIDIA, _MELLANOX, _AMAZON = "10de", "15b3", "1d0f"
_VENDORS = (_NVIDIA, _MELLANOX, _AMAZON)  # other cards count as network cards if they have an RDMA adapter
_GPU, _NVSWITCH, _NETWORK = ("0300", "0302"), "0680", "02"  # PCI classes: display and 3D controller, bridge, network
_CPU_VENDORS = {"1022": "amd", "8086": "intel"}
_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_CLOUD_TOPOLOGY = "/var/run/nvidia-topologyd/virtualTopology.xml"  # NCCL reads it if NCCL_TOPO_FILE is not set
_TOPOLOGY_BYTES = 1 << 20
_FABRIC_MANAGER = "/usr/bin/nv-fabricmanager"
_ASK_S = 1.0
# PCI Express Base Specification 7.7.11: extended capability 0x000D, control register at +6; request redirect and
# completion redirect send peer traffic up to the root.
_ACS, _ACS_CONTROL, _ACS_REDIRECT = 0x000D, 6, 0x000C
_EXTENDED, _CONFIG_BYTES, _UNPRIVILEGED = 0x100, 0x1000, 0x40  # a user without CAP_SYS_ADMIN reads 64 bytes


def probe(
    sys_root: str = "/sys",
    proc: str = "/proc",
    root: str = "",
    topology_file: str | None = None,
    cpus: Iterable[int] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the fact pci, and again with the fabric manager's version if there are NVSwitches."""
    yield {"asking": "PCI bus"}
    found = _Bus(f"{sys_root}/bus/pci/devices", f"{sys_root}/class/infiniband", proc, cpus).fact()
    found |= _topology(topology_file or os.environ.get("NCCL_TOPO_FILE") or None, root)
    yield {"pci": found}
    binary = root + _FABRIC_MANAGER
    if found["nvswitches"] and os.path.exists(binary):
        yield {"asking": f"{binary} --version"}
        yield {"pci": found | {"fabric_manager": _version(binary)}}


class _Bus:
    """The folder of all devices, and shared data: bridges, adapters' names, this process's CPUs."""

    def __init__(self, folder: str, rdma: str, proc: str, cpus: Iterable[int] | None) -> None:
        self.folder = folder
        self.proc = proc
        self.names = sorted(_list_folder(folder))
        self.adapters: dict[str, list[str]] = {}
        for adapter in sorted(_list_folder(rdma)):
            self.adapters.setdefault(_link(f"{rdma}/{adapter}/device"), []).append(adapter)
        self.cpus = os.sched_getaffinity(0) if cpus is None else set(cpus)
        self.redirects: dict[str, bool | None] = {}

    def fact(self) -> dict[str, Any]:
        """Return the fact pci without the topology file."""
        devices, nvswitches = [], 0
        for name in self._candidates():
            kind, vendor, device, driver = self._identity(name)
            if kind.startswith(_NVSWITCH) and vendor == _NVIDIA:
                nvswitches += 1
            elif kind.startswith(_GPU) and vendor == _NVIDIA and not os.path.lexists(f"{self.folder}/{name}/physfn"):
                devices.append(self._device(name, "gpu", vendor, device, driver, kind))
            elif name in self.adapters or (kind.startswith(_NETWORK) and _for_clusters(vendor, device)):
                devices.append(self._device(name, "nic", vendor, device, driver, kind))
        readable = any(os.path.exists(f"{self.folder}/{name}/class") for name in self.names[:1])
        first = (_read(f"{self.folder}/0000:00:00.0/vendor") or "").removeprefix("0x")
        return {
            "devices": devices,
            "readable": readable,
            "nvswitches": nvswitches if readable else None,
            "cpu_vendor": _CPU_VENDORS.get(first, "other") if first else None,
        }

    def _candidates(self) -> Iterable[str]:
        """Return the devices of relevant vendors, from one file that lists all devices, or else by reading each one."""
        table = _read(f"{self.proc}/bus/pci/devices")
        if not table:
            return self.names
        slots = set()
        for line in table.splitlines():
            words = line.split(None, 2)
            if len(words) > 1 and words[1][:4].lower() in _VENDORS:
                place = _number(words[0], 16) or 0
                slots.add(f"{place >> 8:02x}:{place >> 3 & 31:02x}.{place & 7}")
        return [name for name in self.names if name in self.adapters or name.partition(":")[2] in slots]

    def _identity(self, name: str) -> tuple[str, str, str, str | None]:
        """Return class, vendor and device in hex digits, and the bound driver."""
        fields = dict(line.partition("=")[::2] for line in (_read(f"{self.folder}/{name}/uevent") or "").splitlines())
        kind = _number(fields.get("PCI_CLASS"), 16)
        vendor, _, device = fields.get("PCI_ID", "").lower().partition(":")
        return f"{kind:06x}" if kind is not None else "", vendor, device, fields.get("DRIVER") or None

    def _device(
        self, name: str, kind: str, vendor: str, device: str, driver: str | None, pci_class: str
    ) -> dict[str, Any]:
        place = f"{self.folder}/{name}"
        asleep = _read(f"{place}/power/runtime_status") == "suspended"  # reading registers would wake it up
        path = self._path(name)
        node = _number(_read(f"{place}/numa_node"))
        near = _read(f"{place}/local_cpulist") or None
        cpus = _cpus(near)
        fatal = re.search(r"TOTAL_ERR_FATAL (\d+)", _read(f"{place}/aer_dev_fatal") or "")
        network = kind == "nic" and not asleep
        return {
            "address": name,
            "kind": kind,
            "vendor": vendor,
            "device": device,
            "driver": driver,
            "answers": None if asleep else _answers(f"{place}/config"),
            "numa_node": node if node is not None and node >= 0 else None,
            "cpus_near": near,
            "width": _lanes(f"{place}/current_link_width") if network else None,
            "width_max": _lanes(f"{place}/max_link_width") if network else None,
            "speed_gt_per_s": _speed(f"{place}/current_link_speed") if network else None,
            "speed_max_gt_per_s": _speed(f"{place}/max_link_speed") if network else None,
            "path": path,
            "acs_redirect": self._redirects_acs(path),
            "aer_fatal": int(fatal[1]) if fatal else None,
            "names": self._names(name) if kind == "nic" else [],
            "cpus_near_usable": len(cpus & self.cpus) if cpus else None,
            **self._uplink(path),
            "pci_class": pci_class or None,
        }

    def _names(self, name: str) -> list[str]:
        return [*self.adapters.get(name, ()), *sorted(_list_folder(f"{self.folder}/{name}/net"))]

    def _path(self, name: str) -> list[str]:
        """Return the path from the link's target: ../../../devices/pci0000:15/0000:15:01.0/…/<the device>."""
        try:
            parts = os.readlink(f"{self.folder}/{name}").split("/")
        except OSError:
            return []
        above = [part for part in parts[:-1] if re.match("pci[0-9a-f]+:", part) or _ADDRESS.fullmatch(part)]
        return above if above and above[0].startswith("pci") else []

    def _uplink(self, path: list[str]) -> dict[str, int | None]:
        """Return the narrowest link above the switches. Each switch has an upstream and a downstream port."""
        links = []
        for port in path[2::2]:
            now, most = (_lanes(f"{self.folder}/{port}/{which}_link_width") for which in ("current", "max"))
            if now and most:
                links.append((now / most, now, most))
        _, now, most = min(links, default=(0, None, None))
        return {"uplink_width": now, "uplink_width_max": most}

    def _redirects_acs(self, path: list[str]) -> bool | None:
        """Whether a switch port redirects peer traffic up to the root. The root port's own setting does not matter."""
        answers = []
        for port in path[2:]:
            if port not in self.redirects:
                self.redirects[port] = _acs_redirects(f"{self.folder}/{port}/config")
            answers.append(self.redirects[port])
        return True if True in answers else None if None in answers or not path else False


def _for_clusters(vendor: str, device: str) -> bool:
    """Whether a card is an RDMA adapter even without an RDMA driver: Mellanox, and Amazon's EFA (but not ENA)."""
    return vendor == _MELLANOX or (vendor == _AMAZON and device.startswith("efa"))


def _acs_redirects(config: str) -> bool | None:
    """Return whether a port's ACS control register redirects peer traffic; None if only root can read it."""
    try:
        file = os.open(config, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if len(os.pread(file, 4, _UNPRIVILEGED)) < 4:
            return None
        place, met = _EXTENDED, set()
        while _EXTENDED <= place < _CONFIG_BYTES and place not in met:
            met.add(place)
            header = int.from_bytes(os.pread(file, 4, place), "little")
            if header in (0, 0xFFFFFFFF):
                break
            if header & 0xFFFF == _ACS:
                control = os.pread(file, 2, place + _ACS_CONTROL)
                return bool(int.from_bytes(control, "little") & _ACS_REDIRECT) if len(control) == 2 else None
            place = header >> 20 & ~3
        return False
    except OSError:
        return None
    finally:
        os.close(file)


def _answers(config: str) -> bool | None:
    """Whether the vendor ID can be read: a device that fell off the bus returns all ones."""
    try:
        file = os.open(config, os.O_RDONLY | os.O_CLOEXEC)
        try:
            first = os.pread(file, 4, 0)
        finally:
            os.close(file)
    except OSError:
        return None
    return first != b"\xff\xff\xff\xff" if len(first) == 4 else None


def _topology(named: str | None, root: str) -> dict[str, Any]:
    """Return the GPUs that NCCL's topology file describes."""
    path = named or root + _CLOUD_TOPOLOGY
    if not named and not os.path.exists(path):
        return {}
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            if stat.S_IFMT(os.fstat(file).st_mode) not in (
                stat.S_IFREG,
                stat.S_IFDIR,
            ):  # reading a folder raises an error
                return {"topology_file": path, "topology_error": "it is not a regular file"}
            text = os.read(file, _TOPOLOGY_BYTES).decode("utf-8", "replace")
        finally:
            os.close(file)
    except (OSError, ValueError) as error:
        return {"topology_file": path, "topology_error": getattr(error, "strerror", None) or str(error)}
    gpus = []
    for tag in re.findall(r"<pci\b[^>]*>", text):
        fields = dict(re.findall(r'(\w+)="([^"]*)"', tag))
        if fields.get("class", "").removeprefix("0x").startswith(_GPU) and fields.get("busid"):
            gpus.append(fields["busid"].lower())
    return {"topology_file": path, "topology_gpus": gpus}


def _version(binary: str) -> str | None:
    """Return the version printed by nv-fabricmanager: "Fabric Manager version is : 580.65.06"."""
    import subprocess

    try:
        done = subprocess.run([binary, "--version"], capture_output=True, timeout=_ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(rb"\b\d{3,}\.\d+(?:\.\d+)*", done.stdout + done.stderr)
    return found[0].decode() if found else None


def _cpus(text: str | None) -> set[int]:
    """Parse a CPU list: "0-3,8" -> {0, 1, 2, 3, 8}; skips invalid parts."""
    found: set[int] = set()
    for part in (text or "").split(","):
        first, _, last = part.partition("-")
        low, high = _number(first), _number(last or first)
        if low is not None and high is not None and 0 <= low <= high < 1 << 16:
            found.update(range(low, high + 1))
    return found


def _lanes(path: str) -> int | None:
    lanes = _number(_read(path))
    return lanes if lanes is not None and 0 < lanes <= 32 else None  # 0, 63 and 255 mean unknown


def _speed(path: str) -> float | None:
    found = re.match(r"\d{1,4}(?:\.\d+)?(?= GT/s)", _read(path) or "")
    return float(found[0]) if found else None


def _number(text: str | None, base: int = 10) -> int | None:
    try:
        return int(text or "", base)
    except ValueError:
        return None


def _list_folder(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _link(path: str) -> str:
    """Return the last part of a link's target."""
    try:
        return os.path.basename(os.readlink(path))
    except OSError:
        return ""


def _read(path: str) -> str | None:
    """Return the text of a small file, with as few system calls as possible."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        parts = []
        while part := os.read(file, 65536):
            parts.append(part)
    except OSError:
        return None
    finally:
        os.close(file)
    return b"".join(parts).decode("utf-8", "replace").strip()
