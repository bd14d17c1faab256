"""Does the installed PyTorch fit this driver and these GPUs?"""

from __future__ import annotations

import re
import shlex

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Driver, Gpu, Plan, Python, Pytorch, TorchRuntime, Visible

from ._knowledge import DRIVER_FLOOR, DRIVER_PACKAGED, counted, dotted, gpu_list, numbers, usable_count

_COMPATIBILITY = "https://docs.nvidia.com/deploy/cuda-compatibility/"
_PYTORCH = "https://pytorch.org/get-started/locally/"
# The oldest PyTorch mgpu supports; accelerate 1.15 itself asks for 2.0.
_OLDEST = (2, 4)
# CUDA builds on PyTorch's wheel index, newest first (RELEASE.md): the suffix that fits a driver is suggested.
_WHEELS = ((13, 0), (12, 8), (12, 6), (11, 8))


def _install(driver: Driver) -> str:
    """The pip line for a wheel this driver runs."""
    version = numbers(driver.version)
    for major, minor in _WHEELS:
        if version >= DRIVER_FLOOR[major]:
            return f"pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu{major}{minor}"
    return "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu118"


@check(Severity.ERROR, source=_PYTORCH)
def torch_missing(pytorch: Pytorch, python: Python) -> Answer:
    """PyTorch is not installed in the interpreter that would run the training.

    Why: the training cannot start. Often it is installed in another environment than the one that is active.

    Fix: activate the right environment, or install torch in this one.
    """
    if pytorch.installed:
        return Ok(f"torch {pytorch.version}")
    return Problem(
        f"no torch in {python.executable}",
        "The interpreter examined has no PyTorch; another environment may have it.",
        Fix(
            "Activate the training's environment, or install torch here.",
            (f"{shlex.quote(python.executable)} -m pip install torch",),
        ),
        {"python": python.executable, "version": python.version},
    )


@check(
    Severity.ERROR,
    source="https://github.com/pytorch/pytorch/issues",
    because_of=("torch_missing", "nccl_wheels_mixed"),
)
def torch_import_fails(torch_runtime: TorchRuntime, pytorch: Pytorch) -> Answer:
    """`import torch` fails.

    Why: a library it needs is missing or damaged, of another build, or shadowed by a file of the same name. Every rank
    would die in its first line.

    Fix: the last line of the error names the library; reinstalling torch repairs most.
    """
    if torch_runtime.import_error is None:
        return Ok(f"imported in {torch_runtime.import_s or 0:.1f} s")
    if not pytorch.installed:
        return Skip("torch is not installed")
    return Problem(
        f"import torch: {torch_runtime.import_error}",
        "torch is installed but cannot be imported: every rank would die in its first line.",
        Fix(
            "Reinstall it.",
            (f"pip install --force-reinstall --no-deps torch=={(pytorch.version or '').partition('+')[0]}",),
        ),
        {"error": torch_runtime.import_error, "location": pytorch.location},
    )


@check(Severity.WARNING, source="https://github.com/huggingface/accelerate (setup.py)", because_of=("torch_missing",))
def torch_too_old(pytorch: Pytorch) -> Answer:
    """PyTorch is older than mgpu supports.

    Why: before 2.4 FSDP2 is missing and collectives behave differently; what mgpu verifies was not tried there.

    Fix: update torch.
    """
    version = numbers(pytorch.version)
    if not version:
        return Skip("torch's version is not known")
    if version[:2] < _OLDEST:
        return Problem(
            f"torch {pytorch.version}, 2.4 or newer wanted",
            "mgpu's smoke test and FSDP2 need 2.4.",
            Fix("Update torch.", ("pip install --upgrade torch",)),
            {"torch": pytorch.version},
        )
    return Ok(f"torch {pytorch.version}")


