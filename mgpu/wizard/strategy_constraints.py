"""What does the choice of a strategy depend on, and which ones are out of the question here?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from mgpu.planning import memory
from mgpu.planning.memory import Need
from mgpu.planning.requirements import FSDP2_ACCELERATE, FSDP2_TORCH, older
from mgpu.snapshot import Snapshot
from mgpu.wizard.devices import Devices
from mgpu.wizard.software import installed, missing

_RAM_SHARE: Final = 0.9  # of the host's memory; the rest is for the system and the data loaders


@dataclass(frozen=True)
class Situation:
    """What the choice depends on."""

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
        """What the memory depends on besides size and strategy, as arguments of `memory.need`."""
        return {name: getattr(self, name) for name in ("optimizer", "precision", "train", "trainable")}

    @property
    def ranks(self) -> int:
        """Over all machines."""
        return self.used.ranks * self.nodes

    @property
    def ram_bytes(self) -> int | None:
        """The memory of a machine that its ranks may use."""
        system = self.snapshot.system
        if system is None:
            return None
        return int(min(system.memory_total_bytes, system.memory_limit_bytes or system.memory_total_bytes) * _RAM_SHARE)

    @property
    def room_bytes(self) -> int | None:
        """What one rank may fill: its GPU, or its share of the memory."""
        if self.used.cpu:
            return None if self.ram_bytes is None else self.ram_bytes // self.used.ranks
        return self.used.memory_bytes

    def need(self, strategy: str, *, offload: bool = False) -> Need | None:
        """Memory of one rank; None where the size of the model is not known."""
        if self.params is None:
            return None
        return memory.need(self.params, strategy=strategy, ranks=self.ranks, offload=offload, **self.kind)

    def too_large(self, strategy: str, *, offload: bool = False) -> str | None:
        """Why the model cannot stand; None where it can, or nobody knows."""
        need = self.need(strategy, offload=offload)
        if need is None:
            return None
        room, unit = self.room_bytes, "rank" if self.used.cpu else "GPU"
        if room is not None and not memory.fits(need, room):
            over = " and 3 GiB for CUDA and NCCL" if need.resident_bytes <= room else ""
            return f"needs {memory.gib(need.resident_bytes)}{over} per {unit}, have {memory.gib(room)}"
        if offload and self.ram_bytes is not None and need.host_bytes / self.nodes > self.ram_bytes:
            return (
                f"needs {memory.gib(need.host_bytes / self.nodes)} of RAM per machine, "
                f"have {memory.gib(self.ram_bytes)}"
            )
        return None


def impossible(here: Situation, name: str, offload: str = "auto") -> str | None:
    """Why a strategy is out of the question here; None where it is not."""
    if name == "ddp":
        return "it keeps everything on the GPU: no offload" if offload == "cpu" else here.too_large("ddp")
    if here.used.cpu:
        if name == "fsdp2":
            return "on CPU ranks accelerate applies plain DDP, whatever the file says"
        return "mgpu runs DeepSpeed on GPUs only"
    if here.used.mig:
        return "a MIG instance is one device: there is nothing to split over"
    if why := _software(here, name):
        return why
    if here.precision == "fp8" and name != "fsdp2":
        return "fp8 with DeepSpeed is not what accelerate hands on: it trains in bf16"
    if here.ranks == 1 and offload == "none":
        return "one GPU has nothing to split; only with offload to the CPU"
    ways = {"none": (False,), "cpu": (True,)}.get(offload, (True,) if here.ranks == 1 else (False, True))
    reasons = [here.too_large(name, offload=way) for way in ways]
    return None if None in reasons else reasons[-1]


def _software(here: Situation, name: str) -> str | None:
    snapshot = here.snapshot
    if name != "fsdp2":
        if missing(snapshot, "deepspeed"):
            return "deepspeed is not installed"
        # accelerate hands its DeepSpeed settings to transformers, whatever the model (checks/config/software.py)
        return (
            "accelerate needs transformers for it, which is not installed"
            if missing(snapshot, "transformers")
            else None
        )
    accelerate = installed(snapshot, "accelerate")
    if older(accelerate, FSDP2_ACCELERATE):
        return f"needs accelerate 1.6, {accelerate} is installed and would run FSDP1"
    torch = snapshot.pytorch.version if snapshot.pytorch else installed(snapshot, "torch")
    if older(torch, FSDP2_TORCH):
        return f"needs torch 2.6, {torch} is installed"
    return None
