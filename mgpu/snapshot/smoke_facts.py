"""What did the ranks of a smoke test report, and what are the results compared with?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from mgpu.snapshot.fast_dataclass import dataclass
from mgpu.snapshot.field_types import InterfaceAddress, Label, Name, Pid, SecretsByKey, Text, Texts
from mgpu.snapshot.rehearsal_facts import Measurement


@dataclass(frozen=True)
class Step:
    """The result of one rank in one stage of the smoke test."""

    rung: Label
    ok: bool | None  # None: started and not finished
    detail: Text | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Peer:
    """Another rank, as seen by one rank when the process group was created."""

    rank: int
    host: Name | None = None
    address: Label | None = None  # the address it announced
    came: bool = True  # it reached the rendezvous within the time limit
    reachable: bool | None = None  # a test connection to it succeeded; None: not tried
    error: Text | None = None


@dataclass(frozen=True)
class RendezvousEndpoint:
    """The rendezvous endpoint of the nodes' launchers, as seen from this node."""

    address: Name
    port: int
    error: Text | None = None  # None: it answers or, on the head node, the address is its own


@dataclass(frozen=True)
class PairRun:
    """A transfer between this rank and another, in both directions."""

    other: int
    ok: bool | None  # None: started and not finished
    detail: Text | None = None
    gb_per_s: float | None = None  # one way, decimal GB
    latency_s: float | None = None


@dataclass(frozen=True)
class Timed:
    """One collective at one size, timed by one rank."""

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
    """Training steps on the first `ranks` ranks with the same micro-batch size."""

    ranks: int
    samples_per_s: float  # of all these ranks together
    seconds_per_step: float
    compute_seconds: float  # per step, without waiting for other ranks: the slowest rank's
    efficiency: float | None = None  # 1.0: each rank processes as many samples per second as a single rank


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint that the ranks saved and loaded, as seen by one rank."""

    folder: Text  # where it was saved
    named: bool  # specified by the user; else the run folder
    shared: bool | None  # this rank could read rank 0's files; None: not tried
    size_bytes: int | None = None
    free_bytes: int | None = None  # before it was saved


@dataclass(frozen=True)
class Rank:
    """One rank of the smoke test: its report, and the runner's observations of its process."""

    rank: int
    local_rank: int | None = None
    host: Name | None = None
    pid: Pid | None = None
    device: Label | None = None
    gpu_uuid: Label | None = None
    world_size: int | None = None  # reported by torch.distributed
    accelerate_world_size: int | None = None  # reported by Accelerator(), like the next two
    accelerate_precision: Label | None = None
    accelerate_accumulation: int | None = None  # micro-batches per optimizer step
    dtypes: Mapping[str, Label] = field(default_factory=dict)  # steps … -> type that the layers of its model returned
    steps: tuple[Step, ...] = ()
    last_word: Text | None = None  # last progress it reported: "step 7 of 20"
    last_word_order: int = 0  # position of that progress: larger is later
    process_state: Label | None = None  # when the run was stopped: running, sleeping, stopped …, gone
    silent_s: float | None = None  # time since its last heartbeat
    stack: Text | None = None
    stack_from: Literal["asked", "woken"] | None = None  # whether it wrote the stack on request, or only after SIGCONT
    kernel_wait: Label | None = None  # where its process waited in the kernel: /proc/PID/wchan
    collective: Label | None = None  # in progress, from torch's flight recorder: "gloo all_reduce of 1000 x Float"
    collective_seq: int | None = None  # collectives of the whole world's group that it started
    collective_open: bool = False  # the last one of those has not finished
    error: Text | None = None
    traceback: Text | None = None
    kind: Label | None = None  # of the failure, if the rank determined it: wrong_numbers, gradients_differ …
    evidence: Mapping[str, Texts] = field(default_factory=dict)  # input of the check for that kind
    gpu_name: Label | None = None  # model, as reported by torch
    kernels: Label | None = None  # model and size of the GPU; ranks with the same value compute bit-identical results
    gpu_pci: Label | None = None  # 0000:1b:00.0
    numa_node: int | None = None  # the GPU's
    cpus: Label | None = None  # CPUs this process may run on: "0-23,48-71"
    computed: Mapping[str, Label] = field(default_factory=dict)  # fp32, bf16 … -> digest of the result
    parameters: Label | None = None  # digest of the parameters after the training steps
    digests: Mapping[str, Label] = field(default_factory=dict)  # start, buffers, optimizer … -> digest after the steps
    samples: Mapping[Label, tuple[int, ...]] = field(default_factory=dict)  # loader -> the samples this rank received
    finished: bool = False  # its report is complete
    failed_at: float | None = None  # when a stage failed on it (Unix time), to separate cause from consequence
    exit_code: int | None = None  # reported by the launcher; negative for a signal
    stopped_share: float | None = None  # of the runner's observations: stopped by a signal or a debugger
    terminated: bool = False  # it received SIGTERM, which the launcher sends to the others if a rank fails
    measured: Mapping[Label, float] = field(default_factory=dict)
    peers: tuple[Peer, ...] = ()
    gloo_works: bool | None = None  # the collectives worked over gloo, tried in addition to NCCL
    pairs: tuple[PairRun, ...] = ()
    bandwidth: tuple[Timed, ...] = ()  # mgpu/planning/bandwidth.py combines those of all ranks into Bandwidth
    scaling: tuple[Scaling, ...] = ()
    skipped: tuple[Text, ...] = ()  # tests not run, and why: "SyncBatchNorm: torch has it on GPUs only"
    checkpoint: Checkpoint | None = None
    wrote: tuple[Text, ...] = ()  # folders outside the run folder to remove after the run


