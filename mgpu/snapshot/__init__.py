"""What is known about this machine, this environment and this run?

Every fact that a check can read is a field of `Snapshot`; each file of this folder defines one group. `None` means not
known, and `gaps` has the reason. Absence (torch not installed, no NVIDIA driver) is a fact of its own, not
a gap. A Snapshot is frozen, converts to and from JSON, and collects no private data: no argv of other processes, only
allow-listed environment variables. Names end in units; GPU indices are NVML's (PCI order), never CUDA's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Literal

from mgpu.snapshot.accelerate_config import (
    Config,
    ConfigFault,
    DeepSpeedFile,
    DeepSpeedJson,
    DeepSpeedRefusal,
    DeepSpeedVerdict,
    LoaderVerdict,
    Mark,
    Model,
    Plan,
    Scalar,
)
from mgpu.snapshot.exception_facts import (
    CutTraceback,
    Definition,
    EmptyLoop,
    HandledException,
    LineValues,
    ListedFolder,
    ReadFile,
    TracedCall,
    UncaughtException,
)
from mgpu.snapshot.fast_dataclass import dataclass
from mgpu.snapshot.field_types import Label, Moment, Once, SecretsByKey, Subject, Text, Variable, Version
from mgpu.snapshot.fleet_facts import (
    OTHER_MGPU,
    Difference,
    Fleet,
    HostAccess,
    NodeAddresses,
    NodeClass,
    NodeFault,
    NodePath,
    Outlier,
)
from mgpu.snapshot.hang_facts import (
    AS_RECORDED,
    NOT_LOADED,
    Collective,
    Hang,
    HangRank,
    LeftLoop,
    RasCommunicator,
    RasCount,
    StackFrame,
    Worker,
)
from mgpu.snapshot.hardware import Driver, Gpu, GpuProcess, GpuRun, Link, NvLink, NvmlWait, PeerCopy, Visible
from mgpu.snapshot.job_script import (
    Directive,
    JobCommand,
    JobDeepSpeed,
    JobFile,
    JobFolder,
    JobMissing,
    JobOption,
    JobScript,
    JobSet,
    JobText,
    JobTrap,
    JobUnread,
    JobVariable,
)
from mgpu.snapshot.json_form import BadSnapshot, decode, encode, hints_of
from mgpu.snapshot.local_rules import BrokenPlugin, LocalRules, WaivedCheck
from mgpu.snapshot.networking import HcaPort, InfiniBand, Interface, InterfaceKind, Master, Network
from mgpu.snapshot.operating_system import (
    Container,
    Folder,
    Host,
    Kernel,
    KernelEvent,
    KernelLog,
    LeftFile,
    Leftovers,
    LeftProcess,
    Storage,
    System,
)
from mgpu.snapshot.pci_bus import Distance, Pci, PciDevice, bus_address, nearest_nics, path_between
from mgpu.snapshot.rehearsal_facts import (
    Batch,
    Call,
    Checksum,
    KeptFile,
    Loss,
    Measured,
    MeasuredStep,
    Measurement,
    OptimizerStep,
    Rehearsal,
    RehearsalEnd,
    RehearsedLoader,
    RehearsedOptimizer,
    RehearsedRank,
    SavedCheckpoint,
    ScalingRun,
    ScriptCause,
    Wrapper,
    WrittenFile,
)
from mgpu.snapshot.run_facts import (
    SIGNAL_NAMES,
    Circumstance,
    EndedRank,
    Exchange,
    FailedRank,
    GpuWork,
    LastRun,
    LastStep,
    Log,
    LoneWork,
    NotFinite,
    OwnError,
    Pace,
    Pause,
    PrintedStack,
    RankPace,
    Run,
    SignatureMatch,
    StalledCollective,
    seconds_between_lines,
)
from mgpu.snapshot.slurm_cluster import Association, Cluster, Gres, NodeKind, Partition, Slurm
from mgpu.snapshot.smoke_facts import (
    Bandwidth,
    Baseline,
    Checkpoint,
    FailedRehearsal,
    NcclLine,
    NcclLog,
    PairRun,
    Peer,
    Rank,
    Ranks,
    RendezvousEndpoint,
    Scaling,
    Stamp,
    Step,
    Timed,
    Trial,
)
from mgpu.snapshot.software_stack import (
    Libraries,
    Library,
    Nccl,
    NcclLibrary,
    Python,
    Pytorch,
    TorchDevice,
    TorchRuntime,
)
from mgpu.snapshot.timeline_facts import RankTimeline, TimedStep, Timeline
from mgpu.snapshot.training_script import (
    Framework,
    Guard,
    InScript,
    Script,
    ScriptCall,
    ScriptClass,
    ScriptFault,
    ScriptFunction,
    ScriptJump,
    ScriptLoop,
    ScriptOption,
    ScriptSet,
    ScriptStart,
    ScriptText,
)
from mgpu.structured_text import Malformed, json_of

SCHEMA = 1

GapKind = Literal["not_supported", "no_permission", "not_asked", "no_driver", "timed_out", "crashed"]
# A fact whose probe timed out or crashed makes the verdict "unknown"; the other kinds are only counted.
UNSETTLING: frozenset[str] = frozenset({"timed_out", "crashed"})


@dataclass(frozen=True)
class Gap:
    """The reason a fact is not known. `reason` is a clause: "NVML did not answer in 8 s"."""

    kind: GapKind
    reason: Text


@dataclass(frozen=True)
class Snapshot:
    """All facts. A check declares the facts it reads; if one is None, the check is skipped with the gap's reason."""

    host: Host | None = None
    python: Python | None = None
    driver: Driver | None = None
    gpus: Annotated[tuple[Gpu, ...] | None, Subject("GPU")] = None
    links: Annotated[tuple[Link, ...] | None, Subject("GPU links")] = None
    nvml_wait: Moment[NvmlWait | None] = None
    env: SecretsByKey[Mapping[str, Variable] | None] = None
    visible: Moment[Visible | None] = None
    pytorch: Annotated[Pytorch | None, Subject("torch")] = None
    torch_runtime: Annotated[TorchRuntime | None, Subject("torch")] = None
    nccl: Annotated[Nccl | None, Subject("NCCL")] = None
    packages: Mapping[str, Version] | None = None
    system: System | None = None
    container: Annotated[Container | None, Subject("container")] = None
    network: Network | None = None
    slurm: Annotated[Slurm | None, Subject("Slurm")] = None
    pci: Annotated[Pci | None, Subject("PCI")] = None
    infiniband: Annotated[InfiniBand | None, Subject("InfiniBand")] = None
    kernel: Annotated[Kernel | None, Subject("kernel")] = None
    kernel_log: Moment[KernelLog | None] = None
    storage: Storage | None = None
    leftovers: Moment[Leftovers | None] = None
    libraries: Libraries | None = None
    gpu_runs: Annotated[Once[tuple[GpuRun, ...] | None], Subject("GPU run")] = None
    plan: Moment[Plan | None] = None
    config: Annotated[Config | None, Subject("config")] = None
    deepspeed_json: Moment[tuple[DeepSpeedJson, ...] | None] = None
    ranks: Moment[Ranks | None] = None
    nccl_log: Moment[NcclLog | None] = None
    baseline: Moment[Baseline | None] = None
    stamp: Moment[Stamp | None] = None
    script: Moment[Script | None] = None
    job_script: Moment[JobScript | None] = None
    log: Moment[Log | None] = None
    run: Moment[Run | None] = None
    hang: Moment[Hang | None] = None
    fleet: Moment[Fleet | None] = None
    rehearsal: Moment[Rehearsal | None] = None
    local_rules: Moment[LocalRules | None] = None
    timeline: Moment[Timeline | None] = None
    gaps: Mapping[Label, Gap] = field(default_factory=dict)
    schema: int = SCHEMA
    taken: Label | None = None  # ISO time, UTC
    mgpu: Version | None = None
    redacted: bool = False

    def gap(self, fact: str) -> Gap:
        """Return the reason `fact` is not known; a default if none was recorded."""
        return self.gaps.get(fact) or Gap("not_asked", f"{fact.replace('_', ' ')} was not checked")

    def left_out(self, fact: str) -> bool:
        """Whether `fact` was deliberately not collected. A fact that is missing from `gaps` does not count."""
        return getattr(self, fact) is None and fact in self.gaps and self.gaps[fact].kind == "not_asked"


