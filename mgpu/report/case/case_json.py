"""The JSON document of a case, as a type (see `report/json_types.py`): what the HTML page shows, and `case.json`."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from mgpu.engine import Status
from mgpu.report.json_types import CheckEntry, Count, EndedRankEntry, EndingEntry, Envelope, Seconds, Triage

Light = Literal["ok", "warn", "fail", "unknown"]


class HeadlineEntry(TypedDict):
    """The verdict in one word and one sentence."""

    word: str
    light: Light
    text: str


class RowEntry(TypedDict):
    """One area of the machine, or one stage of a smoke test, in a line."""

    status: Status
    label: str
    text: str


class FindingEntry(CheckEntry, total=False):
    """A finding that no other finding explains."""

    also: Annotated[list[str], "its consequences"]


class NumaEntry(TypedDict):
    """One NUMA node of the machine."""

    node: int | None
    cpus: str | None


class CardEntry(TypedDict):
    """One network card."""

    name: str
    numa: int | None
    state: Annotated[str | None, "of its fast port: ACTIVE, DOWN"]
    kind: Annotated[str, "InfiniBand, RoCE, EFA, Ethernet"]
    gbit_per_s: float | None


class SlotEntry(TypedDict):
    """How one GPU is connected."""

    gpu: int
    pcie: Annotated[str | None, "x16 Gen5"]
    narrow: Annotated[bool, "it has fewer PCIe lanes than it could have"]
    nvlinks: Annotated[int | None, "active ones"]


class PictureEntry(TypedDict):
    """The machine as a picture: what is near to what."""

    switch: Annotated[bool, "the NVLinks go through NVSwitches"]
    links: Annotated[str, "what the links between the GPUs mean for a run; empty for one GPU"]
    numa: list[NumaEntry]
    cards: list[CardEntry]
    slots: list[SlotEntry]


class ConfigValueEntry(TypedDict):
    """One value of the config, and where it comes from."""

    key: str
    value: str
    source: str


class CaseBandwidthEntry(TypedDict):
    """One collective at one size."""

    collective: str
    ranks: Count
    size_bytes: Count
    busbw_gb_per_s: float


class CaseScalingEntry(TypedDict):
    """Training on a number of ranks."""

    ranks: Count
    samples_per_s: float
    efficiency: float | None


class SmokeTestEntry(TypedDict):
    """The smoke test of the config."""

    passed: bool | None
    text: str
    bandwidth: list[CaseBandwidthEntry]
    scaling: list[CaseScalingEntry]


class StepEntry(TypedDict):
    """One optimizer step of a rank."""

    number: int
    end_s: Seconds
    loader_s: Seconds
    optimizer_s: Seconds
    saving_s: Seconds
    wait_s: float | None


class PaceEntry(TypedDict):
    """What one rank spent a step on: medians in seconds."""

    loader_s: Seconds
    wait_s: Seconds
    optimizer_s: Seconds
    rest_s: Seconds
    last_share: float


class RankCourseEntry(TypedDict):
    """One rank of the run."""

    rank: int
    host: Annotated[str | None, "of a run on several hosts"]
    end_s: Annotated[float | None, "when its process disappeared; null: with the run"]
    ended: Annotated[str | None, "exit 1, killed by SIGKILL"]
    failed: bool
    steps_done: int | None
    steps: list[StepEntry]
    pace: PaceEntry | None
    state: Annotated[str | None, "what it did while the run made no progress"]
    waits_in: Annotated[str | None, "the collective that it had started"]
    stack: Annotated[list[str], "innermost first"]
    peak_host: int | None
    peak_gpu: int | None


class RunOfCaseEntry(TypedDict):
    """One run that mgpu started."""

    id: str | None
    started: str | None
    seconds: float | None
    going: bool
    exit_code: int | None
    command: list[str]
    quiet_s: Annotated[float | None, "without progress before the ranks were asked"]
    courses: list[RankCourseEntry]
    ranks: list[EndedRankEntry]
    tail: Annotated[list[str], "the last lines of its output"]


class LogLineEntry(TypedDict):
    """A line of the log that matters."""

    text: str
    place: str
    ranks: list[int]
    times: Count
    what: Annotated[str, "id of the finding, or the kind of line"]


class _Case(Envelope):
    kind: Literal["machine", "run", "smoke_test", "files"]
    headline: HeadlineEntry
    rows: list[RowEntry]
    findings: list[FindingEntry]
    picture: PictureEntry | None
    config: list[ConfigValueEntry]
    smoke_test: SmokeTestEntry | None
    run: RunOfCaseEntry | None
    log_lines: list[LogLineEntry]
    packages: dict[str, str]


class CaseDocument(_Case, Triage, total=False):
    """mgpu.case/1.x."""

    ending: EndingEntry
