"""Which GPUs will the run use? Pure: facts and answers in, rows out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mgpu.errors import NOT_READY, MgpuError
from mgpu.planning.gpu_models import is_target
from mgpu.quantities import gib
from mgpu.snapshot import Gpu, Snapshot, Visible
from mgpu.wizard.answers import Answers, Origin
from mgpu.wizard.proposal_types import Option, Part, Setting, origin_of

CPU_RANKS: Final = 2  # the smallest run in which ranks communicate
_FREE_SHARE: Final = 0.9  # a GPU with a smaller share of its memory free is in use


@dataclass(frozen=True)
class Devices:
    """The GPUs or CPU ranks of one node."""

    gpus: tuple[Gpu, ...]  # the GPUs to use, in the order of the ranks; empty with CPU ranks
    ranks: int  # on this node
    part: Part
    mig: bool = False
    first: bool = True  # local rank i runs on the GPU with NVML index i
    gpu_ids: str | None = None  # the CUDA_VISIBLE_DEVICES they need; None: no change

    @property
    def cpu(self) -> bool:
        """Whether the ranks run on the CPU."""
        return not self.gpus

    @property
    def memory_bytes(self) -> int | None:
        """Usable memory of the smallest GPU, with no other process on it; None if one is unknown."""
        sizes = [usable_bytes(gpu) for gpu in self.gpus]
        return min((size for size in sizes if size is not None), default=None) if None not in sizes else None

    @property
    def capability(self) -> tuple[int, int] | None:
        """The lowest compute capability; None if one is unknown."""
        known = [gpu.compute_capability for gpu in self.gpus if gpu.compute_capability]
        return min(known) if known and len(known) == len(self.gpus) else None


def usable_bytes(gpu: Gpu) -> int | None:
    """Return the memory of a GPU minus what driver and firmware reserve, in bytes."""
    return None if gpu.memory_total_bytes is None else gpu.memory_total_bytes - (gpu.memory_reserved_bytes or 0)


def devices(snapshot: Snapshot, answers: Answers) -> Devices:
    """Return the GPUs of the run. Raises MgpuError with the reason if the machine is not supported."""
    found, mig = _usable_gpus(snapshot)
    if not found:
        return _cpu_ranks(answers)
    options = tuple(_option(gpu) for gpu in found)
    picked, problems = _pick_gpus(found, answers.gpus, mig)
    if answers.origins.get("gpus") == "file":  # the user did not type the flag in the message
        problems = tuple(f"{problem}. The file requests it; --gpus auto uses what is here" for problem in problems)
    busy = [gpu for gpu in picked if _busy(gpu)]
    notes = [f"GPU {gpu.index} is in use: {_busy(gpu)}." for gpu in busy]
    if mig:
        notes.append("A MIG instance is a single device: NCCL cannot combine several.")
    if len({gpu.name for gpu in picked}) > 1:
        notes.append("The GPUs differ: every step waits for the slowest, and the smallest memory limits the batch.")
    ranks = len(picked)
    keys: dict[str, object] = {"num_processes": ranks}
    visible = snapshot.visible
    assert visible is not None
    first = [gpu.index for gpu in picked] == list(visible.gpus[:ranks])
    gpu_ids = None if first or mig else ",".join(cuda_number(gpu, visible) for gpu in picked)
    if gpu_ids is not None:
        keys["gpu_ids"] = gpu_ids
        notes.append(
            f"gpu_ids refers to GPUs of this machine. accelerate replaces {_mask(visible)} with it at every launch."
        )
    origin, why = _origin(answers, found, picked, wanted=is_target(snapshot))
    setting = Setting("GPUs", _gpus_text(picked, mig), origin, why, "gpus", keys)
    chosen = {"gpus": ",".join(str(gpu.index) for gpu in picked)}
    part = Part((setting,), {"gpus": options}, chosen, problems, tuple(notes))
    in_order = [gpu.index for gpu in picked] == list(range(ranks)) and visible.value is None
    return Devices(picked, ranks, part, mig, in_order, gpu_ids)


def _mask(visible: Visible) -> str:
    return "CUDA_VISIBLE_DEVICES" if visible.value is None else f"CUDA_VISIBLE_DEVICES={visible.value}"


def _usable_gpus(snapshot: Snapshot) -> tuple[tuple[Gpu, ...], bool]:
    """Return the GPUs a run could use, in CUDA's order, and whether that is a MIG instance; empty without GPUs."""
    driver = snapshot.driver
    if driver is None or snapshot.gpus is None or snapshot.visible is None:
        gap = snapshot.gap("driver" if driver is None else "gpus")
        raise MgpuError(f"cannot read the GPUs of this machine: {gap.reason}\n  mgpu doctor  shows more", NOT_READY)
    if not driver.any_gpu:
        return (), False
    if driver.nvml_error is not None:
        why = f"this machine has NVIDIA GPUs, but the driver does not respond ({driver.nvml_error})."
        raise MgpuError(f"{why}\n  mgpu doctor  shows how to fix it", NOT_READY)
    by_index = {gpu.index: gpu for gpu in snapshot.gpus}
    lost = [gpu for gpu in snapshot.gpus if gpu.lost]
    usable = [by_index[index] for index in snapshot.visible.gpus if index in by_index and not by_index[index].lost]
    if not usable and (instance := _mig_instance(snapshot)):
        return (instance,), True
    if not usable:
        raise MgpuError(
            f"none of the {len(snapshot.gpus)} GPUs is usable "
            f"(CUDA_VISIBLE_DEVICES={snapshot.visible.value!r}, {len(lost)} lost).\n"
            "  mgpu doctor  shows how to fix it",
            NOT_READY,
        )
    return tuple(usable), False


