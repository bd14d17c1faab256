"""Does the driver support the CUDA that PyTorch was built with, on every GPU?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.planning.requirements import version_numbers
from mgpu.snapshot import Driver, Gpu, Plan, Pytorch, TorchRuntime, Visible
from mgpu.text import counted

from .._cuda_drivers import DRIVER_FLOOR, DRIVER_PACKAGED
from .._gpus import usable_count
from .._wording import format_driver_version
from ._wheels import install_command

_COMPATIBILITY = "https://docs.nvidia.com/deploy/cuda-compatibility/"


@check(Severity.ERROR, source=_COMPATIBILITY, because_of=("torch_missing", "torch_is_cpu_build"))
def driver_too_old_for_torch(pytorch: Pytorch, driver: Driver) -> Answer:
    """The driver is too old for the CUDA that PyTorch was built with.

    Why: CUDA cannot start: driver version is insufficient for CUDA runtime version (error 35).
    More: A driver supports toolkits of its own CUDA major version and older.

    Fix: Install a torch built for a CUDA that this driver supports.
    More: Install a torch build for an older CUDA, or let an administrator install a newer driver.
    """
    cuda, version = version_numbers(pytorch.cuda), version_numbers(driver.version)
    if not cuda or not version:
        return Skip("torch has no CUDA" if not cuda else "the driver's version is unknown")
    floor = DRIVER_FLOOR.get(cuda[0])
    if floor is None:
        return Skip(f"the oldest driver for CUDA {pytorch.cuda} is unknown")
    if version < floor and driver.cuda_version is not None and driver.cuda_version[0] >= cuda[0]:
        newest = f"{driver.cuda_version[0]}.{driver.cuda_version[1]}"
        return Ok(f"driver {driver.version} runs CUDA {newest} through a compatibility library")
    if version < floor:
        return Problem(
            f"driver {driver.version}, CUDA {pytorch.cuda} needs {format_driver_version(floor)} or newer",
            fix=(
                Fix(commands=(install_command(driver),)),
                Fix(f"Or update the driver to {format_driver_version(floor)} or newer.", who="admin"),
            ),
            evidence={"driver": driver.version, "torch_cuda": pytorch.cuda, "floor": format_driver_version(floor)},
        )
    return Ok(f"driver {driver.version} runs CUDA {pytorch.cuda}")


@check(Severity.INFO, source=_COMPATIBILITY, because_of=("driver_too_old_for_torch",))
def driver_older_than_toolkit(pytorch: Pytorch, driver: Driver) -> Answer:
    """The driver is older than the one packaged with PyTorch's CUDA.

    Why: Training works, but torch.compile and custom kernels can fail with error 222, unsupported PTX version.
    More: torch itself works (minor-version compatibility), but code compiled at run time by a newer toolkit (Triton,
    torch.compile, custom kernels) can fail with error 222, "unsupported PTX version".

    Fix: If you compile kernels, install a newer driver.
    More: Or install an older torch build.
    """
    cuda, version = version_numbers(pytorch.cuda)[:2], version_numbers(driver.version)
    packaged = DRIVER_PACKAGED.get(cuda)  # type: ignore[arg-type]
    if not packaged or not version:
        return Skip("nothing to compare")
    floor = DRIVER_FLOOR[cuda[0]]
    if floor <= version < packaged:
        return Problem(
            f"driver {driver.version}, CUDA {pytorch.cuda} came with {format_driver_version(packaged)}",
            fix=Fix(who="admin"),
            evidence={
                "driver": driver.version,
                "torch_cuda": pytorch.cuda,
                "packaged": format_driver_version(packaged),
            },
        )
    return Ok(f"driver {driver.version} fully supports CUDA {pytorch.cuda}") if version >= packaged else Skip("too old")


@check(
    Severity.ERROR,
    source="https://pytorch.org/docs/stable/notes/cuda.html",
    because_of=(
        "torch_is_cpu_build",
        "driver_too_old_for_torch",
        "gpu_lost",
        "nvlink_fabric_not_ready",
        "gpu_compute_prohibited",
        "driver_lacks_compute",
        "visible_devices_cut_short",
        "visible_devices_hide_all",
        "libcuda_missing",
        "libcuda_is_stub",
        "libcuda_not_the_drivers",
        "cuda_compat_on_geforce",
        "torch_cannot_start_cuda",
    ),
)
def torch_sees_fewer_gpus(
    torch_runtime: TorchRuntime, visible: Visible, gpus: tuple[Gpu, ...], pytorch: Pytorch, plan: Plan
) -> Answer:
    """PyTorch sees fewer GPUs than the driver reports and CUDA_VISIBLE_DEVICES allows.

    Why: CUDA could not start, or not on all GPUs. accelerate does not stop then. Without a GPU it starts N independent
    single-process runs.

    Fix: Start CUDA directly. Its error code names the cause.
    """
    if torch_runtime.import_error or not pytorch.installed:
        return Skip("torch cannot be imported")
    if plan.expect_gpus == 0 or not gpus:
        return Skip("no GPU here" if not gpus else "0 GPUs are requested")
    expected = usable_count(visible)
    if torch_runtime.device_count is None:
        return Skip("the number of GPUs that torch sees is unknown")
    seen = torch_runtime.device_count
    if seen < expected:
        why = torch_runtime.cuda_error or "torch reported no reason"
        return Problem(
            f"torch sees {counted(seen, 'GPU')}, {expected} are visible",
            f"CUDA: {why}",
            Fix(commands=("python -c 'import torch; torch.cuda.init()'", "mgpu doctor -v")),
            {"torch": seen, "visible": expected, "cuda_error": torch_runtime.cuda_error},
        )
    return Ok(f"torch sees {counted(seen, 'GPU')}")
