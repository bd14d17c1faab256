"""Which of the GPUs will PyTorch see?"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Container, Gpu, Visible

from ._knowledge import counted, gpu_list, use_only

_CUDA = "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables"


def _permitted(gpus: tuple[Gpu, ...]) -> list[int]:
    """The GPUs this process may open: CUDA counts only those."""
    return [gpu.index for gpu in gpus if gpu.permitted]


@check(Severity.ERROR, source=_CUDA)
def visible_devices_cut_short(visible: Visible, gpus: tuple[Gpu, ...]) -> Answer:
    """CUDA_VISIBLE_DEVICES names a GPU that is not there.

    Why: CUDA reads the list from the left and stops, in silence, at the first entry it does not know: `0,1,9,2` on a
    4-GPU machine shows two GPUs, not three. PyTorch then starts fewer ranks, or ranks without a GPU.

    Fix: name only GPUs that `nvidia-smi -L` lists.
    """
    if visible.value is None:
        return Skip("CUDA_VISIBLE_DEVICES is not set")
    if not gpus:
        return Skip("no GPU here")
    if visible.stopped_by is None:
        return Ok(f"all {counted(len(visible.value.split(',')), 'entry', 'entries')} name a GPU")
    if not visible.gpus and visible.mig is None:
        return Skip("it hides every GPU: see visible_devices_hide_all")
    kept = visible.mig or gpu_list(visible.gpus)
    only_kept = (
        (f"export CUDA_VISIBLE_DEVICES={shlex.quote(visible.mig)}",) if visible.mig else use_only(visible.gpus, gpus)
    )
    return Problem(
        f"CUDA_VISIBLE_DEVICES={visible.value} is cut short at {visible.stopped_by!r}",
        f"CUDA stops reading at {visible.stopped_by!r}: {visible.why}. What remains is {kept}, not "
        f"{counted(len(visible.value.split(',')), 'GPU')}.",
        Fix("Name only GPUs that are here, or use all.", (*only_kept, "unset CUDA_VISIBLE_DEVICES")),
        {"CUDA_VISIBLE_DEVICES": visible.value, "stopped_by": visible.stopped_by, "left": len(visible.gpus)},
        ("CUDA_VISIBLE_DEVICES",),
    )


@check(Severity.ERROR, source=_CUDA, because_of=("visible_devices_for_other_variable",))
def visible_devices_hide_all(visible: Visible, gpus: tuple[Gpu, ...]) -> Answer:
    """CUDA_VISIBLE_DEVICES hides every GPU.

    Why: empty is not unset: an empty list, a first entry that is no GPU, or a GPU named twice leaves none. PyTorch then
    trains on the CPU without a word, and accelerate starts N trainings that do not know of each other.

    Fix: unset it, or name the GPUs.
    """
    permitted = _permitted(gpus)
    if not permitted:
        return Skip("no GPU that this process may use" if gpus else "no GPU here")
    if visible.value is None:
        return Ok("CUDA_VISIBLE_DEVICES is not set: nothing is hidden")
    if visible.gpus or visible.mig:
        return Ok(f"{counted(len(visible.gpus) or 1, 'GPU')} left by CUDA_VISIBLE_DEVICES={visible.value}")
    return Problem(
        f"CUDA_VISIBLE_DEVICES={visible.value!r} leaves no GPU of {len(permitted)}",
        f"At {visible.stopped_by!r}: {visible.why}. CUDA then shows no GPU at all.",
        Fix("Unset it, or name the GPUs.", ("unset CUDA_VISIBLE_DEVICES", *use_only(permitted, gpus))),
        {"CUDA_VISIBLE_DEVICES": visible.value, "stopped_by": visible.stopped_by},
        ("CUDA_VISIBLE_DEVICES",),
    )


@check(Severity.INFO, source=_CUDA)
def visible_devices_hide_some(visible: Visible, gpus: tuple[Gpu, ...]) -> Answer:
    """CUDA_VISIBLE_DEVICES leaves some of the GPUs out.

    Why: often meant, sometimes a leftover of an earlier session: the run uses fewer GPUs than the machine has.

    Fix: unset it to use all.
    """
    if visible.value is None:
        return Skip("CUDA_VISIBLE_DEVICES is not set: all are used")
    if visible.stopped_by is not None or not visible.gpus:
        return Skip("the list itself is at fault")
    permitted = _permitted(gpus)
    hidden = [index for index in permitted if index not in visible.gpus]
    if hidden:
        return Problem(
            f"{gpu_list(hidden)} hidden by CUDA_VISIBLE_DEVICES={visible.value}",
            f"{len(visible.gpus)} of {len(permitted)} GPUs will be used.",
            Fix("To use all of them:", ("unset CUDA_VISIBLE_DEVICES",)),
            {"CUDA_VISIBLE_DEVICES": visible.value, "hidden": len(hidden)},
            ("CUDA_VISIBLE_DEVICES",),
        )
    return Ok(f"all {counted(len(permitted), 'GPU')} are used")


@check(Severity.WARNING, source=_CUDA)
def visible_devices_order_differs(visible: Visible, gpus: tuple[Gpu, ...], env: Mapping[str, str]) -> Answer:
    """GPU numbers mean other GPUs to CUDA than to nvidia-smi.

    Why: CUDA numbers the fastest GPU 0 unless CUDA_DEVICE_ORDER=PCI_BUS_ID; nvidia-smi and NVML number by the PCI bus.
    With GPUs of different models CUDA_VISIBLE_DEVICES=0 may pick another card than the one you looked at.

    Fix: set CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    names = {gpu.name for gpu in gpus if gpu.name}
    if len(names) < 2:
        return Skip("all GPUs are of one model") if names else Skip("no GPU with a name here")
    if env.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return Ok("CUDA_DEVICE_ORDER=PCI_BUS_ID: CUDA and nvidia-smi count alike")
    if visible.value is not None and not visible.by_number:
        return Ok("the GPUs are named by UUID")
    return Problem(
        f"{len(names)} GPU models, and CUDA_DEVICE_ORDER is {env.get('CUDA_DEVICE_ORDER') or 'not set'}",
        "CUDA puts the fastest GPU first, nvidia-smi goes by the PCI bus: number 0 is not the same card for both.",
        Fix("Let both count by the bus.", ("export CUDA_DEVICE_ORDER=PCI_BUS_ID",)),
        {"CUDA_DEVICE_ORDER": env.get("CUDA_DEVICE_ORDER"), "models": len(names)},
        ("CUDA_DEVICE_ORDER",),
    )