@check(Severity.ERROR, source=_PYTORCH, because_of=("torch_missing",))
def torch_is_cpu_build(pytorch: Pytorch, driver: Driver, plan: Plan) -> Answer:
    """This machine has NVIDIA GPUs, and the installed PyTorch was built without CUDA.

    Why: torch.cuda.is_available() is False. accelerate does not stop: it starts N trainings on the CPU that do not know
    of each other, each of them "main", with exit code 0.

    Fix: install a CUDA build.
    """
    if not pytorch.installed:
        return Skip("torch is not installed")
    if not driver.any_gpu:
        return Skip("no NVIDIA GPU on this machine")
    if pytorch.cuda:
        return Ok(f"built for CUDA {pytorch.cuda}")
    if plan.expect_gpus == 0:
        return Skip("0 GPUs are wanted")
    what = f"for ROCm {pytorch.hip}" if pytorch.hip else "for the CPU only"
    return Problem(
        f"torch {pytorch.version} is built {what}",
        "It cannot use the NVIDIA GPUs of this machine; accelerate would quietly train on the CPU, once per rank.",
        Fix("Install a CUDA build.", (_install(driver),)),
        {"torch": pytorch.version, "cuda": pytorch.cuda, "hip": pytorch.hip},
    )


@check(Severity.ERROR, source=_COMPATIBILITY, because_of=("torch_missing", "torch_is_cpu_build"))
def driver_too_old_for_torch(pytorch: Pytorch, driver: Driver) -> Answer:
    """The driver is too old for the CUDA that PyTorch was built with.

    Why: a driver runs toolkits of its own CUDA major and older. Below the floor CUDA starts with error 35, "driver
    version is insufficient".

    Fix: a torch build for an older CUDA (you), or a newer driver (an administrator).
    """
    cuda, version = numbers(pytorch.cuda), numbers(driver.version)
    if not cuda or not version:
        return Skip("torch has no CUDA" if not cuda else "the driver's version is not known")
    floor = DRIVER_FLOOR.get(cuda[0])
    if floor is None:
        return Skip(f"no driver floor is known for CUDA {pytorch.cuda}")
    if version < floor:
        return Problem(
            f"driver {driver.version}, CUDA {pytorch.cuda} needs {dotted(floor)} or newer",
            "CUDA will refuse to start: driver version is insufficient for CUDA runtime version (error 35).",
            (
                Fix("Install a torch built for a CUDA this driver runs.", (_install(driver),)),
                Fix(f"Or update the driver to {dotted(floor)} or newer.", who="admin"),
            ),
            {"driver": driver.version, "torch_cuda": pytorch.cuda, "floor": dotted(floor)},
        )
    return Ok(f"driver {driver.version} runs CUDA {pytorch.cuda}")


@check(Severity.INFO, source=_COMPATIBILITY, because_of=("driver_too_old_for_torch",))
def driver_older_than_toolkit(pytorch: Pytorch, driver: Driver) -> Answer:
    """The driver is older than the one packaged with PyTorch's CUDA.

    Why: torch itself runs (minor-version compatibility), but code compiled at run time by a newer toolkit (Triton,
    torch.compile, custom kernels) can fail with error 222, "unsupported PTX version".

    Fix: nothing, unless you compile; then a newer driver or an older torch build.
    """
    cuda, version = numbers(pytorch.cuda)[:2], numbers(driver.version)
    packaged = DRIVER_PACKAGED.get(cuda)  # type: ignore[arg-type]
    if not packaged or not version:
        return Skip("nothing to compare")
    floor = DRIVER_FLOOR[cuda[0]]
    if floor <= version < packaged:
        return Problem(
            f"driver {driver.version}, CUDA {pytorch.cuda} came with {dotted(packaged)}",
            "Training runs; torch.compile and custom kernels may meet error 222, unsupported PTX version.",
            Fix("If you compile: a newer driver.", who="admin"),
            {"driver": driver.version, "torch_cuda": pytorch.cuda, "packaged": dotted(packaged)},
        )
    return Ok(f"driver {driver.version} fully serves CUDA {pytorch.cuda}") if version >= packaged else Skip("too old")


def _has_kernels(arch_list: tuple[str, ...], capability: tuple[int, int]) -> bool:
    """Whether a wheel's kernels run on a GPU: sm_XY runs on major X, minor >= Y; PTX (compute_XY) on anything newer."""
    for arch in arch_list:
        found = re.fullmatch(r"(sm|compute)_(\d+)(\d)([a-z]?)", arch)
        if not found:
            continue
        kind, major, minor, exact = found.group(1), int(found.group(2)), int(found.group(3)), found.group(4)
        if exact:
            if (major, minor) == capability:
                return True
        elif kind == "compute":
            if (major, minor) <= capability:
                return True
        elif major == capability[0] and minor <= capability[1]:
            return True
    return False


