"""Which facts differ between the nodes of a job, and can the nodes reach each other?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from mgpu.snapshot.fast_dataclass import dataclass
from mgpu.snapshot.field_types import Label, Name, Text
from mgpu.snapshot.networking import Interface


@dataclass(frozen=True)
class Difference:
    """A fact in which some nodes differ from most nodes of their role."""

    key: Label  # dotted, as in the Snapshot: "pytorch.version", "gpus.count"
    what: Label  # its name in messages: "torch", "GPUs"
    value: Text | None  # on these nodes; None: they have no such item
    usual: Text | None  # on most nodes


@dataclass(frozen=True)
class NodeClass:
    """Nodes that differ from most nodes of their role in exactly the same facts."""

    role: Label  # only nodes of one role are compared: "8 x H100-SXM"
    nodes: tuple[Name, ...]
    differences: tuple[Difference, ...]
    of: int  # nodes in the role
    second: bool = False  # large enough to be a second population, not outliers
    tied: bool = False  # no value has a majority (two nodes), so neither side is the outlier


@dataclass(frozen=True)
class Outlier:
    """A measured value of one node that is far from the other nodes of its role."""

    node: Name
    key: Label
    what: Label
    value: float
    median: float
    deviation: float  # in robust standard deviations (1.4826 MAD)
    unit: Label = ""


@dataclass(frozen=True)
class NodeFault:
    """A reason not to run on a node: an error its own doctor reported, or why it did not answer."""

    node: Name
    id: Label  # of the check; "" if the node did not answer
    text: Text


@dataclass(frozen=True)
class NodeAddresses:
    """The names and addresses of a node: its own host name, and the address its ranks will announce to the others."""

    node: Name
    hostname: Name
    full_name: Text = ""  # with its domain: torchrun's agents exchange it
    own_addresses: tuple[Label, ...] = ()  # its own name resolved on this node; empty: does not resolve
    own_error: Text | None = None  # the resolver's error
    address: Label = ""  # announced to the other ranks (by gloo, or by NCCL if there are GPUs)
    origin: Label = "hostname"  # of address: GLOO_SOCKET_IFNAME, hostname, unresolvable, NCCL_SOCKET_IFNAME, interface
    named: Mapping[str, Label] = field(default_factory=dict)  # values of the two variables
    on_gpu: bool = False
    interfaces: tuple[Interface, ...] = ()
    meeting_port: int | None = None  # the rendezvous port, if this is the head node
    meeting_error: Text | None = None  # why that port could not be opened

    def interface_of(self, address: str) -> Interface | None:
        """Return the interface that has this address."""
        return next((one for one in self.interfaces if address in one.addresses), None)


@dataclass(frozen=True)
class NodePath:
    """Whether one node reaches another the way the ranks will, measured from `node`."""

    node: Name
    peer: Name
    # name, full_name: the peer's name as resolved on `node`; head: the rendezvous endpoint; else an interface
    via: Label = "name"
    name: Name = ""  # the name that was resolved
    tried: tuple[Label, ...] = ()  # the addresses tried; empty: the name did not resolve
    connected: bool | None = None  # on an ephemeral port, as the ranks use; None: not tried
    error: Text | None = None
    bulk: bool | None = None  # data larger than one packet arrived
    stalled: Label | None = None  # there, back: the direction in which no data arrived
    round_trip_s: float | None = None
    mbit_per_s: float | None = None


@dataclass(frozen=True)
class HostAccess:
    """How a host of `--hosts` was reached with ssh, or why not."""

    node: Name
    destination: Text  # as ssh gets it: user@host
    port: int | None = None  # None: ssh's own choice
    local: bool = False  # this machine, without ssh
    problem: Label = ""  # a kind of hosts/ssh_errors.py; empty: its worker answered
    said: Text = ""  # ssh's message
    python: Label = ""  # the Python that answered
    python_wanted: Label = ""  # the project's, which is tried first
    folder_error: Text | None = None  # why the project's folder could not be entered
    folder_writable: bool | None = None  # None: not tried
    environment: Label = ""  # a Python with torch that was found there, if the wanted one is missing
    noise: tuple[Text, ...] = ()  # lines that the shell's start-up files print to stdout
    reached_at: Label = ""  # the address that ssh connected to; "": through a jump host, or without ssh
    served_at: Label = ""  # the host's own address for that connection
    locked_key: Text = ""  # your key that needs its passphrase, if no agent holds one


# Prefix of the reason for a node that answered, but with answers that may mean something else.
OTHER_MGPU = "mgpu there is "


@dataclass(frozen=True)
class Fleet:
    """Several nodes, examined at the same time and compared."""

    nodes: tuple[Name, ...]  # that answered, in order
    missing: Mapping[str, Text] = field(default_factory=dict)  # nodes that did not -> why
    classes: tuple[NodeClass, ...] = ()  # only nodes with differences
    outliers: tuple[Outlier, ...] = ()
    faults: tuple[NodeFault, ...] | None = ()  # None: the nodes were not checked one by one
    clock_offsets_s: Mapping[Label, float] | None = None  # relative to the median; only if queried at once
    unshared: Mapping[str, tuple[Text, ...]] | None = None  # folder the job needs -> nodes without it
    doors: tuple[NodeAddresses, ...] = ()
    paths: tuple[NodePath, ...] | None = None  # None: not tried
    compared: int = 0  # number of facts compared
    roles: Mapping[str, tuple[Name, ...]] = field(default_factory=dict)  # role -> its nodes, largest role first
    known: tuple[Label, ...] = ()  # facts known on at least two nodes of a role: driver, gpus, files ...
    scattered: tuple[Label, ...] = ()  # facts with a different value on almost every node: not compared
    together: bool = False  # the nodes will run one job
    unread: Mapping[str, Label] = field(default_factory=dict)  # facts not read on any node of a role -> why
    strangers: tuple[Text, ...] = ()  # files that are not the Snapshot of a node: n1.json
    orphans: Mapping[Name, tuple[int, ...]] = field(default_factory=dict)  # node -> ranks without a launcher, as PIDs
    access: tuple[HostAccess, ...] | None = None  # of --hosts, in order; None: not reached with ssh
