"""Do the GPUs work when they are actually used?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from mgpu.check import Answer, Family, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Driver, GpuRun, Plan, TorchRuntime
from mgpu.text import counted, listed

from ._cuda_errors import ERRORS, CudaError, error_in_message, unknown_error
from ._gpus import gpu_subjects
from ._wording import gpu_list

FAMILY = Family(gpu_only=True)
_DRIVER_API = "https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html"
_REPRODUCIBLE = "https://docs.nvidia.com/cuda/cublas/index.html#results-reproducibility"
_IOMMU = "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#iommu-on-linux"
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
_PEER_TROUBLE = (
    "gpu_memory_corrupts", "nvlink_inactive", "nvlink_fabric_not_ready", "iommu_translates_peer_traffic",
    "pcie_acs_redirects", "rtx40_peer_access_misreported", "xid_nvlink_failed", "nvlink_fabric_degraded",
)
# fmt: on


def _label(runs: Sequence[GpuRun]) -> str:
    """Return the GPUs' indices. Without NVML they are unknown, and only the first GPU is tested."""
    return gpu_list(run.index for run in runs) if all(run.uuid for run in runs) else "the first GPU"


def _tested_runs(runs: tuple[GpuRun, ...]) -> Skip | list[GpuRun]:
    """Return the GPUs that were tested, or a Skip with the reason why none was."""
    used = [run for run in runs if run.ended != "skipped"]
    if used:
        return used
    return Skip(f"no GPU was tested: {runs[0].detail}" if runs else "there is no GPU to test")


def _describe_untested(runs: tuple[GpuRun, ...]) -> str:
    """Return an addition to an Ok that lists the GPUs not tested."""
    skipped = [run for run in runs if run.ended == "skipped"]
    return "".join(f"; GPU {run.index} not tested: {run.detail}" for run in skipped)


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
    if isinstance(used := _tested_runs(runs), Skip):
        return used
    alike: dict[tuple[int | None, str | None], list[GpuRun]] = {}
    for run in used:
        if run.ended == "failed" and run.stage in stages:
            alike.setdefault((run.code, run.detail), []).append(run)
    if not alike:
        well = [run for run in _runs_reaching(used, stages[0]) if run.stage not in stages or run.ended == "done"]
        return Ok(passed(well) + _describe_untested(runs)) if well else Skip("no GPU got that far")
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
        f"{_label(runs)}: {what}",
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
    if isinstance(used := _tested_runs(gpu_runs), Skip):
        return used
    far = _runs_reaching(used, "torch")
    without = [run for run in far if run.no_kernel]
    if far and len(without) == len(far):
        return Skip(f"no kernel was run: {without[0].no_kernel}")
    return _failures(gpu_runs, ("torch", "kernel"), _kernels)


def _kernels(runs: list[GpuRun]) -> str:
    computed = [run for run in runs if run.results]
    kinds = dict.fromkeys(kind for run in computed for kind in run.results)
    without = [run for run in runs if run.no_kernel]
    left = f"; none on {_label(without)}: {without[0].no_kernel}" if without else ""
    return f"a matrix product in {listed(kinds)} on {counted(len(computed), 'GPU')}{left}"


