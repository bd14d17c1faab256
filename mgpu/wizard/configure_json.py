"""The JSON documents of `mgpu configure` and of `--plan`, as types (see `report/json_types.py`)."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

from mgpu.planning.plan import Rule
from mgpu.report.json_types import Bytes, ExitCode, Seconds


class SettingEntry(TypedDict):
    """One value of the config, or one decision that the file does not store."""

    name: str
    key: Annotated[str | None, "of the file; null: not in the file"]
    value: Annotated[Any, "any JSON value"]
    source: Annotated[str, "detected, default, you, a file ..."]
    reason: str


class JobEntry(TypedDict):
    """The job script or job file that was written beside the config."""

    path: str
    engine: str
    checked: Annotated[str, "what checked it; empty if nothing could"]


class _Written(TypedDict):
    schema: str
    config: dict[str, Any]
    config_path: str
    sha256: str | None
    values: list[SettingEntry]
    launch_flags: Annotated[list[str], "what the file cannot store; mgpu launch adds them"]
    notes: list[str]
    verdict: Annotated[Literal["valid", "unknown"], "unknown: accelerate's own loader could not be used"]
    exit_code: ExitCode
    next: Annotated[list[str], "the next command"]


class WrittenDocument(_Written, total=False):
    """mgpu.configure/1.x of a config that was written."""

    job: JobEntry


class StepsEntry(TypedDict):
    """One epoch, samples counted over all ranks."""

    batches_per_rank: int
    optimizer_steps: int
    samples_seen: int
    samples_repeated: int
    samples_dropped: int
    last_partial: Annotated[bool, "its last optimizer step has fewer samples"]


class KeptEntry(TypedDict):
    """A micro-batch and accumulation that keep the reference batch."""

    per_gpu: int
    accumulate: int


class RateEntry(TypedDict):
    """A learning rate from one rule."""

    rule: Rule
    value: float
    usually_for: str
    suggested: bool
    note: str


class SchedulerPlan(TypedDict):
    """How often a prepared scheduler is stepped, and how many steps to create it with."""

    per_update: int
    build_with: int
    note: str


class SpeedUpEntry(TypedDict):
    """Speed-up over one GPU. null: not measured, and no typical figure is known."""

    low: float | None
    high: float | None
    source: str
    measured: bool


class MemoryEntry(TypedDict):
    """What a strategy needs on each GPU, without activations."""

    strategy: str
    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    buckets_bytes: int
    host_bytes: int
    total_bytes: int
    fits: Annotated[bool | None, "null: the GPU's memory is not known"]
    roomy: bool | None
    formula: str
    source: str
    not_counted: list[str]


class PlanRow(TypedDict):
    """Training on a number of GPUs."""

    gpus: int
    batch_per_gpu: int | None
    accumulate: int | None
    effective_batch: int | None
    epoch: StepsEntry | None
    keeps_reference: KeptEntry | None
    rates: list[RateEntry]
    scheduler: SchedulerPlan | None
    speed_up: SpeedUpEntry
    memory: list[MemoryEntry]


class MeasuredEntry(TypedDict):
    """What a smoke test measured of the script in this folder, and what has changed since."""

    script: str
    script_sha256: str
    arguments_sha256: str
    ranks: int
    cpu: bool
    steps: int
    step_s: Annotated[Seconds, "median"]
    step_mad_s: Annotated[Seconds, "median absolute deviation"]
    loader_s: Seconds
    compute_s: Annotated[Seconds, "forward, backward, and the rest of the script"]
    optimizer_s: Seconds
    exchange_s: float | None
    waiting_s: Annotated[float | None, "for slower ranks"]
    samples_per_s: Annotated[float | None, "of all ranks"]
    batch: Annotated[int | None, "samples per batch and rank"]
    queued: int
    checkpoint_s: float | None
    static_bytes: Bytes
    peak_bytes: Bytes
    reserved_bytes: Bytes
    host_bytes: Bytes
    precision: str | None
    strategy: str | None
    taken: Annotated[str | None, "ISO 8601, UTC"]
    run: Annotated[str | None, "folder of the run"]
    changed: Annotated[list[str], "what is different now; the figures count only if this is empty"]
    batch_that_fits: int | None
    batch_that_fits_bytes: Bytes


class MachineOfPlan(TypedDict):
    """The machine that the plan is for."""

    text: str
    gpus: int | None
    gpu_memory_bytes: Bytes


class PlanEntry(TypedDict):
    """Batch, steps, learning rate and memory on 1, 2, 4 ... GPUs."""

    machine: MachineOfPlan
    reference_batch: int | None
    optimizer: str
    measured: MeasuredEntry | None
    rows: list[PlanRow]
    missing: Annotated[list[str], "what is not shown, and which answer it needs"]
    assumed: list[str]
    notes: list[str]


class PlanDocument(TypedDict):
    """mgpu.configure/1.x of `--plan`."""

    schema: str
    mgpu: str
    plan: PlanEntry
    exit_code: ExitCode
