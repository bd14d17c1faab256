"""What did each rank do when the user's own script ran for a few optimizer steps?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from mgpu.snapshot.exception_facts import LineValues
from mgpu.snapshot.fast_dataclass import dataclass
from mgpu.snapshot.field_types import Label, Pid, Text

# stopped: all ranks made the steps, and were stopped. finished: the script ended before. failed: a rank failed.
# stalled: no rank made progress any more. timed_out: the limit was reached.
RehearsalEnd = Literal["stopped", "finished", "failed", "stalled", "timed_out", "interrupted"]


@dataclass(frozen=True)
class Checksum:
    """A parameter or gradient on one rank. None: not a finite number."""

    total: float | None
    norm: float | None
    sample: float | None  # the weighted sum of some of its values


@dataclass(frozen=True)
class OptimizerStep:
    """One step of one optimizer. The seconds are those since the step before; None: it did not return."""

    number: int  # from 1
    gradients: tuple[Checksum | None, ...] = ()  # None: the parameter has no gradient
    rate: float | None = None  # the learning rate
    batches: int = 0  # with a backward pass since the step before
    unsynced: bool = False  # a backward pass since the step before was inside no_sync
    line: Text | None = None  # the user's line, as path:number
    backward_line: Text | None = None
    step_s: float | None = None
    loader_s: float | None = None
    backward_s: float | None = None
    optimizer_s: float | None = None
    saving_s: float | None = None
    recording_s: float | None = None  # that recording took, which is not in `step_s`
    samples: int | None = None
    of_pass: int | None = None  # of its loader over the data, from 0, in which the last trained batch was
    drawn: int | None = None  # batches that the loader had delivered in that pass


@dataclass(frozen=True)
class RehearsedOptimizer:
    """An optimizer, its parameters before its first step, and its steps."""

    kind: Label
    parameters: int
    sharded: int = 0  # parameters of which a rank has only its part
    wrapped: int = 0  # parameters of a model that DDP, FSDP or DeepSpeed wraps
    names: tuple[Label, ...] = ()  # of the first parameters; "": not known
    shapes: tuple[Label, ...] = ()
    start: tuple[Checksum | None, ...] = ()
    line: Text | None = None  # of its first step
    steps: tuple[OptimizerStep, ...] = ()


@dataclass(frozen=True)
class Wrapper:
    """A model that was prepared for several ranks."""

    kind: Label  # DDP, FSDP, FSDP2, DeepSpeed
    parameters: int
    ranks: int | None = None  # that exchange its gradients
    dropout: bool = False
    line: Text | None = None
    batch_norms: int = 0  # layers with statistics of the rank's own batches


@dataclass(frozen=True)
class Batch:
    """A batch that a loader delivered."""

    number: int  # within its iterator, from 0
    epoch: int = 0  # number of the loader's iterator, from 0
    fingerprint: Label | None = None
    each: tuple[Label, ...] = ()  # fingerprints of its samples
    samples: int | None = None


@dataclass(frozen=True)
class RehearsedLoader:
    """A DataLoader, and what it delivered."""

    dataset: Label
    samples: int | None = None  # of the dataset; None: it has no length
    length: int | None = None  # in batches
    batch: int | None = None
    sampler: Label = ""
    batch_sampler: Label = ""
    replicas: int | None = None  # that the sampler divides the data among
    shuffle: bool | None = None
    workers: int = 0
    line: Text | None = None
    trains: bool = False  # a backward pass followed one of its batches
    epochs: tuple[int | None, ...] = ()  # the sampler's epoch at the start of each iterator
    delivered: tuple[int | None, ...] = ()  # batches of each pass over the data; None: it did not come to its end
    batches: tuple[Batch, ...] = ()

    @property
    def largest(self) -> int | None:
        """The samples of a full batch as the rank got it: the loader's own number may be that of all ranks together."""
        return max((one.samples for one in self.batches if one.samples), default=self.batch)

    @property
    def whole(self) -> Mapping[int, int]:
        """The number of batches of each pass that came to its end, by its number."""
        return {number: count for number, count in enumerate(self.delivered) if count is not None}


