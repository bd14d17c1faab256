"""Summarize the GPU readings of a run: means and peaks, and the last half minute.

Pure. "Busy" is NVML's utilization: the share of time in which any kernel ran, including a kernel that only waits for
other GPUs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mgpu.probes.gpu_monitor import Reading
from mgpu.snapshot import Gpu, GpuWork

BUSY_PERCENT = 5  # mgpu: a desktop alone uses less than this
_TAKEN_BYTES = 64 << 20  # less than the smallest CUDA context (T4: about 100 MiB)
_GIB = 1 << 30


@dataclass(frozen=True)
class _Sample:
    at: float
    reading: Reading
    ours: frozenset[int] | None  # pids of the run; None: NVML's pids are not this container's

    @property
    def busy(self) -> bool:
        return (self.reading.busy_percent or 0) >= BUSY_PERCENT

    @property
    def power_percent(self) -> float | None:
        drawn, limit = self.reading.power_w, self.reading.power_limit_w
        return None if drawn is None or not limit else 100 * drawn / limit


@dataclass
class _Sums:
    samples: int = 0
    known: int = 0  # samples with known utilization
    percent: float = 0.0
    busy: int = 0

    def add(self, sample: _Sample) -> None:
        self.samples += 1
        if sample.reading.busy_percent is not None:
            self.known += 1
            self.percent += sample.reading.busy_percent
            self.busy += sample.busy


@dataclass
class _Gpu:
    """The samples of one GPU so far."""

    work: GpuWork  # identity and constant fields
    all: _Sums = field(default_factory=_Sums)
    since: _Sums = field(default_factory=_Sums)  # since the first sample in which any GPU was busy
    until: _Sums = field(default_factory=_Sums)  # since then, until the last such sample
    peak: int | None = None
    ours: frozenset[int] | None = None  # the largest set seen
    last_busy: float | None = None
    power: tuple[float, int] = (0.0, 0)  # percent of the power limit summed over busy samples, and their number
    lately: deque[_Sample] = field(default_factory=deque)


class Tally:
    """Accumulates the readings of a run's GPUs."""

    def __init__(self, gpus: Sequence[Gpu], ranks: int, window_s: float = 30.0) -> None:
        one_each = ranks == len(gpus)
        self.window_s = window_s
        self.first_rank = 0  # of this machine
        self.first_busy: float | None = None  # when any GPU was first seen busy
        self.last_at: float | None = None
        self.gpus = {
            gpu.uuid: _Gpu(
                GpuWork(
                    gpu.index,
                    gpu.uuid,
                    place if one_each else None,
                    total_bytes=gpu.memory_total_bytes,
                    before_bytes=gpu.memory_used_bytes,
                )
            )
            for place, gpu in enumerate(gpus)
            if gpu.uuid
        }
        self.pids_fit = False  # NVML reported a process of the run with its pid in this namespace

    def take(self, at: float, readings: Mapping[str, Reading]) -> None:
        """Add one reading of all GPUs."""
        ours = _ours(readings)
        self.pids_fit = self.pids_fit or any(ours.values())
        samples = {u: _Sample(at, readings[u], ours.get(u)) for u in self.gpus if u in readings}
        if not samples:
            return
        self.last_at = at
        working = any(sample.busy for sample in samples.values()) or self._only_taken(samples)
        if working and self.first_busy is None:
            self.first_busy = at
        for uuid, sample in samples.items():
            gpu = self.gpus[uuid]
            gpu.all.add(sample)
            if self.first_busy is not None:
                gpu.since.add(sample)
            if working:
                gpu.until = replace(gpu.since)
            if sample.busy:
                gpu.last_busy = at
                if (percent := sample.power_percent) is not None:
                    gpu.power = gpu.power[0] + percent, gpu.power[1] + 1
            if sample.reading.used_bytes is not None:
                gpu.peak = max(gpu.peak or 0, sample.reading.used_bytes)
            if sample.ours is not None and (gpu.ours is None or len(sample.ours) > len(gpu.ours)):
                gpu.ours = sample.ours
            gpu.lately.append(sample)
            while gpu.lately[0].at <= at - self.window_s:
                gpu.lately.popleft()

    def _only_taken(self, samples: Mapping[str, _Sample]) -> bool:
        """Whether memory was allocated, if NVML does not report utilization (MIG, some virtual GPUs)."""
        if any(sample.reading.busy_percent is not None for sample in samples.values()):
            return False
        used_before = {uuid: self.gpus[uuid].work.before_bytes or 0 for uuid in samples}
        return any((s.reading.used_bytes or 0) - used_before[uuid] > _TAKEN_BYTES for uuid, s in samples.items())

    def all_time(self) -> tuple[GpuWork, ...]:
        """Return each GPU's work, from the first sample to the last in which any GPU was busy."""
        return tuple(
            self._work(gpu, gpu.all if self.first_busy is None else gpu.until, gpu.peak, gpu.ours)
            for gpu in self.gpus.values()
        )

    def lately(self) -> tuple[GpuWork, ...]:
        """Return each GPU's work in the last half minute."""
        recent = []
        for gpu in self.gpus.values():
            sums = _Sums()
            for sample in gpu.lately:
                sums.add(sample)
            used = [s.reading.used_bytes for s in gpu.lately if s.reading.used_bytes is not None]
            ours = [s.ours for s in gpu.lately if s.ours is not None]
            recent.append(self._work(gpu, sums, max(used, default=None), max(ours, key=len, default=None)))
        return tuple(recent)

    def _work(self, gpu: _Gpu, sums: _Sums, peak: int | None, ours: frozenset[int] | None) -> GpuWork:
        last = self.last_at or 0.0
        return replace(
            gpu.work,
            rank=None if gpu.work.rank is None else gpu.work.rank + self.first_rank,
            processes=tuple(sorted(ours)) if ours is not None and self.pids_fit else None,
            samples=sums.samples,
            busy_percent=round(sums.percent / sums.known, 1) if sums.known else None,
            busy_share=round(sums.busy / sums.known, 3) if sums.known else None,
            peak_bytes=peak,
            idle_s=None if gpu.last_busy is None else round(last - gpu.last_busy, 1),
            now_percent=_mean(s.reading.busy_percent for s in gpu.lately),
            power_percent=_mean(s.power_percent for s in gpu.lately),
            usual_power_percent=round(gpu.power[0] / gpu.power[1], 1) if gpu.power[1] else None,
        )


