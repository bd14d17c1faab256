"""How did a run end: its logs, its ranks and its GPUs?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field

from mgpu.durations import seconds_between
from mgpu.snapshot.exception_facts import CutTraceback, LineValues, UncaughtException
from mgpu.snapshot.fast_dataclass import dataclass
from mgpu.snapshot.field_types import Label, Name, Pid, Text
from mgpu.snapshot.hang_facts import StackFrame

_STARTED = re.compile(r"(?P<name>[\w.-]+\.py) in <module>")  # an installed program's frame has its package's folder


@dataclass(frozen=True)
class SignatureMatch:
    """A signature that matches lines of a log: the first matching line, and the number of matches."""

    signature: Label  # id of the check
    text: Text  # without torch's prefix, colors and control bytes; clipped; secrets masked
    file: Text
    line: int  # counted from 1
    rank: int | None = None
    at: Label | None = None  # ISO time, if the line has one
    times: int = 1
    ranks: tuple[int, ...] = ()  # all ranks known to have printed such a line
    groups: Mapping[str, Text] = field(default_factory=dict)  # the pattern's named groups in the first match
    survived: bool = False  # the run went on after the last such line


@dataclass(frozen=True)
class Circumstance:
    """What a log shows of the run itself: its model, its framework, an option, what it was doing."""

    name: Label  # of its row in checks/log/circumstances.py
    text: Text  # the first such line
    file: Text
    line: int
    last: int  # number of the last such line, in its own file
    times: int = 1
    at: Label | None = None  # ISO time of the first such line, if it has one
    latest: Text | None = None  # the last such line, if its row keeps it and there are several


def seconds_between_lines(first: SignatureMatch | Circumstance, second: SignatureMatch | Circumstance) -> float | None:
    """Return the time from one line of a log to another; None if one of them has no time."""
    return seconds_between(first.at or "", second.at or "")


@dataclass(frozen=True)
class OwnError:
    """The last message of a program, if it reports an error without an exception."""

    text: Text
    file: Text
    line: int
    rank: int | None = None
    message: Text | None = None  # within the text: of an exception that the program probably caught and printed


@dataclass(frozen=True)
class PrintedStack:
    """The stack of one thread, as py-spy or faulthandler printed it into a log."""

    file: Text
    line: int  # of its head
    functions: tuple[Text, ...]  # the innermost first: "full_tensor (_api.py:677)"
    process: Label | None = None  # "rank 3", "process 4711", a launcher's prefix; None: the log does not name it
    thread: Label | None = None  # its name, if the log has it


@dataclass(frozen=True)
class StalledCollective:
    """A collective that timed out in a rank's watchdog, as ProcessGroupNCCL reports it."""

    rank: int | None
    sequence: int | None  # SeqNum: number of collectives this rank had started
    operation: Label | None = None  # "ALLREDUCE"
    timeout_s: float | None = None
    completed: int | None = None  # sequence number of the last completed one
    at: Label | None = None
    elements: int | None = None  # NumelIn: elements of its input on this rank; 1 for a barrier
    waited_s: float | None = None  # "ran for": far more than the timeout if the watchdog itself did not run
    group: Label | None = None  # of its process group: "0", "3(mesh_dp)"; None: the line does not name it
    several: bool = False  # the rank reports other numbers, too, without naming groups: they count separately


@dataclass(frozen=True)
class LoneWork:
    """What one rank was still doing while others waited for it in a collective, as the last line before shows."""

    kind: Label  # save, data, download, load, evaluate; long: anything that lasted longer than the timeout
    text: Text
    file: Text
    line: int
    rank: int | None = None  # None: its line does not name it
    function: Label | None = None  # in which the ranks wait, if only their traceback shows it
    timeout_s: float | None = None  # of the ranks that waited
    took_s: float | None = None  # how long it lasted, as its line says


@dataclass(frozen=True)
class LastStep:
    """The last counter before the first rank reported that it had waited without success, or before an exception."""

    text: Text
    file: Text
    line: int
    at: float
    of: float | None = None
    inner: bool = False  # a bar with another total than that of the training: its evaluation, or a generation
    epoch: float | None = None  # the last that Trainer logged


@dataclass(frozen=True)
class Pause:
    """A step, or a silence, that took many times longer than those before it."""

    text: Text  # the line of the step, or the last one before the silence
    line: int
    seconds: float
    usual_s: float  # median of those before it


