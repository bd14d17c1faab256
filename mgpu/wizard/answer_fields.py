"""What can the user decide? One record; each field is a question in one of the files in `topics/`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Origin = Literal["probe", "rule", "you", "flag", "env", "answers", "file", "-"]


@dataclass(frozen=True)
class Answers:
    """The user's decisions. None or "auto": not decided, so detected or set by default.

    `origins` has the source of each decided field. A field that is decided and None or "auto" was left to mgpu on
    purpose. The record contains nothing about the machine, because it is stored and replayed.
    """

    # model
    params: int | None = None  # parameters of the model
    model: str | None = None  # the Hub id or folder `params` was read from
    train: str = "auto"  # full, lora, qlora
    trainable: int | None = None  # trained parameters, if not all
    optimizer: str = "auto"  # adamw, adam8bit, sgd, adafactor
    seq_len: int | None = None  # tokens per sample: shown, never checked
    # devices
    gpus: int | tuple[int, ...] | None = None  # how many, or which (NVML order); 0 = CPU ranks
    precision: str = "auto"  # no (fp32), fp16, bf16, fp8
    strategy: str = "auto"  # ddp, fsdp2, zero1, zero2, zero3
    offload: str = "auto"  # none, cpu
    # batch
    batch_per_gpu: int | None = None
    accum: int | None = None  # gradient accumulation steps
    effective_batch: int | None = None  # wanted; sets accumulation
    dataset_size: int | None = None  # samples
    drop_last: bool | None = None  # of the DataLoader
    epochs: int | None = None
    lr: float | None = None  # a known-good learning rate …
    lr_ref_batch: int | None = None  # … at this effective batch
    lr_rule: str = "auto"  # keep, sqrt, linear
    # host
    threads: int | None = None  # OMP threads per rank
    workers: int | None = None  # DataLoader workers per rank
    numa: bool | None = None  # bind ranks to the CPUs near their GPU
    port: int | None = None  # rendezvous port; None: a free one at every launch
    compile: bool | None = None  # torch.compile
    reshard: bool | None = None  # the run may resume on a different number of GPUs
    # nodes
    hosts: str | None = None  # machines reached with ssh, as typed: a,b or n[1-8] or a file
    hosts_python: str | None = None  # their Python, if it is at another path than here: PATH, or HOST=PATH,...
    nodes: int | None = None
    address: str | None = None  # address of the first node, as the others reach it
    # a job on Slurm
    slurm: bool | None = None  # Slurm starts the nodes; a job script is written too
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    time: str | None = None  # as Slurm reads it: 12:00:00
    gpus_per_node: int | None = None  # 0 = ranks on the CPU
    gpu_model: str | None = None  # GPU model of the nodes, if Slurm does not report it: A100-80GB
    shape: str = "auto"  # accelerate, torchrun, plain
    container: str | None = None  # the image the ranks run in
    requeue: bool | None = None
    preflight: bool | None = None  # the job checks and tests its nodes first
    spare: int | None = None  # extra nodes to replace bad ones
    command: tuple[str, ...] | None = None  # the script and its arguments
    origins: Mapping[str, Origin] = field(default_factory=dict)
    source: str = ""  # where `params` was read from, if it was: "from the local cache"

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)