@dataclass(frozen=True)
class Call:
    """A collective that the script called."""

    name: Label
    shape: Label = ""
    dtype: Label = ""
    ranks: int | None = None  # None: all ranks
    line: Text | None = None
    detail: Label = ""  # further arguments that must be equal on all ranks: "src=0", "op=SUM"


@dataclass(frozen=True)
class WrittenFile:
    """A file that a rank wrote."""

    path: Text
    how: Label  # write, append, save, rename, remove
    line: Text | None = None
    cache: bool = False  # in a folder that a variable names as the cache of a library
    lock: Text | None = None  # the lock file that the rank held while it wrote


@dataclass(frozen=True)
class KeptFile:
    """A file of the user's that the script overwrote, moved or deleted. After the run it was put back, or is not."""

    path: Text
    line: Text | None = None  # of the first change, as path:number
    why: Text | None = None  # it was not put back, or (refused) not kept; None: it was put back
    refused: bool = False  # it could not be kept: the rank was stopped before it changed the file
    size_bytes: int | None = None  # of a file that could not be kept
    copy: Text | None = None  # where its content is, if it was not put back
    late: bool = False  # it had been changed since the start of the run before it was kept


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint that a rank wrote, and then read again."""

    path: Text
    ok: bool | None  # None: it contains other objects than tensors, and was not read
    error: Text | None = None
    read_s: float | None = None
    size_bytes: int | None = None
    how: Label | None = None  # mgpu wrote it (--checkpoint-now), with this function; None: the script wrote it
    write_s: float | None = None


@dataclass(frozen=True)
class MeasuredStep:
    """A step in which only time was taken, in seconds. `step_s` is all of it; the others are parts of it."""

    step_s: float
    loader_s: float
    exchange_s: (
        float | None
    )  # from the last gradient of this rank to the end of backward, and collectives; None: unknown
    optimizer_s: float
    saving_s: float
    samples: int = 0  # that this rank's loaders delivered

    @property
    def compute_s(self) -> float:
        """Return what is left: forward, backward, and the rest of the script."""
        return self.step_s - self.loader_s - (self.exchange_s or 0.0) - self.optimizer_s - self.saving_s


@dataclass(frozen=True)
class Measured:
    """The measured steps of one rank, which follow the watched ones."""

    steps: tuple[MeasuredStep, ...] = ()
    batch: int | None = None  # samples of the largest batch that was trained
    queued: int = 0  # batches that a loader's workers may have prepared before the first measured step
    threads: int | None = None  # of torch on the CPU
    static_bytes: int | None = None  # allocated on the GPU between two steps, without gradients; None: no GPU
    peak_bytes: int | None = None  # allocated on the GPU at most
    reserved_bytes: int | None = None


@dataclass(frozen=True)
class Loss:
    """A loss that backward was called with."""

    value: float | None  # None: not finite
    text: Label = ""  # of a value that is not finite
    line: Text | None = None


@dataclass(frozen=True)
class RehearsedRank:
    """One rank of the script."""

    rank: int
    pid: Pid | None = None
    launched_world: int | None = None  # as the launcher set it
    world: int | None = None  # of its process group; None: it started none
    backend: Label | None = None
    replaced_backend: Label | None = None  # gloo took its place, because the ranks use no GPUs
    group_line: Text | None = None
    subgroups: tuple[int, ...] = ()  # sizes of further process groups
    other_library: Label | None = None  # loaded, and able to exchange gradients without torch.distributed
    optimizer_exchanges: bool = False  # an optimizer called collectives inside its step
    averages_parameters: Label | None = None  # what averages parameters instead of gradients: "LocalSGD"
    joins_uneven: bool = False  # it used Join, with which ranks may have different numbers of batches
    prepared: tuple[Label, ...] = ()  # what accelerate's prepare was called with
    unused: tuple[Label, ...] = ()  # strategies that were requested, but accelerate did not use on these ranks
    wrappers: tuple[Wrapper, ...] = ()
    optimizers: tuple[RehearsedOptimizer, ...] = ()
    losses: tuple[Loss, ...] = ()
    loaders: tuple[RehearsedLoader, ...] = ()
    calls: tuple[Call, ...] = ()
    files: tuple[WrittenFile, ...] = ()
    checkpoints: tuple[SavedCheckpoint, ...] = ()
    random_states: Mapping[Label, Label] = field(default_factory=dict)  # by library, at the first batch
    raised: Text | None = None  # the exception that ended its script
    raised_line: Text | None = None
    values: tuple[LineValues, ...] = ()  # on that line, and on the lines that called it
    raised_after_stop: bool = False  # another rank had left the rehearsal before
    reached: bool = False  # it made all steps
    inside_call: bool = False  # its last record is a collective: it did not return from it, or ended right after it
    ended: bool = False  # its script ran to its end, or was stopped cleanly
    measured: Measured | None = None
    unmeasured: Text | None = None  # why no steps were measured
    checkpoint_refused: Text | None = None  # why --checkpoint-now wrote none
    stopped_line: Text | None = None  # the user's line at which it was when the run made no progress
    host_bytes: int | None = None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None

    @property
    def steps(self) -> int:
        """Return the optimizer steps that were completed, of the optimizer with the most."""
        return max((sum(s.step_s is not None for s in one.steps) for one in self.optimizers), default=0)


@dataclass(frozen=True)
class Measurement:
    """How fast a script trains, and in how much memory.

    Seconds: `step_s` is the median of the measured steps, its parts are means of the steps around it, over all ranks.
    Bytes: of the rank with the most.
    """

    script: Text
    script_sha256: Label
    arguments_sha256: Label
    ranks: int
    cpu: bool
    steps: int
    step_s: float
    step_mad_s: float  # median absolute deviation
    loader_s: float
    compute_s: float  # forward, backward, and the rest of the script
    optimizer_s: float
    exchange_s: float | None = None  # between ranks, without waiting: of the rank that comes last
    waiting_s: float | None = None  # for slower ranks
    samples_per_s: float | None = None  # of all ranks
    batch: int | None = None  # samples per batch and rank
    queued: int = 0
    checkpoint_s: float | None = None
    static_bytes: int | None = None
    peak_bytes: int | None = None
    reserved_bytes: int | None = None
    host_bytes: int | None = None
    precision: Label | None = None
    strategy: Label | None = None  # the config's distributed_type
    taken: Label | None = None
    run: Text | None = None  # its folder

    @property
    def activation_bytes(self) -> int | None:
        """Return what exists only within a step: activations and gradients. None: not on a GPU."""
        if self.static_bytes is None or self.peak_bytes is None:
            return None
        return max(0, self.peak_bytes - self.static_bytes)


@dataclass(frozen=True)
class ScalingRun:
    """The same script on fewer ranks, or why it could not be measured."""

    ranks: int
    measurement: Measurement | None = None
    why: Text = ""


@dataclass(frozen=True)
class ScriptCause:
    """Why the script failed, according to its log; or why it made no progress, according to its ranks."""

    id: Label
    title: Text
    why: Text = ""
    fix: Text = ""
    rank: int | None = None  # that keeps the others waiting
    line: Text | None = None  # of that rank, as path:number


@dataclass(frozen=True)
class Rehearsal:
    """The user's script, run for some optimizer steps."""

    script: Text
    wanted: int  # optimizer steps
    expected: int  # ranks
    ended: RehearsalEnd
    ranks: tuple[RehearsedRank, ...] = ()
    cpu: bool = False
    launcher: Label = ""
    exit_code: int | None = None
    took_s: float = 0.0
    limit_s: float = 0.0
    cause: ScriptCause | None = None
    measurement: Measurement | None = None
    scaling: tuple[ScalingRun, ...] = ()  # on fewer ranks, the least first
    log: Text | None = None
    script_sha256: Label | None = None
    folder: Text | None = None  # in which the script started
    own_folder: Text | None = None  # of the run
    kept: tuple[KeptFile, ...] = ()  # of the user's, that the script changed

    @property
    def steps(self) -> int:
        """Return the optimizer steps that every rank completed."""
        return min((min(rank.steps, self.wanted) for rank in self.ranks), default=0)
