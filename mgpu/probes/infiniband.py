"""Which adapters for fast networks are installed, are their ports up, and can this process use them?

Covers InfiniBand, RoCE and EFA: the kernel lists all of them in /sys/class/infiniband. Shares a child with other cheap
probes. Each read of a port's state, rate or counters queries the card's firmware, so only values used by checks are
read. The root folders are arguments, so recorded trees can be replayed. Standard library only.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from typing import Any

# The GID that NCCL chooses is among the first: each address of the port has one per RoCE version.
_GIDS = 16
_MOST_CACHE = 64 << 20  # bytes of ld.so.cache to read; a large one has 0.5 MiB
_LIBRARY = "libibverbs.so.1"
# fmt: off
_FOLDERS = (
    "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
)
# fmt: on
_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_IPV4 = "0000:0000:0000:0000:0000:ffff:"  # an IPv4 address as a GID


def probe(sys_root: str = "/sys", proc: str = "/proc", dev: str = "/dev", root: str = "") -> Iterator[dict[str, Any]]:
    """Yield the fact infiniband; it has no ports if there is no adapter."""
    adapters = sorted(_list_folder(f"{sys_root}/class/infiniband"))
    if not adapters:
        yield {"infiniband": {"ports": []}}
        return
    ports = []
    for adapter in adapters:
        yield {"asking": f"the ports of {adapter}"}
        ports += _ports(f"{sys_root}/class/infiniband/{adapter}", adapter)
    usable, nodes = _verbs(f"{sys_root}/class/infiniband_verbs", f"{dev}/infiniband")
    yield {"asking": "the folders of LD_LIBRARY_PATH for libibverbs"}
    uptime = re.match(r"\d+(?:\.\d+)?", _read(f"{proc}/uptime") or "")
    yield {
        "infiniband": {
            "ports": ports,
            "verbs_nodes": nodes,
            "verbs_unusable": [adapter for adapter in adapters if adapter not in usable],
            "verbs_library": _library(root),
            "uptime_s": float(uptime[0]) if uptime else None,
        }
    }


def _ports(base: str, adapter: str) -> list[dict[str, Any]]:
    address = _link(f"{base}/device")
    driver = _link(f"{base}/device/driver")
    node = _number(_read(f"{base}/device/numa_node"))
    shared = {
        "device": adapter,
        "firmware": _read(f"{base}/fw_ver") or None,
        "board": _read(f"{base}/board_id") or None,
        "pci": address if _ADDRESS.fullmatch(address) else None,
        "numa_node": node if node is not None and node >= 0 else None,
        "interfaces": sorted(_list_folder(f"{base}/device/net")),
        "virtual_function": os.path.lexists(f"{base}/device/physfn"),
    }
    numbers = sorted(int(port) for port in _list_folder(f"{base}/ports") if port.isascii() and port.isdecimal())
    return [shared | _port(f"{base}/ports/{number}", number, driver) for number in numbers]


def _port(base: str, number: int, driver: str) -> dict[str, Any]:
    layer = "EFA" if driver == "efa" else _read(f"{base}/link_layer")
    layer = layer if layer in ("InfiniBand", "Ethernet", "EFA") else "unknown"
    state = _word(f"{base}/state")
    active = state == "ACTIVE"
    rate = re.match(r"(\d{1,6}(?:\.\d+)?) Gb/sec(?: \((\d{1,2})X)?", _read(f"{base}/rate") or "")
    types, ipv4 = _gids(base) if active and layer == "Ethernet" else (None, None)
    silent = layer == "InfiniBand" and not active
    return {
        "port": number,
        "link_layer": layer,
        "state": state,
        "phys_state": None if active else _word(f"{base}/phys_state"),
        "rate_gbit_per_s": float(rate[1]) if rate else None,
        "lanes": int(rate[2]) if rate and rate[2] else None,
        "lid": _number(_read(f"{base}/lid"), 16) if silent else None,
        "sm_lid": _number(_read(f"{base}/sm_lid"), 16) if silent else None,
        "gid_types": types,
        "gid_ipv4": ipv4,
        "link_downed": _number(_read(f"{base}/counters/link_downed")) if layer != "EFA" else None,
    }


def _gids(base: str) -> tuple[list[str] | None, bool | None]:
    """Return the RoCE versions of the GIDs, and whether one is an IPv4 address. Stops as soon as both are found."""
    if not _list_folder(f"{base}/gid_attrs/types"):
        return None, None
    types: dict[str, None] = {}
    ipv4 = False
    for place in range(_GIDS):
        gid = _read(f"{base}/gids/{place}")
        if not gid or not gid.strip("0:"):
            continue
        if kind := _read(f"{base}/gid_attrs/types/{place}"):  # reading fails if the GID belongs to another namespace
            types[kind] = None
            ipv4 = ipv4 or gid.startswith(_IPV4)
        if ipv4 and "RoCE v2" in types:
            break
    return list(types), ipv4


def _verbs(classes: str, folder: str) -> tuple[set[str], list[str]]:
    """Return the adapters whose device node this process can open, and all nodes. Only opens them."""
    usable, nodes = set(), []
    for name in sorted(name for name in _list_folder(folder) if name.startswith("uverbs")):
        nodes.append(f"{folder}/{name}")
        try:
            os.close(os.open(f"{folder}/{name}", os.O_RDWR | os.O_CLOEXEC))
        except OSError:
            continue
        usable.add(_read(f"{classes}/{name}/ibdev") or name)
    return usable, nodes


def _library(root: str) -> bool:
    """Whether the loader would find libibverbs: in LD_LIBRARY_PATH, its cache, its default folders or conda's."""
    named = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    own = [f"{root}{folder}" for folder in _FOLDERS] + [f"{sys.prefix}/lib"]
    if any(os.path.exists(f"{folder}/{_LIBRARY}") for folder in (*named, *own)):
        return True
    try:
        with open(f"{root}/etc/ld.so.cache", "rb") as file:
            return _LIBRARY.encode() in file.read(_MOST_CACHE)
    except OSError:
        return False


def _word(path: str) -> str | None:
    """Return the name of a state: "ACTIVE" for "4: ACTIVE"; None if there is no such line."""
    number, colon, word = (_read(path) or "").partition(":")
    return word.strip() or None if colon and number.strip().isdecimal() else None


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
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        return os.read(file, 4096).decode("utf-8", "replace").strip()
    except OSError:
        return None
    finally:
        os.close(file)
