"""What does each rank of a running job do, if the run has made no progress for a long time?"""

from __future__ import annotations

from collections.abc import Iterable

from mgpu.snapshot.fast_dataclass import dataclass
from mgpu.snapshot.field_types import Label, Name, Pid, Text

AS_RECORDED = "as recorded"  # the state of a rank of which only the flight recorder's file is known
NOT_LOADED = "its Python has not loaded the recorder (options -I, -E, -S?)"  # why its stack is not known


@dataclass(frozen=True)
class StackFrame:
    """One Python frame of a thread."""

    file: Text
    line: int
    function: Label
    text: Text = ""  # the line, stripped; "": the file cannot be read here
    library: bool = False  # in an installed package, or in Python itself

    @property
    def place(self) -> str:
        """As a finding shows it: "train.py:31"."""
        return f"{self.file.rpartition('/')[2]}:{self.line}"


def own_frame(frames: Iterable[StackFrame]) -> StackFrame | None:
    """Return the innermost frame in the user's own files; in an installed program, None."""
    return next((frame for frame in frames if not frame.library), None)


# What torch's flight recorder calls the types of a tensor's values, and what a script calls them.
_TYPES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "bfloat16": "bfloat16",
    "bool": "bool",
    "long": "int64",
    "int": "int32",
    "short": "int16",
    "char": "int8",
    "byte": "uint8",
}


def _values(shape: str) -> str:
    """Return "1 int64 value" for "1 long"; another form unchanged."""
    number, _, kind = shape.partition(" ")
    known = _TYPES.get(kind)
    return f"{number} {known} {'value' if number == '1' else 'values'}" if known and number.isdecimal() else shape


@dataclass(frozen=True)
class Collective:
    """One collective in torch's flight recorder."""

    name: Label  # "all_reduce"
    group: Label  # "0" is the default process group
    sequence: int  # number of collectives of this group that the rank had started, with this one
    shape: Label = ""  # "1000 x Float"; "": it has no data
    open: bool = False  # started, and not completed
    p2p: bool = False  # a send or receive
    caller: StackFrame | None = None  # the user's line that called it

    @property
    def title(self) -> str:
        """As a finding shows it: "all_reduce #42 of 1000 float32 values"."""
        return f"{self.name} #{self.sequence}{f' of {_values(self.shape)}' if self.shape else ''}"


@dataclass(frozen=True)
class Worker:
    """A process that a rank has started."""

    pid: Pid
    state: Label | None  # as in `HangRank`
    busy: bool | None = None
    io: bool | None = None
    kernel_wait: Label | None = None
    frames: tuple[StackFrame, ...] = ()  # of its main thread; empty: not a Python process with the recorder
    loader: bool = False  # a worker of a DataLoader


@dataclass(frozen=True)
class HangRank:
    """What one rank does. The frames are those of its main thread, innermost first."""

    rank: int
    pid: Pid | None = None
    state: Label | None = None  # "running", "sleeping", "stopped", "in uninterruptible sleep"; None: it has ended
    busy: bool | None = None  # used more than a tenth of a CPU between the samples; None: one sample only
    io: bool | None = None  # read or wrote data between the samples
    kernel_wait: Label | None = None  # the kernel's function in which its main thread waits
    waits_for: Text | None = None  # the file, pipe or socket that it reads or locks
    frames: tuple[StackFrame, ...] = ()
    moved: bool | None = None  # between the samples
    silent: Label | None = None  # why it wrote no stack; without frames otherwise: it runs no Python code any more
    steps: int | None = None  # optimizer steps so far
    step_s: float | None = None  # since the last one
    batch_wait_s: float | None = None  # how long it has been waiting for a batch
    raised: Text | None = None  # the exception that ended its script: "ValueError: no data"
    raised_at: StackFrame | None = None
    collectives: tuple[Collective, ...] = ()  # the last ones, oldest first
    unrecorded: Label | None = None  # why there are no collectives
    workers: tuple[Worker, ...] = ()
    stopped_above: tuple[Pid, ...] = ()  # processes above a stopped rank that are stopped too: its launcher, mgpu
    at_exit: bool = False  # its script has returned, and an exit function runs
    host: Name | None = None  # if the run spans several
    unanswered: tuple[Text, ...] = ()  # addresses that do not acknowledge its data: "10.0.0.2:29500 (the store)"

    @property
    def own_frame(self) -> StackFrame | None:
        """The innermost frame in the user's own code."""
        return own_frame(self.frames)

    @property
    def pending(self) -> Collective | None:
        """The collective that the rank has started last and that has not completed."""
        return next((one for one in reversed(self.collectives) if one.open), None)


@dataclass(frozen=True)
class RasCount:
    """How many collectives of one type the ranks of a communicator have launched, according to NCCL's RAS."""

    operation: Label  # "AllReduce"; "collective": NCCL 2.24 and 2.25 count all types together
    launched: int
    number: int  # of ranks
    ranks: tuple[int, ...] = ()  # which, if it is a minority; RAS names no others


@dataclass(frozen=True)
class RasCommunicator:
    """A communicator with a problem, according to NCCL's RAS."""

    name: Label  # its hash, as in NCCL's log
    missing: tuple[int, ...] = ()  # ranks of the communicator that do not answer
    counts: tuple[RasCount, ...] = ()
    errors: tuple[Label, ...] = ()  # "Rank 3 reported ncclRemoteError"


@dataclass(frozen=True)
class LeftLoop:
    """A loop of the user's code in which some ranks are, and which others have left."""

    file: Text
    line: int
    code: Text  # of that line: "for step in range(args.steps):"
    inside: tuple[int, ...]  # ranks
    left: tuple[int, ...]

    @property
    def place(self) -> str:
        """As a finding shows it: "train.py:31"."""
        return f"{self.file.rpartition('/')[2]}:{self.line}"


@dataclass(frozen=True)
class Hang:
    """A run without progress: no output, optimizer step or batch."""

    quiet_s: float
    longest_s: float  # the longest time without progress before
    ranks: tuple[HangRank, ...] = ()
    expected: int = 0  # ranks on this machine
    world: int = 0  # of the whole run; more than `expected` if it spans nodes
    timeout_s: float | None = None  # after which torch gives up, from the flight recorder
    backend: Label | None = None  # gloo, nccl
    ras: tuple[RasCommunicator, ...] = ()  # with problems; empty: none, or NCCL's RAS was not reached
    left_loop: LeftLoop | None = None
