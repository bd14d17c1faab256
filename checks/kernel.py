"""Does the kernel drive the GPUs correctly, and do its settings leave enough for the ranks?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import version_numbers
from mgpu.snapshot import Container, Driver, Gpu, Host, Kernel, Network, Pci, PciDevice, Plan, Slurm, System
from mgpu.text import counted, listed

from ._wording import gib, parse_digits

_NCCL_LIMITS = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/runtime_and_mpi_issues.html"
_NCCL_NETWORK = (
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/networking_troubleshooting.html"
)
_FLAVOURS = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/kernel-modules.html"

# accelerate warns below this (utils/other.py, check_os_kernel).
_KERNEL = (5, 5)
# PCI device IDs increase with the architecture: the open module's own list begins at 1e02, a Turing GPU
# (g_nv_name_released.h); B200 is 2901, the highest Ada 28f8. Only the open module supports Blackwell
# (developer.nvidia.com/blog/nvidia-transitions-fully-towards-open-source-gpu-kernel-modules).
_TURING, _BLACKWELL = 0x1E00, 0x2900
# With these drivers every governor follows the load, including "powersave" (admin-guide/pm/intel_pstate, amd-pstate).
_SELF_SCALING = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")
# Share of fs.file-max at which monitoring usually warns (Linuxfabrik's plugin file-descriptors, 90 %).
_FILES_SHARE = 0.9
# The NCCL guide's own example of a range narrowed for a firewall has 1001 ports.
_PORTS = 1000
# Swap use above this share of memory is more than a few idle pages that were swapped out once.
_SWAP_SHARE = 0.1


@check(Severity.INFO, source="https://github.com/huggingface/accelerate/issues/1929")
def kernel_older_than_advised(host: Host) -> Answer:
    """The Linux kernel is older than accelerate recommends.

    Why: older kernels made some multi-GPU runs hang, but many distributions backport the fix.
    More: accelerate warns below 5.5 that a run may hang. Because of backports the version alone proves nothing.

    Fix: run the smoke test to find out.
    """
    version = version_numbers(host.kernel)
    if not version:
        return Skip(f"cannot parse the kernel version {host.kernel!r}")
    if version < _KERNEL:
        return Problem(
            f"Linux {host.kernel}, accelerate recommends 5.5 or newer",
            fix=Fix(commands=("mgpu smoke-test",)),
            evidence={"kernel": host.kernel},
        )
    return Ok(f"Linux {host.kernel}")


# ---- the driver's module


@check(Severity.ERROR, source="https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/", condemns_node=True)
def nouveau_holds_gpus(kernel: Kernel, driver: Driver, plan: Plan) -> Answer:
    """The open-source driver nouveau is loaded instead of NVIDIA's.

    Why: nouveau took the GPUs at boot. It does not support CUDA.
    More: CUDA finds no device, and PyTorch trains on the CPU.

    Fix: block nouveau, install NVIDIA's driver, reboot.
    """
    if kernel.modules is None:
        return Skip("the loaded modules cannot be read here")
    free = [name for name in ("nouveau", "nova_core") if name in kernel.modules]
    if not free:
        return Ok("nouveau is not loaded")
    if driver.module_version or "nvidia" in kernel.modules:
        return Ok(f"{free[0]} drives another card, NVIDIA's module is loaded too")
    if not driver.any_gpu or plan.expect_gpus == 0:
        return Skip("no NVIDIA GPU expected here")
    return Problem(
        f"{free[0]} is loaded, NVIDIA's module is not",
        fix=Fix(
            commands=(
                "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' | sudo tee /etc/modprobe.d/no-nouveau.conf",
                "sudo update-initramfs -u || sudo dracut --force",
                "sudo reboot",
            ),
            who="admin",
        ),
        evidence={"modules": ", ".join(kernel.modules), "nvml": driver.nvml_error},
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/")
def secure_boot_may_refuse_driver(kernel: Kernel, driver: Driver, plan: Plan) -> Answer:
    """Secure Boot is on, and NVIDIA's module is not loaded.

    Why: Secure Boot rejects modules not signed with an enrolled key. The kernel log shows whether it did here.
    More: A module that DKMS built on this machine is signed with the machine's own key, which must be enrolled at the
    console. modprobe otherwise fails with "Key was rejected by service", and CUDA finds no device.

    Fix: check whether it was rejected. If so, enroll the key that DKMS signs with, and confirm at the next boot.
    More: Or disable Secure Boot in the firmware.
    """
    if driver.nvml_error != "DRIVER_NOT_LOADED" or not driver.any_gpu or plan.expect_gpus == 0:
        return Ok("the module is loaded") if driver.nvml_error is None else Skip("no module is missing")
    if kernel.secure_boot is None:
        return Skip("the firmware's setting cannot be read here. As an administrator: mokutil --sb-state")
    if not kernel.secure_boot:
        return Ok("Secure Boot is off")
    return Problem(
        "Secure Boot is on, NVIDIA's module is not loaded",
        fix=Fix(
            commands=(
                "sudo dmesg | grep -iE 'key was rejected|lockdown|nvidia'",
                "sudo mokutil --import /var/lib/shim-signed/mok/MOK.der",
            ),
            who="admin",
        ),
        evidence={"secure_boot": True, "nvml": driver.nvml_error},
    )


@check(Severity.ERROR, source=_FLAVOURS, condemns_node=True)
def driver_module_of_wrong_flavour(kernel: Kernel, pci: Pci, gpus: tuple[Gpu, ...], container: Container) -> Answer:
    """The loaded variant of NVIDIA's kernel module (open or proprietary) does not support a GPU here.

    Why: the module ignores GPUs of architectures that it does not support. They are missing from nvidia-smi.
    More: The open module supports Turing and newer, the proprietary one everything up to Hopper. Blackwell requires the
    open one.

    Fix: install the other variant of the same driver.
    """
    if kernel.driver_flavour is None:
        return Skip("unknown module variant: not loaded, or /proc/driver/nvidia is not visible")
    if container.kind:
        return Skip("a container may have only some of the GPUs")
    here = [device for device in pci.devices if device.kind == "gpu" and device.vendor == "10de"]
    if not here or any(gpu.pci is None for gpu in gpus):
        return Skip("cannot match the GPUs on the bus with the driver's")
    shown = {_normalize_pci(gpu.pci) for gpu in gpus}
    stray = [
        device for device in here if _normalize_pci(device.address) not in shown and _is_unsupported(device, kernel)
    ]
    if not stray:
        return Ok(f"the {kernel.driver_flavour} module supports {counted(len(here), 'GPU')}")
    other = "open" if kernel.driver_flavour == "proprietary" else "proprietary"
    package = "nvidia-open" if other == "open" else "cuda-drivers"
    return Problem(
        f"the {kernel.driver_flavour} module is loaded, but {listed(device.address for device in stray)} "
        f"{'needs' if len(stray) == 1 else 'need'} the {other} one",
        fix=Fix(
            f"Install the {other} variant (packages from NVIDIA's repository), then reboot.",
            (shell("sudo apt-get install {:package}", package), "sudo reboot"),
            who="admin",
        ),
        evidence={"flavour": kernel.driver_flavour} | {device.address: device.device for device in stray},
        subjects=tuple(device.address for device in stray),
    )


def _normalize_pci(pci: str | None) -> str:
    """Normalize a PCI address: NVML's "00000000:1A:00.0" and sysfs' "0000:1a:00.0" become equal."""
    domain, _, rest = (pci or "").lower().partition(":")
    return f"{domain.lstrip('0') or '0'}:{rest}"


def _is_unsupported(device: PciDevice, kernel: Kernel) -> bool:
    """Return whether the loaded variant cannot drive this architecture; False if the device ID is not a number."""
    try:
        number = int(device.device, 16)
    except ValueError:
        return False
    return number >= _BLACKWELL if kernel.driver_flavour == "proprietary" else number < _TURING


@check(Severity.WARNING, source="https://docs.nvidia.com/deploy/gpu-debug-guidelines/")
def process_stuck_in_driver(kernel: Kernel) -> Answer:
    """A process is stuck in the GPU driver and cannot be killed.

    Why: it waits for the driver. The next program that uses the same GPU hangs too.
    More: It waits for a GPU or a lock that is never released, so not even SIGKILL stops it. The next program that needs
    the same GPU or lock hangs: nvidia-smi, and also the launch.

    Fix: reboot. The kernel log shows what it waits for.
    """
    if kernel.stuck is None:
        return Skip("too many processes to check in time")
    if not kernel.stuck:
        return Ok("no process that uses the driver or a GPU is in uninterruptible sleep")
    return Problem(
        f"{listed(kernel.stuck)}: stuck in the kernel, cannot be killed",
        fix=Fix(commands=("sudo dmesg | grep -iE 'nvrm|xid|blocked for more'",), who="admin"),
        evidence={"stuck": ", ".join(kernel.stuck)},
        subjects=kernel.stuck,
    )


# ---- settings


@check(Severity.WARNING, source=_NCCL_LIMITS)
def shared_memory_removed_at_logout(kernel: Kernel, host: Host, container: Container, slurm: Slurm) -> Answer:
    """systemd-logind removes this user's shared memory when the user logs out.

    Why: ranks of a Slurm job have no login session, so logind clears /dev/shm when any shell of this user exits.
    More: The same is true for ranks that mpirun started. When an unrelated shell logs out, their segments are removed,
    and NCCL fails with "unlink shared memory /dev/shm/nccl-... failed".

    Fix: disable it on the compute nodes. Until then, open no SSH session there that may end before the run.
    """
    if container.kind:
        return Skip("the host's logind does not affect containers")
    if host.user_is_root:
        return Skip("root's shared memory is never removed")
    if slurm.job_id is None:
        return Skip("a run from a login session keeps that session open")
    if kernel.remove_ipc is None:
        return Skip("not set in logind.conf, and the built-in default differs between distributions")
    if not kernel.remove_ipc:
        return Ok("RemoveIPC=no")
    return Problem(
        "RemoveIPC=yes: logging out removes the shared memory of running ranks",
        fix=Fix(
            commands=(
                "sudo mkdir -p /etc/systemd/logind.conf.d",
                "printf '[Login]\\nRemoveIPC=no\\n' | sudo tee /etc/systemd/logind.conf.d/remove-ipc.conf",
                "sudo systemctl restart systemd-logind",
            ),
            who="admin",
        ),
        evidence={"RemoveIPC": "yes", "job": slurm.job_id},
    )


@check(Severity.INFO, source="https://docs.kernel.org/mm/overcommit-accounting.html")
def overcommit_is_strict(kernel: Kernel) -> Answer:
    """The kernel does not overcommit memory (vm.overcommit_memory=2).

    Why: reserved memory counts as used, so forking loader workers may fail with "Cannot allocate memory".
    More: CUDA and PyTorch reserve far more than they use, and each loader worker is a fork of its rank. The fork fails
    although memory is free.

    Fix: return to the default mode.
    """
    if kernel.overcommit_memory is None:
        return Skip("vm.overcommit_memory cannot be read")
    if kernel.overcommit_memory != 2:
        return Ok(f"vm.overcommit_memory={kernel.overcommit_memory}")
    known = kernel.commit_limit_bytes is not None and kernel.committed_bytes is not None
    left = max(0, (kernel.commit_limit_bytes or 0) - (kernel.committed_bytes or 0))
    return Problem(
        "vm.overcommit_memory=2" + (f": {gib(left)} may still be reserved" if known else ""),
        fix=Fix(commands=("sudo sysctl vm.overcommit_memory=0",), who="admin"),
        evidence={"committed_bytes": kernel.committed_bytes, "commit_limit_bytes": kernel.commit_limit_bytes},
    )


@check(Severity.INFO, source=_NCCL_NETWORK)
def outgoing_ports_few(kernel: Kernel) -> Answer:
    """The kernel has few ports for outgoing connections.

    Why: each connection uses one port. When none is left, ranks cannot connect.
    More: gloo, NCCL's sockets and loaders of remote data use a port per connection and keep it for a minute after. A
    narrow net.ipv4.ip_local_port_range runs out in large jobs: "Cannot assign requested address".

    Fix: widen the range.
    """
    if kernel.port_range is None:
        return Skip("net.ipv4.ip_local_port_range cannot be read")
    low, high = kernel.port_range
    if high - low + 1 >= _PORTS:
        return Ok(f"ports {low}-{high}")
    return Problem(
        f"{counted(max(0, high - low + 1), 'port')} ({low}-{high}) for all outgoing connections",
        fix=Fix(commands=("sudo sysctl net.ipv4.ip_local_port_range='32768 60999'",), who="admin"),
        evidence={"low": low, "high": high},
    )


@check(Severity.INFO, source="https://docs.kernel.org/networking/ip-sysctl.html")
def port_among_outgoing_ones(kernel: Kernel, network: Network) -> Answer:
    """The kernel may assign the rendezvous port to an outgoing connection.

    Why: any program's connection may be using the port when the ranks need it.
    More: net.ipv4.ip_local_port_range was widened to include the rendezvous port. Occasionally another program's
    connection uses it at launch: "Address already in use", and the next try works.

    Fix: reserve it.
    More: Or choose a port below the range.
    """
    if kernel.port_range is None:
        return Skip("net.ipv4.ip_local_port_range cannot be read")
    low, high = kernel.port_range
    if not low <= network.port <= high:
        return Ok(f"port {network.port} is outside {low}-{high}")
    if _contains_port(network.port, kernel.reserved_ports or ""):
        return Ok(f"port {network.port} is reserved")
    reserved = ",".join(filter(None, (kernel.reserved_ports, str(network.port))))
    return Problem(
        f"port {network.port} is in the range for outgoing connections ({low}-{high})",
        fix=Fix(commands=(shell("sudo sysctl net.ipv4.ip_local_reserved_ports={:numbers}", reserved),), who="admin"),
        evidence={"port": network.port, "low": low, "high": high},
    )


def _contains_port(port: int, ports: str) -> bool:
    """Return whether a list such as "8080,29500-29510" contains the port."""
    for part in ports.split(","):
        first, _, last = part.partition("-")
        low, high = parse_digits(first), parse_digits(last or first)
        if low is not None and high is not None and low <= port <= high:
            return True
    return False


@check(Severity.WARNING, source=_NCCL_LIMITS)
def file_handles_nearly_used_up(kernel: Kernel) -> Answer:
    """The machine has few file handles left.

    Why: the limit is for the whole machine. Without free handles, no program can open a file or a socket.
    More: fs.file-max applies to all processes together. At scale NCCL alone opens tens of thousands of files per rank.
    At the limit every program on the machine fails with "Too many open files in system".

    Fix: raise the limit (to the NCCL guide's value).
    More: Find out which processes hold them.
    """
    if kernel.files_used is None or not kernel.files_max:
        return Skip("fs.file-nr cannot be read")
    if kernel.files_used <= _FILES_SHARE * kernel.files_max:
        return Ok(f"{kernel.files_used} of {kernel.files_max} file handles in use")
    return Problem(
        f"{kernel.files_used} of {kernel.files_max} file handles in use",
        fix=Fix(commands=("sudo sysctl fs.file-max=2097152",), who="admin"),
        evidence={"used": kernel.files_used, "max": kernel.files_max},
    )


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
