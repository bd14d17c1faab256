"""The JSON of compared nodes and of a pre-flight, as types (see `report/json_types.py`)."""

from __future__ import annotations

from typing import Annotated, TypedDict

from mgpu.engine import Status
from mgpu.report.json_types import CheckEntry, Count, ExitCode, Id, Seconds, StageStatus


class RoleEntry(TypedDict):
    """Nodes of one kind (GPU model and count)."""

    role: str
    nodes: str
    count: Count


class DifferenceEntry(TypedDict):
    """One fact that differs."""

    key: Annotated[str, "dotted, as in a saved machine"]
    what: str
    value: Annotated[str | None, "null: absent or unknown"]
    usual: Annotated[str | None, "the value of most nodes of the role"]


class ClassEntry(TypedDict):
    """Nodes that differ in the same facts."""

    role: str
    nodes: str
    count: Count
    of: Count
    second_population: Annotated[bool, "too many nodes to be outliers"]
    tied: Annotated[bool, "equally many nodes have either value, so it is unknown which is right"]
    differences: list[DifferenceEntry]


class OutlierEntry(TypedDict):
    """A measured value of one node that is far from the median."""

    node: str
    key: str
    what: str
    value: float
    median: float
    deviation: Annotated[float, "in robust standard deviations (1.4826 MAD)"]
    unit: str


class FleetEntry(TypedDict):
    """Many nodes, compared. `nodes` is a Slurm host list: n[1-3,7]."""

    nodes: str
    count: Count
    compared: Annotated[Count, "number of facts compared on each node"]
    missing: Annotated[dict[str, str], "node: why it was not checked"]
    roles: list[RoleEntry]
    classes: Annotated[list[ClassEntry], "nodes that differ from most of their role in the same facts"]
    outliers: list[OutlierEntry]
    failing: Annotated[list[str], "nodes with failures"]
    exclude: Annotated[str, "the same nodes, for Slurm's --exclude="]
    not_compared: Annotated[list[str], "facts that differ on nearly every node"]
    unread: Annotated[dict[str, str], "fact that no node of a kind could read: why"]
    strangers: Annotated[list[str], "files that are not saved machines"]


class BadNode(TypedDict):
    """A node that should not run ranks."""

    node: str
    stage: Id
    id: Annotated[Id | None, "of the check; null: the node did not answer"]
    reason: str
    fix: str | None


class StageEntry(TypedDict):
    """One step of a pre-flight."""

    name: Id
    status: StageStatus
    seconds: Seconds | None
    detail: str


class PreflightHead(TypedDict):
    """The keys that a pre-flight shares with other commands."""

    schema: str
    mgpu: str
    time: Annotated[str, "end of the pre-flight: ISO 8601, UTC"]
    duration_s: Seconds
    verdict: str
    exit_code: ExitCode
    counts: dict[Status, Count]
    checks: Annotated[list[CheckEntry], "on all nodes together; `subjects` are nodes"]


class PreflightNodes(TypedDict):
    """The result of a pre-flight for each node."""

    job: str
    nodes: Annotated[list[str], "nodes of the job, in its order"]
    need: Annotated[int | None, "minimum number of healthy nodes"]
    good: list[str]
    chosen: Annotated[list[str], "nodes that will train; empty: the training is not started"]
    bad: list[BadNode]
    exclude: Annotated[str | None, "for sbatch: --exclude=n[3,7]"]
    trouble: Annotated[str | None, "why healthy nodes cannot train together"]
    stages: list[StageEntry]
    logs: Annotated[str | None, "folder of the pre-flight's files"]


class PreflightDocument(PreflightHead, PreflightNodes, total=False):
    """mgpu.preflight/1.x."""

    error: Annotated[str, "why the pre-flight could not be completed"]