FACTS: tuple[str, ...] = tuple(
    f.name for f in dataclasses.fields(Snapshot) if f.name not in {"gaps", "schema", "taken", "mgpu", "redacted"}
)


# fmt: off
# Facts about a run and its config, not the machine: present only if they were requested.
OF_A_RUN = frozenset({
    "config", "deepspeed_json", "ranks", "nccl_log", "baseline", "stamp", "gpu_runs", "script", "job_script", "log",
    "run", "hang", "fleet", "rehearsal", "local_rules", "timeline",
})
# fmt: on


def to_json(snapshot: Snapshot) -> dict[str, Any]:
    """Return the Snapshot as plain JSON values."""
    plain: dict[str, Any] = encode(snapshot)
    return plain


def from_json(data: Any) -> Snapshot:
    """Return the Snapshot read from JSON values. Raises BadSnapshot with the path of the first invalid key."""
    if isinstance(data, dict) and data.get("schema", SCHEMA) != SCHEMA:
        raise BadSnapshot(f"schema {data.get('schema')!r} is not {SCHEMA}: saved by another version of mgpu")
    return decode(Snapshot, data, "")


def loads(text: str) -> Snapshot:
    """Return the Snapshot read from the text of a saved file. Raises BadSnapshot."""
    try:
        data = json_of(text)
    except Malformed as error:
        where = f" (line {error.line}, column {error.column})" if error.line else ""
        raise BadSnapshot(f"{error}{where}") from None
    return from_json(_without_notes(data))


def _without_notes(data: Any) -> Any:
    """Return the machine in a file that also has notes on its origin (`what`, `from`), as in `tests/machines`."""
    if not (isinstance(data, dict) and {"what", "from"} <= data.keys()):
        return data
    if "snapshot" not in data:
        convert = "python -m tests.machines NAME > FILE"
        raise BadSnapshot(f"it describes a machine in the short form of mgpu's tests, which {convert} converts")
    return data["snapshot"]
