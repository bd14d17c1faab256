"""Which GPUs were tested, and how they are named."""

from __future__ import annotations

from collections.abc import Sequence

from mgpu.check import Skip
from mgpu.snapshot import GpuRun
from mgpu.text import counted, listed

from .._wording import gpu_list


def label(runs: Sequence[GpuRun]) -> str:
    """Return the GPUs' indices. Without NVML they are unknown, and only the first GPU is tested."""
    return gpu_list(run.index for run in runs) if all(run.uuid for run in runs) else "the first GPU"


def tested_runs(runs: tuple[GpuRun, ...]) -> Skip | list[GpuRun]:
    """Return the GPUs that were tested, or a Skip with the reason why none was."""
    used = [run for run in runs if run.ended != "skipped"]
    if used:
        return used
    return Skip(f"no GPU was tested: {runs[0].detail}" if runs else "there is no GPU to test")


def describe_untested(runs: tuple[GpuRun, ...]) -> str:
    """Return an addition to an Ok that lists the GPUs not tested."""
    skipped = [run for run in runs if run.ended == "skipped"]
    return "".join(f"; GPU {run.index} not tested: {run.detail}" for run in skipped)


def kernels(runs: list[GpuRun]) -> str:
    """Return what was computed, and on which GPUs nothing was."""
    computed = [run for run in runs if run.results]
    kinds = dict.fromkeys(kind for run in computed for kind in run.results)
    without = [run for run in runs if run.no_kernel]
    left = f"; none on {label(without)}: {without[0].no_kernel}" if without else ""
    return f"a matrix product in {listed(kinds)} on {counted(len(computed), 'GPU')}{left}"
