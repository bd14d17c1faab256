"""The JSON documents of `mgpu launch`, as types (see `report/json_types.py`)."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from mgpu.launch.registry import State
from mgpu.report.json_types import Bytes, CheckEntry, Count, EndedRankEntry, ExitCode, Seconds, Triage


class GpuOfRun(TypedDict):
    """One GPU's work during the run."""

    index: int
    uuid: str
    rank: int | None
    busy_percent: float | None
    peak: Bytes
    mem_total: Bytes


class RankOfHang(TypedDict):
    """What one rank did while the run made no progress."""

    rank: int
    host: Annotated[str | None, "of a run on several hosts"]
    pid: int | None
    state: str
    busy: Annotated[bool | None, "used the CPU between two looks"]
    at: Annotated[str | None, "file:line of the user's own code"]
    line: Annotated[str | None, "the text of that line"]
    collective: Annotated[str | None, "the collective that it has started and that has not completed"]
    waits_for: Annotated[str | None, "file, pipe or socket, else the kernel's function"]
    steps: Annotated[int | None, "optimizer steps so far"]
    step_s: Annotated[float | None, "seconds since the last one"]
    silent: Annotated[str | None, "why its stack is not known"]


class HangOfRun(TypedDict):
    """A run without progress: why, and what each rank did."""

    quiet_s: Annotated[float, "seconds without output, optimizer step or batch"]
    finding: CheckEntry | None
    id: Annotated[str | None, "of the finding; null: the reason is not known"]
    rank: Annotated[int | None, "the first rank that keeps the others waiting"]
    kind: Annotated[str | None, "what that rank does: stopped, left, sleep, lock, loader, differ, everybody ..."]
    at: str | None
    collective: Annotated[str | None, "the collective that the others wait in"]
    ranks: list[RankOfHang]
    stopped: Annotated[bool, "whether mgpu stopped the run because of it (--on-hang stop)"]


class PaceOfRank(TypedDict):
    """What one rank spent its steps on: medians in seconds."""

    rank: int
    host: Annotated[str | None, "of a run on several hosts, or of a Slurm job"]
    loader_s: Annotated[float, "waiting for batches"]
    wait_s: Annotated[float, "waiting for the last rank in a collective"]
    optimizer_s: Annotated[float, "in the optimizer; on a GPU until its work is queued"]
    rest_s: Annotated[float, "the rest of a step: forward, backward, and what is not measured"]
    saving_s: Annotated[float, "in torch.save and safetensors, in all steps together"]
    last_share: Annotated[float, "of the steps in which this rank came last"]


class PaceOfRun(TypedDict):
    """The steps of the ranks, compared: of one machine, or of all nodes of the run."""

    steps: Annotated[int, "compared"]
    step_s: Annotated[float, "median"]
    waited_share: Annotated[float, "of the time of these steps that the other ranks waited for the last one"]
    ranks: list[PaceOfRank]


class WhyDocument(TypedDict):
    """mgpu.why/1.x: the answer of `mgpu launch --why`."""

    schema: str
    mgpu: str
    time: Annotated[str, "ISO 8601, UTC"]
    run: Annotated[str | None, "id of the run; null: mgpu did not start it"]
    exit_code: Annotated[ExitCode, "0: it makes progress, 1: it does not, 3: it is not known"]
    progress: bool | None
    hang: HangOfRun
    gaps: Annotated[list[str], "what could not be read"]


class LiveRank(TypedDict):
    """A rank of a run that is running on this machine."""

    rank: int
    pid: int
    state: Annotated[str | None, "as the kernel has it: running, sleeping, stopped ..."]