def _mig_instance(snapshot: Snapshot) -> Gpu | None:
    """Return the first visible MIG instance as a GPU, with the memory that torch reports, if torch was queried."""
    visible, runtime = snapshot.visible, snapshot.torch_runtime
    if visible is None or visible.mig is None:
        return None
    parent = next((gpu for gpu in snapshot.gpus or () if visible.mig in gpu.mig_uuids), None)
    parent = parent or next((gpu for gpu in snapshot.gpus or () if gpu.mig_mode), None)
    if parent is None:
        return None
    memory = runtime.devices[0].memory_total_bytes if runtime and runtime.devices else None
    of_the_whole = ("memory_used_bytes", "memory_free_bytes", "memory_reserved_bytes", "processes")
    unknown: dict[str, Any] = dict.fromkeys(of_the_whole)
    return replace(parent, memory_total_bytes=memory, **unknown)


def _cpu_ranks(answers: Answers) -> Devices:
    problems: tuple[str, ...] = ()
    if answers.gpus not in (None, 0):
        wanted = answers.gpus if isinstance(answers.gpus, int) else ",".join(map(str, answers.gpus or ()))
        problems = (f"--gpus {wanted}: this machine has no NVIDIA GPU (0 means CPU ranks)",)
    origin: Origin = origin_of(answers, "gpus") if answers.gpus == 0 else "rule"
    text, why = f"{CPU_RANKS} on the CPU", "no NVIDIA GPU here: two CPU ranks with gloo"
    setting = Setting("ranks", text, origin, why, None, {"num_processes": CPU_RANKS})
    return Devices((), CPU_RANKS, Part((setting,), problems=problems))


