"""Does the kernel hold the GPUs, and leave the ranks what they need?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import numbers
from mgpu.snapshot import Container, Driver, Gpu, Host, Kernel, Network, Pci, PciDevice, Plan, Slurm, System
from mgpu.text import counted, listed

from ._wording import gib, whole

_NCCL_LIMITS = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/runtime_and_mpi_issues.html"
_NCCL_NETWORK = (
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/networking_troubleshooting.html"
)
_FLAVOURS = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/kernel-modules.html"

# accelerate warns below this (utils/other.py, check_os_kernel).
_KERNEL = (5, 5)
# PCI device numbers rise with the architecture: the open module's own list begins at 1e02, a Turing
# (g_nv_name_released.h); B200 is 2901, the highest Ada 28f8. Blackwell is supported by the open module only
# (developer.nvidia.com/blog/nvidia-transitions-fully-towards-open-source-gpu-kernel-modules).
_TURING, _BLACKWELL = 0x1E00, 0x2900
# The governors of these drivers follow the load whatever they are called (admin-guide/pm/intel_pstate, amd-pstate).
_SELF_SCALING = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")
# Of all handles the kernel gives out: where monitoring begins to warn (Linuxfabrik's plugin file-descriptors, 90 %).
_FILES_SHARE = 0.9
# The NCCL guide's own example of a range narrowed for a firewall has 1001 ports.
_PORTS = 1000
# Swap that holds more than this part of the memory is no longer what was moved out once and forgotten.
_SWAP_SHARE = 0.1


@check(Severity.INFO, source="https://github.com/huggingface/accelerate/issues/1929")
def kernel_older_than_advised(host: Host) -> Answer:
    """The Linux kernel is older than accelerate advises.

    Why: older kernels made some multi-GPU runs hang; many distributions carry the fix back.
    More: accelerate warns below 5.5 that a run may hang. Distributions carry fixes back, so the number alone proves
    nothing: the smoke test decides.

    Fix: let the smoke test decide.
    """
    version = numbers(host.kernel)
    if not version:
        return Skip(f"the kernel's version cannot be read from {host.kernel!r}")
    if version < _KERNEL:
        return Problem(
            f"Linux {host.kernel}, accelerate advises 5.5 or newer",
            fix=Fix(commands=("mgpu smoke-test",)),
            evidence={"kernel": host.kernel},
        )
    return Ok(f"Linux {host.kernel}")


# ---- the driver's module


@check(Severity.ERROR, source="https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/", condemns_node=True)
def nouveau_holds_gpus(kernel: Kernel, driver: Driver, plan: Plan) -> Answer:
    """The free driver nouveau is loaded in place of NVIDIA's.

    Why: the free driver took the GPUs at boot. It has no CUDA.
    More: CUDA finds no device, and PyTorch trains on the CPU.

    Fix: keep it from loading, install NVIDIA's driver, reboot.
    """
    if kernel.modules is None:
        return Skip("the loaded modules cannot be read here")
    free = [name for name in ("nouveau", "nova_core") if name in kernel.modules]
    if not free:
        return Ok(f"{counted(len(kernel.modules), 'module')} of drivers, nouveau is not among them")
    if driver.module_version or "nvidia" in kernel.modules:
        return Ok(f"{free[0]} drives another card, NVIDIA's module is loaded as well")
    if not driver.any_gpu or plan.expect_gpus == 0:
        return Skip("no NVIDIA GPU is wanted here")
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
    """Secure boot is on, and NVIDIA's module is not loaded.

    Why: a module without an enrolled signature is refused; the kernel log says whether that is so here.
    More: Secure boot refuses modules that are not signed with an enrolled key; one that DKMS built on this machine is
    signed with the machine's own key, which somebody has to enroll at the console. modprobe then says "Key was rejected
    by service", and CUDA finds no device.

    Fix: see whether it was refused; if so, enroll the key that DKMS signs with, and confirm at the next boot.
    More: Or switch secure boot off in the firmware.
    """
    if driver.nvml_error != "DRIVER_NOT_LOADED" or not driver.any_gpu or plan.expect_gpus == 0:
        return Ok("the module is loaded") if driver.nvml_error is None else Skip("no module is missing")
    if kernel.secure_boot is None:
        return Skip("the firmware's setting cannot be read; an administrator may: mokutil --sb-state")
    if not kernel.secure_boot:
        return Ok("secure boot is off")
    return Problem(
        "secure boot is on, NVIDIA's module is not loaded",
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
    """The flavour of NVIDIA's module that is loaded does not support a GPU of this machine.

    Why: the module does not start GPUs of an architecture it was not made for: they are missing from nvidia-smi.
    More: The open module drives Turing and newer, the proprietary one everything up to Hopper; Blackwell needs the open
    one.

    Fix: install the other flavour of the same driver.
    """
    if kernel.driver_flavour is None:
        return Skip("the module's flavour is not known: it is not loaded, or /proc/driver/nvidia is not shown")
    if container.kind:
        return Skip("a container may be given some of the GPUs")
    here = [device for device in pci.devices if device.kind == "gpu" and device.vendor == "10de"]
    if not here or any(gpu.pci is None for gpu in gpus):
        return Skip("the GPUs on the bus cannot be told from those of the driver")
    shown = {_address(gpu.pci) for gpu in gpus}
    stray = [device for device in here if _address(device.address) not in shown and _unfit(device, kernel)]
    if not stray:
        return Ok(f"the {kernel.driver_flavour} module suits {counted(len(here), 'GPU')}")
    other = "open" if kernel.driver_flavour == "proprietary" else "proprietary"
    package = "nvidia-open" if other == "open" else "cuda-drivers"
    return Problem(
        f"the {kernel.driver_flavour} module is loaded, {listed(device.address for device in stray)} needs the {other}",
        fix=Fix(
            f"Install the {other} flavour (the packages of NVIDIA's repository), then reboot.",
            (shell("sudo apt-get install {:package}", package), "sudo reboot"),
            who="admin",
        ),
        evidence={"flavour": kernel.driver_flavour} | {device.address: device.device for device in stray},
        subjects=tuple(device.address for device in stray),
    )


def _address(pci: str | None) -> str:
    """NVML's "00000000:1A:00.0" and sysfs' "0000:1a:00.0" as one."""
    domain, _, rest = (pci or "").lower().partition(":")
    return f"{domain.lstrip('0') or '0'}:{rest}"


def _unfit(device: PciDevice, kernel: Kernel) -> bool:
    """Whether the loaded flavour cannot drive this architecture. A number that is none says nothing."""
    try:
        number = int(device.device, 16)
    except ValueError:
        return False
    return number >= _BLACKWELL if kernel.driver_flavour == "proprietary" else number < _TURING


@check(Severity.WARNING, source="https://docs.nvidia.com/deploy/gpu-debug-guidelines/")
def process_stuck_in_driver(kernel: Kernel) -> Answer:
    """A process sleeps in the GPU driver and cannot be woken.

    Why: it waits for the driver. Whatever asks the same GPU next will wait with it.
    More: It waits for a GPU or a lock that never comes, so not even SIGKILL ends it. The next program that needs the
    same GPU or lock joins it: nvidia-smi hangs, and so does the launch.

    Fix: reboot; the kernel log says what it waits for.
    """
    if kernel.stuck is None:
        return Skip("there are too many processes to ask them all in time")
    if not kernel.stuck:
        return Ok("no process of the driver or with a GPU open sleeps uninterruptibly")
    return Problem(
        f"{listed(kernel.stuck)}: asleep in the kernel, cannot be killed",
        fix=Fix(commands=("sudo dmesg | grep -iE 'nvrm|xid|blocked for more'",), who="admin"),
        evidence={"stuck": ", ".join(kernel.stuck)},
        subjects=kernel.stuck,
    )


# ---- settings


@check(Severity.WARNING, source=_NCCL_LIMITS)
def shared_memory_removed_at_logout(kernel: Kernel, host: Host, container: Container, slurm: Slurm) -> Answer:
    """systemd-logind removes this user's shared memory when the user logs out.

    Why: ranks of a Slurm job have no login session, so logind clears /dev/shm when any shell of this user ends.
    More: Ranks that Slurm or mpirun started have none: the logout of an unrelated shell takes their segments away, and
    NCCL fails with "unlink shared memory /dev/shm/nccl-... failed".

    Fix: switch it off on the compute nodes; until then keep no ssh session that may end before the run.
    """
    if container.kind:
        return Skip("logind of the host does not reach into a container")
    if host.user_is_root:
        return Skip("root's shared memory is never removed")
    if slurm.job_id is None:
        return Skip("a run started from a login session keeps that session open")
    if kernel.remove_ipc is None:
        return Skip("logind.conf does not say, and the built-in default differs between distributions")
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
    """The kernel promises no more memory than it has (strict overcommit).

    Why: reservations count as if they were used: forks of loader workers may fail with "Cannot allocate memory".
    More: CUDA and PyTorch reserve far more than they touch, and each loader worker is a fork of its rank: with free
    memory left, fork fails with "Cannot allocate memory".

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

    Why: each connection takes one; when none is left, ranks cannot connect.
    More: gloo, NCCL's sockets and the loaders of remote data take a port for each connection, and keep it for a minute
    after. A narrow net.ipv4.ip_local_port_range runs out in large jobs: "Cannot assign requested address".

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
    """The kernel may give the rendezvous port to an outgoing connection.

    Why: any program's connection may be using it when the ranks want to meet there.
    More: net.ipv4.ip_local_port_range was widened to include the port where the ranks meet. Once in a while another
    program's connection has it at the moment of the launch: "Address already in use", and the next try works.

    Fix: reserve it.
    More: Or take one below the range.
    """
    if kernel.port_range is None:
        return Skip("net.ipv4.ip_local_port_range cannot be read")
    low, high = kernel.port_range
    if not low <= network.port <= high:
        return Ok(f"port {network.port} is outside {low}-{high}")
    if _within(network.port, kernel.reserved_ports or ""):
        return Ok(f"port {network.port} is reserved")
    reserved = ",".join(filter(None, (kernel.reserved_ports, str(network.port))))
    return Problem(
        f"port {network.port} is within {low}-{high}, the ports of outgoing connections",
        fix=Fix(commands=(shell("sudo sysctl net.ipv4.ip_local_reserved_ports={:numbers}", reserved),), who="admin"),
        evidence={"port": network.port, "low": low, "high": high},
    )


