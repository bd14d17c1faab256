"""Did the driver log anything else about GPUs and NVSwitches?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Problem, Severity, check
from mgpu.snapshot import KernelEvent, KernelLog

from .._kernel_log_lines import format_age, is_recent, no_events

_DEBUG = "https://docs.nvidia.com/deploy/gpu-debug-guidelines/"
_SWITCH = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/"


@check(Severity.WARNING, source=_SWITCH, because_of=("nvlink_fabric_not_ready", "nvlink_inactive"))
def nvswitch_failed(kernel_log: KernelLog) -> Answer:
    """An NVSwitch logged a fatal error (SXid).

    Why: a link or the switch failed. Jobs that used it were stopped, and links may stay disabled until a reset.
    More: The fabric manager disables links or GPUs until they are reset. The next run may hang in its first collective,
    or be slower.

    Fix: stop all jobs and reset all GPUs. If that fails, reboot the machine.
    More: If it recurs, contact the vendor.
    """
    switch = [event for event in kernel_log.events if event.kind == "sxid"]
    fatal = [event for event in switch if ", Fatal" in event.text and is_recent(event)]
    if not fatal:
        return no_events("fatal SXid", kernel_log, f", {len(switch)} nonfatal or old" if switch else "")
    newest = fatal[-1]
    return Problem(
        f"the NVSwitch at {newest.pci}: fatal SXid {newest.code}, {format_age(newest.seconds_ago)}",
        fix=Fix(commands=("sudo nvidia-smi --gpu-reset", "sudo systemctl restart nvidia-fabricmanager"), who="admin"),
        evidence={"log": newest.text, "origin": kernel_log.origin, "fatal_lines": len(fatal)},
    )


@check(
    Severity.WARNING,
    source=_DEBUG,
    because_of=("gpus_on_bus_not_in_driver", "driver_not_loaded", "driver_does_not_answer", "gpu_lost"),
)
def gpu_start_failed(kernel_log: KernelLog) -> Answer:
    """The driver could not initialize a GPU, or its kernel module was rejected.

    Why: RmInitAdapter failed, the probe routine failed or was not called (nouveau or vfio uses the GPU), or Secure Boot
    rejected an unsigned module. The GPU is then missing from nvidia-smi.

    Fix: read the driver's full log, then reboot the machine.
    More: Sign the module, or detach the GPU from the other driver.
    """
    patterns = ("RmInitAdapter", "rm_init_adapter", "probe routine", "rejected", "Lockdown")
    events = [e for e in kernel_log.events if e.kind == "driver" and any(text in e.text for text in patterns)]
    loaded = [e for e in kernel_log.events if "loading NVIDIA UNIX" in e.text]
    standing = [e for e in events if is_recent(e) and not any(_is_loaded_after(load, e) for load in loaded)]
    if not standing:
        return no_events("failed GPU initialization", kernel_log)
    newest = standing[-1]
    refused = "rejected" in newest.text or "Lockdown" in newest.text
    fix = (
        Fix("Sign the module (enroll its key) or disable Secure Boot.", ("mokutil --sb-state",), who="admin")
        if refused
        else Fix(commands=("sudo dmesg -T | grep NVRM",), who="admin")
    )
    where = f"the GPU at {newest.pci}" if newest.pci else "a GPU"
    return Problem(
        f"the driver's kernel module was rejected, {format_age(newest.seconds_ago)}"
        if refused
        else f"the driver could not initialize {where}, {format_age(newest.seconds_ago)}",
        f"Kernel log: {newest.text}",
        fix,
        {"log": newest.text, "origin": kernel_log.origin, "lines": len(standing)},
    )


def _is_loaded_after(load: KernelEvent, event: KernelEvent) -> bool:
    """Return whether the driver was loaded well after the event. A load right after it is the same failed start."""
    if load.seconds_ago is None or event.seconds_ago is None:
        return False
    return load.seconds_ago < event.seconds_ago - 60.0


@check(Severity.INFO, source=_DEBUG, because_of=("driver_library_mismatch",))
def driver_mismatch_logged(kernel_log: KernelLog) -> Answer:
    """A program used a driver library whose version differs from the kernel module's.

    Why: the driver was updated without a reboot, or a container or directory provides its own libcuda. The program got
    "Driver/library version mismatch" or CUDA error 803.

    Fix: check whether another libcuda is loaded.
    More: Reboot after driver updates, and remove the other libcuda from LD_LIBRARY_PATH.
    """
    events = [e for e in kernel_log.events if e.kind == "driver" and "API mismatch" in e.text and is_recent(e)]
    if not events:
        return no_events("driver version mismatch", kernel_log)
    newest = events[-1]
    return Problem(
        f"a program's driver library did not match the kernel module, {format_age(newest.seconds_ago)}",
        f"Kernel log: {newest.text}",
        Fix(commands=("ldconfig -p | grep libcuda", "echo $LD_LIBRARY_PATH")),
        {"log": newest.text, "lines": len(events)},
    )
