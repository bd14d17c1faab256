"""Which networks can the ranks use: names, interfaces, the rendezvous port, InfiniBand?"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from mgpu.snapshot.fast_dataclass import dataclass
from mgpu.snapshot.field_types import (
    Assigned,
    History,
    Identity,
    Label,
    Moment,
    Name,
    Pid,
    Same,
    Subject,
    Text,
    Version,
    Wording,
)

InterfaceKind: TypeAlias = Literal[
    "physical", "infiniband", "wireless", "bond", "vlan", "macvlan", "bridge", "veth", "tunnel", "loopback", "other"
]


@dataclass(frozen=True)
class Interface:
    """One network interface, as the kernel describes it to this network namespace."""

    name: Identity[Label]
    up: bool  # somebody switched it on
    loopback: bool
    addresses: Assigned[tuple[Label, ...]]
    virtual: bool  # docker0, virbr0 and the like: it ends in this machine, no other one is behind it
    mtu: Same[int | None] = None
    speed_mbit_per_s: Same[int | None] = None
    kind: InterfaceKind | None = None
    running: bool | None = None  # … and it has a link: NCCL looks at no other
    full_duplex: bool | None = None
    ipv4: bool | None = None  # it has an IPv4 address
    ipv6: bool | None = None  # it has an IPv6 address, and not just ::1
    routable: bool | None = None  # an address that is neither loopback nor link-local


@dataclass(frozen=True)
class Master:
    """The machine where the ranks meet, as the environment names it."""

    name: Same[Name]
    origin: Literal["MASTER_ADDR", "SLURM_JOB_NODELIST", "config"]
    addresses: Identity[tuple[Label, ...]]  # empty: it does not resolve
    error: History[Text | None]  # the resolver's words
    local: Identity[bool | None] = None  # one of them is an address of this machine
    interface: Identity[Label | None] = None  # the one the kernel would use to reach it
    route_error: History[Text | None] = None  # why there is no way to it


@dataclass(frozen=True)
class Network:
    """Names, interfaces and the rendezvous port. Interfaces are in the order in which NCCL looks at them."""

    hostname: Annotated[Identity[Name], Wording("host name")]
    hostname_addresses: Identity[tuple[Label, ...]]  # empty: it does not resolve
    hostname_error: Annotated[History[Text | None], Wording(none="none")]
    localhost_ok: bool
    interfaces: tuple[Interface, ...]
    port: History[int]
    port_busy: Moment[bool]
    port_owner: Moment[Text | None]  # "pid 412 (python)" where this user may know
    port_owner_pid: Moment[Pid | None] = None
    port_owner_mine: Moment[bool | None] = None
    default_routes: Same[tuple[Label, ...] | None] = None  # interfaces with one, best first; None: not known
    master: Annotated[Master | None, Subject("meeting point")] = None  # None: the environment names none
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

    device: Identity[Label]  # mlx5_0
    port: Identity[int]
    link_layer: Literal["InfiniBand", "Ethernet", "EFA", "unknown"]
    state: Same[Label | None]  # ACTIVE, DOWN, INIT …
    phys_state: Same[Label | None]  # LinkUp, Disabled, Polling …
    rate_gbit_per_s: Same[float | None]
    lanes: Same[int | None] = None  # 4 of "400 Gb/sec (4X NDR)"
    # read where InfiniBand is not ACTIVE, with sm_lid: 0 says that no subnet manager came by
    lid: Assigned[int | None] = None
    sm_lid: Assigned[int | None] = None
    # of the first GIDs of an active Ethernet port: IB/RoCE v1, RoCE v2
    gid_types: Same[tuple[Label, ...] | None] = None
    gid_ipv4: bool | None = None  # one of them is an IPv4 address
    firmware: Same[Version | None] = None
    board: Same[Label | None] = None
    pci: Identity[Label | None] = None
    numa_node: Same[int | None] = None
    interfaces: Identity[tuple[Label, ...]] = ()
    virtual_function: bool = False  # SR-IOV
    link_downed: Moment[int | None] = None  # how often the link was lost since the driver was loaded

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
    verbs_nodes: Identity[tuple[Label, ...]] = ()  # /dev/infiniband/uverbs*
    verbs_unusable: Same[tuple[Label, ...]] = ()  # adapters whose node is missing here, or may not be opened
    verbs_library: bool | None = None  # libibverbs.so.1 is where the loader looks; None: no adapter, not looked
    uptime_s: History[float | None] = None  # of the machine: what the counters at most cover
