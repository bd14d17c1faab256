"""The JSON document of `mgpu doctor`, as a type (see `report/json_types.py`)."""

from __future__ import annotations

from typing import Annotated, TypedDict

from mgpu.fleet.fleet_json import FleetEntry
from mgpu.report.json_types import CheckEntry, EndingEntry, Envelope, Id, Scalar, Triage
from mgpu.snapshot import changes


class ChangeEntry(TypedDict):
    """A fact that changed since the saved machine."""

    fact: Id
    what: str
    kind: changes.Kind
    before: Scalar
    after: Scalar
    text: str


class RepairEntry(TypedDict):
    """A repair that `--fix` offered."""

    id: Id
    title: str
    command: str
    done: bool
    text: str


class _Doctor(Envelope):
    next: Annotated[list[str], "commands that come next"]


class _OfOptions(_Doctor, total=False):
    changes: Annotated[list[ChangeEntry], "with --compare"]
    repairs: Annotated[list[RepairEntry], "with --fix"]
    demo: Annotated[str, "with --demo: its name; the machine is not this one"]
    fleet: Annotated[FleetEntry, "with --compare-nodes"]
    ending: Annotated[EndingEntry, "with --log"]
    foreseen: Annotated[list[CheckEntry], "with --log: findings in the script's source that may be why the run failed"]


class DoctorDocument(_OfOptions, Triage, total=False):
    """mgpu.doctor/1.x."""

    error: Annotated[str, "why nothing could be judged"]
