"""Is an NVIDIA driver installed, and does it respond?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Family, Fix, Ok, Problem, Severity, Skip, Value, check
from mgpu.command_line import shell
from mgpu.snapshot import Container, Driver, Gpu, Host, Kernel, NvmlWait, Pci, Plan, bus_address
from mgpu.text import counted, listed, plural

from ._gpus import use_only
from ._wording import gpu_list

FAMILY = Family(gpu_only=True, stops_start="on_gpus", known_at_start=True)
_NVML = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html"
_PERSISTENCE = "https://docs.nvidia.com/deploy/driver-persistence/overview.html"
_NODES = "https://docs.nvidia.com/cuda/cuda-installation-guide-linux/"
_NO_GPU = "no NVIDIA GPU on this machine"
# nvmlReturn_t names with their own check here; any other is `driver_does_not_answer`.
_OWN_CHECK = {"LIBRARY_NOT_FOUND", "DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH"}
_NVIDIA = "10de"  # vendor on the PCI bus
_PASSED_THROUGH = "vfio-pci"  # the kernel driver that keeps a device for a virtual machine
# Starting the driver on a GPU takes 1-3 s (driver persistence guide); a running driver answers in milliseconds.
_STARTED_AGAIN_S = 1.0
_SICK_S = 5.0


def _gpus_expected(plan: Plan) -> bool:
    """Return whether the plan uses GPUs; with `--expect-gpus 0` the driver does not matter."""
    return plan.expect_gpus != 0


def _absence_reason(driver: Driver) -> str:
    return f"NVML: {driver.nvml_error}" if driver.any_gpu else _NO_GPU


def driver_answers(driver: Driver) -> Skip | None:
    """Skip a check that needs a working driver."""
    return Skip(_absence_reason(driver)) if driver.nvml_error is not None else None


@check(Severity.ERROR, source=_NVML, because_of=("nouveau_holds_gpus", "container_given_no_gpus"), condemns_node=True)
def nvml_library_missing(driver: Driver, container: Container, plan: Plan) -> Answer:
    """There is an NVIDIA GPU, but the driver's library libnvidia-ml.so.1 cannot be loaded.

    Why: the library is part of the driver. If it is missing on the host, the driver is not installed. In a container,
    it was started without GPUs or without the "utility" capability. PyTorch then trains on the CPU.

    Fix: install the NVIDIA driver.
    More: Or start the container with its GPUs.
    """
    if not driver.any_gpu:
        return Skip(_NO_GPU)
    if driver.nvml_error != "LIBRARY_NOT_FOUND":
        return Ok("libnvidia-ml.so.1 loads")
    if not _gpus_expected(plan):
        return Skip("no GPUs expected (--expect-gpus 0)")
    seen = (
        f"{counted(driver.pci_gpus, 'NVIDIA GPU')} on the PCI bus"
        if driver.pci_gpus
        else f"device nodes {', '.join(driver.device_nodes)}"
        if driver.device_nodes
        else f"kernel module {driver.module_version}"
    )
    if container.kind:
        fix = Fix(
            "Start the container with its GPUs.",
            ("docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",),
        )
    elif container.wsl:
        fix = Fix("Add WSL's driver directory to the loader's path.", ("export LD_LIBRARY_PATH=/usr/lib/wsl/lib",))
    else:
        fix = Fix(commands=("sudo ubuntu-drivers install --gpgpu",), who="admin")
    return Problem(
        f"{seen}, but no driver library",
        "libnvidia-ml.so.1 is part of the driver. Without it neither PyTorch nor NCCL can use a GPU.",
        fix,
        {"nvml": driver.nvml_error, "loader": driver.nvml_detail, "pci_gpus": driver.pci_gpus},
    )


@check(Severity.ERROR, source=_NVML, because_of=("nouveau_holds_gpus",), condemns_node=True)
def driver_not_loaded(driver: Driver) -> Answer:
    """The NVIDIA kernel module is not loaded.

    Why: the driver's libraries are installed, but its kernel module is not loaded.
    More: It was not built for this kernel (DKMS), rejected by Secure Boot, or blocked. Every CUDA call then fails with
    "no CUDA-capable device".

    Fix: load it. If that fails, read the kernel log for the reason.
    """
    if driver.nvml_error == "DRIVER_NOT_LOADED" and driver.any_gpu:
        return Problem(
            "NVML: driver not loaded",
            fix=Fix(commands=("sudo modprobe nvidia", "sudo dmesg | grep -i nvidia"), who="admin"),
            evidence={"nvml": driver.nvml_error, "module_version": driver.module_version},
        )
    return Ok(f"driver {driver.version} is loaded") if driver.nvml_error is None else Skip(_absence_reason(driver))


@check(Severity.ERROR, source=_NVML, condemns_node=True)
def driver_library_mismatch(driver: Driver) -> Answer:
    """The driver's library and its loaded kernel module have different versions.

    Why: the driver was upgraded but its kernel module was not reloaded. No new program can use the GPUs.
    More: Unattended upgrades cause this. Running programs continue. New ones fail with "Driver/library version
    mismatch".

    Fix: reboot the machine.
    More: Or reload the modules when nothing uses the GPUs.
    """
    if driver.nvml_error == "LIB_RM_VERSION_MISMATCH":
        loaded = driver.module_version or "an older version"
        return Problem(
            f"the loaded kernel module ({loaded}) does not match the installed driver",
            fix=Fix(commands=("sudo reboot",), who="admin"),
            evidence={"nvml": driver.nvml_error, "module_version": driver.module_version},
        )
    if driver.nvml_error is not None:
        return Skip(_absence_reason(driver))
    return Ok(f"library and module are both {driver.version}")


@check(Severity.ERROR, source=_NVML, because_of=("container_lost_gpus", "device_nodes_denied"), condemns_node=True)
def driver_does_not_answer(driver: Driver) -> Answer:
    """NVML fails to initialize.

    Why: the driver is installed but rejects calls: a GPU is in a bad state, this user or cgroup may not open the device
    nodes, or the container lost its devices when the host reloaded systemd. CUDA will fail in the same way.

    Fix: run `nvidia-smi`, which shows the same error. Restart the container or reset the GPUs.
    """
    if driver.nvml_error is None:
        return Ok("NVML responds")
    if driver.nvml_error in _OWN_CHECK:
        return Skip(_absence_reason(driver))
    denied = driver.nvml_error == "NO_PERMISSION"
    return Problem(
        f"NVML: {driver.nvml_error}",
        f"The driver rejects calls ({driver.nvml_detail}), so CUDA will fail too.",
        Fix(
            "Give this user access to the device nodes, or restart the container."
            if denied
            else "Run nvidia-smi. Then restart the container or reset the GPUs.",
            ("ls -l /dev/nvidia*",) if denied else ("nvidia-smi", "sudo dmesg | grep -i xid"),
            who="admin",
        ),
        {"nvml": driver.nvml_error, "detail": driver.nvml_detail},
    )


@check(
    Severity.WARNING,
    source="https://docs.nvidia.com/deploy/gpu-debug-guidelines/",
    because_of=("gpu_lost", "gpu_off_the_bus", "driver_module_of_wrong_flavour"),
    given=driver_answers,
)
def gpus_on_bus_not_in_driver(driver: Driver, gpus: tuple[Gpu, ...], pci: Pci, container: Container) -> Answer:
    """The PCI bus has more NVIDIA GPUs than the driver shows.

    Why: a GPU failed to initialize, or another kernel driver uses it. A run that expects all GPUs gets fewer.

    Fix: check the kernel log for the reason.
    """
    if container.kind:
        return Skip("a container may have only some of the GPUs")
    on_bus = [device for device in pci.of("gpu") if device.vendor == _NVIDIA] if pci.readable else []
    given = [device for device in on_bus if device.driver == _PASSED_THROUGH]
    number = len(on_bus) - len(given) or driver.pci_gpus
    if not number:
        return Skip("the PCI bus cannot be read here")
    to_guests = f"; {len(given)} reserved for virtual machines" if given else ""
    # A device cgroup (Slurm's) hides forbidden GPUs from NVML, but the bus still shows them.
    forbidden = [node for node in driver.nodes_denied or () if _is_gpu_node(node)]
    may = [gpu for gpu in gpus if gpu.permitted]
    if 0 < len(forbidden) < number and number - len(forbidden) <= len(may):
        return Ok(f"{len(may)} of {number} GPUs on the PCI bus; {len(forbidden)} reserved for others{to_guests}")
    if number <= len(gpus):
        return Ok(f"{len(gpus)} of {number} GPUs on the PCI bus are in the driver{to_guests}")
    shown = {bus_address(gpu.pci) for gpu in gpus if gpu.pci}
    missing = [device for device in on_bus if device not in given and device.address not in shown]
    at = f" ({listed(device.address for device in missing)})" if len(missing) == number - len(gpus) else ""
    return Problem(
        f"{number} NVIDIA GPUs on the PCI bus, {len(gpus)} in the driver{at}",
        f"The driver failed to initialize {'it' if number - len(gpus) == 1 else 'them'}, or another kernel driver uses "
        f"{'it' if number - len(gpus) == 1 else 'them'}.",
        Fix(commands=("sudo dmesg | grep -iE 'nvrm|xid'",), who="admin"),
        {"pci_gpus": number, "nvml_gpus": len(gpus)}
        | ({device.address: device.driver or "no kernel driver" for device in missing} if at else {}),
    )


@check(
    Severity.ERROR,
    source="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html",
    given=driver_answers,
)
def driver_lacks_compute(driver: Driver, container: Container) -> Answer:
    """NVML works, but the CUDA driver library libcuda.so.1 is missing.

    Why: the container has the GPUs for monitoring only, and PyTorch cannot use them.
    More: NVIDIA_DRIVER_CAPABILITIES contains only "utility", so nvidia-smi works.

    Fix: start it with both capabilities.
    """
    if driver.cuda_version is not None:
        major, minor = driver.cuda_version
        return Ok(f"the driver supports CUDA up to {major}.{minor}")
    if not container.kind:
        return Skip("NVML does not report the CUDA version here")
    return Problem(
        "NVML works, libcuda does not",
        fix=Fix(commands=("docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",)),
        evidence={"driver": driver.version, "container": container.kind},
    )


@check(Severity.WARNING, source=_NVML, given=driver_answers)
def driver_version_unreadable(driver: Driver) -> Answer:
    """The driver responds but does not report its version.

    Why: without the version it cannot be compared with what PyTorch requires.
    More: A driver that does not report its version is broken, or other software responds in its place.

    Fix: read it from the kernel module.
    """
    version = driver.version or driver.module_version
    if version:
        return Ok(f"driver {version}")
    return Problem(
        "the driver does not report its version",
        fix=Fix(commands=("cat /proc/driver/nvidia/version",)),
        evidence={"nvml_version": driver.nvml_version},
    )


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
        return Skip(_absence_reason(driver) if driver.nvml_error else "the driver's start time was not measured")
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
        return Skip(_absence_reason(driver) if driver.nvml_error else "the driver's start time was not measured")
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


@check(Severity.ERROR, source=_NODES, because_of=("container_lost_gpus",))
def device_nodes_denied(driver: Driver) -> Answer:
    """This user may not open the driver's device files.

    Why: CUDA reads and writes these files. Without permission, PyTorch finds no GPU.
    More: If access is restricted to a group (video, render) and this user is not in it, CUDA reports "no CUDA-capable
    device is detected".

    Fix: let the driver create them for all users from its next start on. In a container, pass the devices in.
    More: Or join the group and log in again.
    """
    if not driver.any_gpu:
        return Skip(_NO_GPU)
    if driver.nodes_denied is None or not driver.device_nodes:
        return Skip("the driver has no device file in /dev")
    numbered = {node for node in driver.device_nodes if _is_gpu_node(node)}
    denied = set(driver.nodes_denied)
    bad = sorted(denied - numbered) + (sorted(numbered) if numbered and numbered <= denied else [])
    if not bad:
        kept = f"; {len(denied)} of {len(numbered)} GPUs reserved for others" if denied else ""
        return Ok(f"this user may open the driver's device files{kept}")
    group = driver.nodes_group
    fix = (
        Fix(f"Join the group {group}, then log in again.", (shell("sudo usermod -aG {:user} $USER", group),), "admin")
        if group
        else Fix(
            commands=(
                "echo 'options nvidia NVreg_DeviceFileMode=0666' | sudo tee /etc/modprobe.d/nvidia-device-files.conf",
            ),
            who="admin",
        )
    )
    return Problem(
        f"no permission to open {listed(bad[:4])}{' …' if len(bad) > 4 else ''}",
        fix=fix,
        evidence={"denied": ", ".join(bad), "group": group, "nvml": driver.nvml_error},
    )


@check(Severity.ERROR, source=_NODES, because_of=("device_nodes_denied",))
def device_node_missing(driver: Driver, gpus: tuple[Gpu, ...]) -> Answer:
    """The driver shows a GPU that has no device file.

    Why: the driver has the GPU, but CUDA cannot open it.
    More: CUDA accesses a GPU through /dev/nvidiaN. Without it the GPU appears in nvidia-smi but not in PyTorch, or CUDA
    does not start at all. This happens in containers that were given individual devices manually.

    Fix: create the file. In a container, start it with --gpus.
    """
    if driver.nvml_error is not None or "/dev/nvidiactl" not in driver.device_nodes:
        return Skip(_absence_reason(driver) if driver.nvml_error else "the driver has no device file in /dev")
    nodes = {
        gpu.index: f"/dev/nvidia{gpu.minor}" for gpu in gpus if gpu.permitted and not gpu.lost and gpu.minor is not None
    }
    bad = {index: node for index, node in nodes.items() if node not in driver.device_nodes}
    if bad:
        return Problem(
            f"{gpu_list(bad)}: no {listed(bad.values())}",
            fix=Fix(
                commands=tuple(
                    shell("sudo nvidia-modprobe -c {:number}", node.removeprefix("/dev/nvidia"))
                    for node in bad.values()
                ),
                who="admin",
            ),
            evidence={f"gpu_{index}": node for index, node in bad.items()},
            subjects=tuple(f"GPU {index}" for index in bad),
        )
    if not nodes:
        return Skip("no GPU reports its minor number")
    return Ok(f"{counted(len(nodes), 'GPU')} with device {plural(len(nodes), 'file')}")


@check(
    Severity.ERROR,
    source="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html",
    because_of=("driver_lacks_compute",),
)
def uvm_missing_in_container(driver: Driver, container: Container, host: Host) -> Answer:
    """The container has GPUs but no /dev/nvidia-uvm.

    Why: NVML works without it, but CUDA fails with error 999 (unknown error).
    More: CUDA manages memory through this device. It is missing if devices were passed in one by one, or if the host
    had not loaded the module yet.

    Fix: load the module on the host, then restart the container.
    """
    if not container.kind:
        return Skip("not a container")
    if driver.nvml_error is not None:
        return Skip(_absence_reason(driver))
    if not any(map(_is_gpu_node, driver.device_nodes)):
        return Skip("no /dev/nvidiaN in this container")
    if "tegra" in host.kernel:
        return Skip("CUDA on this chip does not need /dev/nvidia-uvm")
    if "/dev/nvidia-uvm" in driver.device_nodes:
        return Ok("/dev/nvidia-uvm is in the container")
    return Problem(
        "no /dev/nvidia-uvm in this container",
        fix=(
            Fix(commands=("sudo nvidia-modprobe -u -c 0",), who="admin"),
            Fix("Pass in all devices.", ("docker run --gpus all ...",)),
        ),
        evidence={"nodes": ", ".join(driver.device_nodes)},
    )


@check(Severity.WARNING, source="https://manpages.debian.org/bookworm/nvidia-modprobe/nvidia-modprobe.1.en.html")
def uvm_cannot_be_loaded(driver: Driver, container: Container, host: Host) -> Answer:
    """The kernel module nvidia-uvm is not loaded, and this user cannot load it.

    Why: the first CUDA program of a non-root user fails with error 999 (unknown error).
    More: CUDA needs the module and loads it on first use through the helper nvidia-modprobe, which runs as root.

    Fix: load it now and at every boot.
    """
    if container.kind or container.wsl:
        return Skip("the host loads the modules")
    if driver.nvml_error is not None:
        return Skip(_absence_reason(driver))
    if driver.uvm_loaded is None or driver.modprobe is None:
        return Skip("the loaded modules cannot be read here")
    if not any(map(_is_gpu_node, driver.device_nodes)):
        return Skip("no GPU device file in /dev")
    if "/dev/nvidia-uvm" in driver.device_nodes and driver.uvm_loaded:
        return Ok("nvidia-uvm is loaded")
    if driver.modprobe or host.user_is_root:
        return Ok("nvidia-uvm is loaded on first use")
    return Problem(
        "nvidia-uvm is not loaded, and nvidia-modprobe cannot load it",
        fix=Fix(
            commands=("sudo nvidia-modprobe -u -c 0", "echo nvidia-uvm | sudo tee /etc/modules-load.d/nvidia-uvm.conf"),
            who="admin",
        ),
        evidence={"uvm_loaded": driver.uvm_loaded, "setuid_helper": driver.modprobe},
    )


_OPEN_CHANNEL = Fix(commands=("sudo chmod 666 /dev/nvidia-caps-imex-channels/channel0",), who="admin")
_MAKE_CHANNEL = Fix(
    "Let the driver create channel 0 from its next start on, or start the container with the channel.",
    ("echo 'options nvidia NVreg_CreateImexChannel0=1' | sudo tee /etc/modprobe.d/nvidia-imex.conf",),
    "admin",
)
_WITHOUT_CHANNEL = Fix(
    "Use the network instead of NVLink between nodes.",
    ("export NCCL_MNNVL_ENABLE=0",),
    kind="stopgap",
    caveat="traffic between the nodes no longer uses NVLink",
)


@check(Severity.ERROR, source="https://github.com/NVIDIA/nccl (src/mnnvl.cc, ncclMnnvlCheck)")
def imex_channel_unusable(driver: Driver, gpus: tuple[Gpu, ...], plan: Plan, env: Mapping[str, str]) -> Answer:
    """The GPUs share an NVLink domain with other nodes, but this user cannot open an IMEX channel.

    Why: between nodes of one NVLink domain (GB200 NVL72) NCCL exports memory through a device file in
    /dev/nvidia-caps-imex-channels. If this user may not write to one, NCCL stops with "Cuda failure 800 'operation not
    permitted'".

    Fix: give the job's user access to the channel.
    More: NCCL_MNNVL_ENABLE=0 uses the network instead.
    """
    domain = [gpu for gpu in gpus if gpu.fabric_cluster]
    if not domain:
        return Skip("no multi-node NVLink domain")
    if plan.nodes < 2:
        return Skip("single-node run")
    if env.get("NCCL_MNNVL_ENABLE") == "0":
        return Skip("NCCL_MNNVL_ENABLE=0: NVLink between nodes is not used")
    if driver.imex_channels is None:
        return Skip("the IMEX channels cannot be listed")
    if driver.imex_usable:
        return Ok(f"{counted(driver.imex_channels, 'IMEX channel')}, at least one usable")
    there = driver.imex_channels > 0
    return Problem(
        f"no permission to open {counted(driver.imex_channels, 'IMEX channel')}"
        if there
        else "no IMEX channel in /dev/nvidia-caps-imex-channels",
        f"The run spans {counted(plan.nodes, 'node')} of one NVLink domain, so NCCL stops with CUDA error 800.",
        (_OPEN_CHANNEL if there else _MAKE_CHANNEL, _WITHOUT_CHANNEL),
        {"channels": driver.imex_channels, "usable": False, "cluster": domain[0].fabric_cluster, "nodes": plan.nodes},
    )


@check(
    Severity.ERROR,
    source="https://docs.nvidia.com/deploy/xid-errors/",
    because_of=("gpu_off_the_bus",),
    condemns_node=True,
    stops_launch="always",
    stops_start=False,
)
def gpu_lost(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU no longer responds to the driver.

    Why: a rank on this GPU fails, and the others hang in their next collective.
    More: The GPU fell off the PCI bus (Xid 79), needs a reset, or has no power. CUDA may not start on this machine.

    Fix: reboot. If it is lost again, check power, seating and temperature, then contact the vendor.
    """
    lost = {gpu.index: gpu.lost for gpu in gpus if gpu.lost}
    if lost:
        why = next(iter(lost.values()))
        others = [gpu.index for gpu in gpus if not gpu.lost and gpu.permitted]
        stopgap = (
            (
                Fix(
                    "Use only the other GPUs until then.",
                    use_only(others, gpus),
                    kind="stopgap",
                    caveat="CUDA may still fail to start until a reboot",
                ),
            )
            if others
            else ()
        )
        return Problem(
            f"{gpu_list(lost)}: {why}",
            fix=(Fix(commands=("sudo reboot",), who="hardware"), *stopgap),
            evidence={f"gpu_{i}": reason for i, reason in lost.items()},
            subjects=tuple(f"GPU {i}" for i in lost),
        )
    return Ok(f"{len(gpus)} of {len(gpus)} GPUs respond") if gpus else Skip("no GPU here")


