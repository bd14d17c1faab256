"""What does Slurm grant this process, and what does the cluster offer?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated

from mgpu.snapshot.fast_dataclass import dataclass
from mgpu.snapshot.field_types import Assigned, History, Identity, Label, Near, Same, Wording


@dataclass(frozen=True)
class Slurm:
    """The Slurm allocation this process runs in, and whether Slurm is here at all."""

    job_id: Assigned[Label | None]
    nodes: Same[int | None]
    node_rank: Assigned[int | None]
    tasks_per_node: Same[Label | None]
    gpus_on_node: Annotated[Same[int | None], Wording("GPUs Slurm granted")]
    commands_found: bool
    on_allocated_node: bool | None = None  # False: a shell of salloc that still runs where it was typed
    step_id: Identity[Label | None] = None  # None: not under srun
    job_gpus: Identity[Label | None] = None  # the grant on this node, as numbers of the whole machine: "0,1"
    gpus_per_task: Same[Label | None] = None
    gpu_bind: Same[Label | None] = None
    cpus_per_task: Same[int | None] = None
    cpus_on_node: Same[int | None] = None
    memory_bytes: Near[int | None] = None  # granted on this node; None: not said, or all of it
    local_id: Identity[int | None] = None  # which task of the node this is
    seconds_left: History[float | None] = None  # until the job's time limit


@dataclass(frozen=True)
class Gres:
    """Generic resources of one kind on a node, as Slurm counts them: gpu:a100:4."""

    name: str  # gpu, tpu, shard
    type: str  # a100; "" where the site gives its GPUs no type
    count: int


@dataclass(frozen=True)
class NodeKind:
    """Nodes of a partition that are built alike."""

    nodes: int
    usable: int  # of them, neither down nor drained: a job can run there, now or later
    cpus: int
    memory_bytes: int | None
    gres: tuple[Gres, ...] = ()

    @property
    def gpus(self) -> int:
        """GPUs of one such node."""
        return sum(gres.count for gres in self.gres if gres.name == "gpu")


@dataclass(frozen=True)
class Partition:
    """A queue of Slurm: its nodes and its limits. None: no limit, or not said."""

    name: str
    default: bool
    up: bool  # takes jobs and starts them
    kinds: tuple[NodeKind, ...] = ()  # most GPUs first
    max_time_s: int | None = None
    default_time_s: int | None = None  # None: max_time_s holds
    max_nodes: int | None = None
    min_nodes: int | None = None
    accounts: tuple[str, ...] | None = None  # that may use it; None: all
    qos: tuple[str, ...] | None = None

    @property
    def nodes(self) -> int:
        """All of them."""
        return sum(kind.nodes for kind in self.kinds)

    @property
    def usable(self) -> int:
        """Those a job can run on."""
        return sum(kind.usable for kind in self.kinds)

    @property
    def gpus_per_node(self) -> int:
        """On the nodes that have most of them."""
        return max((kind.gpus for kind in self.kinds), default=0)


@dataclass(frozen=True)
class Association:
    """What accounting lets a user do: an account, and the QOS that go with it."""

    account: str
    partition: str = ""  # "": all
    qos: tuple[str, ...] = ()
    default_qos: str = ""


@dataclass(frozen=True)
class Cluster:
    """A Slurm cluster as its users see it from a login node."""

    name: str | None = None
    version: str | None = None  # 22.05.8
    partitions: tuple[Partition, ...] = ()
    associations: tuple[Association, ...] = ()  # of this user; none where the site keeps no accounts
    default_account: str = ""
    faults: Mapping[str, str] = field(default_factory=dict)  # what could not be read -> why
