"""Which GPUs does a run use, and what is said and done about some of them?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

from mgpu.check import DOCUMENTED, Fix, Problem, Value
from mgpu.command_line import shell
from mgpu.snapshot import Driver, Gpu, Visible

from ._wording import gpu_list

# A driver that answers sooner was not started for the question, which takes 1-3 s (driver persistence guide).
_WAS_RUNNING_S = 0.5


class _OfAGpu(Protocol):
    """A fact about one GPU: `Gpu`, `GpuRun`, `GpuWork`."""

    @property
    def index(self) -> int: ...


def names_of(gpus: Iterable[_OfAGpu]) -> tuple[str, ...]:
    """GPUs as subjects of a problem."""
    return tuple(f"GPU {gpu.index}" for gpu in gpus)


def gpu_problem(
    gpus: Collection[_OfAGpu],
    title: str,
    evidence: Mapping[str, str | Callable[[Any], Value]],
    fix: Fix | tuple[Fix, ...] = DOCUMENTED,
    *,
    cause: str = "",
) -> Problem:
    """A problem of these GPUs, which are its subjects: "GPU 0 and 2: <title>".

    `evidence`: what is shown of each, a field or what a function says of it; {"serial": "serial"} makes gpu_0_serial.
    """
    told = {
        f"gpu_{gpu.index}_{name}" if name else f"gpu_{gpu.index}": what(gpu) if callable(what) else getattr(gpu, what)
        for name, what in evidence.items()
        for gpu in gpus
    }
    return Problem(f"{gpu_list(gpu.index for gpu in gpus)}: {title}", cause, fix, told, names_of(gpus))


def usable_count(visible: Visible) -> int:
    """How many devices CUDA shows: the visible GPUs, and the MIG instances that are named."""
    return len(visible.gpus) + (1 + len(visible.more_mig) if visible.mig else 0)


def cuda_numbers(indices: Iterable[int], gpus: tuple[Gpu, ...]) -> str:
    """NVML's indices as CUDA_VISIBLE_DEVICES takes them: CUDA numbers only the GPUs this process may open."""
    places = {gpu.index: place for place, gpu in enumerate(gpu for gpu in gpus if gpu.permitted)}
    return ",".join(str(places[index]) for index in indices if index in places)


def use_only(indices: Iterable[int], gpus: tuple[Gpu, ...]) -> tuple[str, ...]:
    """The commands that leave these GPUs visible; in the order of the bus, or the numbers mean other cards."""
    return (
        "export CUDA_DEVICE_ORDER=PCI_BUS_ID",
        shell("export CUDA_VISIBLE_DEVICES={:ids}", cuda_numbers(indices, gpus)),
    )


def reset(gpus: Iterable[Gpu]) -> tuple[str, ...]:
    """The commands that reset these GPUs."""
    return tuple(shell("sudo nvidia-smi --gpu-reset -i {:id}", gpu.uuid or gpu.index) for gpu in gpus)


def was_running(gpu: Gpu, driver: Driver) -> bool:
    """Whether the driver was up on this GPU before it was asked: while it starts, scrubbing memory shows as
    utilisation (nvidia-smi(1))."""
    return bool(gpu.persistence_mode) or (driver.init_s is not None and driver.init_s < _WAS_RUNNING_S)


def same_models(gpus: tuple[Gpu, ...], visible: Visible) -> dict[str, list[Gpu]]:
    """The visible GPUs that answer, by model."""
    models: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        if gpu.index in visible.gpus and gpu.name and not gpu.lost:
            models.setdefault(gpu.name, []).append(gpu)
    return models
