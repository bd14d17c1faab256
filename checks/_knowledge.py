"""Facts of the field that several families judge by, each with its source."""

from __future__ import annotations

from collections.abc import Iterable

from mgpu import quantities
from mgpu.command_line import shell
from mgpu.planning.requirements import numbers as numbers
from mgpu.snapshot import Driver, Gpu, Visible
from mgpu.text import counted as counted
from mgpu.text import listed as listed

# Driver that runs a toolkit of this CUDA major at all (minor-version compatibility):
# docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
DRIVER_FLOOR: dict[int, tuple[int, ...]] = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580, 65, 6)}

# Driver packaged with each toolkit, its full support: CUDA Toolkit release notes, table 3 (11.8 to 13.2).
DRIVER_PACKAGED: dict[tuple[int, int], tuple[int, ...]] = {
    (11, 8): (520, 61, 5),
    (12, 0): (525, 60, 13),
    (12, 1): (530, 30, 2),
    (12, 2): (535, 54, 3),
    (12, 3): (545, 23, 6),
    (12, 4): (550, 54, 14),
    (12, 5): (555, 42, 2),
    (12, 6): (560, 28, 3),
    (12, 8): (570, 26),
    (12, 9): (575, 51, 3),
    (13, 0): (580, 65, 6),
    (13, 1): (590, 44, 1),
    (13, 2): (595, 45, 4),
}

# A driver that answers sooner was not started for the question, which takes 1-3 s (driver persistence guide).
_WAS_RUNNING_S = 0.5

GIB = 1024**3
MIB = 1024**2


def dotted(version: tuple[int, ...]) -> str:
    """(580, 65, 6) -> "580.65.06", as NVIDIA writes driver versions."""
    return ".".join(str(part) if place < 2 else f"{part:02d}" for place, part in enumerate(version))


def minor_of(version: str | None) -> str:
    """ "13.0.88" -> "13.0", as CUDA toolkits are named."""
    return dotted(numbers(version)[:2])


def gib(size: int | float) -> str:
    """Bytes for people: "64 MiB", "1.5 GiB", "503 GiB"."""
    return quantities.gib(size, tenths=True)


def whole(text: str) -> int | None:
    """The number that a text of plain digits is: not "²", not "1.0", and not a line of a thousand digits."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None


def gpu_list(indices: Iterable[object]) -> str:
    """[0] -> "GPU 0", [0, 2] -> "GPU 0 and 2", [0, 1, 3] -> "GPU 0, 1 and 3"."""
    return f"GPU {listed(indices)}"


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
