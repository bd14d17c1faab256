"""Can this process open the device files of the driver in /dev?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Container, Driver, Gpu, Host, Plan
from mgpu.text import counted, listed, plural

from .._wording import gpu_list
from ._nvml import NO_GPU, absence_reason, is_gpu_node

_NODES = "https://docs.nvidia.com/cuda/cuda-installation-guide-linux/"


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
        return Skip(NO_GPU)
    if driver.nodes_denied is None or not driver.device_nodes:
        return Skip("the driver has no device file in /dev")
    numbered = {node for node in driver.device_nodes if is_gpu_node(node)}
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
        return Skip(absence_reason(driver) if driver.nvml_error else "the driver has no device file in /dev")
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
        return Skip(absence_reason(driver))
    if not any(map(is_gpu_node, driver.device_nodes)):
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
        return Skip(absence_reason(driver))
    if driver.uvm_loaded is None or driver.modprobe is None:
        return Skip("the loaded modules cannot be read here")
    if not any(map(is_gpu_node, driver.device_nodes)):
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
