"""Which config fits this machine, and where does each value come from? Pure: facts and answers in, settings out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mgpu import plan
from mgpu.errors import NOT_READY, USAGE, MgpuError
from mgpu.snapshot import Gpu, Snapshot

Origin = Literal["probe", "rule", "you", "flag", "-"]
PRECISIONS = ("auto", "no", "fp16", "bf16")
CPU_RANKS = 2  # the smallest run in which ranks must really talk to each other


@dataclass(frozen=True)
class Answers:
    """What the user decided. None or "auto": as the machine says."""

    gpus: int | None = None  # 0 = CPU ranks
    precision: str = "auto"
    batch_per_gpu: int | None = None
    origins: Mapping[str, Origin] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """One row of the review screen: what it is called, what it is, and why."""

    label: str
    text: str
    origin: Origin
    reason: str = ""
    key: str | None = None  # the accelerate key it becomes
    value: Any = None


@dataclass(frozen=True)
class Proposal:
    """A whole config, as rows for people and as values for accelerate."""

    settings: tuple[Setting, ...]
    machine: str
    cpu: bool  # ranks run on the CPU, because this machine has no NVIDIA GPU
    batch_per_gpu: int | None
    ranks: int

    @property
    def values(self) -> dict[str, Any]:
        """What stands in the file, in accelerate's own words."""
        return {s.key: s.value for s in self.settings if s.key is not None}


def propose(snapshot: Snapshot, answers: Answers, machine: str) -> Proposal:
    """The config for this machine. Raises MgpuError when the machine cannot be configured for, with the reason."""
    gpus = _usable(snapshot)
    cpu = not gpus
    if cpu:
        ranks, why = (answers.gpus or CPU_RANKS), "no NVIDIA GPU here: two CPU ranks, over gloo"
        origin: Origin = "rule"
        if answers.gpus:
            raise MgpuError(f"--gpus {answers.gpus}: this machine has no NVIDIA GPU (0 means CPU ranks)", NOT_READY)
    else:
        if answers.gpus == 0:
            raise MgpuError(
                "--gpus 0: this machine has NVIDIA GPUs, and accelerate would use them. Rehearse on the CPU with\n"
                "  mgpu smoke-test --cpu 2",
                NOT_READY,
            )
        if answers.gpus is not None and answers.gpus > len(gpus):
            raise MgpuError(f"--gpus {answers.gpus}: {len(gpus)} are visible and answer", NOT_READY)
        ranks, why = answers.gpus or len(gpus), f"{len(gpus)} visible GPUs, 1 process per GPU"
        origin = answers.origins.get("gpus", "you") if answers.gpus else "probe"
    settings = [
        Setting("ranks" if cpu else "GPUs", _who(gpus, ranks), origin, why, "num_processes", ranks),
        _strategy(ranks),
        _precision(gpus, answers),
        Setting("machines", "1", "rule", "this one", "num_machines", 1),
        Setting("port", "automatic", "rule", "a free one at every launch"),
        _batch(answers, ranks, "rank" if cpu else "GPU"),
    ]
    return Proposal(tuple(settings), machine, cpu, answers.batch_per_gpu, ranks)


def _usable(snapshot: Snapshot) -> list[Gpu]:
    """The GPUs a run would use; empty only where there is no NVIDIA GPU at all."""
    driver = snapshot.driver
    if driver is None or snapshot.gpus is None or snapshot.visible is None:
        gap = snapshot.gap("driver" if driver is None else "gpus")
        raise MgpuError(f"the GPUs of this machine are not known: {gap.reason}\n  mgpu doctor  says more", NOT_READY)
    if not driver.any_gpu:
        return []
    if driver.nvml_error is not None:
        raise MgpuError(f"this machine has NVIDIA GPUs, and its driver does not answer ({driver.nvml_error}).\n"
                        "  mgpu doctor  says what to do", NOT_READY)  # fmt: skip
    lost = {gpu.index for gpu in snapshot.gpus if gpu.lost}
    usable = [gpu for gpu in snapshot.gpus if gpu.index in snapshot.visible.gpus and gpu.index not in lost]
    if not usable:
        raise MgpuError(
            f"none of the {len(snapshot.gpus)} GPUs can be used "
            f"(CUDA_VISIBLE_DEVICES={snapshot.visible.value!r}, {len(lost)} lost).\n"
            "  mgpu doctor  says what to do",
            NOT_READY,
        )
    return usable


def _who(gpus: list[Gpu], ranks: int) -> str:
    return f"{ranks} on the CPU" if not gpus else f"{ranks} x {gpus[0].name}"


def _strategy(ranks: int) -> Setting:
    if ranks == 1:
        return Setting("strategy", "one process", "rule", "a single GPU", "distributed_type", "NO")
    return Setting("strategy", "DDP", "rule", "a full copy of the model on each rank", "distributed_type", "MULTI_GPU")


def _precision(gpus: list[Gpu], answers: Answers) -> Setting:
    """bf16 from compute capability 8.0, fp16 from 7.0: the weakest GPU decides (emulation does not count)."""
    key = "mixed_precision"
    if answers.precision not in PRECISIONS:
        raise MgpuError(f"--precision {answers.precision}: choose one of {', '.join(PRECISIONS)}", USAGE)
    if answers.precision != "auto":
        given = answers.precision
        return Setting("precision", _named(given), answers.origins.get("precision", "you"), "chosen", key, given)
    if not gpus:
        return Setting("precision", "fp32", "rule", "CPU ranks", key, "no")
    known = [gpu.compute_capability for gpu in gpus if gpu.compute_capability]
    if len(known) < len(gpus):
        return Setting("precision", "fp32", "rule", "a GPU does not tell its compute capability", key, "no")
    major, minor = min(known)
    value = "bf16" if (major, minor) >= (8, 0) else "fp16" if (major, minor) >= (7, 0) else "no"
    return Setting("precision", _named(value), "probe", f"compute capability {major}.{minor}", key, value)


def _named(precision: str) -> str:
    return "fp32" if precision == "no" else precision


def _batch(answers: Answers, ranks: int, unit: str) -> Setting:
    if answers.batch_per_gpu is None:
        return Setting("effective batch", f"needs batch per {unit}", "-", "your script sets it")
    whole = plan.effective_batch(answers.batch_per_gpu, ranks)
    origin = answers.origins.get("batch_per_gpu", "you")
    return Setting("effective batch", f"{answers.batch_per_gpu} x {ranks} = {whole}", origin, "samples per step")
