"""The parts of the JSON documents that several commands share, as types.

`--json-schema` is generated from these types: in `Annotated` a text is the description of a field, a pair is a keyword
of JSON Schema with its value. Fields may be added, never renamed or removed. Only the schemas import this at run time.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

from mgpu.check import FixKind, Kind, Role, Severity, Who
from mgpu.engine import Status
from mgpu.snapshot import Distance, GapKind

Id = Annotated[str, ("pattern", "^[a-z][a-z0-9_]*$")]
Count = Annotated[int, ("minimum", 0)]
ExitCode = Annotated[int, ("minimum", 0), ("maximum", 255)]
Seconds = Annotated[float, ("minimum", 0), "seconds"]
Bytes = Annotated[int | None, "bytes"]
Scalar = str | float | bool | None

StageStatus = Literal["ok", "fail", "skip"]


class _Edit(TypedDict):
    kind: Literal["set", "rename", "delete", "drop_line"]
    key: str


class EditEntry(_Edit, total=False):
    """One change that `configure --validate --fix` makes."""

    value: Annotated[Any, "for kind set: any JSON value"]
    to: str
    line: int | None


class FixOfCause(TypedDict):
    """A fix for the cause of a failed run."""

    who: Who
    text: str
    commands: list[str]
    caveat: str | None
    kind: FixKind


class _Fix(TypedDict):
    who: Who
    text: str
    commands: Annotated[list[str], "each can be pasted unchanged"]
    caveat: str | None
    kind: FixKind


class FixEntry(_Fix, total=False):
    """One way to fix a problem."""

    edits: Annotated[list[EditEntry], "what configure --validate --fix does to the file; keys are dotted"]


class _Check(TypedDict):
    id: Id
    area: Annotated[Id, "the family: a file in checks/"]
    severity: Annotated[str, ("enum", tuple(severity.value for severity in Severity))]
    status: Status
    title: Annotated[str, "what is wrong, what was examined, or why it was skipped"]
    cause: str | None
    evidence: dict[str, Scalar]
    fix: list[FixEntry]
    because_of: Annotated[list[Id], "problems of this run that explain this one"]
    source: str
    verify: Annotated[str, "the command that runs this check again"]
    duration_s: Seconds


class WaivedEntry(TypedDict):
    """Why the project accepts a problem."""

    reason: str
    until: Annotated[str | None, "the last day, as an ISO date"]


class CheckEntry(_Check, total=False):
    """The answer of one check."""

    subjects: Annotated[list[str], "the affected devices: GPU 3, eth0"]
    file: str
    line: int | None
    column: int | None
    key: str | None
    waived: Annotated[WaivedEntry, "with status waived: from [[tool.mgpu.waive]]"]
    trace: Annotated[str, "the traceback, if the check crashed"]


class NicEntry(TypedDict):
    """A network card near a GPU."""

    name: str
    path: Distance | None


class GpuEntry(TypedDict):
    """One GPU of the machine."""

    index: Annotated[int, "NVML's: PCI order, not CUDA's"]
    uuid: str | None
    name: str | None
    cc: Annotated[list[int], ("minItems", 2), ("maxItems", 2), "compute capability"] | None
    mem_total: Bytes
    mem_free: Bytes
    pci: str | None
    numa: int | None
    cpus: str | None
    nics: list[NicEntry]
    busy_by: Annotated[list[int], "IDs of the processes that compute on it"]
    mig: bool | None
    ecc_errors: int | None
    lost: Annotated[str | None, "NVML's error code, if the GPU does not respond"]
    visible: Annotated[bool, "not hidden by CUDA_VISIBLE_DEVICES"]


class SchedulerEntry(TypedDict):
    """The scheduler of this job."""

    kind: str
    job: str | None


class HostEntry(TypedDict):
    """The machine."""

    name: str | None
    os: str | None
    kernel: str | None
    container: str | None
    scheduler: SchedulerEntry | None
    redacted: Annotated[bool, "names, addresses, UUIDs and similar values are replaced"]


class PlanEntry(TypedDict):
    """The planned run."""

    nodes: int
    expect_gpus: int | None
    expect_free: Bytes


class LinksEntry(TypedDict):
    """The connections between the GPUs."""

    matrix: Annotated[list[list[str]], "in the notation of nvidia-smi topo -m and the order of gpus[]"]
    p2p: Annotated[bool | None, "all pairs can access each other's memory"]


class NcclEntry(TypedDict):
    """The NCCL that is used."""

    version: str | None
    source: str


class SoftwareEntry(TypedDict):
    """Versions."""

    driver: str | None
    torch: str | None
    torch_cuda: str | None
    nccl: NcclEntry | None
    accelerate: str | None
    python: str | None
    interpreter: str | None


class GapEntry(TypedDict):
    """Why a fact is not known."""

    kind: GapKind
    reason: str


class Envelope(TypedDict):
    """The document of a command that judges a machine. The command adds the pattern of `schema` and its verdicts."""

    schema: str
    mgpu: str
    time: Annotated[str | None, "when the machine was examined: ISO 8601, UTC"]
    duration_s: Seconds
    verdict: str
    exit_code: ExitCode
    counts: dict[Status, Count]
    host: HostEntry
    plan: PlanEntry
    gpus: list[GpuEntry]
    links: LinksEntry
    software: SoftwareEntry
    env: dict[str, str]
    checks: list[CheckEntry]
    gaps: Annotated[dict[str, GapEntry], "unknown facts, with the reason"]


class OtherValuesEntry(TypedDict):
    """What names stood for on another rank that failed at the same line, as far as that differs."""

    rank: int
    names: dict[str, str]


class ValuesEntry(TypedDict):
    """What the names on a line of the user's code stood for when the exception passed it. Texts: of one word only."""

    file: str
    line: int
    function: str
    names: Annotated[dict[str, str], "batch['labels'] -> int64 [8, 512] on cuda:0"]
    condition: Annotated[str | None, "of a line that raised the exception: why, as the code has it"]
    other_ranks: list[OtherValuesEntry]