@dataclass(frozen=True)
class Trial:
    """A failed stage, rerun in new processes with one change."""

    change: Label  # "NCCL_P2P_DISABLE=1", "without NCCL_ALGO", "GPUs 0,1", "as configured"
    ok: bool | None  # None: not tried, or timed out
    detail: Text | None = None
    seconds: float | None = None
    environment: SecretsByKey[Mapping[str, Label]] = field(default_factory=dict)  # variables set; "" = removed
    gpus: tuple[int, ...] = ()  # GPUs used, if not all
    busbw_gb_per_s: float | None = None  # to quantify the cost of the change: all-reduce, the largest size


@dataclass(frozen=True)
class Ranks:
    """A whole smoke-test run: the request, each rank's report, and how the launcher ended.

    On several nodes, `ranks` has the ranks of this node.
    """

    expected: int  # ranks of the whole world
    rungs: tuple[Label, ...]  # the stages to run
    ranks: tuple[Rank, ...]
    ended: Literal["finished", "stalled", "timed_out", "died", "interrupted"]
    launcher_exit: int | None  # None: it did not exit by itself
    stall_limit_s: float
    quiet_s: float | None = None  # how long no rank had reported progress when the run was stopped
    left_running: tuple[Pid, ...] = ()  # pids still running after the clean-up
    launcher_output: Text | None = None  # its last lines
    folder: Text = ".mgpu/runs"  # folder of journals, stacks and the launcher's log
    nodes: int = 1
    node: int = 0
    cpu: bool = False
    level: Label = "standard"
    strategy: Label = "ddp"
    precision: Label = "no"
    accumulate: int = 1
    micro_steps: int | None = None  # micro-batches per optimizer step in the test, which takes not all of many
    outlived: tuple[Pid, ...] = ()  # pids still running after the launcher had exited by itself, and then terminated
    port: int | None = None  # of the rendezvous
    meeting: RendezvousEndpoint | None = None  # None on one node
    left_port: bool = False  # the port was free before the run, and is still in use
    killed_for_memory: int | None = None  # processes in its cgroup killed by the OOM killer during the run
    left_files: tuple[Text, ...] = ()  # new shared memory and temporary files
    removed_files: Mapping[str, Label] = field(default_factory=dict)  # … that mgpu removed -> the process that left it
    removed_by: Mapping[Text, int] = field(default_factory=dict)  # … -> the rank of that process, if it is of one
    memory_kept: Mapping[Label, int] | None = None  # GPU UUID -> bytes not freed; None: not checked
    trials: tuple[Trial, ...] = ()


@dataclass(frozen=True)
class NcclLine:
    """How NCCL connects two ranks, from NCCL's log."""

    sender: int
    receiver: int
    transport: Label  # P2P/CUMEM, P2P/IPC, SHM, NET/Socket, NET/IB/0/GDRDMA …


@dataclass(frozen=True)
class NcclLog:
    """Information from NCCL's INFO log during the smoke test."""

    version: Label | None = None
    interfaces: tuple[InterfaceAddress, ...] = ()  # used for bootstrap and sockets: "eth0:10.0.0.1"
    network: Label | None = None  # Socket, IB, or the name of a plugin
    plugin: Label | None = None
    connections: tuple[NcclLine, ...] = ()
    channels: int | None = None  # collective channels of the largest communicator
    trees: bool | None = None
    nvls: bool | None = None  # NVLink SHARP in use
    cumem: bool | None = None
    warnings: tuple[Text, ...] = ()  # WARN lines


@dataclass(frozen=True)
class Baseline:
    """An earlier result to compare with."""

    path: Text
    taken: Label | None
    same_gpus: bool | None
    bandwidth: tuple[Bandwidth, ...] = ()
    measured: Mapping[Label, Mapping[Label, float]] = field(default_factory=dict)  # rank -> measured values
    scaling: tuple[Scaling, ...] = ()


@dataclass(frozen=True)
class FailedRehearsal:
    """A script that failed with a verified config, and has not passed since."""

    script_sha256: Label
    arguments_sha256: Label
    check: Label  # that names the failure
    at: Label


@dataclass(frozen=True)
class Stamp:
    """The verified facts (None: none for this config), and the same facts now."""

    verified: SecretsByKey[Mapping[str, Text] | None]
    verified_at: Label | None
    now: SecretsByKey[Mapping[str, Text]]
    rungs: tuple[Label, ...] = ()
    scaling: tuple[Scaling, ...] = ()  # of the smoke test's small model, measured in that test
    level: Label | None = None  # of that test; None: written by an older mgpu
    rehearsed: tuple[Label, ...] = ()  # hashes of the scripts that passed with this config
    measurements: tuple[Measurement, ...] = ()  # of those scripts, on this machine with this config
    failed: tuple[FailedRehearsal, ...] = ()  # scripts that failed with this config after that test
    refused: Text | None = None  # why the stamp file is not valid here; None: it is valid, or there is none