def _pick_gpus(
    found: tuple[Gpu, ...], wanted: int | tuple[int, ...] | None, mig: bool
) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """Return the GPUs of an answer, and its problems."""
    idle = tuple(gpu for gpu in found if not _busy(gpu))
    if wanted is None:
        return idle or found, ()
    if isinstance(wanted, int):
        if wanted == 0:
            return found, (
                "--gpus 0: this machine has NVIDIA GPUs, and accelerate would use them. To rehearse on the CPU, run  "
                "mgpu smoke-test --cpu 2",
            )
        if not 0 < wanted <= len(found):
            here = "1 GPU is usable here" if len(found) == 1 else f"{len(found)} GPUs are usable here"
            return found, (f"--gpus {wanted}: {here}",)
        taken = [*idle, *(gpu for gpu in found if gpu not in idle)][:wanted]
        return tuple(gpu for gpu in found if gpu in taken), ()
    by_index = {gpu.index: gpu for gpu in found}
    missing = [index for index in wanted if index not in by_index]
    if missing or not wanted:
        there = ", ".join(str(gpu.index) for gpu in found)
        why = f"GPU {missing[0]} is not visible or does not respond" if missing else "no GPU is selected"
        return found, (f"--gpus {','.join(map(str, wanted))}: {why} (usable: {there})",)
    if len(set(wanted)) < len(wanted):
        return found, (f"--gpus {','.join(map(str, wanted))}: a GPU is listed twice, and two ranks cannot share one",)
    return tuple(gpu for gpu in found if gpu.index in wanted), ()  # in CUDA's order, the order of the ranks


def _origin(answers: Answers, found: Sequence[Gpu], picked: Sequence[Gpu], *, wanted: bool) -> tuple[Origin, str]:
    if wanted and answers.gpus is None:
        return "flag", f"the {'GPUs' if len(found) > 1 else 'GPU'} of the target, 1 process per GPU"
    which = f"GPU {', '.join(str(gpu.index) for gpu in picked)} of"
    some = [gpu.index for gpu in picked] != list(range(len(picked)))
    here = f"{which if some else ''} {len(found)} visible GPU{'s' if len(found) > 1 else ''}".strip()
    if answers.gpus is not None:
        return origin_of(answers, "gpus"), f"{here}, 1 process per GPU"
    taken = {gpu.index for gpu in picked}
    left = [gpu for gpu in found if gpu.index not in taken]
    if left:
        return "probe", f"{here}, GPU {left[0].index} is in use ({_busy(left[0])}); 1 process per GPU"
    return "probe", f"{here}, 1 process per GPU"


def _gpus_text(gpus: Sequence[Gpu], mig: bool) -> str:
    names = list(dict.fromkeys(gpu.name or "unnamed GPU" for gpu in gpus))
    if len(names) == 1:
        return f"{len(gpus)} x {names[0]}{' (MIG)' if mig else ''}"
    counted = (f"{sum((gpu.name or 'unnamed GPU') == name for gpu in gpus)} x {_short(name)}" for name in names)
    return " + ".join(counted)


def _short(name: str) -> str:
    return name.removeprefix("NVIDIA ").removeprefix("GeForce ")


def cuda_number(gpu: Gpu, visible: Visible) -> str:
    """Return the entry of CUDA_VISIBLE_DEVICES for this GPU: that of the current mask, or its index without one."""
    place = visible.gpus.index(gpu.index)
    if visible.value is None:
        return str(place)
    entries = [entry.strip() for entry in visible.value.split(",")]
    return entries[place] if place < len(entries) else str(gpu.index)


def _busy(gpu: Gpu) -> str | None:
    """Return who uses a GPU; None if it is idle."""
    running = [process for process in gpu.processes or () if process.kind == "compute"]
    if running:
        first = running[0]
        who = ", ".join(part for part in (first.user, f"pid {first.pid}") if part)
        return who + (f" and {len(running) - 1} more" if len(running) > 1 else "")
    free, total = gpu.memory_free_bytes, usable_bytes(gpu)
    if free is None or not total or gpu.display_active or free >= total * _FREE_SHARE:
        return None
    return f"{gib(free)} of {gib(total)} free"


def _option(gpu: Gpu) -> Option:
    parts = [gpu.name or "unnamed GPU"]
    if gpu.memory_free_bytes is not None:
        parts.append(f"{gib(gpu.memory_free_bytes)} free")
    elif gpu.memory_total_bytes is not None:
        parts.append(gib(gpu.memory_total_bytes))
    if gpu.numa_node is not None and gpu.numa_node >= 0:
        parts.append(f"NUMA {gpu.numa_node}")
    if busy := _busy(gpu):
        parts.append(f"in use: {busy}")
    return Option(str(gpu.index), "   ".join(parts), recommended=not busy)