class ListedRun(TypedDict):
    """One run of `mgpu launch --status`."""

    state: Annotated[State, "lost: its supervisor exited without writing how the run ended"]
    id: str
    run_id: Annotated[str, "the mark in the environment of all its processes"]
    host: str
    boot_id: str
    pid_space: int
    pid: Annotated[int, "of the supervisor"]
    pid_started: Annotated[int, "clock ticks since boot"]
    folder: Annotated[str, "of its logs"]
    cwd: str
    target: Annotated[list[str], "the script and its arguments, secrets masked"]
    command: Annotated[list[str], "the launcher's command line, secrets masked"]
    config: str
    started: Annotated[str, "ISO 8601, UTC"]
    ranks: Annotated[int | None, "on this machine"]
    detached: bool
    launcher: Annotated[int | None, "its PID"]
    ended: str | None
    exit_code: Annotated[int | None, "the program's own; null with ended: unknown"]
    signalled: str | None
    timed_out: bool
    alive: list[LiveRank]
    last_line: Annotated[str, "the last line that the program printed"]
    hang: HangOfRun | None
    pace: PaceOfRun | None


class StatusDocument(TypedDict):
    """mgpu.runs/1.x: the answer of `mgpu launch --status`."""

    schema: str
    mgpu: str
    runs: Annotated[list[ListedRun], "latest first"]
    unreadable: Annotated[list[str], "entries that could not be read, with the reason"]


class _Run(TypedDict):
    schema: str
    mgpu: str
    time: Annotated[str, "end of the run: ISO 8601, UTC"]
    phase: Literal["preflight", "training"]
    exit_code: ExitCode


class _Ended(_Run, total=False):
    error: Annotated[str, "why nothing was started"]
    checks: Annotated[list[CheckEntry], "problems because of which nothing was started"]
    launcher_code: Annotated[int, "the launcher's own exit code; negative for a signal"]
    signalled: Annotated[str | None, "signal that asked mgpu to stop the run, for example SIGINT"]
    timed_out: bool
    triage: bool
    command: Annotated[list[str], "secrets masked"]
    env_added: dict[str, str]
    duration_s: Seconds
    ranks: Annotated[list[EndedRankEntry], "ranks on this machine; of a Slurm job or a run on hosts, on all of them"]
    gpus: list[GpuOfRun]
    peak_memory: Annotated[str, "peak memory of the fullest GPU, as text"]
    busy: Annotated[str, "utilization of the GPUs, as text"]
    gpus_gap: Annotated[str | None, "why the GPUs were not monitored, or not to the end"]
    foreseen: Annotated[list[CheckEntry], "findings in the script, reported before the start, that may be the reason"]
    remarks: Annotated[list[CheckEntry], "findings on the work of the GPUs and ranks"]
    pace: Annotated[PaceOfRun | None, "null: one rank, too few steps, or no recorder"]
    hang: Annotated[HangOfRun | None, "the last hang that was found while the run made no progress"]
    oom_kills: int | None
    memory_lowest: Annotated[Bytes, "lowest free memory of the machine or cgroup during the run"]
    left_over: Annotated[Count, "leftover processes that mgpu stopped afterwards"]
    still_running: Annotated[list[str], "processes in sessions of their own, which continue after a run that succeeded"]
    log_trouble: Annotated[str | None, "why the log could not be read"]
    logs: Annotated[str, "the run's folder"]
    run: Annotated[str, "ID of the run; empty if it could not be listed"]
    again: Annotated[str, "the command, secrets masked"]


class RunDocument(_Ended, Triage):
    """mgpu.run/1.x. A refused launch has only a phase, an exit code and a reason."""


class TaskOfJob(TypedDict):
    """The srun task that failed first."""

    node: str
    task: str
    exit: int | None


class BadOfJob(TypedDict):
    """A node that the pre-flight excluded."""

    node: str
    reason: str


class PreflightOfJob(TypedDict):
    """The result of the job's pre-flight."""

    folder: str
    need: int
    bad: list[BadOfJob]
    good: list[str]
    chosen: list[str]


class JobEntry(TypedDict):
    """Slurm's record of a job that was followed to its end."""

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
    """The run document of a Slurm job."""

    slurm: JobEntry
