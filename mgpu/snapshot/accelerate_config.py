"""What does the user want: the accelerate config, and the resources the run needs?"""

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
    """The resources that the user wants, as far as they were specified."""

    nodes: int = 1
    expect_gpus: int | None = None
    expect_free_bytes: int | None = None
    cpu_ranks: int | None = None  # ranks of a rehearsal on the CPU, if one was requested
    time_limit_s: float | None = None  # … of a smoke test on the CPU, and its level
    level: Label | None = None


@dataclass(frozen=True)
class Mark:
    """A line and column (from 1) in a config file."""

    line: int
    column: int


@dataclass(frozen=True)
class ConfigFault:
    """Something in a config file that could not be read: broken YAML, a duplicate key."""

    message: Text
    mark: Mark | None
    key: Label | None = None
    fatal: bool = False  # no part of the file could be used
    kind: Label = ""  # twice, bom; if fatal: tab, conflict, utf16, empty, suffix …
    stale_line: int | None = None  # if twice: line of the first occurrence, if nothing else is on it


@dataclass(frozen=True)
class Scalar:
    """A scalar as written in the file: its text before YAML converted it to a number or Boolean, and its position."""

    text: Label
    quoted: bool
    line: int
    column: int


@dataclass(frozen=True)
class DeepSpeedRefusal:
    """Why DeepSpeed stops at a file: its message, and the dotted key that caused it, if known."""

    message: Text
    key: Label | None = None


@dataclass(frozen=True)
class DeepSpeedVerdict:
    """The result of loading a DeepSpeed file with DeepSpeed itself in a subprocess. No refusals: it accepts it."""

    deepspeed: Version
    refusals: tuple[DeepSpeedRefusal, ...] = ()


@dataclass(frozen=True)
class DeepSpeedFile:
    """The JSON file that deepspeed_config.deepspeed_config_file names."""

    path: Identity[Label]  # as in the config; accelerate resolves it from the working directory of the launch
    exists: bool
    values: SecretsByKey[Mapping[str, Labels]] = field(default_factory=dict)
    fault: Same[Label | None] = None  # why it could not be read
    elsewhere: Moment[bool] = False  # a path of another machine: not even its first folders exist here
    similar: Moment[Label | None] = None  # a file here with the same name, if this one does not exist
    start: Moment[Label | None] = None  # a folder above the config that its path is relative to, if not the current one
    loader: Moment[DeepSpeedVerdict | None] = None  # None: DeepSpeed was not asked, or could not be


@dataclass(frozen=True)
class DeepSpeedJson:
    """A DeepSpeed file itself: one given to `configure --validate`, or named by a command of a job script."""

    path: Identity[Label]
    values: SecretsByKey[Mapping[str, Labels]] = field(default_factory=dict)  # as DeepSpeed itself reads the file
    marks: Moment[Mapping[Label, Mark]] = field(default_factory=dict)  # dotted key -> position of the key
    fault: Same[Label | None] = None  # why no program can read it, and where
    fault_at: Moment[Mark | None] = None
    strict_fault: Same[Label | None] = None  # why it is not strict JSON, which accelerate and Trainer need, and where
    strict_at: Moment[Mark | None] = None
    twice: Same[tuple[Label, ...]] = ()  # keys that are in it twice
    by_deepspeed: Same[bool] = False  # a command shows that only DeepSpeed itself reads it
    by_others: Same[bool] = False  # a command shows that accelerate or Trainer reads it
    loader: Moment[DeepSpeedVerdict | None] = None  # None: DeepSpeed was not asked, or could not be


@dataclass(frozen=True)
class Model:
    """The model trained with a config, read from the comment that mgpu writes."""

    params: Same[int]
    train: Same[Label]  # full, lora, qlora
    optimizer: Same[Label]  # adamw, adam8bit, sgd, adafactor
    trainable: Same[int | None] = None  # number of trained parameters, if not all


@dataclass(frozen=True)
class LoaderVerdict:
    """The result of loading the file with accelerate itself in a subprocess."""

    accepted: bool
    error: Moment[Text | None]
    accelerate: Version | None
    options: Same[tuple[Label, ...]] = ()  # that the file leaves to the command line; it was loaded with them


