"""Are the CPUs online, at full speed and free?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Container, Kernel, System
from mgpu.text import counted

from .._wording import gib

# With these drivers every governor follows the load, including "powersave" (admin-guide/pm/intel_pstate, amd-pstate).
_SELF_SCALING = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")
# Swap use above this share of memory is more than a few idle pages that were swapped out once.
_SWAP_SHARE = 0.1


# ---- CPUs and memory


@check(Severity.INFO, source="https://docs.kernel.org/core-api/cpu_hotplug.html")
def cpus_offline(kernel: Kernel, container: Container) -> Answer:
    """Some CPUs are offline.

    Why: loader workers and the threads that feed the GPUs share the remaining CPUs.
    More: An administrator took them offline, or the kernel did after a fault.

    Fix: set them online.
    More: Unless the kernel log reports a fault.
    """
    online, present = kernel.cpus_online, kernel.cpus_present
    if container.kind == "lxc":
        return Skip("LXC shows only this container's CPUs as online")
    if online is None or present is None:
        return Skip("/sys/devices/system/cpu cannot be read")
    if online >= present:
        return Ok(f"all {present} CPUs are online")
    if kernel.smt in ("off", "forceoff") and online * 2 >= present:
        return Ok(f"{online} of {present} CPUs: hyper-threading is off")
    return Problem(
        f"{online} of {present} CPUs are online",
        fix=Fix(commands=("sudo chcpu -e $(cat /sys/devices/system/cpu/offline)",), who="admin"),
        evidence={"online": online, "present": present},
    )


@check(Severity.INFO, source="https://docs.kernel.org/admin-guide/pm/cpufreq.html")
def cpu_held_at_lowest_clock(kernel: Kernel) -> Answer:
    """The CPUs stay at their lowest clock.

    Why: with this driver, "powersave" means the lowest clock regardless of load.
    More: Only with intel_pstate and amd-pstate does "powersave" mean something else. Launching kernels and loading data
    is CPU work, so the GPUs wait.

    Fix: choose another governor.
    """
    governor, scaling = kernel.cpu_governor, kernel.cpu_driver
    if governor is None:
        return Skip("the kernel does not control the clock here (virtual machine or firmware)")
    if governor != "powersave" or scaling in _SELF_SCALING:
        return Ok(f"{governor} ({scaling or 'unknown driver'})")
    if scaling is None:
        return Skip("unknown CPU frequency driver")
    return Problem(
        f'CPU governor "powersave" with {scaling}',
        fix=Fix(commands=("sudo cpupower frequency-set -g performance",), who="admin"),
        evidence={"governor": governor, "driver": scaling},
    )


@check(Severity.INFO, source="https://docs.kernel.org/filesystems/proc.html")
def machine_busy(kernel: Kernel, system: System) -> Answer:
    """The CPU load is higher than the number of CPUs.

    Why: more processes are running, or waiting for a disk, than there are CPUs.
    More: Other programs compute here too. The threads that feed the GPUs have to wait, so steps take longer and
    measurements vary.

    Fix: find out which processes use the CPUs.
    """
    if kernel.load_1min is None:
        return Skip("/proc/loadavg cannot be read")
    if kernel.load_1min <= system.cpus_logical:
        return Ok(f"load {kernel.load_1min:.1f} on {counted(system.cpus_logical, 'CPU')}")
    return Problem(
        f"load {kernel.load_1min:.1f} on {counted(system.cpus_logical, 'CPU')}",
        fix=Fix(commands=("top -b -n 1 -o %CPU | head -20",)),
        evidence={"load_1min": kernel.load_1min, "cpus": system.cpus_logical},
    )


@check(Severity.INFO, source="https://docs.kernel.org/admin-guide/sysctl/vm.html")
def swap_in_use(kernel: Kernel, system: System) -> Answer:
    """Much memory is swapped out.

    Why: memory is or was short, and pages that a rank needs must first be read back from disk.
    More: Pages of ranks and loaders are read back one by one. Steps stall for seconds on one rank while the others
    wait.

    Fix: find out which processes use the memory.
    """
    used = kernel.swap_used_bytes
    if used is None or not system.memory_total_bytes:
        return Skip("memory use cannot be read")
    if used <= _SWAP_SHARE * system.memory_total_bytes:
        return Ok(f"{gib(used)} swapped out")
    return Problem(
        f"{gib(used)} swapped out (memory: {gib(system.memory_total_bytes)})",
        fix=Fix(commands=("ps -eo rss,pid,user,comm --sort=-rss | head",)),
        evidence={"swap_used_bytes": used, "memory_total_bytes": system.memory_total_bytes},
    )
