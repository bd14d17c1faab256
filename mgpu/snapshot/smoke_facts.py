"""What did the ranks of a smoke test report, and what is it compared with?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from mgpu.snapshot.fast_dataclass import dataclass
from mgpu.snapshot.field_types import InterfaceAddress, Label, Name, Pid, SecretsByKey, Text, Texts


@dataclass(frozen=True)
class Step:
    """What one rank did on one rung of the smoke test."""

    rung: Label
    ok: bool | None  # None: begun and never ended
    detail: Text | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Peer:
    """Another rank, as one rank met it when the process group was formed."""

    rank: int
    host: Name | None = None
    address: Label | None = None  # where it says that it can be reached
    came: bool = True  # it had reached the meeting point within the limit
    reachable: bool | None = None  # a connection to it was tried: did it come about?
    error: Text | None = None


@dataclass(frozen=True)
class Meeting:
    """The machine and port where the launchers of several machines meet, as this one found it."""

    address: Name
    port: int
    error: Text | None = None  # None: it answers; on that machine itself: the address is its own


@dataclass(frozen=True)
class PairRun:
    """Data sent between this rank and another, both ways."""

    other: int
    ok: bool | None  # None: begun and never ended
    detail: Text | None = None
    gb_per_s: float | None = None  # one way, decimal GB
    latency_s: float | None = None


@dataclass(frozen=True)
class Timed:
    """One collective at one size, as one rank timed it."""

    collective: Label  # all_reduce, all_gather, reduce_scatter, broadcast, all_to_all
    backend: Label
    ranks: int
    size_bytes: int  # S of nccl-tests: mgpu/planning/bandwidth.py
    seconds_p50: float
    seconds_p99: float


@dataclass(frozen=True)
class Bandwidth:
    """One collective at one size, timed over all ranks (the slowest rank's times)."""

    collective: Label  # all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, send_recv
    backend: Label
    ranks: int
    size_bytes: int  # S of nccl-tests: mgpu/planning/bandwidth.py
    seconds_p50: float
    seconds_p99: float
    algbw_gb_per_s: float
    busbw_gb_per_s: float


@dataclass(frozen=True)
class Scaling:
    """Training steps with the first `ranks` ranks at the same micro-batch."""

    ranks: int
    samples_per_s: float  # of all of them together
    seconds_per_step: float
    compute_seconds: float  # of a step, without waiting for others: the slowest rank's
    efficiency: float | None = None  # 1.0: as many samples per second and rank as one rank alone


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint that the ranks saved and loaded again, as one rank met it."""

    folder: Text  # where it was tried
    named: bool  # by the user; else the run folder
    shared: bool | None  # this rank could read what rank 0 wrote; None: not tried
    size_bytes: int | None = None
    free_bytes: int | None = None  # before it was written


@dataclass(frozen=True)
class Rank:
    """One rank of the smoke test: its report, and what the runner saw of the process."""

    rank: int
    local_rank: int | None = None
    host: Name | None = None
    pid: Pid | None = None
    device: Label | None = None
    gpu_uuid: Label | None = None
    world_size: int | None = None  # as torch.distributed sees it
    accelerate_world_size: int | None = None  # as Accelerator() sees it
    steps: tuple[Step, ...] = ()
    last_word: Text | None = None  # what it announced last: "step 7 of 20"
    last_word_order: int = 0  # how far it came: larger is later
    process_state: Label | None = None  # when the run was ended: running, sleeping, stopped …, gone
    silent_s: float | None = None  # how long its heartbeat had been missing
    stack: Text | None = None
    stack_from: Literal["asked", "woken"] | None = None  # it wrote the stack when asked, or once SIGCONT had woken it
    kernel_wait: Label | None = None  # where the kernel held its process: /proc/PID/wchan
    collective: Label | None = None  # the one it was in, by torch's flight recorder: "gloo all_reduce of 1000 x Float"
    collective_seq: int | None = None  # … and how many of the whole world's collectives it had come to
    error: Text | None = None
    traceback: Text | None = None
    kind: Label | None = None  # of the failure, when the rank knows it: wrong_numbers, gradients_differ …
    evidence: Mapping[str, Texts] = field(default_factory=dict)  # what the check of that kind reads
    gpu_name: Label | None = None  # model, as torch names it
    kernels: Label | None = None  # ranks of which this is the same compute to the same bits: model and size of the GPU
    gpu_pci: Label | None = None  # 0000:1b:00.0
    numa_node: int | None = None  # the GPU's
    cpus: Label | None = None  # the ones this process may run on: "0-23,48-71"
    computed: Mapping[str, Label] = field(default_factory=dict)  # fp32, bf16 … -> digest of the same computation
    parameters: Label | None = None  # digest of the parameters after the training steps
    digests: Mapping[str, Label] = field(default_factory=dict)  # start, buffers, optimizer … -> digest after the steps
    samples: Mapping[Label, tuple[int, ...]] = field(default_factory=dict)  # loader -> the samples it gave this rank
    finished: bool = False  # its report is complete
    failed_at: float | None = None  # when a rung failed on it (Unix time), to tell cause from consequence
    exit_code: int | None = None  # as the launcher tells it; negative for a signal
    measured: Mapping[Label, float] = field(default_factory=dict)
    peers: tuple[Peer, ...] = ()
    gloo_works: bool | None = None  # the collectives over gloo, tried beside NCCL
    pairs: tuple[PairRun, ...] = ()
    bandwidth: tuple[Timed, ...] = ()  # mgpu/planning/bandwidth.py makes one Bandwidth of those of all ranks
    scaling: tuple[Scaling, ...] = ()
    skipped: tuple[Text, ...] = ()  # what could not be tried here, and why: "SyncBatchNorm: torch has it on GPUs only"
    checkpoint: Checkpoint | None = None
    wrote: tuple[Text, ...] = ()  # folders it may have written to outside the run folder, to be removed after the run


@dataclass(frozen=True)
class Trial:
    """A failed rung, run again in fresh processes with one thing changed."""

    change: Label  # "NCCL_P2P_DISABLE=1", "without NCCL_ALGO", "GPUs 0,1", "as configured"
    ok: bool | None  # None: not tried, or no answer within its time
    detail: Text | None = None
    seconds: float | None = None
    environment: SecretsByKey[Mapping[str, Label]] = field(default_factory=dict)  # what was set; "" = removed
    gpus: tuple[int, ...] = ()  # the ones that took part, when not all
    busbw_gb_per_s: float | None = None  # what the change costs: all-reduce, the largest size


@dataclass(frozen=True)
class Ranks:
    """A whole smoke-test run: what was asked, what each rank reported, how the launcher ended.

    On several nodes `ranks` are those of this one.
    """

    expected: int  # ranks of the whole world
    rungs: tuple[Label, ...]  # the ones that were to be climbed
    ranks: tuple[Rank, ...]
    ended: Literal["finished", "stalled", "timed_out", "died", "interrupted"]
    launcher_exit: int | None  # None: it did not end by itself
    stall_limit_s: float
    left_running: tuple[Pid, ...] = ()  # pids that outlived the clean-up
    launcher_output: Text | None = None  # its last lines
    folder: Text = "runs"  # where journals, stacks and the launcher's log lie
    nodes: int = 1
    node: int = 0
    cpu: bool = False
    level: Label = "standard"
    strategy: Label = "ddp"
    precision: Label = "no"
    accumulate: int = 1
    outlived: tuple[Pid, ...] = ()  # pids that were there when the launcher had ended by itself, and were ended
    port: int | None = None  # where the ranks met
    meeting: Meeting | None = None  # None on one machine
    left_port: bool = False  # it was free before the run, and is still taken
    killed_for_memory: int | None = None  # processes of its control group that the kernel killed meanwhile
    left_files: tuple[Text, ...] = ()  # shared memory and temporary files that were not there before
    memory_kept: Mapping[Label, int] | None = None  # GPU UUID -> bytes not given back; None: not looked at
    trials: tuple[Trial, ...] = ()


@dataclass(frozen=True)
class NcclLine:
    """How NCCL connects two ranks, in its own words."""

    sender: int
    receiver: int
    transport: Label  # P2P/CUMEM, P2P/IPC, SHM, NET/Socket, NET/IB/0/GDRDMA …


@dataclass(frozen=True)
class NcclLog:
    """What NCCL said of itself at level INFO during the smoke test."""

    version: Label | None = None
    interfaces: tuple[InterfaceAddress, ...] = ()  # of its bootstrap and sockets: "eth0:10.0.0.1"
    network: Label | None = None  # Socket, IB, a plug-in's name
    plugin: Label | None = None
    connections: tuple[NcclLine, ...] = ()
    channels: int | None = None  # collective channels of the largest communicator
    trees: bool | None = None
    nvls: bool | None = None  # NVLink SHARP in use
    cumem: bool | None = None
    warnings: tuple[Text, ...] = ()  # its WARN lines


@dataclass(frozen=True)
class Baseline:
    """An earlier result that this one is compared with."""

    path: Text
    taken: Label | None
    same_gpus: bool | None
    bandwidth: tuple[Bandwidth, ...] = ()
    measured: Mapping[Label, Mapping[Label, float]] = field(default_factory=dict)  # rank -> figures
    scaling: tuple[Scaling, ...] = ()


@dataclass(frozen=True)
class Stamp:
    """What was verified (None: nothing that fits this config), and the same facts as they are now."""

    verified: SecretsByKey[Mapping[str, Text] | None]
    verified_at: Label | None
    now: SecretsByKey[Mapping[str, Text]]
    rungs: tuple[Label, ...] = ()
    scaling: tuple[Scaling, ...] = ()  # of the smoke test's own small model, measured then
    level: Label | None = None  # of that test; None: an older mgpu wrote it
    refused: Text | None = None  # why what is in the stamp file does not count; None: it does, or there is no file