@dataclass(frozen=True)
class Config:
    """An accelerate config file: its values as mgpu read them, and the verdict of accelerate's own loader."""

    path: Assigned[Text]
    sha256: Assigned[Label | None]  # of the parsed values; comments and key order do not matter
    # as parsed by YAML, nested sections included
    values: SecretsByKey[Mapping[str, Annotated[Any, Redaction("label", name_at="main_process_ip")]]]
    marks: Moment[Mapping[Label, Mark]]  # dotted key -> position of the key
    faults: Moment[tuple[ConfigFault, ...]] = ()
    loader: Moment[LoaderVerdict | None] = None
    written_by_mgpu: bool = False
    # the next three come from comments that mgpu writes
    batch_per_gpu: Annotated[Same[int | None], Wording(none="not set")] = None
    accumulate: Same[int | None] = None  # gradient accumulation steps
    dataset_size: Same[int | None] = None  # samples
    # dotted key -> its value as written; without lists
    scalars: History[Mapping[Label, Scalar]] = field(default_factory=dict)
    deepspeed_file: DeepSpeedFile | None = None  # None: not set in the config
    model: Annotated[Model | None, Subject("model")] = None  # also from a comment
    # options that mgpu launch passes to the launcher, or that a job sets; from mgpu's comment
    launch_flags: Same[tuple[Label, ...]] = ()
    engine: Same[Label] = ""  # slurm, kubeflow ...: sets address, port and rank on each node; from mgpu's comment
    away: bool = False  # the file is for an engine's nodes, and this machine is not one of them
    given: Same[
        tuple[Label, ...]
    ] = ()  # options of a job script's command line, without their dashes; (): no job script
    cpu_job: Same[bool] = False  # the engine's job runs its ranks on the CPU; from mgpu's comment
    # on each machine, if they differ: num_processes is then as if all had as many as this one; from mgpu's comment
    ranks_of_machines: Same[tuple[int, ...]] = ()
    # if a command line has the values and no file: what sets its number of ranks, such as --nproc-per-node
    line: Same[Label] = ""

    @property
    def for_slurm(self) -> bool:
        """Whether a Slurm job script sets the rendezvous endpoint and the rank on each node."""
        return self.engine == "slurm"

    @property
    def distributed_type(self) -> str | None:
        """The type as accelerate reads it: YAML parses an unquoted NO as False."""
        value = self.values.get("distributed_type")
        return "NO" if value is False else value if isinstance(value, str) else None

    @property
    def on_cpu(self) -> bool:
        """Whether the file requests ranks on the CPU, even if there are GPUs."""
        return self.values.get("use_cpu") is True or self.distributed_type == "MULTI_CPU"

    @property
    def precision(self) -> str:
        """mixed_precision as accelerate reads it: in upper or lower case, or from the fp16 key of old files."""
        old = "fp16" if "mixed_precision" not in self.values and self.values.get("fp16") else "no"
        return str(self.values.get("mixed_precision") or old).lower()

    @property
    def port(self) -> int | None:
        """The rendezvous port in the file; None if it is not set or 0."""
        value = self.values.get("main_process_port")
        return value if type(value) is int and value > 0 else None

    @property
    def num_machines(self) -> int:
        """Number of nodes; 1 unless the file has an integer greater than 1."""
        value = self.values.get("num_machines", 1)
        return value if type(value) is int and value > 1 else 1

    @property
    def num_processes(self) -> int | None:
        """World size over all nodes; None if the file has no usable number."""
        value = self.values.get("num_processes")
        if value is None and self.distributed_type == "NO":
            return 1
        value = value.strip() if isinstance(value, str) else value
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 18:
            value = int(value)
        return value if type(value) is int and value > 0 else None

    @property
    def world(self) -> int | None:
        """Number of ranks of the whole run."""
        return sum(self.ranks_of_machines) or self.num_processes

    @property
    def ranks_here(self) -> int | None:
        """Number of processes the launcher starts on this node: integer division, as in accelerate."""
        return None if self.num_processes is None else self.num_processes // self.num_machines