@check(
    Severity.WARNING,
    source="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html",
)
def visible_devices_for_other_variable(visible: Visible, env: Mapping[str, str], container: Container) -> Answer:
    """CUDA_VISIBLE_DEVICES holds a word that belongs to NVIDIA_VISIBLE_DEVICES.

    Why: `all`, `none` and `void` are words of the container toolkit. CUDA takes them for the name of a GPU that does
    not exist, and shows none.

    Fix: unset CUDA_VISIBLE_DEVICES; the container runtime reads NVIDIA_VISIBLE_DEVICES.
    """
    value = (visible.value or "").strip().lower()
    if value in ("all", "none", "void", "nodevfiles"):
        return Problem(
            f"CUDA_VISIBLE_DEVICES={visible.value} is no list of GPUs",
            f"{visible.value!r} is a word of NVIDIA_VISIBLE_DEVICES; CUDA reads it as an unknown GPU and shows none.",
            Fix("Unset it.", ("unset CUDA_VISIBLE_DEVICES",)),
            {"CUDA_VISIBLE_DEVICES": visible.value, "NVIDIA_VISIBLE_DEVICES": env.get("NVIDIA_VISIBLE_DEVICES"),
             "container": container.kind},
            ("CUDA_VISIBLE_DEVICES",),
        )  # fmt: skip
    return Skip("CUDA_VISIBLE_DEVICES is not set") if visible.value is None else Ok("it is a list of GPUs")
