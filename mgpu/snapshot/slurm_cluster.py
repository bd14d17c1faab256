"""What did Slurm allocate to this process, and what does the cluster offer?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated

from mgpu.snapshot.fast_dataclass import dataclass
from mgpu.snapshot.field_types import Assigned, History, Identity, Label, Near, Same, Wording


@dataclass(frozen=True)
class Slurm:
    """The Slurm allocation this process runs in, and whether Slurm is installed."""

    job_id: Assigned[Label | None]
    nodes: Same[int | None]
    node_rank: Assigned[int | None]
    tasks_per_node: Same[Label | None]
    gpus_on_node: Annotated[Same[int | None], Wording("GPUs granted by Slurm")]
    commands_found: bool
    on_allocated_node: bool | None = None  # False: a salloc shell that still runs on the submit host
    step_id: Identity[Label | None] = None  # None: not under srun
    job_gpus: Identity[Label | None] = None  # the GPUs granted on this node, as indices of all its GPUs: "0,1"
    gpus_per_task: Same[Label | None] = None
    gpu_bind: Same[Label | None] = None
    cpus_per_task: Same[int | None] = None
    cpus_on_node: Same[int | None] = None
    memory_bytes: Near[int | None] = None  # granted on this node; None: not specified, or all of it
    local_id: Identity[int | None] = None  # index of this task on the node
    seconds_left: History[float | None] = None  # until the job's time limit


@dataclass(frozen=True)
class Gres:
    """Generic resources of one type on a node, in Slurm's notation: gpu:a100:4."""

    name: str  # gpu, tpu, shard
    type: str  # a100; "" if the site does not define GPU types
    count: int


@dataclass(frozen=True)
class NodeKind:
    """Nodes of a partition with the same hardware."""

    nodes: int
    usable: int  # neither down nor drained: a job can run there, now or later
    cpus: int
    memory_bytes: int | None
    gres: tuple[Gres, ...] = ()

    @property
    def gpus(self) -> int:
        """Number of GPUs per node."""
        return sum(gres.count for gres in self.gres if gres.name == "gpu")


@dataclass(frozen=True)
class Partition:
    """A Slurm partition: its nodes and limits. None: no limit, or not specified."""

    name: str
    default: bool
    up: bool  # accepts and starts jobs
    kinds: tuple[NodeKind, ...] = ()  # most GPUs first
    max_time_s: int | None = None
    default_time_s: int | None = None  # None: max_time_s applies
    max_nodes: int | None = None
    min_nodes: int | None = None
    accounts: tuple[str, ...] | None = None  # accounts that can use it; None: all
    qos: tuple[str, ...] | None = None

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return sum(kind.nodes for kind in self.kinds)

    @property
    def usable(self) -> int:
        """Number of nodes that a job can run on."""
        return sum(kind.usable for kind in self.kinds)

    @property
    def gpus_per_node(self) -> int:
        """Largest number of GPUs on a node."""
        return max((kind.gpus for kind in self.kinds), default=0)


@dataclass(frozen=True)
class Association:
    """A user's association in Slurm accounting: an account, and the QOS that it can use."""

    account: str
    partition: str = ""  # "": all
    qos: tuple[str, ...] = ()
    default_qos: str = ""


@dataclass(frozen=True)
class Cluster:
    """A Slurm cluster as seen by a user on a login node."""

    name: str | None = None
    version: str | None = None  # 22.05.8
    partitions: tuple[Partition, ...] = ()
    associations: tuple[Association, ...] = ()  # of this user; empty if the site does not use accounting
    default_account: str = ""
    faults: Mapping[str, str] = field(default_factory=dict)  # what could not be read -> why