@check(Severity.ERROR, source="https://docs.nvidia.com/deploy/xid-errors/index.html", because_of=_HANG_TROUBLE)
def cuda_hangs(gpu_runs: tuple[GpuRun, ...]) -> Answer:
    """A CUDA call on a GPU hangs.

    Why: the driver or the GPU does not return from this call.
    More: A training run hangs in the same place without a message, and it may be impossible to kill its process.

    Fix: check what the driver logged (an Xid).
    More: Look for an Xid in the kernel log, then reset the GPU or reboot.
    """
    if isinstance(used := _tested_runs(gpu_runs), Skip):
        return used
    hung = [run for run in used if run.ended == "hung"]
    if not hung:
        return Ok(f"{counted(len(used), 'GPU')} completed every call{_describe_untested(gpu_runs)}")
    return Problem(
        f"{_label(hung)} {'hangs' if len(hung) == 1 else 'hang'}: {hung[0].detail}",
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
    if isinstance(used := _tested_runs(gpu_runs), Skip):
        return used
    dead = [run for run in used if run.ended == "died"]
    if not dead:
        return Ok(f"{counted(len(used), 'process', 'processes')} exited normally{_describe_untested(gpu_runs)}")
    in_torch = all(run.stage in ("torch", "kernel") for run in dead)
    return Problem(
        f"{_label(dead)}: the process was {dead[0].detail}",
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
    if isinstance(used := _tested_runs(gpu_runs), Skip):
        return used
    known = [run for run in used if run.memory_intact is not None]
    bad = [run for run in known if not run.memory_intact]
    if not known:
        return Skip("no GPU got that far")
    if not bad:
        return Ok(f"memory sample of {counted(len(known), 'GPU')} reads back correctly{_describe_untested(gpu_runs)}")
    return _wrong_results(
        bad, f"{_label(bad)}: data written to memory reads back changed", "Two patterns were written and read back."
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
    if isinstance(used := _tested_runs(gpu_runs), Skip):
        return used
    computed = [run for run in used if run.results]
    bad = [run for run in computed if run.not_finite]
    if not bad:
        return (
            Ok(_kernels(computed) + f" is finite{_describe_untested(gpu_runs)}")
            if computed
            else Skip("no GPU got that far")
        )
    kinds = dict.fromkeys(kind for run in bad for kind in run.not_finite)
    return _wrong_results(
        bad, f"{_label(bad)}: NaN or infinity in {listed(kinds)}", "The inputs are small and the same on every GPU."
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
    if isinstance(used := _tested_runs(gpu_runs), Skip):
        return used
    computed = [run for run in used if run.results]
    if not computed:
        return Skip("no GPU got that far")
    unsteady = [run for run in computed if run.unsteady]
    if unsteady:
        kinds = dict.fromkeys(kind for run in unsteady for kind in run.unsteady)
        title = f"{_label(unsteady)}: different result the second time in {listed(kinds)}"
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
                return _wrong_results(group, f"{_label(group)} return different results in {kind}", f"All are {model}.")
            title = f"{_label(odd)}: different bits in {kind} than {number} GPUs of the same model"
            return _wrong_results(odd, title, f"All are {model}.")
    compared = [group for group in alike.values() if len(group) > 1]
    if not compared:
        return Ok(f"each GPU's results are repeatable; no two GPUs of one model{_describe_untested(gpu_runs)}")
    several = {run.index for group in compared for run in group}
    return Ok(f"{counted(len(several), 'GPU')} of one model agree bit for bit{_describe_untested(gpu_runs)}")


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


@check(Severity.ERROR, source=_IOMMU, because_of=_PEER_TROUBLE)
def peer_copy_fails(gpu_runs: tuple[GpuRun, ...]) -> Answer:
    """A copy from one GPU to another arrives changed, fails or hangs.

    Why: CUDA reports that the two GPUs can access each other's memory, but something on the path breaks it: IOMMU
    translation, ACS on a PCIe switch or a faulty link. NCCL then hangs at the first collective, or gradients are wrong.

    Fix: turn off IOMMU translation (or set passthrough mode), and ACS on the PCIe switches between the GPUs.
    More: Until then, disable direct access.
    """
    if isinstance(used := _tested_runs(gpu_runs), Skip):
        return used
    copies = [(run, peer) for run in used for peer in run.peers]
    if not copies:
        why = next((run.no_peers for run in used if run.no_peers), None)
        return Skip(f"no copy was tested: {why}" if why else "fewer than two GPUs got that far")
    bad = [(run, peer) for run, peer in copies if peer.intact is False or peer.error]
    if not bad:
        direct = sum(peer.access is True for _, peer in copies)
        return Ok(
            f"{counted(len(copies), 'copy', 'copies')} arrived intact, {direct} of them direct"
            f"{_describe_untested(gpu_runs)}"
        )
    run, peer = bad[0]
    what = peer.error or "data arrives changed"
    more = f", and {counted(len(bad) - 1, 'other pair')}" if len(bad) > 1 else ""
    return Problem(
        f"copy from GPU {run.index} to GPU {peer.to}: {what}{more}",
        "CUDA offers direct access between them." if peer.access else "The copy goes through host memory.",
        (
            Fix(commands=("grep -o 'iommu[^ ]*' /proc/cmdline", "sudo lspci -vvv | grep -i acsctl"), who="admin"),
            Fix(
                "Disable direct access.",
                ("export NCCL_P2P_DISABLE=1",),
                kind="stopgap",
                caveat="GPUs exchange data through host memory, several times slower.",
            ),
        ),
        {f"gpu_{run.index}_to_{peer.to}": peer.error or "changed" for run, peer in bad},
        tuple(dict.fromkeys(f"GPU {index}" for run, peer in bad for index in (run.index, peer.to))),
    )