class FailedRankEntry(TypedDict):
    """The rank that failed first."""

    rank: int
    host: str | None
    gpu: Annotated[int | None, "NVML's index"]
    signal: str | None
    exit: Annotated[int | None, "128 + N for a signal N"]
    exception: str | None
    place: Annotated[str | None, "train.py:41 in main"]
    line: Annotated[int | None, "line of the log with the exception"]
    values: Annotated[list[ValuesEntry], "the innermost line first; empty without a recorder"]


class CauseEntry(TypedDict):
    """A cause of a failed run."""

    id: Id
    role: Role
    kind: Kind
    title: str
    cause: str
    evidence: dict[str, Scalar]
    subjects: list[str]
    file: str | None
    line: int | None
    fix: list[FixOfCause]


class EndedRankEntry(TypedDict):
    """The exit of one rank."""

    rank: int
    exit: int | None
    signal: str | None
    gpu: int | None
    host: str | None
    pid: int | None
    error: str | None
    state: str | None
    at: Annotated[str | None, "the user's line in the exception that ended its script: train.py:31"]
    peak_host: Annotated[Bytes, "resident memory of its process, according to the kernel"]
    peak_allocated: Annotated[Bytes, "by torch on its GPU"]
    peak_reserved: Annotated[Bytes, "by torch on its GPU"]


class LastRunEntry(TypedDict):
    """Where the last one of several runs begins that were appended to one file. Only that run is judged."""

    line: Count
    earlier: Annotated[Count, "runs before it"]
    certain: Annotated[bool, "false: the program may have continued after an exception before that line"]


class LogEntry(TypedDict):
    """The log that was read."""

    files: list[str]
    lines: Count
    bytes: Count
    last_run: Annotated[LastRunEntry | None, "null: the file has only one run"]


class EndingEntry(TypedDict):
    """How the log of a run ends."""

    state: Annotated[str, ("enum", ("succeeded", "failed", "unknown"))]
    line: Annotated[str | None, "the line of the log that shows it"]


class Triage(TypedDict, total=False):
    """The findings about a failed run: of a launch, or in a log."""

    first_failure: FailedRankEntry | None
    probable_cause: CauseEntry | None
    secondary: Annotated[list[CauseEntry], "consequences of it, and later findings"]
    log: LogEntry | None
