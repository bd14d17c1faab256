"""Does this machine resolve its own name, which interfaces does it have, and is the rendezvous port free?

Runs in a child process, because name resolution can hang. Standard library only. Links and addresses come from the
kernel (rtnetlink), because /sys can show a different network namespace; speed and duplex come from /sys if it does not.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

_RESOLVE_LIMIT_S = 2.0  # a slower resolver delays every rendezvous: it is reported, not awaited
_NETLINK_LIMIT_S = 1.0
_OWNER_LIMIT_S = 1.0  # for reading the open files of all processes, which can be thousands

# linux/rtnetlink.h, if_link.h, if_addr.h, if_arp.h
_GETLINK, _GETADDR, _DUMP_REQUEST, _ERROR, _DONE = 18, 22, 0x301, 2, 3
_LINK_MAC, _LINK_NAME, _LINK_MTU, _LINK_MASTER, _LINK_STATE, _LINK_INFO, _LINK_PEER_SPACE = 1, 3, 4, 10, 16, 18, 37
_INFO_KIND, _ADDRESS, _LOCAL_ADDRESS = 1, 1, 2
_UP, _LOOPBACK_TYPE, _INFINIBAND_TYPE, _LINK_SCOPE, _HOST_SCOPE = 1, 772, 32, 253, 254
_STATE_UNKNOWN, _STATE_UP = 0, 6  # IF_OPER_*: in both states the kernel reports an interface as running

# fmt: off
_KINDS = {
    "ipoib": "infiniband",
    "bond": "bond",
    "team": "bond",
    "vlan": "vlan",
    "macvlan": "macvlan",
    "ipvlan": "macvlan",
    "macvtap": "macvlan",
    "bridge": "bridge",
    "veth": "veth",
} | dict.fromkeys(
    (
        "tun", "wireguard", "vxlan", "geneve", "gre", "gretap", "ip6gre", "ip6gretap", "erspan", "ipip", "ip6tnl",
        "sit", "vti", "vti6", "xfrm", "ppp",
    ),
    "tunnel",
)
# fmt: on
_NO_UPLINK_KINDS = frozenset({"dummy", "ifb", "nlmon", "netdevsim"})  # kinds that never connect to other machines
# A bridge with one of these connects to other machines.
_UPLINK_KINDS = frozenset({"physical", "infiniband", "wireless", "bond", "vlan"})


def probe(
    port: int = 29500,
    master: str | None = None,
    proc: str = "/proc",
    sys_root: str = "/sys",
    recorded: Mapping[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the fact network. `recorded`: links and addresses instead of this machine's; `master`: a given name."""
    hostname = socket.gethostname()
    name, origin = _master_name(master, os.environ)
    yield {"asking": "addresses of " + ", ".join(filter(None, (hostname, "localhost", name)))}
    resolved = resolve(filter(None, (hostname, "localhost", name)), _RESOLVE_LIMIT_S)
    yield {"asking": "interfaces"}
    try:
        links, addresses = (recorded["links"], recorded["addresses"]) if recorded else (_links(), _addresses())
    except OSError:
        links, addresses = [], []
    routes = _default_routes(proc)
    interfaces = _interfaces(links, addresses, routes or [], sys_root)
    busy = _is_busy(port)
    owner = _owner(port, proc) if busy else None
    found, error, _ = resolved[hostname]
    yield {
        "network": {
            "hostname": hostname,
            "hostname_addresses": found,
            "hostname_error": error,
            "localhost_ok": any(address in ("127.0.0.1", "::1") for address in resolved["localhost"][0]),
            "interfaces": interfaces,
            "port": port,
            "port_busy": busy,
            "port_free": _free_port(port) if busy else None,
            "port_owner": f"pid {owner[0]} ({owner[1]})" if owner else None,
            "port_owner_pid": owner[0] if owner else None,
            "port_owner_mine": owner[2] if owner else None,
            "default_routes": routes,
            "master": _master(name, origin, resolved[name], interfaces) if name and origin else None,
            "pdsh": _on_path("pdsh"),
        }
    }


# ---- names


Resolved = tuple[list[str], "str | None", list[Any]]  # addresses, the resolver's error, socket addresses


