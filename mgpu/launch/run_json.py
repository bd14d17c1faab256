"""The JSON document of `mgpu launch`, as a type (see `report/json_types.py`)."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from mgpu.report.json_types import Bytes, CheckEntry, Count, EndedRankEntry, ExitCode, Seconds, Triage


class GpuOfRun(TypedDict):
    """What one GPU did in the run."""

    index: int
    uuid: str
    rank: int | None
    busy_percent: float | None
    peak: Bytes
    mem_total: Bytes


class _Run(TypedDict):
    schema: str
    mgpu: str
    time: Annotated[str, "of its end: ISO 8601, UTC"]
    phase: Literal["preflight", "training"]
    exit_code: ExitCode


class _Ended(_Run, total=False):
    error: Annotated[str, "nothing was started: why"]
    checks: Annotated[list[CheckEntry], "nothing was started: the problems"]
    launcher_code: Annotated[int, "the launcher's own; negative for a signal"]
    signalled: Annotated[str | None, "mgpu was asked to stop it: SIGINT"]
    timed_out: bool
    triage: bool
    command: Annotated[list[str], "secrets masked"]
    env_added: dict[str, str]
    duration_s: Seconds
    ranks: Annotated[list[EndedRankEntry], "those of this machine"]
    gpus: list[GpuOfRun]
    peak_memory: Annotated[str, "of the fullest GPU, in words"]
    busy: Annotated[str, "how much the GPUs worked, in words"]
    gpus_gap: Annotated[str | None, "why GPUs were not watched, or not to the end"]
    remarks: Annotated[list[CheckEntry], "what is to be said of the GPUs' work"]
    oom_kills: int | None
    memory_lowest: Annotated[Bytes, "of the machine or the control group, free at the least"]
    left_over: Annotated[Count, "processes that mgpu had to end afterwards"]
    log_trouble: Annotated[str | None, "why the log could not be read"]
    logs: Annotated[str, "the run's folder"]
    again: Annotated[str, "the command, secrets masked"]


class RunDocument(_Ended, Triage):
    """mgpu.run/1.x; a launch that was refused has a phase, an exit code and a reason alone."""


class TaskOfJob(TypedDict):
    """The task of srun that failed first."""

    node: str
    task: str
    exit: int | None


class BadOfJob(TypedDict):
    """A node that the pre-flight left out."""

    node: str
    reason: str


class PreflightOfJob(TypedDict):
    """What the pre-flight of the job has found."""

    folder: str
    need: int
    bad: list[BadOfJob]
    good: list[str]
    chosen: list[str]


class JobEntry(TypedDict):
    """What Slurm says of a job that was followed to its end."""

    job: int
    state: str
    reason: str | None
    nodes: str | None
    restarts: int | None
    output: str | None
    files: list[str]
    task: TaskOfJob | None
    why: str
    preflight: PreflightOfJob | None
    never: bool
    held: bool
    left: bool
    again: str


class JobDocument(RunDocument, total=False):
    """The same of a job on Slurm."""

    slurm: JobEntry