def _ours(readings: Mapping[str, Reading]) -> dict[str, frozenset[int]]:
    """Return the run's processes on each GPU that hold memory there.

    A process that merely opened a GPU holds no memory (github.com/pytorch/pytorch/issues/54564). In a container NVML
    may report the host's pids: if one of them does not exist here, none counts.
    """
    if any(process.ours is None for reading in readings.values() for process in reading.processes or ()):
        return {}
    return {uuid: frozenset(pids(reading)) for uuid, reading in readings.items() if reading.processes is not None}


def pids(reading: Reading) -> tuple[int, ...]:
    """Return the run's processes that hold memory on a GPU."""
    return tuple(process.pid for process in reading.processes or () if process.ours and process.bytes != 0)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 1) if known else None


def peak(gpus: Sequence[GpuWork] | None) -> str:
    """Return "peak memory 61 of 79 GiB (rank 2)" for the fullest GPU of a run; empty if unknown."""
    known = [gpu for gpu in gpus or () if gpu.peak_bytes is not None and gpu.total_bytes]
    if not known:
        return ""
    fullest = max(known, key=lambda gpu: (gpu.peak_bytes or 0) / (gpu.total_bytes or 1))
    who = f"GPU {fullest.index}" if fullest.rank is None else f"rank {fullest.rank}"
    used, total = (fullest.peak_bytes or 0) / _GIB, (fullest.total_bytes or 0) / _GIB
    amount = f"{used:.0f}" if used >= 10 else f"{used:.1f}"
    return f"peak memory {amount} of {total:.0f} GiB{f' ({who})' if len(known) > 1 else ''}"


def busy(gpus: Sequence[GpuWork] | None) -> str:
    """Return "92-97 % busy", the range of the GPUs' means; empty if unknown."""
    return _span([gpu.busy_percent for gpu in gpus or ()], " % busy")


def amounts(gpus: Sequence[GpuWork]) -> str:
    """Return "61-63 of 79 GiB, 92-97 % busy", the memory and utilization of the GPUs."""
    used = _span([None if gpu.peak_bytes is None else gpu.peak_bytes / _GIB for gpu in gpus], "")
    total = _span([None if gpu.total_bytes is None else gpu.total_bytes / _GIB for gpu in gpus], " GiB")
    return ", ".join(filter(None, [f"{used} of {total}" if used and total else "", busy(gpus)]))


def _span(values: Sequence[float | None], unit: str) -> str:
    known = [f"{value:.0f}" for value in sorted(value for value in values if value is not None)]
    if not known:
        return ""
    return f"{known[0]}{unit}" if known[0] == known[-1] else f"{known[0]}-{known[-1]}{unit}"