@dataclass(frozen=True)
class FailedRank:
    """A row of torchrun's table of failed ranks."""

    rank: int
    exit_code: int  # negative for a signal
    first: bool  # the launcher reports it as the root cause
    local_rank: int | None = None
    host: Name | None = None
    pid: Pid | None = None
    at: Label | None = None
    error: Text | None = None  # from the rank's error file


@dataclass(frozen=True)
class NotFinite:
    """The first loss or gradient norm of a rank that is NaN or infinite."""

    rank: int
    what: Label  # "loss", "gradient norm"
    value: Label  # nan, inf, -inf
    step: int  # optimizer step, from 1
    at: float  # seconds since the epoch
    line: StackFrame | None = None  # the user's
    inputs: tuple[Text, ...] = ()  # of its model or loss, with NaN already: "x (train.py:14), 3 of 512 values"


@dataclass(frozen=True)
class RankPace:
    """What one rank spent its steps on: medians of the steps that were compared."""

    rank: int
    loader_s: float  # waiting for batches
    wait_s: float  # waiting for the last rank, in the collective of the step in which that took longest
    last_share: float  # of the steps: it came last
    optimizer_s: float = 0.0  # in optimizers; on a GPU, until the work is queued
    saving_s: float = 0.0  # in torch.save and safetensors, in all of these steps together
    host: Name | None = None  # if the run spans several


@dataclass(frozen=True)
class Pace:
    """How long the steps of a run took, and which rank came last to their collectives."""

    steps: int  # compared
    step_s: float  # median
    waited_share: float  # of the time of these steps: what the other ranks waited for the last one, on average
    ranks: tuple[RankPace, ...] = ()


@dataclass(frozen=True)
class LastRun:
    """Where the last one of several runs begins that were appended to one file."""

    line: int  # number of its first line
    earlier: int  # number of runs before it
    certain: bool = True  # its first lines are those of a start; else the program may have continued after an exception


@dataclass(frozen=True)
class Log:
    """Errors and other findings in the logs of one run."""

    files: tuple[Text, ...]
    size_bytes: int
    lines: int
    seen: tuple[SignatureMatch, ...] = ()  # in order of appearance
    raised: tuple[UncaughtException, ...] = ()
    fallen: tuple[FailedRank, ...] = ()
    stalled: tuple[StalledCollective, ...] = ()
    ranks: tuple[int, ...] = ()  # ranks known to have printed something
    last: Text | None = None  # last line before the launcher's own, if it reports a failed rank
    nccl_error: Text | None = None  # what NCCL reports after "Last error:", or in its first WARN line
    finished: Text | None = None  # the line that shows a good end; None: there is none, or an error came after it
    failed: Text | None = None  # the first line that reports a failed rank, task or job
    # From the first timeout of a collective until watchdogs got stuck; negative: before it. None: no times of both
    silent_after_s: float | None = None
    lone_work: LoneWork | None = None
    last_step: LastStep | None = None  # before the first timeout
    stopped_at: LastStep | None = None  # before a user stopped the run: of its data, or its first step; None: later
    pause: Pause | None = None  # before the first lost connection, if it is near the end of its only file
    silence: Pause | None = None  # before the job's time limit: after the last line of the program
    reached: LastStep | None = None  # before the first uncaught exception, or the end, if it is near that of the file
    shows: tuple[Circumstance, ...] = ()
    # What the output showed last before a process was killed or got no memory: save, data, download, load,
    # evaluate, evaluated (its result is the last line), offload (DeepSpeed sets up), train; None: nothing of this
    # kind, or none was killed
    last_work: Label | None = None
    own_error: OwnError | None = None
    stacks: tuple[PrintedStack, ...] = ()
    cut: tuple[CutTraceback, ...] = ()
    last_run: LastRun | None = None  # all other facts are of this run; None: the file has only one
    failed_script: Text | None = None  # the script that torchrun's table says has failed, as its command named it
    source: Text | None = None  # the user's script, if it is beside the log or where the log has it
    first_nan: NotFinite | None = None  # of a launch: what its recorders saw first

    @property
    def script(self) -> str:
        """File name of the user's script that the first whole traceback begins in; "": none, or it begins elsewhere."""
        first = next((one for one in self.raised if one.frames and not one.of_launcher), None)
        found = _STARTED.fullmatch(first.frames[0]) if first else None
        return found["name"] if found else ""


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
    first: bool = False  # the first to fail
    local_rank: int | None = None
    host: Name | None = None
    pid: Pid | None = None
    gpu: int | None = None  # NVML's index
    at: Label | None = None
    error: Text | None = None  # torchelastic's error file: "ValueError: ..."
    state: Label | None = None  # of its process when the run was interrupted: running, sleeping, stopped ...
    idle: bool | None = None  # it used no CPU time just before that
    gone_s: float | None = None  # seconds from the start until its process had disappeared while others continued
    peak_bytes: int | None = None  # of its process in the machine's memory, according to the kernel
    peak_allocated_bytes: int | None = None  # by torch on its GPU; None: no GPU used, or no recorder
    peak_reserved_bytes: int | None = None  # likewise
    raised_at: StackFrame | None = None  # the user's innermost line of the exception that ended its script
    values: tuple[LineValues, ...] = ()  # on that line, and on the user's lines that called it


