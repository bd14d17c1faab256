"""Which networks can the ranks use: names, interfaces, the rendezvous port, InfiniBand?"""

from __future__ import annotations

from typing import Literal, TypeAlias

from mgpu.snapshot.fast_dataclass import dataclass

InterfaceKind: TypeAlias = Literal[
    "physical", "infiniband", "wireless", "bond", "vlan", "macvlan", "bridge", "veth", "tunnel", "loopback", "other"
]


@dataclass(frozen=True)
class Interface:
    """One network interface, as the kernel describes it to this network namespace."""

    name: str
    up: bool  # somebody switched it on
    loopback: bool
    addresses: tuple[str, ...]
    virtual: bool  # docker0, virbr0 and the like: it ends in this machine, no other one is behind it
    mtu: int | None = None
    speed_mbit_per_s: int | None = None
    kind: InterfaceKind | None = None
    running: bool | None = None  # … and it has a link: NCCL looks at no other
    full_duplex: bool | None = None
    ipv4: bool | None = None  # it has an IPv4 address
    ipv6: bool | None = None  # it has an IPv6 address, and not just ::1
    routable: bool | None = None  # an address that is neither loopback nor link-local


@dataclass(frozen=True)
class Master:
    """The machine where the ranks meet, as the environment names it."""

    name: str
    origin: Literal["MASTER_ADDR", "SLURM_JOB_NODELIST", "config"]
    addresses: tuple[str, ...]  # empty: it does not resolve
    error: str | None  # the resolver's words
    local: bool | None = None  # one of them is an address of this machine
    interface: str | None = None  # the one the kernel would use to reach it
    route_error: str | None = None  # why there is no way to it


@dataclass(frozen=True)
class Network:
    """Names, interfaces and the rendezvous port. Interfaces are in the order in which NCCL looks at them."""

    hostname: str
    hostname_addresses: tuple[str, ...]  # empty: it does not resolve
    hostname_error: str | None
    localhost_ok: bool
    interfaces: tuple[Interface, ...]
    port: int
    port_busy: bool
    port_owner: str | None  # "pid 412 (python)" where this user may know
    port_owner_pid: int | None = None
    port_owner_mine: bool | None = None
    default_routes: tuple[str, ...] | None = None  # interfaces with one, best first; None: not known
    master: Master | None = None  # None: the environment names none
    pdsh: bool | None = None  # the program is on PATH

    @property
    def listed(self) -> bool:
        """Whether the interfaces could be listed at all: even an empty namespace has a loopback one."""
        return bool(self.interfaces)

    def interface(self, name: str | None) -> Interface | None:
        """The interface of this name."""
        return next((interface for interface in self.interfaces if interface.name == name), None)


@dataclass(frozen=True)
class HcaPort:
    """One port of an InfiniBand, RoCE or EFA adapter, from /sys/class/infiniband."""

    device: str  # mlx5_0
    port: int
    link_layer: Literal["InfiniBand", "Ethernet", "EFA", "unknown"]
    state: str | None  # ACTIVE, DOWN, INIT …
    phys_state: str | None  # LinkUp, Disabled, Polling …
    rate_gbit_per_s: float | None
    lanes: int | None = None  # 4 of "400 Gb/sec (4X NDR)"
    lid: int | None = None  # read where InfiniBand is not ACTIVE, with sm_lid: 0 says that no subnet manager came by
    sm_lid: int | None = None
    gid_types: tuple[str, ...] | None = None  # of the first GIDs of an active Ethernet port: IB/RoCE v1, RoCE v2
    gid_ipv4: bool | None = None  # one of them is an IPv4 address
    firmware: str | None = None
    board: str | None = None
    pci: str | None = None
    numa_node: int | None = None
    interfaces: tuple[str, ...] = ()
    virtual_function: bool = False  # SR-IOV
    link_downed: int | None = None  # how often the link was lost since the driver was loaded

    @property
    def name(self) -> str:
        """As NCCL_IB_HCA names it."""
        return f"{self.device}:{self.port}"

    @property
    def active(self) -> bool:
        """Whether traffic can flow."""
        return self.state == "ACTIVE"

    @property
    def card(self) -> str:
        """The card it sits on: its PCI address without the function, or its own name."""
        return (self.pci or self.device).rpartition(".")[0] or self.device


@dataclass(frozen=True)
class InfiniBand:
    """The adapters for fast networks, and whether this process may use them."""

    ports: tuple[HcaPort, ...]
    verbs_nodes: tuple[str, ...] = ()  # /dev/infiniband/uverbs*
    verbs_unusable: tuple[str, ...] = ()  # adapters whose node is missing here, or may not be opened
    verbs_library: bool | None = None  # libibverbs.so.1 is where the loader looks; None: no adapter, not looked
    uptime_s: float | None = None  # of the machine: what the counters at most cover
