"""Which networks can the ranks use: host names, interfaces, the rendezvous port, InfiniBand?"""

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
    """One network interface in this network namespace, as the kernel reports it."""

    name: Identity[Label]
    up: bool  # administratively enabled
    loopback: bool
    addresses: Assigned[tuple[Label, ...]]
    virtual: bool  # docker0, virbr0 and the like: local to this machine, no other machine is reachable through it
    mtu: Same[int | None] = None
    speed_mbit_per_s: Same[int | None] = None
    kind: InterfaceKind | None = None
    running: bool | None = None  # enabled and has a link: NCCL ignores all others
    full_duplex: bool | None = None
    ipv4: bool | None = None  # has an IPv4 address
    ipv6: bool | None = None  # has an IPv6 address other than ::1
    routable: bool | None = None  # has an address that is neither loopback nor link-local


@dataclass(frozen=True)
class Master:
    """The host of the rendezvous endpoint, as named in the environment or config."""

    name: Same[Name]
    origin: Literal["MASTER_ADDR", "SLURM_JOB_NODELIST", "config"]
    addresses: Identity[tuple[Label, ...]]  # empty: it does not resolve
    error: History[Text | None]  # the resolver's error
    local: Identity[bool | None] = None  # one of the addresses belongs to this machine
    interface: Identity[Label | None] = None  # the interface the kernel would use to reach it
    route_error: History[Text | None] = None  # why there is no route to it


@dataclass(frozen=True)
class Network:
    """Host names, interfaces and the rendezvous port. Interfaces are in the order in which NCCL considers them."""

    hostname: Annotated[Identity[Name], Wording("host name")]
    hostname_addresses: Identity[tuple[Label, ...]]  # empty: it does not resolve
    hostname_error: Annotated[History[Text | None], Wording(none="none")]
    localhost_ok: bool
    interfaces: tuple[Interface, ...]
    port: History[int]
    port_busy: Moment[bool]
    port_owner: Moment[Text | None]  # "pid 412 (python)", if this user may see it
    port_owner_pid: Moment[Pid | None] = None
    port_owner_mine: Moment[bool | None] = None
    port_free: Moment[int | None] = None  # if it is busy: another port without a listener on this machine
    default_routes: Same[tuple[Label, ...] | None] = None  # their interfaces, best first; None: not known
    master: Annotated[Master | None, Subject("rendezvous host")] = None  # None: not set
    pdsh: bool | None = None  # pdsh is on PATH

    @property
    def listed(self) -> bool:
        """Whether the interfaces could be listed: even an empty namespace has a loopback interface."""
        return bool(self.interfaces)

    def interface(self, name: str | None) -> Interface | None:
        """Return the interface with this name."""
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
    # read if InfiniBand is not ACTIVE, like sm_lid; 0: no subnet manager has configured the port
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
    link_downed: Moment[int | None] = None  # number of link losses since the driver was loaded

    @property
    def name(self) -> str:
        """The port in the syntax of NCCL_IB_HCA."""
        return f"{self.device}:{self.port}"

    @property
    def active(self) -> bool:
        """Whether traffic can flow."""
        return self.state == "ACTIVE"

    @property
    def card(self) -> str:
        """The card of this port: its PCI address without the function, or the device name."""
        return (self.pci or self.device).rpartition(".")[0] or self.device


@dataclass(frozen=True)
class InfiniBand:
    """The adapters for fast networks, and whether this process may use them."""

    ports: tuple[HcaPort, ...]
    verbs_nodes: Identity[tuple[Label, ...]] = ()  # /dev/infiniband/uverbs*
    verbs_unusable: Same[tuple[Label, ...]] = ()  # adapters whose device node is missing or cannot be opened
    verbs_library: bool | None = None  # the loader finds libibverbs.so.1; None: no adapter, not checked
    uptime_s: History[float | None] = None  # of the machine: the longest time the counters can cover
