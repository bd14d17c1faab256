"""The type of the JSON document of `mgpu smoke-test` (see `report/json_types.py`)."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from mgpu.report.json_types import Count, Envelope, Id, Seconds, StageStatus
from mgpu.smoke.ranks import STAGES

StageName = Annotated[str, ("enum", STAGES)]


class StageOfRanks(TypedDict):
    """One stage over all ranks."""

    name: StageName
    status: StageStatus
    seconds: float | None
    detail: str | None


class RankEntry(TypedDict):
    """One rank."""

    rank: int
    host: str | None
    device: str | None
    gpu: str | None
    gpu_name: str | None
    pci: str | None
    last_word: str | None
    state: str | None
    kind: str | None
    error: str | None
    local_rank: int | None
    pid: int | None
    numa: int | None
    world_size: int | None
    accelerate_world_size: int | None
    exit: int | None
    measured: Annotated[dict[str, float], "the names include the units"]


class PairEntry(TypedDict):
    """One pair of ranks."""

    ranks: list[int]
    ok: bool | None
    detail: str | None
    gb_per_s: float | None
    latency_s: float | None


class BandwidthEntry(TypedDict):
    """One collective at one size."""

    collective: Id
    backend: str
    ranks: Count
    size_bytes: Count
    seconds_p50: Seconds
    seconds_p99: Seconds
    algbw_gb_per_s: float
    busbw_gb_per_s: float


class ScalingEntry(TypedDict):
    """Training on a number of ranks."""

    ranks: Count
    samples_per_s: float
    seconds_per_step: Seconds
    compute_seconds: Seconds
    efficiency: float | None


class TrialEntry(TypedDict):
    """The failed stage again, with one change."""

    change: str
    ok: bool | None
    detail: str | None
    seconds: float | None
    environment: dict[str, str]
    gpus: list[int]
    busbw_gb_per_s: float | None


class Culprit(TypedDict):
    """The rank, GPU and stage of the first failure."""

    rank: int | None
    gpu: str | None
    host: str | None
    rung: StageName
    collective: str | None
    last_word: str | None
    state: str | None
    stack: str | None
    stack_from: str | None


class ConfigEntry(TypedDict):
    """The config that was tested."""

    path: str
    sha256: str | None


class LeftEntry(TypedDict):
    """Leftovers of the ranks."""

    processes: list[int]
    files: list[str]
    gpu_memory: dict[str, int]
    port: int | None


class RehearsalGroup(TypedDict):
    """The checks of one kind on the user's script."""

    name: str
    status: Literal["ok", "warn", "info", "fail", "skip"]
    detail: str


class RehearsedRankEntry(TypedDict):
    """One rank of the user's script."""

    rank: int
    steps: Annotated[Count, "watched ones"]
    measured_steps: Annotated[Count, "steps after them in which only time was taken"]
    step_seconds: Annotated[float | None, "median of the measured steps; without any, of the watched ones"]
    loader_seconds: float | None
    exchange_seconds: Annotated[float | None, "from the last gradient of this rank on, and in collectives"]
    backward_seconds: Annotated[float | None, "of the watched steps, with the exchange"]
    optimizer_seconds: float | None
    samples_per_s: float | None
    peak_host_bytes: int | None
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None


class MeasurementEntry(TypedDict):
    """Seconds of a step: the median, and its parts in the steps around it. Bytes: of the rank with the most."""

    script: str
    script_sha256: str
    arguments_sha256: str
    ranks: Count
    cpu: bool
    steps: Count
    step_s: Seconds
    step_mad_s: Annotated[float, "median absolute deviation"]
    loader_s: Seconds
    compute_s: Annotated[float, "forward, backward, and the rest of the script"]
    optimizer_s: Seconds
    exchange_s: Annotated[float | None, "the exchange between ranks, without waiting"]
    waiting_s: Annotated[float | None, "for slower ranks, mean of the ranks"]
    samples_per_s: Annotated[float | None, "of all ranks"]
    batch: Annotated[int | None, "samples per batch and rank"]
    queued: Annotated[Count, "batches that may have been ready before the first measured step"]
    checkpoint_s: float | None
    static_bytes: Annotated[int | None, "allocated on a GPU between steps, without gradients"]
    peak_bytes: Annotated[int | None, "allocated on a GPU at most"]
    reserved_bytes: int | None
    activation_bytes: Annotated[int | None, "peak_bytes without static_bytes: activations and gradients"]
    host_bytes: int | None
    precision: str | None
    strategy: str | None
    taken: str | None
    run: str | None


class ScriptScalingEntry(TypedDict):
    """The script on a number of ranks, with the same batch on each (weak scaling)."""

    ranks: Count
    samples_per_s: float | None
    step_seconds: float | None
    efficiency: Annotated[float | None, "samples per second and rank, relative to the fewest ranks"]
    costs: Annotated[dict[str, float], "seconds by which each part of a step is longer"]
    why: Annotated[str | None, "why it was not measured"]


class RehearsalEntry(TypedDict):
    """The user's script, run for a few optimizer steps."""

    script: str
    ended: Literal["stopped", "finished", "failed", "stalled", "timed_out", "interrupted"]
    steps: Annotated[Count, "that every rank completed"]
    wanted: Count
    seconds: Seconds
    launcher: Id
    groups: list[RehearsalGroup]
    ranks: list[RehearsedRankEntry]
    wrote: Annotated[list[str], "files that the script wrote, by rank: path"]
    put_back: Annotated[list[str], "files that the script changed, which have their content from before again"]
    not_put_back: Annotated[list[str], "files that the script changed, which could not be put back"]
    measurement: MeasurementEntry | None
    scaling: Annotated[list[ScriptScalingEntry], "with --scaling"]
    log: str | None


class _Smoke(Envelope):
    next: Annotated[list[str], "the next commands to run"]
    stages: Annotated[list[StageOfRanks], "every stage, in order"]
    ranks: Annotated[list[RankEntry], "ranks of this node"]
    pairs: list[PairEntry]
    bandwidth: Annotated[list[BandwidthEntry], "algbw and busbw as nccl-tests defines them, decimal GB"]
    scaling: Annotated[list[ScalingEntry], "at a fixed micro-batch"]
    skipped: Annotated[list[str], "what could not be tested here, and why"]
    culprit: Culprit | None
    diagnosis: Annotated[list[TrialEntry], "the failed stage again, one change at a time"]
    config: ConfigEntry | None
    stamp: Annotated[str | None, "the file in which the pass was recorded"]
    logs: Annotated[str | None, "the run folder"]


class SmokeDocument(_Smoke, total=False):
    """mgpu.smoke/1.x."""

    level: Id
    strategy: Id
    precision: Id
    accumulate: Count
    cpu: Annotated[bool, "the ranks ran on the CPU"]
    world: Annotated[Count, "ranks on all nodes"]
    nodes: Count
    node: Count
    ended: Literal["finished", "stalled", "timed_out", "died", "interrupted"]
    left: LeftEntry
    error: Annotated[str, "why no rank was started"]
    rehearsal: Annotated[RehearsalEntry, "only with a script"]
