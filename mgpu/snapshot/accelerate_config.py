"""What does the user want: the accelerate config, and what was requested of the machine?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any

from mgpu.snapshot.fast_dataclass import dataclass
from mgpu.snapshot.field_types import (
    Assigned,
    History,
    Identity,
    Label,
    Labels,
    Moment,
    Redaction,
    Same,
    SecretsByKey,
    Subject,
    Text,
    Version,
    Wording,
)


@dataclass(frozen=True)
class Plan:
    """What the user wants of this machine, as far as it was said."""

    nodes: int = 1
    expect_gpus: int | None = None
    expect_free_bytes: int | None = None
    cpu_ranks: int | None = None  # a rehearsal on the CPU was asked for


@dataclass(frozen=True)
class Mark:
    """A line and column (from 1) in a config file."""

    line: int
    column: int


@dataclass(frozen=True)
class ConfigFault:
    """Something the reader could not make sense of: broken YAML, a duplicate key."""

    message: Text
    mark: Mark | None
    key: Label | None = None
    fatal: bool = False  # nothing of the file could be used
    kind: Label = ""  # twice, bom; of a fatal one what spoils the file: tab, conflict, utf16, empty, suffix …
    stale_line: int | None = None  # of twice: the line of the earlier one, where it has the line to itself


@dataclass(frozen=True)
class Scalar:
    """A single value as it stands in the file: its text before YAML made a number or a truth of it, and where."""

    text: Label
    quoted: bool
    line: int
    column: int


@dataclass(frozen=True)
class DeepSpeedFile:
    """The JSON file that deepspeed_config.deepspeed_config_file names."""

    path: Identity[Label]  # as the config names it; accelerate looks from the folder of the launch
    exists: bool
    values: SecretsByKey[Mapping[str, Labels]] = field(default_factory=dict)
    fault: Same[Label | None] = None  # why nothing could be made of it


@dataclass(frozen=True)
class Model:
    """What is trained with a config, as the comment says that mgpu writes."""

    params: Same[int]
    train: Same[Label]  # full, lora, qlora
    optimizer: Same[Label]  # adamw, adam8bit, sgd, adafactor
    trainable: Same[int | None] = None  # parameters that are trained, where not all are


@dataclass(frozen=True)
class LoaderVerdict:
    """What the real accelerate said of the file, asked in a child process."""

    accepted: bool
    error: Moment[Text | None]
    accelerate: Version | None


@dataclass(frozen=True)
class Config:
    """An accelerate config file: what mgpu understood of it, and what the real loader says."""

    path: Assigned[Text]
    sha256: Assigned[Label | None]  # of the parsed values, so that comments and order do not count
    # as YAML read them, nested sections included
    values: SecretsByKey[Mapping[str, Annotated[Any, Redaction("label", name_at="main_process_ip")]]]
    marks: Moment[Mapping[Label, Mark]]  # dotted key -> where the key stands
    faults: Moment[tuple[ConfigFault, ...]] = ()
    loader: Moment[LoaderVerdict | None] = None
    written_by_mgpu: bool = False
    # these three from the comments mgpu writes
    batch_per_gpu: Annotated[Same[int | None], Wording(none="not set")] = None
    accumulate: Same[int | None] = None  # gradient accumulation steps
    dataset_size: Same[int | None] = None  # samples
    # dotted key -> its value as written; no lists
    scalars: History[Mapping[Label, Scalar]] = field(default_factory=dict)
    deepspeed_file: DeepSpeedFile | None = None  # None: the config names none
    model: Annotated[Model | None, Subject("model")] = None  # from a comment, too
    # what mgpu launch adds for the launcher, or a job sets; from mgpu's comment
    launch_flags: Same[tuple[Label, ...]] = ()
    engine: Same[Label] = ""  # slurm, kubeflow ...: what gives each machine address, port and rank, from mgpu's comment
    away: bool = False  # it is for the nodes of an engine, and was read on a machine that is none of them
    cpu_job: Same[bool] = False  # the job of the engine runs its ranks on the CPU, from mgpu's comment

    @property
    def for_slurm(self) -> bool:
        """Whether a job script gives each machine the address of the first, the port and its rank."""
        return self.engine == "slurm"

    @property
    def distributed_type(self) -> str | None:
        """The type as accelerate takes it: YAML's unquoted NO is False, and means NO."""
        value = self.values.get("distributed_type")
        return "NO" if value is False else value if isinstance(value, str) else None

    @property
    def on_cpu(self) -> bool:
        """Whether the file asks for ranks on the CPU, GPUs or not."""
        return self.values.get("use_cpu") is True or self.distributed_type == "MULTI_CPU"

    @property
    def precision(self) -> str:
        """mixed_precision as accelerate takes it: in any case, and from the fp16 of old files."""
        old = "fp16" if "mixed_precision" not in self.values and self.values.get("fp16") else "no"
        return str(self.values.get("mixed_precision") or old).lower()

    @property
    def port(self) -> int | None:
        """The rendezvous port the file names; None: it leaves it open (0 means that, too)."""
        value = self.values.get("main_process_port")
        return value if type(value) is int and value > 0 else None

    @property
    def num_machines(self) -> int:
        """Machines the launch spans; 1 unless the file has a sensible larger number."""
        value = self.values.get("num_machines", 1)
        return value if type(value) is int and value > 1 else 1

    @property
    def num_processes(self) -> int | None:
        """World size over all machines; None when the file has no usable number."""
        value = self.values.get("num_processes")
        if value is None and self.distributed_type == "NO":
            return 1
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 18:
            value = int(value)
        return value if type(value) is int and value > 0 else None

    @property
    def ranks_here(self) -> int | None:
        """Processes the launcher starts on this machine: integer division, as accelerate does it."""
        return None if self.num_processes is None else self.num_processes // self.num_machines