def _within(port: int, ports: str) -> bool:
    """Whether a list such as "8080,29500-29510" has it."""
    for part in ports.split(","):
        first, _, last = part.partition("-")
        low, high = whole(first), whole(last or first)
        if low is not None and high is not None and low <= port <= high:
            return True
    return False


@check(Severity.WARNING, source=_NCCL_LIMITS)
def file_handles_nearly_used_up(kernel: Kernel) -> Answer:
    """The machine has few file handles left.

    Why: they are for the whole machine; without one no program can open a file or a socket.
    More: fs.file-max is for all processes together. At scale NCCL alone opens tens of thousands of files per rank; at
    the limit every program of the machine stops with "Too many open files in system".

    Fix: raise the limit (the NCCL guide's value).
    More: See who holds them.
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
    """Some of the CPUs are switched off.

    Why: the others are there and switched off.
    More: Somebody, or a fault the kernel met, took them out. Loader workers and the threads that feed the GPUs share
    the rest.

    Fix: switch them on.
    More: Unless the kernel log says why they are off.
    """
    online, present = kernel.cpus_online, kernel.cpus_present
    if container.kind == "lxc":
        return Skip("LXC shows only this container's CPUs as online")
    if online is None or present is None:
        return Skip("/sys/devices/system/cpu cannot be read")
    if online >= present:
        return Ok(f"all {present} CPUs are online")
    if kernel.smt in ("off", "forceoff") and online * 2 >= present:
        return Ok(f"{online} of {present} CPUs: hyper-threading is switched off")
    return Problem(
        f"{online} of {present} CPUs are online",
        fix=Fix(commands=("sudo chcpu -e $(cat /sys/devices/system/cpu/offline)",), who="admin"),
        evidence={"online": online, "present": present},
    )


@check(Severity.INFO, source="https://docs.kernel.org/admin-guide/pm/cpufreq.html")
def cpu_held_at_lowest_clock(kernel: Kernel) -> Answer:
    """The CPUs are held at their lowest clock.

    Why: with this driver that is the lowest clock, whatever the load.
    More: The governor "powersave" asks for the lowest frequency at all times (only intel_pstate and amd-pstate give the
    name another meaning). Launching kernels and loading data are CPU work: the GPUs wait.

    Fix: choose another.
    """
    governor, scaling = kernel.cpu_governor, kernel.cpu_driver
    if governor is None:
        return Skip("the kernel does not set the clock here (a virtual machine, or the firmware does)")
    if governor != "powersave" or scaling in _SELF_SCALING:
        return Ok(f"{governor} ({scaling or 'driver not known'})")
    if scaling is None:
        return Skip("which driver sets the clock is not known")
    return Problem(
        f'CPU governor "powersave" with {scaling}',
        fix=Fix(commands=("sudo cpupower frequency-set -g performance",), who="admin"),
        evidence={"governor": governor, "driver": scaling},
    )


@check(Severity.INFO, source="https://docs.kernel.org/filesystems/proc.html")
def machine_busy(kernel: Kernel, system: System) -> Answer:
    """More work waits for CPUs than the machine has.

    Why: more processes want to run, or wait for a disk, than there are CPUs.
    More: Others compute here as well. The threads that feed the GPUs wait for their turn, so steps take longer and
    measurements vary.

    Fix: see who computes here.
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

    Why: memory is or was short; what a rank needs of it must first come back from disk.
    More: Pages of ranks and loaders come back from disk one by one: steps stall for seconds, on one rank while the
    others wait.

    Fix: see who holds the memory.
    """
    used = kernel.swap_used_bytes
    if used is None or not system.memory_total_bytes:
        return Skip("the memory cannot be read")
    if used <= _SWAP_SHARE * system.memory_total_bytes:
        return Ok(f"{gib(used)} swapped out")
    return Problem(
        f"{gib(used)} swapped out, of {gib(system.memory_total_bytes)} memory",
        fix=Fix(commands=("ps -eo rss,pid,user,comm --sort=-rss | head",)),
        evidence={"swap_used_bytes": used, "memory_total_bytes": system.memory_total_bytes},
    )
