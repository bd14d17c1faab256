"""Does every GPU compute correct and equal results?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import GpuRun
from mgpu.text import counted, listed

from .._gpus import gpu_subjects
from ._runs import describe_untested, kernels, label, tested_runs

_REPRODUCIBLE = "https://docs.nvidia.com/cuda/cublas/index.html#results-reproducibility"


@check(
    Severity.ERROR,
    source="https://docs.nvidia.com/deploy/gpu-debug-guidelines/index.html",
    because_of=("gpu_ecc_uncorrected", "gpu_row_remap_failed"),
)
def gpu_memory_corrupts(gpu_runs: tuple[GpuRun, ...]) -> Answer:
    """Data written to a GPU's memory reads back changed.

    Why: the memory or the path between GPU and host is faulty. Weights change silently: the loss is NaN, or just worse
    than it should be.

    Fix: do not train on it. Have the board examined.
    """
    if isinstance(used := tested_runs(gpu_runs), Skip):
        return used
    known = [run for run in used if run.memory_intact is not None]
    bad = [run for run in known if not run.memory_intact]
    if not known:
        return Skip("no GPU got that far")
    if not bad:
        return Ok(f"memory sample of {counted(len(known), 'GPU')} reads back correctly{describe_untested(gpu_runs)}")
    return _wrong_results(
        bad, f"{label(bad)}: data written to memory reads back changed", "Two patterns were written and read back."
    )


@check(
    Severity.ERROR,
    source="https://docs.nvidia.com/deploy/gpu-debug-guidelines/index.html",
    because_of=("gpu_memory_corrupts", "gpu_ecc_uncorrected", "gpu_row_remap_failed"),
)
def gpu_result_not_finite(gpu_runs: tuple[GpuRun, ...]) -> Answer:
    """A matrix product of small numbers returns NaN or infinity on a GPU.

    Why: the inputs are bounded, so the GPU or its libraries are faulty. A training run on it gets a NaN loss at any
    learning rate.

    Fix: do not train on it. Have the board examined.
    """
    if isinstance(used := tested_runs(gpu_runs), Skip):
        return used
    computed = [run for run in used if run.results]
    bad = [run for run in computed if run.not_finite]
    if not bad:
        return (
            Ok(kernels(computed) + f" is finite{describe_untested(gpu_runs)}")
            if computed
            else Skip("no GPU got that far")
        )
    kinds = dict.fromkeys(kind for run in bad for kind in run.not_finite)
    return _wrong_results(
        bad, f"{label(bad)}: NaN or infinity in {listed(kinds)}", "The inputs are small and the same on every GPU."
    )


@check(
    Severity.ERROR,
    source=_REPRODUCIBLE,
    because_of=("gpu_memory_corrupts", "gpu_result_not_finite", "gpu_ecc_uncorrected"),
)
def gpu_results_differ(gpu_runs: tuple[GpuRun, ...]) -> Answer:
    """The same computation returns different bits on GPUs of one model, or on one GPU when repeated.

    Why: on identical GPUs cuBLAS results are bit-for-bit equal. A GPU that deviates computes wrong values now and then
    without reporting it. Its errors enter the gradients of all ranks, and the loss is worse than it should be.

    Fix: do not train on it. Have the board examined.
    """
    if isinstance(used := tested_runs(gpu_runs), Skip):
        return used
    computed = [run for run in used if run.results]
    if not computed:
        return Skip("no GPU got that far")
    unsteady = [run for run in computed if run.unsteady]
    if unsteady:
        kinds = dict.fromkeys(kind for run in unsteady for kind in run.unsteady)
        title = f"{label(unsteady)}: different result the second time in {listed(kinds)}"
        return _wrong_results(unsteady, title, "The same computation on the same GPU returned different bits.")
    alike: dict[tuple[str, int | None, str], list[GpuRun]] = {}
    for run in computed:
        for kind in run.results if run.model else ():
            alike.setdefault((run.model or "", run.multiprocessors, kind), []).append(run)
    for (model, _, kind), group in alike.items():
        (usual, number), *others = Counter(run.results[kind] for run in group).most_common()
        if others:
            odd = [run for run in group if run.results[kind] != usual]
            if number == len(odd):  # no majority: unknown which half is right
                return _wrong_results(group, f"{label(group)} return different results in {kind}", f"All are {model}.")
            title = f"{label(odd)}: different bits in {kind} than {number} GPUs of the same model"
            return _wrong_results(odd, title, f"All are {model}.")
    compared = [group for group in alike.values() if len(group) > 1]
    if not compared:
        return Ok(f"each GPU's results are repeatable; no two GPUs of one model{describe_untested(gpu_runs)}")
    several = {run.index for group in compared for run in group}
    return Ok(f"{counted(len(several), 'GPU')} of one model agree bit for bit{describe_untested(gpu_runs)}")


def _wrong_results(runs: Sequence[GpuRun], title: str, cause: str) -> Problem:
    """Return the problem of GPUs with wrong results."""
    indices = ",".join(str(run.index) for run in runs)
    return Problem(
        title,
        f"{cause} Such a GPU silently corrupts a training run.",
        (
            Fix("Exclude it, then test again.", ("mgpu doctor --deep",)),
            Fix("Run a longer test.", (shell("dcgmi diag -r 3 -i {:numbers}", indices),), who="admin"),
            Fix("Have the board replaced.", ("nvidia-bug-report.sh",), who="hardware"),
        ),
        {
            f"gpu_{run.index}": " ".join(f"{kind}={digest}" for kind, digest in run.results.items()) or run.detail
            for run in runs
        },
        gpu_subjects(runs),
    )
