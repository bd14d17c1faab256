"""What does the choice of a strategy depend on, and which ones are impossible here?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from mgpu.planning import memory
from mgpu.planning.memory import Need
from mgpu.planning.requirements import FSDP2_ACCELERATE, FSDP2_TORCH, is_older
from mgpu.snapshot import Snapshot
from mgpu.wizard.devices import Devices
from mgpu.wizard.software import installed_version, is_missing

_RAM_SHARE: Final = 0.9  # share of host memory for the ranks; the rest is for the system and the data loaders


@dataclass(frozen=True)
class Situation:
    """The facts that the choice depends on."""

    snapshot: Snapshot
    used: Devices
    nodes: int
    precision: str
    params: int | None
    train: str
    trainable: int | None
    optimizer: str

    @property
    def kind(self) -> dict[str, Any]:
        """What memory depends on besides size and strategy, as arguments of `memory.need`."""
        return {name: getattr(self, name) for name in ("optimizer", "precision", "train", "trainable")}

    @property
    def ranks(self) -> int:
        """The number of ranks on all nodes."""
        return self.used.ranks * self.nodes

    @property
    def unit(self) -> str:
        """The word for one rank in sentences: "GPU", or "rank" for CPU ranks."""
        return "rank" if self.used.cpu else "GPU"

    @property
    def ram_bytes(self) -> int | None:
        """Host memory that the ranks of a node may use, in bytes."""
        system = self.snapshot.system
        if system is None:
            return None
        return int(min(system.memory_total_bytes, system.memory_limit_bytes or system.memory_total_bytes) * _RAM_SHARE)

    @property
    def room_bytes(self) -> int | None:
        """Memory that one rank may fill, in bytes: its GPU's, or its share of host memory."""
        if self.used.cpu:
            return None if self.ram_bytes is None else self.ram_bytes // self.used.ranks
        return self.used.memory_bytes

    def need(self, strategy: str, *, offload: bool = False) -> Need | None:
        """Return the memory need of one rank; None if the model size is unknown."""
        if self.params is None:
            return None
        return memory.need(self.params, strategy=strategy, ranks=self.ranks, offload=offload, **self.kind)

    def too_large(self, strategy: str, *, offload: bool = False) -> str | None:
        """Return why the model does not fit; None if it fits, or if that is unknown."""
        need = self.need(strategy, offload=offload)
        if need is None:
            return None
        room, unit = self.room_bytes, self.unit
        if room is not None and not memory.fits(need, room):
            over = " and 3 GiB for CUDA and NCCL" if need.resident_bytes <= room else ""
            if need.buckets_bytes:
                over = f" ({memory.gib(need.buckets_bytes)} of it gradient buckets){over}"
            return f"needs {memory.gib(need.resident_bytes)}{over} per {unit}, have {memory.gib(room)}"
        if offload and self.ram_bytes is not None and need.host_bytes / self.nodes > self.ram_bytes:
            return (
                f"needs {memory.gib(need.host_bytes / self.nodes)} of RAM per node, have {memory.gib(self.ram_bytes)}"
            )
        return None


def impossible(here: Situation, name: str, offload: str = "auto") -> str | None:
    """Return why a strategy is impossible here; None if it is possible."""
    if name == "ddp":
        return "keeps everything on the GPU, cannot offload" if offload == "cpu" else here.too_large("ddp")
    if here.used.cpu:
        if name == "fsdp2":
            return "on CPU ranks, accelerate always uses plain DDP"
        return "mgpu runs DeepSpeed on GPUs only"
    if here.used.mig:
        return "a MIG instance is a single device, nothing to split across"
    if why := missing_software(here, name):
        return why
    if here.precision == "fp8" and name != "fsdp2":
        return "accelerate does not pass fp8 to DeepSpeed, which would train in bf16"
    if here.ranks == 1 and offload == "none":
        return "one GPU has nothing to split, needs CPU offload"
    ways = {"none": (False,), "cpu": (True,)}.get(offload, (True,) if here.ranks == 1 else (False, True))
    reasons = [here.too_large(name, offload=way) for way in ways]
    return None if None in reasons else reasons[-1]


def missing_software(here: Situation, name: str) -> str | None:
    """Return which package a strategy needs that is not installed, or is too old; None if all are there."""
    snapshot = here.snapshot
    if name != "fsdp2":
        if is_missing(snapshot, "deepspeed"):
            return "deepspeed is not installed"
        # accelerate passes its DeepSpeed settings to transformers for every model (checks/config/software.py)
        return "accelerate needs transformers for it; not installed" if is_missing(snapshot, "transformers") else None
    accelerate = installed_version(snapshot, "accelerate")
    if is_older(accelerate, FSDP2_ACCELERATE):
        return f"needs accelerate 1.6; {accelerate} is installed and would run FSDP1"
    torch = snapshot.pytorch.version if snapshot.pytorch else installed_version(snapshot, "torch")
    if is_older(torch, FSDP2_TORCH):
        return f"needs torch 2.6; {torch} is installed"
    return None