@dataclass(frozen=True)
class GpuWork:
    """The load of one GPU during a run, sampled with NVML. None: not reported by NVML."""

    index: int  # NVML's
    uuid: Label
    rank: int | None = None  # the rank assigned to it, if there is one per GPU
    processes: tuple[Pid, ...] | None = None  # of the run; the largest set seen on it at once
    samples: int = 0  # from the first to the last with any GPU of the run busy; all if none was
    busy_percent: float | None = None  # mean utilization over these samples
    busy_share: float | None = None  # share of these samples in which it was busy: 0.0 to 1.0
    peak_bytes: int | None = None  # memory in use, other programs' included
    total_bytes: int | None = None
    before_bytes: int | None = None  # memory in use before the run
    idle_s: float | None = None  # time since it was last busy; None: it never was busy
    now_percent: float | None = None  # mean utilization in the last half minute
    power_percent: float | None = None  # of its limit, mean of the last half minute
    usual_power_percent: float | None = None  # mean of all samples in which it was busy


@dataclass(frozen=True)
class Exchange:
    """What the ranks of this machine sent each other, sampled from the kernel's TCP connections.

    gloo sends everything through them. NCCL sets up every communicator through them, and may send its data otherwise.
    """

    watched_s: float = 0.0  # from the first to the last sample with torch in more than one rank
    connections: int = 0  # between two ranks, in all samples
    carried_bytes: int | None = 0  # on these, in both directions; None: the kernel does not count them
    on_gpus: bool = False  # a rank used CUDA
    gap: Label | None = None  # why it is not known whether they exchanged anything
    trained_bytes: int = 0  # of the parameters that each rank trains, the fewest of a rank; 0: not known


@dataclass(frozen=True)
class Run:
    """How a launched training run ended, as observed by mgpu."""

    exit_code: int  # of the training run: 0, the first failing rank's, 128 + N for a signal N
    launcher_code: int  # negative for a signal
    seconds: float
    signalled: Label | None = None  # the signal that interrupted the run: SIGINT, SIGTERM ...
    timed_out: bool = False  # --timeout
    ranks: tuple[EndedRank, ...] = ()
    expected: int | None = None  # ranks on this machine
    oom_kills: int | None = None  # processes killed by the kernel in this cgroup during the run; None: no counter
    memory_limit_bytes: int | None = None  # of the cgroup; None: no limit
    memory_total_bytes: int | None = None  # of the machine
    memory_lowest_bytes: int | None = None  # minimum available during the run
    # "79 on 0000:1b:00.0: fallen off the bus"; None: the kernel log is not readable
    xids: tuple[Label, ...] | None = None
    killed: tuple[Text, ...] | None = None  # by the OOM killer: "python (pid 4711)"; None as above
    gpus: tuple[GpuWork, ...] | None = None  # None: NVML is not available
    gpus_after_s: float | None = None  # time from the start to the first GPU sample
    gpus_gap: Label | None = None  # why existing GPUs were not sampled, or not until the end
    going: bool = False  # the run has not ended: exit codes are not meaningful yet
    quiet_s: float | None = None  # time since the last output
    slurm: Label | None = None  # the job's state in Slurm: "TIMEOUT", "OUT_OF_MEMORY"
    left_over: int = 0  # processes that mgpu terminated afterwards
    still_running: tuple[Text, ...] = ()  # processes that left the run's sessions and continue after it: "rsync (4711)"
    log: Text | None = None  # folder of the logs
    log_full: bool = False  # mgpu could not write the end of the log, because its disk was full
    watched: bool = True  # False: a job elsewhere, known only from its output and Slurm's records
    exchange: Exchange | None = None  # None: fewer than two ranks here
    pace: Pace | None = None  # None: too few steps, or no recorder
    not_finite: tuple[NotFinite, ...] | None = None  # the first on each rank, earliest step first; None: no recorder