def resolve(names: Iterable[str], limit_s: float) -> dict[str, Resolved]:
    """Return the addresses of each name, in order, or the resolver's error. Resolves all names in parallel."""
    found: dict[str, Resolved] = {name: ([], f"no answer in {limit_s:g} s", []) for name in names}

    def ask(name: str) -> None:
        try:  # as bytes: for text, Python would load its IDNA tables
            answers = socket.getaddrinfo(os.fsencode(name), None, type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:
            found[name] = ([], getattr(error, "strerror", None) or str(error), [])
        else:
            texts = [str(answer[4][0]) for answer in answers]
            found[name] = (list(dict.fromkeys(texts)), None, [(answer[0], answer[4]) for answer in answers])

    threads = [threading.Thread(target=ask, args=(name,), daemon=True) for name in found]
    for thread in threads:
        thread.start()
    end = time.monotonic() + limit_s  # for all together, because the child has a deadline
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return dict(found)


def _master_name(given: str | None, environ: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the rendezvous host and its origin: given, MASTER_ADDR, or the first of several Slurm nodes."""
    if given:
        return given, "config"
    if environ.get("MASTER_ADDR"):
        return environ["MASTER_ADDR"], "MASTER_ADDR"
    nodes = environ.get("SLURM_JOB_NUM_NODES") or environ.get("SLURM_NNODES") or ""
    if environ.get("SLURM_JOB_ID") and nodes.isdecimal() and int(nodes) > 1:
        first = _first_host(environ.get("SLURM_JOB_NODELIST", ""))
        return first, "SLURM_JOB_NODELIST" if first else None
    return None, None


def _first_host(nodelist: str) -> str | None:
    """Return the first host of a Slurm node list: gpu003 for `gpu[003-007,9],big1`."""
    found = re.match(r"([^\[\],]*)(?:\[([^\]\-,]+)[^\]]*\])?([^\[\],]*)", nodelist)
    return "".join(part or "" for part in found.groups()) or None if found else None


def _master(name: str, origin: str, resolved: Resolved, interfaces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    addresses, error, sockets = resolved
    owner = {address: interface["name"] for interface in interfaces for address in interface["addresses"]}
    local = any(address in owner or _is_loopback(address) for address in addresses) if addresses and owner else None
    route, refused = None, None
    for family, address in sockets:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as question:  # connecting UDP sends nothing
                question.connect((address[0], 9, *address[2:]))
                route = owner.get(str(question.getsockname()[0]).partition("%")[0])
        except OSError as failure:
            refused = refused or failure.strerror or str(failure)
        else:
            refused = None
            break
    return {
        "name": name,
        "origin": origin,
        "addresses": addresses,
        "error": error,
        "local": local,
        "interface": route,
        "route_error": refused,
    }


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


# ---- interfaces


def interfaces() -> list[dict[str, Any]]:
    """Return the interfaces of this machine. Raises OSError if the kernel does not report them."""
    return _interfaces(_links(), _addresses(), _default_routes("/proc") or [], "/sys")


def _netlink(kind: int) -> Iterator[bytes]:
    """Yield the kernel's responses to a dump request. Raises OSError if it does not respond."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as channel:
        channel.settimeout(_NETLINK_LIMIT_S)
        channel.send(struct.pack("=IHHII4x", 20, kind, _DUMP_REQUEST, 1, 0))
        while True:
            data = channel.recv(1 << 18)
            for answer, payload in _messages(data):
                if answer == _DONE:
                    return
                if answer == _ERROR:
                    number = struct.unpack_from("=i", payload)[0] if len(payload) >= 4 else 0
                    raise OSError(-number, os.strerror(-number))
                yield payload
            if not data:
                raise OSError(errno.EPIPE, "netlink ended early")


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield type and payload of the netlink messages in a datagram. Stops at an invalid length."""
    while len(data) >= 16:
        length, kind = struct.unpack_from("=IH", data)
        if not 16 <= length <= len(data):
            return
        yield kind, data[16:length]
        data = data[(length + 3) & ~3 :]


def _attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if not 4 <= length <= len(data):
            break
        found[kind & 0x3FFF] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return found


def _links() -> list[dict[str, Any]]:
    return [link for payload in _netlink(_GETLINK) if (link := _link(payload))]


def _link(payload: bytes) -> dict[str, Any] | None:
    """Parse one interface of the kernel's response."""
    if len(payload) < 16:
        return None
    kind, index, flags = struct.unpack_from("=2xHiI", payload)
    values = _attributes(payload[16:])
    info = _attributes(values.get(_LINK_INFO, b""))
    return {
        "index": index,
        "name": values.get(_LINK_NAME, b"").rstrip(b"\0").decode("utf-8", "replace"),
        "type": kind,
        "up": bool(flags & _UP),
        "state": values.get(_LINK_STATE, b"\0")[0] if values.get(_LINK_STATE, b"\0") else _STATE_UNKNOWN,
        "mtu": _number(values.get(_LINK_MTU)),
        "mac": values.get(_LINK_MAC, b"").hex(":"),
        "master": _number(values.get(_LINK_MASTER)),
        "kind": info.get(_INFO_KIND, b"").rstrip(b"\0").decode("ascii", "replace"),
        "peer_elsewhere": _LINK_PEER_SPACE in values,
    }


def _number(data: bytes | None) -> int | None:
    return int(struct.unpack("=I", data)[0]) if data and len(data) == 4 else None


def _addresses() -> list[list[Any]]:
    return [found for payload in _netlink(_GETADDR) if (found := _address(payload))]


def _address(payload: bytes) -> list[Any] | None:
    """Parse one address of the kernel's response: interface index, address, scope."""
    if len(payload) < 8:
        return None
    family, scope, index = struct.unpack_from("=B2xBI", payload)
    values = _attributes(payload[8:])
    data = values.get(_LOCAL_ADDRESS) or values.get(_ADDRESS) or b""
    if (family, len(data)) not in ((socket.AF_INET, 4), (socket.AF_INET6, 16)):
        return None
    return [index, socket.inet_ntop(family, data), scope]


def _interfaces(
    links: Sequence[Mapping[str, Any]], addresses: Sequence[Sequence[Any]], routes: Sequence[str], sys_root: str
) -> list[dict[str, Any]]:
    """Return the interfaces, in the order in which getifaddrs (and so NCCL) lists their addresses."""
    first: dict[int, int] = {}
    owned: dict[int, list[tuple[str, int]]] = {}
    for place, (index, address, scope) in enumerate(addresses):
        first.setdefault(index, place)
        owned.setdefault(index, []).append((address, scope))
    folders = {link["index"]: _folder(link, sys_root) for link in links}
    kinds = {link["index"]: _kind(link, folders[link["index"]]) for link in links}
    leads_out = {link["master"] for link in links if kinds[link["index"]] in _UPLINK_KINDS}
    found = []
    for link in sorted(links, key=lambda link: first.get(link["index"], len(addresses))):
        index, folder, kind = link["index"], folders[link["index"]], kinds[link["index"]]
        own = owned.get(index, [])
        speed = _integer(_read(f"{folder}/speed")) if folder else None
        duplex = _read(f"{folder}/duplex") if folder else None
        found.append(
            {
                "name": link["name"],
                "up": link["up"],
                "loopback": link["type"] == _LOOPBACK_TYPE,
                "addresses": [address for address, _ in own],
                "virtual": link["name"] not in routes and _is_local_only(link, kind, index in leads_out, own),
                "mtu": link["mtu"],
                "speed_mbit_per_s": speed if speed and speed > 0 else None,
                "kind": kind,
                "running": link["up"] and link["state"] in (_STATE_UNKNOWN, _STATE_UP),
                "full_duplex": {"full": True, "half": False}.get(duplex or ""),
                "ipv4": any(":" not in address for address, _ in own),
                "ipv6": any(":" in address and not _is_loopback(address) for address, _ in own),
                "routable": any(_is_routable(address, scope) for address, scope in own),
            }
        )
    return found


def _folder(link: Mapping[str, Any], sys_root: str) -> str | None:
    """Return the interface's folder in /sys, if it describes this interface and not one of another namespace."""
    folder = f"{sys_root}/class/net/{link['name']}"
    same = _read(f"{folder}/ifindex") == str(link["index"]) and (_read(f"{folder}/address") or "") == link["mac"]
    return folder if same else None


def _kind(link: Mapping[str, Any], folder: str | None) -> str | None:
    if link["type"] == _LOOPBACK_TYPE:
        return "loopback"
    if link["type"] == _INFINIBAND_TYPE:
        return "infiniband"
    if link["kind"]:
        return _KINDS.get(link["kind"], "other")
    if folder is None:
        return None
    if os.path.isdir(f"{folder}/wireless") or os.path.exists(f"{folder}/phy80211"):
        return "wireless"
    return "physical" if os.path.exists(f"{folder}/device") else None


def _is_local_only(link: Mapping[str, Any], kind: str | None, leads_out: bool, own: Sequence[tuple[str, int]]) -> bool:
    """Whether no other machine is reachable through it. A veth is a container's uplink, or the host's end of one."""
    if kind == "bridge":
        return not leads_out
    if kind == "veth":
        named = any(":" not in address or _is_routable(address, scope) for address, scope in own)
        way_out = link["peer_elsewhere"] and link["master"] is None and named
        return not way_out
    return link["kind"] in _NO_UPLINK_KINDS


def _is_routable(address: str, scope: int) -> bool:
    return not _is_loopback(address) and scope not in (_LINK_SCOPE, _HOST_SCOPE) and not address.startswith("169.254.")


def _default_routes(proc: str) -> list[str] | None:
    """Return interfaces with a default route, IPv4 first, then by metric; None if the tables cannot be read."""
    four, six = _read(f"{proc}/net/route"), _read(f"{proc}/net/ipv6_route")
    if four is None and six is None:
        return None
    found = []
    for line in (four or "").splitlines():
        words = line.split()
        if len(words) >= 8 and words[1] == words[7] == "00000000" and _in_use(words[3]):
            found.append((0, _integer(words[6]) or 0, words[0]))
    for line in (six or "").splitlines():
        words = line.split()
        if len(words) == 10 and (words[0], words[1]) == ("0" * 32, "00") and _in_use(words[8]):
            found.append((1, _integer(words[5], 16) or 0, words[9]))
    return list(dict.fromkeys(name for _, _, name in sorted(found)))


def _in_use(flags: str) -> bool:
    """Whether a route is up and is not a reject route (RTF_UP, RTF_REJECT)."""
    number = _integer(flags, 16) or 0
    return bool(number & 1 and not number & 0x200)


# ---- the port


def _is_busy(port: int) -> bool:
    """Whether binding the port fails because it is in use, in an address family that this machine has."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe_socket:
                probe_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # TIME_WAIT is not busy
                if family == socket.AF_INET6:
                    probe_socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe_socket.bind(("", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return True
    return False


def _free_port(port: int) -> int | None:
    """Return another port without a listener that is not privileged, nor one for Linux's outgoing connections."""
    candidates = (number for number in (*range(port + 1, port + 101), *range(29500, 29600)) if 1024 <= number < 32768)
    return next((number for number in candidates if not _is_busy(number)), None)


def _owner(port: int, proc: str) -> tuple[int, str, bool | None] | None:
    """Return PID, name and ownership of the process that listens on the port; None for another user's process."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        for line in (_read(f"{proc}/net/{table}") or "").splitlines():
            words = line.split()
            if len(words) > 9 and words[3] == "0A" and _integer(words[1].rpartition(":")[2], 16) == port:  # 0A: LISTEN
                inodes.add(f"socket:[{words[9]}]")
    end = time.monotonic() + _OWNER_LIMIT_S
    for pid in _pids(proc) if inodes else ():
        if time.monotonic() > end:
            break
        try:
            with os.scandir(f"{proc}/{pid}/fd") as entries:
                held = any(_link_target(entry.path) in inodes for entry in entries)
            mine = os.stat(f"{proc}/{pid}").st_uid == os.geteuid() if held else None
        except OSError:
            continue
        if held:
            return pid, _read(f"{proc}/{pid}/comm") or "?", mine
    return None


def _pids(proc: str) -> list[int]:
    with contextlib.suppress(OSError):
        return sorted(int(name) for name in os.listdir(proc) if name.isdecimal())
    return []


def _link_target(path: str) -> str | None:
    """Return what a link names. The target itself, which can be on a dead file server, is not accessed."""
    with contextlib.suppress(OSError):
        return os.readlink(path)
    return None


def _on_path(program: str) -> bool:
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return any(os.access(f"{folder or '.'}/{program}", os.X_OK) for folder in folders)


def _integer(text: str | None, base: int = 10) -> int | None:
    with contextlib.suppress(ValueError):
        return int(text or "", base)
    return None


def _read(path: str) -> str | None:
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read().strip()
    return None
