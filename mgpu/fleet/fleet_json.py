"""The JSON of compared nodes and of a pre-flight, as types (see `report/json_types.py`)."""

from __future__ import annotations

from typing import Annotated, TypedDict

from mgpu.engine import Status
from mgpu.report.json_types import CheckEntry, Count, ExitCode, Id, Seconds, StageStatus


class RoleEntry(TypedDict):
    """A kind of nodes."""

    role: str
    nodes: str
    count: Count


class DifferenceEntry(TypedDict):
    """One fact that differs."""

    key: Annotated[str, "dotted, as in a saved machine"]
    what: str
    value: Annotated[str | None, "null: it is not there, or not known"]
    usual: Annotated[str | None, "that of most nodes of the role"]


class ClassEntry(TypedDict):
    """Nodes that differ in the same facts."""

    role: str
    nodes: str
    count: Count
    of: Count
    second_population: Annotated[bool, "so many that they are no outliers"]
    tied: Annotated[bool, "as many have the one value as the other: which is right is not known"]
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
    """Many nodes, compared. `nodes` is in Slurm's form: n[1-3,7]."""

    nodes: str
    count: Count
    compared: Annotated[Count, "facts of each node"]
    missing: Annotated[dict[str, str], "node: why it was not examined"]
    roles: list[RoleEntry]
    classes: Annotated[list[ClassEntry], "nodes that differ from most of their role in the same facts"]
    outliers: list[OutlierEntry]
    failing: Annotated[list[str], "nodes that failures are about"]
    exclude: Annotated[str, "the same, for Slurm's --exclude="]
    not_compared: Annotated[list[str], "facts that are another on nearly every node"]
    unread: Annotated[dict[str, str], "fact that no node of a kind knows: why"]
    strangers: Annotated[list[str], "files that were never a machine, and are no node's"]


class BadNode(TypedDict):
    """A node on which no rank should be started."""

    node: str
    stage: Id
    id: Annotated[Id | None, "of the check; null: it gave no answer"]
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
    time: Annotated[str, "of its end: ISO 8601, UTC"]
    duration_s: Seconds
    verdict: str
    exit_code: ExitCode
    counts: dict[Status, Count]
    checks: Annotated[list[CheckEntry], "on the nodes as a whole; `subjects` are nodes"]


class PreflightNodes(TypedDict):
    """The result of a pre-flight for each node."""

    job: str
    nodes: Annotated[list[str], "of the job, in its order"]
    need: Annotated[int | None, "so many good nodes are enough"]
    good: list[str]
    chosen: Annotated[list[str], "the nodes of the training; none: it is not started"]
    bad: list[BadNode]
    exclude: Annotated[str | None, "for sbatch: --exclude=n[3,7]"]
    trouble: Annotated[str | None, "why good nodes do not train together"]
    stages: list[StageEntry]
    logs: Annotated[str | None, "the folder of its files"]


class PreflightDocument(PreflightHead, PreflightNodes, total=False):
    """mgpu.preflight/1.x."""

    error: Annotated[str, "the nodes could not be judged: why"]
