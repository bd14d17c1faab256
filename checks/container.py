"""Does the container limit what a training run needs?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Container, Driver, Gpu, Libraries, Network, Plan, Slurm
from mgpu.text import counted, listed

from ._wording import parse_digits

_TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"
# Values of NVIDIA_VISIBLE_DEVICES that do not list individual GPUs (container toolkit documentation).
_NOT_COUNTED = ("", "all", "none", "void")


def in_container(container: Container) -> Skip | None:
    """Skip a check of a container if this is not one."""
    return None if container.kind else Skip("not a container")


@check(
    Severity.ERROR,
    source="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html",
    given=in_container,
)
def container_lost_gpus(container: Container, driver: Driver) -> Answer:
    """The container has GPU device nodes but is no longer allowed to use them.

    Why: the container's cgroup no longer permits the devices, which happens when the host reloads systemd.
    More: NVML then reports "Unknown Error", and running jobs lose their GPUs.

    Fix: restart the container.
    More: CDI or the cgroupfs driver prevents this.
    """
    numbered = _gpu_nodes(driver)
    if not numbered:
        return Skip("no /dev/nvidiaN in this container")
    if driver.nvml_error is None:
        return Ok(f"{len(numbered)} GPU device nodes, usable by NVML")
    if driver.nvml_error not in ("UNKNOWN", "NO_PERMISSION"):
        return Skip(f"NVML: {driver.nvml_error}")
    return Problem(
        f"{len(numbered)} GPU device nodes, but NVML reports {driver.nvml_error}",
        fix=Fix(commands=("docker restart CONTAINER",)),
        evidence={"nvml": driver.nvml_error, "nodes": len(numbered)},
    )


def _gpu_nodes(driver: Driver) -> list[str]:
    """Return the device nodes of individual GPUs."""
    return [node for node in driver.device_nodes if node.removeprefix("/dev/nvidia").isdecimal()]


@check(Severity.ERROR, source=_TOOLKIT, given=in_container)
def container_given_no_gpus(container: Container, driver: Driver, env: Mapping[str, str], plan: Plan) -> Answer:
    """The host runs the NVIDIA driver, but this container has no GPUs.

    Why: the container was started without GPUs, or the host lacks the NVIDIA Container Toolkit.
    More: There is no driver library and no device node inside, so PyTorch trains on the CPU.

    Fix: start it with the GPUs.
    """
    if plan.expect_gpus == 0:
        return Skip("no GPUs expected (--expect-gpus 0)")
    numbered = _gpu_nodes(driver)
    if numbered or "/dev/dxg" in driver.device_nodes:
        return Ok(f"device nodes {listed(numbered or ['/dev/dxg'])}")
    if driver.module_version is None:
        return Skip("no NVIDIA driver found on the host")
    requested = env.get("NVIDIA_VISIBLE_DEVICES")
    setting = "" if requested is None else f" (NVIDIA_VISIBLE_DEVICES={requested or 'empty'})"
    return Problem(
        f"the host runs NVIDIA driver {driver.module_version}, but this container has no GPU{setting}",
        fix=_start_with_gpus(container),
        evidence={
            "module_version": driver.module_version,
            "NVIDIA_VISIBLE_DEVICES": requested,
            "container": container.kind,
        },
    )


def _start_with_gpus(container: Container) -> tuple[Fix, ...]:
    """Return the fixes that start a container of this kind with GPUs."""
    toolkit = Fix(
        'If that fails with "could not select device driver", set up the container toolkit on the host.',
        ("sudo nvidia-ctk runtime configure --runtime=docker", "sudo systemctl restart docker"),
        who="admin",
    )
    match container.kind:
        case "podman":
            return (Fix("Start it with the GPUs.", ("podman run --device nvidia.com/gpu=all ...",)),)
        case "kubernetes":
            ask = "kubectl explain pod.spec.containers.resources.limits"
            return (Fix("Request them in the pod: resources.limits with nvidia.com/gpu.", (ask,)),)
        case "apptainer":
            return (Fix("Start it with --nv.", ("apptainer exec --nv image.sif ...",)),)
        case "enroot":
            return (Fix("Set the GPUs for Enroot's NVIDIA hook.", ("export NVIDIA_VISIBLE_DEVICES=all",)),)
        case "lxc" | "nspawn" | "other":
            return (Fix("Give the container the /dev/nvidia* nodes and the driver's libraries.", who="admin"),)
        case _:
            return (Fix("Start it with the GPUs.", ("docker run --gpus all ...",)), toolkit)


@check(
    Severity.WARNING,
    source=_TOOLKIT,
    because_of=("gpu_lost", "container_given_no_gpus", "container_lost_gpus"),
    given=in_container,
)
def container_got_fewer_gpus(container: Container, env: Mapping[str, str], gpus: tuple[Gpu, ...]) -> Answer:
    """NVIDIA_VISIBLE_DEVICES lists GPUs that are not in the container.

    Why: the container lacks GPUs that it was started with.
    More: A missing GPU fell off the bus since, or the variable was set manually after the start, when nothing reads it
    anymore.

    Fix: check on the host that all GPUs are there, then restart the container.
    """
    value = env.get("NVIDIA_VISIBLE_DEVICES", "").strip()
    if value in _NOT_COUNTED:
        return Skip(f"NVIDIA_VISIBLE_DEVICES={value} lists no GPUs" if value else "NVIDIA_VISIBLE_DEVICES is not set")
    asked = [entry.strip().partition("::")[0] for entry in value.split(",")]  # "::" numbers shares of one GPU
    if any(entry.startswith("MIG-") or ":" in entry for entry in asked):
        return Skip("NVIDIA_VISIBLE_DEVICES lists MIG instances")
    named = [entry for entry in asked if entry.startswith("GPU-")]
    missing = [entry for entry in named if not any((gpu.uuid or "").startswith(entry) for gpu in gpus)]
    short = 0
    if not named and all(parse_digits(entry) is not None for entry in asked):
        short = len(set(asked)) - len(gpus)
    elif len(named) < len(asked):
        return Skip(f"NVIDIA_VISIBLE_DEVICES={value} cannot be parsed")
    if not missing and short <= 0:
        return Ok(f"{counted(len(set(asked)), 'GPU')} in NVIDIA_VISIBLE_DEVICES, all here")
    return Problem(
        f"NVIDIA_VISIBLE_DEVICES lists {counted(len(set(asked)), 'GPU')}, {len(missing) or short} of them missing",
        fix=(
            Fix(commands=("nvidia-smi -L",)),
            Fix(
                "If the variable was set inside the container, it has no effect. Use CUDA_VISIBLE_DEVICES to choose "
                "among these GPUs."
            ),
        ),
        evidence={"NVIDIA_VISIBLE_DEVICES": value, "here": len(gpus)},
        subjects=tuple(missing),
    )


@check(Severity.ERROR, source="https://github.com/pytorch/pytorch/issues/29482", tags=("network_guess",))
def container_network_private(container: Container, network: Network, plan: Plan, slurm: Slurm) -> Answer:
    """In a multi-node run, this container's only network is a private bridge on its host.

    Why: the other nodes would try to connect to an address that exists only on this host.
    More: Docker assigns container addresses that are valid only on that host. The rendezvous may work through a
    published port, but NCCL and gloo then announce this address with a random port, and the run hangs in its first
    collective.

    Fix: start it with the host's network.
    """
    if max(plan.nodes, slurm.nodes or 1) < 2:
        return Skip("single-node run")
    if container.kind not in ("docker", "podman", "containerd"):
        return Skip("not a Docker or Podman container")  # in Kubernetes, pods of different nodes reach each other
    out = [interface for interface in network.interfaces if interface.up and not interface.loopback]
    if not out or any(interface.kind is None for interface in out):
        return Skip("the kinds of the network interfaces are unknown")
    if len(out) > 1 or out[0].kind != "veth":  # an overlay network brings a second one
        return Ok(f"{listed(interface.name for interface in out)}, not only a private bridge")
    address = next(iter(out[0].addresses), "no address")
    return Problem(
        f"the container has only {out[0].name} ({address}), a private bridge on its host",
        fix=Fix(commands=(shell("{:id} run --network host --ipc host ...", _command(container)),)),
        evidence={"interface": out[0].name, "container": container.kind},
    )


def _command(container: Container) -> str:
    return {"podman": "podman", "containerd": "nerdctl"}.get(container.kind or "", "docker")


# ---- WSL


@check(Severity.INFO, source="https://docs.nvidia.com/cuda/wsl-user-guide/")
def wsl_limits_nccl(container: Container, gpus: tuple[Gpu, ...]) -> Answer:
    """This is WSL2, which limits NCCL and NVML.

    Why: NVML shows no processes and little utilization, GPUs exchange data through host memory, and the virtual machine
    has half of the memory unless .wslconfig sets another size.

    Fix: nothing for development.
    More: Train on native Linux.
    """
    if not container.wsl:
        return Ok("not WSL")
    return Problem(
        "WSL2",
        f"{counted(len(gpus), 'GPU')} through the Windows driver: no process list, no direct transfer between GPUs.",
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/cuda/wsl-user-guide/")
def wsl_has_linux_driver(container: Container, libraries: Libraries) -> Answer:
    """A Linux driver is installed inside WSL2.

    Why: WSL2 needs the libcuda in /usr/lib/wsl/lib. A Linux driver has no kernel module here.
    More: In WSL2 the Windows driver also serves Linux, through the libcuda.so in /usr/lib/wsl/lib. A Linux driver
    package adds another libcuda without a kernel module to the loader's path: "GPU access blocked by the operating
    system", or no CUDA device.

    Fix: remove the driver packages. For the toolkit, install cuda-toolkit, not cuda.
    """
    if not container.wsl or container.kind:
        return Skip("not WSL2" if not container.wsl else "in a container the library is elsewhere")
    found = [library.path for library in libraries.found if library.name == "cuda" and library.origin == "system"]
    if not found:
        return Skip("no libcuda on the loader's path")
    foreign = [path for path in found if not path.startswith("/usr/lib/wsl/")]
    if not foreign:
        return Ok(f"libcuda is the Windows driver's: {found[0]}")
    return Problem(
        f"libcuda belongs to a Linux driver: {foreign[0]}",
        fix=Fix(
            commands=("sudo apt-get remove 'nvidia-driver-*' 'libnvidia-compute-*' cuda-drivers", "sudo ldconfig"),
            who="admin",
        ),
        evidence={"found": ", ".join(found)},
        subjects=tuple(foreign),
    )
