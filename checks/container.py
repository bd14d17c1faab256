"""Does the container or the kernel get in the way?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Container, Driver, Gpu, Host

from ._knowledge import numbers

# accelerate warns below this (utils/other.py, check_os_kernel).
_KERNEL = (5, 5)


@check(
    Severity.ERROR,
    source="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html",
)
def container_lost_gpus(container: Container, driver: Driver) -> Answer:
    """The container has device nodes for GPUs, and may not use them.

    Why: after `systemctl daemon-reload` on the host the cgroup forgets which devices the container may open. NVML then
    says "Unknown Error", and running jobs lose their GPUs.

    Fix: restart the container; CDI or the cgroupfs driver keep it from happening again.
    """
    if not container.kind:
        return Skip("not a container")
    numbered = [node for node in driver.device_nodes if node.removeprefix("/dev/nvidia").isdigit()]
    if not numbered:
        return Skip("no /dev/nvidiaN in this container")
    if driver.nvml_error is None:
        return Ok(f"{len(numbered)} GPU device nodes, and NVML may use them")
    if driver.nvml_error not in ("UNKNOWN", "NO_PERMISSION"):
        return Skip(f"NVML: {driver.nvml_error}")
    return Problem(
        f"{len(numbered)} GPU device nodes, and NVML says {driver.nvml_error}",
        "The container's cgroup no longer allows the devices, as happens when the host reloads systemd.",
        Fix("Restart the container.", ("docker restart CONTAINER",)),
        {"nvml": driver.nvml_error, "nodes": len(numbered)},
    )


@check(Severity.INFO, source="https://docs.nvidia.com/cuda/wsl-user-guide/")
def wsl_limits_nccl(container: Container, gpus: tuple[Gpu, ...]) -> Answer:
    """This is WSL2: NCCL and NVML are limited here.

    Why: NVML shows no processes and little utilisation, and GPUs reach each other through host memory.

    Fix: fine for development; train on Linux itself.
    """
    if not container.wsl:
        return Ok("not WSL")
    return Problem(
        "WSL2",
        f"{len(gpus)} GPUs through the Windows driver: no process list, no direct transfer between GPUs.",
        Fix("Fine for development."),
    )


@check(Severity.INFO, source="https://github.com/huggingface/accelerate/issues/1929")
def kernel_older_than_advised(host: Host) -> Answer:
    """The Linux kernel is older than accelerate advises.

    Why: accelerate warns below 5.5 that a run may hang. Distributions carry fixes back, so the number alone proves
    nothing: the smoke test decides.

    Fix: none needed when `mgpu smoke-test` passes.
    """
    version = numbers(host.kernel)
    if not version:
        return Skip(f"the kernel's version cannot be read from {host.kernel!r}")
    if version < _KERNEL:
        return Problem(
            f"Linux {host.kernel}, accelerate advises 5.5 or newer",
            "Older kernels made some multi-GPU runs hang; many distributions carry the fix back.",
            Fix("Let the smoke test decide.", ("mgpu smoke-test",)),
            {"kernel": host.kernel},
        )
    return Ok(f"Linux {host.kernel}")
