"""Does the container get in the way?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Container, Driver, Gpu, Libraries, Network, Plan, Slurm
from mgpu.text import counted, listed

from ._wording import whole

_TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"
# NVIDIA_VISIBLE_DEVICES: words that name no GPU one by one (the toolkit's documentation).
_NOT_COUNTED = ("", "all", "none", "void")


def in_container(container: Container) -> Skip | None:
    """What a check of a container is asked for only."""
    return None if container.kind else Skip("not a container")


@check(
    Severity.ERROR,
    source="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html",
    given=in_container,
)
def container_lost_gpus(container: Container, driver: Driver) -> Answer:
    """The container has device nodes for GPUs, and may not use them.

    Why: the container's cgroup no longer allows the devices, as happens when the host reloads systemd.
    More: NVML then says "Unknown Error", and running jobs lose their GPUs.

    Fix: restart the container.
    More: CDI or the cgroupfs driver keep it from happening again.
    """
    numbered = _numbered(driver)
    if not numbered:
        return Skip("no /dev/nvidiaN in this container")
    if driver.nvml_error is None:
        return Ok(f"{len(numbered)} GPU device nodes, and NVML may use them")
    if driver.nvml_error not in ("UNKNOWN", "NO_PERMISSION"):
        return Skip(f"NVML: {driver.nvml_error}")
    return Problem(
        f"{len(numbered)} GPU device nodes, and NVML says {driver.nvml_error}",
        fix=Fix(commands=("docker restart CONTAINER",)),
        evidence={"nvml": driver.nvml_error, "nodes": len(numbered)},
    )


def _numbered(driver: Driver) -> list[str]:
    """The device nodes that stand for a GPU each."""
    return [node for node in driver.device_nodes if node.removeprefix("/dev/nvidia").isdecimal()]


@check(Severity.ERROR, source=_TOOLKIT, given=in_container)
def container_given_no_gpus(container: Container, driver: Driver, env: Mapping[str, str], plan: Plan) -> Answer:
    """The host runs NVIDIA's driver, and this container was started without GPUs.

    Why: the container was started without GPUs, or the host lacks NVIDIA's container toolkit.
    More: Without it there is no driver library and no device node inside, and PyTorch trains on the CPU.

    Fix: start it with the GPUs.
    """
    if plan.expect_gpus == 0:
        return Skip("0 GPUs are wanted")
    numbered = _numbered(driver)
    if numbered or "/dev/dxg" in driver.device_nodes:
        return Ok(f"device nodes {listed(numbered or ['/dev/dxg'])}")
    if driver.module_version is None:
        return Skip("the host shows no NVIDIA driver")
    asked = env.get("NVIDIA_VISIBLE_DEVICES")
    said = "" if asked is None else f" (NVIDIA_VISIBLE_DEVICES={asked or 'empty'})"
    return Problem(
        f"the host runs NVIDIA driver {driver.module_version}, no GPU was given to this container{said}",
        fix=_with_gpus(container),
        evidence={
            "module_version": driver.module_version,
            "NVIDIA_VISIBLE_DEVICES": asked,
            "container": container.kind,
        },
    )


def _with_gpus(container: Container) -> tuple[Fix, ...]:
    """How a container of this kind is started with GPUs."""
    toolkit = Fix(
        'If that says "could not select device driver", set the toolkit up on the host.',
        ("sudo nvidia-ctk runtime configure --runtime=docker", "sudo systemctl restart docker"),
        who="admin",
    )
    match container.kind:
        case "podman":
            return (Fix("Start it with the GPUs.", ("podman run --device nvidia.com/gpu=all ...",)),)
        case "kubernetes":
            ask = "kubectl explain pod.spec.containers.resources.limits"
            return (Fix("Ask for them in the pod: resources.limits with nvidia.com/gpu.", (ask,)),)
        case "apptainer":
            return (Fix("Start it with --nv.", ("apptainer exec --nv image.sif ...",)),)
        case "enroot":
            return (Fix("Let the hook see which GPUs are wanted.", ("export NVIDIA_VISIBLE_DEVICES=all",)),)
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
    """The container was promised GPUs that are not in it.

    Why: the container does not have the GPUs it was started for.
    More: When one of them is not there, it fell off the bus since, or the variable was set by hand after the start,
    where nobody reads it.

    Fix: see on the host whether all GPUs are there, then restart the container.
    """
    value = env.get("NVIDIA_VISIBLE_DEVICES", "").strip()
    if value in _NOT_COUNTED:
        return Skip(f"NVIDIA_VISIBLE_DEVICES={value} counts no GPUs" if value else "NVIDIA_VISIBLE_DEVICES is not set")
    asked = [entry.strip().partition("::")[0] for entry in value.split(",")]  # "::" numbers shares of one GPU
    if any(entry.startswith("MIG-") or ":" in entry for entry in asked):
        return Skip("NVIDIA_VISIBLE_DEVICES names MIG instances")
    named = [entry for entry in asked if entry.startswith("GPU-")]
    missing = [entry for entry in named if not any((gpu.uuid or "").startswith(entry) for gpu in gpus)]
    short = 0
    if not named and all(whole(entry) is not None for entry in asked):
        short = len(set(asked)) - len(gpus)
    elif len(named) < len(asked):
        return Skip(f"NVIDIA_VISIBLE_DEVICES={value} cannot be understood")
    if not missing and short <= 0:
        return Ok(f"{counted(len(set(asked)), 'GPU')} in NVIDIA_VISIBLE_DEVICES, all here")
    return Problem(
        f"NVIDIA_VISIBLE_DEVICES names {counted(len(set(asked)), 'GPU')}, {len(missing) or short} of them not here",
        fix=(
            Fix(commands=("nvidia-smi -L",)),
            Fix("If the variable was set inside, it has no effect: CUDA_VISIBLE_DEVICES chooses among those here."),
        ),
        evidence={"NVIDIA_VISIBLE_DEVICES": value, "here": len(gpus)},
        subjects=tuple(missing),
    )


@check(Severity.ERROR, source="https://github.com/pytorch/pytorch/issues/29482", tags=("network_guess",))
def container_network_private(container: Container, network: Network, plan: Plan, slurm: Slurm) -> Answer:
    """In a run over several machines, this container's only network is a private bridge of its host.

    Why: the other machines would be told to connect to an address that exists on this host only.
    More: Docker gives a container an address that means something on its own host only. The rendezvous may work through
    a published port; then NCCL and gloo tell the others this address and a random port, and the run hangs in its first
    collective.

    Fix: start it in the host's network.
    """
    if max(plan.nodes, slurm.nodes or 1) < 2:
        return Skip("a run on one machine does not leave it")
    if container.kind not in ("docker", "podman", "containerd"):
        return Skip("not a Docker or Podman container")  # in Kubernetes, pods of different nodes reach each other
    out = [interface for interface in network.interfaces if interface.up and not interface.loopback]
    if not out or any(interface.kind is None for interface in out):
        return Skip("what kind of interfaces these are is not known")
    if len(out) > 1 or out[0].kind != "veth":  # an overlay network brings a second one
        return Ok(f"{listed(interface.name for interface in out)}, not just a bridge of the host")
    address = next(iter(out[0].addresses), "no address")
    return Problem(
        f"the container has only {out[0].name} ({address}), a private bridge of its host",
        fix=Fix(commands=(shell("{:id} run --network host --ipc host ...", _command(container)),)),
        evidence={"interface": out[0].name, "container": container.kind},
    )


def _command(container: Container) -> str:
    return {"podman": "podman", "containerd": "nerdctl"}.get(container.kind or "", "docker")


# ---- WSL


@check(Severity.INFO, source="https://docs.nvidia.com/cuda/wsl-user-guide/")
def wsl_limits_nccl(container: Container, gpus: tuple[Gpu, ...]) -> Answer:
    """This is WSL2: NCCL and NVML are limited here.

    Why: NVML shows no processes and little utilisation, GPUs reach each other through host memory, and the virtual
    machine has half of the memory unless .wslconfig says otherwise.

    Fix: fine for development.
    More: Train on Linux itself.
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

    Why: WSL2 needs the one in /usr/lib/wsl/lib; a Linux driver has no kernel module here.
    More: In WSL2 the Windows driver serves Linux as well, through the libcuda.so in /usr/lib/wsl/lib. A driver package
    for Linux puts another libcuda on the loader's path, one without a kernel module: "GPU access blocked by the
    operating system", or no CUDA device.

    Fix: remove the driver packages; for the toolkit use cuda-toolkit, not cuda.
    """
    if not container.wsl or container.kind:
        return Skip("not WSL2" if not container.wsl else "in a container the toolkit puts the library elsewhere")
    found = [library.path for library in libraries.found if library.name == "cuda" and library.origin == "system"]
    if not found:
        return Skip("no libcuda is where the loader looks")
    foreign = [path for path in found if not path.startswith("/usr/lib/wsl/")]
    if not foreign:
        return Ok(f"libcuda is Windows' own: {found[0]}")
    return Problem(
        f"libcuda of a Linux driver: {foreign[0]}",
        fix=Fix(
            commands=("sudo apt-get remove 'nvidia-driver-*' 'libnvidia-compute-*' cuda-drivers", "sudo ldconfig"),
            who="admin",
        ),
        evidence={"found": ", ".join(found)},
        subjects=tuple(foreign),
    )
