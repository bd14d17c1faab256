"""In which facts do the nodes of a job differ, and can they reach each other?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from mgpu.snapshot.fast_dataclass import dataclass
from mgpu.snapshot.field_types import Label, Name, Text
from mgpu.snapshot.networking import Interface


@dataclass(frozen=True)
class Difference:
    """A fact in which some nodes are not like most of their role."""

    key: Label  # dotted, as in the Snapshot: "pytorch.version", "gpus.count"
    what: Label  # what people call it: "torch", "GPUs"
    value: Text | None  # theirs; None: they do not have it
    usual: Text | None  # that of most


@dataclass(frozen=True)
class NodeClass:
    """Nodes that differ from most of their role in exactly the same facts."""

    role: Label  # what is compared with each other: "8 x H100-SXM"
    nodes: tuple[Name, ...]
    differences: tuple[Difference, ...]
    of: int  # nodes in the role
    second: bool = False  # so many that it is a population of its own, no outlier
    tied: bool = False  # no value has a majority (two nodes): only the difference is known, not who is wrong


@dataclass(frozen=True)
class Outlier:
    """A measured value of one node far from those of its role."""

    node: Name
    key: Label
    what: Label
    value: float
    median: float
    deviation: float  # in robust standard deviations (1.4826 MAD)
    unit: Label = ""


@dataclass(frozen=True)
class NodeFault:
    """What one node's own examination says against a run on it: an error of the doctor, or why it gave no answer."""

    node: Name
    id: Label  # of the check; "" where there was no answer
    text: Text


@dataclass(frozen=True)
class NodeDoor:
    """How a node shows itself to the others: the name it calls itself, and where its ranks will say that they are."""

    node: Name
    hostname: Name
    full_name: Text = ""  # with its domain: torchrun's agents tell it to each other
    own_addresses: tuple[Label, ...] = ()  # of its own name, as it resolves it; empty: it does not
    own_error: Text | None = None  # the resolver's words
    address: Label = ""  # what its ranks will tell the others (gloo, or NCCL where there are GPUs)
    origin: Label = "hostname"  # of that: GLOO_SOCKET_IFNAME, hostname, unresolvable, NCCL_SOCKET_IFNAME, interface
    named: Mapping[str, Label] = field(default_factory=dict)  # the two variables, as they are set
    on_gpu: bool = False
    interfaces: tuple[Interface, ...] = ()
    meeting_port: int | None = None  # where the ranks are to meet, if this is the head
    meeting_error: Text | None = None  # why that port could not be had

    def interface_of(self, address: str) -> Interface | None:
        """The interface that has this address."""
        return next((one for one in self.interfaces if address in one.addresses), None)


@dataclass(frozen=True)
class NodePath:
    """Whether one node reaches another as the ranks will: measured from `node`."""

    node: Name
    peer: Name
    # name, full_name: what is tried is what that means here; head: where all meet; else an interface
    via: Label = "name"
    name: Name = ""  # what was resolved
    tried: tuple[Label, ...] = ()  # the addresses; empty: the name did not resolve
    connected: bool | None = None  # on a port like those the ranks take; None: not tried
    error: Text | None = None
    bulk: bool | None = None  # more than fits a packet went through as well
    stalled: Label | None = None  # there, back: the direction in which nothing came through
    round_trip_s: float | None = None
    mbit_per_s: float | None = None


OTHER_MGPU = "mgpu there is "  # why a node is missing that answered: its answers may mean something else


@dataclass(frozen=True)
class Fleet:
    """Several nodes, examined in one go and compared."""

    nodes: tuple[Name, ...]  # that answered, in order
    missing: Mapping[str, Text] = field(default_factory=dict)  # nodes that did not -> why
    classes: tuple[NodeClass, ...] = ()  # of nodes with differences; those that are like most have none
    outliers: tuple[Outlier, ...] = ()
    faults: tuple[NodeFault, ...] | None = ()  # None: the nodes were not judged one by one
    clock_offsets_s: Mapping[Label, float] | None = None  # against the median; only where all were asked at once
    unshared: Mapping[str, tuple[Text, ...]] | None = None  # folder that the job needs -> nodes that do not see it
    doors: tuple[NodeDoor, ...] = ()
    paths: tuple[NodePath, ...] | None = None  # None: not tried
    compared: int = 0  # how many facts were compared
    roles: Mapping[str, tuple[Name, ...]] = field(default_factory=dict)  # role -> its nodes, the most first
    known: tuple[Label, ...] = ()  # facts that two nodes of a role have at least: driver, gpus, files ...
    scattered: tuple[Label, ...] = ()  # facts that almost every node has another value of: nothing to compare
    together: bool = False  # they are to run one job
    unread: Mapping[str, Label] = field(default_factory=dict)  # facts no node of a role knows, asked in vain -> why
    strangers: tuple[Text, ...] = ()  # files among those of the nodes that were never a machine: n1.json
