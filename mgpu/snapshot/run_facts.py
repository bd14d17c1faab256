"""How did a run end: its logs, its ranks and its GPUs?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from mgpu.snapshot.fast_dataclass import dataclass
from mgpu.snapshot.field_types import Label, Name, Pid, Text


@dataclass(frozen=True)
class Seen:
    """A signature that lines of a log bear: the first such line, and how many there are."""

    signature: Label  # id of the check
    text: Text  # without torch's prefix, colours and control bytes; cut; secrets masked
    file: Text
    line: int  # counted from 1
    rank: int | None = None
    at: Label | None = None  # ISO time, where the line tells one
    times: int = 1
    ranks: tuple[int, ...] = ()  # all of which a line is known to come from
    groups: Mapping[str, Text] = field(default_factory=dict)  # what the pattern's named groups matched in the first


@dataclass(frozen=True)
class Raised:
    """A Python exception that nothing caught, as a traceback in a log tells it."""

    type: Label  # as printed: "torch.OutOfMemoryError", "ValueError"
    message: Text
    file: Text  # the log
    line: int  # of the exception's own line
    rank: int | None = None
    at: Label | None = None
    place: Text | None = None  # the deepest frame in the user's own files: "train.py:41 in main"
    times: int = 1
    ranks: tuple[int, ...] = ()
    cause: Text | None = None  # of a chain ("During handling of ...") the first: "KeyError: 'x'"
    signatures: tuple[Label, ...] = ()  # ids of the rows, noise included, that lines of its message bear
    after: int = 0  # lines that its file holds after it
    caught: bool = False  # its rank went on, and ended by another one
    loader: bool = False  # it came up through torch's DataLoader
    by_torch: bool = False  # torch named the rank before it ("[rank1]: "), as it does with what nobody caught
    of_launcher: bool = False  # a launcher raised it on the end of its child: never what went wrong


@dataclass(frozen=True)
class Stalled:
    """A collective that a rank's watchdog gave up, as ProcessGroupNCCL tells it."""

    rank: int | None
    sequence: int | None  # SeqNum: how many collectives this rank had begun
    operation: Label | None = None  # "ALLREDUCE"
    timeout_s: float | None = None
    completed: int | None = None  # the last that was done
    at: Label | None = None


@dataclass(frozen=True)
class Fallen:
    """A row of torchrun's table of failed ranks."""

    rank: int
    exit_code: int  # negative for a signal
    first: bool  # the launcher calls it the root cause
    local_rank: int | None = None
    host: Name | None = None
    pid: Pid | None = None
    at: Label | None = None
    error: Text | None = None  # what the rank left in its error file


@dataclass(frozen=True)
class Log:
    """What the logs of one run tell."""

    files: tuple[Text, ...]
    size_bytes: int
    lines: int
    seen: tuple[Seen, ...] = ()  # in the order they came
    raised: tuple[Raised, ...] = ()
    fallen: tuple[Fallen, ...] = ()
    stalled: tuple[Stalled, ...] = ()
    ranks: tuple[int, ...] = ()  # that are known to have written
    last: Text | None = None  # the last line before the launcher's own, of one that tells of a failed rank


# fmt: off
SIGNAL_NAMES = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
    9: "SIGKILL", 10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM",
    16: "SIGSTKFLT", 24: "SIGXCPU", 25: "SIGXFSZ", 26: "SIGVTALRM", 27: "SIGPROF", 29: "SIGIO", 30: "SIGPWR",
    31: "SIGSYS",
}
# fmt: on


@dataclass(frozen=True)
class EndedRank:
    """How one rank ended."""

    rank: int
    exit_code: int | None = None  # negative for a signal; None: not known
    first: bool = False  # the first that failed
    local_rank: int | None = None
    host: Name | None = None
    pid: Pid | None = None
    gpu: int | None = None  # NVML's index
    at: Label | None = None
    error: Text | None = None  # torchelastic's error file: "ValueError: ..."
    state: Label | None = None  # of its process when mgpu was asked to stop the run: running, sleeping, stopped ...
    idle: bool | None = None  # it used no CPU time in the last moments before that
    gone_s: float | None = None  # seconds after the start when its process was seen to be gone while others went on


@dataclass(frozen=True)
class GpuWork:
    """What one GPU of a run did, sampled by NVML from outside. None: NVML does not tell."""

    index: int  # NVML's
    uuid: Label
    rank: int | None = None  # that is to have it, when there is one a GPU
    processes: tuple[Pid, ...] | None = None  # of the run, the most that were seen on it at once
    samples: int = 0  # from the first to the last in which any GPU of the run was busy; none ever was: all
    busy_percent: float | None = None  # mean of the utilisation over these samples
    busy_share: float | None = None  # of these samples, those in which it was busy: 0.0 to 1.0
    peak_bytes: int | None = None  # memory in use, other programs' included
    total_bytes: int | None = None
    before_bytes: int | None = None  # memory in use before the run
    idle_s: float | None = None  # it was not busy for so long, at last; None: it never was
    now_percent: float | None = None  # mean of the utilisation in the last half minute
    power_percent: float | None = None  # of its limit, mean of the last half minute
    usual_power_percent: float | None = None  # mean of all samples in which it was busy


@dataclass(frozen=True)
class Run:
    """How a launched training ended, as far as mgpu saw it."""

    exit_code: int  # the training's own: 0, the first failing rank's, 128 + N for a signal N
    launcher_code: int  # negative for a signal
    seconds: float
    signalled: Label | None = None  # mgpu was asked to stop it: SIGINT, SIGTERM ...
    timed_out: bool = False  # --timeout
    ranks: tuple[EndedRank, ...] = ()
    expected: int | None = None  # ranks on this machine
    oom_kills: int | None = None  # by the kernel in this control group meanwhile; None: no counter
    memory_limit_bytes: int | None = None  # of the control group; None: no limit
    memory_total_bytes: int | None = None  # of the machine
    memory_lowest_bytes: int | None = None  # the least that was available meanwhile
    # "79 on 0000:1b:00.0: fallen off the bus"; None: the kernel's log is not ours
    xids: tuple[Label, ...] | None = None
    killed: tuple[Text, ...] | None = None  # by the kernel for memory: "python (pid 4711)"; None as above
    gpus: tuple[GpuWork, ...] | None = None  # None: no NVML here
    gpus_after_s: float | None = None  # the GPUs were sampled from this long after the start
    gpus_gap: Label | None = None  # why GPUs that are there were not watched, or not to the end
    going: bool = False  # a look at a run that has not ended: exit codes tell nothing yet
    quiet_s: float | None = None  # it has printed nothing for so long
    slurm: Label | None = None  # what Slurm says of the job: "TIMEOUT", "OUT_OF_MEMORY"
    left_over: int = 0  # processes that mgpu had to end afterwards
    log: Text | None = None  # the folder
    watched: bool = True  # False: a job elsewhere, of which only what it printed and what Slurm says is known
