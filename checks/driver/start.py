"""Does every NVML call return, and how long does the driver take to start?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, Value, check
from mgpu.snapshot import Container, Driver, Gpu, Kernel, NvmlWait
from mgpu.text import listed

from .._wording import gpu_list
from ._nvml import absence_reason

_PERSISTENCE = "https://docs.nvidia.com/deploy/driver-persistence/overview.html"
# Starting the driver on a GPU takes 1-3 s (driver persistence guide); a running driver answers in milliseconds.
_STARTED_AGAIN_S = 1.0
_SICK_S = 5.0
_FIND_CAUSE = Fix(
    "Find the cause in the kernel log (Xid, NVRM, hung task), and the processes in state D.",
    (
        "sudo dmesg -T | grep -iE 'nvrm|xid|blocked for more than'",
        "ps -eo pid,stat,lstart,wchan:24,args | awk '$2 ~ /^D/'",
    ),
    who="admin",
)
_RESET = Fix(
    "Drain the node, then reset the GPUs. If the reset hangs too, reboot: a process in state D cannot be killed.",
    ("sudo nvidia-smi --gpu-reset", "sudo reboot"),
    who="admin",
)


@check(Severity.WARNING, source="https://docs.nvidia.com/deploy/gpu-debug-guidelines/")
def nvml_hangs(nvml_wait: NvmlWait, kernel: Kernel) -> Answer:
    """An NVML call does not return.

    Why: the NVIDIA driver does not respond, so nothing is known about the GPUs. CUDA starts through the same driver:
    nvidia-smi, torch.cuda and every launch here would hang too.
    More: A GPU that fell off the bus, a firmware crash or a lock held by a stuck process are the usual causes. If no
    process is stuck, the driver may only be slow: without persistence mode the first call starts it on every GPU, which
    takes 1-3 s per GPU.

    Fix: find the cause in the kernel log; a process in state D cannot be killed, so reset the GPU or reboot.
    """
    if not nvml_wait.called:
        return Skip("NVML cannot be called here")
    if nvml_wait.call is None:
        return Ok("every NVML call returned")
    stuck = list(kernel.stuck or ())
    if nvml_wait.state == "D":
        where = f" in {nvml_wait.kernel_function}" if nvml_wait.kernel_function else ""
        stuck.append(f"mgpu's own NVML query (state D{where})")
    title = f"NVML does not respond: no reply from {nvml_wait.call} after {nvml_wait.waited_s or 0:g} s"
    evidence: dict[str, Value] = {"call": nvml_wait.call, "waited_s": nvml_wait.waited_s, "stuck": ", ".join(stuck)}
    if not stuck:
        seen = "Not all processes could be checked" if kernel.stuck is None else "No process is stuck in the driver"
        slow = f"{seen}; the driver may only be slow to start. Time a call, turn on persistence mode."
        start = Fix(slow, ("time nvidia-smi -L", "sudo nvidia-smi -pm 1"), who="admin")
        return Problem(title, fix=(start, _FIND_CAUSE), evidence=evidence)
    cause = (
        f"Stuck in the driver: {listed(stuck)}. nvidia-smi, torch.cuda and every launch on this machine would hang as "
        "well, and SIGKILL does not stop them."
    )
    return Problem(title, cause, (_FIND_CAUSE, _RESET), evidence, tuple(kernel.stuck or ()))


@check(Severity.WARNING, source=_PERSISTENCE, because_of=("gpu_lost", "gpu_wants_recovery"))
def driver_slow_to_start(driver: Driver, gpus: tuple[Gpu, ...]) -> Answer:
    """The driver takes seconds to respond although persistence mode is on.

    Why: with persistence mode, no GPU has to be initialized first, so the driver is waiting for failing hardware or
    firmware.
    More: Every program and every rank waits as long, and programs with a timeout give up.

    Fix: check the kernel log for what it waits for.
    More: A reset or a reboot ends the wait.
    """
    if driver.nvml_error is not None or driver.init_s is None:
        return Skip(absence_reason(driver) if driver.nvml_error else "the driver's start time was not measured")
    if driver.init_s < _SICK_S:
        return Ok(f"the driver responded in {driver.init_s:.2f} s")
    if not all(gpu.persistence_mode for gpu in gpus if gpu.permitted and not gpu.lost):
        return Skip(f"{driver.init_s:.1f} s, but without persistence mode each GPU may take 1-3 s to start")
    return Problem(
        f"the driver took {driver.init_s:.1f} s to respond",
        fix=Fix(commands=("sudo dmesg | grep -iE 'nvrm|xid'",), who="admin"),
        evidence={"nvml_init_s": driver.init_s, "gpus": len(gpus)},
    )


@check(Severity.INFO, source=_PERSISTENCE)
def driver_starts_with_each_program(driver: Driver, gpus: tuple[Gpu, ...], container: Container) -> Answer:
    """Persistence mode is off, so each program waits seconds for the driver to start.

    Why: on an idle GPU, each program has to initialize the driver again.
    More: Without persistence mode the driver shuts a GPU down when the last program on it exits. The next program waits
    1-3 s per GPU, and configured power limits and clocks are lost.

    Fix: keep the driver loaded.
    """
    if driver.nvml_error is not None or driver.init_s is None:
        return Skip(absence_reason(driver) if driver.nvml_error else "the driver's start time was not measured")
    if container.kind or container.wsl:
        return Skip("persistence mode belongs to the host and is not visible here")
    off = [gpu.index for gpu in gpus if gpu.persistence_mode is False]
    if not off or driver.init_s < _STARTED_AGAIN_S:
        return Ok(f"the driver responded in {driver.init_s:.2f} s")
    return Problem(
        f"the driver took {driver.init_s:.1f} s to start: persistence mode is off on {gpu_list(off)}",
        fix=Fix(commands=("sudo systemctl enable --now nvidia-persistenced",), who="admin"),
        evidence={"nvml_init_s": driver.init_s, "persistence_off": len(off)},
    )