def _is_gpu_node(node: str) -> bool:
    return node.removeprefix("/dev/nvidia").isdecimal()


@check(Severity.WARNING, source="https://docs.nvidia.com/deploy/gpu-debug-guidelines/")
def nvml_hangs(nvml_wait: NvmlWait, kernel: Kernel) -> Answer:
    """An NVML call does not return.

    Why: the NVIDIA driver does not answer, so nothing is known about the GPUs. CUDA starts through the same driver:
    nvidia-smi, torch.cuda and every launch here would hang too.
    More: A GPU that fell off the bus, a firmware crash or a lock that a stuck process holds are the usual causes. If no
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
    title = f"NVML does not answer: no reply from {nvml_wait.call} after {nvml_wait.waited_s or 0:g} s"
    evidence: dict[str, Value] = {"call": nvml_wait.call, "waited_s": nvml_wait.waited_s, "stuck": ", ".join(stuck)}
    look = Fix(
        "Find the cause in the kernel log (Xid, NVRM, hung task), and the processes in state D.",
        (
            "sudo dmesg -T | grep -iE 'nvrm|xid|blocked for more than'",
            "ps -eo pid,stat,lstart,wchan:24,args | awk '$2 ~ /^D/'",
        ),
        who="admin",
    )
    if not stuck:
        slow = Fix(
            "No process is stuck in the driver: it may only be slow to start. Time a call, turn on persistence mode.",
            ("time nvidia-smi -L", "sudo nvidia-smi -pm 1"),
            who="admin",
        )
        return Problem(title, fix=(slow, look), evidence=evidence)
    restart = Fix(
        "Drain the node, then reset the GPUs. If the reset hangs too, reboot: a process in state D cannot be killed.",
        ("sudo nvidia-smi --gpu-reset", "sudo reboot"),
        who="admin",
    )
    cause = (
        f"Stuck in the driver: {listed(stuck)}. nvidia-smi, torch.cuda and every launch on this machine would hang as "
        "well, and SIGKILL does not end them."
    )
    return Problem(title, cause, (look, restart), evidence, tuple(kernel.stuck or ()))
