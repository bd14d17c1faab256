"""Which GPUs will PyTorch see?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Family, Fix, Ok, Place, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Config, Container, Gpu, Plan, TorchRuntime, Visible
from mgpu.text import counted

from ._gpus import usable_count, use_only
from ._wording import gpu_list, parse_digits

FAMILY = Family(gpu_only=True, stops_start="on_gpus")

_CUDA = "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables"


def _permitted_gpus(gpus: tuple[Gpu, ...]) -> list[int]:
    """Return the GPUs that this process may open: CUDA counts only those."""
    return [gpu.index for gpu in gpus if gpu.permitted]


def _is_cpu_planned(plan: Plan) -> bool:
    """Return whether the run is planned for the CPU, so hiding the GPUs is intended."""
    return plan.expect_gpus == 0 or plan.cpu_ranks is not None


def _numbers_are_nvml(visible: Visible, gpus: tuple[Gpu, ...], env: Mapping[str, str]) -> bool:
    """Return whether the indices in the list mean the same GPUs for CUDA as for nvidia-smi."""
    models = {gpu.name for gpu in gpus if gpu.permitted and gpu.name}
    return not visible.by_number or len(models) < 2 or env.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"


@check(Severity.ERROR, source=_CUDA)
def visible_devices_cut_short(visible: Visible, gpus: tuple[Gpu, ...], env: Mapping[str, str]) -> Answer:
    """CUDA_VISIBLE_DEVICES contains a GPU that does not exist.

    Why: CUDA reads the list from left to right and silently stops at the first invalid entry: `0,1,9,2` on a 4-GPU
    machine shows two GPUs, not three. The run then has fewer ranks, or ranks without a GPU.

    Fix: list only GPUs that `nvidia-smi -L` shows.
    """
    if visible.value is None:
        return Skip("CUDA_VISIBLE_DEVICES is not set")
    if not gpus:
        return Skip("no GPU here")
    if visible.stopped_by is None:
        return Ok(f"{counted(len(visible.value.split(',')), 'entry', 'entries')}, all valid")
    if not visible.gpus and visible.mig is None:
        return Skip("all GPUs are hidden: see visible_devices_hide_all")
    exact = _numbers_are_nvml(visible, gpus, env)
    instances = ",".join((visible.mig, *visible.more_mig)) if visible.mig else ""
    kept = instances or (gpu_list(visible.gpus) if exact else counted(len(visible.gpus), "GPU"))
    only_kept = (shell("export CUDA_VISIBLE_DEVICES={:ids}", instances),) if instances else use_only(visible.gpus, gpus)
    return Problem(
        f"CUDA_VISIBLE_DEVICES={visible.value} is cut off at {visible.stopped_by!r}",
        f"CUDA stops reading at {visible.stopped_by!r}: {visible.why}. The run gets {kept}, not "
        f"{counted(len(visible.value.split(',')), 'GPU')}.",
        Fix(
            "Give each rank its own MIG instance." if visible.mig else "List only existing GPUs, or use all.",
            (*only_kept, "unset CUDA_VISIBLE_DEVICES"),
        ),
        {"CUDA_VISIBLE_DEVICES": visible.value, "stopped_by": visible.stopped_by, "left": usable_count(visible)},
        ("CUDA_VISIBLE_DEVICES",),
    )


@check(Severity.ERROR, source=_CUDA, because_of=("visible_devices_for_other_variable", "slurm_granted_no_gpus"))
def visible_devices_hide_all(visible: Visible, gpus: tuple[Gpu, ...], plan: Plan) -> Answer:
    """CUDA_VISIBLE_DEVICES hides every GPU.

    Why: an empty list (which is not the same as unset), an invalid first entry, or a GPU listed twice leaves no GPU.
    PyTorch then silently trains on the CPU, and accelerate starts N independent single-process runs.

    Fix: unset it, or list the GPUs.
    More: If the run is intended for the CPU, use `--expect-gpus 0`.
    """
    permitted = _permitted_gpus(gpus)
    if not permitted:
        return Skip("no GPU accessible to this process" if gpus else "no GPU here")
    if visible.value is None:
        return Ok("CUDA_VISIBLE_DEVICES is not set: no GPU is hidden")
    if visible.gpus or visible.mig:
        return Ok(f"{counted(usable_count(visible), 'GPU')} visible with CUDA_VISIBLE_DEVICES={visible.value}")
    if _is_cpu_planned(plan):
        return Ok(f"CUDA_VISIBLE_DEVICES={visible.value!r} hides every GPU, as planned")
    number = len(permitted)
    return Problem(
        f"CUDA_VISIBLE_DEVICES={visible.value!r} hides {'the only GPU' if number == 1 else f'all {number} GPUs'}",
        f"At {visible.stopped_by!r}: {visible.why}. CUDA then shows no GPU.",
        Fix(commands=("unset CUDA_VISIBLE_DEVICES", *use_only(permitted, gpus))),
        {"CUDA_VISIBLE_DEVICES": visible.value, "stopped_by": visible.stopped_by},
        ("CUDA_VISIBLE_DEVICES",),
    )


@check(Severity.INFO, source=_CUDA)
def visible_devices_hide_some(visible: Visible, gpus: tuple[Gpu, ...], env: Mapping[str, str]) -> Answer:
    """CUDA_VISIBLE_DEVICES hides some of the GPUs.

    Why: this is often intended, sometimes left over from an earlier session. The run uses fewer GPUs than the machine
    has.

    Fix: unset it to use all.
    """
    if visible.value is None:
        return Skip("CUDA_VISIBLE_DEVICES is not set: all GPUs are used")
    if visible.stopped_by is not None or not visible.gpus:
        return Skip("the list is invalid")
    permitted = _permitted_gpus(gpus)
    hidden = [index for index in permitted if index not in visible.gpus]
    if hidden:
        exact = _numbers_are_nvml(visible, gpus, env)
        which = gpu_list(hidden) if exact else f"{len(hidden)} of {len(permitted)} GPUs"
        return Problem(
            f"{which} hidden by CUDA_VISIBLE_DEVICES={visible.value}",
            f"{len(visible.gpus)} of {len(permitted)} GPUs will be used"
            + ("." if exact else ". CUDA chooses them by speed, because CUDA_DEVICE_ORDER is not PCI_BUS_ID."),
            Fix("Unset it to use all of them.", ("unset CUDA_VISIBLE_DEVICES",)),
            {"CUDA_VISIBLE_DEVICES": visible.value, "hidden": len(hidden)},
            ("CUDA_VISIBLE_DEVICES",),
        )
    return Ok(f"all {counted(len(permitted), 'GPU')} are used")


@check(Severity.WARNING, source=_CUDA)
def visible_devices_order_differs(visible: Visible, gpus: tuple[Gpu, ...], env: Mapping[str, str]) -> Answer:
    """CUDA may number the GPUs in a different order than nvidia-smi.

    Why: CUDA numbers the fastest GPU first, nvidia-smi uses PCI bus order, so index 0 is not the same GPU for both.
    More: With GPUs of different models CUDA_VISIBLE_DEVICES=0 may select a different GPU than the one you checked.

    Fix: set CUDA_DEVICE_ORDER=PCI_BUS_ID, so that both use the bus order.
    """
    names = {gpu.name for gpu in gpus if gpu.name}
    if len(names) < 2:
        return Skip("all GPUs are of one model") if names else Skip("no GPU here reports its name")
    if env.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return Ok("CUDA_DEVICE_ORDER=PCI_BUS_ID: CUDA and nvidia-smi use the same order")
    if visible.value is not None and not visible.by_number:
        return Ok("the GPUs are listed by UUID")
    return Problem(
        f"{len(names)} GPU models, but CUDA_DEVICE_ORDER is {env.get('CUDA_DEVICE_ORDER') or 'not set'}",
        fix=Fix(commands=("export CUDA_DEVICE_ORDER=PCI_BUS_ID",)),
        evidence={"CUDA_DEVICE_ORDER": env.get("CUDA_DEVICE_ORDER"), "models": len(names)},
        subjects=("CUDA_DEVICE_ORDER",),
    )


@check(Severity.WARNING, source=_CUDA, because_of=("visible_devices_order_differs",))
def torch_numbers_gpus_otherwise(torch_runtime: TorchRuntime, visible: Visible, gpus: tuple[Gpu, ...]) -> Answer:
    """PyTorch numbers the GPUs in a different order than nvidia-smi.

    Why: PyTorch's device order was compared with nvidia-smi's and is not the PCI bus order.
    More: CUDA numbers the GPU that it considers fastest first. An index from nvidia-smi then means a different GPU, and
    the job runs on a busy GPU or on the one that drives the display.

    Fix: set CUDA_DEVICE_ORDER=PCI_BUS_ID, so that both use the bus order.
    """
    if torch_runtime.import_error or len(torch_runtime.devices) < 2 or visible.mig:
        return Skip("PyTorch shows fewer than two GPUs")
    by_index = {gpu.index: gpu.uuid for gpu in gpus}
    expected = [by_index.get(index) for index in visible.gpus]
    seen = [device.uuid for device in torch_runtime.devices]
    if None in expected or None in seen or sorted(map(_bare_uuid, expected)) != sorted(map(_bare_uuid, seen)):
        return Skip("PyTorch and NVML do not show the same GPUs")
    if [_bare_uuid(uuid) for uuid in expected] == [_bare_uuid(uuid) for uuid in seen]:
        return Ok(f"{counted(len(seen), 'GPU')}, in the same order for both")
    places = [_bare_uuid(uuid) for uuid in seen]
    first = next(place for place, uuid in enumerate(expected) if _bare_uuid(uuid) != places[place])
    really = next(index for index in visible.gpus if _bare_uuid(by_index[index]) == places[first])
    return Problem(
        f"cuda:{first} is GPU {really} in nvidia-smi, not GPU {visible.gpus[first]}",
        fix=Fix(commands=("export CUDA_DEVICE_ORDER=PCI_BUS_ID",)),
        evidence={f"cuda:{place}": device.name for place, device in enumerate(torch_runtime.devices)},
        subjects=("CUDA_DEVICE_ORDER",),
    )


def _bare_uuid(uuid: str | None) -> str:
    """Return a UUID in PyTorch's form, without NVML's prefix."""
    return (uuid or "").removeprefix("GPU-").lower()


@check(
    Severity.WARNING,
    source="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html",
)
def visible_devices_for_other_variable(
    visible: Visible, env: Mapping[str, str], container: Container, plan: Plan
) -> Answer:
    """CUDA_VISIBLE_DEVICES has a value that is valid only for NVIDIA_VISIBLE_DEVICES.

    Why: `all`, `none` and `void` are values for the container toolkit. CUDA reads them as an unknown GPU and shows
    none.

    Fix: unset it.
    More: The container runtime reads NVIDIA_VISIBLE_DEVICES instead.
    """
    value = (visible.value or "").strip().lower()
    if value != "all" and _is_cpu_planned(plan):
        return Ok("no GPU is planned")
    if value in ("all", "none", "void", "nodevfiles"):
        return Problem(
            f"CUDA_VISIBLE_DEVICES={visible.value} is not a list of GPUs",
            f"{visible.value!r} is a value for NVIDIA_VISIBLE_DEVICES. CUDA reads it as an unknown GPU and shows none.",
            Fix(commands=("unset CUDA_VISIBLE_DEVICES",)),
            {
                "CUDA_VISIBLE_DEVICES": visible.value,
                "NVIDIA_VISIBLE_DEVICES": env.get("NVIDIA_VISIBLE_DEVICES"),
                "container": container.kind,
            },
            ("CUDA_VISIBLE_DEVICES",),
        )
    return Skip("CUDA_VISIBLE_DEVICES is not set") if visible.value is None else Ok("it is a list of GPUs")


@check(Severity.INFO, source="https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html")
def visible_devices_of_other_vendor(env: Mapping[str, str], gpus: tuple[Gpu, ...]) -> Answer:
    """GPUs are selected with another vendor's variable, which does not affect NVIDIA GPUs.

    Why: HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES are AMD's, ZE_AFFINITY_MASK is Intel's. On this machine they hide
    nothing, so the run uses every GPU, including those it should not use.

    Fix: use NVIDIA's variable.
    """
    if not gpus:
        return Skip("no NVIDIA GPU here")
    names = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK")
    others = {name: env[name] for name in names if name in env}
    if not others or "CUDA_VISIBLE_DEVICES" in env:  # Slurm sets all of them together
        return Ok("GPUs are not selected with another vendor's variable alone")
    value = next(iter(others.values()))
    usable = all(parse_digits(part) is not None for part in value.split(","))
    return Problem(
        f"{', '.join(f'{name}={value}' for name, value in others.items())} has no effect on NVIDIA GPUs",
        f"All {counted(len(_permitted_gpus(gpus)), 'GPU')} will be used.",
        Fix(
            commands=(shell("export CUDA_VISIBLE_DEVICES={}", value),)
            if usable
            else (shell("unset {:name}", list(others)),)
        ),
        others,
        tuple(others),
    )


@check(
    Severity.WARNING,
    source="https://github.com/huggingface/accelerate (utils/launch.py)",
    because_of=("config_gpu_ids_invalid",),
)
def visible_devices_replaced_by_config(visible: Visible, config: Config, gpus: tuple[Gpu, ...]) -> Answer:
    """The config's gpu_ids override CUDA_VISIBLE_DEVICES.

    Why: `accelerate launch` sets CUDA_VISIBLE_DEVICES to gpu_ids, regardless of its value. Two jobs that share a
    machine through this variable then run on the same GPUs.

    Fix: remove gpu_ids from the config to use the variable.
    """
    ids = config.values.get("gpu_ids")
    if not isinstance(ids, str) or ids == "all":
        return Skip("gpu_ids selects no GPUs")
    if visible.value is None:
        return Ok(f"only gpu_ids selects GPUs: {ids}")
    permitted, wanted = _permitted_gpus(gpus), [parse_digits(entry) for entry in ids.split(",")]
    if any(number is None or number >= len(permitted) for number in wanted):
        return Skip("gpu_ids is invalid: see config_gpu_ids_invalid")
    chosen = [permitted[number] for number in wanted if number is not None]
    if chosen == list(visible.gpus):
        return Ok(f"gpu_ids and CUDA_VISIBLE_DEVICES agree: {gpu_list(chosen)}")
    return Problem(
        f"gpu_ids: {ids} overrides CUDA_VISIBLE_DEVICES={visible.value}",
        f"The launch uses {gpu_list(chosen)}, regardless of the variable.",
        (Fix(), Fix("Or let the config select the GPUs.", ("unset CUDA_VISIBLE_DEVICES",))),
        {"gpu_ids": ids, "CUDA_VISIBLE_DEVICES": visible.value},
        ("CUDA_VISIBLE_DEVICES",),
        place=_place(config),
    )


def _place(config: Config) -> Place:
    mark = config.marks.get("gpu_ids")
    return Place(config.path, mark.line if mark else None, mark.column if mark else None, "gpu_ids")
