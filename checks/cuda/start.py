"""Does CUDA start on every GPU, and do kernels run to their end?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Driver, GpuRun, Plan, TorchRuntime
from mgpu.text import counted

from .._cuda_errors import ERRORS, CudaError, error_in_message, unknown_error
from .._gpus import gpu_subjects
from ._runs import describe_untested, kernels, label, tested_runs

_DRIVER_API = "https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html"
_STAGES = ("library", "init", "context", "memory", "torch", "kernel", "peers")
# Ids of checks whose problems keep CUDA from starting.
# fmt: off
_DRIVER_TROUBLE = (
    "driver_not_loaded", "driver_library_mismatch", "driver_does_not_answer", "driver_lacks_compute",
    "visible_devices_hide_all", "gpu_lost", "nvlink_fabric_not_ready", "gpu_compute_prohibited", "libcuda_missing",
    "libcuda_is_stub", "libcuda_not_the_drivers", "cuda_compat_on_geforce", "uvm_missing_in_container",
    "uvm_cannot_be_loaded", "device_nodes_denied", "device_node_missing", "fabric_manager_missing",
    "fabric_manager_version_differs", "mig_without_instance", "container_given_no_gpus", "nouveau_holds_gpus",
    "driver_module_of_wrong_flavour", "gpu_off_the_bus", "gpu_exclusive_taken",
)
_CONTEXT_TROUBLE = (
    *_DRIVER_TROUBLE, "gpu_compute_exclusive", "gpu_split_by_mig", "gpu_busy", "gpu_memory_without_process",
    "gpu_memory_used_from_outside", "mps_running", "imex_channel_unusable",
)
_KERNEL_TROUBLE = (
    "torch_lacks_gpu_kernels", "driver_too_old_for_torch", "gpu_ecc_uncorrected", "gpu_row_remap_failed",
    "torch_ptx_too_new_for_driver", "xid_memory_damaged", "xid_board_faulty",
)
_HANG_TROUBLE = (
    "gpu_lost", "driver_does_not_answer", "nvlink_fabric_not_ready", "gpu_wants_recovery",
    "xid_gpu_fell_off_bus", "xid_firmware_crashed", "xid_gpu_wants_reset", "process_stuck_in_driver",
)
# fmt: on


def _runs_reaching(runs: Iterable[GpuRun], stage: str) -> list[GpuRun]:
    return [run for run in runs if _STAGES.index(run.stage) >= _STAGES.index(stage)]


def _error(run: GpuRun) -> CudaError:
    if run.code is not None and run.code in ERRORS:
        return ERRORS[run.code]
    return (error_in_message(run.detail or "") if run.code is None else None) or unknown_error(run.code, run.name)


def _fixes(error: CudaError, runs: Sequence[GpuRun]) -> tuple[Fix, ...]:
    """Return the error's fixes with the GPUs' indices in their commands, or without them if unknown."""
    numbers = ",".join(str(run.index) for run in runs if run.uuid)
    option = f" -i {numbers}" if numbers else ""
    return tuple(replace(f, commands=tuple(c.replace(" -i INDEX", option) for c in f.commands)) for f in error.fixes)


def _failures(runs: tuple[GpuRun, ...], stages: tuple[str, ...], passed: Callable[[list[GpuRun]], str]) -> Answer:
    """Return one problem for each error in these stages, with all GPUs that had it."""
    if isinstance(used := tested_runs(runs), Skip):
        return used
    alike: dict[tuple[int | None, str | None], list[GpuRun]] = {}
    for run in used:
        if run.ended == "failed" and run.stage in stages:
            alike.setdefault((run.code, run.detail), []).append(run)
    if not alike:
        well = [run for run in _runs_reaching(used, stages[0]) if run.stage not in stages or run.ended == "done"]
        return Ok(passed(well) + describe_untested(runs)) if well else Skip("no GPU got that far")
    return tuple(_failure(some) for some in alike.values())


def _failure(runs: list[GpuRun]) -> Problem:
    error, first = _error(runs[0]), runs[0]
    named = f"CUDA error {error.code} ({error.name})" if error.code >= 0 else first.detail or "an unknown error"
    what = {
        "library": "libcuda.so.1 cannot be loaded",
        "init": f"CUDA does not start: {named}",
        "context": f"cannot create a CUDA context: {named}",
        "memory": f"cannot use its memory: {named}",
    }.get(first.stage, f"a computation failed: {named}")
    version = first.cuda_version
    return Problem(
        f"{label(runs)}: {what}",
        error.cause if first.stage != "library" else f"Loader error: {first.detail}.",
        _fixes(error, runs) if first.stage != "library" else _NO_LIBRARY,
        {
            "call": first.detail,
            "code": first.code,
            "libcuda": first.libcuda,
            "cuda": f"{version[0]}.{version[1]}" if version else None,
            "documentation": error.source,
        },
        gpu_subjects(runs),
    )


_NO_LIBRARY = (
    Fix("Check that the driver's library is installed.", ("ldconfig -p | grep libcuda.so.1",)),
    Fix(
        "Start the container with the compute capability.",
        ("docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",),
    ),
)


@check(Severity.ERROR, source=_DRIVER_API, because_of=(*_DRIVER_TROUBLE, "driver_too_old_for_torch"))
def torch_cannot_start_cuda(torch_runtime: TorchRuntime, driver: Driver, plan: Plan) -> Answer:
    """PyTorch fails to initialize CUDA.

    Why: `torch.cuda.is_available()` then returns False and hides the reason in a warning, while nvidia-smi lists all
    GPUs. CUDA's error code identifies the cause.

    Fix: depends on the error code. It is shown with the cause.
    """
    if not driver.any_gpu or plan.expect_gpus == 0:
        return Skip("no GPU here" if not driver.any_gpu else "no GPUs expected (--expect-gpus 0)")
    if torch_runtime.import_error is not None:
        return Skip("torch cannot be imported")
    if torch_runtime.cuda_error is None:
        return Ok("CUDA starts in PyTorch") if torch_runtime.cuda_available else Skip("this torch has no CUDA")
    error = error_in_message(torch_runtime.cuda_error)
    if error is None:
        return Problem(
            "PyTorch cannot start CUDA",
            torch_runtime.cuda_error,
            unknown_error(None, None).fixes,
            {"cuda_error": torch_runtime.cuda_error},
        )
    return Problem(
        f"PyTorch cannot start CUDA: error {error.code} ({error.name})",
        error.cause,
        _fixes(error, ()),
        {"cuda_error": torch_runtime.cuda_error, "documentation": error.source},
    )


@check(Severity.ERROR, source=_DRIVER_API, because_of=_DRIVER_TROUBLE)
def cuda_does_not_start(gpu_runs: tuple[GpuRun, ...]) -> Answer:
    """CUDA does not start on a GPU: cuInit returns an error.

    Why: it is the first call of every CUDA program. NVML and nvidia-smi do not need it and may show a healthy GPU.

    Fix: depends on the error code. It is shown with the cause.
    """
    return _failures(gpu_runs, ("library", "init"), lambda runs: f"cuInit succeeds for {counted(len(runs), 'GPU')}")


@check(Severity.ERROR, source=_DRIVER_API, because_of=_CONTEXT_TROUBLE)
def cuda_context_fails(gpu_runs: tuple[GpuRun, ...]) -> Answer:
    """A CUDA context or memory cannot be created on a GPU.

    Why: every process needs a context to compute. Compute mode, MIG, full memory or a faulty GPU shows here first. The
    run stops at its first `.cuda()`.

    Fix: depends on the error code. It is shown with the cause.
    """
    return _failures(
        gpu_runs, ("context", "memory"), lambda runs: f"context and memory work on {counted(len(runs), 'GPU')}"
    )


@check(Severity.ERROR, source=_DRIVER_API, because_of=_KERNEL_TROUBLE)
def cuda_kernel_fails(gpu_runs: tuple[GpuRun, ...]) -> Answer:
    """A plain matrix product fails on a GPU.

    Why: a torch build without kernels for this model fails at the first operation ("no kernel image is available"), a
    faulty GPU with an illegal address or an ECC error. In a training run both appear only after everything was loaded.

    Fix: depends on the error code. It is shown with the cause.
    """
    if isinstance(used := tested_runs(gpu_runs), Skip):
        return used
    far = _runs_reaching(used, "torch")
    without = [run for run in far if run.no_kernel]
    if far and len(without) == len(far):
        return Skip(f"no kernel was run: {without[0].no_kernel}")
    return _failures(gpu_runs, ("torch", "kernel"), kernels)


@check(Severity.ERROR, source="https://docs.nvidia.com/deploy/xid-errors/index.html", because_of=_HANG_TROUBLE)
def cuda_hangs(gpu_runs: tuple[GpuRun, ...]) -> Answer:
    """A CUDA call on a GPU hangs.

    Why: the driver or the GPU does not return from this call.
    More: A training run hangs in the same place without a message, and it may be impossible to kill its process.

    Fix: check what the driver logged (an Xid).
    More: Look for an Xid in the kernel log, then reset the GPU or reboot.
    """
    if isinstance(used := tested_runs(gpu_runs), Skip):
        return used
    hung = [run for run in used if run.ended == "hung"]
    if not hung:
        return Ok(f"{counted(len(used), 'GPU')} completed every call{describe_untested(gpu_runs)}")
    return Problem(
        f"{label(hung)} {'hangs' if len(hung) == 1 else 'hang'}: {hung[0].detail}",
        fix=(
            Fix(commands=("sudo dmesg | grep -iE 'xid|nvrm'",), who="admin"),
            Fix(
                "Reset the GPU. If that hangs too, reboot.",
                (
                    shell("sudo nvidia-smi --gpu-reset -i {:numbers}", ",".join(str(run.index) for run in hung)),
                    "sudo reboot",
                ),
                who="admin",
            ),
        ),
        evidence={f"gpu_{run.index}": run.detail for run in hung},
        subjects=gpu_subjects(hung),
    )


@check(
    Severity.ERROR,
    source="https://docs.python.org/3/library/faulthandler.html",
    because_of=("torch_import_fails", "gpu_lost", "driver_library_mismatch"),
)
def cuda_process_dies(gpu_runs: tuple[GpuRun, ...]) -> Answer:
    """A process that uses a GPU is killed by a signal.

    Why: a signal in the driver's library or in torch leaves no Python traceback. Causes are mismatched library
    versions, a damaged installation or faulty hardware. A rank of a training run dies the same way.

    Fix: find out where it dies.
    More: Reinstall torch or the driver.
    """
    if isinstance(used := tested_runs(gpu_runs), Skip):
        return used
    dead = [run for run in used if run.ended == "died"]
    if not dead:
        return Ok(f"{counted(len(used), 'process', 'processes')} exited normally{describe_untested(gpu_runs)}")
    in_torch = all(run.stage in ("torch", "kernel") for run in dead)
    return Problem(
        f"{label(dead)}: the process was {dead[0].detail}",
        "It died in torch or a library that torch loads." if in_torch else "It died in the driver's library.",
        (
            Fix(commands=("python -X faulthandler -c \"import torch; print(torch.ones(9, device='cuda') + 1)\"",)),
            Fix("Reinstall torch.", ("pip install --force-reinstall --no-cache-dir torch",))
            if in_torch
            else Fix("Reinstall the driver and reboot.", ("sudo reboot",), who="admin"),
        ),
        {f"gpu_{run.index}": run.detail for run in dead},
        gpu_subjects(dead),
    )
