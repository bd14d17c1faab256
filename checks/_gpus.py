"""Helpers for checks of GPUs: which ones a run uses, the problems about them, and the commands that fix them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

from mgpu.check import DOCUMENTED, Fix, Problem, Value
from mgpu.command_line import shell
from mgpu.snapshot import Driver, Gpu, Visible

from ._wording import gpu_list

# A driver that answers sooner was already running: starting it takes 1-3 s (driver persistence guide).
_WAS_RUNNING_S = 0.5


class _OfAGpu(Protocol):
    """A fact about one GPU: `Gpu`, `GpuRun`, `GpuWork`."""

    @property
    def index(self) -> int: ...


def gpu_subjects(gpus: Iterable[_OfAGpu]) -> tuple[str, ...]:
    """Return the GPUs as subjects of a problem: "GPU 0", "GPU 2"."""
    return tuple(f"GPU {gpu.index}" for gpu in gpus)


def gpu_problem(
    gpus: Collection[_OfAGpu],
    title: str,
    evidence: Mapping[str, str | Callable[[Any], Value]],
    fix: Fix | tuple[Fix, ...] = DOCUMENTED,
    *,
    cause: str = "",
) -> Problem:
    """Return a problem with these GPUs as its subjects: "GPUs 0 and 2: <title>".

    `evidence` maps a label to a field of the GPU or to a function of it: {"serial": "serial"} becomes gpu_0_serial.
    """
    values = {
        f"gpu_{gpu.index}_{name}" if name else f"gpu_{gpu.index}": what(gpu) if callable(what) else getattr(gpu, what)
        for name, what in evidence.items()
        for gpu in gpus
    }
    return Problem(f"{gpu_list(gpu.index for gpu in gpus)}: {title}", cause, fix, values, gpu_subjects(gpus))


def usable_count(visible: Visible) -> int:
    """Return the number of devices CUDA shows: the visible GPUs plus the listed MIG instances."""
    return len(visible.gpus) + (1 + len(visible.more_mig) if visible.mig else 0)


def cuda_numbers(indices: Iterable[int], gpus: tuple[Gpu, ...]) -> str:
    """Convert NVML indices for CUDA_VISIBLE_DEVICES: CUDA counts only the GPUs that this process may open."""
    places = {gpu.index: place for place, gpu in enumerate(gpu for gpu in gpus if gpu.permitted)}
    return ",".join(str(places[index]) for index in indices if index in places)


def use_only(indices: Iterable[int], gpus: tuple[Gpu, ...]) -> tuple[str, ...]:
    """Return commands that leave only these GPUs visible, in PCI bus order so that the numbers match NVML's."""
    return (
        "export CUDA_DEVICE_ORDER=PCI_BUS_ID",
        shell("export CUDA_VISIBLE_DEVICES={:ids}", cuda_numbers(indices, gpus)),
    )


def reset_commands(gpus: Iterable[Gpu]) -> tuple[str, ...]:
    """Return the commands that reset these GPUs."""
    return tuple(shell("sudo nvidia-smi --gpu-reset -i {:id}", gpu.uuid or gpu.index) for gpu in gpus)


def driver_was_running(gpu: Gpu, driver: Driver) -> bool:
    """Return whether the driver already ran on this GPU before the probe.

    While the driver starts, it scrubs memory, which shows as utilization (nvidia-smi(1)).
    """
    return bool(gpu.persistence_mode) or (driver.init_s is not None and driver.init_s < _WAS_RUNNING_S)


def same_models(gpus: tuple[Gpu, ...], visible: Visible) -> dict[str, list[Gpu]]:
    """Return the visible GPUs that respond, grouped by model."""
    models: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        if gpu.index in visible.gpus and gpu.name and not gpu.lost:
            models.setdefault(gpu.name, []).append(gpu)
    return models