@check(Severity.ERROR, source="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#binary-compatibility")
def torch_lacks_gpu_kernels(pytorch: Pytorch, gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """The installed PyTorch has no kernels for one of the GPUs.

    Why: the wheel was compiled for other compute capabilities. torch sees the GPU, and the first operation there fails
    with "no kernel image is available for execution on the device" (error 209).

    Fix: a torch build that has them: a newer one for new GPUs, a cu126 one for Volta and older.
    """
    if not pytorch.arch_list:
        return Skip("the wheel's kernels are not known" if pytorch.cuda else "torch has no CUDA")
    known = [gpu for gpu in gpus if gpu.index in visible.gpus and gpu.compute_capability]
    bad = [g for g in known if g.compute_capability and not _has_kernels(pytorch.arch_list, g.compute_capability)]
    if bad:
        major, minor = bad[0].compute_capability or (0, 0)
        wheel = "cu126" if (major, minor) < (7, 5) else "cu128"
        return Problem(
            f"torch {pytorch.version} has no kernels for sm_{major}{minor} ({gpu_list(g.index for g in bad)})",
            f"It was compiled for {' '.join(pytorch.arch_list)}: "
            f"the first kernel on {bad[0].name} fails with error 209.",
            Fix(
                "Install a build that has them.",
                (f"pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/{wheel}",),
            ),
            {"arch_list": " ".join(pytorch.arch_list), "compute_capability": f"{major}.{minor}"},
            tuple(f"GPU {gpu.index}" for gpu in bad),
        )
    return Ok(f"kernels for {counted(len(known), 'visible GPU')}") if known else Skip("no visible GPU tells")


@check(
    Severity.ERROR,
    source="https://pytorch.org/docs/stable/notes/cuda.html",
    because_of=(
        "torch_is_cpu_build", "driver_too_old_for_torch", "gpu_lost", "nvlink_fabric_not_ready",
        "gpu_compute_prohibited", "driver_lacks_compute", "visible_devices_cut_short", "visible_devices_hide_all",
    ),
)  # fmt: skip
def torch_sees_fewer_gpus(
    torch_runtime: TorchRuntime, visible: Visible, gpus: tuple[Gpu, ...], pytorch: Pytorch, plan: Plan
) -> Answer:
    """PyTorch sees fewer GPUs than the driver shows and CUDA_VISIBLE_DEVICES leaves.

    Why: CUDA could not start, or not on all GPUs. accelerate does not stop for that: without a GPU it starts N
    trainings that do not know of each other.

    Fix: CUDA's own error says what is in the way.
    """
    if torch_runtime.import_error or not pytorch.installed:
        return Skip("torch cannot be imported")
    if plan.expect_gpus == 0 or not gpus:
        return Skip("no GPU here" if not gpus else "0 GPUs are wanted")
    expected = usable_count(visible)
    seen = torch_runtime.device_count or 0
    if seen < expected:
        why = torch_runtime.cuda_error or "torch gave no reason"
        return Problem(
            f"torch sees {counted(seen, 'GPU')}, {expected} are visible",
            f"CUDA: {why}",
            Fix(
                "Ask CUDA itself; its error code names the cause.",
                ("python -c 'import torch; torch.cuda.init()'", "mgpu doctor -v"),
            ),
            {"torch": seen, "visible": expected, "cuda_error": torch_runtime.cuda_error},
        )
    return Ok(f"torch sees {counted(seen, 'GPU')}")


@check(Severity.ERROR, source="https://pytorch.org/docs/stable/distributed.html", because_of=("torch_is_cpu_build",))
def torch_without_nccl(torch_runtime: TorchRuntime, pytorch: Pytorch, driver: Driver) -> Answer:
    """This PyTorch build has CUDA but no NCCL.

    Why: without NCCL the ranks cannot exchange gradients between GPUs; init_process_group("nccl") raises.

    Fix: install the Linux wheel from PyPI or PyTorch's index; builds of other origin may leave NCCL out.
    """
    if not pytorch.cuda or torch_runtime.nccl_available is None:
        return Skip("torch has no CUDA" if not pytorch.cuda else "torch.distributed is not known")
    if torch_runtime.nccl_available:
        return Ok(f"built with NCCL {torch_runtime.nccl_version}")
    return Problem(
        f"torch {pytorch.version} was built without NCCL",
        "GPU ranks have no way to exchange gradients.",
        Fix("Install PyTorch's own wheel.", (_install(driver),)),
        {"torch": pytorch.version},
    )
